"""`scalewise scale --over`: curves and maps over any quantity.

scalewise scale llama-2-7b --on dgx-h100 --gpus 256 --strategy fsdp --over network=25..800Gbit/s
scalewise scale llama-2-7b --on dgx-h100 --gpus 64 --over seq=4096..65536 --over tp=1..8
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.question import Question
    from scalewise.cli.answer import Answer
    from scalewise.cli.sweeping import Runner


def run_over(
    question: Question,
    texts: Sequence[str],
    answer: Answer,
    *,
    runner: Runner,
    knee: float,
    exhaustive: bool,
    table: bool,
) -> int:
    """Compute the points, and print or write them; arguments are those of the command.

    Returns:
        0 if some point can run, else 1.
    """
    from scalewise.ask.over import over
    from scalewise.explore.tasks import PointResult

    found = over(
        question,
        texts,
        exhaustive=exhaustive,
        run=lambda tasks, function: runner(tasks, function, PointResult),
    )

    def file(ending: str) -> bytes:
        from scalewise.report.over_files import over_file

        return over_file(found, ending, share=knee)

    def data() -> object:
        from scalewise.report.over_files import over_dict

        return over_dict(found, share=knee)

    def printed(console: Console) -> None:
        from scalewise.report.over_table import print_over

        print_over(found, console, share=knee, table=table)

    answer.give(file=file, data=data, table=printed)
    if any(series.feasible for series in found.sweep.series):
        return 0
    click.echo("no strategy can run at any of these values", err=True)
    return 1
