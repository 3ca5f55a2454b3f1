"""A study in a terminal: its verdicts, or its experiments.

    print_verdicts(answer, console)
    print_study(study, console)

The whole answer is in the report, see `study_page`.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.report.study_words import findings
from scalewise.study.claims import Verdict
from scalewise.study.plan import plan

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.study.files import Study
    from scalewise.study.run import Answer

_STYLES: dict[Verdict, str] = {
    "holds": "green",
    "holds with a difference": "yellow",
    "does not hold": "red",
    "not judged": "dim",
}


def print_verdicts(answer: Answer, out: Console) -> None:
    """Print the verdict on every claim, then the reasons of those that do not hold.

    Without claims, print the findings of each experiment.

    Args:
        answer: The answer.
        out: Where to.
    """
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
    for each in answer.verdicts:
        table.add_row(
            Text(each.claim.statement),
            Text(each.theirs),
            Text(each.ours),
            Text(each.verdict, style=_STYLES[each.verdict]),
        )
    out.print()
    out.print(table)
    tally = Counter(each.verdict for each in answer.verdicts)
    text = ", ".join(f"{tally[verdict]} {verdict}" for verdict in _STYLES if tally[verdict])
    out.print()
    out.print(Text(f"Verdicts: {text}."))
    for each in (each for each in answer.verdicts if each.verdict == "does not hold"):
        out.print(Padding(Text(f"{each.claim.statement}: {each.ours}. {each.why}"), (0, 0, 0, 2)))


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
        counts = (len(plan(each)), len(each.figures), len(each.claims))
        table.add_row(Text(each.id), Text(each.title), *(f"{count:,}" for count in counts))
    out.print(table)
