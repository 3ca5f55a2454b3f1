"""`scalewise timeline`: what happens when, in one training step?

    scalewise timeline llama-2-7b --on dgx-h100 --gpus 256 --strategy fsdp256-mb2
    scalewise timeline llama-2-7b --on dgx-h100 --gpus 256 -o step.json.gz --open
    scalewise timeline llama-3.1-405b --on dgx-h100 --gpus 8192 --strategy tp8-pp16-fsdp64 -o s.html

Exit code 0: it can run; 1: it cannot, and is played all the same; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import light_numpy, put, question_options, show, to_json, write
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.timeline.play import Timeline

# Spelled out here, because importing them would make `--help` import the nouns.
RANKS = ("stages", "one", "all-of-a-kind")
ENDINGS = (".json", ".json.gz", ".html", ".svg")


@click.command(short_help="Play one training step event by event.")
@click.argument("model")
@question_options
@click.option(
    "--ranks",
    type=click.Choice(RANKS),
    default="stages",
    show_default=True,
    help="Whom to show: a rank per stage, the one that sets the pace, or one of each kind.",
)
@click.option(
    "--jitter",
    type=click.FloatRange(0.0, 1.0),
    default=0.0,
    show_default=True,
    metavar="SHARE",
    help="Spread of kernel times, such as 0.02.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of the jitter.")
@click.option("--json", "as_json", is_flag=True, help="Print step and exposed time as JSON.")
@click.option(
    "-o", "--output", metavar="FILE", help="Write a trace (.json, .json.gz), .html or .svg."
)
@click.option("--open", "opens", is_flag=True, help="Serve the trace to ui.perfetto.dev.")
def timeline(
    model: str,
    on: str,
    ranks: str,
    jitter: float,
    seed: int,
    sets: tuple[str, ...],
    output: str | None,
    *,
    as_json: bool,
    opens: bool,
    **flags: Any,
) -> int:
    """Play one training step of MODEL event by event, and compare with the estimate.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file. The trace opens in Perfetto: streams are tracks, ranks are processes.
    """
    ending = _ending(output, opens=opens)
    light_numpy()
    from scalewise.cli.inputs import ask
    from scalewise.timeline.play import timeline as play

    question = ask(model, on, sets=sets, **flags)
    line = play(
        question.model,
        question.cluster,
        question.workload,
        question.strategy,
        stack=question.stack,
        ranks=ranks,
        jitter=jitter,
        seed=seed,
    )
    if as_json:
        put(None, to_json(as_dict(line, question.chosen)))
    elif output is None:
        from scalewise.report.schedule_text import print_timeline

        show(lambda out: print_timeline(line, out, chosen=question.chosen))
    if output is not None:
        _write(line, output, ending)
    if line.estimate.infeasible is not None and (output or as_json):
        click.echo(f"does not fit: {line.estimate.infeasible}", err=True)
    if opens:
        from pathlib import Path

        from scalewise.timeline.serve import serve

        assert output is not None
        serve(Path(output).expanduser(), say=lambda text: click.echo(text, err=True))
    return 0 if line.estimate.feasible else 1


def as_dict(line: Timeline, chosen: tuple[str, ...] = ()) -> dict[str, Any]:
    """Tell the numbers of a step as plain types, beside those of the estimate."""
    from scalewise._version import __version__

    e = line.estimate
    return {
        "version": __version__,
        "model": e.model.name,
        "cluster": e.cluster.name,
        "accelerators": e.cluster.accelerators,
        "strategy": str(e.strategy),
        "stack": e.stack.name,
        "micro_steps": e.micro_steps,
        "step_seconds": line.step_seconds,
        "exposed_seconds": line.exposed_seconds,
        "bubble_seconds": line.bubble_seconds,
        "pace": line.pace,
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
        "chosen": list(chosen),
        "notes": list(line.notes),
    }


def _ending(output: str | None, *, opens: bool) -> str:
    """The ending of the file, refused before anything is computed where it is not known."""
    if output is None:
        if opens:
            raise InputError("--open needs a trace to serve", hint="add -o step.json.gz")
        return ""
    ending = next((e for e in reversed(ENDINGS) if output.lower().endswith(e)), None)
    if ending is None:
        raise InputError(
            f"-o {output!r} has no known ending", hint="end it in .json.gz, .json, .html or .svg"
        )
    if opens and not ending.startswith(".json"):
        raise InputError(
            f"--open serves traces to Perfetto, and {output!r} is none",
            hint="end it in .json.gz",
        )
    return ending


def _write(line: Timeline, output: str, ending: str) -> None:
    """Write what the ending asks for."""
    if ending in (".html", ".svg"):
        from scalewise.report.schedule import schedule_page, schedule_svg

        write(output, schedule_page(line) if ending == ".html" else schedule_svg(line))
        return
    from pathlib import Path

    from scalewise.timeline.trace import write_trace

    count = write_trace(line, Path(output).expanduser())
    click.echo(f"wrote {output}: {count:,} events, open it at https://ui.perfetto.dev", err=True)
