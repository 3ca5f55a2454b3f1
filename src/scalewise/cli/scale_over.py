"""`scalewise scale --over`: curves and maps over any quantity.

scalewise scale llama-2-7b --on dgx-h100 --gpus 256 --strategy fsdp --over network=25..800Gbit/s
scalewise scale llama-2-7b --on dgx-h100 --gpus 64 --over seq=4096..65536 --over tp=1..8
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from scalewise.cli.common import put, show, to_json, write_bytes

if TYPE_CHECKING:
    from scalewise.ask.question import Question
    from scalewise.cli.sweeping import Runner


def run_over(
    question: Question,
    texts: Sequence[str],
    *,
    runner: Runner,
    output: str | None,
    ending: str | None,
    knee: float,
    exhaustive: bool,
    table: bool,
    as_json: bool,
    as_csv: bool,
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
    if output is not None and ending is not None:
        from scalewise.report.over_files import over_file

        write_bytes(output, over_file(found, ending, share=knee))
    if as_csv:
        from scalewise.report.over_files import over_file

        put(None, over_file(found, ".csv").decode().rstrip("\n"))
    elif as_json:
        from scalewise.report.over_files import over_dict

        put(None, to_json(over_dict(found, share=knee)))
    elif output is None:
        from scalewise.report.over_table import print_over

        show(lambda out: print_over(found, out, share=knee, table=table))
    if any(series.feasible for series in found.sweep.series):
        return 0
    click.echo("no strategy can run at any of these values", err=True)
    return 1
