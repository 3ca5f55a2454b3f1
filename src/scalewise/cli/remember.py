"""`scalewise remember`: keep runs of one's own as a stack that later questions use.

scalewise remember my-team --from runs.csv --from records/
scalewise remember my-team --from train.log --on dgx-h100
SCALEWISE_CATALOG=scalewise-catalog scalewise estimate llama-3-8b --on h100 --stack my-team
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.options import question_options
from scalewise.errors import InputError
from scalewise.reading import user_path

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.evidence.own_runs import OwnFit

FOLDER = "scalewise-catalog"
"""Folder of the catalog where $SCALEWISE_CATALOG names none, as for `calibrate`."""

PLANNED = (
    "tokens", "goodput", "critical_batch", "price", "pue", "region", "own", "deadline", "budget",
    "force", "fit", "by",
)  # fmt: skip
"""Fields of a question that say nothing about a run that was measured."""


@click.command(short_help="Keep your runs; later answers use them.")
@click.argument("name")
@click.option("--model", metavar="MODEL", help="Model of a log that does not state it.")
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="PATH",
    help="Runs: a log or its folder; records of `measure`; or a table with the columns model, on, "
    "gpus, strategy, seq, batch and step_s, tokens_s or mfu. Repeatable.",
)
@click.option("--anew", is_flag=True, help="Forget the earlier runs of NAME.")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    help="Catalog folder. [$SCALEWISE_CATALOG, else scalewise-catalog]",
)
@click.option("--json", "as_json", is_flag=True, help="Print runs, errors and intervals as JSON.")
@question_options(
    leave=("model", *PLANNED),
    instead={"stack": ("NAME", "Stack to start from. [that of earlier runs, or of the runs]")},
    partial=True,
)
def remember(
    *,
    words: dict[str, Any],
    name: str,
    model: str | None,
    sources: tuple[str, ...],
    anew: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Keep measured runs in the catalog as the stack NAME, and add to those it has.

    The flags of a run describe that of a log, as for `diagnose`. Records and tables state their
    runs: there, --on replaces the cluster.
    Predictions with --stack NAME start from the level of these runs, with a narrower interval.
    Kernels and the host run as fast as measured. Links stay as they are: `calibrate NAME` fits
    them to measured collectives.
    """
    given = words if model is None else {"model": model, **words}
    keep(name, sources, given, anew=anew, output=output, as_json=as_json)


def keep(
    name: str,
    sources: tuple[str, ...],
    words: dict[str, Any],
    *,
    anew: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Fit the level of runs, write it and print it.

    Args:
        name: Of the stack.
        sources: Paths of runs.
        words: Fields of a question; `stack` is the one to start from.
        anew: Whether earlier runs are forgotten.
        output: Folder of the catalog.
        as_json: Whether JSON is printed.

    Raises:
        InputError: If a run cannot be read, or is a fault.
    """
    from scalewise.catalog import knows
    from scalewise.cli.common import show, to_json
    from scalewise.diagnosis.own import read_own
    from scalewise.evidence.own_runs import fit_own, joined, remembered, write_own
    from scalewise.stack import load_stack

    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise InputError(
            f"name = {name}: must be lower-case letters, digits, dots and dashes",
            hint="for example my-team",
        )
    folder = user_path(output or os.environ.get("SCALEWISE_CATALOG") or FOLDER)
    stack, on = words.get("stack"), words.get("on")
    new = [run for path in sources for run in read_own(path, words)]
    old, base = ((), None) if anew else remembered(name, folder)
    if stack is None and base is None and on is not None and knows("stacks", on):
        stack = on
    start = base if stack is None else load_stack(stack)
    if start is not None and start.name == name:
        raise InputError(f"--stack {name}: a stack cannot start from itself", hint="name another")
    fit = fit_own(name, joined(old, new), start)
    files = write_own(fit, folder)
    if as_json:
        click.echo(to_json({**facts(fit), "files": [str(path) for path in files]}))
        return
    show(lambda out: draw(fit, out))
    click.echo(f"wrote {len(files)} files to {folder}")
    if os.environ.get("SCALEWISE_CATALOG") is None or output is not None:
        click.echo(f"use them with: SCALEWISE_CATALOG={folder} ... --stack {name}", err=True)


def facts(fit: OwnFit) -> dict[str, object]:
    """Return a fit as plain types."""
    import math

    return {
        "stack": fit.name,
        "base": fit.base.name,
        "speed": fit.speed,
        "interval_before": fit.before,
        "interval": fit.after,
        "runs": [
            {"run": run.label, "tokens_per_second_per_accelerator": run.rate,
             "error_before": math.expm1(before), "error": math.expm1(after)}
            for run, before, after in zip(fit.runs, fit.errors, fit.left, strict=True)
        ],
    }  # fmt: skip


def draw(fit: OwnFit, out: Console) -> None:
    """Print the runs with their errors before and after."""
    import math

    from scalewise.ranges import plus_minus
    from scalewise.report.terminal import put, table
    from scalewise.report.words import counted
    from scalewise.units import format_percent, grouped

    put(
        out,
        f"{fit.name}: {counted(len(fit.runs), 'run')} at {fit.speed:.2f} times the speed of "
        f"{fit.base.name}; 80% prediction interval {plus_minus(fit.after)}, "
        f"{plus_minus(fit.before)} before",
        style="bold",
    )
    rows = [
        (
            run.label,
            grouped(run.rate),
            format_percent(math.expm1(before), sign=True),
            format_percent(math.expm1(after), sign=True),
        )
        for run, before, after in zip(fit.runs, fit.errors, fit.left, strict=True)
    ]
    table(out, ("run", "tok/s/GPU", f"over {fit.base.name}", f"over {fit.name}"), rows)
