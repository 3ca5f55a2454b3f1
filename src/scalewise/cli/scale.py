"""`scalewise scale`: weak or strong scaling of strategies over numbers of GPUs.

    scalewise scale llama-2-7b --on dgx-h100 --gpus 8..2048 --strategy best,fsdp,hsdp64
    scalewise scale llama-2-7b --on dgx-h100,dgx-a100 --gpus 16..256 --batch 1024
    scalewise scale llama-2-7b,llama-2-13b --on dgx-h100 --gpus 8..512 --weak --seq 4096,16384

Exit code 0: some point can run; 1: none can; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

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
from scalewise.cli.options import question_options
from scalewise.cli.sweeping import sweep_options
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.ask.question import Question
    from scalewise.cli.sweeping import Runner

LISTS = {
    "model": ("MODEL,...", ""),
    "on": ("CLUSTER,...", "Clusters or accelerators"),
    "gpus": ("N..M", "Numbers of GPUs: 8..2048 doubles, 8,64,512 lists"),
    "strategy": ("S,...", "Strategies without sizes: fsdp, hsdp64, tp8-pp8-zero1; best, best-tp2"),
    "seq": ("N,...", "Sequence lengths, tokens"),
    "batch": ("N", "Global batch of strong scaling, sequences; or tokens, such as 4Mtok"),
}
"""What fields of a question mean here: metavar and help."""


@click.command(short_help="Estimate weak or strong scaling over numbers of GPUs.")
@question_options(instead=LISTS, unplanned=("gpus", "strategy"))
@click.option(
    "--weak/--strong",
    default=None,
    help="Weak scaling: the batch grows with the cluster; strong: it stays. [strong]",
)
@click.option(
    "--batch-per-gpu", type=float, metavar="N", help="Sequences per GPU, in weak scaling. [2]"
)
@click.option("--exhaustive", is_flag=True, help="Search all strategies for best, not the usual.")
@click.option(
    "--knee",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    default=0.5,
    show_default=True,
    metavar="FRACTION",
    help="Marginal efficiency below which growing has a knee.",
)
@sweep_options
@click.option("--table", is_flag=True, help="Print every number at every size.")
@click.option("--json", "as_json", is_flag=True, help="Print all points as JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print all points as CSV.")
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    help="Output file: .json, .csv, .parquet, .html, .svg or .png.",
)
def scale(
    question: Question,
    output: str | None,
    knee: float,
    batch_per_gpu: float | None,
    *,
    runner: Runner,
    weak: bool | None,
    exhaustive: bool,
    table: bool,
    as_json: bool,
    as_csv: bool,
) -> int:
    """Estimate throughput of MODEL on more and more GPUs: efficiency, knees, crossovers, causes.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file; commas join several. Strategies are spelled without sizes: the
    data-parallel part takes the ranks that are left.

    The knee is the first size whose added GPUs each bring less than the fraction --knee of what a
    GPU brings at the smallest size.
    """
    ending = ending_of(output, FORMATS)
    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other", hint="keep one of the two")
    check_library(ending)
    light_numpy()
    from scalewise.ask.scaling import scaling
    from scalewise.explore.tasks import PointResult

    asked = scaling(question, weak=weak, batch_per_gpu=batch_per_gpu)
    curves = asked.curves(
        exhaustive=exhaustive, run=lambda tasks, function: runner(tasks, function, PointResult)
    )
    defaults = [str(each) for each in asked.defaults]
    if output is not None and ending is not None:
        from scalewise.report.scale_files import scale_file

        write_bytes(output, scale_file(curves, ending, share=knee, defaults=defaults))
    if as_csv:
        from scalewise.report.scale_files import scale_file

        put(None, scale_file(curves, ".csv").decode().rstrip("\n"))
    elif as_json:
        from scalewise.report.scale_files import scale_dict

        put(None, to_json(scale_dict(curves, share=knee, defaults=defaults)))
    elif output is None:
        from scalewise.report.scale_table import print_curves

        show(
            lambda out: print_curves(
                curves, out, share=knee, defaults=asked.defaults, changes=asked.changes, table=table
            )
        )
    if any(curve.feasible for curve in curves.curves):
        return 0
    click.echo("no strategy can run at any of these sizes", err=True)
    return 1
