"""Data parallelism: all-gathers of parameters, reductions of gradients, and their overlap.

Fully sharded (ZeRO-3, FSDP): the parameters of every layer are all-gathered before its forward
(and again before its backward if they were freed), its gradients reduce-scattered after its
backward. They share one communicator, so they queue; prefetch lets them overlap the compute of the
neighboring layer. The first all-gather of a micro-batch and its last reduction have no neighbor,
unless the next micro-batch follows without an all-gather. The all-reduce between replicas (HSDP)
has a communicator and a stream of its own. What travels once per step (DDP, ZeRO-1/2) is in
`gradient_buckets`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Mask, Num, every, scalar, some, squeeze_constant_axes, stacked
from scalewise.physics.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    derive_all_reduce,
    derive_ring,
)
from scalewise.physics.overlap import overlap
from scalewise.step.case import Case, Split
from scalewise.step.groups import replica_group, shard_group

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTraffic:
    """Sharded communication of one layer and micro-batch, seconds; zero for DDP and ZeRO-1."""

    all_gather: Num
    """All-gather of the layer's parameters before forward; mean over micro-batches where they are
    gathered once."""
    reduce: Num
    """Reduce-scatter of its gradients, and what queues behind it of the all-reduce between
    replicas; mean over micro-batches where gradients are reduced once."""
    across: Num
    """All-reduce between replicas on links of its own, likewise."""
    backward_all_gather: Num
    """All-gather of parameters that were freed after forward."""
    backward: Num
    """All communication that overlaps backward."""
    root_all_gather: Num
    """All-gather of what no layer holds on the stage with the head, not overlapped. Without a
    pipeline, and in ZB-V, the embedding is on that stage too."""
    root_reduce: Num
    """Reduction of its gradients, likewise."""
    first_all_gather: Num
    """All-gather of the embedding on a first stage of its own; middle stages hold neither."""
    first_reduce: Num
    """Reduction of its gradients."""


def layer_traffic(case: Case) -> LayerTraffic:
    """Return what FSDP moves per layer and micro-batch (ZeRO-2: its reductions)."""
    split, links, habits = case.split, case.links, case.habits
    none = case.zeros
    if not some(split.shards_gradients):
        return LayerTraffic(
            all_gather=none, reduce=none, across=none, backward_all_gather=none, backward=none,
            root_all_gather=none, root_reduce=none, first_all_gather=none, first_reduce=none,
        )  # fmt: skip
    params = case.shape.layer_params / split.tp
    head, first = root_params(case)
    staged = some(split.split_ends)
    roots = [head / split.tp]
    if staged and some(split.split_ends & (head != first)):
        roots.append(first / split.tp)
    # One call for all messages of the group: layer and roots, parameters and gradients.
    elements = (params, *roots)
    gradients = [habits.reduce_bytes * each for each in elements]
    scatters = [links.scatter_factor * each for each in gradients]
    sizes = stacked(*(2.0 * each for each in elements), *scatters)
    times = np.asarray(all_gather_seconds(sizes, shard_group(split), links))
    gathers, reduces = times[: len(elements)], list(times[len(elements) :])
    often = np.where(split.shards_gradients, 1.0, 0.0) * habits.reductions(split)
    across: Num = none
    if some(split.dp_replicate > 1.0):
        parts = stacked(*gradients) / split.shards
        replicas = np.asarray(all_reduce_seconds(parts, replica_group(split), links))
        apart = replicas_apart(split)
        across = often * np.where(apart, replicas[0], 0.0)
        # What no layer holds is reduced at the end, where nothing overlaps it.
        queued = [np.where(apart, 0.0, replicas[0]), *replicas[1:]]
        reduces = [one + other for one, other in zip(reduces, queued, strict=True)]
    each = np.where(split.fully_sharded, 1.0, 0.0)
    full = each * habits.gathers(split)
    gather, reduce = full * gathers[0], often * reduces[0]
    frees = split.reshard_after_forward & ~habits.gathers_once(split)
    again = np.where(frees, each * gathers[0], 0.0)
    # The last of two roots, or of one that stands for both because they are equal.
    first_all_gather = np.where(split.split_ends, full * gathers[-1], 0.0) if staged else none
    first_reduce = np.where(split.split_ends, often * reduces[-1], 0.0) if staged else none
    return LayerTraffic(
        all_gather=gather,
        reduce=reduce,
        across=across,
        backward_all_gather=again,
        backward=again + reduce + across,
        root_all_gather=full * gathers[1],
        root_reduce=often * reduces[1],
        first_all_gather=first_all_gather,
        first_reduce=first_reduce,
    )


def root_params(case: Case) -> tuple[Num, Num]:
    """Return the parameters that no layer holds, on the stage with the head and on the first."""
    shape = case.shape
    both = shape.embedding_params + shape.head_params
    return np.where(case.split.split_ends, shape.tied_copy, both), shape.embedding_params


def replicas_apart(split: Split) -> Mask:
    """Whether the all-reduce between replicas of HSDP has links of its own.

    It has a communicator and a stream of its own, so it shares nothing with the sharding group if
    one crosses the network and the other does not. Zero-bubble schedules reduce beside wgrad, which
    is too short for that to matter.
    """
    crosses = shard_group(split).domains > 1.0
    apart = crosses != (replica_group(split).domains > 1.0)
    return np.asarray(apart & split.fully_sharded & (split.shards > 1.0) & ~split.zero_bubble)


def overlaps_compute(split: Split, gather: Num) -> Mask:
    """Whether communication overlaps compute: an all-gather has to be prefetched for that."""
    ahead = (split.prefetch > 0.0) | (np.asarray(gather) <= 0.0)
    return np.asarray(ahead & split.overlap_dp)


def last_reduce_overlaps(case: Case, traffic: LayerTraffic) -> Mask:
    """Whether the last reduction of a micro-batch overlaps the next one.

    It does unless an all-gather queues behind it on the same communicator, and GPipe gathers
    nothing anew between its backward passes. Reductions that are done once have no next.
    """
    split = case.split
    follows = (np.asarray(traffic.all_gather) <= 0.0) | split.gpipe
    overlaps = split.overlap_dp & split.shards_gradients
    return np.asarray(follows & case.habits.reduces_each(split) & overlaps)


def reduce_overlaps_next_forward(case: Case, traffic: LayerTraffic) -> Mask:
    """Whether reductions may trail into the next forward: no all-gather waits for them.

    GPipe has no forward between its backward passes; zero-bubble schedules are handled apart.
    """
    split = case.split
    turns = squeeze_constant_axes(np.asarray(~split.gpipe & ~split.zero_bubble))
    ungathered = np.asarray(traffic.all_gather) <= 0.0
    return np.asarray(last_reduce_overlaps(case, traffic) & ungathered & turns)


def exposed_last_reduce(
    case: Case,
    traffic: LayerTraffic,
    layers: Num,
    forward: Num,
    backward: Num,
    root: Num,
    head: Num,
) -> tuple[Num, Num, Num]:
    """Return what the last reductions of a micro-batch cost, mean over micro-batches, seconds.

    Args:
        case: The step.
        traffic: Communication per layer.
        layers: Layers of the stage.
        forward: Forward of a layer alone, seconds.
        backward: Its backward.
        root: Reduction of what no layer holds.
        head: LM head and loss of the stage, seconds.

    Returns:
        Exposed time of the layer's and of the root's reduction, and compute slowed by them.
    """
    reduce, none = traffic.reduce, case.zeros
    # A quick check first: mostly nothing is reduced, or an all-gather follows.
    if not some(reduce) or (every(traffic.all_gather) and not some(case.split.gpipe)):
        return reduce, root, none
    follows = last_reduce_overlaps(case, traffic)
    if not some(follows):
        return reduce, root, none
    contention = case.habits.contention
    # The last micro-batch has no next.
    hidden = np.where(follows, 1.0 - 1.0 / case.split.num_microbatches, 0.0)
    shown = 1.0 - hidden
    slowed = contention * np.minimum(reduce, backward)
    behind = hidden * np.minimum(layers, 1.0)
    late = np.maximum(reduce - (backward + slowed), 0.0)
    roots = hidden * contention * np.minimum(root, layers * forward)
    # Nothing overlaps on links that the layers keep busy all the time.
    room = layers * np.maximum(backward + slowed - reduce, 0.0) + head
    root_late = np.maximum(root - room, 0.0)
    last, often = reduce, behind
    free = reduce_overlaps_next_forward(case, traffic)
    if some(free):
        # Backward waits for all reductions but two, which forward overlaps if links have the time.
        waits = np.maximum(layers - 2.0, 0.0) * late
        links = layers * (reduce - forward - backward - slowed) + root - head
        last = reduce + np.where(free, np.maximum(layers - 1.0, 0.0) * late, 0.0)
        late = np.where(free, np.maximum(waits, links), late)
        root_late = np.where(free, 0.0, root_late)
        often = np.where(free, hidden, behind)
    exposed = shown * last + often * late
    return exposed, shown * root + hidden * root_late, behind * slowed + roots


def exposed_last_all_reduce(case: Case, traffic: LayerTraffic) -> Num:
    """Return what the last all-reduce between replicas costs, mean over micro-batches, seconds.

    The next micro-batch overlaps it, because it has links of its own; the last one has no next.
    """
    split, across = case.split, traffic.across
    if not some(across):
        return case.zeros
    follows = case.habits.reduces_each(split) & split.overlap_dp
    return np.where(follows, across / split.num_microbatches, across)


def overlapped(case: Case, compute: Num, communication: Num, gather: Num) -> tuple[Num, Num]:
    """Return (slowed compute, exposed communication) where they may overlap, seconds.

    Args:
        case: The step.
        compute: Seconds of the block alone.
        communication: Seconds of all communication that may overlap it.
        gather: The part of it that the block itself waits for.
    """
    if not some(communication):
        return 0.0 * compute, 0.0 * compute
    slowed, exposed = overlap(compute, communication, case.habits.contention)
    beside = overlaps_compute(case.split, gather)
    return np.where(beside, slowed, 0.0), np.where(beside, exposed, communication)


@dataclass(frozen=True, kw_only=True, slots=True)
class Overlapped:
    """Backward of a layer beside its communication, seconds."""

    slowed: Num
    """Compute lost to contention."""
    exposed: Num
    """Exposed communication."""
    gathers: Num
    """The part of it that is all-gathers."""

    def mixed(self, other: Overlapped, fraction: Num) -> Overlapped:
        """Mean of this one and another one, which has a fraction of the micro-batches."""
        mine, theirs = 1.0 - fraction, fraction
        return Overlapped(
            slowed=mine * self.slowed + theirs * other.slowed,
            exposed=mine * self.exposed + theirs * other.exposed,
            gathers=mine * self.gathers + theirs * other.gathers,
        )


def beside_backward(case: Case, backward: Num, again: Num, reduce: Num, across: Num) -> Overlapped:
    """Return what a layer's backward costs beside its communication, seconds.

        slowed = contention * min(reduce + max(again, across), backward)
        exposed = max(max(again + reduce, across) - (backward + slowed), 0)

    The all-gather queues behind the reduce-scatter of the layer before, and the all-reduce between
    replicas follows that. Without prefetch the all-gather is exposed and the others overlap.

    Args:
        case: The step.
        backward: Of the layer alone.
        again: All-gather of freed parameters.
        reduce: Reduction of gradients.
        across: All-reduce between replicas on links of its own.
    """
    split = case.split
    beside = np.where(split.prefetch > 0.0, again, 0.0)
    bare = again - beside
    slowed = case.habits.contention * np.minimum(reduce + np.maximum(beside, across), backward)
    queue = beside + reduce
    late = np.maximum(np.maximum(queue, across) - (backward + slowed), 0.0)
    gathers = np.where(queue >= across, late * beside / np.maximum(queue, 1e-30), 0.0)
    may = split.overlap_dp
    return Overlapped(
        slowed=np.where(may, slowed, 0.0),
        exposed=np.where(may, bare + late, again + reduce + across),
        gathers=np.where(may, bare + gathers, again),
    )


def overlapped_backward(case: Case, backward: Num, traffic: LayerTraffic) -> Overlapped:
    """Return slowed compute and exposed communication of a layer's backward, seconds.

    Mean over micro-batches: gradients that are reduced once travel beside the last backward alone,
    which may be too short for them where all of them together are not. What may trail behind is
    counted by `exposed_last_reduce`.
    """
    again, reduce, across = traffic.backward_all_gather, traffic.reduce, traffic.across
    if not some(traffic.backward):
        none = 0.0 * backward
        return Overlapped(slowed=none, exposed=none, gathers=none)
    found = beside_backward(case, backward, again, reduce, across)
    if not some(reduce):
        return found
    if not every(traffic.all_gather):
        free = reduce_overlaps_next_forward(case, traffic)
        found = replace(found, exposed=np.where(free, 0.0, found.exposed))
    each = case.habits.reduces_each(case.split)
    if every(each):
        return found
    n = case.split.num_microbatches
    others = beside_backward(case, backward, again, case.zeros, case.zeros)
    final = beside_backward(case, backward, again, n * reduce, n * across)
    return found.mixed(others.mixed(final, 1.0 / n), np.where(each, 0.0, 1.0))


def backward_critical_path(case: Case, backward: Num, traffic: LayerTraffic) -> tuple[Num, Num]:
    """Return a layer's backward as the stage before waits for it: inner layers, and the last two.

    A layer waits for the reduction before the last, so the last two of a pass wait for all-gathers
    alone, though reductions slow them down; without overlap a layer waits for all of them.
    """
    again = traffic.backward_all_gather
    if not some(traffic.backward):
        return backward, backward
    often = case.habits.reductions(case.split)
    found = beside_backward(case, backward, again, traffic.reduce / often, traffic.across / often)
    inner, compute = backward + found.slowed + found.exposed, backward + found.slowed
    ahead = case.split.prefetch > 0.0
    last = np.where(ahead, np.maximum(compute, again), compute + again)
    return inner, np.where(case.split.overlap_dp, last, inner)


def derive_gathers(o: Origin) -> tuple[Letter, ...]:
    """Return the first all-gather of a micro-batch, and that of what no layer holds."""
    split = o.case.split
    bytes_ = 2.0 * scalar(o.case.shape.layer_params / split.tp)
    one = derive_ring("all-gather", bytes_, shard_group(split), o.case.links)
    if not split.fully_sharded[0]:
        one = Derivation(key="all-gather", label="parameters are not sharded", formula="0")
    root = scalar(o.step.stage.root_all_gather)
    often = scalar(o.case.habits.gathers(split))
    return (
        Letter("g", often, "all-gathers per micro-batch"),
        Letter("G", one.value, "all-gather of a layer, which nothing overlaps", "s", one),
        Letter("Gr", root, "all-gather of embedding and LM head on that stage", "s"),
    )


def _derive_layer_reduce(o: Origin) -> Derivation:
    """How the reduction of one layer's gradients comes about, mean over micro-batches."""
    split, links = o.case.split, o.case.links
    bytes_ = scalar(o.case.habits.reduce_bytes * o.case.shape.layer_params / split.tp)
    scatter = derive_ring(
        "reduce-scatter", scalar(links.scatter_factor) * bytes_, shard_group(split), links
    )
    across = derive_all_reduce(
        "all-reduce", bytes_ / scalar(split.shards), replica_group(split), links
    )
    apart = bool(scalar(replicas_apart(split)))
    letters = (
        Letter("r", scalar(o.case.habits.reductions(split)), "reductions per micro-batch"),
        Letter("Rs", scatter.value, "reduce-scatter", "s", scatter),
        Letter("Ar", across.value, "all-reduce between replicas", "s", across),
    )
    return Derivation(
        key="R",
        label="reduction of a layer's gradients",
        formula="r * Rs" if apart else "r * (Rs + Ar)",
        letters=letters[:2] if apart else letters,
    )


def _tail_letters(o: Origin) -> dict[str, Letter]:
    """Letters of the formulas of the last reductions."""
    step, reduce = o.step, _derive_layer_reduce(o)
    follows = bool(scalar(last_reduce_overlaps(o.case, step.traffic)))
    contention, backward = scalar(o.case.habits.contention), scalar(step.block.backward_alone)
    letters = (
        Letter("R", reduce.value, reduce.label, "s", reduce),
        Letter("h", 1.0 - 1.0 / o.n.value if follows else 0.0, "micro-batches that have a next"),
        Letter("L", scalar(step.stage.layers), "layers of the slowest stage"),
        Letter("F", scalar(step.block.forward_alone), "forward of a layer", "s"),
        Letter("b", backward, "backward of a layer", "s"),
        Letter("s", contention * min(reduce.value, backward), "compute slowed beside R", "s"),
        Letter("c", contention, "contention: compute lost per second of communication"),
        Letter("q", scalar(step.stage.root_reduce), "reduction of embedding and LM head", "s"),
        Letter("H", scalar(step.stage.head), "LM head and loss of the stage", "s"),
    )
    return {letter.name: letter for letter in letters}


def _tail(o: Origin, name: str, label: str, formula: str, used: str) -> Letter:
    """A part of the last reductions as a letter."""
    known = _tail_letters(o)
    inner = Derivation(
        key=name, label=label, formula=formula, letters=tuple(known[each] for each in used)
    )
    return Letter(name, inner.value, label, "s", inner)


def derive_tails(o: Origin) -> tuple[Letter, ...]:
    """Return the exposed last reductions: of a layer, of what no layer holds, and of wgrads."""
    free = bool(scalar(reduce_overlaps_next_forward(o.case, o.step.traffic)))
    late = "max(R - (b + s), 0)"
    layer = f"(1 - h) * R + h * min(L, 1) * {late}", "hRbsL"
    root = "(1 - h) * q + h * max(q - (L * max(b + s - R, 0) + H), 0)", "hqLbsRH"
    if free:
        waits = f"max(max(L - 2, 0) * {late}, L * (R - F - b - s) + q - H)"
        layer = f"(1 - h) * (R + max(L - 1, 0) * {late}) + h * {waits}", "hRLbsFqH"
        root = "(1 - h) * q", "hq"
    return (
        _tail(o, "S", "exposed reduction of the last layer, mean", *layer),
        _tail(o, "Sr", "the same of embedding and LM head", *root),
        Letter("Sa", scalar(o.step.stage.tail_across), "the same between replicas", "s"),
        Letter("Sl", scalar(o.step.stage.tail_late), "reductions after the last wgrad", "s"),
    )


def derive_tail_slowed(o: Origin) -> Letter:
    """Return the compute slowed by the last reductions of the micro-batch before."""
    label = "compute slowed by the last reductions of the micro-batch before"
    if not o.case.split.shards_gradients[0]:
        return Letter("Z", 0.0, label, "s")
    return _tail(o, "Z", label, "h * (min(L, 1) * s + c * min(q, L * F))", "hLscqF")
