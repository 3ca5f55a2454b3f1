"""Figures of a study: panels by metric and facet, series by color and dash, measured marks.

    study_figure(experiment, 0, rows, marks)      # the first figure of an experiment
    study_figures(answer)["weak"]                 # all figures of an experiment

`study.run` computes the rows, `study.overlays` the marks.
"""

from __future__ import annotations

from collections.abc import Sequence

from scalewise._version import __version__
from scalewise.explore.points import KNEE
from scalewise.metrics import METRICS, Metric
from scalewise.report.figure import (
    DASHES,
    GRAY,
    MARKERS,
    PALETTE,
    Axis,
    Figure,
    Marks,
    Panel,
    Rule,
    Trace,
    Value,
    ordered_color,
    short,
)
from scalewise.study.files import Experiment
from scalewise.study.files import Figure as Asked
from scalewise.study.measures import AXES
from scalewise.study.overlays import Mark, Measured, marks_of, measured_marks
from scalewise.study.rows import Row, metric_of, select, values_of, varying
from scalewise.study.run import Answer

MAX_BANDS = 4
"""Lines up to which intervals are drawn."""
MAX_SOURCES = 4
"""Sources named below a figure for one entry of its legend; the pointer shows the rest."""
MAX_CHANGES = 14
"""Rows of a chart of changes; the table has the rest."""
MIN_CHANGE = 0.05
"""Percent below which a change has no bar."""
MAX_TEXTS = 24
"""Bars up to which each has its number."""

Key = tuple[Value, ...]
"""Values of the axes of the series: what one trace stands for."""


def study_figures(answer: Answer, runs: Sequence[Measured] = ()) -> dict[str, list[Figure]]:
    """Return all figures by experiment, without those that have no point."""
    drawn: dict[str, list[Figure]] = {}
    for each in answer.study.experiments:
        predicted, rows = answer.of(each), answer.drawn(each)
        marks = marks_of(each, rows, runs)
        if predicted and answer.measured is not None:
            found = answer.measured.found
            marks += measured_marks(found.of(each), found.machine)
        figures = (
            study_figure(each, number, rows, marks, measured=bool(rows) and not predicted)
            for number in range(len(each.figures))
        )
        drawn[each.id] = [figure for figure in figures if figure.panels]
    return drawn


def study_figure(
    experiment: Experiment,
    number: int,
    rows: Sequence[Row],
    marks: Sequence[Mark],
    *,
    measured: bool = False,
) -> Figure:
    """Return one figure of an experiment.

    Args:
        experiment: The experiment.
        number: Which of its figures, from 0.
        rows: Its points.
        marks: Measured numbers that belong to it.
        measured: Whether the points are measured ones.
    """
    said = f"Predicted by scalewise {__version__} unless marked as measured or published."
    if measured:
        said = f"Measured with scalewise {__version__}; bands are the range of the repeats."
    asked = experiment.figures[number]
    layout = _Layout(asked, rows)
    facets: list[Value] = values_of(layout.rows, asked.facet) if asked.facet else [""]
    panels = [layout.panel(METRICS[name], facet, marks) for name in asked.y for facet in facets]
    panels = [panel for panel in panels if any(trace.ys for trace in panel.traces)]
    return Figure(
        name=f"{experiment.id}-{number + 1}",
        panels=panels,
        columns=2 if layout.sideways or len(panels) in (2, 4) else 3,
        caption=asked.caption,
        sources=_sources(panels),
        notes=[said],
    )


def _sources(panels: Sequence[Panel]) -> list[str]:
    """Return who measured what is marked, one sentence for each name of the legend."""
    by_name: dict[str, list[str]] = {}
    for marks in (marks for panel in panels for marks in panel.marks):
        by_name.setdefault(marks.name, []).extend(marks.hover)
    sentences = []
    for name, hovers in by_name.items():
        several = list(dict.fromkeys(hovers))
        more = f"; and {len(several) - MAX_SOURCES} more" if len(several) > MAX_SOURCES else ""
        sentences.append(f"{name}: {'; '.join(several[:MAX_SOURCES])}{more}")
    return sentences


class _Layout:
    """Axes, order, names, colors, dashes and markers, the same in all panels of a figure.

    The first axis of the series has the color, the second the dash. Numbers rise; names are in the
    order in which their lines end in the first panel, the largest first.
    """

    def __init__(self, asked: Asked, rows: Sequence[Row]) -> None:
        self.asked = asked
        self.sideways = asked.kind == "bars" and asked.x == "change"
        drawn = [row for row in select(rows, asked.where) if row.feasible]
        self.ends_of_band = select(drawn, asked.band) if asked.band else []
        self.rows = [row for row in drawn if not any(row is end for end in self.ends_of_band)]
        # Sizes and nodes say the same.
        implied = {"accelerators": "nodes", "nodes": "accelerators"}.get(asked.x, "")
        other = [asked.x, asked.facet or "", implied]
        self.series = list(asked.series) or varying(self.rows, but=other)
        self.values = [values_of(self.rows, name) for name in self.series]
        self.xs = self._xs()
        self._ends: dict[Key, tuple[float, float]] = {}
        for name in reversed(asked.y):
            for key, points in self._groups(self.rows, name).items():
                last = max(points, key=lambda row: _rank(row.axes[asked.x]))
                self._ends[key] = -_rank(last.axes[asked.x]), -(metric_of(last, name) or 0.0)

    def _xs(self) -> list[Value]:
        """Return the values of x that are drawn; changes by the size of their effect."""
        effect: dict[Value, float] = {}
        for name in self.asked.y:
            for row in self.rows:
                number, x = metric_of(row, name), row.axes.get(self.asked.x)
                if number is not None and x is not None:
                    effect[x] = max(effect.get(x, 0.0), abs(number * METRICS[name].factor))
        shown = [value for value in values_of(self.rows, self.asked.x) if value in effect]
        if self.asked.x != "change":
            return shown
        kept = [value for value in shown if effect[value] >= MIN_CHANGE]
        return sorted(kept, key=lambda value: -effect[value])[:MAX_CHANGES]

    def _groups(self, rows: Sequence[Row], name: str) -> dict[Key, list[Row]]:
        """Return the rows that know a metric, by the values of the series."""
        groups: dict[Key, list[Row]] = {}
        for row in rows:
            if metric_of(row, name) is not None and row.axes.get(self.asked.x) in self.xs:
                key = tuple(row.axes.get(each, "") for each in self.series)
                groups.setdefault(key, []).append(row)
        return groups

    def panel(self, metric: Metric, facet: Value, marks: Sequence[Mark]) -> Panel:
        """Return one metric for one value of the facet."""
        asked, axis = self.asked, AXES[self.asked.x]
        rows = select(self.rows, {asked.facet: facet}) if asked.facet else self.rows
        title = _with_axis(asked.facet, facet) if asked.facet else ""
        label = "" if asked.kind == "bars" else axis.label
        names = [axis.show(value) for value in self.xs]
        x = Axis(label=label, log=axis.log, values=self.xs, names=names)
        if asked.kind == "map":
            up, ups = AXES[self.series[0]], self.values[0]
            y = Axis(label=up.label, values=ups, names=[up.show(value) for value in ups])
            cells, scale = self.cells(rows, metric), metric.axis
            return Panel(kind="map", title=title, x=x, y=y, traces=cells, scale=scale)
        near = [m for m in marks if not asked.facet or m.fits(asked.facet, facet)]
        return Panel(
            kind="bars" if asked.kind == "bars" else "lines",
            title=title,
            x=x,
            y=Axis(label=metric.axis, log=asked.log_y, zero=metric.zero),
            traces=[*self.bands(facet, metric), *self.traces(rows, metric)],
            marks=self.marks([m for m in near if rows and _belongs(m, asked)], metric),
            rules=_knee_rule(metric),
            sideways=self.sideways,
        )

    def traces(self, rows: Sequence[Row], metric: Metric) -> list[Trace]:
        """Return one trace for each combination of the series' values, in order."""
        asked = self.asked
        groups = self._groups(rows, metric.name)
        banded = metric.name == "tokens_per_second_per_accelerator" and asked.kind == "lines"
        banded = banded and len(groups) <= MAX_BANDS and not asked.band
        upright = asked.kind == "bars" and not self.sideways
        traces = []
        for key in sorted(groups, key=self.place):
            points = groups[key]
            if not isinstance(points[0].axes[asked.x], str):
                points = sorted(points, key=lambda row: row.axes[asked.x])
            bands = [row.interval for row in points if row.interval] if banded else []
            bands = bands if len(bands) == len(points) else []
            ys = _numbers(points, metric)
            traces.append(
                Trace(
                    name=_named(self.series, key),
                    xs=[row.axes[asked.x] for row in points],
                    ys=ys,
                    low=[band[0] for band in bands],
                    high=[band[1] for band in bands],
                    texts=[short(y) for y in ys]
                    if upright and len(self.xs) * len(groups) <= MAX_TEXTS
                    else (),
                    hover=[_hover(row, metric) for row in points],
                    color=self.color(key),
                    dash=self.dash(key),
                    marker=MARKERS[self.index(key, 1 if len(key) > 1 else 0) % len(MARKERS)],
                )
            )
        return traces

    def bands(self, facet: Value, metric: Metric) -> list[Trace]:
        """Return one area between the ends of the band for each line that they belong to."""
        asked = self.asked
        rows = select(self.ends_of_band, {asked.facet: facet} if asked.facet else {})
        others = [name for name in self.series if name not in asked.band]
        areas: dict[Key, dict[Value, list[float]]] = {}
        for row in rows:
            number = metric_of(row, metric.name)
            if number is not None:
                key = tuple(row.axes.get(name, "") for name in others)
                at = areas.setdefault(key, {}).setdefault(row.axes[asked.x], [])
                at.append(number * metric.factor)
        span = " to ".join(str(value) for name in asked.band for value in values_of(rows, name))
        found = []
        for place, (key, area) in enumerate(areas.items()):
            xs = sorted(x for x, ends in area.items() if len(ends) > 1)
            found.append(
                Trace(
                    name=", ".join(part for part in (_named(others, key), span) if part),
                    xs=xs,
                    ys=[],
                    low=[min(area[x]) for x in xs],
                    high=[max(area[x]) for x in xs],
                    mode="area",
                    color=PALETTE[place % len(PALETTE)],
                )
            )
        return found

    def cells(self, rows: Sequence[Row], metric: Metric) -> list[Trace]:
        """Return the rows of a map; of several strategies in one cell, the best."""
        traces = []
        for value in values_of(rows, self.series[0]):
            best: dict[Value, Row] = {}
            for row in select(rows, {self.series[0]: value}):
                x, number = row.axes[self.asked.x], metric_of(row, metric.name)
                before = metric_of(best[x], metric.name) if x in best else None
                if number is not None and (before is None or number > before):
                    best[x] = row
            ys = _numbers(list(best.values()), metric)
            hover = [_hover(row, metric) for row in best.values()]
            name = AXES[self.series[0]].show(value)
            traces.append(Trace(name=name, xs=list(best), ys=ys, hover=hover))
        return traces

    def marks(self, marks: Sequence[Mark], metric: Metric) -> list[Marks]:
        """Return the marks of one metric, by label."""
        groups: dict[tuple[str, bool], list[tuple[Value, Mark]]] = {}
        for mark in marks:
            if mark.metric == metric.name:
                for value in mark.axes[self.asked.x]:
                    groups.setdefault((mark.label, mark.published), []).append((value, mark))
        return [
            Marks(
                name=label,
                xs=[value for value, _ in mine],
                ys=[mark.value * metric.factor for _, mark in mine],
                hover=[mark.source for _, mark in mine],
                beside=[self.beside(mark) for _, mark in mine],
                symbol="star" if published else "cross",
            )
            for (label, published), mine in groups.items()
        ]

    def beside(self, mark: Mark) -> str:
        """Return the name of the trace that a mark stands for, if it knows all of its axes."""
        if any(name not in mark.axes for name in self.series):
            return ""
        return _named(self.series, [mark.axes[name][0] for name in self.series])

    def place(self, key: Key) -> tuple[float, ...]:
        """Return what the order of the legend is sorted by."""
        if self.asked.kind == "bars" or all(not isinstance(value, str) for value in key):
            return tuple(float(vs.index(v)) for v, vs in zip(key, self.values, strict=True))
        return self._ends[key]

    def color(self, key: Key) -> str:
        """Return the color of the first axis: in order for more than two numbers."""
        first = self.index(key, 0)
        if key and not isinstance(key[0], str) and len(self.values[0]) > 2:
            return ordered_color(first / (len(self.values[0]) - 1))
        return PALETTE[first % len(PALETTE)]

    def dash(self, key: Key) -> str:
        """Return the dash of the second axis, or of colors that repeat."""
        place = self.index(key, 1) if len(key) > 1 else self.index(key, 0) // len(PALETTE)
        return DASHES[place % len(DASHES)]

    def index(self, key: Key, place: int) -> int:
        """Return the place of a value among those of its axis."""
        return self.values[place].index(key[place]) if len(key) > place else 0


def _knee_rule(metric: Metric) -> list[Rule]:
    """Return the line below which adding GPUs has stopped paying, for marginal efficiencies."""
    if metric.name not in ("marginal_return", "marginal_joule_return"):
        return []
    return [Rule(value=KNEE * metric.factor, name="knee", color=GRAY, dash="dash")]


def _belongs(mark: Mark, asked: Asked) -> bool:
    """Whether a mark lies on the axes of a figure."""
    return asked.x in mark.axes and all(
        any(mark.fits(name, value) for value in (wanted if isinstance(wanted, list) else [wanted]))
        for name, wanted in asked.where.items()
    )


def _numbers(rows: Sequence[Row], metric: Metric) -> list[float]:
    return [(metric_of(row, metric.name) or 0.0) * metric.factor for row in rows]


def _named(series: Sequence[str], key: Sequence[Value]) -> str:
    """Return the name of a trace."""
    return ", ".join(_with_axis(axis, value) for axis, value in zip(series, key, strict=True))


def _with_axis(name: str, value: Value) -> str:
    """Return a value of an axis, with the axis where it is a plain number."""
    text, label = AXES[name].show(value), AXES[name].label
    if isinstance(value, str) or name == "message_bytes":
        return text
    return f"{text} {label}" if name in ("accelerators", "nodes") else f"{label} {text}"


def _hover(row: Row, metric: Metric) -> str:
    parts = [row.strategy] if row.strategy else []
    parts += [AXES[name].show(v) for name, v in row.axes.items() if name in ("model", "cluster")]
    if "accelerators" in row.axes:
        parts.append(f"{row.axes['accelerators']:,} GPUs")
    return f"{', '.join(parts)}<br>{metric.axis}: {metric.show(row.metrics[metric.name])}"


def _rank(value: Value) -> float:
    return 0.0 if isinstance(value, str) else float(value)
