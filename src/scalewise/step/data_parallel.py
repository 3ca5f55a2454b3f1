"""Data parallelism: all-gathers of parameters, reductions of gradients, and their overlap.

Fully sharded (ZeRO-3, FSDP): the parameters of every layer are all-gathered before its forward
(and again before its backward if they were freed), its gradients reduce-scattered after its
backward. They share one communicator, so they queue; prefetch lets them overlap the compute of the
neighboring layer. The first all-gather of a micro-batch and its last reduction have no neighbor,
unless the next micro-batch follows without an all-gather. The all-reduce between replicas (HSDP)
has a communicator and a stream of its own. What travels once per step (DDP, ZeRO-1/2) is in
`gradient_buckets`; smaller groups and second hops are in `hierarchical`, quantized collectives in
`quantized_collectives`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scalewise.numeric import (
    Mask,
    Num,
    every,
    mask,
    maximum,
    minimum,
    some,
    squeeze_constant_axes,
    stacked,
    where,
)
from scalewise.physics.collectives import all_gather_seconds, all_reduce_seconds
from scalewise.physics.overlap import overlap
from scalewise.step import tuning
from scalewise.step.case import Case, Split
from scalewise.step.groups import (
    expert_replica_group,
    expert_shard_group,
    replica_group,
    shard_group,
)
from scalewise.step.hierarchical import (
    Sync,
    backward_group,
    expert_backward_group,
    gather_seconds,
)
from scalewise.step.quantized_collectives import reduce_seconds


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
    sync: Sync | None = None
    """Reductions by micro-batch, where replicas of any strategy wait for the last one."""


def layer_traffic(case: Case) -> LayerTraffic:
    """Return what FSDP moves per layer and micro-batch (ZeRO-2: its reductions)."""
    split, links, habits = case.split, case.links, case.habits
    none = case.zeros
    if not some(split.shards_gradients):
        return LayerTraffic(
            all_gather=none, reduce=none, across=none, backward_all_gather=none, backward=none,
            root_all_gather=none, root_reduce=none, first_all_gather=none, first_reduce=none,
        )  # fmt: skip
    params = case.layer_params / split.tp
    head, first = root_params(case)
    staged = some(split.split_ends)
    roots = [head / split.tp]
    if staged and some(split.split_ends & (head != first)):
        roots.append(first / split.tp)
    # One call for all messages of the group: layer and roots, parameters and gradients.
    elements = (params, *roots)
    count, group = len(elements), shard_group(split)
    reduced = [
        tuning.trained_layer(case, params),
        *(tuning.trained_only(case, each) for each in roots),
    ]
    gradients = [habits.reduce_bytes * each for each in reduced]
    scatters = [links.scatter_factor * each for each in gradients]
    # Embedding and LM head stay in 16 bits, or in 32.
    weights = [
        tuning.layer_gather_bytes(case, params),
        *(case.root_gather_bytes * each for each in roots),
    ]
    sizes = stacked(*weights, *scatters)
    times = np.asarray(all_gather_seconds(sizes, group, links))
    gathers, reduces = times[:count], list(times[count:])
    if some(split.hierarchical):
        gathers = np.asarray(gather_seconds(case, sizes[:count], group))
    if some(split.reduce_int4):
        scatter = times[count:]
        reduces = list(np.asarray(reduce_seconds(case, stacked(*reduced), group, scatter)))
    # What has no gradients makes no calls.
    calls = [where(mask(each > 0.0), 1.0, 0.0) for each in reduced] if case.has_frozen else []
    if calls:
        reduces = [call * each for call, each in zip(calls, reduces, strict=True)]
    again_one: Num = gathers[0]
    if some(split.backward_shard):
        again_one = gather_seconds(case, weights[0], backward_group(split))
    gather_one: Num = gathers[0]
    layer_across: Num = none
    if case.has_experts:
        experts = expert_traffic(case)
        gather_one, again_one = gather_one + experts.gather, again_one + experts.again
        reduces[0], layer_across = reduces[0] + experts.reduce, experts.across
    often = where(split.shards_gradients, 1.0, 0.0) * habits.reductions(split)
    across: Num = none
    sync: Sync | None = None
    if some(split.dp_replicate > 1.0):
        parts = stacked(*gradients) / split.shards
        replicas = list(np.asarray(all_reduce_seconds(parts, replica_group(split), links)))
        if calls:
            replicas = [call * each for call, each in zip(calls, replicas, strict=True)]
        apart = replicas_apart(split)
        own = where(apart, replicas[0], 0.0)
        # What no layer holds is reduced at the end, where nothing overlaps it.
        queued = [where(apart, 0.0, replicas[0]) + layer_across, *replicas[1:]]
        fraction: Num = 1.0
        if some(split.sync_once):
            sync = by_micro_batch(case, reduces[0], queued[0], own)
            fraction = where(habits.syncs_once(split), 1.0 / split.num_microbatches, 1.0)
        across = often * fraction * own
        reduces = [one + fraction * other for one, other in zip(reduces, queued, strict=True)]
    elif case.has_experts:
        reduces[0] = reduces[0] + layer_across
    each = where(split.fully_sharded, 1.0, 0.0)
    full = each * habits.gathers(split)
    gather, reduce = full * gather_one, often * reduces[0]
    frees = split.reshard_after_forward & ~habits.gathers_once(split)
    again = where(frees, each * again_one, 0.0)
    # The last of two roots, or of one that stands for both because they are equal.
    first_all_gather = where(split.split_ends, full * gathers[-1], 0.0) if staged else none
    first_reduce = where(split.split_ends, often * reduces[-1], 0.0) if staged else none
    return LayerTraffic(
        all_gather=gather,
        reduce=reduce,
        across=across,
        backward_all_gather=again,
        backward=again + reduce + across,
        root_all_gather=full * gathers[1] + ends_again(case, again),
        root_reduce=often * reduces[1],
        first_all_gather=first_all_gather,
        first_reduce=first_reduce,
        sync=sync,
    )


def ends_again(case: Case, again: Num | None = None) -> Num:
    """Return the all-gathers that PyTorch repeats for backward at the ends of a model, seconds.

    `fully_shard` gathers the embedding and the last layer again, although backward of one needs no
    parameters and that of the other begins at once. Groups with the head are not freed.

    Args:
        case: The step.
        again: All-gather of a layer before backward; None to price it.
    """
    if not some(case.habits.gathers_ends_again):
        return case.zeros
    if again is None:
        again = layer_traffic(case).backward_all_gather
    split, size = case.split, case.root_gather_bytes * case.shape.embedding_params
    embedding = gather_seconds(case, size / split.tp, shard_group(split))
    repeats = case.habits.gathers_ends_again & mask(again > 0.0) & ~split.pipelined
    return where(repeats, again + embedding, 0.0)


def by_micro_batch(case: Case, scatter: Num, queued: Num, own: Num) -> Sync:
    """Return the reductions of a layer in the last micro-batch and in the others, seconds.

    Args:
        case: The step.
        scatter: Reduction to the shards.
        queued: All-reduce between replicas that queues behind it.
        own: The same on links of its own.
    """
    split, habits = case.split, case.habits
    reduces = where(split.shards_gradients, 1.0, 0.0)
    each = reduces * where(habits.reduces_each(split), 1.0, 0.0)
    synced = where(habits.syncs_once(split), 0.0, each)
    return Sync(
        others=each * scatter + synced * queued,
        others_across=synced * own,
        last=reduces * (scatter + queued),
        last_across=reduces * own,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertTraffic:
    """Collectives of the experts of one layer on one rank, mean over layers, seconds."""

    gather: Num
    """All-gather before forward."""
    again: Num
    """All-gather before backward."""
    reduce: Num
    """Reduction to the shards."""
    across: Num
    """All-reduce between replicas."""


def expert_traffic(case: Case) -> ExpertTraffic:
    """Return all-gathers and reductions of the experts of one layer on one rank, mean, seconds.

    Their shards are the ranks that hold the same experts; both queue behind those of the layer.
    """
    split, links, params = case.split, case.links, case.expert_params_of_layer
    group, gradients = expert_shard_group(split), case.habits.reduce_bytes * params
    sizes = stacked(split.gather_bytes * params, links.scatter_factor * gradients)
    times = np.asarray(all_gather_seconds(sizes, group, links))
    gather: Num = times[0]
    if some(split.hierarchical):
        gather = gather_seconds(case, sizes[0], group)
    again = gather
    if some(split.backward_shard):
        again = gather_seconds(case, sizes[0], expert_backward_group(split))
    across = all_reduce_seconds(gradients / split.expert_shards, expert_replica_group(split), links)
    sparse = case.slowest_sparse
    return ExpertTraffic(
        gather=sparse * gather,
        again=sparse * again,
        reduce=tuning.trained_only(case, sparse * reduce_seconds(case, params, group, times[1])),
        across=tuning.trained_only(case, sparse * across),
    )


def root_params(case: Case) -> tuple[Num, Num]:
    """Return the parameters that no layer holds, on the stage with the head and on the first."""
    shape = case.shape
    last = where(case.split.split_ends, shape.last_params, shape.edge_params)
    return last, shape.embedding_params


def replicas_apart(split: Split) -> Mask:
    """Whether the all-reduce between replicas of HSDP has links of its own.

    It has a communicator and a stream of its own, so it shares nothing with the sharding group if
    one crosses the network and the other does not. Zero-bubble schedules reduce beside wgrad, which
    is too short for that to matter.
    """
    crosses = shard_group(split).domains > 1.0
    apart = crosses != (replica_group(split).domains > 1.0)
    return mask(apart & split.fully_sharded & (split.shards > 1.0) & ~split.zero_bubble)


def overlaps_compute(split: Split, gather: Num) -> Mask:
    """Whether communication overlaps compute: an all-gather has to be prefetched for that."""
    ahead = (split.prefetch > 0.0) | mask(gather <= 0.0)
    return mask(ahead & split.overlap_dp)


def last_reduce_overlaps(case: Case, traffic: LayerTraffic) -> Mask:
    """Whether the last reduction of a micro-batch overlaps the next one.

    It does unless an all-gather queues behind it on the same communicator, and GPipe gathers
    nothing anew between its backward passes. Reductions that are done once have no next.
    """
    split = case.split
    follows = gathers_nothing_next(case, traffic) | split.gpipe
    overlaps = split.overlap_dp & split.shards_gradients
    return mask(follows & case.habits.reduces_each(split) & overlaps)


def reduce_overlaps_next_forward(case: Case, traffic: LayerTraffic) -> Mask:
    """Whether reductions may trail into the next forward: no all-gather waits for them.

    GPipe has no forward between its backward passes; zero-bubble schedules are handled apart.
    """
    split = case.split
    turns = squeeze_constant_axes(mask(~split.gpipe & ~split.zero_bubble))
    ungathered = gathers_nothing_next(case, traffic)
    return mask(last_reduce_overlaps(case, traffic) & ungathered & turns)


def gathers_nothing_next(case: Case, traffic: LayerTraffic) -> Mask:
    """Whether no all-gather precedes the forward of the next micro-batch."""
    nothing = mask(traffic.all_gather <= 0.0)
    if some(case.split.reduce_stated):
        nothing = nothing | case.habits.gathers_once(case.split)
    return nothing


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
    stated = some(case.split.reduce_stated)
    if not some(reduce) or (
        every(traffic.all_gather) and not some(case.split.gpipe) and not stated
    ):
        return reduce, root, none
    follows = last_reduce_overlaps(case, traffic)
    if not some(follows):
        return reduce, root, none
    contention = case.habits.contention
    # The last micro-batch has no next.
    hidden = where(follows, 1.0 - 1.0 / case.split.num_microbatches, 0.0)
    shown = 1.0 - hidden
    slowed = contention * minimum(reduce, backward)
    behind = hidden * minimum(layers, 1.0)
    late = maximum(reduce - (backward + slowed), 0.0)
    roots = hidden * contention * minimum(root, layers * forward)
    # Nothing overlaps on links that the layers keep busy all the time.
    busy = reduce + traffic.backward_all_gather
    room = layers * maximum(backward + slowed - busy, 0.0) + head
    root_late = maximum(root - room, 0.0)
    last, often = reduce, behind
    free = reduce_overlaps_next_forward(case, traffic)
    if some(free):
        # Backward waits for all reductions but two, which forward overlaps if links have the time.
        waits = maximum(layers - 2.0, 0.0) * late
        links = layers * (reduce - forward - backward - slowed) + root - head
        last = reduce + where(free, maximum(layers - 1.0, 0.0) * late, 0.0)
        late = where(free, maximum(waits, links), late)
        root_late = where(free, 0.0, root_late)
        often = where(free, hidden, behind)
    exposed = shown * last + often * late
    return exposed, shown * root + hidden * root_late, behind * slowed + roots


def exposed_last_all_reduce(case: Case, traffic: LayerTraffic) -> Num:
    """Return what the last all-reduce between replicas costs, mean over micro-batches, seconds.

    The next micro-batch overlaps it, because it has links of its own; the last one has no next.
    """
    split, across = case.split, traffic.across
    if not some(across):
        return case.zeros
    each = case.habits.reduces_each(split) & ~case.habits.syncs_once(split)
    follows = each & split.overlap_dp
    return where(follows, across / split.num_microbatches, across)


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
    return where(beside, slowed, 0.0), where(beside, exposed, communication)


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


@dataclass(frozen=True, kw_only=True, slots=True)
class Backward:
    """Backward of a layer with its communication, seconds."""

    mean: Overlapped
    """What communication adds, mean over micro-batches."""
    inner: Num
    """As the stage before waits for it: inner layers."""
    near: Num
    """The last two layers of a pass."""
    early: Num
    """Inner layers of a micro-batch before the last, which may reduce nothing."""


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
    split, may = case.split, case.split.overlap_dp
    # Everything but backward depends on few axes: it is put together first.
    beside = where(split.prefetch > 0.0, again, 0.0)
    queue = beside + reduce
    gathers = where(may, again - beside, again)
    bare = where(may, gathers, again + reduce + across)
    contention = where(may, case.habits.contention, 0.0)
    longest = where(may, maximum(queue, across), 0.0)
    fraction = where(queue >= across, beside / maximum(queue, 1e-30), 0.0)
    slowed = contention * minimum(reduce + maximum(beside, across), backward)
    late = maximum(longest - (backward + slowed), 0.0)
    return Overlapped(slowed=slowed, exposed=bare + late, gathers=gathers + late * fraction)


def overlapped_backward(case: Case, backward: Num, traffic: LayerTraffic) -> Backward:
    """Return a layer's backward beside its communication, and as the stage before waits for it.

    Gradients that are reduced once travel beside the last backward alone, which may be too short
    for them where all of them together are not. What may trail behind is counted by
    `exposed_last_reduce`.

    A layer waits for the reduction before the last, so the last two of a pass wait for all-gathers
    alone, though reductions slow them down; without overlap a layer waits for all of them.
    """
    split, habits = case.split, case.habits
    again, reduce, across = traffic.backward_all_gather, traffic.reduce, traffic.across
    if not some(traffic.backward):
        none = Overlapped(slowed=case.zeros, exposed=case.zeros, gathers=case.zeros)
        return Backward(mean=none, inner=backward, near=backward, early=backward)
    each, n = habits.reduces_each(split), split.num_microbatches
    sync = traffic.sync
    if sync is None and (every(each) or not some(reduce)):
        last = others = beside_backward(case, backward, again, reduce, across)
    else:
        if sync is None:
            often = habits.reductions(split)
            sync = Sync(
                others=where(each, reduce, 0.0),
                others_across=where(each, across, 0.0),
                last=reduce / often,
                last_across=across / often,
            )
        last = beside_backward(case, backward, again, sync.last, sync.last_across)
        others = beside_backward(case, backward, again, sync.others, sync.others_across)
    mean = last if last is others else others.mixed(last, 1.0 / n)
    if some(reduce) and (not every(traffic.all_gather) or some(split.reduce_stated)):
        free = reduce_overlaps_next_forward(case, traffic)
        if traffic.sync is not None:
            free = free & ~habits.syncs_once(split)
        mean = replace(mean, exposed=where(free, 0.0, mean.exposed))
    if not some(split.pipelined):
        return Backward(mean=mean, inner=backward, near=backward, early=backward)
    compute = backward + last.slowed
    inner = early = compute + last.exposed
    if others is not last:
        early = backward + others.slowed + others.exposed
    near = where(split.prefetch > 0.0, maximum(compute, again), compute + again)
    near = where(split.overlap_dp, near, inner)
    return Backward(mean=mean, inner=inner, near=near, early=early)
