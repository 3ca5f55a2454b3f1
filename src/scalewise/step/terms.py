"""Terms of one step: named parts that add up to its time.

    terms, seconds = step_terms(case, compose(case))
    seconds                        # the sum of `terms.parts()`

The slowest stage over all micro-batches, then the bubble, communication once per step, optimizer,
overhead and stragglers. Other properties of each term are in `scalewise.terms`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Num, maximum
from scalewise.step import wrappers
from scalewise.step.breakdown import Breakdown
from scalewise.step.case import Case
from scalewise.step.compose import Step


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms(Breakdown):
    """Where the time of a step goes, seconds, for the slowest stage.

    Terms that differ between most strategies come last: the sum of the others is then that of few.
    """

    gemm: Num
    """GEMMs of the layers."""
    attention: Num
    """Attention kernels."""
    experts: Num
    """GEMMs of routed experts."""
    routing: Num
    """Router, permutation and activation of the tokens of experts."""
    adapters: Num
    """Low-rank adapters of a frozen model."""
    dequantize: Num
    """Making 16-bit matrices of a frozen model in 4 bits."""
    memory_bound: Num
    """Norms, activations, rotary, casts, gradient handling: bound by memory bandwidth."""
    head: Num
    """LM head and loss."""
    recompute: Num
    """Forward work repeated in backward."""
    host: Num
    """Waiting for kernel launches, and wrappers of layers where the host is the device."""
    tensor_parallel: Num
    """Exposed tensor-parallel communication."""
    context_parallel: Num
    """Exposed context-parallel communication."""
    expert_parallel: Num
    """Exposed all-to-all of experts."""
    offload: Num
    """Exposed copies to host memory or NVMe and back."""
    optimizer: Num
    """Optimizer update of the local shard."""
    overhead: Num
    """Constant of the software per step."""
    dp_all_gather: Num
    """Exposed all-gathers of parameters (FSDP), the first of every micro-batch included."""
    contention: Num
    """Compute slowed by overlapped data-parallel communication."""
    dp_grad_reduce: Num
    """Exposed reductions of gradients; under ZeRO-1/2 also the all-gather of updated parameters."""
    pp_p2p: Num
    """Exposed P2P between pipeline stages."""
    bubble: Num
    """Idle in warm-up and cool-down of the pipeline."""
    straggler: Num
    """Waiting for the slowest of all domains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CommTime:
    """Communication of one rank in a step, overlapped or not, seconds by group."""

    tensor_parallel: Num
    context_parallel: Num
    expert_parallel: Num
    data_parallel: Num
    pipeline: Num


def step_terms(case: Case, step: Step) -> tuple[Terms, Num]:
    """Return the terms of a step, and their sum, seconds.

    Args:
        case: The step (or many).
        step: Its parts.
    """
    n, stage, block, layer = case.split.num_microbatches, step.stage, step.block, step.layer
    kernels, traffic = layer.kernels, step.traffic
    every, overlapped = n * stage.layers, n * stage.others
    memory = kernels.memory_forward + kernels.memory_backward + kernels.gradient
    gathers = block.exposed_forward + block.exposed_backward * (1.0 - block.reduce_fraction)
    ends = traffic.all_gather + stage.root_all_gather
    reduces = block.exposed_backward * block.reduce_fraction
    launches = block.forward_alone - layer.device_forward
    launches = launches + (block.backward_alone - layer.device_backward)
    adapters: Num = case.zeros
    dequantize: Num = case.zeros
    if kernels.tuning is not None:
        adapters = every * (kernels.tuning.forward + kernels.tuning.backward)
        dequantize = every * (2.0 * kernels.tuning.dequantize)
    busy = Terms(
        gemm=every * (kernels.gemm_forward + kernels.gemm_backward),
        attention=every * (kernels.attention_forward + kernels.attention_backward),
        experts=every * (kernels.experts_forward + kernels.experts_backward),
        routing=every * (kernels.routing_forward + kernels.routing_backward),
        adapters=adapters,
        dequantize=dequantize,
        memory_bound=every * memory,
        head=n * stage.head,
        recompute=every * kernels.recompute,
        host=every * launches,
        tensor_parallel=every * (layer.tp_exposed_forward + layer.tp_exposed_backward),
        context_parallel=every * (layer.cp_exposed_forward + layer.cp_exposed_backward),
        expert_parallel=every * (layer.ep_exposed_forward + layer.ep_exposed_backward),
        dp_all_gather=overlapped * gathers + n * ends,
        dp_grad_reduce=overlapped * reduces + n * stage.tail + step.once.exposed,
        contention=overlapped * (block.slowed_forward + block.slowed_backward)
        + n * stage.tail_slowed,
        bubble=step.pipeline.bubble + step.sends.waiting,
        pp_p2p=step.sends.exposed,
        offload=step.offload.seconds,
        optimizer=step.update.seconds,
        overhead=case.habits.overhead_seconds + wrappers.step_seconds(case),
        straggler=0.0,
    )
    seconds = busy.total
    doublings = np.log2(maximum(case.split.domains, 1.0))
    straggler = seconds * (case.habits.straggler * doublings)
    return Terms(**{**busy.parts(), "straggler": straggler}), seconds + straggler


def comm_time(case: Case, step: Step) -> CommTime:
    """Return all communication of one rank in a step, seconds."""
    n, stage, layer, traffic = case.split.num_microbatches, step.stage, step.layer, step.traffic
    every = n * stage.layers
    ends = traffic.all_gather + traffic.reduce + traffic.across
    ends = ends + stage.root_all_gather + stage.root_reduce
    beside = n * stage.others * (traffic.all_gather + traffic.backward)
    return CommTime(
        tensor_parallel=every * (layer.tp_forward + layer.tp_backward),
        context_parallel=every * layer.cp_seconds,
        expert_parallel=every * (layer.ep_forward + layer.ep_backward),
        data_parallel=beside + n * ends + step.once.seconds,
        pipeline=step.sends.seconds,
    )
