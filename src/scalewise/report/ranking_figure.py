"""How does a search look on paper? One bar per strategy, made of where its step goes.

    ranking_image(found, "svg")       # bytes; needs matplotlib, the extra `plot`
    ranking_image(found, "png")

Computing is `explore.search`; what is shown in which colour is `ranking_style`, for pages as well.
"""

from __future__ import annotations

import io
import textwrap
from typing import TYPE_CHECKING, Any, Literal

from scalewise.errors import InputError, require
from scalewise.report import ranking_style as style
from scalewise.report.ranking import headline
from scalewise.report.words import grouped
from scalewise.step.estimate import NEAR_TIE

if TYPE_CHECKING:
    from scalewise.explore.search import Search

WIDTH, BAR_HEIGHT, EDGES = 11.0, 0.36, 2.9
"""Inches: of the page, of a bar with the space around it, and of all that is no bar."""
DOTS = 160
"""Per inch, of PNG."""
CAPTION = 150
"""Characters of a line of text."""
READABLE = 0.045
"""Share of the longest bar that a percentage needs to be written into it."""

_INK, _PALE = "#333333", "#FFFFFF"


def ranking_image(found: Search, kind: Literal["svg", "png"]) -> bytes:
    """Draw the best strategies as a file.

    Args:
        found: What to draw.
        kind: "svg", with text as paths so that it looks the same everywhere, or "png".

    Returns:
        The bytes of the file; the same for the same search.

    Raises:
        InputError: If no strategy fits: there is nothing to draw.
    """
    mpl: Any = require("matplotlib", "plot")
    page = io.BytesIO()
    settings = {
        "svg.fonttype": "path", "svg.hashsalt": "scalewise", "font.size": 9.5,
        "axes.edgecolor": "#888888", "axes.labelcolor": _INK, "text.color": _INK,
        "xtick.color": _INK, "ytick.color": _INK,
    }  # fmt: skip
    with mpl.rc_context(settings):
        figure = ranking_drawing(found)
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(page, format=kind, dpi=DOTS, metadata=metadata)
    return page.getvalue()


def ranking_drawing(found: Search) -> Any:
    """Draw the bars as a matplotlib figure, without a window and without global state."""
    figures: Any = require("matplotlib.figure", "plot")
    rows = style.drawn(found)
    if not rows:
        raise InputError(
            "no strategy fits: there is no bar to draw",
            hint="write a page (.html) for the reasons, or ask for more accelerators",
        )
    parts = style.segments(rows, small=style.SMALL)
    figure = figures.Figure(
        figsize=(WIDTH, EDGES + BAR_HEIGHT * len(rows)), layout="constrained", facecolor="white"
    )
    figure.get_layout_engine().set(w_pad=0.12, h_pad=0.08)
    axis = figure.subplots()
    longest = max(row.estimate.step_seconds for row in rows)
    starts = [0.0] * len(rows)
    for part in parts:
        lengths = [part.seconds(row.estimate) for row in rows]
        axis.barh(
            range(len(rows)), lengths, left=starts, height=0.74, label=part.label,
            color=part.colour, edgecolor="white", linewidth=0.6,
        )  # fmt: skip
        for place, (start, length) in enumerate(zip(starts, lengths, strict=True)):
            if length > READABLE * longest:
                share = length / rows[place].estimate.step_seconds
                axis.text(
                    start + length / 2, place, f"{100 * share:.0f} %", ha="center", va="center",
                    fontsize=8, color=_on(part.colour),
                )  # fmt: skip
        starts = [start + length for start, length in zip(starts, lengths, strict=True)]
    for place, row in enumerate(rows):
        e = row.estimate
        rate = f"{grouped(e.step_seconds)} s, {e.tokens_per_second_per_accelerator:,.0f} tokens/s"
        told = rate + (f"\n{row.note}" if row.note else "")
        axis.annotate(
            told, (e.step_seconds, place), xytext=(5, 0), textcoords="offset points",
            va="center", fontsize=8, linespacing=1.1,
        )  # fmt: skip
    _finish(figure, axis, found, rows, longest)
    return figure


def _finish(figure: Any, axis: Any, found: Search, rows: list[style.Drawn], longest: float) -> None:
    """Axes with units, an ordered legend, the answer on top and the source below."""
    axis.set_yticks(range(len(rows)), [row.label for row in rows])
    axis.tick_params(axis="y", length=0)
    axis.invert_yaxis()
    axis.set_xlim(0.0, 1.25 * longest)
    axis.set_xlabel("seconds per step, with tokens/s per accelerator behind each bar")
    axis.grid(axis="x", alpha=0.2)
    axis.set_axisbelow(True)
    axis.spines[["top", "right", "left"]].set_visible(False)
    handles, labels = axis.get_legend_handles_labels()
    across = max(1, min(len(labels), CAPTION // (max(map(len, labels)) + 7)))
    # matplotlib fills columns first: handed over by columns, names are read along rows.
    order = [place for first in range(across) for place in range(first, len(labels), across)]
    figure.legend(
        [handles[place] for place in order], [labels[place] for place in order],
        loc="outside upper left", ncols=across, frameon=False, alignment="left", fontsize=9,
        title=_head(found), title_fontproperties={"size": 10.5},
    )  # fmt: skip
    ties = f" = is within {100 * NEAR_TIE:.1f} % of the best." if found.ties > 1 else ""
    small = (
        f"Terms below {100 * style.SMALL:.1f} % of every step are told as one per kind: blue "
        f"compute, orange communication, grey waiting.{ties}"
    )
    lines = (small, style.source_line(found))
    caption = "\n".join(textwrap.fill(line, CAPTION) for line in lines)
    figure.supxlabel(caption, x=0.01, ha="left", fontsize=8, color="#666666")


def _head(found: Search) -> str:
    return "\n".join(
        [*textwrap.wrap(style.title(found), 120), *textwrap.wrap(headline(found), 130)]
    )


def _on(colour: str) -> str:
    """Ink that can be read on a colour: by its luminance (ITU-R BT.709 weights)."""
    red, green, blue = (int(colour[place : place + 2], 16) for place in (1, 3, 5))
    return _INK if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 140 else _PALE
