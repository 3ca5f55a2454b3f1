"""Steady state of a run: warm-up, stalls, drift, and the median with its error.

    found = steady(log)
    found.seconds, found.error, found.used, found.stalls

The median of the steps that are left without warm-up and stalls is what a prediction is about.
Stalls are steps that take far longer than the median, and gaps of the wall clock that no step
accounts for. They are named by what the log prints between the steps, and by their period.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from scalewise.errors import InputError
from scalewise.logs.run_log import CHECKPOINT, EVALUATION, RunLog, Steps
from scalewise.numeric import Array, Index, Mask

Cause = Literal["checkpoint", "evaluation", "unnamed"]

FEW = 10
"""Steps below which the last half counts, since warm-up cannot be told from the rest."""

SETTLED = 5
"""Steps in a row that end the warm-up."""

OUTLIER = 8.0
"""Robust deviations from the median above which a step is a stall."""

LEAST_OUTLIER = 0.25
"""Least excess of a stall over the median step, relative."""

LEAST_GAP = 1.5
"""Least gap of the wall clock, s: time stamps have whole seconds."""

BLOCKS = 10
"""Blocks of consecutive steps, whose medians tell noise from drift."""

LEAST_DRIFT = 0.02
"""Least change from the first to the last third that is named, relative."""

_MAD = 1.4826
_MEDIAN = 1.2533
"""Standard deviation over median deviation, and error of a median over that of a mean; normal."""


@dataclass(frozen=True, kw_only=True)
class Stall:
    """Time that is lost again and again between or in steps."""

    cause: Cause
    """What the log prints there; unnamed if nothing."""
    count: int
    """How often."""
    seconds: float
    """Median of each, beyond a usual step, s; NaN where a log has no seconds."""
    steps: float
    """Median of each, in usual steps."""
    period: int | None
    """Optimizer steps between two; None if they are not regular."""
    fraction: float
    """Of the time from the first steady step to the last."""
    line: int
    """Line of the first."""


@dataclass(frozen=True, kw_only=True)
class Drift:
    """A change of the step time over the run."""

    change: float
    """Median of the last third over that of the first, less 1; positive is slower."""
    hours: float
    """Time between the middles of the two; NaN where a log has no time."""


@dataclass(frozen=True, kw_only=True)
class Steady:
    """The steady state of a run."""

    seconds: float
    """Median time of a step; NaN where the log has rates alone."""
    device_tokens: float
    """Median tokens/s per GPU; NaN where the log does not say."""
    total_tokens: float
    """Likewise, of all GPUs."""
    samples: float
    """Median sequences/s of all GPUs."""
    error: float
    """Standard error of the median (log): noise, slow changes and rounding."""
    scatter: float
    """Robust standard deviation of a step (log)."""
    used: int
    """Lines that the median is of."""
    total: int
    """Lines of the log."""
    warm_up: int
    """Lines left out at each start, added up."""
    stalls: tuple[Stall, ...]
    """Largest fraction first."""
    drift: Drift | None
    """Change that is more than noise."""
    memory: float
    """Largest memory, bytes; NaN where the log does not say."""
    waited: float
    """Median fraction that waits for data; NaN where the log does not say."""
    few: bool
    """Whether there are too few steps to tell warm-up from the rest."""

    @property
    def stalled(self) -> float:
        """Fraction of the time that is lost to stalls."""
        return sum(each.fraction for each in self.stalls)


def steady(log: RunLog) -> Steady:
    """Return the steady state of a log.

    Raises:
        InputError: If no step of it has a time.
    """
    steps = log.steps
    times = steps.times()
    known = np.isfinite(times) & (times > 0.0)
    if not known.any():
        raise InputError(
            f"log {log.path}: no step has a time or a rate",
            hint="name a column with --from FILE:COLUMN",
        )
    warm = _warm_up(times, steps.start, known)
    rest = known & ~warm
    middle = float(np.median(times[rest]))
    spread = _MAD * float(np.median(np.abs(times[rest] / middle - 1.0)))
    # In a window of many steps, a stall is spread over them.
    shared = float(np.median(steps.every)) if log.window else 1.0
    least = max(LEAST_OUTLIER / shared, OUTLIER * spread, 0.02)
    slow = rest & (times > middle * (1.0 + least))
    if slow.sum() > 0.35 * rest.sum():
        slow = np.zeros_like(rest)
    used = rest & ~slow
    center = float(np.median(times[used]))
    seconds = _seconds_each(steps, used)
    drift = _drift(times[used], steps, np.flatnonzero(used), seconds)
    error, scatter = _error(times[used])
    return Steady(
        seconds=_median(steps.seconds, used),
        device_tokens=_median(steps.device_tokens, used),
        total_tokens=_median(steps.total_tokens, used),
        samples=_median(steps.samples, used),
        error=float(np.hypot(error, log.digits / np.sqrt(12.0))),
        scatter=scatter,
        used=int(used.sum()),
        total=len(steps),
        warm_up=int(warm.sum()),
        stalls=_stalls(
            steps,
            np.where(slow, times / center - 1.0, 0.0) * (steps.every if log.window else 1),
            used | slow,
            seconds,
        ),
        drift=drift,
        memory=float(np.nanmax(steps.memory)) if np.isfinite(steps.memory).any() else np.nan,
        waited=_median(steps.waited, used),
        few=int(known.sum()) < FEW,
    )


def _median(column: Array, used: Mask) -> float:
    values = column[used]
    values = values[np.isfinite(values)]
    return float(np.median(values)) if len(values) else float("nan")


def _warm_up(times: Array, start: Index, known: Mask) -> Mask:
    """Which steps come before the steady state of their start of the run."""
    warm = np.zeros(len(times), dtype=bool)
    places = np.flatnonzero(known)
    if len(places) < FEW:
        warm[places[: len(places) // 2]] = True
        return warm
    tail = times[places[len(places) // 2 :]]
    middle = float(np.median(tail))
    spread = _MAD * float(np.median(np.abs(tail / middle - 1.0)))
    limit = middle * (1.0 + max(0.05, 4.0 * spread))
    for each in np.unique(start[places]):
        here = places[start[places] == each]
        fast = times[here] <= limit
        # The first line has compilation, and the first use of every buffer.
        end = min(1, len(here))
        most = max(1, len(here) // 2)
        while end < most and fast[end : end + SETTLED].mean() < 0.8:
            end += 1
        while end < most and not fast[end]:
            end += 1
        warm[here[:end]] = True
    if warm[places].all():
        warm[places[len(places) // 2 :]] = False
    return warm


def _error(times: Array) -> tuple[float, float]:
    """Return the standard error of the median and the scatter of a step, both relative."""
    middle = float(np.median(times))
    scatter = _MAD * float(np.median(np.abs(times / middle - 1.0)))
    if len(times) < 3:
        return 0.25 if len(times) < 2 else max(scatter, 0.1), scatter
    white = _MEDIAN * scatter / np.sqrt(len(times))
    if len(times) < FEW:
        return max(white, 0.5 * scatter), scatter
    blocks = np.array([np.median(part) for part in np.array_split(times, BLOCKS)])
    slow = _MEDIAN * float(np.std(blocks / middle, ddof=1)) / np.sqrt(BLOCKS)
    return max(white, slow), scatter


def _seconds_each(steps: Steps, used: Mask) -> float:
    """Seconds of a usual step: its time, or that of the wall clock between lines; NaN without."""
    if np.isfinite(steps.seconds).any():
        return _median(steps.seconds, used)
    ahead = np.diff(steps.clock, prepend=np.nan) / steps.every
    ahead[np.diff(steps.start, prepend=0) != 0] = np.nan
    value = _median(ahead, used)
    # Whole seconds of short windows say nothing.
    if value > 0.0 and value * float(np.median(steps.every)) > 2.0:
        return value
    fine = ahead[np.isfinite(ahead)]
    return value if len(fine) and np.any(np.abs(fine - np.round(fine)) > 1e-6) else float("nan")


def _drift(times: Array, steps: Steps, places: Index, seconds: float) -> Drift | None:
    """Change from the first third to the last, if it is more than noise."""
    if len(times) < 3 * FEW:
        return None
    first, _, last = np.array_split(np.arange(len(times)), 3)
    before, after = float(np.median(times[first])), float(np.median(times[last]))
    noise = np.hypot(_error(times[first])[0], _error(times[last])[0])
    change = after / before - 1.0
    if abs(change) < max(LEAST_DRIFT, 3.0 * noise):
        return None
    ends = places[first[len(first) // 2]], places[last[len(last) // 2]]
    hours = float(steps.clock[ends[1]] - steps.clock[ends[0]]) / 3600.0
    if not hours > 0.0:
        hours = float(steps.step[ends[1]] - steps.step[ends[0]]) * seconds / 3600.0
    return Drift(change=change, hours=hours)


def _stalls(steps: Steps, lost: Array, counted: Mask, seconds: float) -> tuple[Stall, ...]:
    """Stalls by what the log prints there: slow steps, and gaps between steps.

    Args:
        steps: Steps of the log.
        lost: Time beyond a usual step that was lost in each line, in usual steps.
        counted: Lines after the warm-up.
        seconds: Time of a usual step; NaN without one.
    """
    gaps = _gaps(steps, counted)
    if np.isfinite(seconds):
        lost = lost + np.nan_to_num(gaps) / seconds
    usual = float(np.sum(steps.every[counted])) + float(lost.sum())
    found = []
    for cause, part in _by_cause(lost, steps.events).items():
        here = np.flatnonzero(part > 0.0)
        if not len(here):
            continue
        each = float(np.median(part[here]))
        fraction = float(part.sum()) / usual
        # A few slow steps are no stall.
        if cause == "unnamed" and fraction < 0.002:
            continue
        found.append(
            Stall(
                cause=cause,
                count=len(here),
                seconds=each * seconds,
                steps=each,
                period=_period(steps.step[here]),
                fraction=fraction,
                line=int(steps.line[here[0]]),
            )
        )
    return tuple(sorted(found, key=lambda stall: -stall.fraction))


def _by_cause(lost: Array, events: Index) -> dict[Cause, Array]:
    """Lost steps of each line by cause.

    Where a checkpoint follows an evaluation, the evaluation takes what it takes alone.
    """
    saves, judges = (events & CHECKPOINT) > 0, (events & EVALUATION) > 0
    alone = lost[judges & ~saves & (lost > 0.0)]
    judged = np.where(judges & ~saves, lost, 0.0)
    if len(alone):
        judged = np.where(judges & saves, np.minimum(lost, np.median(alone)), judged)
    return {
        "checkpoint": np.where(saves, lost - judged, 0.0),
        "evaluation": judged,
        "unnamed": np.where(saves | judges, 0.0, lost),
    }


def _gaps(steps: Steps, counted: Mask) -> Array:
    """Seconds between lines that no step accounts for; NaN where there is no clock."""
    if not np.isfinite(steps.seconds).any():
        return np.zeros(len(steps))
    passed = np.diff(steps.clock, prepend=np.nan)
    passed[np.diff(steps.start, prepend=0) != 0] = np.nan
    gap = passed - steps.seconds * steps.every
    usual = np.nanmedian(gap[counted]) if np.isfinite(gap[counted]).any() else 0.0
    beyond = gap - max(usual, 0.0)
    return np.where(counted & (beyond > np.maximum(LEAST_GAP, 0.02 * passed)), beyond, 0.0)


def _period(step: Index) -> int | None:
    """Optimizer steps from one stall to the next, if most of them agree."""
    if len(step) < 3:
        return None
    ahead = np.diff(step)
    usual = int(np.median(ahead))
    near = np.abs(ahead / max(usual, 1) - np.maximum(np.round(ahead / max(usual, 1)), 1)) < 0.1
    return usual if usual > 0 and near.mean() >= 0.75 else None
