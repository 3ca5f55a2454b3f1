"""Paragraphs and tables in a terminal, at any width from 80 columns.

    say(console, "Suggestion", "hsdp16x128-mb2: 11,100 tok/s/GPU, +18%")
    table(console, ("strategy", "tok/s/GPU"), [("fsdp", "9,490")])

Lines are wrapped between words, never inside a strategy or a number. A table that is too wide
drops the columns it can do without: JSON and CSV have them all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rich.text import Text

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.defaults import Default

INDENT = 2
"""Columns before a table."""

LONG = 12
"""Characters of a label beyond which further lines do not start below its text."""

NO_BREAK = "\u00a0"
"""A blank at which no line is broken."""


def wrapped(text: str, width: int, hang: int = 0) -> list[str]:
    """Split a paragraph into lines; those after the first start with `hang` blanks."""
    return textwrap.wrap(
        text, max(width, hang + 20), subsequent_indent=" " * hang, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def put(console: Console, text: str, *, hang: int = 0, style: str = "") -> None:
    """Print one paragraph, with hanging lines after the first."""
    for line in wrapped(text, console.width, hang):
        console.print(Text(line, style=style), soft_wrap=True)


def say(console: Console, label: str, *texts: str, style: str = "") -> None:
    """Print each text as a paragraph that starts with a label."""
    for text in texts:
        hang = len(label) + 2 if len(label) <= LONG else 2 * INDENT
        for place, line in enumerate(wrapped(f"{label}: {text}", console.width, hang)):
            printed = Text(line, style=style)
            if not place:
                printed.stylize("bold", 0, len(label) + 1)
            console.print(printed, soft_wrap=True)


def print_title(console: Console, title: str, changes: Sequence[str] = ()) -> None:
    """Print what was asked, with every what-if change."""
    for line in title_lines(title, changes, console.width):
        console.print(Text(line, style="bold"), soft_wrap=True)


def title_lines(title: str, changes: Sequence[str], width: int) -> list[str]:
    """Return what was asked: in one line where there is room, else changes in the second."""
    what_if = ", ".join(changes)
    line = f"{title} | {what_if}" if what_if else title
    if not what_if or len(line) <= width:
        return wrapped(line, width, INDENT)
    second = wrapped(f"with {what_if}", width - INDENT, INDENT)
    return [*wrapped(title, width, INDENT), *(" " * INDENT + text for text in second)]


def print_defaults(console: Console, defaults: Sequence[Default]) -> None:
    """Print what was chosen for the user, by flag, each with its reason."""
    for line in default_lines(defaults, console.width, len("Defaults: ")):
        console.print(Text(line), soft_wrap=True)


def default_lines(
    defaults: Sequence[Default], width: int, hang: int, *, end: str = ""
) -> list[str]:
    """Return what was chosen as wrapped lines; a flag and its value stay together."""
    texts = ", ".join(str(each).replace(" ", NO_BREAK, 1) for each in defaults)
    text = f"Defaults: {texts}{end}" if defaults else end.lstrip(". ")
    return [line.replace(NO_BREAK, " ") for line in wrapped(text, width, hang)]


def table(
    console: Console,
    heads: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    left: int = 1,
    gap: int = 2,
    spare: Sequence[str] = (),
) -> None:
    """Print a table without lines.

    Args:
        console: Where to.
        heads: Heads of the columns; a column without any text is left out.
        rows: Cells; a row of one cell is a line of its own.
        left: Columns that are aligned to the left, counted from the first.
        gap: Blanks between two columns.
        spare: Columns to drop where the width does not hold them, first to last.
    """
    lines = [list(row) for row in rows]
    cells = [row for row in lines if len(row) > 1]
    places = [
        place for place in range(len(heads)) if place < left or any(row[place] for row in cells)
    ]
    widths = [max([len(head), *(len(row[i]) for row in cells)]) for i, head in enumerate(heads)]
    for name in spare:
        if INDENT + sum(widths[i] + gap for i in places) - gap <= console.width:
            break
        places = [place for place in places if heads[place] != name]

    def line(row: Sequence[str]) -> str:
        texts = (row[i].ljust(widths[i]) if i < left else row[i].rjust(widths[i]) for i in places)
        return " " * INDENT + (" " * gap).join(texts).rstrip()

    console.print(Text(line(heads), style="dim"), soft_wrap=True)
    for row in lines:
        text = line(row) if len(row) > 1 else " " * INDENT + row[0]
        console.print(Text(text), soft_wrap=True)


def can_draw_blocks(console: Console) -> bool:
    """Whether the terminal's encoding has block characters."""
    try:
        "\u2588\u258f".encode(console.encoding)
    except (UnicodeEncodeError, LookupError):
        return False
    return True
