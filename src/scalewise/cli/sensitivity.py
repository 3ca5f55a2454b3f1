"""`scalewise sensitivity`: what does the next upgrade buy?

    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 2048
    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 256 --strategy best
    scalewise sensitivity llama-2-7b --on dgx-h100 --gpus 2048 --strategy tp2-mb2 -o upgrades.html

Exit code 0: today's strategy can run; 1: it cannot; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import (
    FORMATS,
    check_library,
    ending_of,
    light_numpy,
    put,
    question_options,
    show,
    to_json,
    write,
)
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.explore.sensitivity import Sensitivities

PATIENCE = 1.0
"""Seconds after which it is said what is searched."""


@click.command(short_help="Say what the next upgrade buys.")
@click.argument("model")
@question_options
@click.option(
    "--factor",
    type=click.FloatRange(min=1.0, min_open=True, max=1000.0),
    default=2.0,
    show_default=True,
    help="Size of the finite upgrade.",
)
@click.option(
    "--reoptimise",
    is_flag=True,
    help="Find the best strategy again after every change; so does --strategy best.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print one line per change as CSV.")
@click.option(
    "-o", "--output", metavar="FILE", help="Write .json, .csv, .parquet, .html, .svg or .png."
)
def sensitivity(
    *,
    model: str,
    on: str,
    factor: float,
    reoptimise: bool,
    as_json: bool,
    as_csv: bool,
    output: str | None,
    strategy: str | None,
    **flags: Any,
) -> int:
    """Change one thing at a time and see what it brings.

    Chip, links, network, collective algorithm, host and power: for each, what one per cent of it
    brings here and now, and what a finite upgrade does. The strategy stays as it is, or is the
    best one again after every change.
    """
    ending = ending_of(output, FORMATS)
    check_library(ending)
    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other", hint="keep one of the two")
    light_numpy()
    from scalewise.cli.inputs import ask
    from scalewise.explore.sensitivity import sensitivity as vary

    best = strategy is not None and strategy.strip().lower() == "best"
    question = ask(model, on, strategy=None if best else strategy, **flags)
    found = vary(
        question.model,
        question.cluster,
        question.workload,
        None if best else question.strategy,
        stack=question.stack,
        factor=factor,
        reoptimise=reoptimise,
        compare=True,
        progress=_Progress(),
    )
    chosen = [each for each in question.chosen if not (best and each.endswith("(--strategy)"))]
    if output is not None and ending is not None:
        _write(found, output, ending, chosen)
    if as_json:
        click.echo(to_json(as_dict(found, chosen=chosen)))
    elif as_csv:
        from scalewise.report.upgrades import sensitivities_csv

        put(None, sensitivities_csv(found).rstrip("\n"))
    elif output is None:
        from scalewise.report.upgrades import print_sensitivities

        show(lambda console: print_sensitivities(found, console, chosen=chosen))
    return 0 if found.infeasible is None else 1


def as_dict(found: Sensitivities, *, chosen: list[str]) -> dict[str, Any]:
    """Tell everything as plain types, with the sentence that leads the table."""
    from scalewise._version import __version__
    from scalewise.report.upgrades import lead

    return {"version": __version__, "lead": lead(found), **found.to_dict(), "chosen": chosen}


def _write(found: Sensitivities, output: str, ending: str, chosen: list[str]) -> None:
    """Write a file in the format its ending names."""
    if ending == ".html":
        from scalewise.report.tornado import tornado_html

        write(output, tornado_html(found))
    elif ending == ".json":
        write(output, to_json(as_dict(found, chosen=chosen)) + "\n")
    elif ending == ".csv":
        from scalewise.report.upgrades import sensitivities_csv

        write(output, sensitivities_csv(found))
    else:
        from scalewise.report.tornado import write_tornado
        from scalewise.report.upgrades import write_parquet

        (write_parquet if ending == ".parquet" else write_tornado)(found, output)
        click.echo(f"wrote {output}", err=True)


class _Progress:
    """Says on stderr what is searched, once it takes longer than people like to wait."""

    def __init__(self) -> None:
        import time

        self.now = time.monotonic
        self.start = self.now()

    def __call__(self, name: str) -> None:
        if self.now() - self.start > PATIENCE:
            click.echo(f"searching every strategy: {name} ...", err=True)
