"""How do scaling curves read in a terminal? Tables, a small chart, and then what they mean.

    print_curves(curves, Console(), share=0.5)

Computing is `explore.scale`; this file only says it. Sentences come from `curve_words`, files
from `curves_data`, `curves_page` and `figures`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.explore.points import KNEE, Curve, Curves, Point
from scalewise.report import curve_words as words
from scalewise.report.tables import INDENT, sentences
from scalewise.report.words import grouped
from scalewise.units import format_count

CHART_HEIGHT = 10
"""Lines of the chart."""
CHART_WIDTH = 56
"""Columns of the chart, without its axis."""
MARKS = "abcdefghijklmnopqrstuvwxyz"
"""One letter per curve; several curves in one cell are a `*`."""

SPARE = (
    "$ per M\ntokens", "exposed\n%", "mb", "tokens\nper J", "W\neach", "days", "MFU\n%",
)  # fmt: skip
"""What a narrow terminal does without in the table of sizes, first to last."""
SPARE_ADDED = ("loss\n%", "added $ per\nM tokens")
"""The same in the table of what each added accelerator brings."""


def print_curves(
    curves: Curves, console: Console, *, share: float = KNEE, chosen: Sequence[str] = ()
) -> None:
    """Print everything a reader needs about scaling curves.

    Args:
        curves: What to tell.
        console: Where to.
        share: Share of the first return below which a size is past its knee.
        chosen: What was chosen for the user.
    """
    console.print(Text(words.title(curves), style="bold"))
    for group in curves.groups():
        mine = curves.of(group)
        console.print()
        precisions = " and ".join(dict.fromkeys(curve.precision for curve in mine))
        name = words.group_name(group, curves) or group.cluster
        console.print(Text(f"{name}, {precisions}", style="bold cyan"))
        _print_table(console, mine, _cells, SPARE)
        if any(len(curve.feasible) > 1 for curve in mine):
            console.print()
            console.print(Padding(Text("What each added accelerator brings"), (0, 0, 0, INDENT)))
            _print_table(console, mine, _added_cells, SPARE_ADDED)
    if any(curve.feasible for curve in curves.curves):
        console.print()
        for line in chart_lines(curves):
            console.print(Padding(Text(line, no_wrap=True), (0, 0, 0, INDENT)))
    _print_sentences(curves, console, share, chosen)


def _print_sentences(curves: Curves, console: Console, share: float, chosen: Sequence[str]) -> None:
    sentences(console, "Where growing stops paying", words.knee_sentences(curves, share))
    sentences(console, "Who overtakes whom", words.crossover_sentences(curves))
    sentences(console, "What the loss is spent on", words.cause_sentences(curves))
    sentences(console, f"What is best, by {curves.by}", words.best_sentences(curves))
    sentences(console, "No point", words.missing_sentences(curves), style="yellow")
    sentences(console, "Chosen for you", chosen)
    sentences(console, "Warnings", curves.warnings, style="yellow")
    sentences(
        console,
        "How to read it",
        [
            "low - high holds 80 % of cases. `return` is what each added accelerator brings, over "
            "what each one brings at the smallest size; `loss` is what all of them lose by the "
            "step up. Tokens per joule count the site's power."
        ],
    )


def chart_lines(curves: Curves) -> list[str]:
    """Draw tokens/s per accelerator against size, on log2, from zero, in plain characters."""
    drawn = curves.curves
    points = [(place, point) for place, curve in enumerate(drawn) for point in curve.feasible]
    sizes = sorted({point.accelerators for _, point in points})
    top = max(point.tokens_per_second_per_accelerator for _, point in points)
    span = math.log2(sizes[-1] / sizes[0]) or 1.0

    def column(size: int) -> int:
        return round(math.log2(size / sizes[0]) / span * (CHART_WIDTH - 1))

    grid = [[" "] * CHART_WIDTH for _ in range(CHART_HEIGHT)]
    for place, point in points:
        up = point.tokens_per_second_per_accelerator / top * (CHART_HEIGHT - 1)
        row, at = CHART_HEIGHT - 1 - round(up), column(point.accelerators)
        grid[row][at] = MARKS[place % len(MARKS)] if grid[row][at] == " " else "*"
    labels = {0: grouped(top), CHART_HEIGHT - 1: "0"}
    width = max(len(label) for label in labels.values())
    lines = ["tokens/s per accelerator"]
    for row, cells in enumerate(grid):
        lines.append(f"{labels.get(row, ''):>{width}} |{''.join(cells)}".rstrip())
    lines.append(" " * width + " +" + "-" * CHART_WIDTH)
    lines.append(" " * (width + 2) + _ticks([(column(size), f"{size:,}") for size in sizes]))
    marks = [
        f"{MARKS[place % len(MARKS)]} {words.curve_name(curve, curves)}"
        for place, curve in enumerate(drawn)
    ]
    return [*lines, *_legend(marks, " " * (width + 2))]


def _legend(marks: Sequence[str], margin: str) -> list[str]:
    """Name the letters, in as many lines as a narrow terminal needs."""
    lines, line = [], "accelerators; "
    for mark in marks:
        if len(line) + len(mark) > CHART_WIDTH + 6 and line.strip():
            lines.append(line)
            line = ""
        line += f"{mark}; "
    return [margin + each.rstrip() for each in (*lines, line + "* several")]


def _ticks(places: Iterable[tuple[int, str]]) -> str:
    """Write labels under their columns, leaving out those that have no room."""
    line = ""
    for at, label in places:
        if not line or at > len(line):
            line = line.ljust(at) + label
    return line


def _print_table(
    console: Console, curves: Sequence[Curve], cells_of: object, spare: Sequence[str]
) -> None:
    """One row per strategy and size that has a point; what cannot run shows dashes.

    Columns that the width has no room for are dropped in the order of `spare`: JSON and CSV have
    them all, and a number cut in two is worse than none.
    """
    assert callable(cells_of)
    columns: dict[str, list[str]] = {}
    for curve in curves:
        label = curve.label
        for point in curve.points:
            cells = cells_of(curve, point)
            if cells is None:
                continue
            for name, cell in {"strategy": label, **cells}.items():
                columns.setdefault(name, []).append(cell)
            label = ""
    columns = {name: cells for name, cells in columns.items() if any(c.strip("-") for c in cells)}
    gap, left = 2, list(spare)
    while _width(columns, gap) > console.width - INDENT and (gap > 1 or left):
        if gap > 1:
            gap = 1
        else:
            columns.pop(left.pop(0), None)
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(
            name, justify="left" if name == "strategy" else "right", no_wrap=True, vertical="bottom"
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    console.print(Padding(table, (0, 0, 0, INDENT)))


def _width(columns: dict[str, list[str]], gap: int) -> int:
    """Characters that a table needs."""
    needed = (max(map(len, [*name.split("\n"), *cells])) for name, cells in columns.items())
    return sum(needed) + gap * len(columns)


def _micro_batch(point: Point) -> str:
    """The micro batch, read from the one spelling of the strategy, which always states it."""
    return next(part[2:] for part in point.strategy.split("-") if part.startswith("mb"))


def _cells(curve: Curve, point: Point) -> dict[str, str]:
    """The cells of a row of the table of sizes, by the heading of their column."""
    del curve
    size = {"size": f"{point.accelerators:,}", "mb": _micro_batch(point)}
    cells = {
        "tokens/s": format_count(point.tokens_per_second),
        "each": grouped(point.tokens_per_second_per_accelerator),
        "low - high": f"{grouped(point.low)} - {grouped(point.high)}",
        "MFU\n%": f"{100 * point.mfu:.1f}",
        "exposed\n%": f"{100 * point.exposed_share:.1f}",
        "W\neach": _or_dash(point.watts_per_accelerator, "{:,.0f}"),
        "tokens\nper J": _or_dash(point.tokens_per_joule, "{:.3g}"),
        "$ per M\ntokens": _or_dash(point.usd_per_million_tokens, "{:.3g}"),
        "days": _or_dash(point.days, "{:,.3g}" if (point.days or 0.0) < 100 else "{:,.0f}"),
    }
    return size | (cells if point.feasible else dict.fromkeys(cells, "-"))


def _added_cells(curve: Curve, point: Point) -> dict[str, str] | None:
    """The cells of a row of the table of steps up; None for the first size."""
    gain = words.returned(curve, point) if point.feasible else None
    if gain is None or point.previous is None:
        return None
    cause = point.cause
    return {
        "size": f"{point.previous:,} to {point.accelerators:,}",
        "added\ntokens/s": _or_dash(point.marginal_tokens_per_second, "{:,.0f}"),
        "return\n%": f"{100 * gain:.1f}",
        "added tokens\nper J": _or_dash(point.marginal_tokens_per_joule, "{:.3g}"),
        "added $ per\nM tokens": _or_dash(point.marginal_usd_per_million_tokens, "{:.3g}"),
        "loss\n%": "-" if cause is None else f"{100 * cause.loss:.1f}",
    }


def _or_dash(value: float | None, shape: str) -> str:
    return "-" if value is None else shape.format(value)
