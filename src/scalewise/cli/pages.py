"""Terminal layout of catalog entries: tables of many, sections of one.

draw_list(("model", "params"), rows)(console)
draw_pairs(console, "Shape", [("layers", "32"), ("hidden", "4096")])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

GAP = 2
MIN_SOURCE = 12
"""Minimum columns for a source; with fewer, the column is left out."""


def draw_list(
    heads: tuple[str, ...], rows: Sequence[tuple[str, ...]], caption: str = ""
) -> Callable[[Console], None]:
    """Return a function that draws a table: numbers right-aligned, the last column truncated.

    Args:
        heads: Names of the columns.
        rows: One text per column.
        caption: Line above the table, for units.
    """

    def draw(out: Console) -> None:
        from rich.table import Table
        from rich.text import Text

        columns = list(zip(heads, *rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        room = out.width - sum(width + GAP for width in widths[:-1])
        kept = len(columns) if room >= MIN_SOURCE else len(columns) - 1
        # Leave columns out instead of truncating all of them.
        while kept > 2 and sum(widths[:kept]) + GAP * (kept - 1) > out.width and room < MIN_SOURCE:
            kept -= 1
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="bold cyan")
        for place, (head, *cells) in enumerate(columns[:kept]):
            numeric = place > 0 and all(cell[:1] in "0123456789$" for cell in cells)
            table.add_column(head, justify="right" if numeric else "left", no_wrap=True)
        for row in rows:
            cells = [*row[:-1], cut(row[-1], room)]
            table.add_row(*(Text(cell) for cell in cells[:kept]))
        if caption:
            out.print(Text(caption, style="dim"))
        out.print(table, crop=False)

    return draw


def cut(text: str, width: int) -> str:
    """Return a text as one line, truncated to `width` characters."""
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 3].rstrip() + "..."


def draw_heading(out: Console, text: str) -> None:
    """Draw the heading of an entry."""
    from rich.text import Text

    out.print(Text(text, style="bold"))


def draw_pairs(
    out: Console, heading: str, rows: Sequence[tuple[str, ...]], *, numbers: int = 0
) -> None:
    """Draw a section: names, then `numbers` right-aligned columns, then text."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    out.print()
    out.print(Text(heading, style="bold cyan"))
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, show_header=False)
    many = max(map(len, rows), default=0)
    for place in range(many):
        side = "right" if 1 <= place <= numbers else "left"
        table.add_column(justify=side, no_wrap=many > 1 and place <= numbers)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(" ".join(cell.split())) for cell in row))
    out.print(Padding(table, (0, 0, 0, GAP)))


def draw_source(out: Console, *texts: str, heading: str = "Source") -> None:
    """Draw the sources of the numbers; nothing without a source."""
    lines = [" ".join(text.split()) for text in texts if text.strip()]
    if lines:
        draw_pairs(out, heading, [(text,) for text in lines])
