"""`scalewise sensitivity`: the gain of every upgrade of hardware, network and software.

    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 2048
    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 256 --strategy best --reoptimize
    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 2048 --strategy tp2-mb2 -o upgrades.html

Exit code 0: today's strategy can run; 1: it cannot; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scalewise.cli.answer import answer_options
from scalewise.cli.options import question_options

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.question import Question
    from scalewise.cli.answer import Answer

PATIENCE = 1.0
"""Seconds after which progress is shown."""


@click.command(short_help="Estimate what the next upgrade gains.")
@question_options()
@click.option(
    "--factor",
    type=click.FloatRange(min=1.0, min_open=True, max=1000.0),
    default=2.0,
    show_default=True,
    help="Factor of the finite upgrades.",
)
@click.option(
    "--reoptimize", is_flag=True, help="Search for the best strategy again after every change."
)
@answer_options(csv="Print one line per change as CSV.")
def sensitivity(
    *,
    question: Question,
    factor: float,
    reoptimize: bool,
    answer: Answer,
) -> int:
    """Change one thing at a time and estimate what it gains.

    Chip, links, network, collective algorithm, host and power: for each, what one per cent of it
    gains here and now, and what a finite upgrade does. The strategy stays as it is, or is the
    best one again after every change.
    """
    from scalewise.ask.resolve import resolve

    asked = resolve(question)
    found = asked.sensitivity(
        factor=factor, reoptimize=reoptimize, compare=True, progress=_Progress()
    )
    defaults = [str(each) for each in asked.defaults]

    def file(ending: str) -> bytes:
        from scalewise.report.sensitivity_figure import sensitivity_file

        return sensitivity_file(found, ending, defaults=defaults)

    def data() -> object:
        from scalewise.report.sensitivity_figure import sensitivity_dict

        return sensitivity_dict(found, defaults=defaults)

    def table(console: Console) -> None:
        from scalewise.report.sensitivity_table import print_sensitivities

        print_sensitivities(found, console, defaults=asked.defaults, changes=asked.changes)

    answer.give(file=file, data=data, table=table)
    return 0 if found.infeasible is None else 1


class _Progress:
    """Progress on stderr, once the search takes longer than `PATIENCE`."""

    def __init__(self) -> None:
        import time

        self.now = time.monotonic
        self.start = self.now()

    def __call__(self, name: str) -> None:
        if self.now() - self.start > PATIENCE:
            click.echo(f"searching every strategy: {name} ...", err=True)
