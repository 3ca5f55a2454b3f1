"""Figures as data: panels of lines, bars, ranges or cells, without a drawing library.

    figure = Figure(name="scale", panels=[Panel(kind="lines", x=x, y=y, traces=traces)])
    draw_plotly.plotly_figure(figure)       # interactive, for pages
    draw_matplotlib.image(figure, "svg")    # for papers

Every subject of `report` becomes a Figure, and every medium has one renderer. Colors of terms are
those of `scalewise.terms`; all other series take PALETTE in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Value = str | int | float

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito: distinct under every kind of color vision."""
DASHES = ("solid", "dash", "dot", "dashdot")
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
INK, GRAY = "#333333", "#666666"
"""Text and axes, secondary text."""
PALE, DEEP = "#f3ead3", "#00224e"
"""Ends of the colors of a map: lightness alone gives the order."""
FRAME = PALETTE[1]
"""Frame around a cell of a map."""

# Cividis from dark to light, for series whose values have an order. Nunez, Anderton, Renslow, PLOS
# ONE 13(7), 2018; the palest third is left out on white paper.
_ORDERED = ((0, 34, 78), (66, 78, 107), (124, 123, 120), (176, 157, 90), (212, 183, 64))


def ordered_color(fraction: float) -> str:
    """Return the color of a value at a fraction of the range of its series."""
    place = fraction * (len(_ORDERED) - 1)
    low = min(int(place), len(_ORDERED) - 2)
    pairs = zip(_ORDERED[low], _ORDERED[low + 1], strict=True)
    return "#" + "".join(f"{round(a + (place - low) * (b - a)):02x}" for a, b in pairs)


def ink_on(color: str) -> str:
    """Return the color of text on a color, by luminance (ITU-R BT.709 weights)."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    return INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 140 else "#FFFFFF"


def short(value: float) -> str:
    """Return a number as it stands in a bar or cell: three significant digits."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis of a panel."""

    label: str = ""
    """Title, with the unit."""
    log: bool = False
    """Whether it is logarithmic."""
    values: Sequence[Value] = ()
    """Values that have a tick; of bars, ranges and maps all categories, in order."""
    names: Sequence[str] = ()
    """Texts of the values; the values themselves if empty."""
    zero: bool = True
    """Whether it begins at zero."""
    span: tuple[float, float] | None = None
    """Both ends, where the data do not decide them."""

    @property
    def texts(self) -> list[str]:
        """Texts of the values."""
        return list(self.names) or [v if isinstance(v, str) else f"{v:,}" for v in self.values]

    @property
    def is_category(self) -> bool:
        """Whether the values are words."""
        return any(isinstance(value, str) for value in self.values)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One series: a line, points, an area, the bars of one color, or a row of cells."""

    name: str
    """Name in the legend, empty for none; of a map, the value of the other axis."""
    xs: Sequence[Value]
    """Places along the axis x; of sideways panels that axis points down."""
    ys: Sequence[float | None]
    """Values, in the unit of the axis; lengths of bars."""
    mode: Literal["line", "points", "area"] = "line"
    """How a panel of lines draws it; an area has only `low` and `high`."""
    low: Sequence[float] = ()
    """Lower ends of the interval; empty if none is drawn."""
    high: Sequence[float] = ()
    """Upper ends of the interval."""
    base: Sequence[float] = ()
    """Start of every bar; empty if bars begin at zero or on each other."""
    texts: Sequence[str] = ()
    """Text in or above every bar, or in every cell."""
    hover: Sequence[str] = ()
    """What the pointer shows, lines separated by `<br>`."""
    color: str = PALETTE[0]
    dash: str = "solid"
    """One of DASHES."""
    marker: str = "circle"
    """One of MARKERS; empty for none."""
    steps: bool = False
    """Whether the line goes in steps."""
    view: str = ""
    """Of figures with several views: the one that shows it."""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """Points to look at, under one name of the legend."""

    name: str
    """Name in the legend; empty for none."""
    xs: Sequence[Value]
    ys: Sequence[float]
    hover: Sequence[str] = ()
    labels: Sequence[str] = ()
    """Text above every mark; empty for none."""
    beside: Sequence[str] = ()
    """Of bars: name of the trace that each stands for; empty for the middle."""
    symbol: Literal["star", "cross", "ring", "open-star"] = "star"


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A straight reference line."""

    value: float
    """Place on the axis of values; of ordinary panels the line is level."""
    name: str = ""
    """Text beside it."""
    color: str = INK
    dash: str = "solid"
    high: float | None = None
    """Other end of a shaded span; None for a line."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One pair of axes."""

    kind: Literal["lines", "bars", "ranges", "map"]
    """lines: series over x. bars: bars by category. ranges: a dot and its interval by category.
    map: cells of two categories."""
    x: Axis
    """Axis of `Trace.xs`."""
    y: Axis
    """Axis of `Trace.ys`; of a map, the categories upwards."""
    traces: Sequence[Trace]
    title: str = ""
    marks: Sequence[Marks] = ()
    rules: Sequence[Rule] = ()
    sideways: bool = False
    """Whether categories go down and bars to the right."""
    stacked: bool = False
    """Whether the bars of a category follow each other."""
    ends: Sequence[str] = ()
    """Text behind the last bar of every category."""
    scale: str = ""
    """Of a map: title of the color bar."""
    frame: tuple[Value, Value] | None = None
    """Of a map: the cell with a frame."""
    width: float = 1.0
    """Width relative to its neighbors."""
    stretch: float = 1.0
    """Height relative to that of its kind."""

    @property
    def height(self) -> float:
        """Height of the axes, inches."""
        count = max(len(self.x.values), 1)
        if self.kind == "map":
            return 0.6 + 0.42 * max(len(self.y.values), 3)
        if not self.sideways:
            return 3.1 * self.stretch
        if self.stacked or any(trace.base for trace in self.traces):
            return count * max(0.1, min(0.34, 5.8 / count))
        return count * (0.13 * len(self.traces) + 0.11)

    @property
    def values(self) -> list[float]:
        """Everything that its axis of values must show."""
        ends: dict[tuple[Value, str], float] = {}
        found = [mark for marks in self.marks for mark in marks.ys]
        found += [rule.value for rule in self.rules]
        for trace in self.traces:
            found += [*trace.low, *trace.high]
            for place, y in enumerate(trace.ys):
                if y is not None:
                    start = trace.base[place] if trace.base else 0.0
                    if self.stacked:
                        key = (trace.xs[place], trace.view)
                        start = ends.get(key, 0.0)
                        ends[key] = start + y
                    found.append(start + y)
        return found


@dataclass(frozen=True, kw_only=True)
class Figure:
    """Panels under one legend, with what a reader has to know about them."""

    name: str
    """Name of its files, and of its element on a page."""
    panels: Sequence[Panel]
    """Row by row."""
    columns: int = 1
    """Panels side by side."""
    title: str = ""
    """Question, one line."""
    lead: str = ""
    """Answer, a sentence or two."""
    notes: Sequence[str] = ()
    """Sentences below the panels."""
    caption: str = ""
    """Sentence below the figure on a page with several figures."""
    sources: Sequence[str] = ()
    """Sources of the marks."""

    @property
    def views(self) -> list[str]:
        """Views to choose from; the last one, the finest, is the one on paper."""
        return list(dict.fromkeys(t.view for p in self.panels for t in p.traces if t.view))

    def on_paper(self, trace: Trace) -> bool:
        """Whether a still picture has a trace."""
        return not trace.view or trace.view == self.views[-1]

    @property
    def legend(self) -> list[str]:
        """Names of traces in order, then of marks; empty where one name would say nothing."""
        panels = [panel for panel in self.panels if panel.kind != "map"]
        traces = [t.name for panel in panels for t in panel.traces if self.on_paper(t)]
        marks = [m.name for panel in panels for m in panel.marks]
        names = [name for name in dict.fromkeys([*traces, *marks]) if name]
        return names if len(names) > 1 or marks else []


def thinning(place: int, count: int) -> float:
    """Return the relative width of a line; later lines are thinner, so that equal lines show."""
    return 1.5 - 0.6 * place / (count - 1) if count > 1 else 1.2


def cells(panel: Panel) -> list[list[tuple[float | None, str, str]]]:
    """Return (value, text, hover) of the cells of a map, rows upwards; value None if empty."""
    by_name = {trace.name: trace for trace in panel.traces}
    rows = []
    for name in panel.y.texts:
        trace = by_name.get(name, Trace(name=name, xs=(), ys=()))
        known = {x: place for place, x in enumerate(trace.xs)}
        row: list[tuple[float | None, str, str]] = []
        for x in panel.x.values:
            place = known.get(x)
            value = None if place is None else trace.ys[place]
            if place is None or value is None:
                row.append((None, "", ""))
            else:
                text = trace.texts[place] if trace.texts else short(value)
                row.append((value, text, trace.hover[place] if trace.hover else text))
        rows.append(row)
    return rows


def frame_place(panel: Panel) -> tuple[int, int]:
    """Return column and row of the cell of a map that has a frame."""
    assert panel.frame is not None
    x, y = panel.frame
    return list(panel.x.values).index(x), list(panel.y.values).index(y)
