"""One step from its parts: a layer, its block, the slowest stage, the pipeline around it.

    step = compose(case)
    step.layer.kernels.gemm_forward, step.stage.layers, step.pipeline.bubble

Read this first: it is the model in twenty lines. `terms` adds it up.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Num
from scalewise.step import data_parallel, p2p, schedule
from scalewise.step.block import Block, layer_block
from scalewise.step.case import Case
from scalewise.step.data_parallel import LayerTraffic
from scalewise.step.gradient_buckets import StepTraffic, once_per_step
from scalewise.step.layer import Layer, layer_times
from scalewise.step.p2p import Sends
from scalewise.step.schedule import Pipeline
from scalewise.step.stage import Stage, max_params_per_rank, slowest_stage


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
    """Parameters of the worst rank before data parallelism shards them."""
    optimizer_params: Num
    """Parameters whose optimizer state one rank updates."""


def compose(case: Case) -> Step:
    """Walk through one step, or many."""
    split, layer = case.split, layer_times(case)
    traffic = data_parallel.layer_traffic(case)
    block = layer_block(case, layer, traffic)
    head = layer.kernels.head
    stage = slowest_stage(case, block, traffic, head)
    pipeline, stage = schedule.around(case, block, traffic, stage, head)
    params = max_params_per_rank(case)
    # Gradients overlap backward, or the wgrads that come last; updated parameters (ZeRO-1/2) the
    # next forward.
    passes = stage.layers * schedule.passes_left(case)
    once = once_per_step(case, params, passes * block.late_compute, passes * layer.forward)
    return Step(
        layer=layer,
        traffic=traffic,
        block=block,
        stage=stage,
        pipeline=pipeline,
        sends=p2p.sends(case, stage.on_last),
        once=once,
        params=params,
        optimizer_params=params / np.where(split.shards_optimizer, split.shards, 1.0),
    )
