"""A trace in a terminal: what was read, exposed communication, then time by part, rank and call.

    print_trace(summary, console)
    lead(summary)         # "Exposed communication: 4.8% of the time (...). Idle: 3.1%."

Reading is `trace.read`; pages and figures are `trace_figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from scalewise.report.terminal import put, say, table
from scalewise.report.words import counted, percent
from scalewise.trace.waiting import late, sentence
from scalewise.units import format_bytes, format_percent, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.trace.summary import Communication, RankTrace, Times, TraceSummary

SHOWN = 12
"""Rows of a table; files have all of them."""
BAR_WIDTH = 24
"""Characters of a bar beside a step or rank."""
LONG, SHORT = 100.0, 10e-3
"""Seconds of a trace from which tables are in seconds, and below which in microseconds."""


class Part(NamedTuple):
    """One of the parts that make up the time."""

    name: str
    color: str
    """In figures: Okabe and Ito, distinct under every kind of color vision; gray for idle time."""
    letter: str
    """In a bar of characters."""

    def seconds(self, times: Times) -> float:
        """Return how long it took."""
        return {
            "compute only": times.compute_seconds - times.overlapped_seconds,
            "compute and communication": times.overlapped_seconds,
            "exposed communication": times.exposed_seconds,
            "copies only": times.copy_only_seconds,
            "idle": times.idle_seconds,
        }[self.name]


PARTS = (
    Part("compute only", "#0072B2", "#"),
    Part("compute and communication", "#009E73", "="),
    Part("exposed communication", "#D55E00", "x"),
    Part("copies only", "#CC79A7", "o"),
    Part("idle", "#BBBBBB", "."),
)
"""In the order of the bars; they add up to the window."""


def heading(summary: TraceSummary) -> str:
    """Return what was read, in one line."""
    first = summary.ranks[0]
    if len(summary.ranks) == 1:
        rank = "" if first.rank is None else f", rank {first.rank}"
        return f"{first.file}{rank}{_world(summary)}, {first.device}, {first.events:,} events"
    events = sum({each.file: each.events for each in summary.ranks}.values())
    return f"{counted(len(summary.ranks), 'rank')}{_world(summary)}, {events:,} events"


def _world(summary: TraceSummary) -> str:
    return f" of {summary.world_size:,}" if summary.world_size is not None else ""


def lead(summary: TraceSummary) -> str:
    """Return the answer: exposed communication, overlap and idle time."""
    window = summary.window_seconds
    idle = percent(summary.idle_seconds / window) if window else "none"
    if summary.overlap_pct is None:
        return (
            f"No communication. Compute: {format_seconds(summary.compute_seconds)} of "
            f"{format_seconds(window)}. Idle: {idle}."
        )
    mean = " (mean of ranks)" if len(summary.ranks) > 1 else ""
    return (
        f"Exposed communication: {percent(summary.exposed_seconds / window)} of the time{mean}, "
        f"{format_seconds(summary.exposed_seconds)} of "
        f"{format_seconds(summary.communication_seconds)} (overlap "
        f"{format_percent(summary.overlap_pct / 100)}). Idle: {idle}."
    )


class Unit(NamedTuple):
    """Unit of the times of all tables."""

    name: str
    per_second: float

    def number(self, seconds: float) -> str:
        """Print a time without the unit, which the head of the column has."""
        return f"{seconds * self.per_second:,.1f}"


def unit_of(summary: TraceSummary) -> Unit:
    """Return one unit for all tables, by the length of the trace."""
    if summary.window_seconds >= LONG:
        return Unit("s", 1.0)
    return Unit("us", 1e6) if summary.window_seconds < SHORT else Unit("ms", 1e3)


def print_trace(summary: TraceSummary, console: Console) -> None:
    """Print what was read from traces.

    Args:
        summary: What was read.
        console: Where to.
    """
    unit = unit_of(summary)
    put(console, heading(summary), hang=2, style="bold")
    put(console, lead(summary), hang=2, style="bold")
    _print_parts(console, unit, summary)
    ranks = [(_rank_name(each, summary.ranks), each) for each in summary.ranks]
    _print_times(console, unit, "rank", ranks)
    steps = [(f"{s.step}" + ("" if s.counted else " *"), s) for s in summary.steps]
    _print_times(console, unit, "step", steps)
    legend = ", ".join(f"{part.letter} {part.name}" for part in PARTS)
    if not all(step.counted for step in summary.steps):
        legend += "; * not counted above"
    put(console, f"  {legend}", hang=2, style="dim")
    _print_calls(console, unit, "collective", summary.collectives)
    _print_calls(console, unit, "process group", summary.groups)
    _print_calls(console, unit, "collective by size", summary.sizes)
    console.print()
    window = summary.window_seconds
    say(console, "Late", *[sentence(row, window) for row in late(summary.waiting, window)])
    say(console, "Note", *summary.notes)


def _print_parts(console: Console, unit: Unit, summary: TraceSummary) -> None:
    """Print the parts of the time, sorted by size."""
    window = summary.window_seconds
    parts = sorted(((max(part.seconds(summary), 0.0), part.name) for part in PARTS), reverse=True)
    rows = [
        (name, unit.number(seconds), _fraction(seconds, window))
        for seconds, name in parts
        if seconds
    ]
    console.print()
    total = ("total", unit.number(window), "100.0")
    table(console, ("time", unit.name, "%"), [*rows, total])


def _fraction(part: float, whole: float) -> str:
    return percent(part / whole).removesuffix("%") if whole else "-"


def _rank_name(rank: RankTrace, ranks: Sequence[RankTrace]) -> str:
    """Return the number of a rank, with the device where a number stands for several."""
    name = "?" if rank.rank is None else str(rank.rank)
    same = sum(each.rank == rank.rank for each in ranks)
    return f"{name} ({rank.device})" if same > 1 or rank.device == "cpu" else name


def _print_times(
    console: Console, unit: Unit, head: str, rows: Sequence[tuple[str, Times]]
) -> None:
    """Print times, one row each, with a bar where there is room."""
    if not rows:
        return
    console.print()
    table(
        console,
        (head, " ", unit.name, "compute", "comm.", "exposed", "idle", "overlap %"),
        [
            (
                name,
                _bar(times),
                unit.number(times.window_seconds),
                unit.number(times.compute_seconds),
                unit.number(times.communication_seconds),
                unit.number(times.exposed_seconds),
                unit.number(times.idle_seconds),
                _overlap(times.overlap_pct),
            )
            for name, times in rows[:SHOWN]
        ],
        left=2,
        spare=(" ",),
    )
    _print_more(console, len(rows))


def _bar(times: Times) -> str:
    """Draw the parts of a time as one bar; rounding the ends keeps its width."""
    drawn = ""
    if times.window_seconds <= 0.0:
        return drawn
    reached = 0.0
    for part in PARTS:
        reached += max(part.seconds(times), 0.0)
        end = round(BAR_WIDTH * reached / times.window_seconds)
        drawn += part.letter * (end - len(drawn))
    return drawn


def _print_calls(console: Console, unit: Unit, head: str, rows: Sequence[Communication]) -> None:
    """Print calls; sizes are those of one call."""
    if not rows:
        return
    console.print()
    table(
        console,
        (head, "ranks", "calls", "size", unit.name, "exposed", "overlap %"),
        [
            (
                row.name,
                "?" if row.group_size is None else f"{row.group_size:,}",
                f"{row.calls:,.10g}",
                size_range(row),
                unit.number(row.communication_seconds),
                unit.number(row.exposed_seconds),
                _overlap(row.overlap_pct),
            )
            for row in rows[:SHOWN]
        ],
        spare=("overlap %", "ranks"),
    )
    _print_more(console, len(rows))


def _print_more(console: Console, count: int) -> None:
    if count > SHOWN:
        console.print(Text(f"  ... ({count - SHOWN:,} more: --json)", style="dim"))


def size_range(row: Communication) -> str:
    """Print the smallest and the largest call: "8.20 MiB - 31.5 MiB"; "?" if they are unknown."""
    if row.smallest_bytes is None or row.largest_bytes is None:
        return "?"
    low, high = format_bytes(row.smallest_bytes), format_bytes(row.largest_bytes)
    return low if low == high else f"{low} - {high}"


def _overlap(overlap: float | None) -> str:
    return "-" if overlap is None else f"{overlap:.1f}"
