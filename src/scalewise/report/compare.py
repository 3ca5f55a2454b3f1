"""How does predicted against measured read in a terminal? A sentence, a row for each job.

print_comparison(comparison, console)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table

from scalewise.report.tables import sentences
from scalewise.units import format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.evidence.compare import Comparison, Row

PARTS = ("compute", "communication", "exposed", "waiting")
"""What the table shows; waiting is exposed communication and idle time together."""


def headline(comparison: Comparison) -> str:
    """What the comparison comes to, in one sentence."""
    noise = comparison.median_noise
    repeats = "" if noise is None else f"; launches of the same job differ by +-{100 * noise:.0f} %"
    return (
        f"median error {100 * comparison.median_error:.1f} % over {len(comparison.rows)} jobs "
        f"predicted with {comparison.cluster} and stack {comparison.stack}{repeats}; "
        f"{100 * comparison.coverage:.0f} % lie in their 80 % interval"
    )


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print predicted against measured, in total and by part.

    Args:
        comparison: What to print.
        console: Where.
    """
    console.print(headline(comparison))
    console.print()
    console.print(step_table(comparison))
    if any(seen is not None for row in comparison.rows for seen, _ in row.terms.values()):
        console.print()
        console.print("by part, measured in the profiler's trace / predicted:")
        console.print(part_table(comparison))
    console.print()
    for name, error in comparison.by_strategy().items():
        console.print(f"  {name}: median error {100 * error:.1f} %")
    sentences(console, "Left out", comparison.skipped)
    warnings = dict.fromkeys(warning for row in comparison.rows for warning in row.warnings)
    busy = [warning for warning in warnings if "not idle" in warning]
    if len(busy) > 1:
        others = [warning for warning in warnings if warning not in busy]
        warnings = dict.fromkeys([*others, f"{busy[0]} (and {len(busy) - 1} launches more)"])
    sentences(console, "Warnings", warnings, style="yellow")


def step_table(comparison: Comparison) -> Table:
    """A row for each job."""
    table = Table(box=None, pad_edge=False)
    for name in ("model", "strategy"):
        table.add_column(name)
    for name in ("launches", "measured", "range", "predicted", "80 % interval", "error"):
        table.add_column(name, justify="right")
    for row in comparison.rows:
        table.add_row(
            row.model,
            row.strategy,
            str(row.launches),
            format_seconds(row.measured),
            _range(row.measured_low, row.measured_high),
            format_seconds(row.predicted),
            _range(row.low, row.high),
            f"{100 * row.error:+.1f} %",
        )
    return table


def part_table(comparison: Comparison) -> Table:
    """Measured and predicted seconds of every part."""
    table = Table(box=None, pad_edge=False)
    for name in ("model", "strategy"):
        table.add_column(name)
    for name in PARTS:
        table.add_column(name, justify="right", no_wrap=True)
    for row in comparison.rows:
        table.add_row(row.model, row.strategy, *(_pair(row, part) for part in PARTS))
    return table


def _pair(row: Row, part: str) -> str:
    seen, said = row.terms[part]
    return f"{'-' if seen is None else format_seconds(seen)} / {format_seconds(said)}"


def _range(low: float, high: float) -> str:
    return f"{format_seconds(low)} - {format_seconds(high)}"
