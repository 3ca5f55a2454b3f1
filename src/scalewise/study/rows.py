"""Table of a study: one row per point, with all axes and metrics.

    rows = answer.rows
    select(rows, {"strategy": "fsdp", "accelerators": [128, 2048]})
    varying(rows)                        # the axes in which they differ

Rows of different experiments share one set of columns, so that a study is one table.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from scalewise.study.measures import AXES, Value

if TYPE_CHECKING:
    from scalewise.explore.points import Point
    from scalewise.study.files import Where


@dataclass(frozen=True, kw_only=True)
class Row:
    """One point."""

    experiment: str
    """Id of the experiment."""
    axes: dict[str, Value]
    """Axes."""
    metrics: dict[str, float | None] = field(default_factory=dict)
    """Metrics, SI; None if unknown."""
    strategy: str = ""
    """The strategy with its sizes."""
    interval: tuple[float, float] | None = None
    """80% prediction interval of tokens/s per GPU."""
    infeasible: str | None = None
    """Why it cannot run, or None."""
    note: str = ""
    """Remarks."""
    point: Point | None = None
    """For a training step: the point with its terms and causes."""

    @property
    def feasible(self) -> bool:
        """Whether it can run."""
        return self.infeasible is None


R = TypeVar("R", bound=Row)


def select(rows: Iterable[R], where: Where) -> list[R]:
    """Return rows whose axes have the given values; an axis that a row lacks matches nothing."""
    return [row for row in rows if all(_is(row, name, value) for name, value in where.items())]


def varying(rows: Sequence[Row], *, but: Iterable[str] = ()) -> list[str]:
    """Return the axes in which rows differ, in the order of columns.

    Args:
        rows: The rows.
        but: Axes that do not count.
    """
    left_out = set(but)
    # Sizes have two units; degrees are part of the strategy's name.
    implied = {"nodes": "accelerators", "tp": "strategy", "pp": "strategy", "cp": "strategy"}
    left_out |= {name for name, by in implied.items() if any(by in row.axes for row in rows)}
    return [
        name
        for name in AXES
        if name not in left_out and len({row.axes[name] for row in rows if name in row.axes}) > 1
    ]


def values_of(rows: Iterable[Row], name: str) -> list[Value]:
    """Return the values of an axis: numbers ascending, names in order of appearance."""
    found = list(dict.fromkeys(row.axes[name] for row in rows if name in row.axes))
    numbers = [value for value in found if not isinstance(value, str)]
    return sorted(numbers) if len(numbers) == len(found) else found


def metric_of(row: Row, name: str) -> float | None:
    """Return a metric of a row that can run; None otherwise."""
    return row.metrics.get(name) if row.feasible else None


def _is(row: Row, name: str, value: object) -> bool:
    if name not in row.axes:
        return False
    allowed = value if isinstance(value, list) else [value]
    return any(_plain(row.axes[name]) == _plain(each) for each in allowed)


def _plain(value: object) -> str:
    """Map 8, 8.0 and "8" to one value."""
    if isinstance(value, int | float):
        return f"{value:.10g}"
    return str(value).strip().lower()
