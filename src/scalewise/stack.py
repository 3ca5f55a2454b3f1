"""The software a run uses: what eager or compiled, fused or unfused, old or new costs.

    stack = load_stack("megatron")
    stack_for("nanotron")            # by framework name; unknown ones get a generic stack

A chip has constants of its own (`Calibration` in chip.py); everything that another framework on
the same chip does differently lives here, as few, physical, named parameters. Files under
`catalog/stacks` are written by `scalewise calibrate` and say what they were fitted on.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Literal

import msgspec

from scalewise.errors import InputError


class Stack(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Named constants of a software stack. Times in seconds, sizes in bytes."""

    name: str
    """How people call it."""

    frameworks: tuple[str, ...] = ()
    """Framework names (as in the runs table) that this stack speaks for."""

    since: str = ""
    """First software date it speaks for, YYYY-MM; empty for any."""

    until: str = ""
    """First software date it no longer speaks for, YYYY-MM; empty for any."""

    constants_of: str | None = None
    """Another stack whose fitted constants it shares: the same code, another setting."""

    devices: Literal["gpu", "tpu", "other", "any"] = "any"
    """Kind of accelerator it runs on; XLA on a TPU is not XLA on a GPU."""

    compiled: bool = False
    """Whether kernels are fused and launched from a graph by default."""

    attention_kernel: Literal["flash1", "flash2", "cudnn", "splash", "unfused"] = "flash2"
    """Generation of the attention kernel, a key into the chip's table."""

    partition: Literal["even", "flops"] = "even"
    """How layers go to pipeline stages: evenly, or filled in order until the FLOP share is met."""

    schedules: tuple[Literal["gpipe", "1f1b", "interleaved", "zbh1", "zbv"], ...] = (
        "gpipe", "1f1b", "interleaved", "zbh1", "zbv",
    )  # fmt: skip
    """Pipeline schedules that the software has: what a search tries unless told otherwise."""

    gathers_kept: bool = False
    """Whether the inputs gathered by sequence parallelism stay in memory until backward."""

    recompute_skips_last: bool = True
    """Whether a full recompute stops before the last GEMM of the block, which backward never
    needs (PyTorch's non-reentrant checkpoint does)."""

    reduce_every_micro_step: bool = True
    """FSDP: reduce-scatter in every micro step (True), or once after accumulation."""

    fits: tuple[str, ...] = ()
    """Optional constants that a calibration may move for this stack."""

    memory_traffic: float
    """Bytes moved by norms, activations, rotary and casts over the least possible."""

    host_layer_seconds: float
    """Host time to launch forward and backward of one layer, seconds."""

    attention_forward: float
    """Forward attention rate over the kernel table of the chip."""

    attention_backward: float
    """Backward attention rate over the kernel table of the chip."""

    gemm: float = 1.0
    """GEMM rate over the chip's sustained one: library, layouts, fused epilogues."""

    contention: float
    """Slow-down of compute per second of communication that runs beside it."""

    tp_overlap: float
    """Share of tensor-parallel communication hidden behind compute."""

    dp_overlap: float
    """Share of DDP's gradient all-reduce that may hide behind the last backward."""

    shard_overlap: float
    """Share of ZeRO-1/2's reduce-scatter and parameter gather that may hide likewise."""

    gradient_bytes: float
    """Bytes moved per unsharded parameter and micro step to flatten, cast and add gradients."""

    logit_bytes: float
    """Bytes moved per logit by loss and softmax, forward and backward."""

    optimizer_bytes: float
    """Bytes moved per local parameter by the optimizer step."""

    step_seconds: float
    """Constant per step: loader, clipping, logging."""

    selective_share: float = 0.0
    """Share of the forward GEMM work that selective recompute repeats (attention always is)."""

    reduce_bytes: float = 4.0
    """Bytes per gradient element on the wire."""

    bucket_bytes: float = 25e6
    """Size of one gradient bucket, bytes; each is a call of its own."""

    bucket_bytes_per_rank: float = 0.0
    """Growth of the bucket with data-parallel ranks, bytes, where the framework has it."""

    cast_bytes: float = 4.0
    """Bytes moved per GEMM input element to quantise it below 16 bits."""

    pipeline_host_seconds: float = 0.0
    """Host time per layer that pipelines over several domains add, times tp^1.25, seconds."""

    straggler: float
    """Share of the step lost per doubling of scale-up domains: the slowest of N, and jitter."""

    gradient_memory: float = 4.0
    """Bytes kept per local gradient element, buffers included."""

    activation_factor: float = 1.0
    """Activation bytes kept over the least that backward needs."""

    selective_memory: float = 1.0
    """Share of them that selective recompute keeps on the device (fused attention keeps no scores
    anyway; XLA policies drop or offload most)."""

    logit_memory: float = 8.0
    """Bytes kept per logit at the peak."""

    workspace_bytes: float = 1.2e9
    """Context, NCCL buffers, cuBLAS workspaces, bytes."""

    fragmentation: float = 0.03
    """Share of memory lost to fragmentation."""

    memory_interval: tuple[float, float] = (0.85, 1.15)
    """80 % interval of memory, as factors on the prediction."""

    interval: tuple[float, float] = (0.8, 1.25)
    """80 % interval of tokens per second, as factors on the prediction."""

    largest_run: int = 0
    """Accelerators of the largest run it was fitted on; beyond, the interval widens. 0: none."""

    fitted_on: str = "not fitted"
    """Runs it was fitted on: sources, rows, error."""

    on_bounds: tuple[str, ...] = ()
    """Parameters that the data did not determine: they sit on a bound or on their prior."""

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            value = getattr(self, field)
            if isinstance(value, float) and not 0.0 <= value < float("inf"):
                raise InputError(
                    f"stack {self.name}: {field} = {value} must be a number that is not negative",
                    hint="run `scalewise calibrate` again, or edit the stack file",
                )


def load_stack(name: str) -> Stack:
    """Load a stack by name or path to a TOML file."""
    from scalewise.catalog import load

    return load("stacks", name, Stack)


@lru_cache(maxsize=1024)
def stack_for(
    framework: str | None, *, date: str = "", device: str = "gpu", compiled: bool | None = None
) -> Stack:
    """Return the stack that speaks for a framework.

    Args:
        framework: As the user names it, or None.
        date: Software date, YYYY-MM or longer; empty takes the newest stack.
        device: Kind of accelerator: "gpu", "tpu" or "other".
        compiled: Whether the run was compiled, if stated: decides between the generic stacks.

    Returns:
        A stack of the catalog whose framework, date and device fit; else the generic eager or
        compiled one, whose interval is wider.
    """
    from scalewise.catalog import names

    wanted = (framework or "").lower()
    for name in names("stacks"):
        stack = load_stack(name)
        if wanted not in stack.frameworks or stack.devices not in (device, "any"):
            continue
        if (stack.since and date and date < stack.since) or (
            stack.until and (not date or date >= stack.until)
        ):
            continue
        return stack
    fused = compiled if compiled is not None else device != "gpu"
    return load_stack("generic-compiled" if fused else "generic-eager")
