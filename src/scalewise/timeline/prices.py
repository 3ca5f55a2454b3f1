"""What does each event of a step cost? The seconds of `step`, as plain numbers per stage.

    prices = price(case)                   # a Case of one row
    prices.forward, prices.stages[0].layers

Everything comes from the functions `estimate` uses (`step.work`, `step.data_parallel`,
`step.pipeline`); nothing is priced here. What differs is what happens next: `estimate` adds these
up by closed forms, `timeline` plays them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scalewise.physics.collectives import all_reduce_seconds, gather_seconds
from scalewise.step import data_parallel, pipeline, zero_bubble
from scalewise.step.groups import links, replica_group, shard_group, shards
from scalewise.step.layers import product_seconds
from scalewise.step.work import layer_work
from scalewise.timeline.layer import Block, backward_block, forward_block

if TYPE_CHECKING:
    from scalewise.step.case import Case

SCHEDULES = ("gpipe", "1f1b", "zbh1", "zbv")
"""By the code of `Case.schedule`; 1F1B with several chunks is interleaved."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Stage:
    """One pipeline stage: a rank of it stands for all."""

    layers: int
    """Layers it holds."""
    root_gather: float
    """Seconds to gather what no layer holds (embedding, head), fully sharded."""
    root_reduce: float
    """Seconds to reduce its gradients."""
    reduce: float
    """Seconds of the gradient reduction that travels once per step (DDP, ZeRO-1)."""
    gather: float
    """Seconds to gather the updated parameters once per step (ZeRO-1/2)."""
    optimizer: float
    """Seconds of its optimizer step."""
    params: float
    """Parameters of one rank before data parallelism shards them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prices:
    """Seconds of every kind of event, and the switches that decide their order."""

    forward_block: Block
    """Forward of a layer: its kernels, what blocks them, launches."""
    backward_block: Block
    """Backward of a layer, recompute included."""
    inputs: float
    """Backward of a layer in halves, as zero-bubble schedules have it: gradients of inputs."""
    weights: float
    """Gradients of weights, which can wait."""
    head_forward: float
    """Output projection and loss."""
    head_backward: float
    gather: float
    """One gather of a layer's parameters (fully sharded)."""
    reduce: float
    """One reduction of its gradients, per micro step where it is done in each."""
    reduce_each: bool
    """Whether gradients are reduced in every micro step, or in the last alone."""
    message: float
    """One activation or gradient sent to the neighbouring stage."""
    blocking: bool
    """Whether sender and receiver wait for it (True), or compute another chunk meanwhile."""
    contention: float
    """Seconds lost per second of compute that communication runs beside."""
    share: float
    """Share of the once-per-step traffic that may hide."""
    overlap: bool
    """Whether data-parallel communication may run beside compute."""
    prefetch: int
    """Blocks gathered ahead."""
    reshard: bool
    """Whether parameters are freed after forward."""
    sharding: int
    """ZeRO stage."""
    schedule: str
    """Order of the pipeline: one of SCHEDULES."""
    chunks: int
    """Model chunks per stage."""
    micro_steps: int
    overhead: float
    """Constant of the software per step."""
    straggler: float
    """Share of the step lost to the slowest of all scale-up domains."""
    data_ranks: int
    """Ranks that reduce gradients together: the slowest of them sets the pace."""
    stages: tuple[Stage, ...]

    @property
    def forward(self) -> float:
        """Seconds of the forward of a layer."""
        return self.forward_block.seconds

    @property
    def backward(self) -> float:
        """Seconds of the backward of a layer."""
        return self.backward_block.seconds

    @property
    def v_shaped(self) -> bool:
        """Whether the second chunk runs through the stages in reverse."""
        return self.schedule == "zbv" and len(self.stages) > 1

    @property
    def head_rank(self) -> int:
        """Stage with the output head."""
        return 0 if self.v_shaped else len(self.stages) - 1


def price(case: Case) -> Prices:
    """Read the prices of one step.

    Args:
        case: One row.
    """
    own = layer_work(case)
    traffic = data_parallel.block_traffic(case)
    products = product_seconds(case)
    head_forward = float(products[12][0])
    head = float(np.asarray(own.head_gemm)[0])
    # The loss reads and writes its logits in the proportion of the products around it.
    loss = _one(own.loss) * head_forward / head
    each = bool(_one(case.reduce_every_micro_step)) or case.micro_steps[0] <= 1.0
    # `block_traffic` spreads a reduction that is done once over all micro steps; undone here.
    times = 1.0 if each else _one(case.micro_steps)
    micro_steps, pp = int(case.micro_steps[0]), int(case.pp[0])
    sharding = int(case.sharding[0])
    share = _one(data_parallel.hidden_behind(case, np.ones(1), np.ones(1)).exposed)
    inputs, weights = zero_bubble.passes(own)
    counts, edges = layer_counts(case), _edges(case)
    if pp > 1 and SCHEDULES[int(case.schedule[0])] == "zbv":
        # Both ends of the model are on one stage: the one that would be the last.
        counts, edges = counts[::-1], [edges[0] + edges[-1], *[0.0] * (pp - 1)]
    stages = tuple(_stage(case, *each) for each in zip(counts, edges, strict=True))
    return Prices(
        forward_block=forward_block(case, own),
        backward_block=backward_block(case, own),
        inputs=_one(inputs),
        weights=_one(weights),
        head_forward=head_forward + loss,
        head_backward=head - head_forward + _one(own.loss) - loss,
        gather=_one(traffic.gather),
        reduce=times * _one(traffic.reduce),
        reduce_each=each,
        message=_one(pipeline.message_seconds(case)),
        blocking=not (case.overlap_pp[0] > 0.0 and case.chunks[0] > 1.0),
        contention=_one(case.contention),
        share=1.0 - share,
        overlap=bool(case.overlap_dp[0] > 0.0),
        prefetch=int(case.prefetch[0]),
        reshard=bool(case.reshard[0] > 0.0),
        sharding=sharding,
        schedule=SCHEDULES[int(case.schedule[0])] if pp > 1 else "1f1b",
        chunks=int(case.chunks[0]) if pp > 1 else 1,
        micro_steps=micro_steps,
        overhead=_one(case.step_seconds),
        straggler=_one(case.straggler) * float(np.log2(np.maximum(case.domains[0], 1.0))),
        data_ranks=int(case.dp_replicate[0] * case.dp_shard[0] * case.cp[0]),
        stages=stages,
    )


def _one(value: object) -> float:
    """The only number of a result of length one."""
    return float(np.asarray(value).reshape(-1)[0])


def layer_counts(case: Case) -> list[int]:
    """Layers of every stage: the first, the last and the fullest middle one are given."""
    first, middle, last = (
        int(case.first_layers[0]),
        int(case.middle_layers[0]),
        int(case.last_layers[0]),
    )
    pp, layers = int(case.pp[0]), int(case.layers[0])
    if pp == 1:
        return [layers]
    between = pp - 2
    rest = max(layers - first - last, 0)
    if not between:
        return [first, last]
    low, extra = divmod(rest, between)
    counts = [low] * (between - extra) + [low + 1] * extra
    if max(counts) < middle <= rest and middle >= max(first, last):
        # A framework that fills stages in order makes some of them fuller than the rest, all
        # along the pipeline: the latest of them matters.
        low, extra = divmod(rest - middle, max(between - 1, 1))
        counts = [low] * (between - 1 - extra) + [low + 1] * extra + [middle]
    return [first, *counts, last]


def _edges(case: Case) -> list[float]:
    """Parameters beside the layers, by stage: the embedding first, the head last."""
    pp = int(case.pp[0])
    embedding, head = float(case.embedding_params[0]), float(case.head_params[0])
    if pp == 1:
        return [embedding + head]
    # A tied head lives on the last stage as a second copy of the embedding.
    return [embedding, *[0.0] * (pp - 2), head or embedding]


def _stage(case: Case, layers: int, edge: float) -> Stage:
    """Price what one stage moves and updates."""
    params = (layers * case.layer_params + edge) / case.tp
    sharding = case.sharding[0]
    owned = params / (shards(case) if sharding >= 1.0 else 1.0)
    gather = reduce = root_gather = root_reduce = 0.0
    if sharding < 3.0 and _one(params) > 0.0:
        load = _one(data_parallel.step_load(case, params))
        if sharding >= 1.0:
            # ZeRO-2 pays the gather of updated parameters alone; ZeRO-1 the reduction too.
            two = case.changed(sharding=np.full(1, 2.0))
            gather = _one(data_parallel.step_load(two, params))
        reduce = load - gather
    if sharding >= 2.0 and edge > 0.0:
        rest, wires, group = np.full(1, edge) / case.tp, links(case), shard_group(case)
        gradients = case.reduce_bytes * rest
        root_reduce = _one(gather_seconds(case.scatter_factor * gradients, group, wires)) + _one(
            all_reduce_seconds(
                case.all_reduce_factor * (gradients / shards(case)), replica_group(case), wires
            )
        )
        if sharding == 3.0:
            root_gather = _one(gather_seconds(2.0 * rest, group, wires))
    return Stage(
        layers=layers,
        root_gather=root_gather,
        root_reduce=root_reduce,
        reduce=reduce,
        gather=gather,
        optimizer=_one(case.optimizer_bytes * owned / case.memory_rate),
        params=_one(params),
    )
