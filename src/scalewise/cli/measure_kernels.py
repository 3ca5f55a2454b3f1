"""`scalewise measure kernels`: sustained rates of kernels in the shapes of a model.

scalewise measure kernels --model llama-2-7b --strategy tp2-mb2 --seq 4096
"""

from __future__ import annotations

from typing import Any

import click

from scalewise.cli.measure_options import Where
from scalewise.cli.measure_sweeps import place_of, sweep_options, take
from scalewise.cli.measure_train import CPU_SEQUENCE, GPU_SEQUENCE

CPU_MODEL, GPU_MODEL = "tiny", "llama-2-7b"
"""Default models."""


@click.command(short_help="Time the kernels of a model.")
@click.option(
    "--model",
    "models",
    multiple=True,
    metavar="M",
    help="Model that gives the shapes; repeatable. [llama-2-7b; CPUs: tiny]",
)
@click.option(
    "--strategy",
    metavar="S",
    default="mb1",
    show_default=True,
    help="Strategy that splits the shapes: tp, cp, ep and micro-batch.",
)
@click.option("--seq", metavar="N", help="Sequence length, tokens. [4096; CPUs: 256]")
@click.option("--precision", metavar="P", help="Precision: bf16 or fp32. [bf16; CPUs: fp32]")
@sweep_options
def kernels(*, where: Where, **flags: Any) -> None:
    """Time GEMMs, grouped ones of experts, attention, memory-bound kernels, loss and optimizer.

    All GPUs run at the same time, as in training, so that shared power and memory count.
    """
    from scalewise.cli.common import show, to_json
    from scalewise.measure.kernel_plan import join_plans, plan_kernels
    from scalewise.model import load_model
    from scalewise.records.job import check_precision
    from scalewise.strategy import parse_strategy
    from scalewise.units import parse

    device, ranks = place_of(where, flags["ranks"])
    gpu = device == "cuda"
    seq_len = flags["seq"]
    plan = join_plans([
        plan_kernels(
            load_model(name),
            parse_strategy(flags["strategy"]),
            seq_len=int(parse(seq_len, "count")) if seq_len
            else (GPU_SEQUENCE if gpu else CPU_SEQUENCE),
            dtype=check_precision(flags["precision"] or ("bf16" if gpu else "fp32")),
            iters=flags["iters"],
        )
        for name in flags["models"] or ((GPU_MODEL if gpu else CPU_MODEL),)
    ])  # fmt: skip
    record, file = take("kernel", plan, where, device=device, ranks=ranks)
    if where.as_json:
        rows = record.results["rows"]
        click.echo(to_json({"rows": rows, "warnings": record.warnings, "records": file}))
        return
    from scalewise.report.measure_sweeps import print_kernels

    show(lambda out: print_kernels(record, file, out))
