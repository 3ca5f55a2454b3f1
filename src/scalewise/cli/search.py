"""`scalewise search`: every strategy for a model, a cluster and a batch, ranked.

    scalewise search gpt3-175b --on dgx-a100 --gpus 1024 --batch 1536 --seq 2048
    scalewise search llama-3.1-70b --on dgx-h100 --gpus 64 --tp 8 --by cost -o search.html

Exit code 0: something fits; 1: nothing does, and the nearest is shown; 2: wrong usage; 130: Ctrl-C,
with the best so far.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.answer import answer_options
from scalewise.cli.common import show, to_json, write, write_bytes
from scalewise.cli.options import question_options
from scalewise.errors import INTERRUPTED, InputError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

    from scalewise.ask.question import Question
    from scalewise.ask.resolve import Inputs
    from scalewise.cli.answer import Answer
    from scalewise.explore.search import Search

PATIENCE = 1.0
"""Seconds after which progress is shown."""


def _numbers(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Read "1,2,4"."""
    del ctx
    if text is None:
        return None
    try:
        return tuple(int(word) for word in text.split(","))
    except ValueError:
        flag = parameter.opts[0]
        raise InputError(
            f"{flag} {text}: not a list of whole numbers", hint=f"for example {flag} 1,2,4,8"
        ) from None


def _words(ctx: click.Context, parameter: click.Parameter, text: str | None) -> Any:
    """Read "time,cost"."""
    del ctx, parameter
    return None if text is None else tuple(word.strip() for word in text.split(","))


@click.command(short_help="Estimate every strategy and rank what fits.")
@question_options(leave=("strategy",))
@click.option(
    "--top", type=click.IntRange(1, 1000), default=10, show_default=True, help="Rows to list."
)
@click.option(
    "--pareto", callback=_words, metavar="O,...", help="Pareto front: time,energy,memory,cost."
)
@click.option("--tp", callback=_numbers, metavar="N,...", help="Tensor-parallel degrees to try.")
@click.option("--pp", callback=_numbers, metavar="N,...", help="Pipeline stages to try.")
@click.option("--cp", callback=_numbers, metavar="N,...", help="Context-parallel degrees to try.")
@click.option("--ep", callback=_numbers, metavar="N,...", help="Expert-parallel degrees to try.")
@click.option(
    "--etp",
    callback=_numbers,
    metavar="N,...",
    help="Expert tensor-parallel degrees to try. [1 and the TP degree]",
)
@click.option("--micro-batch", callback=_numbers, metavar="N,...", help="Micro-batch sizes to try.")
@click.option(
    "--sharding", callback=_words, metavar="W,...", help="Sharding to try: ddp,zero1,zero2,zero3."
)
@click.option(
    "--variants",
    callback=_words,
    metavar="W,...",
    help="Variants of sharding to try: hpz,qwz,qgz,mics,reduceonce,reduceeach. [none]",
)
@click.option(
    "--recompute",
    callback=_words,
    metavar="W,...",
    help="Recompute to try: none,selective,attention,op,1of4,full. [none,selective,1of4,1of2,full]",
)
@click.option(
    "--mlp-tiles",
    callback=_numbers,
    metavar="N,...",
    help="Tiles of the sequence in which MLPs are computed, to try. [1]",
)
@click.option(
    "--offload",
    callback=_words,
    metavar="W,...",
    help="Offload to try: none,opt,opt+param,act,opt+nvme,... or all. [none]",
)
@click.option(
    "--schedule",
    callback=_words,
    metavar="W,...",
    help="Schedules to try: gpipe,1f1b,interleaved,zbh1,zbv. [those of the stack]",
)
@click.option(
    "--max-tp-within-domain/--tp-anywhere",
    "tp_within_domain",
    default=True,
    help="Tensor parallelism within the scale-up domain only, or anywhere. [within]",
)
@answer_options(
    json="Print counts and full estimates as JSON.",
    csv="Print the ranking as CSV.",
    output="Output file: .html, .svg, .png, .csv, .json or .parquet.",
)
def search(
    *,
    question: Question,
    top: int,
    pareto: tuple[str, ...] | None,
    answer: Answer,
    **limits: Any,
) -> int:
    """Estimate every strategy and rank what fits.

    Exit code 1 if nothing fits; then the nearest strategy is shown. Ctrl-C gives the best so far
    and exit code 130.
    """
    from scalewise.ask.resolve import inputs
    from scalewise.explore.space import Limits

    asked = inputs(question)
    bar = _Bar()
    found = asked.search(
        limits=Limits(**limits),
        top=top,
        pareto=pareto or (),
        best_by_tp_pp=answer.ending == ".html",
        progress=bar,
    )
    bar.close()
    if answer.path and answer.ending:
        _save(found, answer.path, answer.ending, asked)
    if answer.as_json:
        click.echo(to_json(as_dict(found, asked)))
    elif answer.as_csv:
        from scalewise.report.search_files import search_file

        click.echo(search_file(found, ".csv"), nl=False)
    else:
        from scalewise.report.search_table import print_search

        show(
            lambda console: print_search(
                found, console, defaults=asked.defaults, changes=asked.changes, notes=asked.notes
            )
        )
    if found.interrupted:
        return INTERRUPTED
    return 0 if found.best is not None else 1


def _save(found: Search, path: str, ending: str, asked: Inputs) -> None:
    """Write a file; where no strategy fits there is no picture, which the terminal explains."""
    from scalewise.report.search_files import search_file

    if ending == ".json":
        write(path, to_json(as_dict(found, asked)) + "\n")
    elif ending in (".svg", ".png") and found.best is None:
        click.echo(f"no strategy fits: nothing to draw in {path}", err=True)
    else:
        defaults = [str(each) for each in asked.defaults]
        write_bytes(path, search_file(found, ending, defaults=defaults))


class _Bar:
    """Progress of a search on stderr, once it takes longer than `PATIENCE`."""

    def __init__(self) -> None:
        self.start = self.said = time.monotonic()
        self.drawn: Progress | None = None
        self.task: TaskID | None = None

    def __call__(self, evaluated: int, size: int) -> None:
        now = time.monotonic()
        if now - self.start < PATIENCE:
            return
        if not sys.stderr.isatty():
            if now - self.said > PATIENCE:
                self.said = now
                text = f"{evaluated:,} of {size:,} strategies evaluated (Ctrl-C keeps the best)"
                click.echo(text, err=True)
            return
        if self.drawn is None:
            from rich.console import Console
            from rich.progress import Progress

            self.drawn = Progress(console=Console(stderr=True), transient=True)
            self.drawn.start()
            self.task = self.drawn.add_task("strategies (Ctrl-C keeps the best)", total=size)
        if self.task is not None:
            self.drawn.update(self.task, completed=evaluated)

    def close(self) -> None:
        """Remove the bar."""
        if self.drawn is not None:
            self.drawn.stop()


def as_dict(found: Search, asked: Inputs) -> dict[str, Any]:
    """Return a search as plain types.

    Args:
        found: The result.
        asked: What was asked.
    """
    from scalewise._version import __version__

    def plain(one: Any) -> Any:
        return None if one is None else one.to_dict()

    return {
        "version": __version__,
        "by": found.by,
        "fit": asked.fit,
        "evaluated": found.evaluated,
        "feasible": found.feasible,
        "infeasible": found.infeasible,
        "interrupted": found.interrupted,
        "ties": found.ties,
        "why": found.why(),
        "best": plain(found.best),
        "simplest": plain(found.simplest),
        "safest": plain(found.safest),
        "strategies": [plain(e) for e in found.strategies],
        "pareto": [plain(e) for e in found.pareto],
        "nearest": plain(found.nearest),
        "defaults": [str(each) for each in asked.defaults],
        "changes": list(asked.changes),
    }
