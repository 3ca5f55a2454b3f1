"""`scalewise study measure`: run the points of a study on the machines at hand.

    scalewise study measure scaling-on-this-machine -o records
    scalewise study measure my-cluster.toml --slurm --nodes 4 --ranks-per-node 8 --budget 4h
    scalewise study run scaling-on-this-machine --records records

Exit code 0: everything is measured, or left out for the budget; 1: a launch failed; 2: wrong usage.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from scalewise.cli.measure_options import Where, measure_options, seconds_of
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.study.files import Study
    from scalewise.study.jobs import Machine
    from scalewise.study.measure import Progress, Session

MAX_REASONS = 4
"""Reasons of points that do not fit, which are printed."""

FAILED = 1


@click.command("measure", short_help="Run the points of a study on this machine or on Slurm.")
@click.argument("name", metavar="NAME|FILE")
@click.option("--repeats", default=3, show_default=True, metavar="N", help="Repeats of each point.")
@click.option(
    "--budget", metavar="T", help="Wall time for all launches; the most informative run first."
)
@click.option("--quick", is_flag=True, help="Measure only the first and last value of every axis.")
@measure_options
def measure_command(
    *, where: Where, name: str, repeats: int, budget: str | None, quick: bool
) -> int:
    """Train and time the points of the study NAME or FILE that fit, with PyTorch.

    Order: ends of curves and points of claims, then crossovers, then middles; one repeat of all
    before the second repeat of any. A stopped or killed run continues with the same command.
    `scalewise study run NAME --records PATH` draws the result and evaluates the claims on it.
    """
    from scalewise.cli.common import light_numpy

    light_numpy()
    from scalewise.study.files import load_study
    from scalewise.study.measure import Session
    from scalewise.study.plan import reduced

    seconds = None if budget is None else seconds_of("--budget", budget)
    if budget is not None and where.on_slurm:
        if where.time_limit is not None:
            raise InputError(
                f"--budget {budget} and --time {where.time_limit} exclude each other",
                hint="leave --budget out",
            )
        where = replace(where, time_limit=budget)
    if repeats < 1:
        raise InputError(f"--repeats {repeats} must be at least 1", hint="--repeats 1")
    asked = load_study(name)
    if quick:
        asked = reduced(asked)
    machine = machine_of(where)
    session = Session(
        study=asked, machine=machine, train=where.file("train"),
        collective=where.file("collective"), repeats=repeats,
    )  # fmt: skip
    _announce(session)
    # All points have equal ranks: with more threads on fewer ranks, compute would stay the same.
    session.threads = where.threads_of(machine.device, max(p.ranks for p in session.launched))
    if where.on_slurm:
        made, failures, problem = where.run_on_slurm([session.spec(x) for x in session.launches])
        session.failures += failures
        _report(session, where, name, len(made))
        if problem is not None:
            raise problem
    else:
        _measure_here(session, where, seconds)
        _report(session, where, name, len(session.launches) - len(session.waiting()))
    return FAILED if session.failures else 0


def machine_of(where: Where) -> Machine:
    """Return what the options measure on."""
    from scalewise.measure.launch import accelerator_here
    from scalewise.measure.machine import cores, cpu_name, memory_bytes
    from scalewise.measure.shaped import can_shape
    from scalewise.study.jobs import Machine

    device, count = where.devices()
    named = where.accelerator()
    if where.on_slurm:
        each = where.ranks_per_node
        if each is None:
            raise InputError(
                "a study on --slurm needs --ranks-per-node", hint="add --ranks-per-node 8"
            )
        nodes = where.nodes or 1
        return Machine(
            device=device, devices=each, ranks=nodes * each, ranks_per_node=each,
            accelerator=named, host=f"slurm, {nodes} x {each}",
        )  # fmt: skip
    if named is None and device == "cuda":
        named = accelerator_here()
    return Machine(
        device=device, devices=count or 1, memory_bytes=memory_bytes(), accelerator=named,
        shapes=device == "cpu" and can_shape(), host=f"{cpu_name()}, {cores()} cores",
    )  # fmt: skip


def _announce(session: Session) -> None:
    """Print how many points fit, and why others do not.

    Raises:
        InputError: If none fits.
    """
    from scalewise.study.jobs import reasons

    missing = reasons(session.points)
    count = sum(missing.values())
    if not session.launches:
        reason = next(iter(missing), "it has no point")
        raise InputError(
            f"no point of study {session.study.name} can be measured here: {reason}",
            hint="scalewise study measure scaling-on-this-machine",
        )
    fitting = len(session.points) - count
    click.echo(
        f"{fitting} of {len(session.points)} points fit: {len(session.launched)} launches x "
        f"{session.repeats} repeats",
        err=True,
    )
    for reason, number in list(missing.items())[:MAX_REASONS]:
        click.echo(f"  not measured, {number} point{'s' * (number > 1)}: {reason}", err=True)
    if len(missing) > MAX_REASONS:
        click.echo(f"  and {len(missing) - MAX_REASONS} more reasons", err=True)


def _measure_here(session: Session, where: Where, budget: float | None) -> None:
    """Run the launches on this machine, one after the other."""
    from scalewise.measure.launch import LocalLauncher
    from scalewise.measure.launch_shaped import ShapedLauncher
    from scalewise.measure.launch_spec import LaunchSpec
    from scalewise.study.measure import locked

    folder, limit = session.train.parent, where.launch_seconds()

    def say(text: str) -> None:
        click.echo(text, err=True)

    with locked(folder, say, limit) as lock:

        def start(spec: LaunchSpec) -> None:
            kind = ShapedLauncher if spec.links else LocalLauncher
            kind(timeout=limit, logs=folder / "logs", lock=lock).run(spec)

        done = len(session.launches) - len(session.waiting())
        if done:
            say(f"{done} of {len(session.launches)} launches have records: resumed")
        for progress in session.run(start, budget):
            say(_line(progress))


def _line(progress: Progress) -> str:
    """Return one line of progress with the remaining time."""
    from scalewise.study.measure import label

    left = "time left: known after the first launch"
    if progress.left is not None:
        low, high = (max(each / 60.0, 0.1) for each in progress.left)
        span = f"about {low:.1f}" if high < 1.05 * low else f"{low:.1f}-{high:.1f}"
        left = f"{span} min left"
    return f"{progress.done + 1} of {progress.total}: {label(progress.launch)}; {left}"


def _report(session: Session, where: Where, name: str, done: int) -> None:
    """Print what was measured, what is left, and what claims it decides."""
    from scalewise.cli.common import show, to_json
    from scalewise.study.judging import measured_answer

    study: Study = session.study
    files = dict.fromkeys(
        str(file) for file in (session.train, session.collective) if file.exists()
    )
    found = measured_answer(study, *files) if done else None
    left = session.left_out
    if where.as_json:
        from scalewise.report.study_report import measured_records

        click.echo(to_json({
            "launches": len(session.launches), "done": done, "left_out": len(left),
            "failures": session.failures, "records": str(session.train.parent),
            "verdicts": [] if found is None else measured_records(found),
        }))  # fmt: skip
    elif found is not None:
        from scalewise.report.study_tables import print_measured

        show(lambda out: print_measured(study, found, out))
    for text in session.failures:
        click.echo(f"failed: {text}", err=True)
    if left:
        click.echo(
            f"left out for --budget: {len(left)} of {len(session.launches)} launches", err=True
        )
    click.echo(
        f"{done} of {len(session.launches)} launches have records in {session.train.parent}; next: "
        f"scalewise study run {name} --records {session.train.parent}",
        err=True,
    )
