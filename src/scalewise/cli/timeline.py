"""`scalewise timeline`: discrete-event simulation of one training step.

    scalewise timeline llama-2-7b --on dgx-h100 --gpus 256 --strategy fsdp256-mb2
    scalewise timeline llama-2-7b --on dgx-h100 --gpus 256 -o step.json.gz --open
    scalewise timeline llama-3.1-405b --on dgx-h100 --gpus 8192 --strategy tp8-pp16-fsdp64 -o s.html

Exit code 0: it fits; 1: it does not, and is simulated all the same; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import light_numpy, put, show, to_json, write_bytes
from scalewise.cli.options import question_options
from scalewise.errors import InputError
from scalewise.reading import user_path

if TYPE_CHECKING:
    from scalewise.ask.question import Question
    from scalewise.ask.resolve import Asked
    from scalewise.simulation.simulate import Timeline

# Spelled out here, because importing them would make `--help` import the nouns.
RANKS = ("stages", "one", "distinct")
ENDINGS = (".json", ".json.gz", ".html", ".svg")


@click.command(short_help="Simulate one step; write a Perfetto trace.")
@question_options()
@click.option(
    "--ranks",
    type=click.Choice(RANKS),
    default="stages",
    show_default=True,
    help="Ranks shown: one per stage, the critical one, or one of each kind.",
)
@click.option(
    "--jitter",
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    show_default=True,
    metavar="FRACTION",
    help="Relative spread of kernel times, such as 0.02.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Random seed for --jitter.")
@click.option("--json", "as_json", is_flag=True, help="Print step and exposed time as JSON.")
@click.option(
    "-o", "--output", metavar="FILE", help="Output file: trace (.json, .json.gz), .html or .svg."
)
@click.option("--open", "opens", is_flag=True, help="Serve the trace to ui.perfetto.dev.")
def timeline(
    question: Question,
    ranks: str,
    jitter: float,
    seed: int,
    output: str | None,
    *,
    as_json: bool,
    opens: bool,
) -> int:
    """Simulate one training step of MODEL event by event, and compare with the estimate.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file. The trace opens in Perfetto: streams are tracks, ranks are processes.
    """
    ending = _ending(output, opens=opens)
    light_numpy()
    from scalewise.ask.resolve import resolve

    asked = resolve(question)
    line = asked.timeline(
        ranks=ranks, jitter=jitter, seed=seed, say=lambda text: click.echo(text, err=True)
    )
    if as_json:
        put(None, to_json(as_dict(line, asked)))
    elif output is None:
        from scalewise.report.timeline_table import print_timeline

        show(lambda out: print_timeline(line, out, defaults=asked.defaults, changes=asked.changes))
    if output is not None:
        _write(line, output, ending)
    if line.estimate.infeasible is not None and (output or as_json):
        click.echo(f"does not fit: {line.estimate.infeasible}", err=True)
    if opens:
        from scalewise.simulation.serve import serve

        assert output is not None
        serve(user_path(output), say=lambda text: click.echo(text, err=True))
    return 0 if line.estimate.feasible else 1


def as_dict(line: Timeline, asked: Asked) -> dict[str, Any]:
    """Return the numbers of a step as plain types, beside those of the estimate."""
    from scalewise._version import __version__

    e = line.estimate
    return {
        "version": __version__,
        "model": e.model.name,
        "cluster": e.cluster.name,
        "accelerators": e.cluster.accelerators,
        "strategy": str(e.strategy),
        "stack": e.stack.name,
        "num_microbatches": e.num_microbatches,
        "step_seconds": line.step_seconds,
        "exposed_seconds": line.exposed_seconds,
        "bubble_seconds": line.bubble_seconds,
        "critical_rank": line.critical_rank,
        "peak_memory_bytes": max(s.value for rank in line.ranks for s in line.memory(rank)),
        "estimate": {
            "step_seconds": e.step_seconds,
            "exposed_seconds": e.exposed,
            "memory_bytes": e.memory_bytes,
        },
        "difference": line.difference,
        "jitter": line.jitter,
        "seed": line.seed,
        "feasible": e.feasible,
        "infeasible": e.infeasible,
        "defaults": [str(each) for each in asked.defaults],
        "changes": list(asked.changes),
        "notes": list(line.notes),
    }


def _ending(output: str | None, *, opens: bool) -> str:
    """Return the file type of the output, checked before anything is computed."""
    if output is None:
        if opens:
            raise InputError("--open needs a trace to serve", hint="add -o step.json.gz")
        return ""
    ending = next((e for e in reversed(ENDINGS) if output.lower().endswith(e)), None)
    if ending is None:
        kind = output[output.rfind(".") :] if "." in output else ""
        raise InputError(
            f"-o {output}: unsupported file type {kind}" if kind else f"-o {output}: no file type",
            hint="use .json.gz, .json, .html or .svg",
        )
    if opens and not ending.startswith(".json"):
        raise InputError(
            f"--open needs a trace, and -o {output} is a figure", hint="-o step.json.gz --open"
        )
    return ending


def _write(line: Timeline, output: str, ending: str) -> None:
    """Write a figure or a trace, by file type."""
    if ending in (".html", ".svg"):
        from scalewise.report.timeline_figure import timeline_file

        write_bytes(output, timeline_file(line, ending))
        return
    from scalewise.simulation.trace import write_trace

    count = write_trace(line, user_path(output))
    click.echo(f"wrote {output}: {count:,} events, open it at https://ui.perfetto.dev", err=True)
