"""Curves and maps over any quantity: points along one or two axes, gains, knees, crossovers.

    sweep = assemble(axes, series, by="time")            # explore.assemble
    sweep.series[0].cells[3].elasticity, sweep.knees(), sweep.crossovers

An axis is a quantity of the question with a list of values: network rate, sequence length, batch,
a degree of the strategy, any field of the hardware. Only data and arithmetic: `ask.over` reads the
words and computes the points, `report.over_table` prints them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scalewise.explore.causes import Cause
from scalewise.explore.points import KNEE, Point
from scalewise.metrics import METRICS, Metric
from scalewise.results import Result
from scalewise.units import format_count

THROUGHPUT = "tokens_per_second_per_accelerator"
OBJECTIVES = {
    "time": THROUGHPUT, "tokens": THROUGHPUT, "cost": "usd_per_million_tokens",
    "energy": "tokens_per_joule", "memory": "memory_bytes",
}  # fmt: skip
"""Metric by objective of a question."""

_DAYS = Metric(name="days", label="time of the run", unit="days", better="low")


def metric_named(name: str) -> Metric:
    """Return a metric of a point, with the days of the whole run besides those of studies."""
    return _DAYS if name == "days" else METRICS[name]


NEAR = 0.95
"""Fraction of the best value that counts as near it."""

GAINS = 0.02
"""Gain per doubling from which a curve can have a knee: less is no gain to lose."""


MANY = 1e7
"""Number from which an axis is written as 16.0M and not in digits."""


class Axis(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One quantity and its values."""

    name: str
    """Name as it was given, such as network, seq, ga or cluster.pue."""
    label: str
    """Noun phrase."""
    unit: str = ""
    """Unit of the numbers, as it was written; empty for counts, plain numbers and words."""
    texts: tuple[str, ...]
    """Values as an estimate takes them, such as 25Gbit/s."""
    numbers: tuple[float, ...] | None = None
    """Values as numbers in the unit, ascending; None for words."""

    def show(self, place: int) -> str:
        """Return a value without its unit, as a head of a table."""
        if self.numbers is None:
            return self.texts[place]
        number = self.numbers[place]
        if self.numbers[-1] >= MANY:
            return format_count(number)
        return f"{number:,.0f}" if number == round(number) else f"{number:,.6g}"

    def say(self, place: int) -> str:
        """Return a value with its unit, for a sentence."""
        return f"{self.show(place)} {self.unit}".strip()


class Cell(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One point of a curve or map. Changes are relative to the previous value that runs."""

    place: tuple[int, ...]
    """Position on each axis."""
    seq_len: int
    """Tokens per sequence."""
    precision: str
    """Precision of GEMMs."""
    point: Point | None = None
    """What a step costs, also where it does not fit; None if it cannot be estimated."""
    infeasible: str | None = None
    """Why it cannot run, or None."""
    previous: int | None = None
    """Position on the first axis that the changes refer to; None for the first that runs."""
    elasticity: float | None = None
    """Relative change of the metric over that of the quantity (logarithms); None for words."""
    per_doubling: float | None = None
    """Change of the metric per doubling of the quantity, as a fraction."""
    cause: Cause | None = None
    """Term that changed most, per token and GPU, since the previous value."""

    @property
    def running(self) -> Point | None:
        """The point if it can run."""
        return self.point if self.infeasible is None else None


class Series(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy for one model on one cluster, over all values."""

    label: str
    """The strategy as it was given, or `best`."""
    model: str
    """Name of the model; empty if it is a quantity of an axis."""
    cluster: str
    """Name of the cluster; likewise."""
    parameters: float = 0.0
    """Parameters of the model; 0 if they differ."""
    kind: str = "gpu"
    """Kind of accelerator: "gpu", "tpu" or "other"."""
    cells: tuple[Cell, ...]
    """In the order of the axes; the first axis changes fastest."""

    @property
    def feasible(self) -> tuple[Cell, ...]:
        """The cells that can run."""
        return tuple(cell for cell in self.cells if cell.running is not None)

    def row(self, second: int | None = None) -> tuple[Cell, ...]:
        """Return the cells along the first axis, at one place of the second."""
        return tuple(cell for cell in self.cells if len(cell.place) == 1 or cell.place[1] == second)


class AxisKnee(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Knee of one curve."""

    series: int
    """Position of the series."""
    place: int
    """Position of the first value whose doubling gains less than the fraction of the largest."""
    previous: int
    """Position of the value before it that runs."""
    per_doubling: float
    """Gain per doubling from there."""
    largest: float
    """Largest gain per doubling before it."""


class AxisCrossover(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Crossover of two series."""

    place: int
    """Position of the first value at which the winner leads."""
    previous: int
    """Position of the value before it, where the winner does not lead."""
    winner: int
    """Position of the series that leads from there."""
    loser: int
    """Position of the other one."""
    gain: float
    """Lead at this value, as a fraction of the loser's metric."""
    chance: float | None = None
    """Chance that the winner leads there, 0 to 1; of throughput only."""


class Sweep(Result, msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer: one curve (one axis) or one map (two axes) for each series."""

    axes: tuple[Axis, ...]
    """One or two quantities."""
    metric: str
    """Metric that gains refer to: that of the objective, or else one that depends on the axis."""
    by: str = "time"
    """Objective of chosen strategies."""
    series: tuple[Series, ...]
    """Curves or maps, in the given order."""
    crossovers: tuple[AxisCrossover, ...] = ()
    """Changes of the lead between series along the one axis, in order."""
    tokens: float | None = None
    """Token budget, if it is one."""
    warnings: tuple[str, ...] = ()
    """Warnings, each once."""

    @property
    def is_map(self) -> bool:
        """Whether there are two axes."""
        return len(self.axes) == 2

    @property
    def measured(self) -> Metric:
        """The metric."""
        return metric_named(self.metric)

    def name(self, series: Series) -> str:
        """Return what differs between a series and the others: model, cluster, strategy."""
        parts = [
            getattr(series, field)
            for field in ("model", "cluster", "label")
            if len({getattr(each, field) for each in self.series}) > 1
        ]
        return ", ".join(parts) or series.label

    def value(self, cell: Cell) -> float | None:
        """Return the metric of a cell; None where it cannot run or is unknown."""
        return value_of(cell, self.metric)

    def better(self, one: float, other: float) -> float:
        """Return how much better one value of the metric is, as a fraction of the other."""
        low = self.measured.better == "low"
        first, second = (other, one) if low else (one, other)
        return first / second - 1.0 if second else 0.0

    def best(self, series: Series) -> Cell | None:
        """Return the best cell of a series; the first of equal ones."""
        found = [(value, cell) for cell in series.cells if (value := self.value(cell)) is not None]
        if not found:
            return None
        low = self.measured.better == "low"
        return min(found, key=lambda pair: pair[0] if low else -pair[0])[1]

    def near(self, series: Series, share: float = NEAR) -> Cell | None:
        """Return the first cell along the axis that reaches a fraction of the best."""
        best = self.best(series)
        top = None if best is None else self.value(best)
        if top is None or self.axes[0].numbers is None or self.is_map:
            return None
        for cell in series.feasible:
            value = self.value(cell)
            if value is not None and self.better(value, top) >= share - 1.0:
                return cell
        return None

    def knees(self, share: float = KNEE) -> tuple[AxisKnee, ...]:
        """Return the knees of all curves that have one; a map has none.

        Args:
            share: Fraction of the largest gain per doubling so far below which a gain is past the
                knee.
        """
        if self.is_map:
            return ()
        sign = -1.0 if self.measured.better == "low" else 1.0
        found = (_knee(n, each.cells, share, sign) for n, each in enumerate(self.series))
        return tuple(each for each in found if each is not None)


def value_of(cell: Cell, metric: str) -> float | None:
    """Return a metric of a cell, SI; None where it cannot run or is unknown."""
    value = None if cell.running is None else getattr(cell.running, metric)
    return None if value is None else float(value)


def _knee(series: int, cells: Sequence[Cell], share: float, sign: float) -> AxisKnee | None:
    """Return the first value whose gain per doubling is below a fraction of the largest so far."""
    largest = 0.0
    for cell in cells:
        if cell.elasticity is None:
            continue
        gain = 2.0 ** (sign * cell.elasticity) - 1.0
        if largest > GAINS and gain < share * largest:
            assert cell.previous is not None
            return AxisKnee(
                series=series,
                place=cell.place[0],
                previous=cell.previous,
                per_doubling=gain,
                largest=largest,
            )
        largest = max(largest, gain)
    return None
