"""Meaning of trace events: kernels and collectives by name, messages by arguments.

    is_communication("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(...)")     # True
    collective_name("_allgather_base")                                    # "all_gather"
    message(event)                     # Message("all_reduce", group="dp", bytes=1048576, ...)

Names are those of PyTorch, NCCL, RCCL and Gloo, from traces and from their sources.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal, NamedTuple

import msgspec

from scalewise.trace.stream import Event

Role = Literal["compute", "communication", "copy"]
MAX_COUNT = 10**15
"""Largest count and size, a petabyte: what is larger is damage."""

STEP = "ProfilerStep#"
"""Name of torch.profiler's range of one step; its number follows."""

# NCCL and RCCL: ncclKernel_, ncclDevKernel_, ncclSymkDevKernel_, rcclGenericKernel, mscclKernel_.
# PyTorch's symmetric memory: one_shot_all_reduce_kernel and its like. DeepEP: dispatch, combine.
_COMMUNICATION = re.compile(
    r"(?:void\s+)?(?:nccl\w*Kernel|rccl\w*Kernel|msccl\w*Kernel)"
    r"|.*(?:one_shot|two_shot|multimem)\w*(?:all_reduce|all_gather|reduce|reduce_scatter)\w*kernel"
    r"|.*deep_ep::\w+::(?:dispatch|combine)"
)

# In this order, because "all_reduce" contains "reduce". Barriers are all-reduces by name.
_COLLECTIVES = (
    ("barrier", "barrier"),
    ("reducescatter", "reduce_scatter"),
    ("allreduce", "all_reduce"),
    ("allgather", "all_gather"),
    ("alltoall", "all_to_all"),
    ("broadcast", "broadcast"),
    ("sendrecv", "send_recv"),
    ("dispatch", "all_to_all"),
    ("combine", "all_to_all"),
    ("reduce", "reduce"),
    ("scatter", "scatter"),
    ("gather", "gather"),
    ("send", "send"),
    ("recv", "recv"),
    ("receive", "recv"),
)
OTHER = "other"
"""A collective whose kernel name does not tell its kind, such as ncclDevKernel_Generic."""

CPU_COMMUNICATION = ("gloo:", "mpi:", "ucc:")
"""Ranges in which a library communicates on the CPU. `nccl:` is none: it only launches."""
LAUNCH = "nccl:"
"""Ranges of the host that launch a collective on a device."""

# Operators that enclose waiting: autograd's nodes, hooks, and collectives themselves.
_NO_COMPUTE = (
    "autograd::", "torch::", "c10d::", "_c10d_functional::", "c10d_functional::", "profiler::",
    "symm_mem::", "record_param_comms",
)  # fmt: skip

_DTYPE_BYTES = {
    "double": 8, "long": 8, "longint": 8, "int64": 8, "uint64": 8, "complexfloat": 8,
    "complexdouble": 16, "float": 4, "int": 4, "int32": 4, "uint32": 4, "half": 2, "short": 2,
    "bfloat16": 2, "int16": 2, "uint16": 2, "byte": 1, "char": 1, "bool": 1, "unsignedchar": 1,
    "signedchar": 1, "int8": 1, "uint8": 1,
}  # fmt: skip


class Message(NamedTuple):
    """Data of one call of a collective, as far as the trace has it."""

    collective: str
    """For example "all_reduce"."""
    group: str | None = None
    """Process group: its description where it has one, else its name."""
    group_size: int | None = None
    """Ranks in it."""
    bytes: int | None = None
    """Larger of a rank's input and output, bytes, as in nccl-tests."""
    dtype: str | None = None
    """Data type of the elements, as in the trace."""
    ranks: str | None = None
    """Ranks of the group as text, where the trace lists them."""


def is_communication(kernel: str) -> bool:
    """Return whether a kernel of this name communicates."""
    return _COMMUNICATION.match(kernel) is not None


def role(kernel: str) -> Role:
    """Return the kind of a kernel by its name; some profilers list copies among kernels."""
    if kernel.startswith(("Memcpy", "Memset")):
        return "copy"
    return "communication" if is_communication(kernel) else "compute"


def is_compute(operator: str) -> bool:
    """Return whether an operator of this name computes on the CPU, from its start to its end."""
    return ("::" in operator and not operator.startswith(_NO_COMPUTE)) or "cpp_fused" in operator


def collective_name(text: str) -> str:
    """Return the one name of a collective for all spellings of libraries.

    Args:
        text: "allreduce", "_allgather_base", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(...)".
    """
    squashed = re.sub("[^a-z]", "", text.split("(")[0].lower())
    return next((name for word, name in _COLLECTIVES if word in squashed), OTHER)


def dtype_bytes(dtype: str) -> int | None:
    """Return bytes per element: "BFloat16", "c10::BFloat16", "Float8_e4m3fn", "long int"."""
    squashed = re.sub(r"[^a-z0-9]", "", dtype.lower().removeprefix("c10::"))
    if squashed.startswith("float8"):
        return 1
    return _DTYPE_BYTES.get(squashed)


def message(event: Event) -> Message:
    """Return the message of a communication kernel or range.

    Args:
        event: A kernel, or a range such as `gloo:all_reduce` or `record_param_comms`.
    """
    text = arguments(event)
    name = text.get("Collective name")
    collective = collective_name(name if isinstance(name, str) and name else event.name)
    group = _text(text.get("Process Group Description"))
    if group in (None, "undefined"):
        group = _text(text.get("Process Group Name"))
    size, dtype = _whole(text.get("Group size")), _text(text.get("dtype"))
    counts = [_whole(text.get(key)) for key in ("In msg nelems", "Out msg nelems")]
    known = [count for count in counts if count is not None]
    each = dtype_bytes(dtype) if dtype else None
    volume = max(known) * each if known and each is not None else _volume(text)
    if dtype is None and isinstance(kinds := text.get("Input type"), list) and kinds:
        dtype = _text(kinds[0])
    return Message(collective, group, size, volume, dtype, _text(text.get("Process Group Ranks")))


def arguments(event: Event) -> dict[str, Any]:
    """Return the arguments of an event; empty without any."""
    if not event.args:
        return {}
    try:
        text = msgspec.json.decode(event.args)
    except (ValueError, RecursionError):
        return {}
    return text if isinstance(text, dict) else {}


def external_id(event: Event) -> int | None:
    """Return the number by which a kernel refers to the operator that launched it."""
    return _whole(arguments(event).get("External id"))


def step_number(name: str) -> int | None:
    """Return the number of a step from the name of its range."""
    digits = name[len(STEP) :]
    return _whole(digits)


def _volume(answer: dict[str, Any]) -> int | None:
    """Return bytes of the inputs from their shapes (record_shapes=True)."""
    shapes, kinds = answer.get("Input Dims"), answer.get("Input type")
    if not isinstance(shapes, list) or not isinstance(kinds, list):
        return None
    total = 0
    for shape, kind in zip(shapes, kinds, strict=False):
        each = dtype_bytes(kind) if isinstance(kind, str) else None
        if each is None or not isinstance(shape, list):
            return None
        lengths = [_whole(length) for length in shape]
        if None in lengths:
            return None
        total += each * math.prod(length for length in lengths if length is not None)
    return total if shapes and kinds and total <= MAX_COUNT else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _whole(value: object) -> int | None:
    """Return a count; traces have numbers or text."""
    if isinstance(value, str) and re.fullmatch("[0-9]{1,16}", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    # NaN is in no range.
    return int(value) if 0 <= value <= MAX_COUNT else None
