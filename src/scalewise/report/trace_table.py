"""How does a trace read in a terminal? One sentence, then where the time went, then by what.

    print_trace(summary, console)
    lead(summary)         # "4.8 % of the time is exposed communication: ..."

Reading is `trace.read`; on a page and on paper it is `trace_figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from scalewise.report.words import counted, percent
from scalewise.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from scalewise.trace.summary import Communication, RankTrace, Times, TraceSummary

SHOWN = 12
"""Rows of a table; files have all of them."""
BAR_WIDTH = 24
"""Characters of a bar beside a step or rank."""
LONG, SHORT = 100.0, 10e-3
"""Seconds of a trace from which tables are in seconds, and below which in microseconds."""
ROOM = 100
"""Columns from which there is room for these bars."""


class Part(NamedTuple):
    """One of the parts that make up the time."""

    name: str
    colour: str
    """Okabe and Ito, colour-blind-safe; grey where nothing happens."""
    letter: str
    """In a bar of characters."""
    style: str
    """Of the letter in a terminal."""

    def seconds(self, times: Times) -> float:
        """How long it took."""
        return {
            "compute only": times.compute_seconds - times.overlapped_seconds,
            "compute and communication": times.overlapped_seconds,
            "exposed communication": times.exposed_seconds,
            "copies only": times.copy_only_seconds,
            "idle": times.idle_seconds,
        }[self.name]


PARTS = (
    Part("compute only", "#0072B2", "#", "blue"),
    Part("compute and communication", "#009E73", "=", "green"),
    Part("exposed communication", "#D55E00", "x", "red"),
    Part("copies only", "#CC79A7", "o", "magenta"),
    Part("idle", "#BBBBBB", ".", "dim"),
)
"""In the order of the bars; they add up to the window."""


def heading(summary: TraceSummary) -> str:
    """What was read, in one line."""
    first = summary.ranks[0]
    if len(summary.ranks) == 1:
        rank = "" if first.rank is None else f", rank {first.rank}"
        return f"{first.file}{rank}{_world(summary)}, {first.device}, {first.events:,} events"
    events = sum({each.file: each.events for each in summary.ranks}.values())
    return f"{counted(len(summary.ranks), 'rank')}{_world(summary)}, {events:,} events"


def _world(summary: TraceSummary) -> str:
    return f" of {summary.world_size:,}" if summary.world_size is not None else ""


def lead(summary: TraceSummary) -> str:
    """The answer in one sentence."""
    window = summary.window_seconds
    idle = percent(summary.idle_seconds / window) if window else "nothing"
    if summary.overlap_pct is None:
        return (
            f"Nothing was communicated: of {format_seconds(window)}, "
            f"{format_seconds(summary.compute_seconds)} is compute and {idle} is idle."
        )
    whose = " of the average rank" if len(summary.ranks) > 1 else ""
    return (
        f"{percent(summary.exposed_seconds / window)} of the time{whose} is exposed communication: "
        f"{format_seconds(summary.exposed_seconds)} of "
        f"{format_seconds(summary.communication_seconds)} are not hidden behind compute (overlap "
        f"{summary.overlap_pct:.1f} %); {idle} is idle."
    )


class Unit(NamedTuple):
    """In what the times of all tables are printed."""

    name: str
    per_second: float

    def number(self, seconds: float) -> str:
        """Without the unit, which the head of the column has."""
        return f"{seconds * self.per_second:,.1f}"

    def show(self, seconds: float) -> str:
        """With the unit."""
        return f"{self.number(seconds)} {self.name}"


def unit_of(summary: TraceSummary) -> Unit:
    """One unit for all, by how long the trace is."""
    if summary.window_seconds >= LONG:
        return Unit("s", 1.0)
    return Unit("us", 1e6) if summary.window_seconds < SHORT else Unit("ms", 1e3)


def print_trace(summary: TraceSummary, console: Console) -> None:
    """Print everything a reader needs about some traces.

    Args:
        summary: What was read.
        console: Where to.
    """
    from rich.text import Text

    from scalewise.report.tables import can_draw_blocks, sentences, shares

    unit = unit_of(summary)
    console.print(Text(lead(summary), style="bold"))
    console.print(Text(heading(summary), style="dim"))
    shares(
        console,
        "Where the time goes",
        [(part.name, max(part.seconds(summary), 0.0)) for part in PARTS],
        total=("all of it", summary.window_seconds),
        show=unit.show,
        blocks=can_draw_blocks(console),
    )
    ranks = [(_rank_name(each, summary.ranks), each) for each in summary.ranks]
    _times(console, unit, "By rank", "rank", ranks)
    steps = [(f"{s.step}" + ("" if s.counted else " *"), s) for s in summary.steps]
    _times(console, unit, "By step", "step", steps)
    if console.width >= ROOM:
        legend = ", ".join(f"{part.letter} {part.name}" for part in PARTS)
        console.print(Text(f"  {legend}", style="dim"))
    if not all(step.counted for step in summary.steps):
        console.print(Text("  * not counted above", style="dim"))
    _calls(console, unit, "By collective", "collective", summary.collectives)
    _calls(console, unit, "By process group", "group", summary.groups)
    _calls(console, unit, "By collective and size", "collective", summary.sizes)
    sentences(console, "How to read it", summary.notes)


def _rank_name(rank: RankTrace, ranks: Sequence[RankTrace]) -> str:
    """A rank by its number, with the device where a number stands for several."""
    name = "?" if rank.rank is None else str(rank.rank)
    same = sum(each.rank == rank.rank for each in ranks)
    return f"{name} ({rank.device})" if same > 1 or rank.device == "cpu" else name


def _times(
    console: Console, unit: Unit, title: str, head: str, rows: Sequence[tuple[str, Times]]
) -> None:
    """A table of times, one row each."""
    from rich.text import Text

    if not rows:
        return
    heads = (head, unit.name, "compute", "comm.", "exposed", "idle", "overlap")
    table = _table(heads)
    bars = console.width >= ROOM
    if bars:
        table.add_column("")
    for name, times in rows[:SHOWN]:
        cells = [
            Text(name),
            *(
                Text(unit.number(value))
                for value in (
                    times.window_seconds,
                    times.compute_seconds,
                    times.communication_seconds,
                    times.exposed_seconds,
                    times.idle_seconds,
                )
            ),
            Text(_overlap(times.overlap_pct)),
        ]
        table.add_row(*cells, *([_bar(times)] if bars else []))
    _put(console, title, table, len(rows))


def _bar(times: Times) -> Text:
    """The parts of a time as one bar; rounding keeps the width and hides no part that is large."""
    from rich.text import Text

    drawn = Text()
    if times.window_seconds <= 0.0:
        return drawn
    reached, place = 0.0, 0
    for part in PARTS:
        reached += max(part.seconds(times), 0.0)
        end = round(BAR_WIDTH * reached / times.window_seconds)
        drawn.append(part.letter * (end - place), style=part.style)
        place = end
    return drawn


def _calls(
    console: Console, unit: Unit, title: str, head: str, rows: Sequence[Communication]
) -> None:
    """A table of calls; sizes are what one call moves."""
    from rich.text import Text

    if not rows:
        return
    table = _table((head, "ranks", "calls", "a call moves", unit.name, "exposed", "overlap"))
    for row in rows[:SHOWN]:
        cells = (
            row.name,
            "?" if row.group_size is None else f"{row.group_size:,}",
            f"{row.calls:,.10g}",
            size_range(row),
            unit.number(row.communication_seconds),
            unit.number(row.exposed_seconds),
            _overlap(row.overlap_pct),
        )
        table.add_row(*map(Text, cells))
    _put(console, title, table, len(rows))


def size_range(row: Communication) -> str:
    """From the smallest to the largest call: "8.2 MB - 31.5 MB"; "?" where nobody says."""
    if row.smallest_bytes is None or row.largest_bytes is None:
        return "?"
    low, high = format_bytes(row.smallest_bytes), format_bytes(row.largest_bytes)
    return low if low == high else f"{low} - {high}"


def _overlap(overlap: float | None) -> str:
    return "-" if overlap is None else f"{overlap:.1f} %"


def _table(heads: Sequence[str]) -> Table:
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for place, head in enumerate(heads):
        table.add_column(head, justify="right" if place else "left", no_wrap=True)
    return table


def _put(console: Console, title: str, table: Table, count: int) -> None:
    from rich.padding import Padding
    from rich.text import Text

    console.print()
    console.print(Text(title, style="bold cyan"))
    console.print(Padding(table, (0, 0, 0, 2)))
    if count > SHOWN:
        console.print(Text(f"  and {count - SHOWN:,} more: see --json", style="dim"))
