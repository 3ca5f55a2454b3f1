"""How does a figure of a study look on paper? The same drawing with matplotlib, as SVG or PNG.

    study_images(drawing)["svg"]      # bytes; needs matplotlib, the extra `plot`

What is shown in which colour is `study_style`, for pages as well.
"""

from __future__ import annotations

import io
import textwrap
from typing import Any

from scalewise._version import __version__
from scalewise.errors import require
from scalewise.report import curve_style as style
from scalewise.report.study_style import Drawing, Panel, Trace
from scalewise.study.measures import Value

WIDTH = 11.0
"""Inches."""
ROW_HEIGHT = 3.5
"""Inches of one row of panels."""
COLUMNS = 3
"""Panels beside each other."""
LETTERS = 150
"""Characters across the figure at the size of the legend."""
TICKS = 10
"""Most values named under an axis."""

_PALE, _DEEP = "#f3ead3", "#00224e"


def study_images(drawing: Drawing) -> dict[str, bytes]:
    """Draw a figure once, as SVG and as PNG.

    Args:
        drawing: What to draw.

    Returns:
        The bytes by ending, the same for the same drawing. The text of the SVG is drawn as paths,
        so that it looks the same everywhere.
    """
    mpl: Any = require("matplotlib", "plot")
    settings = {
        "svg.fonttype": "path", "svg.hashsalt": "scalewise", "font.size": 9,
        "axes.edgecolor": "#888888", "axes.labelcolor": style.INK, "text.color": style.INK,
        "xtick.color": style.INK, "ytick.color": style.INK,
    }  # fmt: skip
    images: dict[str, bytes] = {}
    with mpl.rc_context(settings):
        figure = _drawn(drawing)
        for ending, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            page = io.BytesIO()
            figure.savefig(page, format=ending, dpi=style.DOTS, metadata=metadata)
            # Laid out once: the second file takes half the time.
            figure.set_layout_engine("none")
            images[ending] = page.getvalue()
    return images


def _drawn(drawing: Drawing) -> Any:
    figures: Any = require("matplotlib.figure", "plot")
    count = max(len(drawing.panels), 1)
    columns = 2 if count in (2, 4) else min(COLUMNS, count)
    rows = -(-count // columns)
    height = ROW_HEIGHT
    if drawing.kind == "changes":
        columns, rows = min(count, 2), -(-count // 2)
        height = 0.8 + 0.27 * len(drawing.xs)
    width = WIDTH if columns > 1 or drawing.kind == "changes" else 0.72 * WIDTH
    names = drawing.names if drawing.kind != "map" else []
    lines = -(-len(names) // _across(names, width)) if names else 0
    figure = figures.Figure(
        figsize=(width, height * rows + 0.22 * lines + 0.35), layout="constrained"
    )
    figure.get_layout_engine().set(w_pad=0.08, h_pad=0.06)
    axes = figure.subplots(rows, columns, squeeze=False)
    handles: dict[str, Any] = {}
    for place in range(rows * columns):
        axis = axes[place // columns][place % columns]
        if place >= len(drawing.panels):
            axis.axis("off")
            continue
        panel = drawing.panels[place]
        if drawing.kind == "map":
            _map(figure, axis, drawing, panel)
        elif drawing.kind == "changes":
            _changes(axis, drawing, panel, handles, first=place % columns == 0)
        elif drawing.kind == "bars":
            _bars(axis, drawing, panel, handles)
        else:
            _lines(axis, drawing, panel, handles, columns)
        if panel.title:
            axis.set_title(panel.title, fontsize=9.5, fontweight="bold")
        if drawing.kind != "map":
            axis.spines[["top", "right"]].set_visible(False)
    order = [name for name in names if name in handles]
    if len(order) > 1 or any(panel.marks for panel in drawing.panels):
        across = _across(order, width)
        # matplotlib fills columns first; people read along rows.
        high = -(-len(order) // across)
        by_rows = [r * across + c for c in range(across) for r in range(high)]
        places = [place for place in by_rows if place < len(order)]
        figure.legend(
            [handles[order[place]] for place in places], [order[place] for place in places],
            loc="outside upper left", ncols=across, frameon=False, fontsize=8.5,
            handlelength=3.4, columnspacing=1.4,
        )  # fmt: skip
    figure.supxlabel(
        f"Predicted by scalewise {__version__} unless marked as measured or published.",
        x=0.01, ha="left", fontsize=7, color="#666666",
    )  # fmt: skip
    return figure


def _across(names: list[str], width: float) -> int:
    """As many columns of the legend as there is room for, by the longest name."""
    longest = max(map(len, names), default=1)
    return max(1, min(len(names) or 1, int(LETTERS * width / WIDTH) // (longest + 9)))


def _lines(
    axis: Any, drawing: Drawing, panel: Panel, handles: dict[str, Any], columns: int
) -> None:
    words = _is_words(drawing)
    for place, trace in enumerate(panel.traces):
        xs = _places(drawing, trace.xs)
        thin = thinning(place, len(panel.traces))
        (line,) = axis.plot(
            xs, trace.ys, color=trace.colour, linestyle=style.PAPER_DASHES[trace.dash],
            marker=style.PAPER_MARKERS[trace.marker], markersize=4 * thin, linewidth=1.4 * thin,
        )  # fmt: skip
        handles.setdefault(trace.name, line)
        if trace.low and len(trace.low) == len(xs):
            axis.fill_between(
                xs, trace.low, trace.high, color=trace.colour, alpha=0.10, linewidth=0
            )
    _marks(axis, drawing, panel, handles)
    if drawing.log_y:
        axis.set_yscale("log")
    else:
        _from_zero(axis, panel)
    if words or not drawing.x.log:
        if words:
            axis.set_xticks(range(len(drawing.xs)), [str(x) for x in drawing.xs])
    else:
        axis.set_xscale("log", base=2)
        named = drawing.xs[::-1][:: -(-len(drawing.xs) // TICKS)]
        labels = [drawing.x.show(x) for x in named]
        slanted = sum(map(len, labels)) > 56 / columns
        axis.set_xticks(
            [float(x) for x in named], labels,
            rotation=45 if slanted else 0, ha="right" if slanted else "center",
        )  # fmt: skip
        axis.minorticks_off()
    axis.set_xlabel(drawing.x.label)
    axis.set_ylabel("\n".join(textwrap.wrap(panel.metric.label, 38)))
    axis.grid(alpha=0.2)


def _bars(axis: Any, drawing: Drawing, panel: Panel, handles: dict[str, Any]) -> None:
    """Bars for each x, those of one x beside each other, each with its value."""
    count = max(len(panel.traces), 1)
    thick = 0.8 / count
    highest = max((y for trace in panel.traces for y in trace.ys), default=0.0)
    for number, trace in enumerate(panel.traces):
        shift = (number - (count - 1) / 2) * thick
        xs = [drawing.xs.index(x) + shift for x in trace.xs]
        bars = axis.bar(xs, trace.ys, width=0.92 * thick, color=trace.colour)
        handles.setdefault(trace.name, bars)
        if count * len(drawing.xs) <= 24:
            turned = 90 if count * len(drawing.xs) > 12 else 0
            tall = [y > 0.15 * highest for y in trace.ys]
            inside = [_short(y) if fits else "" for y, fits in zip(trace.ys, tall, strict=True)]
            above = ["" if fits else _short(y) for y, fits in zip(trace.ys, tall, strict=True)]
            axis.bar_label(
                bars, inside, fontsize=7, label_type="center", color="white", rotation=turned
            )
            axis.bar_label(bars, above, fontsize=7, padding=1.5, rotation=turned)
    _marks(axis, drawing, panel, handles)
    known = {x for trace in panel.traces for x in trace.xs}
    for place, x in enumerate(drawing.xs):
        if x not in known:
            axis.text(place, 0.0, " not known", rotation=90, ha="center", va="bottom", fontsize=7)
    axis.set_xlim(-0.6, len(drawing.xs) - 0.4)
    labels = [drawing.x.show(x) for x in drawing.xs]
    slanted = sum(map(len, labels)) > 34
    axis.set_xticks(
        range(len(labels)), labels, rotation=35 if slanted else 0,
        ha="right" if slanted else "center",
    )  # fmt: skip
    if drawing.log_y:
        axis.set_yscale("log")
    else:
        _from_zero(axis, panel)
    axis.set_ylabel("\n".join(textwrap.wrap(panel.metric.label, 38)))
    axis.grid(axis="y", alpha=0.2)
    axis.set_axisbelow(True)


def _changes(
    axis: Any, drawing: Drawing, panel: Panel, handles: dict[str, Any], *, first: bool
) -> None:
    """Bars to the right, because the names of changes are long."""
    count = max(len(panel.traces), 1)
    thick = 0.8 / count
    for number, trace in enumerate(panel.traces):
        shift = (number - (count - 1) / 2) * thick
        pairs = [(x, y) for x, y in zip(trace.xs, trace.ys, strict=True) if x in drawing.xs]
        bars = axis.barh(
            [drawing.xs.index(x) + shift for x, _ in pairs], [y for _, y in pairs],
            height=0.92 * thick, color=trace.colour,
        )  # fmt: skip
        handles.setdefault(trace.name, bars)
    names = [str(x) for x in drawing.xs] if first else [""] * len(drawing.xs)
    axis.set_yticks(range(len(drawing.xs)), names)
    axis.set_ylim(len(drawing.xs) - 0.4, -0.6)
    axis.axvline(0.0, color="#444444", linewidth=0.8)
    axis.set_xlabel(panel.metric.label)
    axis.grid(axis="x", alpha=0.25)
    axis.set_axisbelow(True)


def _map(figure: Any, axis: Any, drawing: Drawing, panel: Panel) -> None:
    """Cells with their value written into them; what cannot run stays white."""
    colours: Any = require("matplotlib.colors", "plot")
    shades = colours.LinearSegmentedColormap.from_list("scalewise", [_PALE, _DEEP])
    grid = cells(drawing, panel)
    known = [value for line in grid for value in line if value is not None]
    low, high = min(known), max(known)
    filled = [[float("nan") if value is None else value for value in line] for line in grid]
    image = axis.imshow(filled, origin="lower", cmap=shades, vmin=low, vmax=high, aspect="auto")
    for up, line in enumerate(grid):
        for right, value in enumerate(line):
            dark = value is not None and value > low + 0.5 * (high - low)
            axis.text(
                right, up, "-" if value is None else _short(value), ha="center", va="center",
                fontsize=8, color="white" if dark else style.INK,
                fontweight="bold" if value == high else "normal",
            )  # fmt: skip
    axis.set_xticks(range(len(drawing.xs)), [drawing.x.show(x) for x in drawing.xs])
    assert drawing.up is not None
    axis.set_yticks(range(len(drawing.ups)), [drawing.up.show(u) for u in drawing.ups])
    axis.set_xlabel(drawing.x.label)
    axis.set_ylabel(drawing.up.label)
    figure.colorbar(image, ax=axis, label=panel.metric.label, shrink=0.9)


def cells(drawing: Drawing, panel: Panel) -> list[list[float | None]]:
    """The values of a map, rows upwards, None where nothing can run."""
    assert drawing.up is not None
    by_name = {trace.name: trace for trace in panel.traces}
    grid: list[list[float | None]] = []
    for up in drawing.ups:
        trace = by_name.get(drawing.up.show(up), Trace(name="", xs=[], ys=[]))
        known = dict(zip(trace.xs, trace.ys, strict=True))
        grid.append([known.get(x) for x in drawing.xs])
    return grid


def _marks(axis: Any, drawing: Drawing, panel: Panel, handles: dict[str, Any]) -> None:
    """Measured numbers: published ones as stars, runs laid over as crosses, in black."""
    places = {trace.name: number for number, trace in enumerate(panel.traces)}
    middle, thick = (len(places) - 1) / 2, 0.8 / max(len(places), 1)
    for each in panel.marks:
        points = [
            (x, y, beside) for x, y, beside in zip(each.xs, each.ys, each.beside, strict=True)
            if x in drawing.xs or not (_is_words(drawing) or drawing.kind == "bars")
        ]  # fmt: skip
        xs = (
            [drawing.xs.index(x) + thick * (places.get(b, middle) - middle) for x, _, b in points]
            if drawing.kind == "bars"
            else _places(drawing, [x for x, _, _ in points])
        )
        (mark,) = axis.plot(
            xs, [y for _, y, _ in points], linestyle="none", zorder=6,
            marker="*" if each.published else "x", markersize=12 if each.published else 6,
            markerfacecolor="black", markeredgecolor="white" if each.published else "black",
            markeredgewidth=0.8 if each.published else 1.4,
        )  # fmt: skip
        handles.setdefault(each.name, mark)


def _is_words(drawing: Drawing) -> bool:
    return any(isinstance(x, str) for x in drawing.xs)


def _places(drawing: Drawing, xs: list[Value]) -> list[float]:
    """Where values lie on the axis: words at their place in the list."""
    if _is_words(drawing):
        return [float(drawing.xs.index(x)) for x in xs]
    return [float(x) for x in xs]


def _from_zero(axis: Any, panel: Panel) -> None:
    values = [y for trace in panel.traces for y in (*trace.ys, *trace.high)]
    values += [y for each in panel.marks for y in each.ys]
    if panel.metric.zero and values:
        low, high = min(values), max(values)
        axis.set_ylim(1.08 * low if low < 0.0 else 0.0, 1.08 * high if high > 0.0 else 1.0)
    axis.yaxis.set_major_formatter(lambda value, _: _tick(value))


def thinning(place: int, count: int) -> float:
    """Later lines are thinner, so that lines that coincide can all be seen."""
    return 1.5 - 0.6 * place / (count - 1) if count > 1 else 1.2


def _tick(value: float) -> str:
    return f"{value / 1e6:,.10g}M" if abs(value) >= 1e6 else f"{value:,.10g}"


def _short(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
