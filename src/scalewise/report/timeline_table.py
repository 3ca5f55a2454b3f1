"""A simulated step in a terminal: question, summary, and a small picture of the schedule.

    print_timeline(line, Console())

One row per pipeline stage, or per stream where there is one stage. Each character is an interval of
time, and shows what the rank did for most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from scalewise.report.terminal import INDENT, print_defaults, print_title, put, say, wrapped
from scalewise.report.timeline_figure import Row, overview, summary
from scalewise.report.words import milliseconds, title, verdict

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.defaults import Default
    from scalewise.simulation.simulate import Timeline

LETTERS = {
    "forward": "F",
    "backward": "B",
    "weights": "W",
    "data": "d",
    "tensor": "t",
    "pipeline": "s",
    "other": "o",
    "wait": "-",
}
STYLES = {
    "F": "blue", "B": "red", "W": "green", "d": "magenta", "t": "cyan", "o": "yellow",
}  # fmt: skip
WORDS = {
    "F": "forward", "B": "backward", "W": "wgrad", "d": "data parallel",
    "t": "tensor, context or expert parallel", "s": "P2P send/recv", "o": "LM head, optimizer",
    "-": "launches, overhead", ".": "idle",
}  # fmt: skip
MAX_ROWS = 16
"""Stages of the picture."""


def print_timeline(
    line: Timeline,
    console: Console,
    *,
    defaults: Sequence[Default] = (),
    changes: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print a simulated step.

    Args:
        line: The step.
        console: Where to.
        defaults: What was chosen for the user.
        changes: What-if changes.
        notes: What looks odd about the question.
    """
    print_title(console, title(line.estimate), changes)
    bad = verdict(line.estimate)
    if bad is not None:
        put(console, bad, hang=INDENT, style="bold red")
    _print_summary(line, console)
    console.print()
    _print_picture(line, console)
    # The verdict has said already why it cannot run.
    reason = line.estimate.infeasible
    more = [note for note in line.notes if reason is None or reason not in note]
    say(console, "Note", *notes, *more, style="yellow")
    print_defaults(console, defaults)


def _print_summary(line: Timeline, console: Console) -> None:
    """Print the numbers of a step: name, value, detail."""
    rows = summary(line)
    name = max(len(row[0]) for row in rows) + 2
    value = max(len(row[1]) for row in rows)
    hang = INDENT + name + value + 2
    for label, number, detail in rows:
        first, *others = wrapped(detail, console.width - hang) or [""]
        text = f"{' ' * INDENT}{label:<{name}}{number:>{value}}  {first}".rstrip()
        console.print(Text(text), soft_wrap=True)
        for more in others:
            console.print(Text(" " * hang + more), soft_wrap=True)


def _print_picture(line: Timeline, console: Console) -> None:
    """Print the schedule in letters, and what they mean."""
    seconds = line.simulation.times.seconds + line.simulation.closing.seconds
    console.print(Text(f"Schedule over {milliseconds(seconds)}", style="bold"))
    rows = overview(line)
    label = max(len(row.name) for row in rows)
    width = max(min(console.width - label - 2 * INDENT - 2, 100), 20)
    used: set[str] = set()
    for row in rows[:MAX_ROWS]:
        letters = picture(row, seconds, width)
        used |= set(letters)
        text = Text(" " * INDENT + row.name.ljust(label) + "  ")
        for letter in letters:
            text.append(letter, style=STYLES.get(letter, "dim"))
        console.print(text, soft_wrap=True)
    if len(rows) > MAX_ROWS:
        console.print(Text(f"{' ' * INDENT}... ({len(rows) - MAX_ROWS} more stages)", style="dim"))
    legend = ", ".join(f"{key} {word}" for key, word in WORDS.items() if key in used)
    put(console, " " * INDENT + legend, hang=INDENT, style="dim")


def picture(row: Row, seconds: float, width: int) -> str:
    """Return one row: a letter per interval of time, `.` where nothing runs."""
    cells: list[dict[str, float]] = [{} for _ in range(width)]
    each = seconds / width
    for bar in row.bars:
        letter = LETTERS[bar.color]
        first = min(int(bar.start / each), width - 1)
        last = min(int(bar.end / each), width - 1)
        for place in range(first, last + 1):
            low, high = max(bar.start, place * each), min(bar.end, (place + 1) * each)
            if high > low:
                cells[place][letter] = cells[place].get(letter, 0.0) + high - low
    lines, owed = "", dict.fromkeys([*LETTERS.values(), "."], 0.0)
    for cell in cells:
        # What a cell cannot show is carried to the next, so that letters are in proportion.
        for letter, spent in cell.items():
            owed[letter] += spent / each
        owed["."] += max(1.0 - sum(cell.values()) / each, 0.0)
        present = [letter for letter in owed if letter in cell] or ["."]
        if sum(cell.values()) < 0.999 * each and "." not in present:
            present.append(".")
        letter = max(present, key=lambda letter: owed[letter])
        owed[letter] -= 1.0
        lines += letter
    return lines
