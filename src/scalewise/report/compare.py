"""Predicted against measured steps in a terminal: median error, a row for each job.

print_comparison(comparison, console)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.ranges import plus_minus
from scalewise.report.terminal import put, say, table
from scalewise.report.words import counted
from scalewise.units import format_percent, format_seconds

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.evidence.compare import Comparison, Row

PARTS = ("compute", "communication", "exposed", "waiting")
"""Columns of the second table; waiting is exposed communication and idle time together."""


def headline(comparison: Comparison) -> str:
    """Return the result of the comparison in one sentence."""
    noise = comparison.median_noise
    repeats = ""
    if noise is not None:
        repeats = f"; run-to-run variation {format_percent(noise, decimals=0)}"
    return (
        f"Median error {format_percent(comparison.median_error)} over "
        f"{counted(len(comparison.rows), 'job')} (cluster {comparison.cluster}, stack "
        f"{comparison.stack}){repeats}; {format_percent(comparison.coverage, decimals=0)} are "
        "within their 80% prediction interval"
    )


def print_comparison(comparison: Comparison, console: Console) -> None:
    """Print predicted against measured, in total and by part.

    Args:
        comparison: What to print.
        console: Where to.
    """
    put(console, headline(comparison), hang=2, style="bold")
    if comparison.calibrated is not None:
        before, after = map(plus_minus, (comparison.interval, comparison.calibrated))
        jobs = counted(len(comparison.rows), "job")
        put(console, f"`scalewise calibrate` on your {jobs} narrows it from {before} to {after}")
    console.print()
    _print_steps(comparison, console)
    if any(seen is not None for row in comparison.rows for seen, _ in row.terms.values()):
        console.print()
        put(console, "By part: measured in the profiler's trace / predicted")
        _print_parts(comparison, console)
    console.print()
    errors = (f"{name} {format_percent(e)}" for name, e in comparison.by_strategy().items())
    say(console, "Median error by strategy", ", ".join(errors))
    say(console, "Left out", *comparison.skipped)
    warnings = dict.fromkeys(warning for row in comparison.rows for warning in row.warnings)
    busy = [warning for warning in warnings if "not idle" in warning]
    if len(busy) > 1:
        others = [warning for warning in warnings if warning not in busy]
        warnings = dict.fromkeys([*others, f"{busy[0]} ({len(busy) - 1} more repeats)"])
    say(console, "Warning", *warnings, style="yellow")


def _print_steps(comparison: Comparison, console: Console) -> None:
    """Print a row for each job."""
    table(
        console,
        ("model", "strategy", "repeats", "measured", "range", "predicted", "[low-high]", "error %"),
        [
            (
                row.model,
                row.strategy,
                str(row.launches),
                format_seconds(row.measured),
                _range(row.measured_low, row.measured_high),
                format_seconds(row.predicted),
                _range(row.low, row.high),
                format_percent(row.error, sign=True).removesuffix("%"),
            )
            for row in comparison.rows
        ],
        left=2,
        spare=("range", "repeats", "[low-high]"),
    )


def _print_parts(comparison: Comparison, console: Console) -> None:
    """Print measured and predicted seconds of every part."""
    table(
        console,
        ("model", "strategy", *PARTS),
        [
            (row.model, row.strategy, *(_pair(row, part) for part in PARTS))
            for row in comparison.rows
        ],
        left=2,
    )


def _pair(row: Row, part: str) -> str:
    seen, predicted = row.terms[part]
    return f"{'-' if seen is None else format_seconds(seen)} / {format_seconds(predicted)}"


def _range(low: float, high: float) -> str:
    return f"{format_seconds(low)} - {format_seconds(high)}"
