"""What data parallelism adds: gathers and reductions, and how much of them hides.

Fully sharded (ZeRO-3 / FSDP): every block's parameters are gathered before its forward (and again
before its backward if they were freed), its gradients reduce-scattered after its backward. They
share one communicator, so they queue up; prefetch lets them run beside the neighbour's compute:

    block = max(compute + contention x min(communication, compute), communication)

Contention is not zero: collective kernels hold compute units and memory bandwidth while they run,
also while they only wait for latency. Otherwise (DDP, ZeRO-1/2): gradients travel once per step
in buckets, partly behind the last backward.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Num
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
    root_gather: Num
    """Gather of what no layer holds (embedding, head): nothing runs beside it."""
    root_reduce: Num
    """Reduction of its gradients, likewise."""


def block_traffic(case: Case) -> BlockTraffic:
    """Price what FSDP moves per layer and micro step (ZeRO-2: its reduction)."""
    none = np.zeros_like(case.layers)
    if not (case.sharding >= 2.0).any():
        return BlockTraffic(
            gather=none,
            reduce=none,
            forward=none,
            backward=none,
            root_gather=none,
            root_reduce=none,
        )
    group, replicas, wires = shard_group(case), replica_group(case), links(case)
    full = np.where(case.sharding == 3.0, 1.0, 0.0)
    scattered = np.where(case.sharding >= 2.0, 1.0, 0.0)
    params, rest = case.layer_params / case.tp, edge_params(case) / case.tp
    # One call for all four messages of the group: layer and root, parameters and gradients.
    gradients, root_gradients = case.reduce_bytes * params, case.reduce_bytes * rest
    sizes = np.array([2.0 * params, gradients, 2.0 * rest, root_gradients])
    gather, reduce, root_gather, root_reduce = np.asarray(gather_seconds(sizes, group, wires))
    sizes = np.array([gradients, root_gradients]) / shards(case)
    across, root_across = np.asarray(all_reduce_seconds(sizes, replicas, wires))
    # Where gradients stay local until the last micro step, the reduction is spread over all.
    often = np.where(case.reduce_every_micro_step > 0.0, 1.0, 1.0 / case.micro_steps)
    gather, root_gather = full * gather, full * root_gather
    reduce = scattered * often * (reduce + across)
    root_reduce = scattered * often * (root_reduce + root_across)
    again = np.where(case.reshard > 0.0, gather, 0.0)
    return BlockTraffic(
        gather=gather,
        reduce=reduce,
        forward=gather,
        backward=again + reduce,
        root_gather=root_gather,
        root_reduce=root_reduce,
    )


def overlapped(case: Case, compute: Num, communication: Num) -> Num:
    """Return the time of a block whose communication runs beside its compute."""
    if not np.any(communication):
        return compute
    beside = compute + case.contention * np.minimum(communication, compute)
    together = np.maximum(beside, communication)
    hides = (case.prefetch > 0.0) & (case.overlap_dp > 0.0)
    result: Num = np.where(hides, together, compute + communication)
    return result


def exposed(case: Case, block: Num, compute: Num, communication: Num) -> Num:
    """Return what of a block's communication nothing hides.

    All of it without overlap; else what is left when compute, slowed by contention, is done.
    """
    if not np.any(communication):
        return 0.0 * compute
    hides = (case.prefetch > 0.0) & (case.overlap_dp > 0.0)
    slowed = compute + case.contention * np.minimum(communication, compute)
    excess = np.maximum(block - slowed, 0.0)
    result: Num = np.where(hides, excess, communication)
    return result


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
        reduce = calls * all_reduce_seconds(piece, everyone, wires)
        load = np.where(stage == 0.0, reduce, load)
    if (stage > 0.0).any():
        weights = np.maximum(2.0 * params / bucket, 1.0)
        sizes = np.array([piece, 2.0 * params / weights])
        scatter, gather = np.asarray(gather_seconds(sizes, group, wires))
        scatter, gather = calls * scatter, weights * gather
        across = calls * all_reduce_seconds(piece / shards(case), replicas, wires)
        load = np.where(stage == 1.0, scatter + across + gather, load)
        load = np.where(stage == 2.0, gather, load)
    return load


def hidden_behind(case: Case, load: Num, window: Num) -> StepTraffic:
    """Hide what of the load may hide behind a window of compute, seconds."""
    share = np.where(case.sharding == 0.0, case.dp_overlap, case.shard_overlap)
    share = np.where(case.overlap_dp > 0.0, share, 0.0)
    return StepTraffic(load=load, exposed=load - np.minimum(share * load, window))
