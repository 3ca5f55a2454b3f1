"""How does an estimate read in a terminal? The answer first, then where the time goes, then advice.

    from rich.console import Console
    print_estimate(e, Console(), chosen=question.chosen)

Drawn with rich, which drops colours where nobody can see them and fits any width from 80 columns.
Rows that are zero are left out; what is shown still adds up.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.report.advice import advice
from scalewise.report.words import (
    bar,
    footnote,
    gibibytes,
    headline,
    milliseconds,
    percent,
    plain,
    provenance_line,
    term_label,
    title,
)

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

INDENT = 2
BAR_WIDTH = 24
"""Characters of a bar for 100 %; shares of a step rarely pass a half, so bars stay short."""


def print_estimate(
    e: Estimate,
    console: Console,
    *,
    chosen: Sequence[str] = (),
    changed: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print everything a reader needs about one estimate.

    Args:
        e: The estimate.
        console: Where to.
        chosen: What was chosen for the user beside what the estimate itself chose.
        changed: What the user changed against the catalog.
        notes: What looks odd about the question.
    """
    print_headline(e, console)
    print_breakdown(e, console)
    print_footer(e, console, chosen=chosen, changed=changed, notes=notes)


def print_headline(e: Estimate, console: Console) -> None:
    """Print what was estimated and the answer; first of all, whether it can run."""
    console.print(Text(title(e), style="bold"))
    if e.infeasible is not None:
        console.print(Text(f"Does not fit. {e.infeasible}", style="bold red"))
    console.print()
    grid = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(style="cyan", no_wrap=True)
    grid.add_column()
    for fact in headline(e):
        told = Text(fact.value, style="bold")
        told.append(fact.detail, style="not bold")
        grid.add_row(fact.name, told)
    console.print(Padding(grid, (0, 0, 0, INDENT)))
    console.print()
    console.print(Padding(Text(footnote(e), style="dim"), (0, 0, 0, INDENT)))


def print_breakdown(e: Estimate, console: Console) -> None:
    """Print where the time and the memory go, and what communication costs."""
    blocks = can_draw_blocks(console)
    shares(
        console,
        "Where the step goes",
        [(term_label(name), value) for name, value in e.terms.items()],
        total=("step", e.step_seconds),
        show=milliseconds,
        blocks=blocks,
    )
    if any(e.load.values()):
        _communication(e, console)
    shares(
        console,
        "Memory of the fullest rank",
        [(plain(name), value) for name, value in e.memory.items()],
        total=("peak", e.memory_bytes),
        show=gibibytes,
        blocks=blocks,
    )


def print_footer(
    e: Estimate,
    console: Console,
    *,
    chosen: Sequence[str] = (),
    changed: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print advice, what was chosen, what to beware of, and where the numbers come from."""
    sentences(console, "What to try", advice(e), style="green")
    sentences(console, "Changed with --set", changed)
    sentences(console, "Chosen for you", [*chosen, *e.defaults])
    sentences(console, "Warnings", [*notes, *e.warnings], style="yellow")
    sentences(console, "Where the numbers come from", [provenance_line(e)])


def shares(
    console: Console,
    heading: str,
    rows: Iterable[tuple[str, float]],
    *,
    total: tuple[str, float],
    show: object,
    blocks: bool,
) -> None:
    """Print parts of a whole: name, value, percentage, bar; the whole at the end.

    Args:
        console: Where to.
        heading: What is split.
        rows: (name, value); zeros are left out.
        total: (name, value) of the whole.
        show: Prints a value with its unit.
        blocks: Whether bars may use block characters.
    """
    assert callable(show)
    whole = total[1]
    table = _table(("", "left"), ("", "right"), ("", "right"), ("", "left"))
    for name, value in rows:
        if value:
            share = value / whole
            drawn = Text(bar(share, BAR_WIDTH, blocks=blocks), style="blue")
            table.add_row(name, show(value), percent(share), drawn)
    table.add_row(Text(total[0], style="bold"), Text(show(whole), style="bold"), "100.0 %", "")
    _section(console, heading)
    console.print(Padding(table, (0, 0, 0, INDENT)))


def _communication(e: Estimate, console: Console) -> None:
    table = _table(("", "left"), ("load", "right"), ("exposed", "right"), ("of the step", "right"))
    table.show_header = True
    for name, load in e.load.items():
        if load:
            exposed = e.exposed[name]
            share = percent(exposed / e.step_seconds)
            table.add_row(plain(name), milliseconds(load), milliseconds(exposed), share)
    _section(console, "Communication of one rank, and what nothing hides")
    console.print(Padding(table, (0, 0, 0, INDENT)))


def sentences(console: Console, heading: str, lines: Iterable[str], *, style: str = "") -> None:
    """Print a heading and one line for each sentence; nothing where there is none."""
    told = list(lines)
    if not told:
        return
    _section(console, heading)
    for line in told:
        console.print(Padding(Text(line, style=style), (0, 0, 0, INDENT)))


def can_draw_blocks(console: Console) -> bool:
    """Whether the terminal's encoding has block characters."""
    try:
        "\u2588\u258f".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def _section(console: Console, heading: str) -> None:
    console.print()
    console.print(Text(heading, style="bold cyan"))


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    for name, side in columns:
        table.add_column(name, justify=side, no_wrap=True, header_style="dim")  # type: ignore[arg-type]
    return table
