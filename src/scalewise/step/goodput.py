"""Goodput of a run: an estimate of a step, failures and checkpoints, and what they leave of time.

    g = goodput(sw.estimate("llama-3.1-405b", on="dgx-h100", gpus=16384), load_reliability("usual"))
    g.fraction, g.low, g.high
    g.losses["rework"], g.interval, g.mtbf

State to save comes from the optimizer and the stored parameters of the estimate; formulas are in
`physics.goodput`. A step stays what it was: goodput is shown apart from it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from scalewise.host import host_of
from scalewise.numeric import scalar
from scalewise.physics.goodput import (
    best_interval,
    mean_time_between_failures,
    requeue_seconds,
    segment,
    unavailable,
)
from scalewise.reliability import Reliability

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

CAUSES = ("checkpoint", "rework", "restart", "planned stops", "stragglers")
"""Causes of lost time, in the order of tables."""


class Recovery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Checkpoint and restart of one estimate. SI units."""

    state_bytes: float
    """Bytes of one checkpoint."""
    rank_bytes: float
    """Bytes of it on the device of the worst rank."""
    write: float
    """Time until one checkpoint is stored, seconds."""
    snapshot: float
    """Copy of one checkpoint to host memory, seconds."""
    detect: float
    """Until a failure is noticed, seconds."""
    start: float
    """Start on a spare node or through the scheduler, mean, seconds."""
    reload: float
    """Read of a checkpoint from storage, seconds."""
    warm_up: float
    """Initialization and first steps, seconds."""
    restart: float
    """From a failure until the job trains again, mean, seconds: their sum, or what was stated."""
    planned: float
    """A planned stop: a checkpoint, and a restart without detection, seconds."""
    unavailable: float
    """Chance that a failure finds no spare, 0 to 1."""


class Goodput(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Fraction of wall time that trains. SI; `low` to `high` is the range of failure rates."""

    fraction: float
    """Time of the steps over wall time, 0 to 1."""
    low: float
    """At the high failure rate."""
    high: float
    """At the low failure rate."""
    losses: dict[str, float]
    """Fraction of wall time by cause; they add up to 1 - fraction."""
    interval: float | None
    """Training between checkpoints, seconds; None without failures."""
    mtbf: float | None
    """Mean time between failures of the job, seconds; None without failures."""
    asynchronous: bool
    """Whether checkpoints are written while the job trains."""
    checkpoint: float
    """Time that training waits for one checkpoint, seconds."""
    nodes: float
    """Nodes of the job."""
    cost_factor: float
    """GPUs paid for over GPUs of the job: 1 without spares."""
    recovery: Recovery
    """Checkpoint and restart."""
    reliability: Reliability
    """Failures, restarts and checkpoints as published or stated, with sources."""


class Checkpoints(NamedTuple):
    """Checkpoints of a run, seconds."""

    interval: float
    """Training between them; infinite for none."""
    wait: float
    """Time that training waits for one."""
    lag: float
    """Time from then until it is stored."""


def state_bytes(e: Estimate) -> float:
    """Return the bytes of a checkpoint: trained parameters with their optimizer state.

        P (weight + master + moments) + P_edge (other moments - moments)

    14 bytes per parameter for AdamW in mixed precision. Frozen parameters are not saved again.
    """
    case = e.many.case
    update = case.update
    each = scalar(update.weight_bytes) + scalar(update.master_bytes) + scalar(update.host_moments)
    apart = scalar(update.other_bytes) - scalar(update.moment_bytes)
    edge = 0.0 if e.workload.tuned.frozen else scalar(case.shape.edge_params)
    return e.trained_parameters * each + apart * edge


def nodes_of(e: Estimate, reliability: Reliability) -> float:
    """Return the nodes of the job, of the size that failure rates refer to."""
    node = reliability.node_gpus or host_of(e.cluster).accelerators
    return e.cluster.accelerators / node


def recovery(e: Estimate, reliability: Reliability, rate: float) -> Recovery:
    """Return the times of checkpoints and restarts.

    Args:
        e: The step.
        reliability: Failures, restarts, checkpoints.
        rate: Failures per node and second, which spares run out by.
    """
    r, gpus = reliability, e.cluster.accelerators
    state = state_bytes(e)
    held = min(e.memory["parameters"] + e.memory["optimizer"], state)
    write = r.checkpoint
    if write is None:
        write = r.checkpoint_base + state / _rate(r.write_per_gpu, r.storage, gpus)
    without = float(unavailable(nodes_of(e, r), r.spares, rate, r.repair))
    requeue = float(requeue_seconds(gpus, r.requeue, r.requeue_gpus, r.requeue_exponent))
    start = requeue * (without + (1.0 - without) * r.standby)
    reload = state / _rate(r.read_per_gpu, r.storage, gpus)
    after = start + reload + r.warm_up
    if r.restart is not None:
        after = r.restart
    return Recovery(
        state_bytes=state,
        rank_bytes=held,
        write=write,
        snapshot=r.snapshot_base + held / host_of(e.cluster).link,
        detect=r.detect,
        start=start,
        reload=reload,
        warm_up=r.warm_up,
        restart=after + (r.detect if r.restart is None else 0.0),
        planned=write + after,
        unavailable=without,
    )


def _rate(per_gpu: float | None, limit: float | None, gpus: int) -> float:
    """Rate of storage for a job, bytes/s; infinite where nothing limits it."""
    rate = math.inf if per_gpu is None else per_gpu * gpus
    return rate if limit is None else min(rate, limit)


def goodput(e: Estimate, reliability: Reliability) -> Goodput:
    """Return the goodput of a run of the step.

    The interval between checkpoints is the best at the typical failure rate, and is kept at the
    low and high ones. An asynchronous checkpoint delays training by the copy to host memory; the
    next one starts when the write is done. Checkpoints block where that is faster.

    Args:
        e: The step.
        reliability: Failures, restarts, checkpoints.
    """
    found = _goodput(e, reliability, blocking=True)
    if reliability.asynchronous:
        found = max(found, _goodput(e, reliability, blocking=False), key=lambda g: g.fraction)
    return found


def _goodput(e: Estimate, r: Reliability, *, blocking: bool) -> Goodput:
    """Goodput with checkpoints of one kind."""
    rates, nodes = r.rates(e.cluster.accelerators), nodes_of(e, r)
    low, middle, high = (recovery(e, r, rate) for rate in rates)
    mtbf = float(mean_time_between_failures(nodes, rates[1]))
    wait = middle.write if blocking else min(middle.snapshot, middle.write)
    lag = 0.0 if blocking else middle.write
    interval = max(r.interval or float(best_interval(wait, mtbf)), lag)
    every = Checkpoints(interval, wait, lag)
    few, usual, many = (
        _shares(r, times, float(mean_time_between_failures(nodes, rate)), every)
        for times, rate in zip((low, middle, high), rates, strict=True)
    )
    return Goodput(
        fraction=usual.pop("useful"),
        low=many["useful"],
        high=few["useful"],
        losses=usual,
        interval=interval if math.isfinite(interval) else None,
        mtbf=mtbf if math.isfinite(mtbf) else None,
        asynchronous=not blocking,
        checkpoint=wait,
        nodes=nodes,
        cost_factor=1.0 + r.spares / nodes,
        recovery=middle,
        reliability=r,
    )


def _shares(r: Reliability, times: Recovery, mtbf: float, every: Checkpoints) -> dict[str, float]:
    """Fractions of wall time: of useful training, then by cause.

    Args:
        r: Failures, restarts, checkpoints.
        times: Checkpoint and restart at this failure rate.
        mtbf: Mean time between failures, seconds.
        every: Checkpoints.
    """
    useful, lost = 1.0 - r.stragglers, dict.fromkeys(CAUSES, 0.0)
    if math.isinf(every.interval):
        return {"useful": useful, **lost, "stragglers": r.stragglers}
    one = segment(every.interval, every.wait, times.restart, mtbf, lag=every.lag)
    planned = r.planned * times.planned * float(one.wall) / mtbf
    seconds = {
        "useful": useful * every.interval,
        "checkpoint": every.wait,
        "rework": float(one.rework),
        "restart": float(one.restart),
        "planned stops": planned,
        "stragglers": r.stragglers * every.interval,
    }
    wall = float(one.wall) + planned
    return {name: part / wall for name, part in seconds.items()}
