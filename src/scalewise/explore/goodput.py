"""Goodput of a run: an estimate of a step, failures and checkpoints, and what they leave of time.

    g = goodput(sw.estimate("llama-3.1-405b", on="dgx-h100", gpus=16384), load_reliability("usual"))
    g.fraction, g.low, g.high
    g.losses["rework"], g.interval, g.wall_seconds(3600.0)

State to save comes from the optimizer and the storage of parameters of the estimate; formulas are
in `physics.goodput`. A step is what it was: goodput is shown apart from it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

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
    interval: float
    """Training between checkpoints, seconds; infinite without failures."""
    mtbf: float
    """Mean time between failures of the job, seconds; infinite without failures."""
    asynchronous: bool
    """Whether checkpoints are written while the job trains."""
    checkpoint: float
    """Time that training waits for one checkpoint, seconds."""
    write: float
    """Time until one checkpoint is stored, seconds."""
    restart: float
    """Mean time from a failure until the job trains again, seconds."""
    state_bytes: float
    """Bytes of one checkpoint."""
    nodes: float
    """Nodes of the job."""
    spares: int
    """Nodes in standby."""
    unavailable: float
    """Chance that a failure finds no spare, 0 to 1."""
    cost_factor: float
    """GPUs paid for over GPUs of the job: 1 without spares."""
    sources: dict[str, str]
    """Source of the numbers of reliability, by field."""

    def wall_seconds(self, step_seconds: float) -> float:
        """Return the wall time of steps that take so long, seconds."""
        return step_seconds / self.fraction

    @property
    def wall_range(self) -> tuple[float, float]:
        """Wall time over time of the steps: low, high."""
        return 1.0 / self.high, 1.0 / self.low


class Recovery(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one estimate that goodput depends on, seconds, and where they come from."""

    state_bytes: float
    """Bytes of one checkpoint."""
    rank_bytes: float
    """Bytes of it on the fullest rank's device."""
    write: float
    """Write of one checkpoint to storage."""
    snapshot: float
    """Copy of one checkpoint to host memory."""
    detect: float
    """Until a failure is noticed."""
    requeue: float
    """Start through the scheduler."""
    reload: float
    """Read of a checkpoint from storage."""
    warm_up: float
    """Initialization and first steps."""


def state_bytes(e: Estimate) -> float:
    """Return the bytes of a checkpoint: trained parameters with their optimizer state.

        P (weight + master + moments) + P_edge (other moments - moments)

    14 bytes per parameter for AdamW in mixed precision. Frozen parameters are not saved again.
    """
    case = e.origin.case
    update = case.update
    per_parameter = (
        scalar(update.weight_bytes) + scalar(update.master_bytes) + scalar(update.host_moments)
    )
    apart = scalar(update.other_bytes) - scalar(update.moment_bytes)
    edge = 0.0 if e.workload.tuned.frozen else scalar(case.shape.edge_params)
    return e.trained_parameters * per_parameter + apart * edge


def recovery(e: Estimate, reliability: Reliability) -> Recovery:
    """Return the times of checkpoints and restarts of an estimate, seconds."""
    r, gpus = reliability, e.cluster.accelerators
    state = state_bytes(e)
    held = min(e.memory["parameters"] + e.memory["optimizer"], state)
    write = r.checkpoint_base + state / min(r.write_per_gpu * gpus, r.storage)
    return Recovery(
        state_bytes=state,
        rank_bytes=held,
        write=write if r.checkpoint is None else r.checkpoint,
        snapshot=r.snapshot_base + held / host_of(e.cluster).link,
        detect=r.detect,
        requeue=float(requeue_seconds(float(gpus), r.requeue, r.requeue_gpus, r.requeue_exponent)),
        reload=state / min(r.read_per_gpu * gpus, r.storage),
        warm_up=r.warm_up,
    )


def goodput(e: Estimate, reliability: Reliability) -> Goodput:
    """Return the goodput of a run of the step.

    The interval between checkpoints is the best at the typical failure rate, and is kept at the
    low and high ones. An asynchronous checkpoint delays training by the copy to host memory; the
    next one starts when the write is done. Checkpoints block where that is faster.

    Args:
        e: The step.
        reliability: Failures, restarts, checkpoints.
    """
    times = recovery(e, reliability)
    found = [_with(e, reliability, times, blocking=True)]
    if reliability.asynchronous:
        found.append(_with(e, reliability, times, blocking=False))
    return max(found, key=lambda each: each.fraction)


def _with(e: Estimate, r: Reliability, times: Recovery, *, blocking: bool) -> Goodput:
    """Goodput with checkpoints of one kind."""
    gpus = e.cluster.accelerators
    node = r.node_gpus or host_of(e.cluster).accelerators
    nodes, rates = gpus / node, r.rates(gpus)
    wait = times.write if blocking else min(times.snapshot, times.write)
    lag = 0.0 if blocking else times.write
    typical = float(mean_time_between_failures(nodes, rates[1]))
    interval = r.interval
    if interval is None:
        interval = max(float(best_interval(wait, typical)), lag)
    low, middle, high = (_losses(r, times, nodes, rate, (interval, wait, lag)) for rate in rates)
    return Goodput(
        fraction=middle[0],
        low=high[0],
        high=low[0],
        losses=middle[1],
        interval=interval,
        mtbf=typical,
        asynchronous=not blocking,
        checkpoint=wait,
        write=times.write,
        restart=_restart(r, times, nodes, rates[1]),
        state_bytes=times.state_bytes,
        nodes=nodes,
        spares=r.spares,
        unavailable=_unavailable(r, nodes, rates[1]),
        cost_factor=1.0 + r.spares / nodes,
        sources=r.sources,
    )


def _unavailable(r: Reliability, nodes: float, rate: float) -> float:
    """Chance that a failure finds no spare."""
    return float(unavailable(nodes, r.spares, rate, r.repair))


def _restart(r: Reliability, times: Recovery, nodes: float, rate: float) -> float:
    """Mean time from a failure until the job trains again, seconds."""
    if r.restart is not None:
        return r.restart
    without = _unavailable(r, nodes, rate)
    start = times.requeue * (without + (1.0 - without) * r.standby)
    return times.detect + start + times.reload + times.warm_up


def _losses(
    r: Reliability,
    times: Recovery,
    nodes: float,
    rate: float,
    checkpoints: tuple[float, float, float],
) -> tuple[float, dict[str, float]]:
    """Goodput, and fractions of wall time by cause.

    Args:
        r: Failures, restarts, checkpoints.
        times: Of the estimate.
        nodes: Of the job.
        rate: Failures per node and second.
        checkpoints: Interval, wait and lag.
    """
    interval, wait, lag = checkpoints
    if math.isinf(interval):
        return 1.0 - r.stragglers, {**dict.fromkeys(CAUSES, 0.0), "stragglers": r.stragglers}
    mtbf = float(mean_time_between_failures(nodes, rate))
    restart = _restart(r, times, nodes, rate)
    one = segment(interval, wait, restart, mtbf, lag=lag)
    # A planned stop needs no detection, and the job saves before it.
    stop = restart if r.restart is not None else restart - times.detect
    planned = r.planned * (stop + times.write) * float(one.wall) / mtbf
    wall = float(one.wall) + planned
    seconds = {
        "checkpoint": float(one.checkpoint),
        "rework": float(one.rework),
        "restart": float(one.restart),
        "planned stops": planned,
        "stragglers": r.stragglers * float(one.useful),
    }
    useful = (1.0 - r.stragglers) * float(one.useful)
    return useful / wall, {cause: seconds[cause] / wall for cause in CAUSES}
