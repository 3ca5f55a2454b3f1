"""`scalewise estimate`: what does one training step cost, where does it go, and will it fit?

    scalewise estimate llama-2-7b --on dgx-h100 --gpus 2048
    scalewise estimate ./config.json --on dgx-a100 --strategy fsdp16-tp4 --batch 512 --explain
    scalewise estimate gpt3-175b --on a100 --gpus 1024 --strategy tp8-pp8 --json | jq .mfu
    scalewise estimate --plan plan.toml             # what the page saved

Exit code 0: it fits; 1: it cannot run, and the reason is printed with the numbers; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import click

from scalewise.cli.common import (
    drawn,
    ending_of,
    light_numpy,
    put,
    question_options,
    show,
    to_json,
    write,
)

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.cli.inputs import Question
    from scalewise.model import Convention
    from scalewise.step.result import Estimate

# Spelled out here, because importing them would make `--help` import the nouns.
CONVENTIONS = ("causal", "palm", "megatron", "6n")
FORMATS = (".html", ".json", ".txt")


@click.command(short_help="Predict what one training step costs.")
@click.argument("model")
@question_options
@click.option(
    "--mfu-convention",
    type=click.Choice(CONVENTIONS),
    default="causal",
    show_default=True,
    help="How the FLOPs of MFU are counted.",
)
@click.option("--explain", is_flag=True, help="Show every formula, input, result and source.")
@click.option("--waterfall", is_flag=True, help="Show what is lost between peak and achieved.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("-o", "--output", metavar="FILE", help="Write to a .html, .json or .txt file.")
def estimate(
    model: str,
    on: str,
    mfu_convention: str,
    sets: tuple[str, ...],
    output: str | None,
    *,
    explain: bool,
    waterfall: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Predict what one training step of MODEL costs.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file.
    """
    ending = ending_of(output, FORMATS)
    light_numpy()
    from scalewise.cli.inputs import ask
    from scalewise.step.estimate import estimate as price

    question = ask(model, on, sets=sets, **flags)
    e = price(
        question.model,
        question.cluster,
        question.workload,
        question.strategy,
        stack=question.stack,
        convention=cast("Convention", mfu_convention),
    )
    if ending == ".html":
        assert output is not None
        write(output, _html(e, waterfall=waterfall))
    elif as_json or ending == ".json":
        put(output, to_json(as_dict(e, question)))
    else:

        def draw(out: Console) -> None:
            _print(e, question, out, explain=explain, waterfall=waterfall)

        if output is None:
            show(draw)
        else:
            write(output, drawn(draw) + "\n")
    if e.infeasible is not None and (output or as_json):
        click.echo(f"does not fit: {e.infeasible}", err=True)
    return 0 if e.feasible else 1


def as_dict(e: Estimate, question: Question) -> dict[str, Any]:
    """Tell everything as plain types: the estimate, and what is needed to repeat it.

    Args:
        e: The estimate.
        question: What was asked.

    Returns:
        `Estimate.to_dict()` with `version`, `inputs`, `chosen`, `changed`, `notes` and `advice`.
    """
    import msgspec

    from scalewise._version import __version__
    from scalewise.report.advice import advice

    nouns = {
        "model": e.model,
        "cluster": e.cluster,
        "workload": e.workload,
        "strategy": e.strategy,
        "stack": e.stack,
    }
    return {
        "version": __version__,
        "inputs": {
            **{name: msgspec.to_builtins(noun) for name, noun in nouns.items()},
            "convention": e.convention,
        },
        "chosen": [*question.chosen, *e.defaults],
        "changed": list(question.changed),
        "notes": list(question.notes),
        "advice": list(advice(e)),
        **e.to_dict(),
    }


def _print(
    e: Estimate, question: Question, out: Console, *, explain: bool, waterfall: bool
) -> None:
    """Print the views that were asked for, or the whole table."""
    from scalewise.report.tables import print_estimate, print_footer, print_headline

    told = {"chosen": question.chosen, "changed": question.changed, "notes": question.notes}
    if not explain and not waterfall:
        print_estimate(e, out, **told)
        return
    print_headline(e, out)
    if waterfall:
        from scalewise.report.waterfall import print_waterfall

        print_waterfall(e, out)
    if explain:
        from scalewise.report.explain import print_explained

        print_explained(e, out)
    print_footer(e, out, **told)


def _html(e: Estimate, *, waterfall: bool) -> str:
    if waterfall:
        from scalewise.report.waterfall import waterfall_html

        return waterfall_html(e)
    from scalewise.report.html import estimate_page

    return estimate_page(e)
