"""An estimate in a terminal: question, answer, suggestion, two tables sorted by size, defaults.

    from rich.console import Console
    print_estimate(e, Console(), defaults=asked.defaults, changes=asked.changes)

At most 25 lines at 100 columns: what has no room in a table is merged into its last row, so that
rows always add up to the total.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from rich.text import Text

from scalewise.report.suggestions import suggestions
from scalewise.report.terminal import INDENT as INDENT
from scalewise.report.terminal import can_draw_blocks as can_draw_blocks
from scalewise.report.terminal import (
    default_lines,
    print_defaults,
    print_title,
    say,
    title_lines,
    wrapped,
)
from scalewise.report.words import headline, interval_words, provenance_line, title, verdict
from scalewise.terms import MEMORY_PARTS, TERMS
from scalewise.units import GIB, decimals_of

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.defaults import Default
    from scalewise.step.result import Estimate

MAX_LINES = 25
"""Lines of an estimate at 100 columns."""
MIN_ROWS = 6
"""Rows that a table has in any case."""
SMALL = 0.005
"""Fraction of the total below which rows are merged."""
LABEL = 22
"""Characters of a label."""
FULL = 100
"""Columns from which tables are shortened to keep within these lines."""
TIME, PERCENT = 8, 7
"""Characters of the columns of step time."""
WIDE, NARROW = 84, 79
"""Columns from which the tables stand side by side with, and without, wide gaps."""

_SHORT = {
    "kernel launches": "launches",
    "parameters": "params",
    "gradients": "grads",
    "optimizer": "optim.",
}
"""Labels in a row of several, where there is no room for the long ones."""


def print_estimate(
    e: Estimate,
    console: Console,
    *,
    defaults: Sequence[Default] = (),
    changes: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print one estimate.

    Args:
        e: The estimate.
        console: Where to.
        defaults: What was chosen for the user.
        changes: What-if changes.
        notes: What looks odd about the question.
    """
    print_headline(e, console, changes=changes)
    lines = suggestions(e)
    _suggest(console, lines)
    warnings = [*notes, *e.warnings]
    # Lines that are spoken for: title, changes, verdict, facts, interval, blank, head and total.
    used = 4 + len(headline(e)) + (verdict(e) is not None)
    used += len(title_lines(title(e), changes, console.width))
    for label, texts in (("Suggestion", lines or ("none",)), ("Note", warnings)):
        used += sum(len(wrapped(f"{label}: {text}", console.width)) for text in texts)
    console.print()
    rows = max(MAX_LINES - used, MIN_ROWS) if console.width >= FULL else len(TERMS)
    _print_tables(e, console, defaults, rows)
    say(console, "Note", *warnings, style="yellow")


def print_headline(e: Estimate, console: Console, *, changes: Sequence[str] = ()) -> None:
    """Print the question and the answer; memory that will not hold it comes second."""
    print_title(console, title(e), changes)
    bad = verdict(e)
    if bad is not None:
        console.print(Text(bad, style="bold red"), soft_wrap=True)
    facts = headline(e)
    name = max(len(fact.name) for fact in facts) + 1
    value = max(len(fact.value) for fact in facts) + 2
    hang = INDENT + name + value
    for fact in facts:
        text = " " * INDENT + fact.name.ljust(name)
        for place, detail in enumerate(wrapped(fact.detail, console.width - hang)):
            if place:
                text = " " * hang + detail
                console.print(Text(text), soft_wrap=True)
                continue
            line = Text(text, style="cyan")
            line.append(fact.value.ljust(value), style="bold not cyan")
            line.append(detail, style="not cyan")
            console.print(line, soft_wrap=True)
    console.print(Text(" " * INDENT + interval_words(e), style="dim"), soft_wrap=True)


def print_footer(
    e: Estimate,
    console: Console,
    *,
    defaults: Sequence[Default] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print suggestion, defaults, notes and sources after another view than the tables."""
    console.print()
    _suggest(console, suggestions(e))
    print_defaults(console, defaults)
    say(console, "Note", *notes, *e.warnings, style="yellow")
    say(console, "Sources", provenance_line(e), style="dim")


def _suggest(console: Console, lines: Sequence[str]) -> None:
    none = "none: no change of one decision gains 2%"
    say(console, "Suggestion", *(lines or (none,)), style="green")


def _print_tables(e: Estimate, console: Console, defaults: Sequence[Default], rows: int) -> None:
    """Print step time and peak memory side by side, with defaults and sources below memory."""
    wide, beside = console.width >= WIDE, console.width >= NARROW
    label, gap = (26, "   | ") if wide else (24, " | ")
    room = console.width - label - TIME - PERCENT - len(gap) if beside else console.width
    below = [*default_lines(defaults, room, INDENT), "Sources: --explain"]
    sizes = {MEMORY_PARTS[name].label: value / GIB for name, value in e.memory.items()}
    decimals = max(decimals_of(e.memory_bytes / GIB), 1)
    last: list[str] = []
    if beside and len(merged(sizes, rows)) + 1 + len(below) > rows:
        last = default_lines(defaults, console.width, INDENT, end=". Sources: --explain")
        rows, below = max(rows - len(last), MIN_ROWS), []
    right = parts_table(
        ("Peak memory (worst rank)", "GiB"), sizes, rows=rows, decimals=decimals, widths=(24, 6)
    )
    right += ["", *below] if below else []
    unit, factor = ("s", 1.0) if e.step_seconds >= 10.0 else ("ms", 1e3)
    left = parts_table(
        ("Step time", unit),
        {TERMS[name].label: value * factor for name, value in e.terms.items()},
        rows=rows,
        decimals=decimals_of(e.step_seconds * factor, 4),
        widths=(label, TIME),
    )
    lines = [*left, "", *right]
    if beside:
        width = len(left[0])
        pairs = zip_longest(left, right, fillvalue="")
        lines = [f"{a.ljust(width)}{gap}{b}".rstrip() for a, b in pairs]
    for place, line in enumerate([*lines, *last]):
        console.print(Text(line, style="" if place else "bold"), soft_wrap=True)


def parts_table(
    heads: tuple[str, str],
    parts: Mapping[str, float],
    *,
    rows: int,
    decimals: int,
    widths: tuple[int, int],
) -> list[str]:
    """Return parts of a whole as lines, sorted by size: label, value, percent; the total last.

    Args:
        heads: Name of the whole, and unit of the values.
        parts: Values by label; zeros are left out.
        rows: Rows without head and total; the smallest parts are merged into the last one.
        decimals: Of the values.
        widths: Of label and value.
    """
    whole = sum(parts.values())
    label, value = widths

    def line(name: str, number: str, percent: str) -> str:
        return f"{name:<{label}}{number:>{value}}{percent:>{PERCENT}}"

    return [
        line(*heads, "%"),
        *(
            line(" " * INDENT + name, _cell(size, decimals), _cell(100 * size / whole, 1))
            for name, size in merged(parts, rows)
        ),
        line(" " * INDENT + "total", _cell(whole, decimals), "100.0"),
    ]


def merged(parts: Mapping[str, float], rows: int) -> list[tuple[str, float]]:
    """Return parts sorted by size, the small ones merged into one row.

    Args:
        parts: Values by label; zeros are left out.
        rows: Rows to return at most.
    """
    ranked = sorted(((k, v) for k, v in parts.items() if v), key=lambda item: -item[1])
    whole = sum(parts.values())
    kept = sum(1 for _, value in ranked if value >= SMALL * whole)
    several = kept < len(ranked) - 1 or len(ranked) > rows
    kept = min(kept, rows - 1) if several else len(ranked)
    small = ranked[kept:]
    if not small:
        return ranked
    names = [name for name in parts if name in dict(small)]
    return [*ranked[:kept], (_joined(names), sum(value for _, value in small))]


def _joined(names: list[str]) -> str:
    """Return several labels as one, abbreviated as far as needed; their number if that is vain."""
    for long, short in {"": "", **_SHORT}.items():
        names = [short if name == long else name for name in names]
        if len(", ".join(names)) <= LABEL:
            return ", ".join(names)
    return f"{len(names)} others"


def _cell(value: float, decimals: int) -> str:
    """Print a number of a column; what rounds to zero is below the last digit."""
    least = 10.0**-decimals
    return f"<{least:.{decimals}f}" if 0 < value < least / 2 else f"{value:,.{decimals}f}"
