"""Derivations in a terminal: formula, letters with values, result, source.

print_explained(e, console)
shown(0.0123, "s")                # "12.3 ms"
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from scalewise.step.explain import explain
from scalewise.units import (
    format_bytes,
    format_count,
    format_dollars,
    format_flops,
    format_joules,
    format_percent,
    format_rate,
    format_seconds,
    format_watts,
    grouped,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from scalewise.derivation import Derivation
    from scalewise.step.result import Estimate


def plain(value: float) -> str:
    """Print a count or a ratio: "4,096", "0.7000"."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else grouped(value, 4)


UNITS: dict[str, Callable[[float], str]] = {
    "": plain,
    "s": format_seconds,
    "B": format_bytes,
    "B/s": format_rate,
    "FLOP": lambda value: format_flops(value).removesuffix("/s"),
    "FLOP/s": format_flops,
    "W": format_watts,
    "J": format_joules,
    "$": format_dollars,
    "tok/s": lambda value: f"{format_count(value)} tok/s",
    "%": format_percent,
}
"""Formatting of letters and results, by unit."""


def shown(value: float, unit: str) -> str:
    """Print a value with its unit."""
    return UNITS[unit](value)


def print_explained(e: Estimate, console: Console) -> None:
    """Print the derivation of every number of an estimate.

    Args:
        e: The estimate.
        console: Where to.
    """
    from rich.padding import Padding
    from rich.text import Text

    for place, each in enumerate(explain(e), start=1):
        console.print()
        console.print(Text(f"{place}. {each.label}", style="bold cyan"))
        console.print(Padding(Text(each.formula, style="italic"), (0, 0, 0, 2)))
        if each.letters:
            console.print(Padding(_letters(each), (0, 0, 0, 4)))
        for line in each.notes:
            console.print(Padding(Text(line, style="dim"), (0, 0, 0, 4)))
        result = shown(each.value, each.unit)
        console.print(Padding(Text(f"= {result}", style="bold"), (0, 0, 0, 2)))
        if each.source:
            source = " ".join(each.source.split())
            console.print(Padding(Text(f"source: {source}", style="dim"), (0, 0, 0, 2)))


def _letters(derivation: Derivation) -> Table:
    """Return a row for every letter, those of inner formulas indented below it."""
    from rich.table import Table

    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    table.add_column(no_wrap=True, style="cyan")
    table.add_column(no_wrap=True, justify="right")
    table.add_column(style="dim")
    seen: dict[str, Derivation] = {}

    def add(each: Derivation, depth: int) -> None:
        for letter in each.letters:
            inner, text = letter.because, letter.meaning
            known = None if inner is None else seen.get(inner.formula)
            if inner is not None:
                text += f" = {inner.formula}" if known is None else f": {_differing(inner, known)}"
            name = "  " * depth + letter.name
            table.add_row(name, shown(letter.value, letter.unit), text)
            if inner is not None and inner.letters and known is None:
                seen[inner.formula] = inner
                add(inner, depth + 1)
                for note in inner.notes:
                    table.add_row("", "", note)

    add(derivation, 0)
    return table


def _differing(derivation: Derivation, known: Derivation) -> str:
    """Return the letters of a formula that was printed before, where their values differ."""
    before = {letter.name: letter.value for letter in known.letters}
    letters = [x for x in derivation.letters if x.value != before.get(x.name)]
    return ", ".join(f"{x.name} {shown(x.value, x.unit)}" for x in letters) or "the same"
