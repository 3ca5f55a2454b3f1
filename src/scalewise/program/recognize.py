"""The strategy of a captured program, from what it communicates.

    recognized = recognize([capture])
    str(recognized.strategy), recognized.seq_len, recognized.global_batch

Groups are recognized by the work they do, not by their names alone: parameters that FSDP gathers,
gradients that replicas reduce, activations that a layer gathers, tensors sent between stages. What
contradicts itself is a note, never a guess in silence.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from scalewise.errors import InputError
from scalewise.program.events import Capture, Event
from scalewise.strategy import Recompute, Schedule, Sharding, Strategy

FSDP_GATHER, FSDP_REDUCE = "FSDP::all_gather", "FSDP::post_backward_reduce"
"""Ranges of FSDP2 around its collectives (torch.distributed.fsdp._fully_shard)."""

PASS = re.compile(r"PP:(\d+)([FBIW])\d+")
"""Range of a pass of PyTorch's pipelines: stage, kind and micro-batch."""

CONTEXT_NAMES = ("cp", "context", "seq")
"""Starts of names of mesh dimensions that split the sequence."""

EXPERT_NAMES = ("ep", "expert")
"""Starts of names of mesh dimensions that split experts."""


class Recognized(msgspec.Struct, frozen=True, kw_only=True):
    """What a program does, in the words of a question."""

    strategy: Strategy
    seq_len: int
    """Tokens per sequence; over all context-parallel ranks."""
    global_batch: int
    """Sequences per step."""
    precision: str
    """Of most GEMM FLOPs."""
    roles: dict[str, str]
    """Role of every process group: shard, replicate, tensor, context, expert, pipeline."""
    notes: tuple[str, ...] = ()


def recognize(captures: Sequence[Capture]) -> Recognized:
    """Return the strategy of a program.

    Args:
        captures: One per pipeline stage, first stage first; one without a pipeline.

    Raises:
        InputError: If the groups cannot be those of one strategy.
    """
    first = captures[0]
    roles = {name: role for capture in captures for name, role in roles_of(capture).items()}
    sizes = {role: _size(first, roles, role) for role in set(roles.values())}
    tp, cp = sizes.get("tensor", 1), _inside(first, roles, "context", CONTEXT_NAMES)
    ep = _inside(first, roles, "expert", EXPERT_NAMES)
    pp, shard = sizes.get("pipeline", 1), sizes.get("shard", 1)
    if first.pipelined:
        pp = max(pp, _stages(first))
    if shard % cp == 0 and shard > 1 and cp > 1:
        # Context-parallel ranks hold the same parameters, so FSDP shards over them too.
        shard //= cp
    replicate = sizes.get("replicate", 1)
    rest = first.world // (tp * cp * pp)
    if shard * replicate != rest:
        if shard * replicate == 1 or rest % (shard * replicate):
            raise InputError(
                f"the program's groups (TP {tp}, CP {cp}, PP {pp}, shards {shard}, replicas "
                f"{replicate}) do not make {first.world} ranks",
                hint="some communication may be missing: see the table of collectives",
            )
        replicate = rest // shard
    sharding: Sharding = "zero3" if "shard" in sizes else "ddp"
    rows, seq_len = _rows(first)
    micro = len(first.inputs) or 1
    notes: list[str] = []
    if any(shape != first.inputs[0] for shape in first.inputs):
        notes.append("micro-batches differ in shape: the first one is taken for all")
    gathers = [e for e in first.collectives() if e.label.startswith(FSDP_GATHER)]
    again = any(event.phase in ("backward", "recompute") for event in gathers)
    recompute: Recompute = "none"
    if any(capture.checkpointed for capture in captures):
        recompute = _recompute(captures)
    chunks, schedule = _schedule(captures)
    strategy = Strategy(
        tp=tp,
        sequence_parallel=tp == 1 or _gathers_activations(first, roles),
        pp=pp,
        virtual_stages=chunks if schedule == "interleaved" else 1,
        schedule=schedule,
        cp=cp,
        ep=ep,
        dp_replicate=replicate,
        dp_shard=shard,
        sharding=sharding,
        reshard_after_forward=again if gathers else True,
        micro_batch=rows,
        recompute=recompute,
    )
    return Recognized(
        strategy=strategy,
        seq_len=seq_len * cp,
        global_batch=rows * micro * shard * replicate,
        precision=precision_of(captures),
        roles=roles,
        notes=tuple(notes),
    )


ROLES = ("pipeline", "shard", "replicate", "context", "tensor", "expert", "gradients")
"""Roles by the strength of their evidence; plain all-reduces of gradients are the weakest."""


def roles_of(capture: Capture) -> dict[str, str]:
    """Return the role of every process group that communicated."""
    found: dict[str, set[str]] = {}
    for event in capture.collectives():
        role = _role(event, capture)
        if role is not None:
            found.setdefault(event.group, set()).add(role)
    best = {group: min(roles, key=ROLES.index) for group, roles in found.items()}
    return {g: "replicate" if role == "gradients" else role for g, role in best.items()}


def _role(event: Event, capture: Capture) -> str | None:
    """Return what one collective is for; None if it tells nothing, as the mean of a loss."""
    dimension = capture.groups[event.group].dimension
    if event.label.startswith(FSDP_GATHER):
        return "shard"
    if event.label.startswith(FSDP_REDUCE):
        return "replicate" if event.name == "all_reduce" else "shard"
    if dimension.startswith(CONTEXT_NAMES):
        return "context"
    if event.name in ("send", "recv"):
        return "pipeline"
    if event.name == "all_to_all" or dimension.startswith(EXPERT_NAMES):
        return "expert"
    if event.phase == "optimizer" or event.name == "broadcast":
        return None
    if event.functional and event.phase in ("forward", "recompute") and event.module:
        return "tensor"
    if event.phase == "backward" and event.name == "all_reduce":
        return "tensor" if event.functional else "gradients"
    return "tensor" if event.module and event.phase == "forward" else None


def _size(capture: Capture, roles: dict[str, str], role: str) -> int:
    """Return the ranks of the groups of a role; the largest if there are several."""
    found = [each.size for name, each in capture.groups.items() if roles.get(name) == role]
    return max(found, default=1)


def _inside(capture: Capture, roles: dict[str, str], role: str, names: tuple[str, ...]) -> int:
    """Return the ranks of a role that may have no group of its own.

    A dimension that spans the same ranks as the shards has one group with them. It is one of the
    mesh, and its exchange is no gather or reduction of FSDP.
    """
    size = _size(capture, roles, role)
    if size > 1:
        return size
    shared = {
        capture.groups[event.group].size for event in capture.collectives()
        if event.phase == "forward" and event.name in ("all_to_all", "all_gather")
        and roles.get(event.group) in ("shard", "replicate", "tensor")
        and (event.name == "all_to_all" or event.functional)
    }  # fmt: skip
    named = [
        ranks for mesh in capture.meshes for name, ranks in zip(mesh.names, mesh.shape, strict=True)
        if name.startswith(names) and ranks in shared
    ]  # fmt: skip
    return max(named, default=1)


def _stages(capture: Capture) -> int:
    """Return the stages of a pipeline, from the dimension of the mesh that sends."""
    for event in capture.collectives():
        if event.name in ("send", "recv"):
            return capture.groups[event.group].size
    return 1


def _schedule(captures: Sequence[Capture]) -> tuple[int, Schedule]:
    """Return chunks of a stage and the schedule of a pipeline, from the passes of its ranks."""
    passes = [PASS.fullmatch(event.label) for event in captures[0].events]
    found = [each.groups() for each in passes if each]
    chunks = max(len({stage for stage, _ in found}), 1)
    if any(kind in "IW" for _, kind in found):
        return chunks, "zbv" if chunks == 2 and _descends(captures) else "zbh1"
    order = [kind for at, (_, kind) in enumerate(found) if at == 0 or found[at - 1] != found[at]]
    if chunks > 1:
        return chunks, "interleaved"
    first = "".join(order).find("B")
    return chunks, "gpipe" if first >= 0 and "F" not in order[first:] else "1f1b"


def _descends(captures: Sequence[Capture]) -> bool:
    """Whether the first rank holds the last stage, as in schedules that go down and up again."""
    stages = [
        {int(m[1]) for event in capture.events if (m := PASS.fullmatch(event.label))}
        for capture in captures
    ]
    return max(set().union(*stages), default=0) in stages[0]


def _rows(capture: Capture) -> tuple[int, int]:
    """Return sequences and tokens of a micro-batch."""
    if not capture.inputs:
        raise InputError(
            "the program reads no tokens: no torch.nn.Embedding was called",
            hint="capture the rank of the first pipeline stage (--rank 0)",
        )
    shape = capture.inputs[0]
    return (shape[0], shape[1]) if len(shape) > 1 else (1, shape[0])


def _gathers_activations(capture: Capture, roles: dict[str, str]) -> bool:
    """Whether tensor-parallel ranks gather activations (sequence parallel) or all-reduce them."""
    sums: dict[str, float] = {}
    for event in capture.collectives():
        if roles.get(event.group) == "tensor":
            sums[event.name] = sums.get(event.name, 0.0) + event.bytes
    return sums.get("reduce_scatter", 0.0) > sums.get("all_reduce", 0.0)


def _recompute(captures: Sequence[Capture]) -> Recompute:
    """Return the kind of recompute: full if backward repeats most of forward's GEMMs."""
    sums = {"forward": 0.0, "recompute": 0.0}
    for capture in captures:
        for event in capture.kernels():
            if event.phase in sums and "attention" not in event.name:
                sums[event.phase] += event.flops
    return "full" if sums["recompute"] > 0.5 * sums["forward"] else "selective"


def precision_of(captures: Sequence[Capture]) -> str:
    """Return the precision of most GEMM FLOPs.

    Args:
        captures: Of the ranks.
    """
    sums: dict[str, float] = {}
    for capture in captures:
        for event in capture.kernels():
            if event.flops:
                sums[event.dtype] = sums.get(event.dtype, 0.0) + event.flops
    if not sums:
        raise InputError("the program has no GEMMs", hint="is this a training step?")
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
    most = max(sums, key=lambda name: sums[name])
    return names.get(most, "fp8" if most.startswith("float8") else "bf16")
