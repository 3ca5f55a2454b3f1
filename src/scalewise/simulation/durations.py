"""Durations of the events of a step: the seconds of `step`, as plain numbers per stage.

    durations = durations_of(case)                   # a Case of one row
    durations.forward, durations.stages[0].layers

Everything comes from the functions that `estimate` uses (`step.layer`, `step.data_parallel`,
`step.zero_bubble`, `step.p2p`). `estimate` adds them up analytically, `timeline` simulates them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.numeric import scalar, some
from scalewise.physics.collectives import all_reduce_seconds, reduce_scatter_seconds
from scalewise.simulation.layer import Block, backward_block, forward_block
from scalewise.step import (
    data_parallel,
    gradient_buckets,
    optimizer,
    p2p,
    tuning,
    wrappers,
    zero_bubble,
)
from scalewise.step.compose import compose
from scalewise.step.groups import replica_group, shard_group
from scalewise.step.hierarchical import gather_seconds
from scalewise.step.layer import Layer, layer_times
from scalewise.step.quantized_collectives import reduce_seconds
from scalewise.strategy import SCHEDULES

if TYPE_CHECKING:
    from scalewise.step.case import Case


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One pipeline stage, represented by one rank."""

    layers: int
    """Layers of the stage."""
    root_gather: float
    """Seconds to all-gather what no layer holds (embedding, head), fully sharded."""
    root_reduce: float
    """Reduction of their gradients, seconds."""
    root_across: float
    """The part of it between replicas, which only the last micro-batch has where they sync once."""
    reduce: float
    """Gradient reduction of DDP and ZeRO-1, seconds: once per step, or of every micro-batch."""
    gather: float
    """Seconds to all-gather the updated parameters once per step (ZeRO-1/2)."""
    optimizer: float
    """Optimizer step, seconds."""
    params: float
    """Parameters of one rank but experts, before data parallelism shards them."""
    sparse: float
    """Fraction of its layers that have experts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Durations:
    """Seconds of every kind of task, and the switches that determine their order."""

    forward_block: Block
    """Forward of a layer: kernels, blocking collectives, launches."""
    backward_block: Block
    """Backward of a layer, recompute included."""
    inputs: float
    """Dgrads of a layer: the half of backward that zero-bubble schedules do at once."""
    weights: float
    """Wgrads of a layer, which zero-bubble schedules defer."""
    head_forward: float
    """LM head and loss."""
    head_backward: float
    gather: float
    """One all-gather of a layer's parameters (fully sharded)."""
    gather_again: float
    """The same before backward."""
    gather_each: bool
    """Whether parameters are all-gathered for every micro-batch, or for the first alone."""
    reduce: float
    """One reduction of its gradients, per micro-batch where it is done for each."""
    across: float
    """One all-reduce of its gradients between replicas, on links of its own."""
    reduce_last: float
    """The same of the last micro-batch, with what replicas do once per step."""
    reduce_each: bool
    """Whether gradients are reduced after every micro-batch, or after the last alone."""
    sync_once: bool
    """Whether replicas reduce gradients after the last micro-batch alone."""
    step_reduce_each: bool
    """Whether DDP and ZeRO-1 reduce gradients after every micro-batch."""
    message: float
    """P2P send/recv of one activation or gradient to the neighboring stage."""
    blocking: bool
    """Whether sender and receiver wait for it (True), or compute another chunk meanwhile."""
    contention: float
    """Seconds lost per second of compute that communication overlaps."""
    share: float
    """Fraction of once-per-step reductions that may overlap."""
    gather_share: float
    """Fraction of the all-gather of updated parameters that may overlap."""
    overlap: bool
    """Whether data-parallel communication may overlap compute."""
    prefetch: int
    """Layers all-gathered ahead."""
    reshard_after_forward: bool
    """Whether parameters are freed after forward."""
    sharding: int
    """ZeRO stage."""
    schedule: str
    """Pipeline schedule: one of SCHEDULES."""
    chunks: int
    """Model chunks per stage."""
    num_microbatches: int
    overhead: float
    """Constant framework overhead per step, seconds."""
    offload: float = 0.0
    """Exposed copies of offload, seconds: their closed form, added to the step."""
    straggler: float
    """Fraction of the step lost to the slowest of all scale-up domains."""
    data_ranks: int
    """Ranks that reduce gradients together: all wait for the slowest."""
    stages: tuple[Stage, ...]
    elsewhere: dict[str, Any] = field(default_factory=dict)
    """Durations of a layer on the other stages, where dense layers make the first the slowest."""

    def on(self, place: int) -> Durations:
        """The durations of a stage, whose layers may be others than those of the slowest."""
        return replace(self, **self.elsewhere) if place > 0 and self.elsewhere else self

    @property
    def forward(self) -> float:
        """Forward of a layer, seconds."""
        return self.forward_block.seconds

    @property
    def backward(self) -> float:
        """Backward of a layer, seconds."""
        return self.backward_block.seconds

    @property
    def zb_v(self) -> bool:
        """Whether the second chunk passes the stages in reverse."""
        return self.schedule == "zbv" and len(self.stages) > 1

    @property
    def head_rank(self) -> int:
        """Stage with the LM head."""
        return 0 if self.zb_v else len(self.stages) - 1


def durations_of(case: Case) -> Durations:
    """Return the durations of one step.

    Args:
        case: One row.
    """
    split, habits, own = case.split, case.habits, layer_times(case)
    kernels = own.kernels
    # The loss divides its logit traffic between forward and backward like the GEMMs around it.
    gemm_forward, gemm_backward = scalar(kernels.head_forward), scalar(kernels.head_backward)
    loss = scalar(kernels.loss) * gemm_forward / (gemm_forward + gemm_backward)
    num_microbatches, pp = int(split.num_microbatches[0]), int(split.pp[0])
    each = bool(habits.reduces_each(split)[0]) or num_microbatches <= 1
    once = gradient_buckets.once_per_step(case, *(np.ones(1),) * 3, experts=np.ones(1))
    counts, edges = layer_counts(case), _edges(case)
    if split.zb_v[0]:
        # Both ends of the model are on one stage: the one that would be the last.
        counts, edges = counts[::-1], [edges[0] + edges[-1], *[0.0] * (pp - 1)]
    sparse = [scalar(split.first_sparse), *(scalar(split.middle_sparse),) * (pp - 1)]
    if pp == 1 or split.zb_v[0]:
        sparse = [scalar(split.middle_sparse)] * pp
    others = case.of_other_stages
    stages = tuple(_stage(case, *each) for each in zip(counts, edges, sparse, strict=True))
    return Durations(
        **_of_layer(case, own),
        head_forward=gemm_forward + loss,
        head_backward=gemm_backward + scalar(kernels.loss) - loss,
        gather_each=not habits.gathers_once(split)[0],
        reduce_each=each,
        sync_once=bool(habits.syncs_once(split)[0]) and num_microbatches > 1,
        step_reduce_each=scalar(habits.step_reductions(split)) > 1.0,
        message=scalar(p2p.message_seconds(case)),
        blocking=not (split.overlap_pp[0] and split.interleaved[0]),
        contention=scalar(habits.contention),
        share=scalar(once.reduce_fraction),
        gather_share=scalar(once.gather_fraction),
        overlap=bool(split.overlap_dp[0]),
        prefetch=int(split.prefetch[0]),
        reshard_after_forward=bool(split.reshard_after_forward[0]),
        sharding=int(split.sharding[0]),
        schedule=SCHEDULES[int(split.schedule[0])] if pp > 1 else "1f1b",
        chunks=int(split.chunks[0]) if pp > 1 else 1,
        num_microbatches=num_microbatches,
        overhead=scalar(habits.overhead_seconds + wrappers.step_seconds(case)),
        offload=scalar(compose(case).offload.seconds) if some(split.offload) else 0.0,
        straggler=scalar(habits.straggler) * float(np.log2(np.maximum(split.domains[0], 1.0))),
        data_ranks=int(split.dp_replicate[0] * split.shards[0]),
        stages=stages,
        elsewhere=_of_layer(others, layer_times(others)) if case.dense_first else {},
    )


def _of_layer(case: Case, own: Layer) -> dict[str, Any]:
    """Return the durations of a layer and its communication, by field of `Durations`."""
    split, habits, traffic = case.split, case.habits, data_parallel.layer_traffic(case)
    # What is done once per step is spread over all micro-batches there.
    often = habits.reductions(split)
    gather = scalar(traffic.all_gather / habits.gathers(split))
    reduce = reduce_last = scalar(traffic.reduce / often)
    across = scalar(traffic.across / often)
    if traffic.sync is not None and bool(habits.syncs_once(split)[0]):
        reduce, reduce_last = scalar(traffic.sync.others), scalar(traffic.sync.last)
        across = scalar(traffic.sync.last_across)
    inputs, weights = zero_bubble.passes(own)
    frees = scalar(traffic.backward_all_gather) > 0.0
    return {
        "forward_block": forward_block(case, own),
        "backward_block": backward_block(case, own),
        "inputs": scalar(inputs),
        "weights": scalar(weights),
        "gather": gather,
        "gather_again": scalar(traffic.backward_all_gather) if frees else gather,
        "reduce": reduce,
        "reduce_last": reduce_last,
        "across": across,
    }


def layer_counts(case: Case) -> list[int]:
    """Return the layers of every stage, from the first, the last and the largest middle one."""
    split = case.split
    first, middle, last = (
        int(split.first_layers[0]),
        int(split.middle_layers[0]),
        int(split.last_layers[0]),
    )
    pp, layers = int(split.pp[0]), int(case.shape.layers[0])
    if pp == 1:
        return [layers]
    between = pp - 2
    rest = max(layers - first - last, 0)
    if not between:
        return [first, last]
    low, extra = divmod(rest, between)
    counts = [low] * (between - extra) + [low + 1] * extra
    if max(counts) < middle <= rest and middle >= max(first, last):
        # A framework that fills stages in order makes some of them larger, anywhere in the
        # pipeline: the last of them matters.
        low, extra = divmod(rest - middle, max(between - 1, 1))
        counts = [low] * (between - 1 - extra) + [low + 1] * extra + [middle]
    return [first, *counts, last]


def _edges(case: Case) -> list[float]:
    """Return parameters outside of layers, by stage: embedding first, head last."""
    pp, shape = int(case.split.pp[0]), case.shape
    if pp == 1:
        return [scalar(shape.edge_params)]
    return [scalar(shape.embedding_params), *[0.0] * (pp - 2), scalar(shape.last_params)]


def _stage(case: Case, layers: int, edge: float, sparse: float) -> Stage:
    """Return what one stage moves and updates."""
    split, habits = case.split, case.habits
    whole = (layers * case.params_of_layer(sparse) + edge) / split.tp
    params = tuning.trained_params(case, float(layers), whole)
    experts = tuning.trained_only(case, layers * sparse * case.expert_params_of_layer)
    sharding = split.sharding[0]
    shards = split.shards, split.expert_shards
    dense, of_experts = shards if sharding >= 1.0 else (1.0, 1.0)
    updated = params / dense + experts / of_experts
    gather = reduce = root_gather = root_reduce = root_across = 0.0
    if sharding < 3.0 and scalar(whole) > 0.0:
        roots = tuning.trained_only(case, edge / split.tp)
        times = gradient_buckets.step_seconds(case, params, experts, roots)
        reduce, gather = (scalar(each) for each in times)
    if sharding >= 2.0 and edge > 0.0:
        rest, group = np.full(1, edge) / split.tp, shard_group(split)
        gradients = habits.reduce_bytes * rest
        across = all_reduce_seconds(gradients / split.shards, replica_group(split), case.links)
        scatter = reduce_scatter_seconds(gradients, group, case.links)
        root_across = scalar(tuning.trained_only(case, across))
        scattered = tuning.trained_only(case, reduce_seconds(case, rest, group, scatter))
        root_reduce = scalar(scattered) + root_across
        if sharding == 3.0:
            root_gather = scalar(gather_seconds(case, case.root_gather_bytes * rest, group))
            root_gather += scalar(data_parallel.ends_again(case))
    return Stage(
        layers=layers,
        root_gather=root_gather,
        root_reduce=root_reduce,
        root_across=root_across,
        reduce=reduce,
        gather=gather,
        optimizer=scalar(optimizer.update(case, float(layers), params, experts, updated).seconds),
        params=scalar(whole),
        sparse=sparse,
    )
