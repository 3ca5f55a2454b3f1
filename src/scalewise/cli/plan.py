"""`scalewise plan`: models, clusters and sizes as whole runs against a deadline and a budget.

    scalewise plan llama-2-13b,llama-3-70b --on dgx-h100 --gpus 256..1024 --tokens 2T --deadline 21d
    scalewise plan llama-3-70b --on dgx-h100,gb200-nvl72 --gpus 512 --tokens 2T --by cost
    scalewise plan llama-3-70b --on dgx-h100 --gpus 512 --tokens 2T --own on --region us
    scalewise plan --queue queue.toml --on dgx-h100 --gpus 512

Exit code 0: something is within the limits; 1: nothing is, and the nearest is shown; 2: wrong
usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from scalewise.cli.answer import answer_options
from scalewise.cli.common import FORMATS, show
from scalewise.cli.options import question_options, stated_fields

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.question import Question
    from scalewise.cli.answer import Answer

LISTS = {
    "model": ("MODEL,...", ""),
    "on": ("CLUSTER,...", "Clusters or accelerators"),
    "gpus": ("N,...", "Numbers of GPUs: 64..1024 doubles, 64..256+32 adds, 8,64,512 lists. "
             "[64..1024]"),
}  # fmt: skip
"""What fields of a question mean here: metavar and help."""

ORDERS = ("time", "tokens", "cost", "energy", "carbon", "memory")
"""Names of `explore.plan.ORDERS`, which is imported when it is needed."""


@click.command(short_help="Plan whole runs against a deadline and a budget.")
@question_options(instead=LISTS, aside="plan", silent=("by",), unless="queue")
@click.option(
    "--queue",
    metavar="FILE",
    help="Queue of runs on one cluster (.toml): prints their calendar; --on, --gpus, --price and "
    "others stand before those of the file.",
)
@click.option(
    "--by",
    "order",
    type=click.Choice(ORDERS),
    help="Order of the rows. [time; with a limit cost, or GPU-hours where some cost is unknown]",
)
@click.option(
    "--meet",
    type=click.Choice(("far-end", "prediction")),
    default="far-end",
    show_default=True,
    help="What has to meet deadline and budget: the far end of the 80% interval, or the "
    "prediction.",
)
@answer_options(
    csv="Print all rows as CSV.",
    output="Output file: .toml (the answer as a plan file), .html, .svg, .png, .csv, .json or "
    ".parquet.",
    types=(*FORMATS, ".toml"),
)
def plan(
    question: Question,
    *,
    queue: str | None,
    order: str | None,
    meet: str,
    answer: Answer,
) -> int:
    """Plan whole runs of MODEL: layout, days, dollars, MWh and tonnes of CO2 against limits.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file; commas join several. With --deadline or --budget, sizes between and beyond
    those of --gpus are tried, and the far end of the 80% interval has to meet them.
    """
    if queue is not None:
        from scalewise.cli.plan_queue import run_queue

        return run_queue(queue, question, answer)
    from scalewise.ask.planning import planning

    stated = set(stated_fields(question))
    if "gpus" in stated and "strategy" not in stated:
        # The strategy of a plan file has the sizes of its own number of GPUs.
        question = msgspec.structs.replace(question, strategy=None)
    found = planning(question, by=order, far_end=meet == "far-end")

    def file(ending: str) -> bytes:
        from scalewise.report.plan_files import plan_file

        return plan_file(found, ending)

    def data() -> object:
        from scalewise.report.plan_files import plan_dict

        return plan_dict(found)

    def table(console: Console) -> None:
        from scalewise.report.plan_table import print_plan

        print_plan(found, console, answer.path)

    answer.give(file=file, data=data, table=table)
    if answer.ending == ".toml" and not answer.as_json and not answer.as_csv:
        show(table)
    return 0 if all(each.row is not None for each in found.answers) else 1
