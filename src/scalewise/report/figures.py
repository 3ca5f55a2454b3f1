"""How do scaling curves look on paper? Panels over size, with intervals, knees and crossovers.

    curves_image(curves, "svg")       # bytes; needs matplotlib, the extra `plot`
    curves_image(curves, "png")

Computing is `explore.scale`; what is shown in which colour is `curve_style`, for pages as well.
"""

from __future__ import annotations

import io
import textwrap
from typing import Any, Literal

from scalewise.errors import require
from scalewise.explore.points import KNEE, Curves
from scalewise.report import curve_style as style
from scalewise.report.curve_words import source_line, title
from scalewise.units import format_percent

WIDTH, ROW_HEIGHT = 12.5, 3.7
"""Inches."""
COLUMNS = 3
"""Panels beside each other."""
TICKS = 13
"""Most sizes that are named under an axis."""
TITLE = 110
"""Characters of a line of the title."""
CAPTION = 190
"""Characters of a line under the panels."""


def curves_image(curves: Curves, kind: Literal["svg", "png"], *, share: float = KNEE) -> bytes:
    """Draw the curves as a file.

    Args:
        curves: What to draw; points that cannot run are left out.
        kind: "svg", with text as paths so that it looks the same everywhere, or "png".
        share: Share of the first return below which a size is past its knee.

    Returns:
        The bytes of the file; the same for the same curves.
    """
    mpl: Any = require("matplotlib", "plot")
    page = io.BytesIO()
    settings = {
        "svg.fonttype": "path", "svg.hashsalt": "scalewise", "font.size": 9.5,
        "axes.edgecolor": "#888888", "axes.labelcolor": style.INK, "text.color": style.INK,
        "xtick.color": style.INK, "ytick.color": style.INK,
    }  # fmt: skip
    with mpl.rc_context(settings):
        figure = curves_drawing(curves, share=share)
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(page, format=kind, dpi=style.DOTS, metadata=metadata)
    return page.getvalue()


def curves_drawing(curves: Curves, *, share: float = KNEE) -> Any:
    """Draw the curves as a matplotlib figure, without a window and without global state."""
    figures: Any = require("matplotlib.figure", "plot")
    shown = style.panels(curves)
    columns = min(COLUMNS, len(shown)) or 1
    rows = -(-len(shown) // columns) or 1
    figure = figures.Figure(figsize=(WIDTH, ROW_HEIGHT * rows + 1.2), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.1, h_pad=0.08)
    axes = figure.subplots(rows, columns, squeeze=False)
    drawn = style.order(curves)
    for number, panel in enumerate(shown):
        axis = axes[number // columns][number % columns]
        for each in drawn:
            _draw_curve(axis, panel, each)
        if panel is style.THROUGHPUT:
            _draw_marks(axis, curves, share)
        _finish(axis, panel, curves)
    for number in range(len(shown), rows * columns):
        axes[number // columns][number % columns].axis("off")
    # The legend carries the title: matplotlib makes room for either, but not for both.
    handles, labels = axes[0][0].get_legend_handles_labels()
    across = _legend_columns(labels)
    places = _by_rows(len(handles), across)
    figure.legend(
        [handles[place] for place in places], [labels[place] for place in places],
        loc="outside upper left", ncols=across, frameon=False, alignment="left",
        title=textwrap.fill(title(curves), TITLE),
        title_fontproperties={"size": 12, "weight": "bold"},
    )  # fmt: skip
    figure.supxlabel(_caption(curves, share), x=0.01, ha="left", fontsize=8)
    return figure


def _caption(curves: Curves, share: float) -> str:
    """What the marks mean, and who says so."""
    knees = _told(style.knee_marks(curves, share))
    crossed = _told(style.crossover_marks(curves))
    lines = []
    if knees:
        enough = format_percent(share)
        lines.append(
            f"Knees, where an added accelerator brings less than {enough} of what each of the "
            f"first ones brings: {knees}."
        )
    if crossed:
        lines.append(f"Crossovers: {crossed}.")
    lines.append(f"Legend in order of throughput at the largest size. {source_line(curves)}")
    return "\n".join(textwrap.fill(line, CAPTION) for line in lines)


def _told(marks: list[style.Mark]) -> str:
    """Name the marks; of many, how many there are: the table and the page have the rest."""
    text = "; ".join(mark.text for mark in marks)
    return text if len(text) <= 2 * CAPTION else f"{len(marks)}, as marked"


def _legend_columns(labels: list[str]) -> int:
    """As many columns as the width has room for, by the longest name."""
    longest = max(map(len, labels), default=1)
    return max(1, min(len(labels), CAPTION // (longest + 9)))


def _by_rows(count: int, columns: int) -> list[int]:
    """Places in the order that makes matplotlib, which fills columns first, read along rows."""
    rows, full = divmod(count, columns)
    heights = [rows + (column < full) for column in range(columns)]
    return [row * columns + column for column in range(columns) for row in range(heights[column])]


def _draw_curve(axis: Any, panel: style.Panel, each: style.Drawn) -> None:
    sizes, values = panel.values(each.curve)
    axis.plot(
        sizes, values, color=each.colour, linestyle=style.PAPER_DASHES[each.dash],
        marker=style.PAPER_MARKERS[each.marker], markersize=4, linewidth=1.5, label=each.name,
    )  # fmt: skip
    if panel is style.THROUGHPUT:
        points = each.curve.feasible
        axis.fill_between(
            sizes, [point.low for point in points], [point.high for point in points],
            color=each.colour, alpha=0.10, linewidth=0,
        )  # fmt: skip


def _draw_marks(axis: Any, curves: Curves, share: float) -> None:
    """Rings around knees, stars where somebody is overtaken, with the size at each star."""
    knees, crossed = style.knee_marks(curves, share), style.crossover_marks(curves)
    kinds = ((knees, "o", "none", "knee"), (crossed, "*", "white", "crossover, with its size"))
    for marks, shape, face, name in kinds:
        if marks:
            axis.plot(
                [mark.accelerators for mark in marks], [mark.value for mark in marks],
                linestyle="none", marker=shape, markersize=10, markerfacecolor=face,
                markeredgecolor=style.INK, markeredgewidth=0.9, zorder=5, label=name,
            )  # fmt: skip
    for mark in {mark.accelerators: mark for mark in crossed}.values():
        axis.annotate(
            f"{mark.accelerators:,}", (mark.accelerators, mark.value), xytext=(0, 8),
            textcoords="offset points", ha="center", fontsize=8, zorder=6,
            bbox={"facecolor": "white", "alpha": 0.7, "linewidth": 0, "pad": 0.5},
        )  # fmt: skip


def _finish(axis: Any, panel: style.Panel, curves: Curves) -> None:
    """Axes with units: sizes doubling to the right, values from zero."""
    sizes = curves.sizes
    axis.set_xscale("log", base=2)
    # Counted from the largest, which is what people look for.
    named = sizes[::-1][:: -(-len(sizes) // TICKS)]
    axis.set_xticks(named, [f"{size:,}" for size in named], rotation=45, ha="right")
    axis.minorticks_off()
    axis.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    axis.set_xlabel("accelerators")
    axis.set_ylabel(panel.title)
    values = [value for curve in curves.curves for value in panel.values(curve)[1]]
    if panel is style.THROUGHPUT:
        values += [point.high for curve in curves.curves for point in curve.feasible]
    low, high = min(values), max(values)
    axis.set_ylim(1.05 * low if low < 0.0 else 0.0, 1.05 * high if high > 0.0 else 1.0)
    axis.yaxis.set_major_formatter(lambda value, _: f"{value:,.10g}")
    if low < 0.0:
        axis.axhline(0.0, color=style.INK, linewidth=0.8)
    axis.grid(alpha=0.2)
    axis.spines[["top", "right"]].set_visible(False)
