"""`scalewise remember`: keep runs of one's own as a stack that later questions use.

scalewise remember my-team --from runs.csv --from records/
SCALEWISE_CATALOG=scalewise-catalog scalewise estimate llama-3-8b --on h100 --stack my-team
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import click

from scalewise.errors import InputError
from scalewise.reading import user_path

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.evidence.own_runs import OwnFit

FOLDER = "scalewise-catalog"
"""Folder of the catalog where $SCALEWISE_CATALOG names none, as for `calibrate`."""


@click.command(short_help="Keep your runs; later answers use them.")
@click.argument("name")
@click.option(
    "--from",
    "sources",
    multiple=True,
    required=True,
    metavar="PATH",
    help="Runs: records of `measure`, or a CSV file with the columns model, on, gpus, strategy, "
    "seq, batch and step_s, tokens_s or mfu. Repeatable.",
)
@click.option("--on", metavar="CLUSTER", help="Cluster of the runs. [what they name]")
@click.option(
    "--stack",
    metavar="NAME",
    help="Stack to start from. [that of the earlier runs, of the cluster, or of the framework]",
)
@click.option("--anew", is_flag=True, help="Forget the earlier runs of NAME.")
@click.option(
    "-o",
    "--output",
    metavar="FOLDER",
    help="Catalog folder. [$SCALEWISE_CATALOG, else scalewise-catalog]",
)
@click.option("--json", "as_json", is_flag=True, help="Print runs, errors and intervals as JSON.")
def remember(
    *,
    name: str,
    sources: tuple[str, ...],
    on: str | None,
    stack: str | None,
    anew: bool,
    output: str | None,
    as_json: bool,
) -> None:
    """Keep measured runs in the catalog as the stack NAME, and add to those it has.

    Predictions with --stack NAME start from the level of these runs, with a narrower interval.
    Kernels and the host run as fast as measured. Links stay as they are: `calibrate NAME` fits
    them to measured collectives.
    """
    from scalewise.catalog import knows, load_cluster
    from scalewise.cli.common import show, to_json
    from scalewise.evidence.own_runs import fit_own, joined, read_own, remembered, write_own
    from scalewise.stack import load_stack

    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]*", name):
        raise InputError(
            f"name = {name}: must be lower-case letters, digits, dots and dashes",
            hint="for example my-team",
        )
    folder = user_path(output or os.environ.get("SCALEWISE_CATALOG") or FOLDER)
    cluster = None if on is None else load_cluster(on)
    new = [run for path in sources for run in read_own(path, cluster)]
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
