"""What data parallelism adds: gathers and reductions, and how much of them hides.

Fully sharded (ZeRO-3 / FSDP): every block's parameters are gathered before its forward (and again
before its backward if they were freed), its gradients reduce-scattered after its backward. They
share one communicator, so they queue up; prefetch lets them run beside the neighbour's compute:

    block = max(compute + contention x min(communication, compute), communication)

Contention is not zero: collective kernels hold compute units and memory bandwidth while they run,
also while they only wait for latency. The first gather of a micro step and its last reduction
have no neighbour, unless the next micro step follows without a gather. Otherwise (DDP, ZeRO-1/2):
gradients travel once per step in buckets, partly behind the last backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Array, Mask, Num, lean, stacked
from scalewise.physics.collectives import all_reduce_seconds, gather_seconds
from scalewise.step.case import Case
from scalewise.step.groups import gradient_group, links, replica_group, shard_group, shards


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockTraffic:
    """Fully sharded traffic of one layer and micro step, seconds; zero for other kinds."""

    gather: Num
    """One gather of the layer's parameters."""
    reduce: Num
    """Reduce-scatter of its gradients, and all-reduce between replicas."""
    forward: Num
    """All that runs beside forward."""
    backward: Num
    """All that runs beside backward."""
    again: Num
    """The part of it that gathers parameters freed after forward."""
    root_gather: Num
    """Gather of what no layer holds on the stage with the head; nothing runs beside it. Without a
    pipeline, and in ZB-V, the embedding is on that stage too."""
    root_reduce: Num
    """Reduction of its gradients, likewise."""
    first_gather: Num
    """Gather of the embedding on a first stage of its own; middle stages hold neither."""
    first_reduce: Num
    """Reduction of its gradients."""


def block_traffic(case: Case) -> BlockTraffic:
    """Price what FSDP moves per layer and micro step (ZeRO-2: its reduction)."""
    none = np.zeros_like(case.layers)
    if not (case.sharding >= 2.0).any():
        return BlockTraffic(
            gather=none,
            reduce=none,
            forward=none,
            backward=none,
            again=none,
            root_gather=none,
            root_reduce=none,
            first_gather=none,
            first_reduce=none,
        )
    group, replicas, wires = shard_group(case), replica_group(case), links(case)
    full = np.where(case.sharding == 3.0, 1.0, 0.0)
    scattered = np.where(case.sharding >= 2.0, 1.0, 0.0)
    params = case.layer_params / case.tp
    split, head, first = root_params(case)
    rests = [head / case.tp]
    staged = split.any()
    if staged and (split & (head != first)).any():
        rests.append(first / case.tp)
    # One call for all messages of the group: layer and roots, parameters and gradients.
    elements = (params, *rests)
    gradients = [case.reduce_bytes * each for each in elements]
    scatters = [case.scatter_factor * each for each in gradients]
    sizes = stacked(*(2.0 * each for each in elements), *scatters)
    times = np.asarray(gather_seconds(sizes, group, wires))
    gathers, reduces = times[: len(elements)], times[len(elements) :]
    sizes = case.all_reduce_factor * (stacked(*gradients) / shards(case))
    reduces = reduces + np.asarray(all_reduce_seconds(sizes, replicas, wires))
    # Where gradients stay local until the last micro step, the reduction is spread over all.
    often = np.where(case.reduce_every_micro_step > 0.0, 1.0, 1.0 / case.micro_steps)
    gather, root_gather = full * gathers[0], full * gathers[1]
    reduce, root_reduce = scattered * often * reduces[0], scattered * often * reduces[1]
    # The last of two roots, or of one that stands for both because they are equal.
    first_gather = np.where(split, full * gathers[-1], 0.0) if staged else none
    first_reduce = np.where(split, scattered * often * reduces[-1], 0.0) if staged else none
    again = np.where(case.reshard > 0.0, gather, 0.0)
    return BlockTraffic(
        gather=gather,
        reduce=reduce,
        forward=gather,
        backward=again + reduce,
        again=again,
        root_gather=root_gather,
        root_reduce=root_reduce,
        first_gather=first_gather,
        first_reduce=first_reduce,
    )


def root_params(case: Case) -> tuple[Mask, Array, Array]:
    """Return (ends on two stages?, parameters outside the layers beside the head, and first)."""
    split: Mask = np.asarray((case.pp > 1.0) & (case.schedule != 3.0))
    split = lean(split)
    # A tied head lives on the last stage as a second copy of the embedding.
    own = np.where(case.head_params > 0.0, case.head_params, case.embedding_params)
    head = np.where(split, own, case.embedding_params + case.head_params)
    return split, head, case.embedding_params


def hides(case: Case, gather: Num) -> Mask:
    """Whether communication runs beside compute: what gathers must be fetched ahead for that."""
    ahead = (case.prefetch > 0.0) | (np.asarray(gather) <= 0.0)
    return np.asarray(ahead & (case.overlap_dp > 0.0))


def tail_hides(case: Case, traffic: BlockTraffic) -> Mask:
    """Whether the last reduction of a micro step runs beside the next one.

    It does unless a gather waits behind it on the same communicator, and GPipe gathers nothing
    anew between its backward passes. Reductions that are done once have no next.
    """
    follows = (np.asarray(traffic.gather) <= 0.0) | ((case.schedule == 0.0) & (case.pp > 1.0))
    each = case.reduce_every_micro_step > 0.0
    return np.asarray(follows & each & hides(case, traffic.again) & (case.sharding >= 2.0))


def unhurried(case: Case, traffic: BlockTraffic) -> Mask:
    """Whether reductions may lag behind backward into the next forward: no gather waits for them.

    GPipe has no forward between its backward passes; zero-bubble schedules are priced apart.
    """
    turns: Mask = np.asarray((case.schedule == 1.0) | (case.pp == 1.0))
    ungathered = np.asarray(traffic.gather) <= 0.0
    return np.asarray(tail_hides(case, traffic) & ungathered & lean(turns))


def hidden_tail(
    case: Case,
    traffic: BlockTraffic,
    layers: Num,
    forward: Num,
    backward: Num,
    root: Num,
    head: Num,
) -> tuple[Num, Num, Num]:
    """Return what the last reductions of a micro step cost, mean over micro steps, seconds.

    Args:
        case: The step.
        traffic: What moves per layer.
        layers: Layers of the stage.
        forward: Forward of a layer alone, seconds.
        backward: Its backward.
        root: Reduction of what no layer holds.
        head: Output head and loss of the stage, seconds.

    Returns:
        Exposed of the layer's and of the root's reduction, and compute slowed down beside them.
    """
    reduce, none = traffic.reduce, np.zeros_like(case.layers)
    # Looking is cheaper than asking in full: mostly nothing is reduced, or a gather is behind it.
    if not np.any(reduce) or (np.all(traffic.gather) and np.all(case.schedule)):
        return reduce, root, none
    follows = tail_hides(case, traffic)
    if not follows.any():
        return reduce, root, none
    # The last micro step has no next.
    hidden = np.where(follows, 1.0 - 1.0 / case.micro_steps, 0.0)
    shown = 1.0 - hidden
    slowed = case.contention * np.minimum(reduce, backward)
    behind = hidden * np.minimum(layers, 1.0)
    late = np.maximum(reduce - (backward + slowed), 0.0)
    roots = hidden * case.contention * np.minimum(root, layers * forward)
    # Nothing hides on links that the layers keep busy all the time.
    room = layers * np.maximum(backward + slowed - reduce, 0.0) + head
    root_late = np.maximum(root - room, 0.0)
    free = unhurried(case, traffic)
    # Backward waits for all reductions but two, which forward hides if links have the time.
    waits = np.maximum(layers - 2.0, 0.0) * late
    links = layers * (reduce - forward - backward - slowed) + root - head
    last = reduce + np.where(free, np.maximum(layers - 1.0, 0.0) * late, 0.0)
    late = np.where(free, np.maximum(waits, links), late)
    root_late = np.where(free, 0.0, root_late)
    exposed_ = shown * last + np.where(free, hidden, behind) * late
    return exposed_, shown * root + hidden * root_late, behind * slowed + roots


def overlapped(case: Case, compute: Num, communication: Num, gather: Num) -> tuple[Num, Num]:
    """Return the time of a block with communication beside it, and what of that nothing hides.

    Without overlap all of it is exposed; else what is left when compute, slowed by contention, is
    done.

    Args:
        case: The step.
        compute: Seconds of the block alone.
        communication: Seconds of all that may run beside it.
        gather: The part of it that the block itself waits for.
    """
    if not np.any(communication):
        return compute, 0.0 * compute
    slowed = compute + case.contention * np.minimum(communication, compute)
    together = np.maximum(slowed, communication)
    beside = hides(case, gather)
    block: Num = np.where(beside, together, compute + communication)
    return block, np.where(beside, together - slowed, communication)


def beside_backward(case: Case, backward: Num, traffic: BlockTraffic) -> tuple[Num, Num]:
    """Return a block's backward with its traffic beside it, and what of that nothing hides.

    Mean over micro steps: gradients that are reduced once travel beside the last backward alone,
    which may be too short for them where all of them together are not. What may lag behind is
    counted by `hidden_tail`.
    """
    again = traffic.again
    block, shown = overlapped(case, backward, traffic.backward, again)
    if np.any(traffic.reduce) and not np.all(traffic.gather):
        free = unhurried(case, traffic)
        block, shown = np.where(free, block - shown, block), np.where(free, 0.0, shown)
    if (case.reduce_every_micro_step > 0.0).all() or not np.any(traffic.reduce):
        return block, shown
    once = (case.reduce_every_micro_step <= 0.0) & (np.asarray(traffic.reduce) > 0.0)
    last = 1.0 / case.micro_steps
    others, others_shown = overlapped(case, backward, again, again)
    whole = again + case.micro_steps * traffic.reduce
    final, final_shown = overlapped(case, backward, whole, again)
    return (
        np.where(once, (1.0 - last) * others + last * final, block),
        np.where(once, (1.0 - last) * others_shown + last * final_shown, shown),
    )


def passing_backward(case: Case, backward: Num, traffic: BlockTraffic) -> tuple[Num, Num]:
    """Return a block's backward as the stage before waits for it: with reductions, and without.

    A block waits for the reduction before the last, so the last two of a pass wait for gathers
    alone, though they are slowed by reductions; without overlap a block waits for all of them.
    """
    again = traffic.again
    if not np.any(traffic.backward):
        return backward, backward
    often = np.where(case.reduce_every_micro_step > 0.0, 1.0, 1.0 / case.micro_steps)
    deep, shown = overlapped(case, backward, again + traffic.reduce / often, again)
    second = np.maximum(deep - shown, again)
    return deep, np.where(hides(case, again), second, deep)


def edge_params(case: Case) -> Num:
    """Parameters outside the layers on the fullest rank: one end of a pipeline, or both."""
    both = case.embedding_params + case.head_params
    edge = np.maximum(case.embedding_params, case.head_params)
    result: Num = np.where(case.pp > 1.0, edge, both)
    return result


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTraffic:
    """Data-parallel traffic paid once per step, seconds."""

    load: Num
    exposed: Num


def step_load(case: Case, params: Num) -> Num:
    """Return the time of what travels once per step, hidden or not.

    Gradients are reduced in buckets; ZeRO-1 and 2 gather the updated parameters after it.

    Args:
        case: The step.
        params: Parameters of the fullest rank, before sharding by data parallelism.
    """
    if (case.sharding == 3.0).all():
        return np.zeros_like(case.layers)
    wires = links(case)
    everyone, group, replicas = gradient_group(case), shard_group(case), replica_group(case)
    gradient = case.reduce_bytes * params
    ranks = case.dp_replicate * shards(case)
    bucket = np.maximum(case.bucket_bytes, case.bucket_bytes_per_rank * ranks)
    calls = np.maximum(gradient / bucket, 1.0)
    piece = gradient / calls
    stage = case.sharding
    load = np.zeros_like(case.layers)
    if (stage == 0.0).any():
        reduce = calls * all_reduce_seconds(case.all_reduce_factor * piece, everyone, wires)
        load = np.where(stage == 0.0, reduce, load)
    if (stage > 0.0).any():
        weights = np.maximum(2.0 * params / bucket, 1.0)
        sizes = stacked(case.scatter_factor * piece, 2.0 * params / weights)
        scatter, gather = np.asarray(gather_seconds(sizes, group, wires))
        scatter, gather = calls * scatter, weights * gather
        across = calls * all_reduce_seconds(
            case.all_reduce_factor * (piece / shards(case)), replicas, wires
        )
        load = np.where(stage == 1.0, scatter + across + gather, load)
        load = np.where(stage == 2.0, gather, load)
    return load


def hidden_behind(case: Case, load: Num, window: Num) -> StepTraffic:
    """Hide what of the load may hide behind a window of compute, seconds."""
    share = np.where(case.sharding == 0.0, case.dp_overlap, case.shard_overlap)
    share = np.where(case.overlap_dp > 0.0, share, 0.0)
    return StepTraffic(load=load, exposed=load - np.minimum(share * load, window))
