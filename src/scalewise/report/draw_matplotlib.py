"""Renderer of figures with matplotlib: SVG and PNG.

    image(figure, "svg")            # bytes; needs the extra `plot`
    images(figure)["png"]           # both kinds from one layout

The same figure gives the same bytes. SVG text is drawn as paths, so that it looks the same
everywhere. No window, no global state.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Sequence
from typing import Any, Literal

from scalewise.errors import require
from scalewise.report.figure import (
    DEEP,
    FRAME,
    GRAY,
    INK,
    PALE,
    Figure,
    Marks,
    Panel,
    Value,
    cells,
    frame_place,
    ink_on,
    thinning,
)

WIDTH = 11.0
"""Width of a figure, inches."""
DPI = 160
"""Dots per inch of PNG."""
TICKS = 12
"""Maximum number of named ticks of one axis."""

_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
_MARKERS = {"circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "cross": "P",
            "x": "X", "": ""}  # fmt: skip
_SYMBOLS: dict[str, dict[str, Any]] = {
    "star": {"marker": "*", "markersize": 12, "markerfacecolor": "black",
             "markeredgecolor": "white", "markeredgewidth": 0.8},
    "cross": {"marker": "x", "markersize": 6, "markeredgecolor": "black", "markeredgewidth": 1.4},
    "ring": {"marker": "o", "markersize": 11, "markerfacecolor": "none", "markeredgecolor": INK},
    "open-star": {"marker": "*", "markersize": 11, "markerfacecolor": "white",
                  "markeredgecolor": INK, "markeredgewidth": 0.9},
}  # fmt: skip
_SETTINGS = {
    "svg.fonttype": "path", "svg.hashsalt": "scalewise", "font.size": 9,
    "text.parse_math": False,  # "$1.4M to $2.1M" is text
    "axes.edgecolor": "#888888", "axes.labelcolor": INK, "text.color": INK,
    "xtick.color": INK, "ytick.color": INK, "axes.spines.top": False, "axes.spines.right": False,
}  # fmt: skip
_METADATA: dict[str, dict[str, None]] = {"svg": {"Date": None}, "png": {"Software": None}}


def image(figure: Figure, kind: Literal["svg", "png"]) -> bytes:
    """Draw a figure as one file."""
    return images(figure, (kind,))[kind]


def images(figure: Figure, kinds: Sequence[str] = ("svg", "png")) -> dict[str, bytes]:
    """Draw a figure once and return the bytes of each kind.

    Raises:
        MissingExtraError: If matplotlib is not installed.
    """
    mpl: Any = require("matplotlib", "plot")
    files: dict[str, bytes] = {}
    with mpl.rc_context(_SETTINGS):
        drawing = canvas(figure)
        if drawing.axes:
            drawing.get_layout_engine().execute(drawing)
        drawing.set_layout_engine("none")
        for axis in drawing.axes:
            # The solver's last digits differ from run to run.
            axis.set_position([round(number, 6) for number in axis.get_position().bounds])
        for kind in kinds:
            file = io.BytesIO()
            drawing.savefig(file, format=kind, dpi=DPI, metadata=_METADATA[kind])
            files[kind] = file.getvalue()
    return files


def canvas(figure: Figure) -> Any:
    """Draw a figure as a matplotlib figure: title, lead and legend, panels, notes."""
    figures: Any = require("matplotlib.figure", "plot")
    panels = figure.panels
    columns = min(figure.columns, len(panels)) or 1
    rows = [panels[first : first + columns] for first in range(0, len(panels), columns)]
    width = 0.72 * WIDTH if len(panels) == 1 and not panels[0].sideways else WIDTH
    heights = [max(p.height + 0.62 + 0.25 * bool(p.title) for p in row) for row in rows] or [1.0]
    names = figure.legend
    longest = max(map(len, names), default=1)
    across = max(1, min(len(names), int(13.6 * width) // (longest + 7)))
    head = textwrap.wrap(figure.title, int(9.2 * width))
    lead = textwrap.wrap(figure.lead, int(13.2 * width))
    notes = [line for note in figure.notes for line in textwrap.wrap(note, int(17.5 * width))]
    legend_top = 0.1 + 0.22 * len(head) + 0.18 * len(lead)
    top = legend_top + 0.23 * -(-len(names) // across)
    bottom = 0.05 + 0.155 * len(notes)
    whole = top + sum(heights) + bottom
    drawing = figures.Figure(figsize=(width, whole), layout="constrained", facecolor="white")
    drawing.get_layout_engine().set(
        w_pad=0.08, h_pad=0.06, rect=(0.0, bottom / whole, 1.0, sum(heights) / whole)
    )
    handles: dict[str, Any] = {}
    if panels:
        grid = drawing.subplots(
            len(rows), columns, squeeze=False, height_ratios=heights,
            width_ratios=[panel.width for panel in rows[0]],
        )  # fmt: skip
        for place, axis in enumerate(grid.flat):
            if place < len(panels):
                painter = _Painter(axis, figure, panels[place], handles, width / columns)
                painter.draw(first=place % columns == 0)
            else:
                axis.axis("off")
    down = 0.08
    for lines, step, style in (
        (head, 0.22, {"fontsize": 12, "fontweight": "bold"}),
        (lead, 0.18, {}),
    ):
        down = _write(drawing, lines, down, step, **style)
    shown = [name for name in names if name in handles]
    order = by_rows(len(shown), across)
    if shown:
        drawing.legend(
            [handles[shown[place]] for place in order], [shown[place] for place in order],
            loc="upper left", bbox_to_anchor=(0.0, 1.0 - legend_top / whole), ncols=across,
            frameon=False, fontsize=8.5, handlelength=2.6, columnspacing=1.5, borderpad=0.1,
        )  # fmt: skip
    _write(drawing, notes, whole - bottom, 0.155, fontsize=8, color=GRAY)
    return drawing


def _write(drawing: Any, lines: Sequence[str], top: float, step: float, **style: Any) -> float:
    """Write lines from the left edge, in inches from the top; return where the next begins."""
    height = drawing.get_figheight()
    for line in lines:
        drawing.text(0.008, 1.0 - top / height, line, ha="left", va="top", **style)
        top += step
    return top


def by_rows(count: int, columns: int) -> list[int]:
    """Return places in the order in which matplotlib, which fills columns, shows them by rows."""
    rows, full = divmod(count, columns)
    heights = [rows + (column < full) for column in range(columns)]
    return [row * columns + column for column in range(columns) for row in range(heights[column])]


class _Painter:
    """Draws one panel, and keeps what the legend shows."""

    def __init__(
        self, axis: Any, figure: Figure, panel: Panel, handles: dict[str, Any], width: float
    ) -> None:
        self.axis, self.panel, self.handles, self.width = axis, panel, handles, width
        self.traces = [trace for trace in panel.traces if figure.on_paper(trace)]

    def draw(self, *, first: bool) -> None:
        """Draw everything; the first of a row names its categories."""
        axis, panel = self.axis, self.panel
        if panel.title:
            axis.set_title(panel.title, fontsize=9.5, fontweight="bold", loc="left")
        if panel.kind == "map":
            self.map()
            return
        {"bars": self.bars, "ranges": self.ranges, "lines": self.lines}[panel.kind]()
        for marks in panel.marks:
            self.marks(marks)
        self.rules()
        self.key_axis(named=first or not panel.sideways)
        self.value_axis()
        both = panel.kind == "lines"
        axis.grid(axis="both" if both else "x" if panel.sideways else "y", alpha=0.2)
        axis.set_axisbelow(True)

    def at(self, x: Value) -> float:
        """Return where a value lies: a category at its place in the list."""
        if self.panel.kind != "lines" or isinstance(x, str):
            return float(list(self.panel.x.values).index(x))
        return float(x)

    def lines(self) -> None:
        """Draw lines, points and areas."""
        lines = [trace for trace in self.traces if trace.mode == "line"]
        for trace in self.traces:
            xs = [self.at(x) for x in trace.xs]
            if trace.low:
                style = {"color": trace.color, "alpha": 0.12, "linewidth": 0}
                area = self.axis.fill_between(xs, trace.low, trace.high, **style)
                if trace.mode == "area":
                    self.handles.setdefault(trace.name, area)
                    continue
            joined = trace.mode == "line"
            thin = thinning(lines.index(trace), len(lines)) if joined else 1.0
            (line,) = self.axis.plot(
                xs, trace.ys, color=trace.color, linewidth=1.4 * thin,
                linestyle=_DASHES[trace.dash] if joined else "none", alpha=1.0 if joined else 0.8,
                drawstyle="steps-post" if trace.steps else "default",
                marker=_MARKERS[trace.marker], markersize=4 * thin, markeredgewidth=0,
            )  # fmt: skip
            self.handles.setdefault(trace.name, line)

    def bars(self) -> None:
        """Draw bars: beside each other, on each other, or where their base is."""
        axis, panel = self.axis, self.panel
        floating = any(trace.base for trace in self.traces)
        count = 1 if floating or panel.stacked else max(len(self.traces), 1)
        thick = 0.8 / count
        low, high = panel.y.span or (0.0, max(map(abs, panel.values), default=0.0) or 1.0)
        reach = high - low
        ends = dict.fromkeys(panel.x.values, 0.0)
        for number, trace in enumerate(self.traces):
            shift = (number - (count - 1) / 2) * thick if count > 1 else 0.0
            places = [self.at(x) + shift for x in trace.xs]
            lengths = [y or 0.0 for y in trace.ys]
            starts = list(trace.base) or [ends[x] if panel.stacked else 0.0 for x in trace.xs]
            bars = list(zip(places, starts, lengths, strict=True))
            edges = [0.5 if count == 1 and abs(n) > 0.004 * reach else 0.0 for n in lengths]
            style = {"color": trace.color, "edgecolor": "white", "linewidth": edges}
            if floating and panel.sideways:
                # One collection per row: a schedule has thousands of bars.
                for place in dict.fromkeys(places):
                    pieces = [(start, length) for at, start, length in bars if at == place]
                    wide = [0.5 if length > 0.004 * reach else 0.0 for _, length in pieces]
                    handle = axis.broken_barh(
                        pieces, (place - 0.42, 0.84), facecolors=trace.color, edgecolors="white",
                        linewidths=wide,
                    )  # fmt: skip
                    self.handles.setdefault(trace.name, handle)
            else:
                draw, side = (axis.barh, "left") if panel.sideways else (axis.bar, "bottom")
                handle = draw(places, lengths, 0.94 * thick, **{side: starts}, **style)
                self.handles.setdefault(trace.name, handle)
            for x, (_, start, length) in zip(trace.xs, bars, strict=True):
                ends[x] = max(ends[x], start, start + length)
            for bar, text in zip(bars, trace.texts, strict=False):
                self.bar_text(bar, text, ink_on(trace.color), reach)
        first = max((rule.value for rule in panel.rules), default=0.0)
        for x, text in zip(panel.x.values, panel.ends, strict=False):
            self.note(text, (max(ends[x], first), self.at(x)), (5, 0), va="center")
        for x in panel.x.values:
            if not panel.sideways and not any(x in trace.xs for trace in self.traces):
                upright: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "bottom"}
                axis.text(self.at(x), 0.0, " unknown", fontsize=7, **upright)

    def bar_text(self, bar: tuple[float, float, float], text: str, ink: str, reach: float) -> None:
        """Write into a bar, or above it where it is too short and stands upright."""
        place, start, length = bar
        middle, style = start + length / 2, {"fontsize": 7.5, "color": ink, "clip_on": True}
        if self.panel.sideways:
            if abs(length) > (0.013 * len(text) + 0.006) * reach:
                self.axis.text(middle, place, text, ha="center", va="center", **style)
            return
        turned = 90 if len(self.traces) * len(self.panel.x.values) > 12 else 0
        inside = abs(length) > 0.15 * reach
        above = max(start, start + length) + 0.01 * reach
        self.axis.text(
            place, middle if inside else above, text, ha="center", rotation=turned,
            va="center" if inside else "bottom", **(style if inside else {"fontsize": 7.5}),
        )  # fmt: skip

    def note(
        self, text: str, at: tuple[float, float], shift: tuple[float, float], **style: Any
    ) -> None:
        """Write a text beside a point, shifted by points of the page."""
        style = {"fontsize": 8, "linespacing": 1.1, "textcoords": "offset points"} | style
        self.axis.annotate(text, at, xytext=shift, **style)

    def ranges(self) -> None:
        """Draw a dot and its interval for every category, side by side."""
        for number, trace in enumerate(self.traces):
            shift = (number - (len(self.traces) - 1) / 2) * 0.32
            for x, y, low, high in zip(trace.xs, trace.ys, trace.low, trace.high, strict=True):
                at = [self.at(x) + shift] * 2
                self.axis.plot([low, high], at, color=trace.color, alpha=0.4, linewidth=4)
                style = {"marker": _MARKERS[trace.marker], "markersize": 5, "linestyle": "none"}
                (dot,) = self.axis.plot(y, at[0], color=trace.color, **style)
                self.handles.setdefault(trace.name, dot)

    def marks(self, marks: Marks) -> None:
        """Draw marks, with their labels above them."""
        panel = self.panel
        order = {trace.name: number for number, trace in enumerate(self.traces)}
        middle, thick = (len(order) - 1) / 2, 0.8 / max(len(order), 1)
        words = panel.kind == "bars" or panel.x.is_category
        kept = [n for n, x in enumerate(marks.xs) if not words or x in panel.x.values]
        if not kept:
            return
        xs = [self.at(marks.xs[n]) for n in kept]
        if panel.kind == "bars":
            names = [marks.beside[n] if marks.beside else "" for n in kept]
            shifts = [thick * (order.get(name, middle) - middle) for name in names]
            xs = [x + shift for x, shift in zip(xs, shifts, strict=True)]
        style = {"linestyle": "none", "zorder": 6, "clip_on": False} | _SYMBOLS[marks.symbol]
        (handle,) = self.axis.plot(xs, [marks.ys[n] for n in kept], **style)
        self.handles.setdefault(marks.name, handle)
        # Of several labels at one place, one.
        for x, n in dict(zip(xs, kept, strict=True)).items() if marks.labels else ():
            box = {"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5}
            self.note(marks.labels[n], (x, marks.ys[n]), (0, 7), ha="center", zorder=7, bbox=box)

    def rules(self) -> None:
        """Draw reference lines and spans, across the axis of values."""
        axis, sideways = self.axis, self.panel.sideways
        for rule in self.panel.rules:
            if rule.high is not None:
                span = axis.axvspan if sideways else axis.axhspan
                span(rule.value, rule.high, color=rule.color, alpha=0.12, linewidth=0, zorder=0)
            else:
                line = axis.axvline if sideways else axis.axhline
                line(rule.value, color=rule.color, linewidth=0.9, linestyle=_DASHES[rule.dash])
            if rule.name and not sideways:
                place, system = (1.0, rule.high or rule.value), ("axes fraction", "data")
                self.note(rule.name, place, (-3, 2), xycoords=system, ha="right")

    def key_axis(self, *, named: bool) -> None:
        """Name the categories, or the values of x."""
        axis, panel, x = self.axis, self.panel, self.panel.x
        count = len(x.values)
        if panel.sideways:
            every = max(1, math.ceil(0.16 * count / panel.height))
            names = ["\n".join(textwrap.wrap(name, 48)) if named else "" for name in x.texts]
            axis.set_yticks(range(0, count, every), names[::every])
            axis.set_ylim(count - 0.4, -0.6)
            axis.tick_params(axis="y", length=0)
            return
        axis.set_xlabel(x.label)
        if panel.kind == "lines" and x.log and not x.is_category:
            axis.set_xscale("log", base=2 if x.values else 10)
            if x.values:
                axis.minorticks_off()
                axis.set_xlim(float(min(x.values)) / 1.2, float(max(x.values)) * 1.2)
        if x.span is not None:
            axis.set_xlim(*x.span)
        if not x.values:
            _number_ticks(axis.xaxis, log=x.log)
            return
        # Counted from the last, which is what people look for.
        every = -(-count // (TICKS if panel.kind == "lines" else 40))
        texts = x.texts[::-1][::every]
        slanted = sum(len(text) + 2 for text in texts) > 10.5 * self.width
        axis.set_xticks(
            [self.at(value) for value in x.values][::-1][::every], texts,
            rotation=40 if slanted else 0, ha="right" if slanted else "center",
        )  # fmt: skip
        if panel.kind == "bars":
            spare = max(5 - count, 0) / 2 if panel.stacked else 0.0
            axis.set_xlim(-0.6 - spare, count - 0.4 + spare)

    def value_axis(self) -> None:
        """Scale and name the axis of values."""
        axis, y, values = self.axis, self.panel.y, self.panel.values
        letter = "x" if self.panel.sideways else "y"
        wrapped = y.label.replace(" (", "\n(") if len(y.label) > 40 else y.label
        axis.set(**{f"{letter}label": y.label if letter == "x" else wrapped})
        if y.log:
            axis.set(**{f"{letter}scale": "log"})
        _number_ticks(axis.xaxis if letter == "x" else axis.yaxis, log=y.log)
        if y.span is not None:
            axis.set(**{f"{letter}lim": y.span})
        elif y.zero and values and not y.log:
            low, high = min(values), max(values)
            room = 1.27 if self.panel.ends else 1.06
            ends = room * low if low < 0.0 else 0.0, room * high if high > 0.0 else 1.0
            axis.set(**{f"{letter}lim": ends})
            if low < 0.0:
                (axis.axvline if letter == "x" else axis.axhline)(0.0, color=INK, linewidth=0.8)

    def map(self) -> None:
        """Draw cells with their text; cells without a value stay white."""
        colors: Any = require("matplotlib.colors", "plot")
        patches: Any = require("matplotlib.patches", "plot")
        axis, panel = self.axis, self.panel
        shades = colors.LinearSegmentedColormap.from_list("scalewise", [PALE, DEEP])
        grid = cells(panel)
        known = [value for row in grid for value, _, _ in row if value is not None]
        low, high = min(known), max(known)
        filled = [[math.nan if value is None else value for value, _, _ in row] for row in grid]
        shown = axis.imshow(filled, origin="lower", cmap=shades, vmin=low, vmax=high, aspect="auto")
        for up, row in enumerate(grid):
            for right, (value, text, _) in enumerate(row):
                dark = value is not None and value > low + 0.5 * (high - low)
                style = {"ha": "center", "va": "center", "fontsize": 8}
                axis.text(right, up, text or "-", color="white" if dark else INK, **style)
        if panel.frame is not None:
            right, up = frame_place(panel)
            style = {"fill": False, "edgecolor": FRAME, "linewidth": 2}
            axis.add_patch(patches.Rectangle((right - 0.49, up - 0.49), 0.98, 0.98, **style))
        axis.set_xticks(range(len(panel.x.values)), panel.x.texts)
        axis.set_yticks(range(len(panel.y.values)), panel.y.texts)
        axis.set(xlabel=panel.x.label, ylabel=panel.y.label)
        axis.figure.colorbar(shown, ax=axis, label=panel.scale, shrink=0.9)


def _number_ticks(ticks: Any, *, log: bool) -> None:
    """Set the texts of an axis of numbers; a logarithmic one has 1, 2 and 5 times powers of 10."""
    ticker: Any = require("matplotlib.ticker", "plot")
    if log:
        ticks.set_major_locator(ticker.LogLocator(base=10, subs=(1, 2, 5)))
        ticks.set_minor_formatter(ticker.NullFormatter())
    ticks.set_major_formatter(lambda value, _: _tick(value))


def _tick(value: float) -> str:
    if abs(value) >= 1e6:
        return f"{value / 1e6:,.10g}M"
    return f"{value:,.6g}" if abs(value) >= 1e-4 or value == 0 else f"{value:.0e}"
