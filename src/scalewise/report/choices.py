"""How does a choice of layout read that was wrong? What was picked, what was best, and why.

    print_choices(validation.sweeps(), choices(validation, runs), Console())

Computing is `evidence.choices`, where the rule stands by which a term is found guilty.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.evidence.choices import LARGEST, TOLERATED
from scalewise.report.tables import INDENT
from scalewise.report.words import term_label

if TYPE_CHECKING:
    from scalewise.evidence.choices import Choice, Layout, Suspect
    from scalewise.evidence.validate import Sweep

NOTABLE = 0.01
"""Share of the step from which a difference between two layouts is told."""
MOST_TOLD = 4
"""Differences and suspects that are told."""
ALIKE = 1.1
"""Suspects whose factors (as logarithms) differ by less than this are equally likely."""
UP_TO = 256
"""Accelerators up to which the average is told: beyond, the published sweeps are erratic."""


def print_sweeps(sweeps: Sequence[Sweep], console: Console) -> None:
    """How well layouts are ranked, and what our choice among them loses."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("sweep of layouts", "picked", "best measured"):
        table.add_column(name, no_wrap=True)
    for name in ("layouts", "rank", "loses"):
        table.add_column(name, justify="right", no_wrap=True)
    for sweep in sweeps:
        table.add_row(
            f"{sweep.model} x{sweep.accelerators}",
            sweep.picked,
            sweep.best,
            str(sweep.count),
            f"{sweep.rank_correlation:.2f}",
            f"{100 * sweep.regret:.1f} %",
        )
    console.print(table)
    console.print(
        "\nrank: Spearman of predicted and measured; loses: what the layout we would pick gives\n"
        "away against the best measured. Near-ties go to the simpler layout."
    )


def print_choices(sweeps: Sequence[Sweep], found: Sequence[Choice], console: Console) -> None:
    """All sweeps, then why those that lose too much do.

    Args:
        sweeps: Every sweep.
        found: Those that lose too much, explained.
        console: Where to.
    """
    if not sweeps:
        console.print("No sweep of layouts among these runs.")
        return
    print_sweeps(sweeps, console)
    console.print()
    console.print(Text(summary(sweeps, found), style="bold"))
    for choice in found:
        console.print()
        heading = (
            f"{choice.model} x{choice.accelerators} ({choice.source}, {choice.layouts} layouts): "
            f"loses {100 * choice.regret:.1f} %"
        )
        console.print(Text(heading, style="bold cyan"))
        console.print(Padding(_layouts(choice), (0, 0, 0, INDENT)))
        for sentence in (difference(choice), blame(choice)):
            console.print(Padding(Text(sentence), (0, 0, 0, INDENT)))
    if found:
        console.print()
        console.print(
            Text(
                "A term misled the choice if scaling it alone, in all layouts of the sweep, makes "
                f"the pick lose at most {100 * TOLERATED:.0f} %; of several, the one that needs "
                f"the smallest factor. Tried: 1/{LARGEST:g} to {LARGEST:g}.",
                style="dim",
            )
        )


def summary(sweeps: Sequence[Sweep], found: Sequence[Choice]) -> str:
    """How much is lost on average, and how often too much."""
    small = [sweep.regret for sweep in sweeps if sweep.accelerators <= UP_TO]
    mean = sum(small) / len(small) if small else 0.0
    average = (
        f"Up to {UP_TO} accelerators the picked layout loses {100 * mean:.1f} % on average. "
        if small
        else ""
    )
    return (
        f"{average}{len(found)} of {len(sweeps)} sweeps lose more than {100 * TOLERATED:.0f} %"
        + (":" if found else ".")
    )


def _layouts(choice: Choice) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    table.add_column("layout", no_wrap=True)
    for name in ("measured", "predicted", "error"):
        table.add_column(name, justify="right", no_wrap=True)

    def add(name: str, layout: Layout) -> None:
        table.add_row(
            name,
            layout.strategy,
            f"{layout.measured:,.0f}",
            f"{layout.predicted:,.0f}",
            f"{100 * layout.error:+.1f} %",
        )

    add("picked", choice.picked)
    add("best measured", choice.best)
    return table


def difference(choice: Choice) -> str:
    """What the model says of the two, term by term."""
    gap = choice.picked.predicted / choice.best.predicted - 1.0
    order = (
        f"{100 * abs(gap):.1f} % {'ahead' if gap >= 0 else 'behind, a near-tie that is simpler'}"
    )
    largest = sorted(choice.differences.items(), key=lambda item: -abs(item[1]))[:MOST_TOLD]
    told = [
        f"{term_label(name)} {100 * share:+.1f} %"
        for name, share in sorted(largest, key=lambda item: item[1])
        if abs(share) >= NOTABLE
    ]
    parts = ": " + ", ".join(told) + " of the step" if told else ""
    return f"Predicted, the picked one is {order}{parts}."


def blame(choice: Choice) -> str:
    """Which term misled the choice, or that none did."""
    if choice.misled is None:
        return (
            f"No single term misled it: the picked run took {1 + choice.picked.error:.1f} times "
            f"its predicted time, the median of the sweep {1 + choice.median_error:.1f} times."
        )
    known = choice.suspects[:MOST_TOLD]
    likely = [s for s in known if s.distance < ALIKE * known[0].distance]
    others = known[len(likely) :]
    told = "Misled by " + ", or by ".join(map(_long, likely)) + "."
    if others:
        told += f" Less likely: {', '.join(map(_short, others))}."
    return told


def _long(suspect: Suspect) -> str:
    size = "too small" if suspect.factor > 1.0 else "too large"
    return (
        f"{term_label(suspect.term)}, {size}: times {suspect.factor:.2f} it picks "
        f"{suspect.picked}, which loses {100 * suspect.regret:.1f} %"
    )


def _short(suspect: Suspect) -> str:
    return f"{term_label(suspect.term)} times {suspect.factor:.2f}"
