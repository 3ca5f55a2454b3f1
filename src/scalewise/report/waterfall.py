"""What is lost between the chip's peak and what training achieves? Each loss by name.

    rows = waterfall_rows(e)          # peak, losses in order, achieved: TFLOP/s that add up
    print_waterfall(e, console)       # in a terminal
    waterfall_html(e)                 # a page with a drawing, which needs the extra `plot`

A loss is the share of the step that goes into it, times the peak: what the chip could have done
in that time.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scalewise.errors import require
from scalewise.report.words import TERA, bar, footnote, percent, title

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.step.result import Estimate

BAR_WIDTH = 30
_SIDES: tuple[Literal["left", "right"], ...] = ("left", "right", "right", "left")
DECIMALS = 1


class Row(NamedTuple):
    """One step of the way down."""

    name: str
    """What takes it: "peak", a loss, or "achieved"."""
    tflops: float
    """TFLOP/s per accelerator; losses are negative."""
    share: float
    """The same as a share of the peak."""
    left: float
    """Share of the peak that is left after it."""


def waterfall_rows(e: Estimate) -> list[Row]:
    """Go from peak to achieved.

    Args:
        e: The estimate.

    Returns:
        The peak, every loss that is not zero, and what is achieved.
    """
    peak = e.peak_flops / TERA
    rows: list[Row] = []
    left = 0.0
    for name, share in e.waterfall().items():
        last = name == "achieved"
        left = share if last else left + share
        if share or last:
            rows.append(Row(name, share * peak, share, left))
    return rows


def print_waterfall(e: Estimate, console: Console) -> None:
    """Print the way down as text; the printed numbers add up to the last digit.

    Args:
        e: The estimate.
        console: Where to.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from scalewise.report.tables import INDENT, can_draw_blocks

    blocks = can_draw_blocks(console)
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for side in _SIDES:
        table.add_column(justify=side, no_wrap=True)
    for row, shown in zip(waterfall_rows(e), printed(e), strict=True):
        end = row.name in ("peak", "achieved")
        style = "bold" if end else ""
        drawn = Text(_floating(row, blocks=blocks), style="blue" if end else "red")
        share = percent(row.share) if end else f"{_signed(row.share * 100)} %"
        table.add_row(Text(row.name, style=style), Text(shown, style=style), share, drawn)
    console.print()
    console.print(Text("From peak to achieved, per accelerator", style="bold cyan"))
    console.print(Padding(table, (0, 0, 0, INDENT)))


def printed(e: Estimate) -> list[str]:
    """Print the TFLOP/s of every row so that a reader who adds them up gets what is achieved.

    Each loss is the difference of two rounded levels instead of a rounded difference.
    """
    rows = waterfall_rows(e)
    peak = e.peak_flops / TERA
    texts: list[str] = []
    before = 0.0
    for row in rows:
        level = round(row.left * peak, DECIMALS)
        if row.name in ("peak", "achieved"):
            texts.append(f"{level:,.{DECIMALS}f} TFLOP/s")
        else:
            texts.append(f"{_signed(level - before)} TFLOP/s")
        before = level
    return texts


def _signed(value: float) -> str:
    """Print with a sign, but not that of a zero."""
    text = f"{value:+,.{DECIMALS}f}"
    return text[1:] if float(text.replace(",", "")) == 0 else text


def _floating(row: Row, *, blocks: bool) -> str:
    """Draw a bar where the loss lies between what was left before and after it."""
    if row.name in ("peak", "achieved"):
        return bar(row.share, BAR_WIDTH, blocks=blocks)
    start = min(row.left, row.left - row.share)
    # Whole characters, because a bar can begin only where a character begins.
    first = min(round(max(start, 0.0) * BAR_WIDTH), BAR_WIDTH - 1)
    last = max(round(max(row.left, row.left - row.share) * BAR_WIDTH), first + 1)
    return " " * first + ("\u2592" if blocks else "=") * (last - first)


def waterfall_html(e: Estimate) -> str:
    """Draw it as a page of its own that works offline.

    Args:
        e: The estimate.

    Returns:
        HTML with everything it needs inside.

    Raises:
        MissingExtraError: If plotly is not installed.
    """
    graphs: Any = require("plotly.graph_objects", "plot")
    rows = waterfall_rows(e)
    ends = ("peak", "achieved")
    figure = graphs.Figure(
        graphs.Waterfall(
            x=[row.name for row in rows],
            y=[row.tflops for row in rows],
            measure=["absolute" if row.name in ends else "relative" for row in rows],
            text=[f"{row.tflops:,.1f}" for row in rows],
            hovertemplate="%{x}: %{y:,.1f} TFLOP/s<extra></extra>",
        )
    )
    figure.update_layout(
        title=f"{html.escape(title(e))}<br><sub>{html.escape(footnote(e))}</sub>",
        yaxis_title="TFLOP/s per accelerator",
        showlegend=False,
    )
    page: str = figure.to_html(include_plotlyjs=True, full_html=True)
    return page
