"""Sweeps from their points: changes along the first axis, causes, crossovers.

    sweep = assemble(axes, series, by="time")

`ask.over` computes the points; `explore.axis` has the structs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import combinations

import msgspec

from scalewise.explore.axis import (
    OBJECTIVES,
    THROUGHPUT,
    Axis,
    AxisCrossover,
    Cell,
    Series,
    Sweep,
    value_of,
)
from scalewise.explore.causes import FEWER, TIE, Cause, find_cause
from scalewise.explore.points import Point
from scalewise.ranges import chance_faster
from scalewise.terms import TERMS

OTHERS = ("usd_per_million_tokens", "tokens_per_joule", "memory_bytes", "fit", "days")
"""Metrics that a curve shows first where the objective does not depend on the quantity."""

FLAT = 1e-3
"""Relative spread below which a metric does not depend on a quantity: it prints as equal."""


def assemble(
    axes: Sequence[Axis],
    series: Sequence[Series],
    *,
    by: str = "time",
    tokens: float | None = None,
    warnings: Iterable[str] = (),
) -> Sweep:
    """Return a sweep: changes along the first axis filled in, crossovers found.

    Args:
        axes: One or two quantities.
        series: Curves or maps whose cells do not know their neighbors.
        by: Objective.
        tokens: Token budget.
        warnings: Warnings, each once.
    """
    metric = _metric(series, by)
    bare = Sweep(
        axes=tuple(axes),
        metric=metric,
        by=by,
        series=tuple(series),
        tokens=tokens,
        warnings=tuple(dict.fromkeys(warnings)),
    )
    rows = range(len(axes[1].texts)) if len(axes) == 2 else (None,)
    joined = tuple(
        msgspec.structs.replace(
            each, cells=tuple(cell for row in rows for cell in _joined(bare, each.row(row)))
        )
        for each in series
    )
    crossovers = () if bare.is_map else _crossovers(bare)
    return msgspec.structs.replace(bare, series=joined, crossovers=crossovers)


def _metric(series: Sequence[Series], by: str) -> str:
    """Return the objective's metric, or else the first other one that depends on the axes."""
    first = OBJECTIVES.get(by, THROUGHPUT)
    for name in (first, *OTHERS):
        for each in series:
            values = [v for cell in each.feasible if (v := value_of(cell, name)) is not None]
            if values and max(values) - min(values) > FLAT * max(map(abs, values)):
                return name
    return first


def _joined(sweep: Sweep, row: Sequence[Cell]) -> Iterable[Cell]:
    """Yield the cells of a row with their changes since the previous one that runs."""
    before: Cell | None = None
    for cell in row:
        if cell.running is None:
            yield cell
            continue
        yield cell if before is None else _compared(sweep, before, cell)
        before = cell


def _compared(sweep: Sweep, before: Cell, cell: Cell) -> Cell:
    """Fill in the changes since another cell."""
    assert before.point is not None
    assert cell.point is not None
    # Of throughput all GPUs count: that of one does not grow with their number.
    name = "tokens_per_second" if sweep.metric == THROUGHPUT else sweep.metric
    old, new = value_of(before, name), value_of(cell, name)
    numbers, elasticity, per_doubling = sweep.axes[0].numbers, None, None
    if numbers is not None and old and new:
        first, second = numbers[before.place[0]], numbers[cell.place[0]]
        if first > 0.0 and second > first:
            elasticity = math.log(new / old) / math.log(second / first)
            per_doubling = 2.0**elasticity - 1.0
    return msgspec.structs.replace(
        cell,
        previous=before.place[0],
        elasticity=elasticity,
        per_doubling=per_doubling,
        cause=change_cause(before.point, cell.point),
    )


def change_cause(before: Point, point: Point) -> Cause | None:
    """Return the term that changed most between two points, in GPU-seconds per token.

    Where throughput per GPU falls it is the term that grows most, where it rises the one that
    shrinks most; `loss` is negative then.
    """
    found, sign = find_cause(before, point), 1.0
    if found is None:
        found, sign = find_cause(point, before), -1.0
    if found is None:
        return None
    old, new = (each.tokens_per_second_per_accelerator for each in (before, point))
    # The words of a scaling curve are those of ever more GPUs; here anything may have changed.
    driver = "" if found.driver == FEWER and sign < 0.0 else found.driver
    what = found.what if driver else TERMS[found.term].label
    return msgspec.structs.replace(
        found,
        name=f"{what} ({driver})" if driver else what,
        driver=driver,
        loss=1.0 - new / old,
    )


def _crossovers(sweep: Sweep) -> tuple[AxisCrossover, ...]:
    """Return all changes of the lead between two series, in order."""
    found: list[AxisCrossover] = []
    for first, second in combinations(range(len(sweep.series)), 2):
        found += _crossings(sweep, first, second)
    return tuple(sorted(found, key=lambda each: (each.place, each.winner, each.loser)))


def _crossings(sweep: Sweep, first: int, second: int) -> Iterable[AxisCrossover]:
    """Yield every change of the lead between two series; a return to equal values is none."""
    ahead, last = None, None
    for one, other in zip(sweep.series[first].cells, sweep.series[second].cells, strict=True):
        a, b = sweep.value(one), sweep.value(other)
        if a is None or b is None:
            continue
        lead, place = sweep.better(a, b), one.place[0]
        if abs(lead) > TIE:
            winner, loser = (first, second) if lead > 0.0 else (second, first)
            if last is not None and winner != ahead:
                gain = sweep.better(*((a, b) if lead > 0.0 else (b, a)))
                yield AxisCrossover(
                    place=place,
                    previous=last,
                    winner=winner,
                    loser=loser,
                    gain=gain,
                    chance=_chance(sweep, one, other, swapped=lead < 0.0),
                )
            ahead = winner
        last = place


def _chance(sweep: Sweep, one: Cell, other: Cell, *, swapped: bool) -> float | None:
    """Return the chance that one of two cells is faster; None unless the metric is throughput."""
    if sweep.metric != THROUGHPUT or one.point is None or other.point is None:
        return None
    likely = float(chance_faster(one.point.basis, other.point.basis))
    return 1.0 - likely if swapped else likely
