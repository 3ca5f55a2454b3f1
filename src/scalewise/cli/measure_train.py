"""`scalewise measure train`: step times of a model under one or several strategies.

    scalewise measure train llama-2-7b --strategy fsdp8-mb2 --steps 60
    scalewise measure train tiny --sweep strategy=ddp2,fsdp2,tp2,pp2 --repeats 3

One launch per point and repeat, by torchrun or by Slurm. Each repeat goes through all points before
the next begins, so that a machine that slows down over time slows all strategies alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.measure_options import Problem, Where, measure_options
from scalewise.errors import InputError, ScalewiseError, did_you_mean
from scalewise.reading import user_path

if TYPE_CHECKING:
    from scalewise.measure.launch_spec import LaunchSpec
    from scalewise.records.job import Device, TrainJob
    from scalewise.records.metrics import Summary

AXES = (
    "model", "strategy", "seq", "batch", "precision", "compile", "routing", "optimizer", "tuning",
)  # fmt: skip
"""Options that --sweep can vary."""

GPU_SEQUENCE, CPU_SEQUENCE = 4096, 256
"""Default sequence lengths, tokens."""

TRACE_STEPS = 3
"""Profiled steps with --trace."""

FAILED = 1


@click.command(short_help="Time training steps of a model.")
@click.argument("model")
@click.option(
    "--strategy", metavar="S", help="Strategy, such as fsdp8-mb2. [fsdp on all GPUs; CPUs: ddp1]"
)
@click.option(
    "--sweep",
    multiple=True,
    metavar="X=A,B",
    help=f"Values of an option to vary ({', '.join(AXES)}); repeatable.",
)
@click.option(
    "--steps", default=30, show_default=True, metavar="N", help="Optimizer steps per repeat."
)
@click.option(
    "--warmup", type=int, metavar="N", help="Warm-up steps, not counted. [a quarter, <= 10]"
)
@click.option("--repeats", default=1, show_default=True, metavar="N", help="Repeats of each point.")
@click.option("--seq", metavar="N", help="Sequence length, tokens. [4096; CPUs: 256]")
@click.option("--batch", metavar="N", help="Global batch, sequences. [one step of micro-batches]")
@click.option("--precision", metavar="P", help="Precision: bf16 or fp32. [bf16; CPUs: fp32]")
@click.option("--routing", metavar="R", help="Experts of a token: balanced or topk. [balanced]")
@click.option("--optimizer", metavar="O", help="Optimizer of PyTorch, such as muon. [adamw]")
@click.option("--tuning", metavar="T", help="What is trained: full, or adapters (lora16). [full]")
@click.option("--compile", "compiled", is_flag=True, help="Compile blocks with torch.compile.")
@click.option(
    "--trace", is_flag=True, help=f"Profile {TRACE_STEPS} more steps for exposed communication."
)
@click.option(
    "--text", metavar="FILE", help="Text file to train on, byte by byte. [synthetic tokens]"
)
@measure_options
def train(*, where: Where, repeats: int, **flags: Any) -> int:
    """Train MODEL for a few steps under a strategy, and time every step.

    Runs on the GPUs of this machine (NCCL), or on its CPUs (Gloo), one process per GPU or CPU rank.
    Every repeat writes a record with all samples; the table has medians without warm-up.
    """
    from scalewise.cli.common import show, to_json
    from scalewise.measure.launch import check_room

    device, count = where.devices()
    # On Slurm all ranks of the nodes, on this machine all GPUs or one core.
    kind = "fsdp" if device == "cuda" else "ddp"
    ranks = count if where.on_slurm or device == "cuda" else 1
    points = list(points_of(flags, device, None if ranks is None else f"{kind}{ranks}"))
    if repeats < 1:
        raise InputError(f"--repeats {repeats} must be at least 1", hint="--repeats 1")
    if not where.on_slurm:
        for job in points:
            check_room(device, job.ranks, count or 1, f"strategy {job.strategy}")
    file = str(where.file("train"))
    wanted = launch_specs(points, where, file, device=device, repeats=repeats)
    made, failures, problem = (
        where.run_on_slurm(list(wanted)) if where.on_slurm else measure_all(wanted, where)
    )
    summaries = summaries_of(file, made)
    if where.as_json:
        click.echo(to_json({"summaries": summaries, "failures": failures, "records": file}))
    else:
        from scalewise.report.measure_table import print_summaries

        show(lambda out: print_summaries(summaries, failures, file, out))
    if problem is not None:
        raise problem
    return FAILED if failures else 0


def points_of(flags: dict[str, Any], device: Device, default: str | None) -> Iterator[TrainJob]:
    """Yield every job of the flags, checked.

    Args:
        flags: Values of the options by name.
        device: Kind of device.
        default: Strategy without --strategy; None if the number of ranks is unknown.

    Raises:
        InputError: If a job cannot run.
    """
    from scalewise.measure.check import check_job

    axes = axes_of(flags["sweep"])
    plain = [name for name in AXES if name not in ("model", "compile")]
    for name in plain:
        if name in axes and flags[name] is not None:
            raise InputError(
                f"--{name} {flags[name]} and --sweep {name}= exclude each other",
                hint=f"leave --{name} out",
            )
    for values in product(*axes.values()):
        asked = {
            "model": flags["model"],
            **{name: flags[name] for name in plain},
            "compile": "true" if flags["compiled"] else "false",
        } | dict(zip(axes, values, strict=True))
        job = job_from(asked, flags, device, default)
        check_job(job, device)
        yield job


def axes_of(sweep: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of --sweep by option, from texts such as "strategy=ddp2,fsdp2".

    Raises:
        InputError: If an option is unknown or repeated, or has no values.
    """
    axes: dict[str, list[str]] = {}
    for text in sweep:
        name, _, values = text.partition("=")
        if name not in AXES:
            raise InputError(
                f"--sweep {text[:60]}: unknown option {name[:40]}", hint=did_you_mean(name, AXES)
            )
        listed = [value.strip() for value in values.split(",") if value.strip()]
        if not listed or name in axes:
            raise InputError(
                f"--sweep {text[:60]}: "
                + (f"{name} is given twice" if name in axes else "no values"),
                hint="--sweep strategy=ddp2,fsdp2",
            )
        axes[name] = listed
    return axes


def job_from(
    asked: dict[str, Any], flags: dict[str, Any], device: Device, default: str | None
) -> TrainJob:
    """Return one job, with defaults for everything that was not given."""
    from scalewise.explore.templates import filled_batch
    from scalewise.model import load_model
    from scalewise.records.job import TrainJob, check_optimizer, check_precision, check_routing
    from scalewise.strategy import parse_strategy
    from scalewise.units import parse

    on_gpu = device == "cuda"
    chosen = asked["strategy"] or default
    if chosen is None:
        raise InputError(
            "--slurm needs --strategy or --ranks-per-node",
            hint="add --strategy fsdp128-mb2, or --ranks-per-node 8",
        )
    strategy = parse_strategy(chosen)
    smallest = filled_batch(strategy, strategy.data_parallel)
    batch = asked["batch"]
    seq_len = asked["seq"]
    if asked["compile"].lower() not in ("true", "false"):
        raise InputError(
            f"--sweep compile={asked['compile']}: must be true or false",
            hint="--sweep compile=true,false",
        )
    compiled = asked["compile"].lower() == "true" or strategy.compiled is True
    steps: int = flags["steps"]
    warmup = flags["warmup"]
    model = load_model(asked["model"])
    longest = model.max_positions or GPU_SEQUENCE
    return TrainJob(
        model=model,
        strategy=strategy,
        seq_len=int(parse(seq_len, "count")) if seq_len else min(
            longest, GPU_SEQUENCE if on_gpu else CPU_SEQUENCE),
        global_batch=int(parse(batch, "count")) if batch else smallest,
        precision=check_precision(asked["precision"] or strategy.precision
                                  or ("bf16" if on_gpu else "fp32")),
        steps=steps,
        # A run of one step has no warm-up.
        warmup=max(0, min(10, max(1, steps // 4), steps - 1)) if warmup is None else warmup,
        trace_steps=TRACE_STEPS if flags["trace"] else 0,
        compile=compiled,
        routing=check_routing(asked["routing"] or "balanced"),
        optimizer=check_optimizer(asked["optimizer"] or "adamw"),
        tuning=asked["tuning"] or "full",
        # Ranks may run in another folder than this command.
        text=None if flags["text"] is None else str(user_path(flags["text"]).absolute()),
    )  # fmt: skip


def launch_specs(
    points: Sequence[TrainJob], where: Where, records: str, *, device: Device, repeats: int
) -> Iterator[LaunchSpec]:
    """Yield one launch per repeat and point; each checks that the machine is idle.

    Args:
        points: Jobs to train.
        where: The options of the measurement.
        records: File for the records.
        device: Kind of device.
        repeats: Repeats of each point.
    """
    from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
    from scalewise.measure.machine import idle_warnings
    from scalewise.records.files import new_id

    accelerator = where.accelerator()
    total = repeats * len(points)
    for number, (repeat, job) in enumerate(product(range(1, repeats + 1), points), start=1):
        warnings: list[str] = []
        if not where.on_slurm:
            what = f"{job.model.name} {job.strategy}, repeat {repeat}"
            click.echo(f"{number} of {total}: {what} ...", err=True)
            warnings = list(idle_warnings())
        yield LaunchSpec(
            planned=[PlannedJob(job=job, id=new_id(), launch=repeat, warnings=warnings)],
            records=records,
            device=device,
            accelerator=accelerator,
            threads=where.threads_of(device, job.ranks),
        )


def measure_all(specs: Iterable[LaunchSpec], where: Where) -> tuple[set[str], list[str], Problem]:
    """Run the launches one after the other on this machine.

    Returns:
        Ids of the records, a message for each failed launch, and no error to raise.

    Raises:
        LaunchError: If the only launch failed.
    """
    from scalewise.measure.idle import idle_checked, journal_of, load_warnings, read_journal
    from scalewise.measure.launch import LocalLauncher

    made: set[str] = set()
    failed: list[tuple[str, ScalewiseError]] = []
    seconds = where.launch_seconds()
    for spec in specs:
        launcher = LocalLauncher(timeout=seconds, logs=Path(spec.records).parent / "logs")
        try:
            with idle_checked(spec.records, spec.ids[0]):
                launcher.run(spec)
        except ScalewiseError as error:
            (planned,) = spec.planned
            failed.append((f"{planned.job.strategy}, repeat {planned.launch}", error))
        else:
            made.update(spec.ids)
            for text in load_warnings(spec.ids, read_journal(journal_of(spec.records))):
                click.echo(f"Warning: {text}", err=True)
    if len(failed) == 1 and not made:
        raise failed[0][1]
    failures = [
        f"{what}: {error}" + (f" ({error.hint})" if error.hint else "") for what, error in failed
    ]
    return made, failures, None


def summaries_of(records: str, made: set[str]) -> list[Summary]:
    """Return summaries of the new records, in the order of their points."""
    from scalewise.records.files import read_records
    from scalewise.records.metrics import by_job, summarize

    if not made:
        return []
    mine = [record for record in read_records(records, kind="train").records if record.id in made]
    return [summarize(repeats) for repeats in by_job(mine)]
