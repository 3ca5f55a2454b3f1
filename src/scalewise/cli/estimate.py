"""`scalewise estimate`: throughput, memory, power and cost of one training step.

    scalewise estimate llama-2-7b --on dgx-h100 --gpus 2048
    scalewise estimate ./config.json --on dgx-a100 --strategy fsdp16-tp4 --batch 512 --explain
    scalewise estimate gpt3-175b --on a100 --gpus 1024 --strategy tp8-pp8 --json | jq .mfu
    scalewise estimate --plan plan.toml             # what the web UI saved

Exit code 0: it fits; 1: it cannot run, and the reason is printed with the numbers; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from scalewise.cli.common import drawn, ending_of, light_numpy, put, show, to_json, write
from scalewise.cli.options import question_options

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.question import Question
    from scalewise.ask.resolve import Asked
    from scalewise.model import Convention
    from scalewise.step.result import Estimate

# Spelled out here, because importing them would make `--help` import the nouns.
CONVENTIONS = ("causal", "palm", "megatron", "6n")
FORMATS = (".html", ".json", ".txt")


@click.command(short_help="Predict throughput, memory and cost of one training step.")
@question_options()
@click.option(
    "--mfu-convention",
    type=click.Choice(CONVENTIONS),
    default="causal",
    show_default=True,
    help="Convention by which the FLOPs of MFU are counted.",
)
@click.option("--explain", is_flag=True, help="Print every formula, input, result and source.")
@click.option("--waterfall", is_flag=True, help="Print the losses between peak and achieved FLOPs.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("-o", "--output", metavar="FILE", help="Output file: .html, .json or .txt.")
def estimate(
    question: Question,
    mfu_convention: str,
    output: str | None,
    *,
    explain: bool,
    waterfall: bool,
    as_json: bool,
) -> int:
    """Predict throughput, memory and cost of one training step of MODEL.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file.
    """
    ending = ending_of(output, FORMATS)
    light_numpy()
    from scalewise.ask.resolve import resolve

    asked = resolve(question)
    e = asked.estimate(cast("Convention", mfu_convention))
    if ending == ".html":
        assert output is not None
        write(output, _html(e, waterfall=waterfall))
    elif as_json or ending == ".json":
        put(output, to_json(as_dict(e, asked)))
    else:

        def draw(out: Console) -> None:
            _print(e, asked, out, explain=explain, waterfall=waterfall)

        if output is None:
            show(draw)
        else:
            write(output, drawn(draw) + "\n")
    if e.infeasible is not None and (output or as_json):
        click.echo(f"does not fit: {e.infeasible}", err=True)
    return 0 if e.feasible else 1


def as_dict(e: Estimate, asked: Asked) -> dict[str, Any]:
    """Return the estimate and what is needed to repeat it, as plain types.

    Args:
        e: The estimate.
        asked: What was asked.

    Returns:
        `Estimate.to_dict()` with `version`, `question`, `inputs`, `changes`, `notes` and
        `suggestions`.
    """
    import msgspec

    from scalewise._version import __version__
    from scalewise.report.suggestions import suggestions

    nouns = {
        "model": e.model,
        "cluster": e.cluster,
        "workload": e.workload,
        "strategy": e.strategy,
        "stack": e.stack,
    }
    return {
        "version": __version__,
        "question": msgspec.to_builtins(asked.question),
        "inputs": {
            **{name: msgspec.to_builtins(noun) for name, noun in nouns.items()},
            "convention": e.convention,
        },
        "changes": list(asked.changes),
        "notes": list(asked.notes),
        "suggestions": list(suggestions(e)),
        **e.to_dict(),
    }


def _print(e: Estimate, asked: Asked, out: Console, *, explain: bool, waterfall: bool) -> None:
    """Print the views that were asked for, or the whole table."""
    from scalewise.report.estimate_table import print_estimate, print_footer, print_headline

    if not explain and not waterfall:
        print_estimate(e, out, defaults=asked.defaults, changes=asked.changes, notes=asked.notes)
        return
    print_headline(e, out, changes=asked.changes)
    if waterfall:
        from scalewise.report.estimate_waterfall import print_waterfall

        print_waterfall(e, out)
    if explain:
        from scalewise.report.explain import print_explained

        print_explained(e, out)
    print_footer(e, out, defaults=asked.defaults, notes=asked.notes)


def _html(e: Estimate, *, waterfall: bool) -> str:
    if waterfall:
        from scalewise.report.estimate_waterfall import waterfall_html

        return waterfall_html(e)
    from scalewise.report.estimate_html import estimate_page

    return estimate_page(e)
