"""How does a step read in a terminal? A summary, and a small picture of the schedule.

    print_timeline(line, Console())

One row per stage of the pipeline, or per stream where there is one stage; each character is a
moment, and shows what the rank did for most of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.report.schedule import Row, overview, summary
from scalewise.report.tables import INDENT
from scalewise.report.words import milliseconds, title

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.timeline.play import Timeline

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
    "F": "forward", "B": "backward", "W": "weight gradients", "d": "data parallel",
    "t": "tensor or context parallel", "s": "sends", "o": "head, optimizer",
    "-": "launches, overhead", ".": "idle",
}  # fmt: skip
MOST_ROWS = 16


def print_timeline(line: Timeline, console: Console, *, chosen: Sequence[str] = ()) -> None:
    """Print a step.

    Args:
        line: The step.
        console: Where to.
        chosen: What was chosen for the user.
    """
    console.print(Text(title(line.estimate), style="bold"))
    if line.estimate.infeasible is not None:
        console.print(Text(f"Does not fit. {line.estimate.infeasible}", style="bold red"))
    console.print()
    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(no_wrap=True)
    grid.add_column(justify="right", no_wrap=True)
    grid.add_column()
    for name, value, detail in summary(line):
        grid.add_row(Text(name), Text(value, style="bold"), Text(detail, style="dim"))
    console.print(Padding(grid, (0, 0, 0, INDENT)))
    console.print()
    seconds = line.play.played.seconds + line.play.closing.seconds
    console.print(Text(f"Schedule over {milliseconds(seconds)}", style="bold cyan"))
    rows = overview(line)
    label = max(len(row.name) for row in rows)
    width = max(min(console.width - label - 2 * INDENT - 2, 100), 20)
    used: set[str] = set()
    for row in rows[:MOST_ROWS]:
        told = picture(row, seconds, width)
        used |= set(told)
        text = Text(" " * INDENT + row.name.ljust(label) + "  ")
        for letter in told:
            text.append(letter, style=STYLES.get(letter, "dim"))
        console.print(text)
    if len(rows) > MOST_ROWS:
        console.print(Text(f"{' ' * INDENT}and {len(rows) - MOST_ROWS} more stages", style="dim"))
    legend = ", ".join(f"{key} {word}" for key, word in WORDS.items() if key in used)
    console.print(Text(" " * INDENT + legend, style="dim"))
    notes = [note for note in line.notes if not note.startswith("this step cannot run")]
    if notes or chosen:
        console.print()
    for note in notes:
        console.print(Text(note, style="yellow"))
    if chosen:
        console.print(Text("Chosen for you: " + "; ".join(chosen), style="dim"))


def picture(row: Row, seconds: float, width: int) -> str:
    """Draw one row: a letter per moment, `.` where nothing runs."""
    cells: list[dict[str, float]] = [{} for _ in range(width)]
    each = seconds / width
    for bar in row.bars:
        letter = LETTERS[bar.colour]
        first = min(int(bar.start / each), width - 1)
        last = min(int(bar.end / each), width - 1)
        for place in range(first, last + 1):
            low, high = max(bar.start, place * each), min(bar.end, (place + 1) * each)
            if high > low:
                cells[place][letter] = cells[place].get(letter, 0.0) + high - low
    told, owed = "", dict.fromkeys([*LETTERS.values(), "."], 0.0)
    for cell in cells:
        # What a cell cannot show is owed to the next, so that rare passes are seen in proportion.
        for letter, spent in cell.items():
            owed[letter] += spent / each
        owed["."] += max(1.0 - sum(cell.values()) / each, 0.0)
        present = [letter for letter in owed if letter in cell] or ["."]
        if sum(cell.values()) < 0.999 * each and "." not in present:
            present.append(".")
        letter = max(present, key=lambda letter: owed[letter])
        owed[letter] -= 1.0
        told += letter
    return told
