"""Data parallelism: all-gathers of parameters, reductions of gradients, and their overlap.

Fully sharded (ZeRO-3, FSDP): the parameters of every layer are all-gathered before its forward
(and again before its backward if they were freed), its gradients reduce-scattered after its
backward. They share one communicator, so they queue; prefetch lets them overlap the compute of the
neighboring layer. The first all-gather of a micro-batch and its last reduction have no neighbor,
unless the next micro-batch follows without an all-gather. Otherwise (DDP, ZeRO-1/2): gradients
travel once per step in buckets, partly overlapped with the last backward.
"""

from __future__ import annotations

from dataclasses import dataclass
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
from scalewise.physics.overlap import exposed_once, overlap
from scalewise.step.case import Case, Split
from scalewise.step.groups import gradient_group, replica_group, shard_group

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerTraffic:
    """Sharded communication of one layer and micro-batch, seconds; zero for DDP and ZeRO-1."""

    all_gather: Num
    """One all-gather of the layer's parameters."""
    reduce: Num
    """Reduce-scatter of its gradients, and all-reduce between replicas; mean over micro-batches
    where gradients are reduced once."""
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
            all_gather=none, reduce=none, backward_all_gather=none, backward=none,
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
    gathers, reduces = times[: len(elements)], times[len(elements) :]
    if some(split.dp_replicate > 1.0):
        parts = stacked(*gradients) / split.shards
        reduces = reduces + np.asarray(all_reduce_seconds(parts, replica_group(split), links))
    full = np.where(split.fully_sharded, 1.0, 0.0)
    often = np.where(split.shards_gradients, 1.0, 0.0) * habits.reductions(split)
    gather, reduce = full * gathers[0], often * reduces[0]
    again = np.where(split.reshard_after_forward, gather, 0.0)
    # The last of two roots, or of one that stands for both because they are equal.
    first_all_gather = np.where(split.split_ends, full * gathers[-1], 0.0) if staged else none
    first_reduce = np.where(split.split_ends, often * reduces[-1], 0.0) if staged else none
    return LayerTraffic(
        all_gather=gather,
        reduce=reduce,
        backward_all_gather=again,
        backward=again + reduce,
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
    overlaps = overlaps_compute(split, traffic.backward_all_gather) & split.shards_gradients
    return np.asarray(follows & case.habits.reduce_every_micro_step & overlaps)


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


def overlapped_backward(case: Case, backward: Num, traffic: LayerTraffic) -> tuple[Num, Num]:
    """Return (slowed compute, exposed communication) of a layer's backward, seconds.

    Mean over micro-batches: gradients that are reduced once travel beside the last backward alone,
    which may be too short for them where all of them together are not. What may trail behind is
    counted by `exposed_last_reduce`.
    """
    habits, again = case.habits, traffic.backward_all_gather
    slowed, exposed = overlapped(case, backward, traffic.backward, again)
    if some(traffic.reduce) and not every(traffic.all_gather):
        exposed = np.where(reduce_overlaps_next_forward(case, traffic), 0.0, exposed)
    if every(habits.reduce_every_micro_step) or not some(traffic.reduce):
        return slowed, exposed
    once = ~habits.reduce_every_micro_step & (np.asarray(traffic.reduce) > 0.0)
    n = case.split.num_microbatches
    last = 1.0 / n
    others, others_exposed = overlapped(case, backward, again, again)
    final, final_exposed = overlapped(case, backward, again + n * traffic.reduce, again)
    return (
        np.where(once, (1.0 - last) * others + last * final, slowed),
        np.where(once, (1.0 - last) * others_exposed + last * final_exposed, exposed),
    )


def backward_critical_path(case: Case, backward: Num, traffic: LayerTraffic) -> tuple[Num, Num]:
    """Return a layer's backward as the stage before waits for it: inner layers, and the last two.

    A layer waits for the reduction before the last, so the last two of a pass wait for all-gathers
    alone, though reductions slow them down; without overlap a layer waits for all of them.
    """
    again = traffic.backward_all_gather
    if not some(traffic.backward):
        return backward, backward
    reduce = traffic.reduce / case.habits.reductions(case.split)
    slowed, exposed = overlapped(case, backward, again + reduce, again)
    inner = backward + slowed + exposed
    last = np.maximum(backward + slowed, again)
    return inner, np.where(overlaps_compute(case.split, again), last, inner)


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTraffic:
    """Data-parallel communication paid once per step, seconds."""

    seconds: Num
    """All of it."""
    fraction: Num
    """Fraction that may overlap."""
    window: Num
    """Compute that it may overlap with."""
    exposed: Num


def bucket_bytes(case: Case) -> Num:
    """Return the size of one gradient bucket, bytes; each is a call of its own."""
    split, habits = case.split, case.habits
    ranks = split.dp_replicate * split.shards
    result: Num = np.maximum(habits.bucket_bytes, habits.bucket_bytes_per_rank * ranks)
    return result


def step_seconds(case: Case, params: Num) -> Num:
    """Return the time of what travels once per step, overlapped or not, seconds.

    Gradients are reduced in buckets; ZeRO-1 and 2 all-gather the updated parameters after it.

    Args:
        case: The step.
        params: Parameters of a rank, before data parallelism shards them.
    """
    split, links = case.split, case.links
    none = case.zeros
    if every(split.fully_sharded):
        return none
    bucket, gradient = bucket_bytes(case), case.habits.reduce_bytes * params
    calls = np.maximum(gradient / bucket, 1.0)
    piece = gradient / calls
    seconds: Num = none
    if some(split.ddp):
        reduce = calls * all_reduce_seconds(piece, gradient_group(split), links)
        seconds = np.where(split.ddp, reduce, seconds)
    if some(split.shards_optimizer):
        weights = np.maximum(2.0 * params / bucket, 1.0)
        sizes = stacked(links.scatter_factor * piece, 2.0 * params / weights)
        scatter, gather = np.asarray(all_gather_seconds(sizes, shard_group(split), links))
        scatter, gather = calls * scatter, weights * gather
        across = calls * all_reduce_seconds(piece / split.shards, replica_group(split), links)
        seconds = np.where(split.sharding == 1.0, scatter + across + gather, seconds)
        seconds = np.where(split.sharding == 2.0, gather, seconds)
    return seconds


def once_per_step(case: Case, params: Num, window: Num) -> StepTraffic:
    """Return what travels once per step, and what of it is exposed, seconds.

    Args:
        case: The step.
        params: Parameters of a rank, before data parallelism shards them.
        window: Compute that it can overlap with, seconds.
    """
    split, habits = case.split, case.habits
    seconds = step_seconds(case, params)
    fraction = np.where(split.ddp, habits.dp_overlap, habits.shard_overlap)
    fraction = np.where(split.overlap_dp, fraction, 0.0)
    return StepTraffic(
        seconds=seconds,
        fraction=fraction,
        window=window,
        exposed=exposed_once(seconds, fraction, window),
    )


def derive_gathers(o: Origin) -> tuple[Letter, Letter]:
    """Return the first all-gather of a micro-batch, and that of what no layer holds."""
    split = o.case.split
    bytes_ = 2.0 * scalar(o.case.shape.layer_params / split.tp)
    one = derive_ring("all-gather", bytes_, shard_group(split), o.case.links)
    if not split.fully_sharded[0]:
        one = Derivation(key="all-gather", label="parameters are not sharded", formula="0")
    root = scalar(o.step.stage.root_all_gather)
    return (
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
    return Derivation(
        key="R",
        label="reduction of a layer's gradients",
        formula="r * (Rs + Ar)",
        letters=(
            Letter("r", scalar(o.case.habits.reductions(split)), "reductions per micro-batch"),
            Letter("Rs", scatter.value, "reduce-scatter", "s", scatter),
            Letter("Ar", across.value, "all-reduce between replicas", "s", across),
        ),
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


def derive_tails(o: Origin) -> tuple[Letter, Letter, Letter]:
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
        Letter("Sl", scalar(o.step.stage.tail_late), "reductions after the last wgrad", "s"),
    )


def derive_tail_slowed(o: Origin) -> Letter:
    """Return the compute slowed by the last reductions of the micro-batch before."""
    label = "compute slowed by the last reductions of the micro-batch before"
    if not o.case.split.shards_gradients[0]:
        return Letter("Z", 0.0, label, "s")
    return _tail(o, "Z", label, "h * (min(L, 1) * s + c * min(q, L * F))", "hLscqF")


def derive_once(o: Origin) -> tuple[Letter, ...]:
    """Return the letters of what travels once per step."""
    split, links, once = o.case.split, o.case.links, o.step.once
    gradient = scalar(o.case.habits.reduce_bytes * o.step.params)
    bucket = scalar(bucket_bytes(o.case))
    calls = max(gradient / bucket, 1.0)
    piece = gradient / calls
    count = Letter("k", calls, f"buckets of {piece / 1e6:,.1f} MB")
    letters: tuple[Letter, ...]
    if split.ddp[0]:
        reduce = derive_all_reduce("all-reduce", piece, gradient_group(split), links)
        letters = (count, Letter("Ar", reduce.value, "all-reduce of a bucket", "s", reduce))
        formula = "k * Ar"
    else:
        weights = 2.0 * scalar(o.step.params)
        parts = max(weights / bucket, 1.0)
        gather = derive_ring("all-gather", weights / parts, shard_group(split), links)
        letters = (
            Letter("j", parts, "buckets of updated parameters"),
            Letter("Ag", gather.value, "all-gather of a bucket", "s", gather),
        )
        formula = "j * Ag"
        if split.sharding[0] == 1.0:
            scatter = derive_ring(
                "reduce-scatter", scalar(links.scatter_factor) * piece, shard_group(split), links
            )
            across = derive_all_reduce(
                "all-reduce", piece / scalar(split.shards), replica_group(split), links
            )
            letters = (
                count,
                Letter("Rs", scatter.value, "reduce-scatter of a bucket", "s", scatter),
                Letter("Ar", across.value, "all-reduce between replicas", "s", across),
                *letters,
            )
            formula = "k * (Rs + Ar) + j * Ag"
    label = "gradients and updated parameters, once per step"
    whole = Derivation(key="C", label=label, formula=formula, letters=letters)
    return (
        Letter("C", whole.value, label, "s", whole),
        Letter("o", scalar(once.fraction), "fraction that may overlap"),
        Letter("W", scalar(once.window), "compute it may overlap with", "s"),
    )
