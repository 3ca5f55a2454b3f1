"""One pass of one layer: kernels, TP collectives, ring hops of CP, all-to-all of experts.

    block = forward_block(case, own)            # own = layer_times(case)
    block.seconds, block.pieces[0]              # Piece(stream="compute", name="norm", ...)

A layer is simulated once, because all are alike: kernels in order on one stream, collectives on
theirs. The fraction of a tensor-parallel collective that the stack exposes is on the critical path;
the rest overlaps the adjacent kernel. Ring hops overlap attention blocks, and the next block waits
for its keys. The all-to-all of experts overlaps the kernels of another micro-batch, drawn as those
of this one. Host launches are rounded at the end by the same rule as in `estimate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from scalewise.numeric import scalar
from scalewise.physics.compute import smooth_max
from scalewise.step import context_parallel
from scalewise.step.expert_parallel import BESIDE
from scalewise.step.recompute import repeated

if TYPE_CHECKING:
    from scalewise.step.case import Case
    from scalewise.step.layer import Layer

MAX_HOPS = 16
"""Ring hops drawn one by one; those of longer rings are drawn as one."""


class Piece(NamedTuple):
    """One piece of a layer, with times from its start."""

    stream: str
    """compute, tensor, context, expert or host."""
    name: str
    start: float
    seconds: float


class Kernel(NamedTuple):
    """A kernel or a collective, in the order of a layer."""

    name: str
    seconds: float
    kind: str = "compute"
    """compute; tensor or expert (communication with an exposed fraction); context (exposed); ring
    (attention with overlapped hops)."""
    hop: float = 0.0
    """Seconds of one hop of a ring."""
    hops: int = 0
    room: float = 1.0
    """Fraction of it that other communication can overlap."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One pass of one layer."""

    seconds: float
    """From its start to its end, launch time included, seconds."""
    pieces: tuple[Piece, ...]
    tensor: float
    """Exposed tensor-parallel communication, seconds."""
    context: float
    """Exposed context-parallel communication, seconds."""
    expert: float
    """Exposed all-to-all of experts, seconds."""
    busy: float
    """Seconds of kernels."""


def forward_block(case: Case, own: Layer) -> Block:
    """Simulate the forward of one layer."""
    kernels_ = own.kernels
    count, each = _collectives(case, own.tp_forward, backward=False)
    hop, hops, gather = _context(case)
    attention = _attention("attention", scalar(kernels_.attention_forward), hop, hops)
    memory, products = scalar(kernels_.memory_forward) / 2.0, scalar(kernels_.gemm_forward) / 2.0
    before, after = _sides(count, each)
    kernels = [
        Kernel("norm, rotary", memory), *before, Kernel("qkv", products / 2.0),
        *gather, attention, Kernel("out", products / 2.0), *after,
        Kernel("norm, activation", memory), *before, Kernel("up, down", products), *after,
        *_tuning(case, own, ""),
        *_experts(kernels_.experts_forward, kernels_.routing_forward, own.ep_forward),
    ]  # fmt: skip
    return _block(
        kernels, scalar(own.tp_fraction), scalar(own.host_forward), scalar(own.ep_fraction),
        scalar(own.wrappers_forward),
    )  # fmt: skip


def backward_block(case: Case, own: Layer) -> Block:
    """Simulate the backward of one layer, recompute included."""
    kernels_ = own.kernels
    total = scalar(own.tp_backward)
    again = scalar(case.split.recompute_blocks) * scalar(own.tp_forward)
    count, each = _collectives(case, total - again, backward=True)
    hop, hops, gather = _context(case)
    repeat = scalar(kernels_.recompute)
    kernels: list[Kernel] = []
    if repeat > 0.0:
        _, one = _collectives(case, again, backward=False)
        before, after = _sides(2 if case.split.sequence_parallel[0] else 1, one)
        part = scalar(repeated(case).attention)
        attended = part * scalar(kernels_.attention_forward)
        rest = repeat - attended
        keys = [kernel._replace(seconds=part * kernel.seconds) for kernel in gather]
        kernels += [
            *before, *keys, _attention("recompute attention", attended, part * hop, hops),
            *after, *before, Kernel("recompute", rest), *after,
        ]  # fmt: skip
    memory, products = scalar(kernels_.memory_backward) / 2.0, scalar(kernels_.gemm_backward) / 2.0
    # Deferred wgrad overlaps no collectives.
    later = bool(case.split.zero_bubble[0])
    gradient, adapters = scalar(kernels_.gradient), kernels_.tuning
    wgrad = scalar(kernels_.wgrad) - gradient
    if adapters is not None:
        wgrad -= scalar(adapters.wgrad)
    room = 1.0 - wgrad / (2.0 * products) if later else 1.0
    before, after = _sides(count, each)
    attended = scalar(kernels_.attention_backward)
    scatter = [Kernel("scatter keys' gradients", k.seconds, "context") for k in gather]
    kernels += [
        *_experts(
            kernels_.experts_backward, kernels_.routing_backward, own.ep_backward, " backward"
        ),
        *_tuning(case, own, " backward"),
        *before, Kernel("up, down backward", products, room=room), *after,
        Kernel("norm backward", memory), *before, Kernel("out backward", products / 2.0, room=room),
        *gather, _attention("attention backward", attended, 2.0 * hop, hops),
        *scatter, Kernel("qkv backward", products / 2.0, room=room), *after,
        Kernel("norm backward", memory), Kernel("gradients", gradient, room=0.0 if later else 1.0),
    ]  # fmt: skip
    return _block(
        kernels, scalar(own.tp_fraction), scalar(own.host_backward), scalar(own.ep_fraction),
        scalar(own.wrappers_backward),
    )  # fmt: skip


def _tuning(case: Case, own: Layer, which: str) -> list[Kernel]:
    """Return dequantization and adapters of a layer, each as one kernel."""
    more = own.kernels.tuning
    if more is None:
        return []
    seconds = scalar(more.backward if which else more.forward)
    # Deferred wgrad overlaps no collectives.
    later = bool(which) and bool(case.split.zero_bubble[0]) and seconds > 0.0
    room = 1.0 - scalar(more.wgrad) / seconds if later else 1.0
    return [
        Kernel(f"dequantize{which}", scalar(more.dequantize)),
        Kernel(f"adapters{which}", seconds, room=room),
    ]


def _experts(gemm: object, routing: object, exchange: object, which: str = "") -> list[Kernel]:
    """Return the expert half of a layer: dispatch, routing, grouped GEMMs, combine."""
    half, moved = scalar(routing) / 2.0, scalar(exchange) / 2.0
    return [
        Kernel(f"route{which}", half), Kernel(f"dispatch{which}", moved, "expert"),
        Kernel(f"experts{which}", scalar(gemm)),
        Kernel(f"combine{which}", moved, "expert"), Kernel(f"unpermute{which}", half),
    ]  # fmt: skip


def _collectives(case: Case, seconds: object, *, backward: bool) -> tuple[int, float]:
    """Return the number of collectives of each half of a layer, and the seconds of one.

    With sequence parallelism a half has an all-gather before and a reduce-scatter after; backward
    all-gathers its input a second time. Without it, one all-reduce per half.
    """
    total = scalar(seconds)
    if total <= 0.0:
        return 0, 0.0
    if not case.split.sequence_parallel[0]:
        return 1, total / 2.0
    count = 3 if backward and not case.habits.keeps_sp_all_gather[0] else 2
    return count, total / (2.0 * count)


def _sides(count: int, each: float) -> tuple[list[Kernel], list[Kernel]]:
    """Return the collectives before and after one half of a layer."""
    if count == 0 or each <= 0.0:
        return [], []
    if count == 1:
        return [], [Kernel("all-reduce", each, "tensor")]
    gathers = [Kernel("all-gather", each, "tensor")] * (count - 1)
    return gathers, [Kernel("scatter", each, "tensor")]


def _context(case: Case) -> tuple[float, int, list[Kernel]]:
    """Return hop seconds and hops of a ring, or the all-gather of keys and values."""
    split = case.split
    if split.cp[0] <= 1.0:
        return 0.0, 0, []
    if split.cp_ring[0]:
        return scalar(context_parallel.hop_seconds(case)), int(split.cp[0]) - 1, []
    whole = scalar(context_parallel.gather_seconds(case))
    return 0.0, 0, [Kernel("all-gather keys", whole, "context")]


def _attention(name: str, seconds: float, hop: float, hops: int) -> Kernel:
    return Kernel(name, seconds, "ring" if hops else "compute", hop, hops)


def _block(
    kernels: Sequence[Kernel],
    share: float,
    host: float,
    expert_share: float = 0.0,
    wrappers: float = 0.0,
) -> Block:
    """Simulate kernels and collectives in order.

    Args:
        kernels: In the order of the layer.
        share: Exposed fraction of tensor-parallel communication.
        host: Seconds that the host needs to launch them.
        expert_share: Exposed fraction of the all-to-all of experts.
        wrappers: Seconds of FSDP and DTensor on a host that is the device.
    """
    shares = {"tensor": share, "expert": expert_share}
    pieces: list[Piece] = []
    slots: list[tuple[float, float]] = []
    all_slots: list[tuple[float, float]] = []
    hidden: dict[str, list[tuple[str, float]]] = {"tensor": [], "expert": []}
    exposed = {"tensor": 0.0, "expert": 0.0}
    now = busy = context = 0.0
    for kernel in kernels:
        if kernel.seconds <= 0.0:
            continue
        if kernel.kind == "compute":
            pieces.append(Piece("compute", kernel.name, now, kernel.seconds))
            slots.append((now, now + kernel.room * kernel.seconds))
            all_slots.append((now, now + BESIDE * kernel.seconds))
            now += kernel.seconds
            busy += kernel.seconds
        elif kernel.kind == "ring":
            # Attention that overlaps a ring of keys and values overlaps nothing else.
            start = now
            now = _ring(kernel, now, pieces)
            all_slots.append((start, start + BESIDE * kernel.seconds))
            busy += kernel.seconds
            context += now - start - kernel.seconds
        elif kernel.kind == "context":
            pieces.append(Piece("context", kernel.name, now, kernel.seconds))
            now += kernel.seconds
            context += kernel.seconds
        else:
            kind = kernel.kind
            on_path = shares[kind] * kernel.seconds
            if on_path > 0.0:
                pieces.append(Piece(kind, kernel.name, now, on_path))
            now += on_path
            exposed[kind] += on_path
            hidden[kind].append((kernel.name, kernel.seconds - on_path))
    # Communication cannot overlap kernels that do not exist.
    for kind, room in (("tensor", slots), ("expert", all_slots)):
        left = _hide(kind, hidden[kind], room, pieces)
        if left > 0.0:
            pieces.append(Piece(kind, "rest", now, left))
            now += left
            exposed[kind] += left
    seconds = scalar(smooth_max(now, host)) if host > 0.0 else now
    if seconds > now:
        pieces.append(Piece("compute", "wait for launch", now, seconds - now))
    if host > 0.0:
        pieces.append(Piece("host", "launch", 0.0, host))
    if wrappers > 0.0:
        pieces.append(Piece("compute", "wrappers", seconds, wrappers))
        seconds += wrappers
    return Block(seconds=seconds, pieces=tuple(pieces), context=context, busy=busy, **exposed)


def _hide(
    stream: str,
    hidden: list[tuple[str, float]],
    slots: list[tuple[float, float]],
    pieces: list[Piece],
) -> float:
    """Overlap communication with kernels, in order; return the seconds that stay exposed."""
    place, left = 0, 0.0
    at = slots[0][0] if slots else 0.0
    for name, seconds in hidden:
        rest = seconds
        while rest > 0.0 and place < len(slots):
            start, end = slots[place]
            at = max(at, start)
            used = min(rest, end - at)
            # Rounding errors are not worth an event.
            if used > 1e-12:
                pieces.append(Piece(stream, name, at, used))
            rest -= used
            at += used
            if at >= end:
                place += 1
        left += rest
    return left if left > 1e-15 else 0.0


def _ring(kernel: Kernel, now: float, pieces: list[Piece]) -> float:
    """Simulate attention block by block with the next keys in flight; return its end."""
    part = kernel.seconds / (kernel.hops + 1)
    if kernel.hops > MAX_HOPS:
        pieces.append(Piece("compute", kernel.name, now, kernel.seconds))
        pieces.append(Piece("context", "send keys", now, kernel.hops * kernel.hop))
        return now + kernel.seconds + kernel.hops * max(kernel.hop - part, 0.0)
    pieces.append(Piece("compute", kernel.name, now, part))
    start, end, arrived = now, now + part, now
    for _ in range(kernel.hops):
        # The next keys are sent when the previous ones have arrived and their buffer is in use.
        leaves = max(arrived, start)
        pieces.append(Piece("context", "send keys", leaves, kernel.hop))
        arrived = leaves + kernel.hop
        start = max(end, arrived)
        pieces.append(Piece("compute", kernel.name, start, part))
        end = start + part
    return end
