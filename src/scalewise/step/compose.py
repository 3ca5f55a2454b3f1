"""One step from its parts: a layer, its block, the slowest stage, the pipeline around it.

    step = compose(case)
    step.layer.kernels.gemm_forward, step.stage.layers, step.pipeline.bubble

Read this first: it is the model in twenty lines. `terms` adds it up.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalewise.numeric import Num, some, where
from scalewise.step import data_parallel, offload, optimizer, p2p, schedule
from scalewise.step.block import Block, layer_block
from scalewise.step.case import Case
from scalewise.step.data_parallel import LayerTraffic
from scalewise.step.gradient_buckets import StepTraffic, once_per_step
from scalewise.step.layer import Layer, layer_times
from scalewise.step.memory import activation_bytes
from scalewise.step.offload import Offload
from scalewise.step.optimizer import Update
from scalewise.step.p2p import Sends
from scalewise.step.schedule import Pipeline
from scalewise.step.stage import (
    Stage,
    max_experts_per_rank,
    max_params_per_rank,
    max_roots_per_rank,
    most_layers,
    slowest_stage,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """Everything between the inputs of a step and its terms; seconds."""

    layer: Layer
    """One layer on one rank, per micro-batch."""
    traffic: LayerTraffic
    """Sharded communication of one layer."""
    block: Block
    """The layer with that communication overlapped."""
    stage: Stage
    """The slowest stage."""
    pipeline: Pipeline
    """Wait of the slowest stage for other stages."""
    sends: Sends
    """P2P messages of the slowest stage."""
    once: StepTraffic
    """Data-parallel communication once per step."""
    params: Num
    """Trained parameters of the worst rank but experts, before data parallelism shards them."""
    root_params: Num
    """Those of them that no layer holds."""
    expert_params: Num
    """Parameters of its experts."""
    optimizer_params: Num
    """Parameters whose optimizer state one rank updates."""
    update: Update
    """The optimizer step."""
    offload: Offload
    """Copies to the host and back."""


def compose(case: Case) -> Step:
    """Walk through one step, or many."""
    split, layer = case.split, layer_times(case)
    traffic = data_parallel.layer_traffic(case)
    block = layer_block(case, layer, traffic)
    head = layer.kernels.head
    stage = slowest_stage(case, block, traffic, head)
    pipeline, stage = schedule.around(case, block, traffic, stage, head)
    params, experts = max_params_per_rank(case), max_experts_per_rank(case)
    roots = max_roots_per_rank(case)
    # Gradients overlap backward, or the wgrads that come last; updated parameters (ZeRO-1/2) the
    # next forward.
    passes = stage.layers * schedule.passes_left(case)
    late, forward = passes * block.late_compute, passes * layer.forward
    if some(split.reduce_stated):
        # Reductions of every micro-batch have the backward of their own alone.
        own = stage.layers * block.late_compute
        late = where(case.habits.step_reductions(split) > 1.0, own, late)
    optimizer_params = params / where(split.shards_optimizer, split.shards, 1.0)
    if case.has_experts:
        shards = where(split.shards_optimizer, split.expert_shards, 1.0)
        optimizer_params = optimizer_params + experts / shards
    update = optimizer.update(case, most_layers(split), params, experts, optimizer_params)
    once = once_per_step(case, params, late, forward, experts=experts, roots=roots)
    copies = offload.nothing(case)
    if some(split.offload):
        copies = offload.step_offload(
            case, traffic, block, stage, once=once.exposed,
            kept=activation_bytes(case)[0], roots=roots, local=optimizer_params,
            update=update.seconds,
        )  # fmt: skip
    return Step(
        layer=layer,
        traffic=traffic,
        block=block,
        stage=stage,
        pipeline=pipeline,
        sends=p2p.sends(case, stage.on_last),
        once=once,
        params=params,
        root_params=roots,
        expert_params=experts,
        optimizer_params=optimizer_params,
        update=update,
        offload=copies,
    )
