"""`scalewise sensitivity`: the gain of every upgrade of hardware, network and software.

    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 2048
    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 256 --strategy best --reoptimize
    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 2048 --strategy tp2-mb2 -o upgrades.html

Exit code 0: today's strategy can run; 1: it cannot; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scalewise.cli.common import (
    FORMATS,
    check_library,
    ending_of,
    light_numpy,
    put,
    show,
    to_json,
    write_bytes,
)
from scalewise.cli.options import question_options
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.ask.question import Question

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
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one line per change as CSV.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Output file: .json, .csv, .parquet, .html, .svg or .png.",
)
def sensitivity(
    *,
    question: Question,
    factor: float,
    reoptimize: bool,
    as_json: bool,
    as_csv: bool,
    output: str | None,
) -> int:
    """Change one thing at a time and estimate what it gains.

    Chip, links, network, collective algorithm, host and power: for each, what one per cent of it
    gains here and now, and what a finite upgrade does. The strategy stays as it is, or is the
    best one again after every change.
    """
    ending = ending_of(output, FORMATS)
    check_library(ending)
    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other", hint="keep one of the two")
    light_numpy()
    from scalewise.ask.resolve import resolve

    asked = resolve(question)
    found = asked.sensitivity(
        factor=factor, reoptimize=reoptimize, compare=True, progress=_Progress()
    )
    defaults = [str(each) for each in asked.defaults]
    if output is not None and ending is not None:
        from scalewise.report.sensitivity_figure import sensitivity_file

        write_bytes(output, sensitivity_file(found, ending, defaults=defaults))
    if as_json:
        from scalewise.report.sensitivity_figure import sensitivity_dict

        click.echo(to_json(sensitivity_dict(found, defaults=defaults)))
    elif as_csv:
        from scalewise.report.sensitivity_figure import sensitivity_file

        put(None, sensitivity_file(found, ".csv").decode().rstrip("\n"))
    elif output is None:
        from scalewise.report.sensitivity_table import print_sensitivities

        show(
            lambda console: print_sensitivities(
                found, console, defaults=asked.defaults, changes=asked.changes
            )
        )
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
