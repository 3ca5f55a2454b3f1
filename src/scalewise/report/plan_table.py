"""A plan in a terminal: what was asked, the answer, one table, what follows.

print_plan(found, console)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalewise.explore.plan import Plan, Row
from scalewise.report import plan_words as words
from scalewise.report.terminal import print_title, put, say, table
from scalewise.report.words import INTERVAL, chance
from scalewise.units import format_dollars, grouped, short_dollars

if TYPE_CHECKING:
    from rich.console import Console

MAX_ROWS = 16
"""Rows of a table; JSON and CSV have all."""

HEADS = ("plan", "fit", "days", "cost", "MWh", "tCO2", "limits", "$/GPU-h")


def print_plan(found: Plan, console: Console, file: str | None = None) -> None:
    """Print a plan, and the command that follows; `file` is where its answer was written."""
    print_title(console, words.title(found), found.changes)
    for text, answer in zip(words.answer_lines(found), found.answers, strict=True):
        put(console, text, hang=2, style="bold" if answer.row is not None else "bold red")
    console.print()
    rows = shown_rows(found)
    lines = [line for row in rows for line in _lines(row, found)]
    table(console, HEADS, lines, spare=("$/GPU-h", "tCO2", "MWh"))
    if len(found.rows) > len(rows):
        put(console, f"  ... ({len(found.rows) - len(rows)} more: --json)", style="dim")
    console.print()
    say(console, "Nearest", *words.nearest_lines(found))
    say(console, "Goodput", *words.goodput_lines(found))
    say(console, "Break-even", *words.break_even_lines(found))
    say(console, "Own or rent", *words.own_lines(found))
    say(console, "Note", *found.notes, style="yellow")
    if found.next:
        say(console, "Next", words.next_line(found, file))
    put(console, words.carbon_line(found), hang=2)
    if found.defaults:
        say(console, "Defaults", ", ".join(found.defaults))
    put(console, f"  {INTERVAL}", style="dim")


def shown_rows(found: Plan) -> list[Row]:
    """Return the rows worth a line: asked sizes, answers, and the first within the limits."""
    wanted = {id(each.row) for each in found.answers} | {id(each.beyond) for each in found.answers}
    first: set[tuple[str, str, bool]] = set()
    shown = []
    for row in sorted(found.rows, key=lambda row: row.accelerators):
        owned = row.price is not None and row.price.kind == "owned"
        key = (row.model, row.cluster, owned)
        if found.wanted.any and found.wanted.met(row) and key not in first:
            first.add(key)
            wanted.add(id(row))
    shown = [row for row in found.rows if row.asked or id(row) in wanted]
    return shown[:MAX_ROWS]


def _lines(row: Row, found: Plan) -> list[tuple[str, ...]]:
    """Two lines of a row: numbers, and strategy with intervals; one where it cannot run."""
    several = len({each.model for each in found.rows}) > 1
    mark = ">" if is_answer(row, found) else " "
    name = f"{mark} {row.model + ' ' if several else ''}{words.size_words(row)}"
    if row.days is None:
        reason = ": ".join((row.infeasible or "cannot run").split(": ")[:2])
        return [(f"{name}: {reason}",)]
    cells = cells_of(row, found)
    limits = cells["limits"]
    return [
        (name, cells["fit"], *cells["numbers"], limits[0], cells["price"]),
        (f"  {row.strategy}", "", *cells["ranges"], limits[1], ""),
    ]


def is_answer(row: Row, found: Plan) -> bool:
    """Whether a row is the answer for its model."""
    return any(row is each.row for each in found.answers)


def cells_of(row: Row, found: Plan) -> dict[str, Any]:
    """Return what a table shows of a row: days, cost, MWh and tCO2, their ranges, fit, limits."""
    price = "unknown"
    if row.price is not None:
        price = f"{format_dollars(row.price.usd_per_hour).lstrip('$')} {row.price.kind}"
    amounts = (row.days, row.usd, row.mwh, row.tonnes)
    numbers = [
        "-" if each is None else short_dollars(each.value) if each is row.usd else (
            grouped(each.value)
        )
        for each in amounts
    ]  # fmt: skip
    ranges = [
        "" if each is None else words.amount_range(each, usd=each is row.usd) for each in amounts
    ]
    return {
        "numbers": numbers,
        "ranges": ranges,
        "fit": "" if row.fit is None else chance(row.fit),
        "limits": _limits(row, found),
        "price": price,
    }


def _limits(row: Row, found: Plan) -> tuple[str, str]:
    """Return what exceeds the limits in a few characters, for two lines."""
    if not found.wanted.any:
        return "", ""
    short = words.miss_words(row, found).replace("x the deadline", "x days")
    parts = short.replace("x the budget", "x cost").split(", ")
    parts = ["no price" if "unknown" in part else part for part in parts]
    return parts[0], "".join(parts[1:2])
