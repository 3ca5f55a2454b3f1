"""A study in a terminal: its verdicts, or its experiments.

    print_verdicts(answer, console)
    print_study(study, console)

The whole answer is in the report, see `study_page`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.report.study_words import findings
from scalewise.study.claims import Judged, Verdict
from scalewise.study.plan import plan, points_of, predictable

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.study.files import Study
    from scalewise.study.judging import MeasuredAnswer
    from scalewise.study.run import Answer

_STYLES: dict[Verdict, str] = {
    "holds": "green",
    "holds with a difference": "yellow",
    "does not hold": "red",
    "not told apart": "yellow",
    "not judged": "dim",
}


def print_verdicts(answer: Answer, out: Console) -> None:
    """Print the verdict on every claim, then the reasons of those that do not hold.

    Without claims, print the findings of each experiment.

    Args:
        answer: The answer.
        out: Where to.
    """
    if answer.measured is not None and len(answer.unpredicted) == len(answer.study.experiments):
        print_measured(answer.study, answer.measured, out)
        return
    missing = sum(not row.feasible for row in answer.rows)
    out.print(Text(answer.study.title, style="bold"))
    out.print(
        Text(
            f"{len(answer.rows):,} points in {len(answer.study.experiments)} experiments, "
            f"{missing:,} cannot run",
            style="dim",
        )
    )
    if not answer.verdicts:
        for experiment in answer.study.experiments:
            out.print()
            out.print(Text(experiment.title, style="bold cyan"))
            for sentence in findings(experiment, answer.of(experiment)):
                out.print(Padding(Text(sentence), (0, 0, 0, 2)))
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold cyan")
    table.add_column("claim", ratio=1)
    table.add_column("published", justify="right")
    table.add_column("predicted", justify="right")
    table.add_column("verdict")
    measured = [] if answer.measured is None else answer.measured.verdicts
    if measured:
        table.add_column("measured", justify="right")
        table.add_column("verdict")
    for place, each in enumerate(answer.verdicts):
        both = [each, *measured[place : place + 1]]
        table.add_row(Text(each.claim.statement), Text(each.theirs), *_cells(both))
    out.print()
    out.print(table)
    out.print()
    out.print(Text(f"Verdicts: {tally_text(answer.verdicts)}."))
    if answer.measured is not None:
        out.print(Text(f"Measured: {tally_text(measured)}."))
        _print_doubts(answer.measured, out)
    for each in (each for each in answer.verdicts if each.verdict == "does not hold"):
        out.print(Padding(Text(f"{each.claim.statement}: {each.ours}. {each.why}"), (0, 0, 0, 2)))


def tally_text(verdicts: Sequence[Judged]) -> str:
    """Return how many claims have each verdict."""
    tally = Counter(each.verdict for each in verdicts)
    return ", ".join(f"{tally[verdict]} {verdict}" for verdict in _STYLES if tally[verdict])


def _cells(judged: Sequence[Judged]) -> list[Text]:
    """Return number and verdict of predictions and measurements."""
    return [
        text
        for each in judged
        for text in (Text(each.ours), Text(each.verdict, style=_STYLES[each.verdict]))
    ]


def _print_doubts(measured: MeasuredAnswer, out: Console) -> None:
    found = measured.found
    out.print(Text(f"Measured on {found.machine}: {len(found.rows):,} points.", style="dim"))
    if found.missing:
        out.print(Text(f"{found.missing:,} points have no record.", style="dim"))
    for note in found.notes:
        out.print(Text(f"warning: {note}", style="yellow"))


def print_measured(study: Study, measured: MeasuredAnswer, out: Console) -> None:
    """Print the verdicts of measurements alone, with their reasons.

    Args:
        study: The study.
        measured: What was measured.
        out: Where to.
    """
    out.print(Text(study.title, style="bold"))
    if measured.verdicts:
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold cyan")
        table.add_column("claim", ratio=1)
        table.add_column("claimed", justify="right")
        table.add_column("measured", justify="right")
        table.add_column("verdict")
        for each in measured.verdicts:
            table.add_row(Text(each.claim.statement), Text(each.theirs), *_cells([each]))
        out.print()
        out.print(table)
        out.print()
        out.print(Text(f"Measured: {tally_text(measured.verdicts)}."))
    _print_doubts(measured, out)


def print_study(study: Study, out: Console) -> None:
    """Print the experiments of a study, with their points, figures and claims.

    Args:
        study: The study.
        out: Where to.
    """
    out.print(Text(study.title, style="bold"))
    for text in (study.question, study.source and f"Source: {study.source}"):
        if text:
            out.print(Text(" ".join(text.split())))
    out.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold cyan")
    table.add_column("experiment")
    table.add_column("title", ratio=1)
    for head in ("tasks", "figures", "claims"):
        table.add_column(head, justify="right")
    for each in study.experiments:
        tasks = len(plan(each)) if predictable(each) else points_of(each)
        counts = (tasks, len(each.figures), len(each.claims))
        table.add_row(Text(each.id), Text(each.title), *(f"{count:,}" for count in counts))
    out.print(table)
