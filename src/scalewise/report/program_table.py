"""A captured program in a terminal: what was recognized, its collectives, and the comparison.

    print_program(found, Console())

Capturing and pricing are `scalewise.program`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scalewise.report.terminal import print_defaults, print_title, put, say, table
from scalewise.report.words import counted, title
from scalewise.units import format_bytes, format_percent, format_seconds, grouped

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.program.compare import Comparison, Line

ROWS = 12
"""Rows of the table of collectives; JSON has all."""


def _tera(value: float) -> str:
    return f"{grouped(value / 1e12)}T"


FORMS: dict[str, Callable[[float], str]] = {
    "s": format_seconds, "bytes": format_bytes, "FLOP": _tera,
}  # fmt: skip
"""How each unit is printed."""

FAR = 5.0
"""Ratio from which a difference is printed as a factor."""


def lead(found: Comparison) -> str:
    """Return the answer: the program's step time beside the estimate of its strategy."""
    program, model = found.replay.seconds, found.estimate.step_seconds
    more = format_percent(program / model - 1.0, sign=True)
    return (
        f"The program takes {format_seconds(program)} per step, the estimate of its strategy "
        f"{format_seconds(model)}: {more}."
    )


def print_program(found: Comparison, console: Console) -> None:
    """Print a comparison.

    Args:
        found: What was captured and priced.
        console: Where to.
    """
    first = found.captures[0]
    print_title(console, title(found.estimate), found.asked.changes)
    put(console, lead(found), hang=2, style="bold")
    put(
        console,
        f"Captured: {first.program}; {counted(len(found.captures), 'rank')} of {first.world:,}, "
        f"{sum(len(each.events) for each in found.captures):,} events, PyTorch "
        f"{first.versions.get('torch', '?')}",
        hang=2,
    )
    console.print()
    rows = [(line.name, *cells(line)) for line in found.lines]
    table(console, ("quantity", "program", "estimate", "difference"), rows)
    console.print()
    shown = found.traffic[:ROWS]
    traffic = [
        (row.dimension, row.operation, row.phase, f"{row.ranks:,}", f"{row.calls:,}",
         format_bytes(row.bytes))
        for row in shown
    ]  # fmt: skip
    heads = ("dimension", "collective", "phase", "ranks", "calls", "bytes")
    table(console, heads, traffic, left=3)
    if len(found.traffic) > ROWS:
        put(console, f"  ... ({len(found.traffic) - ROWS} more rows: --json)", style="dim")
    console.print()
    say(console, "Note", *found.notes)
    print_defaults(console, found.asked.defaults)


def cells(line: Line) -> tuple[str, str, str]:
    """Return a line's numbers as text: program, estimate, difference."""
    print_ = FORMS[line.unit]
    if not line.model or not line.program:
        return print_(line.program), print_(line.model), ""
    ratio = line.program / line.model
    far = not 1.0 / FAR < ratio < FAR
    text = f"x {grouped(ratio)}" if far else format_percent(ratio - 1.0, sign=True)
    return print_(line.program), print_(line.model), text


def program_dict(found: Comparison) -> dict[str, Any]:
    """Return a comparison as plain types."""
    import msgspec

    from scalewise._version import __version__

    first = found.captures[0]
    return {
        "version": __version__,
        "program": first.program,
        "versions": first.versions,
        "world": first.world,
        "ranks": [each.rank for each in found.captures],
        "model": found.asked.model.name,
        "cluster": found.asked.cluster.name,
        "stack": found.estimate.stack.name,
        "strategy": str(found.recognized.strategy),
        "seq_len": found.recognized.seq_len,
        "global_batch": found.recognized.global_batch,
        "precision": found.recognized.precision,
        "step_seconds": found.replay.seconds,
        "estimate_seconds": found.estimate.step_seconds,
        "lines": [
            {"name": each.name, "unit": each.unit, "program": each.program, "model": each.model}
            for each in found.lines
        ],
        "flops": [msgspec.to_builtins(each) for each in found.flops],
        "communication_seconds": found.replay.communication,
        "exposed_seconds": found.replay.exposed,
        "collectives": msgspec.to_builtins(found.traffic),
        "peak_bytes": [each.peak_bytes for each in found.captures],
        "notes": list(found.notes),
    }
