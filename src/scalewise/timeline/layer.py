"""What happens inside one layer? Kernels, tensor-parallel collectives, context-parallel hops.

    block = forward_block(case, own)            # own = layer_work(case)
    block.seconds, block.pieces[0]              # Piece(stream="compute", name="norm", ...)

A layer is played on its own, because it is the same every time: kernels in order on one stream,
collectives on theirs. A tensor-parallel collective stays on the path with the share that the stack
exposes; the rest runs beside the kernel next to it. Ring hops run beside the attention blocks, and
the next block waits for its keys. Launches by the host round the corner at the end, by the same
rule as in `estimate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scalewise.physics.collectives import gather_seconds, send_seconds
from scalewise.physics.compute import smooth_max
from scalewise.step.groups import context_group, links
from scalewise.step.layers import tokens_per_rank

if TYPE_CHECKING:
    from scalewise.step.case import Case
    from scalewise.step.work import LayerWork

MOST_HOPS = 16
"""Ring hops drawn one by one; those of longer rings are drawn as one."""


class Piece(NamedTuple):
    """Something that runs inside a layer, times from its start."""

    stream: str
    """compute, tensor, context or host."""
    name: str
    start: float
    seconds: float


class Kernel(NamedTuple):
    """A kernel, or a collective, in the order of a layer."""

    name: str
    seconds: float
    kind: str = "compute"
    """compute; tensor (a collective of which a share stays on the path); context (nothing runs
    beside it); ring (attention with hops beside it)."""
    hop: float = 0.0
    """Seconds of one hop of a ring."""
    hops: int = 0
    room: float = 1.0
    """Share of it that other communication can hide behind."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One pass of one layer."""

    seconds: float
    """From its start to its end, the wait for launches included."""
    pieces: tuple[Piece, ...]
    tensor: float
    """Tensor-parallel seconds that no kernel runs beside."""
    context: float
    """Context-parallel seconds that no kernel runs beside."""
    busy: float
    """Seconds of kernels."""


def forward_block(case: Case, own: LayerWork) -> Block:
    """Play the forward of one layer."""
    layer = own.layer
    count, each = _collectives(case, own.tp_forward, backward=False)
    hop, hops, gather = _context(case)
    attention = _attention("attention", _one(layer.attention_forward), hop, hops)
    memory, products = _one(layer.memory_forward) / 2.0, _one(layer.gemm_forward) / 2.0
    before, after = _sides(count, each)
    kernels = [
        Kernel("norm, rotary", memory), *before, Kernel("qkv", products / 2.0),
        *gather, attention, Kernel("out", products / 2.0), *after,
        Kernel("norm, activation", memory), *before, Kernel("up, down", products), *after,
    ]  # fmt: skip
    return _block(kernels, _one(own.tp_share), _one(own.host_forward))


def backward_block(case: Case, own: LayerWork) -> Block:
    """Play the backward of one layer, with what it recomputes first."""
    layer = own.layer
    full = case.recompute[0] == 2.0
    total = _one(own.tp_backward)
    again = _one(own.tp_forward) if full else 0.0
    count, each = _collectives(case, total - again, backward=True)
    hop, hops, gather = _context(case)
    repeat = _one(layer.recompute)
    kernels: list[Kernel] = []
    if repeat > 0.0:
        _, one = _collectives(case, again, backward=False)
        before, after = _sides(2 if case.sequence_parallel[0] > 0.0 else 1, one)
        attended = min(_one(layer.attention_forward), repeat)
        rest = repeat - attended
        kernels += [
            *before, *gather, _attention("recompute attention", attended, hop, hops),
            *after, *before, Kernel("recompute", rest), *after,
        ]  # fmt: skip
    memory, products = _one(layer.memory_backward) / 2.0, _one(layer.gemm_backward) / 2.0
    # Gradients of weights that are put off have no collectives beside them.
    later = case.schedule[0] >= 2.0 and case.pp[0] > 1.0
    gradient = _one(layer.gradient)
    room = 1.0 - (_one(layer.weights) - gradient) / (2.0 * products) if later else 1.0
    before, after = _sides(count, each)
    scatter = [Kernel("scatter keys' gradients", k.seconds, "context") for k in gather]
    kernels += [
        *before, Kernel("up, down backward", products, room=room), *after,
        Kernel("norm backward", memory), *before, Kernel("out backward", products / 2.0, room=room),
        *gather, _attention("attention backward", _one(layer.attention_backward), 2.0 * hop, hops),
        *scatter, Kernel("qkv backward", products / 2.0, room=room), *after,
        Kernel("norm backward", memory), Kernel("gradients", gradient, room=0.0 if later else 1.0),
    ]  # fmt: skip
    return _block(kernels, _one(own.tp_share), _one(own.host_backward))


def _one(value: object) -> float:
    return float(np.asarray(value).reshape(-1)[0])


def _collectives(case: Case, seconds: object, *, backward: bool) -> tuple[int, float]:
    """Collectives beside each of the two halves of a layer, and the seconds of one.

    With sequence parallelism a half gathers before and scatters after; backward gathers its input
    a second time. Without: one all-reduce per half.
    """
    total = _one(seconds)
    if total <= 0.0:
        return 0, 0.0
    if case.sequence_parallel[0] <= 0.0:
        return 1, total / 2.0
    count = 3 if backward and case.gathers_kept[0] <= 0.0 else 2
    return count, total / (2.0 * count)


def _sides(count: int, each: float) -> tuple[list[Kernel], list[Kernel]]:
    """Collectives before and after one half of a layer."""
    if count == 0 or each <= 0.0:
        return [], []
    if count == 1:
        return [], [Kernel("all-reduce", each, "tensor")]
    gathers = [Kernel("gather", each, "tensor")] * (count - 1)
    return gathers, [Kernel("scatter", each, "tensor")]


def _context(case: Case) -> tuple[float, int, list[Kernel]]:
    """Hop and hops of a ring, and the gather of keys and values where there is none."""
    if case.cp[0] <= 1.0:
        return 0.0, 0, []
    local = 4.0 * tokens_per_rank(case) * case.key_value / case.tp
    group, wires = context_group(case), links(case)
    if case.cp_ring[0] > 0.0:
        crosses = np.where(group.domains > 1.0, 1.0, 0.0)
        return _one(send_seconds(local, wires, crosses)), int(case.cp[0]) - 1, []
    whole = _one(gather_seconds(local * case.cp, group, wires))
    return 0.0, 0, [Kernel("gather keys", whole, "context")]


def _attention(name: str, seconds: float, hop: float, hops: int) -> Kernel:
    return Kernel(name, seconds, "ring" if hops else "compute", hop, hops)


def _block(kernels: Sequence[Kernel], share: float, host: float) -> Block:
    """Play kernels and collectives in order.

    Args:
        kernels: In the order of the layer.
        share: Share of tensor-parallel communication that stays on the path.
        host: Seconds the host needs to launch them.
    """
    pieces: list[Piece] = []
    slots: list[tuple[float, float]] = []
    hidden: list[tuple[str, float]] = []
    now = busy = tensor = context = 0.0
    for kernel in kernels:
        if kernel.seconds <= 0.0:
            continue
        if kernel.kind == "compute":
            pieces.append(Piece("compute", kernel.name, now, kernel.seconds))
            slots.append((now, now + kernel.room * kernel.seconds))
            now += kernel.seconds
            busy += kernel.seconds
        elif kernel.kind == "ring":
            # Attention that hides a ring of keys and values hides nothing else.
            start = now
            now = _ring(kernel, now, pieces)
            busy += kernel.seconds
            context += now - start - kernel.seconds
        elif kernel.kind == "context":
            pieces.append(Piece("context", kernel.name, now, kernel.seconds))
            now += kernel.seconds
            context += kernel.seconds
        else:
            on_path = share * kernel.seconds
            if on_path > 0.0:
                pieces.append(Piece("tensor", kernel.name, now, on_path))
            now += on_path
            tensor += on_path
            hidden.append((kernel.name, kernel.seconds - on_path))
    # There is no hiding behind kernels that are not there.
    left = _hide(hidden, slots, pieces)
    if left > 0.0:
        pieces.append(Piece("tensor", "rest", now, left))
        now += left
        tensor += left
    seconds = _one(smooth_max(now, host)) if host > 0.0 else now
    if seconds > now:
        pieces.append(Piece("compute", "wait for launch", now, seconds - now))
    if host > 0.0:
        pieces.append(Piece("host", "launch", 0.0, host))
    return Block(seconds=seconds, pieces=tuple(pieces), tensor=tensor, context=context, busy=busy)


def _hide(
    hidden: list[tuple[str, float]], slots: list[tuple[float, float]], pieces: list[Piece]
) -> float:
    """Lay communication beside kernels, in order; return the seconds that found no room."""
    place, left = 0, 0.0
    at = slots[0][0] if slots else 0.0
    for name, seconds in hidden:
        rest = seconds
        while rest > 0.0 and place < len(slots):
            start, end = slots[place]
            at = max(at, start)
            used = min(rest, end - at)
            # Slivers of rounding are not worth an event.
            if used > 1e-12:
                pieces.append(Piece("tensor", name, at, used))
            rest -= used
            at += used
            if at >= end:
                place += 1
        left += rest
    return left if left > 1e-15 else 0.0


def _ring(kernel: Kernel, now: float, pieces: list[Piece]) -> float:
    """Play attention block by block, the next keys on their way; return when it ends."""
    part = kernel.seconds / (kernel.hops + 1)
    if kernel.hops > MOST_HOPS:
        pieces.append(Piece("compute", kernel.name, now, kernel.seconds))
        pieces.append(Piece("context", "send keys", now, kernel.hops * kernel.hop))
        return now + kernel.seconds + kernel.hops * max(kernel.hop - part, 0.0)
    pieces.append(Piece("compute", kernel.name, now, part))
    start, end, arrived = now, now + part, now
    for _ in range(kernel.hops):
        # The next keys leave when those before have arrived and their buffer is in use.
        leaves = max(arrived, start)
        pieces.append(Piece("context", "send keys", leaves, kernel.hop))
        arrived = leaves + kernel.hop
        start = max(end, arrived)
        pieces.append(Piece("compute", kernel.name, start, part))
        end = start + part
    return end
