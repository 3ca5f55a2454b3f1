"""One step, put together: named terms that add up to its time.

    terms, seconds = step_terms(case, work(case))
    seconds                        # the sum of `terms.parts()`

The slowest pipeline stage sets the pace: its compute, host waits and exposed communication over
all micro steps, then the bubble, the once-per-step reduction, the optimizer, and stragglers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Num
from scalewise.step.breakdown import Breakdown
from scalewise.step.case import Case
from scalewise.step.work import Work

TERM_NAMES = {
    "gemm": "matrix products",
    "attention": "attention",
    "memory_bound": "memory-bound work",
    "head": "output head and loss",
    "recompute": "recompute",
    "host": "kernel launches",
    "tensor_parallel": "exposed tensor parallel",
    "context_parallel": "exposed context parallel",
    "data_parallel_gather": "exposed parameter gather",
    "data_parallel_reduce": "exposed gradient reduction",
    "contention": "contention with communication",
    "bubble": "pipeline bubble",
    "pipeline_send": "exposed pipeline sends",
    "optimizer": "optimizer",
    "overhead": "step overhead",
    "straggler": "stragglers",
}
"""How people call the terms, in tables, pictures and sentences."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Terms(Breakdown):
    """Where the time of a step goes, seconds, for the slowest stage. The order is the story."""

    gemm: Num
    """Matrix products of the layers."""
    attention: Num
    """Attention kernels."""
    memory_bound: Num
    """Norms, activations, rotary, casts, gradient handling: bound by memory bandwidth."""
    head: Num
    """Output projection and loss."""
    recompute: Num
    """Forward work repeated in backward."""
    host: Num
    """Waiting for kernel launches."""
    tensor_parallel: Num
    """Exposed tensor-parallel communication."""
    context_parallel: Num
    """Exposed context-parallel communication."""
    data_parallel_gather: Num
    """Exposed parameter gathers (FSDP), the first of every micro step included."""
    data_parallel_reduce: Num
    """Exposed gradient reduction."""
    contention: Num
    """Compute slowed down by data-parallel communication that runs beside it."""
    bubble: Num
    """Idle while the pipeline fills and drains."""
    pipeline_send: Num
    """Exposed sends between pipeline stages."""
    optimizer: Num
    """Optimizer update of the local shard."""
    overhead: Num
    """Constant of the software per step."""
    straggler: Num
    """Waiting for the slowest of all domains."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Load:
    """Communication of one rank in a step, hidden or not, seconds by group."""

    tensor_parallel: Num
    context_parallel: Num
    data_parallel: Num
    pipeline: Num


def step_terms(case: Case, w: Work) -> tuple[Terms, Num]:
    """Price one step.

    Args:
        case: The step (or many).
        w: What its layers and its slowest stage do.

    Returns:
        The terms of its time, and their sum.
    """
    steps = case.micro_steps
    per_step, overlapped = steps * w.layers, steps * w.others
    layer, traffic = w.layer, w.traffic
    memory = layer.memory_forward + layer.memory_backward + layer.gradient
    gather = overlapped * (w.exposed_forward + w.exposed_backward * (1.0 - w.reduce_share))
    gather = gather + steps * (traffic.gather + w.root_gather)
    reduce = overlapped * w.exposed_backward * w.reduce_share + steps * w.tail
    busy = Terms(
        gemm=per_step * (layer.gemm_forward + layer.gemm_backward),
        attention=per_step * (layer.attention_forward + layer.attention_backward),
        memory_bound=per_step * memory,
        head=steps * np.where(w.on_last, w.head, 0.0),
        recompute=per_step * layer.recompute,
        host=per_step * w.wait,
        tensor_parallel=per_step * (w.tp_exposed_forward + w.tp_exposed_backward),
        context_parallel=per_step * (w.cp_forward + w.cp_backward),
        data_parallel_gather=gather,
        data_parallel_reduce=reduce + w.reduction.exposed,
        contention=overlapped * w.slowed + steps * w.tail_slowed,
        bubble=w.bubble,
        pipeline_send=w.send_exposed,
        optimizer=case.optimizer_bytes * w.owned / case.memory_rate,
        overhead=case.step_seconds,
        straggler=0.0,
    )
    seconds = busy.total
    straggler = seconds * (case.straggler * np.log2(np.maximum(case.domains, 1.0)))
    return Terms(**{**busy.parts(), "straggler": straggler}), seconds + straggler


def communication_load(case: Case, w: Work) -> Load:
    """All communication of one rank in a step."""
    per_step, overlapped = case.micro_steps * w.layers, case.micro_steps * w.others
    traffic = w.traffic
    ends = traffic.gather + traffic.reduce + w.root_gather + w.root_reduce
    beside = overlapped * (traffic.forward + traffic.backward)
    return Load(
        tensor_parallel=per_step * (w.tp_forward + w.tp_backward),
        context_parallel=per_step * w.cp_load,
        data_parallel=beside + case.micro_steps * ends + w.reduction.load,
        pipeline=w.send_load,
    )
