"""Figures of curves and maps over any quantity.

    over_figure(sweep)                # a Figure for every renderer

One axis: a panel per metric, with intervals, knees and crossovers. Two axes: a map per series, with
a frame around its best cell. `explore.axis` computes, `over_words` has the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

from scalewise._version import __version__
from scalewise.explore.axis import THROUGHPUT, Cell, Series, Sweep, metric_named, value_of
from scalewise.explore.axis import Axis as Quantity
from scalewise.explore.points import KNEE
from scalewise.metrics import Metric
from scalewise.report import over_words as words
from scalewise.report.figure import (
    MARKERS,
    PALETTE,
    Axis,
    Figure,
    Marks,
    Panel,
    Trace,
    Value,
    short,
)
from scalewise.units import format_percent

PANELS = (
    THROUGHPUT, "mfu", "exposed_fraction", "memory_bytes", "tokens_per_joule",
    "usd_per_million_tokens", "days",
)  # fmt: skip
"""Metrics of the panels of a curve, where they are known."""

DOUBLES = 3.9
"""Ratio of the ends from which an axis of numbers is logarithmic."""


def over_figure(sweep: Sweep, *, share: float = KNEE, title: str = "") -> Figure:
    """Return the curves or maps as a figure; values that cannot run are left out.

    Args:
        sweep: The sweep.
        share: Fraction of the largest gain per doubling below which a gain is past the knee.
        title: Question, one line.
    """
    notes = [source_line(sweep)]
    if sweep.is_map:
        maps = [_map(sweep, each) for each in words.ranked(sweep)]
        panels, columns = maps, min(len(maps), 2) or 1
    else:
        panels, columns = _panels(sweep, share), 3
        if crossings := words.crossover_line(sweep):
            notes.insert(0, f"Crossovers: {crossings}.")
        if knees := words.knee_line(sweep, share):
            low = format_percent(share, decimals=0)
            notes.insert(0, f"Knees (a doubling gains below {low} of the largest gain): {knees}.")
    return Figure(
        name="over",
        panels=panels,
        columns=columns,
        title=title or f"Over {words.axis_words(sweep)}",
        lead=" ".join(words.best_lines(sweep)),
        notes=notes,
    )


def source_line(sweep: Sweep) -> str:
    """Return where the numbers come from: predicted, by which version, for which software."""
    cells = [cell for each in sweep.series for cell in each.cells if cell.point is not None]
    stacks = ", ".join(dict.fromkeys(cell.point.stack for cell in cells if cell.point))
    return (
        f"Predicted, not measured: scalewise {__version__}, stack {stacks}. "
        "Bands: 80% prediction interval. Sources of all constants: the catalog."
    )


def _x(quantity: Quantity, place: int) -> Value:
    """Return a place on the axis."""
    if quantity.numbers is None:
        return quantity.texts[place]
    number = quantity.numbers[place]
    return int(number) if number == round(number) else number


def _axis(quantity: Quantity) -> Axis:
    """Return the axis of a quantity: logarithmic if its numbers double."""
    label = quantity.label + (f" ({quantity.unit})" if quantity.unit else "")
    numbers = quantity.numbers
    places = range(len(quantity.texts))
    log = numbers is not None and numbers[0] > 0.0 and numbers[-1] > DOUBLES * numbers[0]
    return Axis(
        label=label[:1].upper() + label[1:],
        log=log,
        values=[_x(quantity, place) for place in places],
        names=[quantity.show(place) for place in places],
        zero=False,
    )


def _panels(sweep: Sweep, share: float) -> list[Panel]:
    """Return one panel for each metric that any series knows, that of the objective first."""
    names = list(dict.fromkeys([sweep.metric, *PANELS]))
    found = []
    for name in names:
        metric = metric_named(name)
        traces = [
            _trace(sweep, series, place, metric)
            for place, series in enumerate(words.ranked(sweep))
            if any(value_of(cell, name) is not None for cell in series.cells)
        ]
        if traces:
            found.append(
                Panel(
                    kind="lines",
                    x=_axis(sweep.axes[0]),
                    y=Axis(label=metric.axis, zero=metric.zero),
                    traces=traces,
                    marks=_marks(sweep, share) if name == sweep.metric else (),
                )
            )
    return found


def _trace(sweep: Sweep, series: Series, place: int, metric: Metric) -> Trace:
    """Return one series of one metric, with its interval where that is throughput."""
    cells = [cell for cell in series.feasible if value_of(cell, metric.name) is not None]
    points = [cell.point for cell in cells if cell.point is not None]
    main = metric.name == THROUGHPUT
    ys = [metric.factor * (value_of(cell, metric.name) or 0.0) for cell in cells]
    return Trace(
        name=sweep.name(series),
        xs=[_x(sweep.axes[0], cell.place[0]) for cell in cells],
        ys=ys,
        low=[point.low for point in points] if main else (),
        high=[point.high for point in points] if main else (),
        hover=[
            f"{_hover(sweep, cell)}<br>{number:,.4g} {metric.unit}"
            for cell, number in zip(cells, ys, strict=True)
        ],
        color=PALETTE[place % len(PALETTE)],
        marker=MARKERS[place % len(MARKERS)],
    )


def _hover(sweep: Sweep, cell: Cell) -> str:
    assert cell.point is not None
    text = f"{words.place_words(sweep, cell.place)}<br>{cell.point.strategy}"
    return f"{text}<br>MFU {format_percent(cell.point.mfu)}"


def _marks(sweep: Sweep, share: float) -> list[Marks]:
    """Return rings around knees and stars at crossovers."""
    rings = [(sweep.series[each.series], each.place) for each in sweep.knees(share)]
    stars = [(sweep.series[each.winner], each.place) for each in sweep.crossovers]
    found = []
    if rings:
        found.append(_marked(sweep, "knee", rings))
    if stars:
        found.append(_marked(sweep, "crossover", stars))
    return found


def _marked(sweep: Sweep, name: str, places: Sequence[tuple[Series, int]]) -> Marks:
    cells = [series.cells[place] for series, place in places]
    factor = sweep.measured.factor
    return Marks(
        name=name,
        xs=[_x(sweep.axes[0], cell.place[0]) for cell in cells],
        ys=[factor * (sweep.value(cell) or 0.0) for cell in cells],
        hover=[
            f"{sweep.name(series)} at {words.place_words(sweep, [place])}"
            for series, place in places
        ],
        symbol="ring" if name == "knee" else "open-star",
    )


def _map(sweep: Sweep, series: Series) -> Panel:
    """Return the map of one series, its best cell framed."""
    across, down = _axis(sweep.axes[0]), _axis(sweep.axes[1])
    metric, best = sweep.measured, sweep.best(series)
    traces = []
    for row, name in enumerate(down.texts):
        cells = [cell for cell in series.row(row) if sweep.value(cell) is not None]
        ys = [metric.factor * (sweep.value(cell) or 0.0) for cell in cells]
        traces.append(
            Trace(
                name=name,
                xs=[across.values[cell.place[0]] for cell in cells],
                ys=ys,
                texts=[short(y) for y in ys],
                hover=[
                    f"{_hover(sweep, cell)}<br>{y:,.4g} {metric.unit}"
                    for cell, y in zip(cells, ys, strict=True)
                ],
            )
        )
    return Panel(
        kind="map",
        x=across,
        y=down,
        traces=traces,
        title=sweep.name(series) if len(sweep.series) > 1 else "",
        scale=metric.axis,
        frame=None if best is None else (across.values[best.place[0]], down.values[best.place[1]]),
    )
