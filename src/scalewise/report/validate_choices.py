"""Strategies picked from published sweeps in a terminal: regret, and the term that misled a choice.

    print_choices(validation.sweeps(), choices(validation, runs), Console())

Computing is `evidence.choices`, with the rule by which a term is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scalewise.evidence.accuracy import UP_TO
from scalewise.evidence.choices import LARGEST, TOLERATED
from scalewise.report.terminal import put, table
from scalewise.report.words import term_label
from scalewise.units import format_column, format_percent

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.evidence.choices import Choice, Suspect
    from scalewise.evidence.sweeps import Sweep

NOTABLE = 0.01
"""Fraction of the step from which a difference between two strategies is printed."""
MAX_PRINTED = 4
"""Differences and suspects that are printed."""
ALIKE = 1.1
"""Suspects whose factors (as logarithms) differ by less than this are equally likely."""


def print_sweeps(sweeps: Sequence[Sweep], console: Console) -> None:
    """Print how well strategies are ranked, and the regret of the picked one."""
    table(
        console,
        ("sweep", "picked", "best measured", "strategies", "rank corr.", "regret %"),
        [
            (
                f"{sweep.model} x{sweep.accelerators}",
                sweep.picked,
                sweep.best,
                str(sweep.count),
                f"{sweep.rank_correlation:.2f}",
                f"{100 * sweep.regret:.1f}",
            )
            for sweep in sweeps
        ],
        left=3,
        spare=("strategies", "best measured"),
    )
    console.print()
    text = (
        "rank corr.: Spearman correlation of predicted and measured throughput; regret: what the "
        "picked strategy loses against the best measured one. Ties go to the simpler strategy."
    )
    put(console, text, style="dim")


def print_choices(sweeps: Sequence[Sweep], found: Sequence[Choice], console: Console) -> None:
    """Print all sweeps, then the causes of large regrets.

    Args:
        sweeps: Every sweep.
        found: Those with too large a regret, explained.
        console: Where to.
    """
    if not sweeps:
        put(console, "No sweep of strategies among these runs")
        return
    put(console, summary(sweeps, found), style="bold")
    console.print()
    print_sweeps(sweeps, console)
    for choice in found:
        console.print()
        heading = (
            f"{choice.model} x{choice.accelerators} ({choice.source}, {choice.layouts} "
            f"strategies): regret {format_percent(choice.regret)}"
        )
        put(console, heading, style="bold")
        _print_layouts(choice, console)
        for sentence in (difference(choice), blame(choice)):
            put(console, f"  {sentence}", hang=2)
    if found:
        console.print()
        text = (
            "A term misled the choice if scaling it alone, in all strategies of the sweep, lowers "
            f"the regret to {format_percent(TOLERATED, decimals=0)} or less; of several, the one "
            f"with the smallest factor. Factors: 1/{LARGEST:g} to {LARGEST:g}."
        )
        put(console, text, style="dim")


def summary(sweeps: Sequence[Sweep], found: Sequence[Choice]) -> str:
    """Return the mean regret, and how many sweeps have too large a one."""
    small = [sweep.regret for sweep in sweeps if sweep.accelerators <= UP_TO]
    mean = sum(small) / len(small) if small else 0.0
    average = f"Mean regret up to {UP_TO} GPUs: {format_percent(mean)}. " if small else ""
    limit = format_percent(TOLERATED, decimals=0)
    return f"{average}{len(found)} of {len(sweeps)} sweeps have a regret above {limit}."


def _print_layouts(choice: Choice, console: Console) -> None:
    """Print the picked strategy and the best measured one."""
    both = (choice.picked, choice.best)
    measured = format_column([layout.measured for layout in both])
    predicted = format_column([layout.predicted for layout in both])
    table(
        console,
        ("", "strategy", "measured", "predicted", "error %"),
        [
            (
                name,
                layout.strategy,
                measured[place],
                predicted[place],
                format_percent(layout.error, sign=True).removesuffix("%"),
            )
            for place, (name, layout) in enumerate(
                zip(("picked", "best measured"), both, strict=True)
            )
        ],
        left=2,
    )


def difference(choice: Choice) -> str:
    """Return the predicted difference of the two, by term."""
    gap = choice.picked.predicted / choice.best.predicted - 1.0
    order = f"{format_percent(abs(gap))} " + ("faster" if gap >= 0 else "slower, a tie but simpler")
    largest = sorted(choice.differences.items(), key=lambda item: -abs(item[1]))[:MAX_PRINTED]
    lines = [
        f"{term_label(name)} {format_percent(fraction, sign=True)}"
        for name, fraction in sorted(largest, key=lambda item: item[1])
        if abs(fraction) >= NOTABLE
    ]
    parts = f": {', '.join(lines)} of the step" if lines else ""
    return f"Predicted: picked is {order}{parts}."


def blame(choice: Choice) -> str:
    """Return the term that misled the choice, or that none did."""
    if choice.misled is None:
        return (
            f"No single term misled it: the picked run took {1 + choice.picked.error:.1f} times "
            f"its predicted time, the median of the sweep {1 + choice.median_error:.1f} times."
        )
    known = choice.suspects[:MAX_PRINTED]
    likely = [s for s in known if s.distance < ALIKE * known[0].distance]
    others = known[len(likely) :]
    text = "Misled by " + ", or by ".join(map(_long, likely)) + "."
    if others:
        text += f" Less likely: {', '.join(map(_short, others))}."
    return text


def _long(suspect: Suspect) -> str:
    size = "too small" if suspect.factor > 1.0 else "too large"
    return (
        f"{term_label(suspect.term)}, {size}: scaled by {suspect.factor:.2f}, it picks "
        f"{suspect.picked} with a regret of {format_percent(suspect.regret)}"
    )


def _short(suspect: Suspect) -> str:
    return f"{term_label(suspect.term)} x {suspect.factor:.2f}"
