"""Waterfall from the peak of the chip to the achieved FLOP/s, each loss by name.

    rows = waterfall_rows(e)          # peak, losses in order, achieved: TFLOP/s that add up
    print_waterfall(e, console)       # in a terminal
    waterfall_html(e)                 # a page with a figure; needs the extra `plot`

A loss is its fraction of the step times the peak: the FLOPs that the chip could have computed in
that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scalewise.report.draw_terminal import bar_lines
from scalewise.report.figure import INK, Axis, Figure, Panel, Trace
from scalewise.report.page import figure_page
from scalewise.report.words import TERA, footnote, percent, title
from scalewise.terms import COLORS, TERMS

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.step.result import Estimate

BAR_WIDTH = 30
"""Characters of the bar of the peak."""
DECIMALS = 1
ENDS = ("peak", "achieved")


class Row(NamedTuple):
    """One step of the way down."""

    name: str
    """ "peak", a loss, or "achieved"."""
    tflops: float
    """TFLOP/s per accelerator; losses are negative."""
    share: float
    """The same as a fraction of the peak."""
    left: float
    """Fraction of the peak that is left after it."""


def waterfall_rows(e: Estimate) -> list[Row]:
    """Return the peak, every loss that is not zero, and what is achieved."""
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
    """Print the way down as text; the printed numbers add up to the last digit."""
    from rich.text import Text

    rows, numbers = waterfall_rows(e), printed(e)
    fractions = [
        percent(row.share) if row.name in ENDS else f"{_signed(100 * row.share)}%" for row in rows
    ]
    widths = [max(map(len, column)) for column in ([r.name for r in rows], numbers, fractions)]
    room = min(BAR_WIDTH, max(console.width - sum(widths) - 8, 1))
    blocks = console.encoding.lower().startswith("utf")
    bars = bar_lines(waterfall_figure(e).panels[0], room, blocks=blocks)
    console.print()
    console.print(Text("Peak to achieved, per GPU", style="bold cyan"))
    for row, number, fraction, bar in zip(rows, numbers, fractions, bars, strict=True):
        end = row.name in ENDS
        text = Text(f"  {row.name:<{widths[0]}}  {number:>{widths[1]}}", "bold" if end else "")
        text.append(f"  {fraction:>{widths[2]}}  ", "not bold")
        console.print(text.append(bar, "blue" if end else "red"), soft_wrap=True)


def printed(e: Estimate) -> list[str]:
    """Return the TFLOP/s of every row as text, so that the losses add up to what is achieved.

    Each loss is the difference of two rounded levels instead of a rounded difference.
    """
    peak = e.peak_flops / TERA
    texts: list[str] = []
    before = 0.0
    for row in waterfall_rows(e):
        level = round(row.left * peak, DECIMALS)
        number = f"{level:,.{DECIMALS}f}" if row.name in ENDS else _signed(level - before)
        texts.append(f"{number} TFLOP/s")
        before = level
    return texts


def _signed(value: float) -> str:
    """Return a number with its sign, except that of a zero."""
    text = f"{value:+,.{DECIMALS}f}"
    return text[1:] if float(text.replace(",", "")) == 0 else text


def waterfall_figure(e: Estimate) -> Figure:
    """Return the way down as floating bars, colored by kind of loss."""
    rows, texts = waterfall_rows(e), printed(e)
    peak = e.peak_flops / TERA
    traces = []
    for kind, color in ("ends", INK), *COLORS.items():
        mine = [row for row in rows if _kind(row.name) == kind]
        if mine:
            starts = [0.0 if r.name in ENDS else min(r.left, r.left - r.share) for r in mine]
            traces.append(
                Trace(
                    name="peak, achieved" if kind == "ends" else f"lost to {kind}",
                    xs=[row.name for row in mine],
                    ys=[abs(row.tflops) for row in mine],
                    base=[peak * start for start in starts],
                    hover=[f"{row.name}: {row.tflops:,.1f} TFLOP/s" for row in mine],
                    color=color,
                )
            )
    panel = Panel(
        kind="bars",
        x=Axis(values=[row.name for row in rows]),
        y=Axis(label="TFLOP/s per GPU"),
        traces=traces,
        ends=texts,
        sideways=True,
    )
    return Figure(name="waterfall", panels=[panel], title=title(e), notes=[footnote(e)])


def _kind(name: str) -> str:
    """Return the kind of a row: "ends", that of its term, or compute for kernel efficiency."""
    kinds = (term.kind for term in TERMS.values() if term.label == name)
    return "ends" if name in ENDS else next(kinds, "compute")


def waterfall_html(e: Estimate) -> str:
    """Return the waterfall as a page that works offline.

    Raises:
        MissingExtraError: If plotly is not installed.
    """
    return figure_page(waterfall_figure(e))
