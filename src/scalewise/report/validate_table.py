"""Errors against measured runs in a terminal: methods, families, sources, and lines of numbers.

    print_validation(validation, Console())

`evidence.validate` and `evidence.accuracy` compute.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from scalewise.evidence.accuracy import UP_TO
from scalewise.report.terminal import put, say, table
from scalewise.units import format_percent

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.evidence.accuracy import Accuracy, Series
    from scalewise.evidence.expert_accuracy import ExpertAccuracy
    from scalewise.evidence.validate import Summary, Validation

WORST = 5
"""Runs listed with the largest errors."""

FEW = 10
"""Runs from which the coverage of a source is named."""


def print_validation(
    result: Validation, console: Console, *, engine: str = "analytical", refitted: bool = False
) -> None:
    """Print errors by method, family and source, and the other numbers of the headline.

    Args:
        result: What to print.
        console: Where to.
        engine: Model of the step time.
        refitted: Whether left-out predictions are of this call, not of the stored file.
    """
    found = result.accuracy()
    steps = ", simulated steps" if engine == "simulated" else ""
    sources = len({row.source for row in result.complete()})
    put(
        console,
        f"Predicted against measured tok/s/GPU{steps}: {found.complete:,} complete dense runs of "
        f"{sources} source{'s' * (sources != 1)}",
        style="bold",
    )
    if found.methods:
        console.print()
        _print_methods(found, console)
    console.print()
    for label, text in headline_lines(found).items():
        say(console, label, text)
    if "source left out" in found.methods:
        how = "refits of this run" if refitted else "stored; --left-out refits"
        say(console, "Left out", f"each source is predicted by a fit without it ({how})")
    families = {name: each for name, each in result.by_family().items() if each.count}
    shown = {row.source for row in result.judged() or result.rows}
    named = {name: each for name, each in result.by_source().items() if name in shown}
    for head, parts in (("family", families), ("source", named)):
        if parts:
            console.print()
            _print_summaries(head, parts, console)
    experts = result.experts()
    if experts is not None:
        console.print()
        put(console, f"Mixtures of experts: {experts.complete:,} complete runs", style="bold")
        if experts.groups:
            console.print()
            _print_summaries("accelerator", experts.groups, console)
        console.print()
        unseen = "; ".join(
            f"{name} median {format_percent(each.left_out_error)}, 90th percentile "
            f"{format_percent(each.left_out_p90 or 0.0, decimals=0)}"
            for name, each in experts.groups.items()
            if each.left_out_error is not None
        )
        for label, line in (expert_lines(experts) | {"Source left out": unseen}).items():
            if line:
                say(console, label, line)
    console.print()
    text = (
        "median, p90: absolute error; bias: median signed error; left out: median error with the "
        "source left out of the fit; in interval: runs inside the 80% prediction interval, source "
        "left out; memory: median error of peak memory. Reasons and all runs: --json; choices of "
        "strategies: --choices"
    )
    put(console, text, style="dim")
    _print_worst(result, console)


def _print_methods(found: Accuracy, console: Console) -> None:
    """Print the errors of the shipped constants, of refits and of the baselines."""
    table(
        console,
        ("prediction", "runs", "median %", "p90 %", "mean of sources %", "worst GPU source %"),
        [
            (
                name,
                f"{each.count:,}",
                _percent(each.median_error),
                _percent(each.p90_error),
                _percent(each.source_mean),
                "" if each.worst_error is None
                else f"{_percent(each.worst_error)} ({each.worst_source})",
            )
            for name, each in found.methods.items()
        ],
    )  # fmt: skip


def _print_summaries(head: str, parts: Mapping[str, Summary], console: Console) -> None:
    """Print one line per family or source."""
    table(
        console,
        (head, "runs", "median %", "p90 %", "bias %", "left out %", "in interval %", "memory %"),
        [
            (
                name,
                f"{each.count:,}",
                _percent(each.median_error),
                _percent(each.p90_error),
                _percent(each.bias, sign=True),
                _percent(each.left_out_error),
                _percent(
                    each.coverage if each.left_out_coverage is None else each.left_out_coverage,
                    decimals=0,
                ),
                _percent(each.memory_median_error),
            )
            for name, each in parts.items()
        ],
    )


def _percent(value: float | None, *, sign: bool = False, decimals: int = 1) -> str:
    """Return a fraction in percent without the sign of percent, or nothing."""
    if value is None:
        return ""
    return format_percent(value, sign=sign, decimals=decimals).removesuffix("%")


def headline_lines(found: Accuracy) -> dict[str, str]:
    """Return the numbers of the headline that are in no table, by label."""
    lines = {"Predicted": _predicted(found)}
    if found.degraded:
        lines["Degraded"] = "; ".join(
            f"{count} runs of {source}, {low:.1f} to {high:.0f} times slower than predicted, in no "
            "other number"
            for source, (count, low, high) in found.degraded.items()
        )
    levels, level, ratio = found.coverage.levels, found.coverage.level, found.coverage.ratio
    if level is not None:
        large = {name: inside for name, (count, inside) in levels.items() if count >= FEW}
        least = min(large, key=large.__getitem__, default=None)
        worst = "" if least is None else f" (min {format_percent(large[least], decimals=0)}, "
        worst += "" if least is None else f"{least})"
        pairs = "" if ratio is None else (
            f", and {format_percent(ratio, decimals=0)} of ratios within a sweep"
        )  # fmt: skip
        inside = format_percent(level, decimals=0)
        lines["80% intervals"] = f"contain {inside} of runs{worst}{pairs}, source left out"
    if found.series:
        lines["Weak scaling"] = _scaling(found)
    if found.memory_median_error is not None:
        error = format_percent(found.memory_median_error)
        lines["Peak memory"] = f"median error {error} of {found.memory_count:,} runs"
    if found.regret:
        lines[f"Regret up to {UP_TO} GPUs"] = ", ".join(
            f"{format_percent(each.mean)} in {each.sweeps} sweep{'s' * (each.sweeps > 1)} of {name}"
            for name, each in found.regret.items()
        )
    return lines


def expert_lines(found: ExpertAccuracy) -> dict[str, str]:
    """Return the numbers of runs of experts that are in no table, by label."""
    text = f"{found.predicted:,} of {found.complete:,} complete runs"
    if found.refused:
        text += ", not " + ", ".join(f"{n} ({reason})" for reason, n in found.refused.items())
    if found.infeasible:
        text += f"; {found.infeasible} of them called infeasible"
    lines = {"Predicted": text}
    if found.pairs.count:
        lines["Order of layouts"] = (
            f"right in {found.pairs.ordered} of {found.pairs.count} pairs of GPU runs of one "
            "model, accelerator, precision and size that are more than 5% apart"
        )
    if found.too_large:
        lines["Memory"] = "predicted above that of the GPU, though they ran: " + "; ".join(
            f"{name} ({ratio:.2f} of it)" for name, ratio in found.too_large.items()
        )
    return lines


def _predicted(found: Accuracy) -> str:
    """Return how many complete dense runs have a prediction, and why others have none."""
    text = f"{found.predicted:,} of {found.complete:,} complete dense runs"
    if found.refused:
        text += ", not " + ", ".join(f"{n} ({reason})" for reason, n in found.refused.items())
    if found.infeasible:
        text += f"; {found.infeasible} of them called infeasible"
    if found.unsupported:
        parts = ", ".join(f"{count} {name}" for name, count in found.unsupported.items())
        text += f". Not supported: {parts}"
    return text


def _scaling(found: Accuracy) -> str:
    """Return the errors of weak-scaling series in one sentence."""
    errors = found.series_errors
    worst: Series = found.series[int(np.argmax(errors))]
    where = f"{worst.source}, {worst.model}, {worst.smallest:,} to {worst.largest:,} GPUs"
    if worst.repeats is not None:
        where += f"; measured series with its traffic differ by {format_percent(worst.repeats)}"
    return (
        f"largest over smallest size of {len(errors)} series, median error "
        f"{format_percent(float(np.median(errors)))}, max {format_percent(max(errors))} ({where})"
    )


def _print_worst(result: Validation, console: Console) -> None:
    """Print the runs with the largest errors."""
    worst = sorted(result.judged(), key=lambda row: -abs(row.error or 0.0))[:WORST]
    if worst:
        put(console, "Largest errors, shipped constants", style="bold")
    for row in worst:
        put(
            console,
            f"  {format_percent(row.error or 0.0, sign=True)}  {row.id}: measured "
            f"{row.measured_tokens_per_second:,.0f}, predicted "
            f"{row.predicted_tokens_per_second:,.0f} ({row.strategy})",
            hang=4,
        )
