"""`scalewise search`: every strategy for a model, a cluster and a batch, ranked."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import light_numpy, plan_option, show, switch_options, to_json

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from scalewise.explore.search import Search

PATIENCE = 1.0
"""Seconds after which progress is shown."""

BATCH_PER_GPU = 2
"""Sequences per accelerator and step when nobody gives a batch."""


def _numbers(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Read "1,2,4"."""
    del ctx
    if text is None:
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        from scalewise.errors import InputError

        message = f"--{parameter.name} {text!r} is not a list of whole numbers"
        raise InputError(message, hint="for example 1,2,4,8") from None


def _words(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Read "time,cost"."""
    del ctx, parameter
    return None if text is None else tuple(word.strip() for word in text.split(","))


@click.command(short_help="Try every strategy and rank what can run.")
@click.argument("model")
@plan_option()
@click.option("--on", required=True, metavar="CLUSTER", help="Cluster or accelerator, or a .toml.")
@click.option("--gpus", metavar="N", help="Accelerators. [the cluster's]")
@click.option(
    "--batch", metavar="N", help=f"Sequences per step; never changed. [{BATCH_PER_GPU} per GPU]"
)
@click.option("--seq", metavar="N", help="Tokens per sequence. [4096]")
@click.option("--precision", metavar="P", help="bf16, fp16, fp8, mxfp8 or nvfp4. [bf16]")
@click.option("--stack", metavar="NAME", help="Software, see `scalewise stacks`.")
@switch_options
@click.option("--by", default="time", show_default=True, help="time, tokens, cost, energy, memory.")
@click.option("--top", type=click.IntRange(1, 1000), default=10, show_default=True)
@click.option("--pareto", callback=_words, help="Objectives of a front: time,energy,memory.")
@click.option("--tp", callback=_numbers, help="Allowed tensor-parallel degrees: 1,2,4,8.")
@click.option("--pp", callback=_numbers, help="Allowed pipeline stages.")
@click.option("--cp", callback=_numbers, help="Allowed context-parallel degrees.")
@click.option("--micro-batch", "micro_batch", callback=_numbers, help="Allowed micro batches.")
@click.option("--sharding", callback=_words, help="Allowed: ddp,zero1,zero2,zero3.")
@click.option("--recompute", callback=_words, help="Allowed: none,selective,full.")
@click.option(
    "--schedule",
    callback=_words,
    help="Allowed: gpipe,1f1b,interleaved,zbh1,zbv. [those of the stack]",
)
@click.option(
    "--max-tp-within-domain/--tp-anywhere",
    "tp_within_domain",
    default=True,
    help="Whether tensor parallelism stays in its scale-up domain. [it does]",
)
@click.option("--json", "as_json", is_flag=True, help="Counts and full estimates as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="The ranking as CSV.")
@click.option("-o", "--output", metavar="FILE", help=".html, .svg, .png, .csv, .json, .parquet.")
def search(
    *,
    model: str,
    on: str,
    by: str,
    top: int,
    pareto: tuple[str, ...] | None,
    as_json: bool,
    as_csv: bool,
    output: str | None,
    gpus: str | None,
    batch: str | None,
    seq: str | None,
    precision: str | None,
    stack: str | None,
    tokens: str | None,
    power_cap: str | None,
    algorithm: str | None,
    protocol: str | None,
    sets: tuple[str, ...],
    **limits: Any,
) -> None:
    """Try every strategy and rank what can run.

    Exit code 1 if nothing fits; then the nearest strategy is shown. Ctrl-C gives the best so far.
    """
    light_numpy()
    from scalewise.cli.common import FORMATS, check_library, ending_of
    from scalewise.cli.inputs import ask
    from scalewise.cli.search_files import save
    from scalewise.errors import InputError
    from scalewise.explore.search import search as search_all
    from scalewise.explore.space import Limits

    ending = ending_of(output, FORMATS)
    check_library(ending)
    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other", hint="keep one of the two")
    question = ask(
        model,
        on,
        gpus=gpus,
        seq=seq,
        batch=batch,
        precision=precision,
        stack=stack,
        tokens=tokens,
        power_cap=power_cap,
        algorithm=algorithm,
        protocol=protocol,
        sets=sets,
        batch_per_gpu=BATCH_PER_GPU,
    )
    bar = _Bar()
    found = search_all(
        question.model,
        question.cluster,
        question.workload,
        limits=Limits(**limits),
        by=by,
        top=top,
        pareto=pareto or (),
        stack=question.stack,
        by_mesh=ending == ".html",
        progress=bar,
    )
    bar.close()
    if output and ending:
        save(found, output, ending, chosen=question.chosen)
    if as_json:
        click.echo(to_json(as_dict(found, question.chosen)))
    elif as_csv:
        from scalewise.report.ranking_data import ranking_csv

        click.echo(ranking_csv(found), nl=False)
    else:
        from scalewise.report.ranking import print_search

        show(lambda console: print_search(found, console, chosen=question.chosen))
    if found.best is None:
        raise click.exceptions.Exit(1)


class _Bar:
    """Shows on stderr how far a search is, once it takes longer than people like to wait."""

    def __init__(self) -> None:
        self.start = self.said = time.monotonic()
        self.drawn: Progress | None = None
        self.task: TaskID | None = None

    def __call__(self, examined: int, size: int) -> None:
        now = time.monotonic()
        if now - self.start < PATIENCE:
            return
        if not sys.stderr.isatty():
            if now - self.said > PATIENCE:
                self.said = now
                text = f"{examined:,} of {size:,} strategies tried (Ctrl-C keeps the best)"
                click.echo(text, err=True)
            return
        if self.drawn is None:
            from rich.console import Console
            from rich.progress import Progress

            self.drawn = Progress(console=Console(stderr=True), transient=True)
            self.drawn.start()
            self.task = self.drawn.add_task("strategies (Ctrl-C keeps the best)", total=size)
        if self.task is not None:
            self.drawn.update(self.task, completed=examined)

    def close(self) -> None:
        """Take the bar away."""
        if self.drawn is not None:
            self.drawn.stop()


def as_dict(found: Search, chosen: tuple[str, ...] = ()) -> dict[str, Any]:
    """A search as plain types.

    Args:
        found: What was found.
        chosen: What was chosen for the user.
    """
    from scalewise._version import __version__

    def plain(one: Any) -> Any:
        return None if one is None else one.to_dict()

    return {
        "version": __version__,
        "by": found.by,
        "examined": found.examined,
        "feasible": found.feasible,
        "infeasible": found.infeasible,
        "interrupted": found.interrupted,
        "ties": found.ties,
        "why": found.why(),
        "best": plain(found.best),
        "simplest": plain(found.simplest),
        "strategies": [plain(e) for e in found.strategies],
        "pareto": [plain(e) for e in found.pareto],
        "nearest": plain(found.nearest),
        "chosen": list(chosen),
    }
