"""Steps of minimal decoders, plain and under PyTorch's wrappers: the difference is host time.

    results = run_host(plan, device)                 # on both ranks, inside a process group
    results["rows"][0]["time_us"]

Each decoder is timed by two clocks. CPU time of the thread that runs the step stands still while a
collective blocks it, and other load hardly changes it. Elapsed time has the waits between
collectives too. Both ranks run the plain decoder at the same time, each by itself, because they
share cores and memory under the wrappers too.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable
from typing import Any

import torch

from scalewise.measure.data import Synthetic, batch
from scalewise.measure.host_plan import HostCase, HostPlan, cases_of
from scalewise.measure.parallel import build
from scalewise.measure.timing import sample
from scalewise.records.metrics import Spread
from scalewise.records.rows import timed_row


def run_host(plan: HostPlan, device: torch.device) -> dict[str, Any]:
    """Time everything that a plan says.

    Args:
        plan: What.
        device: This rank's.

    Returns:
        "rows": one dictionary per decoder.
    """
    rows = []
    for case in cases_of(plan):
        step = _step_of(case, device)
        often: dict[str, Any] = {
            "iters": plan.iters, "warmup": plan.warmup, "budget": plan.budget,
        }  # fmt: skip
        seconds = sample(step, device, **often)
        busy = sample(step, device, **often, slowest=False, clock=time.thread_time)
        columns = {
            "technique": case.technique, "wide": case.wide, "layers": case.job.model.layers,
        }  # fmt: skip
        rows.append(timed_row(columns, seconds) | {"cpu_us": Spread.of(busy).median * 1e6})
        gc.collect()
    return {"rows": rows}


def _step_of(case: HostCase, device: torch.device) -> Callable[[], object]:
    """A step of a decoder: forward, backward, optimizer."""
    job = case.job
    source = Synthetic(job.model.vocab, job.seed)
    inputs, targets = batch(source, step=0, sequences=range(1), length=job.seq_len)
    trainer = build(job, device)
    return lambda: trainer.step(inputs.to(device), targets.to(device))
