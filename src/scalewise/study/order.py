"""Order of the launches of a study, most informative first, and the time they take.

    launch = next_launch(waiting, rates)          # ends of curves, then crossovers, then middles
    clock.seconds(point)                          # predicted duration of a launch, or None

One repeat of every point comes before the second repeat of any. A budget that ends early then
leaves curves with fewer points rather than a part of the study without any.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise

from scalewise.measure.machine import cores
from scalewise.study.files import Claim, Study, Where
from scalewise.study.jobs import MeasuredPoint
from scalewise.study.measures import Value
from scalewise.study.rows import Row, select

NUMERIC = ("model", "seq_len", "accelerators")
"""Axes with ends and middles; models by their parameters."""

CROSSING = 1
"""Rank of sizes between which two measured curves cross: after ends (0), before middles (2 on)."""


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One repeat of a point."""

    point: MeasuredPoint
    """The point."""
    repeat: int
    """Which repeat, from 1."""
    rank: int
    """0: an end of a curve, or compared by a claim; then by halving, the coarse sizes first."""
    place: int
    """Place in the study, for equal ranks."""


def launches_of(
    study: Study, points: Sequence[MeasuredPoint], launched: Iterable[MeasuredPoint], repeats: int
) -> list[Launch]:
    """Return all repeats of all launches, in their order.

    Args:
        study: The study.
        points: All points, whose lowest rank counts for a shared launch.
        launched: One point per launch, see `jobs.distinct`.
        repeats: Repeats of each.
    """
    ranks: dict[str, int] = {}
    claimed = _claimed(study, points)
    for experiment in study.experiments:
        mine = [p for p in points if p.experiment == experiment.id and p.reason is None]
        sizes = {p.axes["model"]: p.job.model.parameters for p in mine if p.job is not None}
        depths = {
            name: _depths([p.axes[name] for p in mine if name in p.axes], sizes) for name in NUMERIC
        }
        for point in mine:
            deep = max((depths[n][point.axes[n]] for n in NUMERIC if n in point.axes), default=0)
            # Middles leave the rank of crossings free.
            rank = 0 if deep == 0 or id(point) in claimed else CROSSING + deep
            ranks[point.key] = min(rank, ranks.get(point.key, rank))
    found = [
        Launch(point=point, repeat=repeat, rank=ranks[point.key], place=place)
        for repeat in range(1, repeats + 1)
        for place, point in enumerate(launched)
    ]
    return sorted(found, key=_order)


def _order(launch: Launch) -> tuple[int, int, int]:
    return launch.repeat, launch.rank, launch.place


def next_launch(
    waiting: Sequence[Launch], points: Sequence[MeasuredPoint], rates: Mapping[str, float]
) -> Launch:
    """Return the launch that tells most, given the rates of points so far.

    Args:
        waiting: At least one.
        points: All points of the study.
        rates: Tokens/s by launch key, measured or predicted.
    """
    crossing = crossings(points, rates)

    def order(launch: Launch) -> tuple[int, int, int]:
        near = launch.point.key in crossing and launch.rank > CROSSING
        return launch.repeat, CROSSING if near else launch.rank, launch.place

    return min(waiting, key=order)


def crossings(points: Sequence[MeasuredPoint], rates: Mapping[str, float]) -> set[str]:
    """Return the launches between two sizes at which two strategies change places.

    Args:
        points: All points.
        rates: Known tokens/s by launch key.
    """
    curves: dict[tuple[object, ...], dict[str, dict[int, MeasuredPoint]]] = {}
    for point in points:
        if point.job is not None:
            same = tuple(
                (k, v) for k, v in point.axes.items()
                if k not in ("strategy", "tp", "pp", "cp", "accelerators", "nodes")
            )  # fmt: skip
            name = str(point.axes["strategy"])
            curves.setdefault((point.experiment, *same), {}).setdefault(name, {})[point.ranks] = (
                point
            )
    found: set[str] = set()
    for group in curves.values():
        for one, other in combinations(group.values(), 2):
            both = sorted(set(one) & set(other))
            known = [n for n in both if one[n].key in rates and other[n].key in rates]
            for low, high in pairwise(known):
                leads = [rates[one[n].key] - rates[other[n].key] for n in (low, high)]
                if leads[0] * leads[1] < 0.0:
                    found |= {c[n].key for n in both if low < n < high for c in (one, other)}
    return found


def _depths(values: Iterable[Value], sizes: Mapping[Value, int]) -> dict[Value, int]:
    """Return the level of halving of each value: 0 for both ends, 1 for the middle, and so on.

    Args:
        values: Numbers, or names of models.
        sizes: Parameters of models by name.

    >>> _depths([1, 2, 4, 8, 16], {})
    {1: 0, 2: 2, 4: 1, 8: 2, 16: 0}
    """
    ordered = sorted(dict.fromkeys(values), key=lambda value: float(sizes.get(value, value)))
    depths: dict[Value, int] = {}
    if not ordered:
        return depths
    depths[ordered[0]] = depths[ordered[-1]] = 0
    spans, level = [(0, len(ordered) - 1)], 1
    while spans:
        deeper = []
        for low, high in spans:
            middle = (low + high) // 2
            if low < middle < high:
                depths[ordered[middle]] = level
                deeper += [(low, middle), (middle, high)]
        spans, level = deeper, level + 1
    return {value: depths[value] for value in ordered}


def _claimed(study: Study, points: Sequence[MeasuredPoint]) -> set[int]:
    """Return the points that claims compare by name."""
    found: set[int] = set()
    for experiment in study.experiments:
        mine = [p for p in points if p.experiment == experiment.id]
        rows = [Row(experiment=p.experiment, axes=p.axes) for p in mine]
        by_row = {id(row): point for row, point in zip(rows, mine, strict=True)}
        for claim in experiment.claims:
            for where in _selections(claim):
                found |= {id(by_row[id(row)]) for row in select(rows, where)}
    return found


def _selections(claim: Claim) -> list[Where]:
    if claim.measure in ("crossover", "peak", "order"):
        return []
    sides = [claim.second] + ([claim.first] if claim.measure != "value" else [])
    # A launch of collectives has all messages.
    return [
        {k: v for k, v in {**claim.where, **side}.items() if k != "message_bytes"}
        for side in sides
    ]  # fmt: skip


@dataclass(kw_only=True)
class Clock:
    """Durations of launches: measured ones, and what they say about the others."""

    measured: dict[str, list[float]] = field(default_factory=dict)
    """Seconds of finished launches by key."""
    steps: dict[str, float] = field(default_factory=dict)
    """Seconds of one step by key."""
    predicted: dict[str, float] = field(default_factory=dict)
    """Predicted seconds of one step by key, where the machine has a calibration."""
    points: dict[str, MeasuredPoint] = field(default_factory=dict)
    """Points of the finished launches by key."""
    errors: list[float] = field(default_factory=list)
    """Measured over expected duration of each finished launch."""

    def add(self, point: MeasuredPoint, seconds: float, step: float | None) -> None:
        """Learn from a finished launch.

        Args:
            point: Its point.
            seconds: Its duration with the start of the processes.
            step: Median step, seconds; None for collectives.
        """
        expected = self.seconds(point)
        if expected:
            self.errors.append(seconds / expected)
        self.measured.setdefault(point.key, []).append(seconds)
        self.points[point.key] = point
        if step is not None:
            self.steps[point.key] = step

    def seconds(self, point: MeasuredPoint) -> float | None:
        """Return the expected duration of a launch, seconds; None before the first launch.

        A repeat takes as long as the repeats before it. Other launches take the start per rank of
        the finished ones, and steps as predicted, or by FLOPs per used core, times what measured
        steps took over that.
        """
        if point.key in self.measured:
            return statistics.median(self.measured[point.key])
        if not self.measured:
            return None
        start = statistics.median(self._start(key) for key in self.measured) * point.ranks
        if point.job is None:
            return start
        factors = [step / self._work(self.points[key]) for key, step in self.steps.items()]
        if not factors:
            return start
        steps = point.job.steps + point.job.trace_steps
        return start + steps * self._work(point) * statistics.median(factors)

    def left(self, points: Iterable[MeasuredPoint]) -> tuple[float, float] | None:
        """Return the expected remaining time, seconds, as a range; None if it is unknown.

        The range is the expected sum times the extremes of measured over expected so far.
        """
        expected = [self.seconds(point) for point in points]
        if any(each is None for each in expected):
            return None
        total = sum(each for each in expected if each is not None)
        return total * min([1.0, *self.errors[-8:]]), total * max([1.0, *self.errors[-8:]])

    def _start(self, key: str) -> float:
        """Return the seconds per rank of a launch besides its steps."""
        point, seconds = self.points[key], statistics.median(self.measured[key])
        if point.job is not None and key in self.steps:
            seconds -= (point.job.steps + point.job.trace_steps) * self.steps[key]
        return max(seconds, 0.0) / point.ranks

    def _work(self, point: MeasuredPoint) -> float:
        """Return the predicted seconds of a step; without a prediction, FLOPs per used core."""
        if point.key in self.predicted:
            return self.predicted[point.key]
        assert point.job is not None
        flops = point.job.model.training_flops(point.job.seq_len, "causal")
        return flops * point.job.tokens_per_step / min(point.ranks, cores())
