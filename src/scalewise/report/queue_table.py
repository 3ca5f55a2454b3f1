"""A queue of runs in a terminal: the answer, the calendar, other sizes of the cluster.

print_queue(found, console)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.explore.queue import Queue, Run
from scalewise.report import queue_words as words
from scalewise.report.plan_words import amount_range
from scalewise.report.terminal import put, say, table
from scalewise.report.words import INTERVAL, chance
from scalewise.units import grouped, short_dollars

if TYPE_CHECKING:
    from rich.console import Console

HEADS = ("run", "GPUs", "start", "end", "80% until", "days", "cost", "fit")


def print_queue(found: Queue, console: Console) -> None:
    """Print a queue."""
    put(console, words.lead(found), hang=2, style="bold")
    console.print()
    rows: list[tuple[str, ...]] = []
    for run in found.calendar.runs:
        cells = list(cells_of_run(run, found))
        place = HEADS.index("days") - 1
        cells[place], _, ends = cells[place].partition(" ")
        below = [""] * len(cells)
        below[place] = ends
        rows.append((f"{run.name}: {run.row.model}", *cells))
        rows.append((f"  {run.row.strategy}", *below))
    table(console, HEADS, rows, spare=("fit", "80% until", "cost"))
    console.print()
    say(console, "Other sizes", *words.other_lines(found))
    say(console, "Note", *found.notes, style="yellow")
    put(console, f"  {INTERVAL}", style="dim")


def cells_of_run(run: Run, found: Queue) -> tuple[str, ...]:
    """Return what a table shows of a run behind its name: a cell for each further head."""
    row = run.row
    assert row.days is not None
    return (
        f"{row.accelerators:,}",
        str(found.day(run.start.value)),
        str(found.day(run.end.value)),
        str(found.day(run.end.high)),
        f"{grouped(row.days.value)} {amount_range(row.days)}",
        "-" if row.usd is None else short_dollars(row.usd.value),
        "" if row.fit is None else chance(row.fit),
    )
