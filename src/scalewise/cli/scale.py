"""`scalewise scale`: weak or strong scaling of strategies over numbers of GPUs.

    scalewise scale llama-2-7b --on dgx-h100 --gpus 8..2048 --strategy best,fsdp,hsdp64
    scalewise scale llama-2-7b --on dgx-h100,dgx-a100 --gpus 16..256 --batch 1024
    scalewise scale llama-2-7b,llama-2-13b --on dgx-h100 --gpus 8..512 --weak --seq 4096,16384
    scalewise scale llama-2-7b --on dgx-h100 --gpus 256 --over network=25..800Gbit/s
    scalewise scale llama-2-7b --on dgx-h100 --gpus 8..2048 --tokens 2T --deadline 30d

Exit code 0: some point can run; 1: none can; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scalewise.cli.answer import answer_options
from scalewise.cli.options import question_options
from scalewise.cli.sweeping import sweep_options
from scalewise.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.question import Question
    from scalewise.cli.answer import Answer
    from scalewise.cli.sweeping import Runner

LISTS = {
    "model": ("MODEL,...", ""),
    "on": ("CLUSTER,...", "Clusters or accelerators"),
    "gpus": ("N..M", "Numbers of GPUs: 8..2048 doubles, 64..256+32 adds, 8,64,512 lists"),
    "strategy": ("S,...", "Strategies without sizes: fsdp, hsdp64, tp8-pp8-zero1; best, best-tp2"),
    "seq": ("N,...", "Sequence lengths, tokens"),
    "batch": ("N", "Global batch of strong scaling, sequences; or tokens, such as 4Mtok"),
}
"""What fields of a question mean here: metavar and help."""


@click.command(short_help="Estimate weak or strong scaling over numbers of GPUs.")
@question_options(instead=LISTS, unplanned=("gpus", "strategy"))
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=VALUES",
    help="Quantity on the axis instead of --gpus: network=25..800Gbit/s, seq=4096,8192, ga=1..16, "
    "any --set key. A..B doubles, A..B+STEP adds. Given twice: a map.",
)
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
@click.option(
    "--deadline",
    metavar="T",
    help="Time that the run of --tokens may take, such as 30d: names the smallest size.",
)
@sweep_options
@click.option("--table", is_flag=True, help="Print every number at every size.")
@answer_options(json="Print all points as JSON.", csv="Print all points as CSV.")
def scale(
    question: Question,
    knee: float,
    batch_per_gpu: float | None,
    *,
    runner: Runner,
    over: tuple[str, ...],
    deadline: str | None,
    weak: bool | None,
    exhaustive: bool,
    table: bool,
    answer: Answer,
) -> int:
    """Estimate throughput of MODEL on more and more GPUs: efficiency, knees, crossovers, causes.

    MODEL is a name (see `scalewise models`), a Hugging Face config.json, a directory that holds
    one, or a .toml file; commas join several. Strategies are spelled without sizes: the
    data-parallel part takes the ranks that are left.

    The knee is the first size whose added GPUs each bring less than the fraction --knee of what a
    GPU brings at the smallest size. With --over, every point is the estimate of the same words; the
    knee is the first value whose doubling gains less than --knee of the largest gain before it.
    """
    if over:
        from scalewise.cli.scale_over import run_over

        alone = {
            "--weak/--strong": weak, "--batch-per-gpu": batch_per_gpu, "--deadline": deadline,
        }  # fmt: skip
        for flag, value in alone.items():
            if value is not None:
                raise InputError(
                    f"{flag} belongs to --gpus ranges, not to --over",
                    hint="--over gpus=8..256 --over batch=..., or leave it out",
                )
        return run_over(
            question, over, answer, runner=runner, knee=knee, exhaustive=exhaustive, table=table
        )
    from scalewise.ask.scaling import scaling
    from scalewise.explore.tasks import PointResult

    asked = scaling(question, weak=weak, batch_per_gpu=batch_per_gpu)
    days = None if deadline is None else days_of(deadline, asked.rules[0].tokens)
    curves = asked.curves(
        exhaustive=exhaustive, run=lambda tasks, function: runner(tasks, function, PointResult)
    )
    defaults = [str(each) for each in asked.defaults]

    def file(ending: str) -> bytes:
        from scalewise.report.scale_files import scale_file

        return scale_file(
            curves, ending, share=knee, defaults=defaults, deadline=days, fit=asked.fit
        )

    def data() -> object:
        from scalewise.report.scale_files import scale_dict

        return scale_dict(curves, share=knee, defaults=defaults, deadline=days, fit=asked.fit)

    def printed(console: Console) -> None:
        from scalewise.report.scale_table import print_curves

        print_curves(
            curves, console, share=knee, defaults=asked.defaults, changes=asked.changes,
            table=table, deadline=days, fit=asked.fit,
        )  # fmt: skip

    answer.give(file=file, data=data, table=printed)
    if any(curve.feasible for curve in curves.curves):
        return 0
    click.echo("no strategy can run at any of these sizes", err=True)
    return 1


def days_of(deadline: str, tokens: float | None) -> float:
    """Return the days of a deadline.

    Raises:
        InputError: If it is no time, or there is no token budget.
    """
    from scalewise.ask.limits import days_of as read

    if tokens is None:
        raise InputError(
            f"--deadline {deadline}: needs a token budget", hint="add --tokens 2T", field="tokens"
        )
    return read(deadline)
