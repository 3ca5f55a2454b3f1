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

from scalewise.cli.common import (
    FORMATS,
    check_library,
    ending_of,
    light_numpy,
    put,
    show,
    to_json,
    write_bytes,
)
from scalewise.cli.options import question_options, stated_fields
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.ask.question import Question

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
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all rows as CSV.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Output file: .toml (the answer as a plan file), .html, .svg, .png, .csv, .json or "
    ".parquet.",
)
def plan(
    question: Question,
    *,
    queue: str | None,
    order: str | None,
    meet: str,
    as_json: bool,
    as_csv: bool,
    output: str | None,
) -> int:
    """Plan whole runs of MODEL: layout, days, dollars, MWh and tonnes of CO2 against limits.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file; commas join several. With --deadline or --budget, sizes between and beyond
    those of --gpus are tried, and the far end of the 80% interval has to meet them.
    """
    ending = ending_of(output, (*FORMATS, ".toml"))
    check_library(ending)
    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other", hint="keep one of the two")
    light_numpy()
    if queue is not None:
        from scalewise.cli.plan_queue import run_queue

        return run_queue(queue, question, output=output, ending=ending, as_json=as_json,
                         as_csv=as_csv)  # fmt: skip
    from scalewise.ask.planning import planning

    stated = set(stated_fields(question))
    if "gpus" in stated and "strategy" not in stated:
        # The strategy of a plan file has the sizes of its own number of GPUs.
        question = msgspec.structs.replace(question, strategy=None)
    found = planning(question, by=order, far_end=meet == "far-end")
    if output is not None and ending is not None:
        from scalewise.report.plan_files import plan_file

        write_bytes(output, plan_file(found, ending))
    if as_csv:
        from scalewise.report.plan_files import plan_file

        put(None, plan_file(found, ".csv").decode().rstrip("\n"))
    elif as_json:
        from scalewise.report.plan_files import plan_dict

        put(None, to_json(plan_dict(found)))
    elif output is None or ending == ".toml":
        from scalewise.report.plan_table import print_plan

        show(lambda console: print_plan(found, console, output))
    return 0 if all(answer.row is not None for answer in found.answers) else 1
