"""`scalewise measure train`: how fast does a model really train here, split this way or that?

    scalewise measure train llama-2-7b --strategy fsdp8-mb2 --steps 60
    scalewise measure train tiny --sweep strategy=ddp2,fsdp2,tp2,pp2 --launches 3

One launch per point and repetition, by torchrun here or by Slurm elsewhere. Repetitions go round
all points rather than staying with one, so that a machine that gets slower does not make one
strategy look slow.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.measure_options import Problem, Where, measure_options
from scalewise.errors import InputError, ScalewiseError, did_you_mean

if TYPE_CHECKING:
    from scalewise.measure.job import Device, TrainJob
    from scalewise.measure.metrics import Summary
    from scalewise.measure.order import Order

AXES = ("model", "strategy", "seq", "batch", "precision", "compile")
"""What --sweep can vary."""

GPU_SEQUENCE, CPU_SEQUENCE = 4096, 256
"""Tokens per sequence when nobody says: as everywhere, or what a laptop can bear."""

TRACE_STEPS = 3
"""Steps under the profiler with --trace."""

FAILED = 1


@click.command(short_help="Train for a few steps, and time them.")
@click.argument("model")
@click.option("--strategy", metavar="S", help="For example fsdp8-mb2. [all GPUs, or one CPU rank]")
@click.option("--sweep", multiple=True, metavar="X=A,B", help="Vary X; may be repeated.")
@click.option("--steps", default=30, show_default=True, help="Optimizer steps of a launch.")
@click.option("--warmup", type=int, metavar="N", help="First steps not counted. [a quarter, <= 10]")
@click.option("--launches", default=1, show_default=True, help="How often to start afresh.")
@click.option("--seq", metavar="N", help="Tokens per sequence. [4096 on GPUs, 256 on CPUs]")
@click.option("--batch", metavar="N", help="Sequences per step. [the smallest that fits]")
@click.option("--precision", metavar="P", help="bf16 or fp32. [bf16 on GPUs, fp32 on CPUs]")
@click.option("--compile", "compiled", is_flag=True, help="Put blocks through torch.compile.")
@click.option("--trace", is_flag=True, help="Profile further steps: exposed communication.")
@click.option("--text", metavar="FILE", help="Train on the bytes of a file. [synthetic tokens]")
@measure_options
def train(*, where: Where, launches: int, **flags: Any) -> int:
    """Train MODEL for a few steps, as a strategy says, and time every step.

    Runs on the GPUs of this machine (NCCL), or on its CPUs (Gloo), one process per device.
    Every launch becomes a record with all samples; the table shows medians without warm-up.
    """
    from scalewise.cli.common import show, to_json
    from scalewise.measure.launch import check_room

    device, count = where.devices()
    # On a cluster all ranks that were asked for, here one core where there is no GPU.
    kind = "fsdp" if device == "cuda" else "ddp"
    ranks = count if where.on_slurm or device == "cuda" else 1
    points = list(points_of(flags, device, None if ranks is None else f"{kind}{ranks}"))
    if launches < 1:
        raise InputError(f"--launches {launches} must be at least 1", hint="leave it out for one")
    if not where.on_slurm:
        for job in points:
            check_room(device, job.ranks, count or 1, f"strategy {job.strategy}")
    file = str(where.file("train"))
    wanted = orders_of(points, where, file, device=device, launches=launches)
    made, failures, problem = (
        where.run_on_slurm(list(wanted)) if where.on_slurm else measure_all(wanted, where)
    )
    summaries = summaries_of(file, made)
    if where.as_json:
        click.echo(to_json({"summaries": summaries, "failures": failures, "records": file}))
    else:
        from scalewise.report.measured import print_summaries

        show(lambda out: print_summaries(summaries, failures, file, out))
    if problem is not None:
        raise problem
    return FAILED if failures else 0


def points_of(flags: dict[str, Any], device: Device, default: str | None) -> Iterator[TrainJob]:
    """Every job that was asked for, checked.

    Args:
        flags: As typed.
        device: Where they will run.
        default: The strategy when nobody says; None where it cannot be told.

    Raises:
        InputError: If one of them cannot run, before any is started.
    """
    from scalewise.measure.job import check_job

    axes = axes_of(flags["sweep"])
    for name in ("strategy", "seq", "batch", "precision"):
        if name in axes and flags[name] is not None:
            raise InputError(
                f"--{name} {flags[name]} and --sweep {name}= exclude each other",
                hint="keep one of the two",
            )
    for values in product(*axes.values()):
        asked = {
            "model": flags["model"],
            "strategy": flags["strategy"],
            "seq": flags["seq"],
            "batch": flags["batch"],
            "precision": flags["precision"],
            "compile": "true" if flags["compiled"] else "false",
        } | dict(zip(axes, values, strict=True))
        job = job_from(asked, flags, device, default)
        check_job(job, device)
        yield job


def axes_of(sweep: Sequence[str]) -> dict[str, list[str]]:
    """Read "strategy=ddp2,fsdp2" and the like.

    Raises:
        InputError: If a word is not understood.
    """
    axes: dict[str, list[str]] = {}
    for text in sweep:
        name, _, values = text.partition("=")
        if name not in AXES:
            raise InputError(f"--sweep cannot vary {name[:40]!r}", hint=did_you_mean(name, AXES))
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if not listed or name in axes:
            raise InputError(
                f"--sweep {text[:60]!r} " + ("comes twice" if name in axes else "has no values"),
                hint="for example --sweep strategy=ddp2,fsdp2",
            )
        axes[name] = listed
    return axes


def job_from(
    asked: dict[str, Any], flags: dict[str, Any], device: Device, default: str | None
) -> TrainJob:
    """One job, with everything that was not said chosen."""
    from scalewise.cli.inputs import FILL
    from scalewise.measure.job import TrainJob, check_precision
    from scalewise.model import load_model
    from scalewise.strategy import parse_strategy
    from scalewise.units import parse

    on_gpu = device == "cuda"
    chosen = asked["strategy"] or default
    if chosen is None:
        raise InputError(
            "how many ranks a node takes is not known here",
            hint="say --strategy, for example fsdp128-mb2, or --ranks-per-node",
        )
    strategy = parse_strategy(chosen)
    per_step = strategy.micro_batch * strategy.data_parallel
    micro_steps = strategy.accumulation or (FILL * strategy.pp if strategy.pp > 1 else 1)
    batch = asked["batch"]
    sequence = asked["seq"]
    if asked["compile"].lower() not in ("true", "false"):
        raise InputError(f"compile = {asked['compile']!r} is neither true nor false")
    compiled = asked["compile"].lower() == "true" or strategy.compiled is True
    steps: int = flags["steps"]
    warmup = flags["warmup"]
    model = load_model(asked["model"])
    longest = model.max_positions or GPU_SEQUENCE
    return TrainJob(
        model=model,
        strategy=strategy,
        sequence=int(parse(sequence, "count")) if sequence else min(
            longest, GPU_SEQUENCE if on_gpu else CPU_SEQUENCE),
        global_batch=int(parse(batch, "count")) if batch else per_step * micro_steps,
        precision=check_precision(asked["precision"] or strategy.precision
                                  or ("bf16" if on_gpu else "fp32")),
        steps=steps,
        # A single step is its own warm-up, but it is what was asked for.
        warmup=max(0, min(10, max(1, steps // 4), steps - 1)) if warmup is None else warmup,
        trace_steps=TRACE_STEPS if flags["trace"] else 0,
        compile=compiled,
        # Ranks may run in another folder than the one in which this was typed.
        text=None if flags["text"] is None else str(Path(flags["text"]).expanduser().absolute()),
    )  # fmt: skip


def orders_of(
    points: Sequence[TrainJob], where: Where, records: str, *, device: Device, launches: int
) -> Iterator[Order]:
    """One order for each point and repetition, going round; each looks at the machine when asked.

    Args:
        points: What to train.
        where: With how many threads, and on what.
        records: The file for the records.
        device: Kind of device.
        launches: Repetitions.
    """
    from scalewise.measure.machine import idle_warnings
    from scalewise.measure.order import Order, Planned
    from scalewise.measure.records import new_id

    accelerator = where.accelerator()
    total = launches * len(points)
    for number, (launch, job) in enumerate(product(range(1, launches + 1), points), start=1):
        warnings: list[str] = []
        if not where.on_slurm:
            what = f"{job.model.name} {job.strategy}, launch {launch}"
            click.echo(f"{number} of {total}: {what} ...", err=True)
            warnings = list(idle_warnings())
        yield Order(
            planned=[Planned(job=job, id=new_id(), launch=launch, warnings=warnings)],
            records=records,
            device=device,
            accelerator=accelerator,
            threads=where.threads_of(device, job.ranks),
        )


def measure_all(orders: Iterable[Order], where: Where) -> tuple[set[str], list[str], Problem]:
    """Launch one order after the other on this machine.

    Returns:
        Ids of the records that were written, a sentence for each launch that failed, and nothing
        further to raise.

    Raises:
        LaunchError: If the only launch failed.
    """
    from scalewise.measure.launch import LocalLauncher

    made: set[str] = set()
    failed: list[tuple[str, ScalewiseError]] = []
    seconds = where.launch_seconds()
    for order in orders:
        try:
            LocalLauncher(timeout=seconds, logs=Path(order.records).parent / "logs").run(order)
        except ScalewiseError as error:
            (planned,) = order.planned
            failed.append((f"{planned.job.strategy}, launch {planned.launch}", error))
        else:
            made.update(order.ids)
    if len(failed) == 1 and not made:
        raise failed[0][1]
    failures = [
        f"{what}: {error}" + (f" ({error.hint})" if error.hint else "") for what, error in failed
    ]
    return made, failures, None


def summaries_of(records: str, made: set[str]) -> list[Summary]:
    """Summaries of the records that were just written, in the order of their points."""
    from scalewise.measure.metrics import by_job, summarise
    from scalewise.measure.records import read_records

    if not made:
        return []
    mine = [record for record in read_records(records, kind="train").records if record.id in made]
    return [summarise(launches) for launches in by_job(mine)]
