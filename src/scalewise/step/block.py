"""One layer with its sharded communication overlapped, whatever the schedule.

    block = layer_block(case, layer, traffic)
    block.forward, block.exposed_backward

The door to zero-bubble schedules: what comes after reads a `Block` and does not ask how backward
was split.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Mask, Num, mask, maximum, scalar, some, where
from scalewise.physics.overlap import derive_overlap
from scalewise.step import data_parallel, gradient_buckets, zero_bubble
from scalewise.step.case import Case
from scalewise.step.data_parallel import LayerTraffic
from scalewise.step.derive_data_parallel import derive_gathers, derive_tail_slowed, derive_tails
from scalewise.step.layer import Layer

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


@dataclass(frozen=True, kw_only=True, slots=True)
class Block:
    """One layer and micro-batch with overlapped communication, seconds."""

    forward_alone: Num
    """Without overlapped communication."""
    backward_alone: Num
    slowed_forward: Num
    """Compute lost to contention."""
    slowed_backward: Num
    exposed_forward: Num
    """Communication that outlasts compute."""
    exposed_backward: Num
    reduce_fraction: Num
    """Fraction of the exposed backward communication that is gradients."""
    first_forward: Num
    """Forward of the first micro-batch, which waits for all-gathers that are done once."""
    path_inner: Num
    """Backward as the stage before waits for it: inner layers."""
    path_near: Num
    """The layer before the last of a pass."""
    path_last: Num
    """The last layer of a pass."""
    path_early: Num
    """A layer of a micro-batch before the last, which may reduce nothing."""
    wgrad: Num
    """Weight gradients that can wait; 0 where they do not."""
    wgrad_alone: Num
    """The same without overlapped communication."""
    late_compute: Num
    """Backward compute that once-per-step gradient reductions can overlap."""
    free: Mask
    """Zero-bubble: whether reductions overlap all passes."""

    @property
    def forward(self) -> Num:
        """Forward with overlapped communication."""
        return self.forward_alone + self.slowed_forward + self.exposed_forward

    @property
    def backward(self) -> Num:
        """Backward with overlapped communication."""
        return self.backward_alone + self.slowed_backward + self.exposed_backward


def layer_block(case: Case, layer: Layer, traffic: LayerTraffic) -> Block:
    """Return one layer with its sharded communication overlapped."""
    zero, gather = case.split.zero_bubble, traffic.all_gather
    parts = zero_bubble.split_backward(case, layer, traffic) if some(zero) else None
    alone = layer.backward
    if parts is not None:
        alone = where(zero, parts.dgrad_alone + parts.wgrad_alone, alone)
    often = case.habits.gathers(case.split)
    slowed, exposed = data_parallel.overlapped(case, layer.forward, gather / often, gather)
    backward = data_parallel.overlapped_backward(case, alone, traffic)
    slowed_backward, exposed_backward = backward.mean.slowed, backward.mean.exposed
    reduce_fraction = 1.0 - backward.mean.gathers / maximum(exposed_backward, 1e-30)
    late = maximum(alone - traffic.backward, 0.0)
    inner, near, last = backward.inner, backward.near, alone
    none = case.zeros
    wgrad: Num = none
    wgrad_alone: Num = none
    free: Mask = mask(zero & False)
    if parts is not None:
        slowed_backward = where(zero, parts.slowed, slowed_backward)
        exposed_backward = where(zero, parts.exposed, exposed_backward)
        reduce_fraction = where(zero, parts.reduce_fraction, reduce_fraction)
        late = where(zero, maximum(parts.wgrad_alone - traffic.reduce, 0.0), late)
        inner, near = where(zero, parts.dgrad, inner), where(zero, parts.dgrad, near)
        last = where(zero, parts.dgrad_alone, last)
        wgrad = where(zero, parts.wgrad, 0.0)
        wgrad_alone = where(zero, parts.wgrad_alone, 0.0)
        free = parts.free & zero
    return Block(
        forward_alone=layer.forward,
        backward_alone=alone,
        slowed_forward=often * slowed,
        slowed_backward=slowed_backward,
        exposed_forward=often * exposed,
        exposed_backward=exposed_backward,
        reduce_fraction=reduce_fraction,
        first_forward=layer.forward + slowed + exposed,
        path_inner=inner,
        path_near=near,
        path_last=last,
        path_early=backward.early,
        wgrad=wgrad,
        wgrad_alone=wgrad_alone,
        late_compute=late,
        free=free,
    )


def derive_forward(o: Origin) -> tuple[Derivation, Derivation]:
    """Return how slowed compute and exposed communication of a layer's forward come about."""
    gather, often = o.step.traffic.all_gather, scalar(o.case.habits.gathers(o.case.split))
    first = derive_overlap(
        "forward",
        scalar(o.step.block.forward_alone),
        scalar(gather) / often,
        scalar(o.case.habits.contention),
        overlaps=bool(scalar(data_parallel.overlaps_compute(o.case.split, gather))),
    )
    if not o.case.habits.gathers_once(o.case.split)[0]:
        return first
    slowed, exposed = (
        Derivation(
            key=each.key,
            label=each.label,
            formula="x / n",
            letters=(Letter("x", each.value, "of the first micro-batch", "s", each), o.n),
        )
        for each in first
    )
    return slowed, exposed


def derive_backward(o: Origin) -> tuple[Derivation, Derivation]:
    """Return how slowed compute and exposed communication of a layer's backward come about."""
    split, habits, traffic = o.case.split, o.case.habits, o.step.traffic
    reduce, across = scalar(traffic.reduce), scalar(traffic.across)
    if split.zero_bubble[0]:
        return zero_bubble.derive_backward(o)
    once = bool(scalar(habits.syncs_once(split)))
    each = bool(scalar(habits.reduces_each(split))) and not once
    if each or reduce <= 0.0:
        slowed, exposed = _derive_beside(o, reduce, across)
        free = data_parallel.reduce_overlaps_next_forward(o.case, traffic)
        if reduce > 0.0 and bool(scalar(free)):
            trails = ("its reductions trail into the next forward",)
            exposed = replace(exposed, formula="0", letters=(), notes=trails)
        return slowed, exposed
    # Gradients are reduced once, overlapped with the last backward.
    others, last = (0.0, 0.0), (o.n.value * reduce, o.n.value * across)
    if (sync := traffic.sync) is not None:
        others = scalar(sync.others), scalar(sync.others_across)
        last = scalar(sync.last), scalar(sync.last_across)
    pairs = zip(_derive_beside(o, *others), _derive_beside(o, *last), strict=True)
    slowed, exposed = (
        Derivation(
            key=one.key,
            label=one.label,
            formula="(1 - 1 / n) * x + 1 / n * y",
            letters=(
                o.n,
                Letter("x", one.value, "micro-batches before the last", "s", one),
                Letter("y", two.value, "the last, with all reductions", "s", two),
            ),
        )
        for one, two in pairs
    )
    return slowed, exposed


def _derive_beside(o: Origin, reduce: float, across: float) -> tuple[Derivation, Derivation]:
    """How backward beside its communication comes about, with these reductions."""
    split = o.case.split
    prefetched = bool(scalar(split.prefetch) > 0.0)
    letters = (
        Letter("C", scalar(o.step.block.backward_alone), "backward of a layer alone", "s"),
        Letter("G", scalar(o.step.traffic.backward_all_gather), "all-gather beside it", "s"),
        Letter("R", reduce, "reduce-scatter beside it", "s"),
        Letter("A", across, "all-reduce between replicas beside it", "s"),
        Letter(
            "c",
            scalar(o.case.habits.contention),
            "contention: compute lost per second of communication",
        ),
    )
    slowed = "c * min(R + max(G, A), C)" if prefetched else "c * min(R + A, C)"
    queue, bare = ("G + R", "") if prefetched else ("R", "G + ")
    exposed = f"{bare}max(max({queue}, A) - (C + {slowed}), 0)"
    used = "CGRAc"
    if not split.overlap_dp[0]:
        slowed, exposed, used = "0", "G + R + A", "GRA"
    chosen = tuple(letter for letter in letters if letter.name in used)
    return (
        Derivation(
            key="slowed_backward", label="backward slowed by communication", formula=slowed,
            letters=tuple(letter for letter in chosen if letter.name in slowed),
        ),
        Derivation(
            key="exposed_backward", label="exposed communication of backward", formula=exposed,
            letters=chosen,
        ),
    )  # fmt: skip


def derive_contention(o: Origin) -> Derivation:
    """Return how contention of a step comes about."""
    (forward, _), (backward, _) = derive_forward(o), derive_backward(o)
    return Derivation(
        key="contention",
        label="contention",
        formula="n * (K * (Df + Db) + Z)",
        letters=(
            o.n,
            Letter("K", scalar(o.step.stage.others), "layers of the slowest stage but one"),
            Letter("Df", forward.value, forward.label, "s", forward),
            Letter("Db", backward.value, backward.label, "s", backward),
            derive_tail_slowed(o),
        ),
        source=f"contention: {o.software}",
    )


def derive_all_gather(o: Origin) -> Derivation:
    """Return how exposed all-gathers of a step come about."""
    (_, xf), (_, xb) = derive_forward(o), derive_backward(o)
    block, stage = o.step.block, o.step.stage
    return Derivation(
        key="dp_all_gather",
        label="exposed all-gather",
        formula="n * (K * (Xf + (1 - f) * Xb) + g * G + Gr)",
        letters=(
            o.n,
            Letter("K", scalar(stage.others), "layers of the slowest stage but one"),
            Letter("Xf", xf.value, "exposed communication of a layer's forward", "s", xf),
            Letter("Xb", xb.value, "exposed communication of a layer's backward", "s", xb),
            Letter("f", scalar(block.reduce_fraction), "fraction of it that is gradients"),
            *derive_gathers(o),
        ),
        source=f"collectives: fabric {o.cluster.fabric.name}; contention: {o.software}",
    )


def derive_reduce(o: Origin) -> Derivation:
    """Return how exposed reductions of gradients of a step come about."""
    letters: list[Letter] = []
    parts: list[str] = []
    if o.case.split.shards_gradients[0]:
        _, xb = derive_backward(o)
        parts.append("n * (K * f * Xb + S + Sr + Sa + Sl)")
        letters += [
            o.n,
            Letter("K", scalar(o.step.stage.others), "layers of the slowest stage but one"),
            Letter("f", scalar(o.step.block.reduce_fraction), "fraction of Xb that is gradients"),
            Letter("Xb", xb.value, "exposed communication of a layer's backward", "s", xb),
            *derive_tails(o),
        ]
    if not o.case.split.fully_sharded[0]:
        formula, once = gradient_buckets.derive_once(o)
        parts.append(formula)
        letters += once
    return Derivation(
        key="dp_grad_reduce",
        label="exposed reduce-scatter",
        formula=" + ".join(parts),
        letters=tuple(letters),
        source=f"collectives: fabric {o.cluster.fabric.name}; o, buckets: {o.software}",
    )
