"""A diagnosis in a terminal: verdict, comparable runs, causes, checks, next measurement.

    print_diagnosis(found, Console())
    lead(found)              # "Slow: 1,786 tok/s/GPU measured, 6,260 expected, ..."

Computing is `scalewise.diagnosis`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scalewise.diagnosis.nearest import OWN
from scalewise.report.suggestions import suggestions
from scalewise.report.terminal import print_defaults, print_title, put, say, table
from scalewise.report.words import counted, device_word, title
from scalewise.units import format_bytes, format_dollars, format_percent, format_seconds, grouped

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.diagnosis.logs import LogSummary
    from scalewise.diagnosis.result import Comparable, Diagnosis, NextMeasurement
    from scalewise.diagnosis.traces import TraceBeside
    from scalewise.logs.steady import Stall

CAUSES_SHOWN, CHECKS_SHOWN, PUBLISHED_SHOWN, FINDINGS_SHOWN = 6, 2, 2, 3
"""Causes in the table, checks, published runs, and differences of a trace: 40 lines hold the
answer. With a trace there is room for one check and one published run."""

TOLD, STANDS_OUT = 0.6, 0.3
"""Odds in its group from which one cause stands for it, and odds from which a cause stands out."""

LITTLE, LEAST_BITS = 0.25, 0.05
"""Fraction of the most information below which a measurement tells little, and bits below which
none is worth naming."""


def odds(value: float) -> str:
    """Print odds in whole percent, without claiming certainty."""
    if value > 0.99:
        return ">99%"
    return "<1%" if value < 0.01 else format_percent(value, decimals=0)


def lost(value: float) -> str:
    """Print predicted over measured as a loss: "3.5 times too slow", or "18% slower"."""
    if value >= 1.5:
        return f"{value:.1f} times too slow"
    return f"{format_percent(1.0 - 1.0 / value, decimals=0)} slower than expected"


def exact(rate: float) -> str:
    """Print a measured rate with the digits that were given."""
    return f"{rate:,.0f}" if rate >= 100.0 else grouped(rate)


def factor(value: float) -> str:
    """Print a factor: "3.5 times", or a percentage where it is small."""
    return f"{value:.1f} times" if value >= 1.5 else format_percent(value - 1.0)


def lead(found: Diagnosis) -> str:
    """Return the verdict in one or two sentences."""
    run, word = found.runs[0], device_word(found.estimate.cluster.accelerator.kind)
    given = "" if "tok" in run.text or run.text.split()[-1:] == [run.text] else f" ({run.text})"
    numbers = (
        f"{exact(run.measured)} tok/s/{word}{given} measured{steady_words(found)}, "
        f"{grouped(run.expected)} expected, "
        f"{grouped(run.low)}-{grouped(run.high)} normal (80% prediction interval)"
    )
    slower = format_percent(run.percentile, decimals=0)
    if found.verdict == "fast":
        more = factor(1.0 / found.loss)
        return f"Faster than predicted: {numbers}; by {more}. Check how it was counted."
    if found.verdict == "normal":
        text = f"Normal: {numbers}; {slower} of healthy runs are slower."
        if found.loss > 1.05:
            text += " A loss this small cannot be told from software and chips that differ."
        return text
    if run.measured >= run.low:
        return f"Within its range, but the evidence points to a cause: {numbers}."
    text = f"Slow: {numbers}; {lost(found.loss)}."
    if found.best is None:
        text += " No cause on the list explains it."
    elif not stands_out(found):
        text += " No cause stands out."
    return text


def steady_words(found: Diagnosis) -> str:
    """Return that steady steps are meant, where stalls are known."""
    return " in the steady step" if found.stalls else ""


def stands_out(found: Diagnosis) -> bool:
    """Whether one cause is likely enough to be checked and mended first."""
    return found.best is not None and found.best.odds >= STANDS_OUT


def groups_line(found: Diagnosis) -> str:
    """Return the group of most odds, and whether one cause of it can be named."""
    if not found.groups:
        return ""
    group = found.groups[0]
    first = next(each for each in found.causes if each.label == group.causes[0])
    if len(group.causes) > 1 and first.odds < TOLD * group.odds:
        return f"{group.label} {odds(group.odds)}; which of its causes cannot be told."
    rest = [f"{each.label} {odds(each.odds)}" for each in found.groups[1:3]]
    return f"{group.label} {odds(group.odds)}{', ' if rest else ''}{', '.join(rest)}."


def comparable_line(each: Comparable, word: str) -> str:
    """Return one published run in words."""
    return (
        f"{each.source}: {each.model}, {each.gpus:,}x {each.accelerator}, {each.strategy}, "
        f"sequence {each.seq_len:,}: {grouped(each.rate)} tok/s/{word}, "
        f"{format_percent(each.mfu)} MFU"
    )


def log_lines(said: LogSummary) -> list[tuple[str, ...]]:
    """Return what a log says besides its number: a label, then sentences."""
    name = said.path.rsplit("/", 1)[-1]
    writer = f" ({said.framework})" if said.framework else ""
    parts = [f"median of {said.used:,} of {counted(said.total, 'line')}"]
    if said.warm_up:
        parts.append(f"{said.warm_up:,} of warm-up left out")
    parts.append(f"standard error {format_percent(said.error)}")
    if said.memory is not None:
        parts.append(f"{said.memory_kind or 'peak'} memory {format_bytes(said.memory)}")
    lines: list[tuple[str, ...]] = [("Log", f"{name}{writer}: {', '.join(parts)}.")]
    if said.stalls:
        lines.append(("Besides the steady step", *map(stall_line, said.stalls)))
    if said.drift is not None:
        word = "slower" if said.drift.change > 0.0 else "faster"
        hours = f" over {said.drift.hours:.1f} h" if said.drift.hours > 0.0 else ""
        lines.append(("Drift", f"{format_percent(abs(said.drift.change))} {word}{hours}."))
    if said.notes:
        lines.append(("Reading", "; ".join(said.notes) + "."))
    return lines


def cost_lines(found: Diagnosis) -> list[str]:
    """Return what stalls cost per step, and what it brings to mend each."""
    lost = sum(each.fraction for each in found.stalls if each.cause != "data")
    word = device_word(found.estimate.cluster.accelerator.kind)
    lines = [
        f"{STALLS[each.cause]} cost {format_seconds(each.seconds_per_step)} per step, "
        f"{format_percent(each.fraction)} of the time; without: "
        f"{format_percent(each.gain, sign=True)} ({each.mend})."
        for each in found.stalls
        if each.fraction >= LEAST_STALLED
    ]
    if lost >= LEAST_STALLED:
        whole = grouped(found.runs[0].measured * (1.0 - lost))
        lines.append(f"with them, {whole} tok/s/{word} over the whole log.")
    return lines


STALLS = {
    "checkpoint": "checkpoints", "evaluation": "evaluation", "unnamed": "slow steps or gaps",
    "data": "waiting for data",
}  # fmt: skip
"""Words of stalls by cause."""

LEAST_STALLED = 0.01
"""Fraction of the time from which the cost of a stall is printed."""


def stall_line(stall: Stall) -> str:
    """Return one kind of stall in words."""
    often = f"every {stall.period:,} steps" if stall.period else f"{stall.count:,} times"
    each = f"{stall.steps:.2g} steps" if math.isnan(stall.seconds) else f"{stall.seconds:.3g} s"
    return (
        f"{STALLS[stall.cause]} {often}, {each} each: {format_percent(stall.fraction)} of the time "
        f"(first before line {stall.line:,})"
    )


def standing(found: Diagnosis) -> str:
    """Return the measured MFU among those of the comparable runs; empty without any."""
    others = [each.mfu for each in found.comparable]
    if not others:
        return ""
    below = sum(each < found.mfu for each in others)
    return (
        f"{format_percent(found.mfu)} MFU here (causal), above {below} of "
        f"{counted(len(others), 'comparable run')}."
    )


def print_diagnosis(found: Diagnosis, console: Console) -> None:
    """Print a diagnosis."""
    e = found.estimate
    word = device_word(e.cluster.accelerator.kind)
    print_title(console, title(e), found.changes)
    put(console, lead(found), hang=2, style="bold")
    for said in found.logs:
        for label, *texts in log_lines(said):
            say(console, label, *texts)
    say(console, "Stalls", *cost_lines(found))
    if len(found.runs) > 1:
        _print_runs(found, console)
    for label, chosen in (("Comparable", True), ("Published", False)):
        runs = [each for each in found.comparable if (each.source == OWN) == chosen]
        shown = runs[: 1 if found.trace is not None else PUBLISHED_SHOWN]
        say(console, label, *[comparable_line(each, word) for each in shown])
    say(console, "Against them", *([line] if (line := standing(found)) else []))
    for each in found.faster:
        say(console, "Possible", each)
    if found.trace is not None:
        _print_trace(found.trace, console)
    if found.verdict == "slow":
        say(console, "Together", *([line] if (line := groups_line(found)) else []))
        console.print()
        _print_causes(found, console)
        if found.ruled_out:
            say(console, "Ruled out (<1%)", ", ".join(found.ruled_out) + ".")
        console.print()
        checks = 1 if found.trace is not None else CHECKS_SHOWN
        for cause in found.causes[:checks] if stands_out(found) else ():
            say(console, "Check", f"{cause.label}: {cause.check}.")
        say(console, "Mended", *mended_line(found, word))
        _print_next(found, console, word)
    lines = suggestions(e)
    if lines:
        say(console, "Even if nothing is broken", lines[0])
    print_defaults(console, found.defaults)
    say(console, "Note", *found.notes, style="yellow")


def _print_runs(found: Diagnosis, console: Console) -> None:
    """Print every measured run against its prediction."""
    rows = [
        (
            each.label,
            exact(each.measured),
            grouped(each.expected),
            f"{grouped(each.low)}-{grouped(each.high)}",
            format_percent(each.percentile, decimals=0),
        )
        for each in found.runs
    ]
    table(console, ("run (tok/s/GPU)", "measured", "expected", "normal", "slower ones"), rows)


def _print_trace(trace: TraceBeside, console: Console) -> None:
    """Print a trace beside the prediction, and what differs."""
    rows = [
        (
            each.label,
            f"{each.predicted * 1e3:,.1f}",
            f"{each.measured * 1e3:,.1f}",
            f"{(each.measured - each.predicted) * 1e3:+,.1f}",
        )
        for each in trace.rows
    ]
    predicted = trace.predicted_seconds * 1e3
    more = (trace.step_seconds - trace.predicted_seconds) * 1e3
    total = ("total", f"{predicted:,.1f}", f"{trace.step_seconds * 1e3:,.1f}", f"{more:+,.1f}")
    console.print()
    table(console, ("step (ms)", "predicted", "traced", "more"), [*rows, total])
    say(console, "Differs", *trace.findings[:FINDINGS_SHOWN])
    console.print()


def _print_causes(found: Diagnosis, console: Console) -> None:
    """Print causes with their odds, then what is left."""
    several = len(found.runs) > 1
    rows = [
        (
            each.label,
            odds(each.odds),
            each.text or "-",
            format_percent(math.expm1(each.misfit), decimals=0) if several else "",
            each.healthy or "-",
        )
        for each in found.causes[:CAUSES_SHOWN]
    ]
    blank = ("-", "-" if several else "", "-")
    rest = found.causes[CAUSES_SHOWN:]
    if rest:
        total = sum(each.odds for each in rest)
        rows.append((counted(len(rest), "other cause"), odds(total), *blank))
    if found.healthy >= 0.01:
        rows.append(("nothing: the run is healthy", odds(found.healthy), *blank))
    rows.append(("something not on this list", odds(found.other), *blank))
    heads = (
        "What would explain it",
        "odds",
        "value that meets the measurement",
        "misfit",
        "healthy",
    )
    table(console, heads, rows, spare=("healthy", "misfit"))


def mended_line(found: Diagnosis, word: str) -> list[str]:
    """Return what mending the first cause brings."""
    cause = found.best
    if cause is None or not stands_out(found):
        return []
    gain = cause.mended / found.runs[0].measured
    more = f"{gain:.1f} times as much" if gain >= 1.5 else format_percent(gain - 1.0, sign=True)
    return [
        f"if it is {cause.label}: about {grouped(cause.mended)} tok/s/{word}, {more} "
        f"({cause.mend})."
    ]


def next_lines(found: Diagnosis, word: str) -> list[str]:
    """Return the next measurement, then what its outcomes mean."""
    useful = [each for each in found.following if each.bits >= LEAST_BITS]
    if not useful:
        return []
    first = useful[0]
    lines = [f"{first.label}: {first.bits:.1f} of {found.entropy:.1f} bits, {_price(first)}."]
    for outcome, labels in first.outcomes[:4]:
        meaning = ", ".join(labels[:4]) + (", ..." if len(labels) > 4 else "")
        lines.append(f"{outcome.replace('GPU', word)}: {meaning}")
    return lines


def _print_next(found: Diagnosis, console: Console, word: str) -> None:
    """Print the next measurement, what its outcomes mean, and the others."""
    lines = next_lines(found, word)
    if not lines:
        return
    say(console, "Next", lines[0])
    for line in lines[1:]:
        put(console, f"  {line}", hang=4)
    most = max(each.bits for each in found.following)
    others = [each for each in found.following[1:] if each.bits >= LITTLE * most]
    if others:
        texts = [f"{each.label} ({each.bits:.1f} bits, {_price(each)})" for each in others[:2]]
        say(console, "Or", "; ".join(texts))
    little = [each for each in found.following if each.bits < LITTLE * most]
    if little:
        say(console, "Tells little", ", ".join(each.label for each in little))


def _price(each: NextMeasurement) -> str:
    """Return what a measurement occupies and costs."""
    hours = f"{each.gpu_hours:.2g} GPU-hours"
    return hours if each.usd is None else f"{hours}, {format_dollars(each.usd)}"
