"""Timing of one operation on all ranks at once, within a time budget.

    samples = sample(lambda: dist.all_reduce(x), device, iters=20, warmup=3, budget=1.0)

Short operations are repeated within a sample, because clocks and barriers cost microseconds. Long
ones get fewer samples, because they vary little. All ranks agree on the counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
import torch.distributed as dist

SHORTEST_SAMPLE = 1e-3
"""Seconds that a sample should last at least."""

FEWEST = 3
"""Samples that even the longest operation gets."""

MAX_REPEATS = 1000

Clock = Callable[[], float]


def sample(
    operation: Callable[[], object],
    device: torch.device,
    *,
    iters: int,
    warmup: int,
    budget: float,
    slowest: bool = True,
    clock: Clock = time.perf_counter,
) -> list[float]:
    """Time an operation that every rank calls.

    Args:
        operation: Returns when its work is done (CPU) or queued (CUDA).
        device: This rank's.
        iters: Samples wanted.
        warmup: Calls before the first sample.
        budget: Seconds that all samples together may take, roughly.
        slowest: A sample is the slowest rank's time (collectives end together); otherwise the
            samples of all ranks are pooled.
        clock: What counts as time: `time.thread_time` for CPU time of this thread.

    Returns:
        Seconds of one call, sample by sample; the same on every rank.
    """
    for _ in range(max(warmup, 1)):
        first = _timed(operation, device, 1, time.perf_counter)
    once = _greatest(max(first, 1e-9), device)
    repeats = int(min(max(SHORTEST_SAMPLE / once, 1.0), MAX_REPEATS))
    count = int(min(iters, max(budget / (once * repeats), FEWEST)))
    own = []
    for _ in range(count):
        dist.barrier()
        own.append(_timed(operation, device, repeats, clock) / repeats)
    values = torch.tensor(own, dtype=torch.float64, device=device)
    if slowest:
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        found: list[float] = values.tolist()
        return found
    gathered = [torch.empty_like(values) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, values)
    return [each for one in gathered for each in one.tolist()]


def _timed(
    operation: Callable[[], object], device: torch.device, repeats: int, clock: Clock
) -> float:
    synchronise(device)
    start = clock()
    for _ in range(repeats):
        operation()
    synchronise(device)
    return clock() - start


def synchronise(device: torch.device) -> None:
    """Wait until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _greatest(value: float, device: torch.device) -> float:
    tensor = torch.tensor([value], dtype=torch.float64, device=device)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor[0])
