"""What does a figure of a study show? Panels, lines, bars or maps, marks; order, colours, units.

    drawing = drawing_of(experiment, 0, rows, marks)
    for panel in drawing.panels: panel.title, panel.traces, panel.marks

`study_plotly` draws it on the page, `study_paper` as SVG and PNG; both show the same, computed
here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from scalewise.report.scatter import PALETTE
from scalewise.study.files import Experiment, Figure
from scalewise.study.measures import AXES, METRICS, Axis, Metric, Value
from scalewise.study.overlays import Mark
from scalewise.study.rows import Row, metric_of, select, values_of, varying

DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x")

# Of cividis, which is even for every eye: from dark to light, for axes whose values have an order.
# Nunez, Anderton, Renslow, PLOS ONE 13(7), 2018; the palest third is left out on white paper.
ORDERED = ((0, 34, 78), (66, 78, 107), (124, 123, 120), (176, 157, 90), (212, 183, 64))

MOST_BANDS = 4
"""Intervals of more lines than this would hide each other."""

MOST_SOURCES = 4
"""Sources named under a figure for one entry of its legend; hovering shows the rest."""

MOST_CHANGES = 14
"""Rows of a chart of changes; the table has the rest."""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One line, or the bars of one colour."""

    name: str
    """In the legend."""
    xs: list[Value]
    ys: list[float]
    """In the unit of the panel."""
    low: list[float] = field(default_factory=list)
    """80 % interval; empty where it is not drawn."""
    high: list[float] = field(default_factory=list)
    hover: list[str] = field(default_factory=list)
    colour: str = PALETTE[0]
    dash: str = "solid"
    marker: str = "circle"


@dataclass(frozen=True, kw_only=True)
class Marks:
    """Measured numbers under one name."""

    name: str
    """In the legend."""
    xs: list[Value]
    ys: list[float]
    hover: list[str]
    beside: list[str]
    """Of bars: the name of the trace that each stands for; empty for all of them."""
    published: bool


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One metric, for one value of the facet."""

    metric: Metric
    title: str
    """Empty where nothing tells it from the others but the metric."""
    traces: list[Trace]
    marks: list[Marks]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """One figure, ready to be drawn."""

    name: str
    """Of its files."""
    kind: str
    """lines, bars, changes (bars to the right) or map."""
    x: Axis
    xs: list[Value]
    """All values of x, in order."""
    panels: list[Panel]
    up: Axis | None = None
    """Of a map: the axis upwards."""
    ups: list[Value] = field(default_factory=list)
    log_y: bool = False
    caption: str = ""
    sources: list[str] = field(default_factory=list)
    """Of the marks."""

    @property
    def names(self) -> list[str]:
        """The legend: lines in order, then marks."""
        traces = [each.name for panel in self.panels for each in panel.traces]
        marks = [each.name for panel in self.panels for each in panel.marks]
        return [name for name in dict.fromkeys([*traces, *marks]) if name]


def drawing_of(
    experiment: Experiment, number: int, rows: Sequence[Row], marks: Sequence[Mark]
) -> Drawing:
    """Lay out one figure of an experiment.

    Args:
        experiment: Which.
        number: Which of its figures.
        rows: Its points.
        marks: Measured numbers that belong to it.
    """
    figure = experiment.figures[number]
    chosen = [row for row in select(rows, figure.where) if row.feasible]
    x = AXES[figure.x]
    series = list(figure.series) or varying(
        chosen, but=[figure.x, figure.facet or "", *_implied(figure.x)]
    )
    facets: list[Value] = values_of(chosen, figure.facet) if figure.facet else [""]
    panels = []
    looks = _Looks(chosen, series, figure)
    for name in figure.y:
        for facet in facets:
            inside = select(chosen, {figure.facet: facet}) if figure.facet else chosen
            near = [m for m in marks if not figure.facet or m.fits(figure.facet, facet)]
            near = [m for m in near if _belongs(m, figure, inside)]
            traces = (
                _cells(inside, name, figure, series)
                if figure.kind == "map"
                else _traces(inside, name, figure, looks)
            )
            if any(trace.ys for trace in traces):
                title = f"{_facet_name(figure, facet)}" if figure.facet else ""
                shown = [] if figure.kind == "map" else _gathered(near, name, figure.x, series)
                panels.append(Panel(metric=METRICS[name], title=title, traces=traces, marks=shown))
    kind = "changes" if figure.kind == "bars" and figure.x == "change" else figure.kind
    return Drawing(
        name=f"{experiment.id}-{number + 1}",
        kind=kind,
        x=x,
        xs=_xs(panels, chosen, figure),
        panels=panels,
        up=AXES[series[0]] if figure.kind == "map" and series else None,
        ups=values_of(chosen, series[0]) if figure.kind == "map" and series else [],
        log_y=figure.log_y,
        caption=figure.caption,
        sources=_sources(panels),
    )


def _sources(panels: Sequence[Panel]) -> list[str]:
    """Who measured what is marked, one sentence for each name of the legend."""
    told: dict[str, list[str]] = {}
    for panel in panels:
        for marks in panel.marks:
            told.setdefault(marks.name, []).extend(marks.hover)
    found = []
    for name, sources in told.items():
        several = list(dict.fromkeys(sources))
        more = f"; and {len(several) - MOST_SOURCES} more" if len(several) > MOST_SOURCES else ""
        found.append(f"{name}: {'; '.join(several[:MOST_SOURCES])}{more}")
    return found


def _implied(x: str) -> list[str]:
    """Axes that say the same as x."""
    return {"accelerators": ["nodes"], "nodes": ["accelerators"]}.get(x, [])


def _facet_name(figure: Figure, value: Value) -> str:
    assert figure.facet is not None
    axis = AXES[figure.facet]
    text = axis.show(value)
    return (
        text if isinstance(value, str) or axis.name == "message_bytes" else f"{text} {axis.label}"
    )


def _belongs(mark: Mark, figure: Figure, rows: Sequence[Row]) -> bool:
    """Whether a mark lies on axes that the drawn rows have."""
    if figure.x not in mark.axes:
        return False
    for name, wanted in figure.where.items():
        allowed = wanted if isinstance(wanted, list) else [wanted]
        if not any(mark.fits(name, value) for value in allowed):
            return False
    return bool(rows)


def _traces(rows: Sequence[Row], name: str, figure: Figure, looks: _Looks) -> list[Trace]:
    """One trace for each combination of the series' values, in the order of the legend."""
    metric = METRICS[name]
    groups = _groups(rows, name, figure.x, looks.series)
    found = []
    for key in sorted(groups, key=looks.place):
        points = groups[key]
        if not isinstance(points[0].axes[figure.x], str):
            points = sorted(points, key=lambda row: row.axes[figure.x])
        ys = [(metric_of(row, name) or 0.0) * metric.factor for row in points]
        bands = [row.interval for row in points]
        drawn = (
            name == "tokens_per_second_per_accelerator"
            and figure.kind == "lines"
            and len(groups) <= MOST_BANDS
        )
        found.append(
            Trace(
                name=looks.name(key),
                xs=[row.axes[figure.x] for row in points],
                ys=ys,
                low=[band[0] for band in bands if band] if drawn else [],
                high=[band[1] for band in bands if band] if drawn else [],
                hover=[_hover(row, metric) for row in points],
                colour=looks.colour(key),
                dash=looks.dash(key),
                marker=looks.marker(key),
            )
        )
    return found


def _cells(rows: Sequence[Row], name: str, figure: Figure, series: Sequence[str]) -> list[Trace]:
    """The cells of a map: x, and as the trace's name the value of the other axis."""
    up = series[0]
    metric = METRICS[name]
    found = []
    for value in values_of(rows, up):
        line = [row for row in select(rows, {up: value}) if metric_of(row, name) is not None]
        # Where several strategies share a cell, the best one stands for it.
        best: dict[Value, Row] = {}
        for row in line:
            x = row.axes[figure.x]
            if x not in best or (metric_of(row, name) or 0) > (metric_of(best[x], name) or 0):
                best[x] = row
        found.append(
            Trace(
                name=AXES[up].show(value),
                xs=list(best),
                ys=[(metric_of(row, name) or 0.0) * metric.factor for row in best.values()],
                hover=[_hover(row, metric) for row in best.values()],
            )
        )
    return found


def _gathered(marks: Sequence[Mark], name: str, x: str, series: Sequence[str]) -> list[Marks]:
    """Marks of one metric by label."""
    factor = METRICS[name].factor
    groups: dict[tuple[str, bool], list[tuple[Value, Mark]]] = {}
    for mark in marks:
        if mark.metric == name:
            for value in mark.axes[x]:
                groups.setdefault((mark.label, mark.published), []).append((value, mark))
    return [
        Marks(
            name=label,
            xs=[x_value for x_value, _ in found],
            ys=[mark.value * factor for _, mark in found],
            hover=[mark.source for _, mark in found],
            beside=[_beside(mark, series) for _, mark in found],
            published=published,
        )
        for (label, published), found in groups.items()
    ]


def _beside(mark: Mark, series: Sequence[str]) -> str:
    """Name of the trace that a mark stands for, if it knows all of the series' axes."""
    if any(name not in mark.axes for name in series):
        return ""
    return _named(series, [mark.axes[name][0] for name in series])


def _named(series: Sequence[str], key: Sequence[Value]) -> str:
    """How a trace is called: values with their axis, where they do not speak for themselves."""
    parts = []
    for axis, value in zip(series, key, strict=True):
        text = AXES[axis].show(value)
        plain = isinstance(value, str) or axis == "message_bytes"
        parts.append(text if plain else f"{text} {AXES[axis].label}" if AXES[axis].name in
                     ("accelerators", "nodes") else f"{AXES[axis].label} {text}")  # fmt: skip
    return ", ".join(parts)


def _xs(panels: Sequence[Panel], rows: Sequence[Row], figure: Figure) -> list[Value]:
    """Values of x that are drawn; changes by what they bring, the largest first."""
    drawn = {x for panel in panels for trace in panel.traces for x in trace.xs}
    values = [value for value in values_of(rows, figure.x) if value in drawn]
    if figure.x != "change":
        return values
    size: dict[Value, float] = {}
    for panel in panels:
        for trace in panel.traces:
            for x, y in zip(trace.xs, trace.ys, strict=True):
                size[x] = max(size.get(x, 0.0), abs(y))
    kept = [value for value in values if size[value] >= 0.05]
    return sorted(kept, key=lambda value: -size[value])[:MOST_CHANGES]


def _hover(row: Row, metric: Metric) -> str:
    parts = [row.strategy] if row.strategy else []
    parts += [AXES[name].show(v) for name, v in row.axes.items() if name in ("model", "cluster")]
    if "accelerators" in row.axes:
        parts.append(f"{row.axes['accelerators']:,} accelerators")
    return "<br>".join(
        [", ".join(parts), f"{metric.label}: {metric.show(row.metrics[metric.name])}"]
    )


def _groups(
    rows: Sequence[Row], name: str, x: str, series: Sequence[str]
) -> dict[tuple[Value, ...], list[Row]]:
    """Rows that know a metric, by the values of the series."""
    groups: dict[tuple[Value, ...], list[Row]] = {}
    for row in rows:
        if metric_of(row, name) is not None and x in row.axes:
            groups.setdefault(tuple(row.axes.get(each, "") for each in series), []).append(row)
    return groups


class _Looks:
    """Order, names, colours, dashes and markers, the same in all panels of a figure.

    The first axis of the series is told by colour, the second by dash. Numbers rise; names follow
    each other as their lines end in the first panel, the largest first.
    """

    def __init__(self, rows: Sequence[Row], series: Sequence[str], figure: Figure) -> None:
        self.series = list(series)
        self.values = [values_of(rows, name) for name in series]
        self._ends: dict[tuple[Value, ...], tuple[float, float]] = {}
        for name in reversed(figure.y):
            for key, found in _groups(rows, name, figure.x, series).items():
                last = max(found, key=lambda row: _rank(row.axes[figure.x]))
                end = (-_rank(last.axes[figure.x]), -(metric_of(last, name) or 0.0))
                self._ends[key] = end
        self._as_listed = figure.kind == "bars"

    def place(self, key: tuple[Value, ...]) -> tuple[float, ...]:
        if self._as_listed or all(not isinstance(value, str) for value in key):
            return tuple(float(vs.index(v)) for v, vs in zip(key, self.values, strict=True))
        return self._ends[key]

    def name(self, key: tuple[Value, ...]) -> str:
        return _named(self.series, key)

    def _index(self, key: tuple[Value, ...], place: int) -> int:
        return self.values[place].index(key[place]) if len(key) > place else 0

    def colour(self, key: tuple[Value, ...]) -> str:
        if not key:
            return PALETTE[0]
        first = self._index(key, 0)
        if not isinstance(key[0], str) and len(self.values[0]) > 2:
            return _ordered(first / (len(self.values[0]) - 1))
        return PALETTE[first % len(PALETTE)]

    def dash(self, key: tuple[Value, ...]) -> str:
        if len(key) > 1:
            return DASHES[self._index(key, 1) % len(DASHES)]
        return DASHES[(self._index(key, 0) // len(PALETTE)) % len(DASHES)]

    def marker(self, key: tuple[Value, ...]) -> str:
        return MARKERS[self._index(key, 1 if len(key) > 1 else 0) % len(MARKERS)]


def _rank(value: Value) -> float:
    return 0.0 if isinstance(value, str) else float(value)


def _ordered(share: float) -> str:
    """A colour between the ends of the ordered ones."""
    place = share * (len(ORDERED) - 1)
    low = min(int(place), len(ORDERED) - 2)
    part = place - low
    mixed = (round(a + part * (b - a)) for a, b in zip(ORDERED[low], ORDERED[low + 1], strict=True))
    return "#" + "".join(f"{value:02x}" for value in mixed)
