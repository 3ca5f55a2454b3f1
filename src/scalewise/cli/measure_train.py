"""`scalewise measure train`: how fast does a model really train here, split this way or that?

    scalewise measure train llama-2-7b --strategy fsdp8-mb2 --steps 60
    scalewise measure train tiny --sweep strategy=ddp2,fsdp2,tp2,pp2 --launches 3

One launch of torchrun per point and repetition. Repetitions go round all points rather than staying
with one, so that a machine that gets slower does not make one strategy look slow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import click

from scalewise.errors import InputError, ScalewiseError, did_you_mean

if TYPE_CHECKING:
    from scalewise.measure.job import Device, TrainJob
    from scalewise.measure.metrics import Summary

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
@click.option("--on", metavar="NAME", help="What the devices are, for their peaks. [found out]")
@click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Where. [GPUs, if any]")
@click.option("--timeout", metavar="T", default="30min", show_default=True, help="Of a launch.")
@click.option("-o", "--output", metavar="PATH", default="records", show_default=True,
              help="Folder or .jsonl file that records are added to.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print the summaries as JSON.")
def train(*, timeout: str, output: str, launches: int, as_json: bool, **flags: Any) -> int:
    """Train MODEL for a few steps, as a strategy says, and time every step.

    Runs on the GPUs of this machine (NCCL), or on its CPUs (Gloo), one process per device.
    Every launch becomes a record with all samples; the table shows medians without warm-up.
    """
    from scalewise.cli.common import show, to_json
    from scalewise.measure.launch import LocalLauncher, choose_device
    from scalewise.measure.records import file_of
    from scalewise.units import parse

    device, count = choose_device(flags["device"])
    points = list(points_of(flags, device, count))
    if launches < 1:
        raise InputError(f"--launches {launches} must be at least 1")
    file = file_of(output, "train")
    launcher = LocalLauncher(timeout=parse(timeout, "seconds"), logs=file.parent / "logs")
    made, failures = measure_all(
        points, launcher, str(file), device=device, accelerator=_accelerator(flags["on"]),
        launches=launches,
    )  # fmt: skip
    summaries = summaries_of(str(file), made)
    if as_json:
        click.echo(to_json({"summaries": summaries, "failures": failures, "records": str(file)}))
    else:
        from scalewise.report.measured import print_summaries

        show(lambda out: print_summaries(summaries, failures, str(file), out))
    return FAILED if failures else 0


def points_of(flags: dict[str, Any], device: Device, count: int) -> Iterator[TrainJob]:
    """Every job that was asked for, checked.

    Args:
        flags: As typed.
        device: Where they will run.
        count: GPUs here, or cores.

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
        job = job_from(asked, flags, device, count)
        check_job(job, device)
        if device == "cuda" and job.ranks > count:
            raise InputError(
                f"strategy {job.strategy} needs {job.ranks} GPUs, but there are {count} here",
                hint="take a smaller strategy, or --device cpu",
            )
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


def job_from(asked: dict[str, Any], flags: dict[str, Any], device: Device, count: int) -> TrainJob:
    """One job, with everything that was not said chosen."""
    from scalewise.cli.inputs import FILL
    from scalewise.measure.job import TrainJob, check_precision
    from scalewise.model import load_model
    from scalewise.strategy import parse_strategy
    from scalewise.units import parse

    on_gpu = device == "cuda"
    strategy = parse_strategy(asked["strategy"] or (f"fsdp{count}" if on_gpu else "ddp1"))
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
        warmup=min(10, max(1, steps // 4)) if warmup is None else warmup,
        trace_steps=TRACE_STEPS if flags["trace"] else 0,
        compile=compiled,
        text=flags["text"],
    )  # fmt: skip


def _accelerator(name: str | None) -> str | None:
    """The accelerator that was named, directly or by a cluster of it."""
    if name is None:
        return None
    from scalewise.catalog import load_cluster

    return load_cluster(name).accelerator.name


def measure_all(
    points: Sequence[TrainJob],
    launcher: Any,
    records: str,
    *,
    device: Device,
    accelerator: str | None,
    launches: int,
) -> tuple[list[str], list[str]]:
    """Launch every point as often as asked, going round.

    Returns:
        Ids of the records that were written, and a sentence for each launch that failed.
    """
    from scalewise.measure.launch import threads_for
    from scalewise.measure.machine import idle_warnings
    from scalewise.measure.order import Order, Planned
    from scalewise.measure.records import new_id

    made: list[str] = []
    failures: list[str] = []
    total = launches * len(points)
    for launch, job in product(range(1, launches + 1), points):
        done = len(made) + len(failures) + 1
        click.echo(f"{done} of {total}: {job.model.name} {job.strategy}, launch {launch} ...",
                   err=True)  # fmt: skip
        warnings = idle_warnings()
        planned = Planned(job=job, id=new_id(), launch=launch, warnings=list(warnings))
        order = Order(
            planned=[planned],
            records=records,
            device=device,
            accelerator=accelerator,
            threads=threads_for(device, job.ranks),
        )
        try:
            launcher.run(order)
        except ScalewiseError as error:
            if total == 1:
                raise
            said = f"{job.strategy}, launch {launch}: {error}"
            failures.append(said + (f" ({error.hint})" if error.hint else ""))
            continue
        made.append(planned.id)
    return made, failures


def summaries_of(records: str, made: Sequence[str]) -> list[Summary]:
    """Summaries of the records that were just written, in the order of their points."""
    from scalewise.measure.metrics import by_job, summarise
    from scalewise.measure.records import read_records

    if not made:
        return []
    wanted = set(made)
    mine = [record for record in read_records(records, kind="train").records if record.id in wanted]
    return [summarise(launches) for launches in by_job(mine)]
