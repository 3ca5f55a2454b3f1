"""Several runs on one cluster: when each starts and ends, and what another size would change.

    placed = schedule([Job(name="a", accelerators=256, days=10.0), ...], 512)
    placed[0].start, placed[0].end

Runs are placed in order, each at the first time from which enough GPUs are free until it ends: a
small run may fill a gap, and never delays one before it (conservative backfilling: Mu'alem and
Feitelson, IEEE TPDS 12(6), 2001).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Any, NamedTuple

from scalewise.errors import InputError
from scalewise.explore.plan import Amount, Row
from scalewise.results import Result


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run to place."""

    name: str
    accelerators: int
    """Number of GPUs."""
    days: float
    """Wall time, days."""
    earliest: float = 0.0
    """Earliest start, days."""
    after: tuple[str, ...] = ()
    """Runs that have to end before."""


class Placed(NamedTuple):
    """A run in the calendar."""

    job: Job
    start: float
    """Days from the beginning."""
    end: float
    """Days from the beginning."""


def schedule(jobs: Sequence[Job], accelerators: int) -> list[Placed]:
    """Place runs in order, each as early as it can run without delaying one before it.

    Args:
        jobs: In order of priority; a run that another one waits for stands before it.
        accelerators: GPUs of the cluster.

    Raises:
        InputError: If a run is larger than the cluster, or waits for one that is not before it.

    >>> a, b = Job(name="a", accelerators=6, days=4.0), Job(name="b", accelerators=4, days=2.0)
    >>> c = Job(name="c", accelerators=2, days=3.0)
    >>> [(each.job.name, each.start, each.end) for each in schedule([a, b, c], 8)]
    [('a', 0.0, 4.0), ('b', 4.0, 6.0), ('c', 0.0, 3.0)]
    """
    placed: list[Placed] = []
    ends: dict[str, float] = {}
    for job in jobs:
        if job.accelerators > accelerators:
            raise InputError(
                f"run {job.name}: {job.accelerators:,} GPUs on a cluster of {accelerators:,}",
                hint=f"--gpus {job.accelerators}, or a smaller run",
            )
        for name in job.after:
            if name not in ends:
                raise InputError(
                    f"run {job.name}: after = {name} is not the name of a run before it",
                    hint="order runs so that each stands after those it waits for",
                )
        start = max([job.earliest, *(ends[name] for name in job.after)])
        # The earliest start is there, or where some run ends.
        for time in sorted({start, *(each.end for each in placed if each.end > start)}):
            if _fits(job, time, placed, accelerators):
                start = time
                break
        placed.append(Placed(job, start, start + job.days))
        ends[job.name] = start + job.days
    return placed


def _fits(job: Job, start: float, placed: Sequence[Placed], accelerators: int) -> bool:
    """Whether enough GPUs are free in all of a run's time."""
    end = start + job.days
    near = [each for each in placed if each.start < end and each.end > start]
    # The load is largest at its start or where another run starts.
    times = [start, *(each.start for each in near if each.start > start)]
    return all(
        job.accelerators
        + sum(each.job.accelerators for each in near if each.start <= time < each.end)
        <= accelerators
        for time in times
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a queue, in the calendar of one cluster size."""

    name: str
    row: Row
    """The run as a whole."""
    start: Amount
    """Days from the beginning."""
    end: Amount
    """Days from the beginning."""


@dataclass(frozen=True, kw_only=True)
class Calendar:
    """All runs of a queue on one size of the cluster."""

    accelerators: int
    """GPUs of the cluster."""
    runs: tuple[Run, ...]
    missing: str | None = None
    """Why the queue cannot run at this size, or None."""

    @property
    def days(self) -> Amount:
        """Days until the last run ends."""
        low, value, high = (max(run.end[place] for run in self.runs) for place in (1, 0, 2))
        return Amount(value, low, high)

    @property
    def usd(self) -> Amount | None:
        """Cost of the GPU-hours of the runs, dollars."""
        return _sum([run.row.usd for run in self.runs])

    @property
    def held_usd(self) -> float | None:
        """Cost of the whole cluster until the last run ends, dollars."""
        price = next((run.row.price for run in self.runs if run.row.price is not None), None)
        if price is None:
            return None
        return price.usd_per_hour * self.accelerators * 24.0 * self.days.value

    @property
    def mwh(self) -> Amount | None:
        """Energy of the runs, MWh."""
        return _sum([run.row.mwh for run in self.runs])

    @property
    def tonnes(self) -> Amount | None:
        """Emissions of the runs, tonnes of CO2."""
        return _sum([run.row.tonnes for run in self.runs])

    @property
    def utilization(self) -> float:
        """GPU-days of the runs over those of the cluster."""
        used = sum((run.end.value - run.start.value) * run.row.accelerators for run in self.runs)
        return used / (self.accelerators * self.days.value)

    def to_dict(self) -> dict[str, Any]:
        """Totals as plain types."""
        if self.missing is not None:
            return {"accelerators": self.accelerators, "missing": self.missing}
        plain: dict[str, Any] = {"accelerators": self.accelerators, "missing": None}
        for name in ("days", "usd", "mwh", "tonnes"):
            amount: Amount | None = getattr(self, name)
            for key, place in (("", 0), ("_low", 1), ("_high", 2)):
                plain[name + key] = None if amount is None else amount[place]
        return plain | {"held_usd": self.held_usd, "utilization": self.utilization}


def _sum(amounts: Sequence[Amount | None]) -> Amount | None:
    """Return the sum of amounts whose errors are shared; None if one is unknown.

    Runs of one queue share team, software and cluster, so that their errors add up.
    """
    known = [each for each in amounts if each is not None]
    if len(known) < len(amounts) or not known:
        return None
    return Amount(*(sum(each[place] for each in known) for place in range(3)))


@dataclass(frozen=True, kw_only=True, repr=False)
class Queue(Result):
    """A queue of runs on one cluster, and on smaller and larger ones."""

    cluster: str
    calendar: Calendar
    """At the size that was asked for."""
    others: tuple[Calendar, ...]
    """At other sizes."""
    start: date
    """First day."""
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an end that no calendar has."""
        last = max((run.end.high for run in self.calendar.runs), default=0.0)
        try:
            self.day(last)
        except OverflowError:
            raise InputError(
                f"the queue ends {last:,.0f} days after {self.start}, beyond the year 9999",
                hint="plan more GPUs or fewer tokens",
            ) from None

    def day(self, days: float) -> date:
        """Return the date after some days."""
        return self.start + timedelta(days=days)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types."""
        runs = [
            {
                "name": run.name,
                "start": self.day(run.start.value).isoformat(),
                "end": self.day(run.end.value).isoformat(),
                "end_low": self.day(run.end.low).isoformat(),
                "end_high": self.day(run.end.high).isoformat(),
                **run.row.to_dict(),
            }
            for run in self.calendar.runs
        ]
        return {
            "cluster": self.cluster,
            "start": self.start.isoformat(),
            "runs": runs,
            "totals": self.calendar.to_dict(),
            "others": [each.to_dict() for each in self.others],
            "notes": list(self.notes),
        }


def calendar(rows: Sequence[tuple[Job, Row]], accelerators: int) -> Calendar:
    """Return the calendar of runs, with intervals from three schedules.

    Args:
        rows: Runs in order; the days of a job are those of its row.
        accelerators: GPUs of the cluster.
    """
    for job, row in rows:
        if row.days is None:
            why = f"run {job.name}: {row.infeasible or 'cannot run'}"
            return Calendar(accelerators=accelerators, runs=(), missing=why)
    try:
        placed = [
            schedule(
                [replace(job, days=row.days[place]) for job, row in rows if row.days is not None],
                accelerators,
            )
            for place in range(3)
        ]
    except InputError as error:
        return Calendar(accelerators=accelerators, runs=(), missing=str(error))

    def amount(place: int, field: str) -> Amount:
        # Where an early end lets another run fill a gap, low and high may cross.
        value, low, high = (getattr(each[place], field) for each in placed)
        return Amount(value, min(value, low, high), max(value, low, high))

    runs = [
        Run(name=job.name, row=row, start=amount(place, "start"), end=amount(place, "end"))
        for place, (job, row) in enumerate(rows)
    ]
    return Calendar(accelerators=accelerators, runs=tuple(runs))
