"""What sweeps of collectives and of kernels share: launch the ranks, and fetch the record."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.measure_options import Where, measure_options
from scalewise.errors import InputError

if TYPE_CHECKING:
    import msgspec

    from scalewise.measure.job import Device
    from scalewise.measure.records import Record
    from scalewise.measure.sweeps import Kind

SWEEP_OPTIONS = (
    click.option("--ranks", metavar="N", help="Processes at once. [all GPUs, or all cores]"),
    click.option("--iters", default=20, show_default=True, help="Samples of each, at most."),
    measure_options,
)


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of sweeps to a command; where to run is one argument, `where`."""
    for option in reversed(SWEEP_OPTIONS):
        command = option(command)
    return command


def place_of(where: Where, asked: str | None, *, least: int = 1) -> tuple[Device, int]:
    """What a sweep runs on, and with how many ranks.

    Args:
        where: As typed.
        asked: Ranks, as typed, if they were.
        least: Ranks when nobody says, at least.

    Raises:
        InputError: If there are not so many devices, or nobody has said how many.
    """
    from scalewise.measure.launch import check_room
    from scalewise.units import parse_count

    device, count = where.devices()
    if asked is None and count is None:
        raise InputError(
            "how many ranks a node takes is not known here",
            hint="say --ranks-per-node, or --ranks",
        )
    ranks = parse_count(asked) if asked is not None else max(count or 1, least)
    if ranks < 1:
        raise InputError(f"--ranks {ranks} must be at least 1", hint="leave it out")
    if not where.on_slurm:
        check_room(device, ranks, count or 1, f"--ranks {ranks}")
    return device, ranks


def take(
    what: Kind, plan: msgspec.Struct, where: Where, *, device: Device, ranks: int
) -> tuple[Record, str]:
    """Run a sweep on the devices that are here, or on a cluster.

    Args:
        what: Which kind.
        plan: What to time.
        where: Where, how long, and where the record goes.
        device: See `place_of`.
        ranks: See `place_of`.

    Returns:
        The record that was written, and the file it is in.

    Raises:
        LaunchError: If a rank fails.
    """
    import msgspec

    from scalewise.measure.machine import idle_warnings
    from scalewise.measure.records import new_id, read_records
    from scalewise.measure.sweeps import SweepLauncher, SweepOrder

    file = where.file(what)
    order = SweepOrder(
        what=what,
        plan=msgspec.to_builtins(plan),
        processes=ranks,
        id=new_id(),
        records=str(file),
        device=device,
        accelerator=where.accelerator(),
        threads=where.threads_of(device, ranks),
        warnings=[] if where.on_slurm else list(idle_warnings()),
    )
    if where.on_slurm:
        made, _, problem = where.run_on_slurm([order])
        if problem is not None:
            raise problem
    else:
        click.echo(f"{what}s on {ranks} x {device} ...", err=True)
        SweepLauncher(timeout=where.launch_seconds(), logs=file.parent / "logs").run(order)
        made = {order.id}
    found = read_records(file, kind=what).records
    return next(record for record in found if record.id in made), str(file)
