"""Curves and maps over any quantity in a terminal: question, best value, table, causes.

    print_over(found, Console(), share=0.5)
    print_over(found, Console(), table=True)         # every value of every series

At most 30 lines at 100 columns, unless every value is asked for: long curves are thinned. Computing
is `explore.axis`, sentences are `over_words`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from scalewise.explore.axis import THROUGHPUT, Cell, Series, Sweep
from scalewise.explore.points import KNEE, Point
from scalewise.report import over_words as words
from scalewise.report import terminal
from scalewise.report.goodput_words import goodput_percents
from scalewise.report.terminal import (
    INDENT,
    default_lines,
    print_defaults,
    print_title,
    put,
    say,
    title_lines,
    wrapped,
)
from scalewise.report.words import INTERVAL, interval
from scalewise.units import GIB, format_column, format_dollars

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.over import Over

MAX_LINES = 30
"""Lines without --table, at 100 columns."""
MIN_ROWS = 5
"""Rows that a table has in any case."""
MAX_ALIKE = 2
"""Sentences of one kind."""

SPARE = (
    "goodput %", "run $", "tok/J", "exposed %", "$/M tok", "MFU %", "strategy", "[low-high]",
    "days", "GiB", "per doubling %",
)  # fmt: skip
"""Columns that a narrow terminal does without, first to last."""


def print_over(found: Over, console: Console, *, share: float = KNEE, table: bool = False) -> None:
    """Print curves or maps.

    Args:
        found: The sweep, and how it came about.
        console: Where to.
        share: Fraction of the largest gain per doubling below which a gain is past the knee.
        table: Print every value of every series.
    """
    sweep = found.sweep
    head, knees = words.best_lines(sweep), words.knee_line(sweep, share)
    paragraphs = _paragraphs(found)
    used = 6 + len(title_lines(words.title(found), found.changes, console.width))
    used += len(default_lines(found.defaults, console.width, INDENT))
    for text in (*head, *([f"Knee: {knees}"] if knees else []), *map(": ".join, paragraphs)):
        used += len(wrapped(text, console.width))
    rows = None if table else max(MAX_LINES - used, MIN_ROWS)

    print_title(console, words.title(found), found.changes)
    for text in head:
        put(console, text, hang=6, style="bold")
    if knees:
        say(console, "Knee", knees)
    order = words.ranked(sweep)
    if sweep.is_map:
        for series in order if table else order[:1]:
            _print_map(sweep, series, console, named=len(order) > 1)
    elif len(order) == 1 or table:
        for series in order:
            _print_curve(sweep, series, console, rows, named=len(order) > 1)
    elif order:
        _print_values(sweep, order, console, rows)
    if sweep.is_map and len(order) > 1 and not table:
        put(console, f"  ... ({len(order) - 1} more maps: --table)")
    console.print()
    for label, text in paragraphs:
        say(console, label, text, style="yellow" if label in ("Cannot run", "Note") else "")
    print_defaults(console, found.defaults)
    if note := _footnote(sweep):
        put(console, note, style="dim")
    put(console, INTERVAL, style="dim")


def _paragraphs(found: Over) -> list[tuple[str, str]]:
    """Return what follows the table as (label, text), a few of each label."""
    sweep = found.sweep
    texts = [
        ("Crossovers", words.crossover_line(sweep)),
        ("Cause", words.cause_line(sweep)),
    ]
    lines = words.strategy_lines(sweep) if len(sweep.series) > 1 else []
    for label, several in (
        ("Strategies", lines),
        ("Cannot run", words.missing_lines(sweep)),
        ("Note", [*found.notes, *sweep.warnings]),
    ):
        texts += [(label, text) for text in several[:MAX_ALIKE]]
        if len(several) > MAX_ALIKE:
            texts[-1] = (label, f"{texts[-1][1]} (and {len(several) - MAX_ALIKE} more: --json)")
    return [(label, text) for label, text in texts if text]


def _footnote(sweep: Sweep) -> str:
    """Return how to read the gain per doubling; empty where there is none."""
    cells = [cell for each in sweep.series for cell in each.cells]
    if sweep.is_map or all(cell.per_doubling is None for cell in cells):
        return ""
    word = words.words_of(sweep)
    what = f"tok/s of all {word}s" if sweep.metric == THROUGHPUT else sweep.measured.head
    return f"per doubling: change of {what} at twice the {sweep.axes[0].label}"


def thinned(count: int, rows: int | None) -> list[int]:
    """Return the places of a list that a table of some rows shows, in equal strides to the last.

    >>> thinned(7, 4), thinned(3, 4)
    ([0, 2, 4, 6], [0, 1, 2])
    """
    stride = 1 if rows is None else -(-count // max(rows, 1))
    return sorted(range(count - 1, -1, -stride))


def _print_curve(
    sweep: Sweep, series: Series, console: Console, rows: int | None, *, named: bool
) -> None:
    """Print one row per value."""
    console.print()
    if named:
        console.print(Text(sweep.name(series), style="bold cyan"))
    axis, word = sweep.axes[0], words.words_of(sweep)
    kept = thinned(len(series.cells), rows)
    cells = [series.cells[place] for place in kept]
    points = [cell.running for cell in cells]
    strategies = [_strategy(series, cell) for cell in cells]
    columns: dict[str, list[str]] = {
        axis.unit or axis.name: [axis.show(cell.place[0]) for cell in cells],
        "strategy": strategies if any(strategies) else ["" for _ in cells],
        f"tok/s/{word}": _numbers(points, "tokens_per_second_per_accelerator"),
        "[low-high]": [interval(p.low, p.high) if p else "" for p in points],
        "per doubling %": [
            "" if cell.per_doubling is None else f"{100 * cell.per_doubling:+.1f}".replace(
                "-0.0", "0.0").replace("+0.0", "0.0")
            for cell in cells
        ],
        "MFU %": _percents([None if p is None else p.mfu for p in points]),
        "exposed %": _percents([None if p is None else p.exposed_fraction for p in points]),
        "GiB": _numbers(points, "memory_bytes", 1.0 / GIB),
        "tok/J": _numbers(points, "tokens_per_joule"),
        "$/M tok": _numbers(points, "usd_per_million_tokens"),
        "days": _numbers(points, "days"),
        "run $": [_run_cost(p) for p in points],
        "goodput %": goodput_percents(points),
    }  # fmt: skip
    lines = list(zip(*columns.values(), strict=True))
    terminal.table(console, list(columns), lines, spare=SPARE, left=1)
    if len(kept) < len(series.cells):
        put(console, f"  ... ({len(series.cells) - len(kept)} more values: --table)")


def _strategy(series: Series, cell: Cell) -> str:
    """Return the strategy of a cell where it is not the one that was given."""
    if cell.running is None:
        return "cannot run"
    return "" if cell.running.strategy == series.label else cell.running.strategy


def _print_values(
    sweep: Sweep, order: Sequence[Series], console: Console, rows: int | None
) -> None:
    """Print the metric by series and value, as many values as there is room for."""
    axis, metric = sweep.axes[0], sweep.measured
    count = len(axis.texts)
    flat = format_column([_shown(sweep, cell) for each in order for cell in each.cells])
    texts = [flat[row * count : (row + 1) * count] for row in range(len(order))]
    names = [sweep.name(each) for each in order]
    head = metric.head.replace("GPU", words.words_of(sweep))
    heads = [axis.show(place) for place in range(count)]
    cell = max(len(text) for row in [*texts, heads] for text in row) + 2
    room = (console.width - INDENT - max(map(len, [head, *names]))) // cell
    kept = thinned(count, max(room, 2))
    shown = list(zip(names, texts, strict=True))[:rows]
    unit = axis.unit or axis.label
    console.print()
    put(console, f"{' ' * INDENT}{head} by {unit}", style="dim")
    terminal.table(
        console,
        ["", *(heads[place] for place in kept)],
        [[name, *(row[place] for place in kept)] for name, row in shown],
    )
    if len(shown) < len(order):
        put(console, f"  ... ({len(order) - len(shown)} more: --table)")


def _print_map(sweep: Sweep, series: Series, console: Console, *, named: bool) -> None:
    """Print the metric, the values of the second axis down and those of the first across."""
    across, down = sweep.axes
    metric = sweep.measured
    head = metric.head.replace("GPU", words.words_of(sweep))
    console.print()
    name = f"{sweep.name(series)}: " if named else ""
    flat = format_column([_shown(sweep, cell) for cell in series.cells])
    count = len(across.texts)
    heads = [across.show(place) for place in range(count)]
    cell = max(len(text) for text in [*flat, *heads]) + 2
    rows = [down.show(place) for place in range(len(down.texts))]
    corner = f"{down.name} \\ {across.name}"
    room = (console.width - INDENT - max(map(len, [corner, *rows]))) // cell
    kept = thinned(count, max(room, 2))
    units = [f"{each.label} ({each.unit})" if each.unit else each.label for each in sweep.axes]
    put(console, f"{' ' * INDENT}{name}{head}, {units[1]} down, {units[0]} across", style="dim")
    terminal.table(
        console,
        [corner, *(heads[place] for place in kept)],
        [
            [text, *(flat[row * count + place] for place in kept)]
            for row, text in enumerate(rows)
        ],
    )  # fmt: skip


def _shown(sweep: Sweep, cell: Cell) -> float | None:
    value = sweep.value(cell)
    return None if value is None else value * sweep.measured.factor


def _numbers(points: Sequence[Point | None], field: str, factor: float = 1.0) -> list[str]:
    """Print a column; nothing at all where no value is known."""
    values = [None if p is None else getattr(p, field) for p in points]
    if all(value is None for value in values):
        return ["" for _ in values]
    return format_column([None if value is None else value * factor for value in values])


def _percents(values: Sequence[float | None]) -> list[str]:
    return ["-" if value is None else f"{100 * value:.1f}" for value in values]


def _run_cost(point: Point | None) -> str:
    """Print the cost of the token budget; empty without a budget or a price."""
    if point is None or point.run_usd is None:
        return ""
    return format_dollars(point.run_usd)
