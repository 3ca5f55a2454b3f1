"""Launch of sweeps over collectives and kernels, and their common options."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.measure_options import Where, measure_options
from scalewise.errors import InputError

if TYPE_CHECKING:
    import msgspec

    from scalewise.measure.sweeps import Kind
    from scalewise.records.files import Record
    from scalewise.records.job import Device

SWEEP_OPTIONS = (
    click.option("--ranks", metavar="N", help="Number of ranks. [all GPUs, or all cores]"),
    click.option(
        "--iters", default=20, show_default=True, metavar="N", help="Maximum samples of each point."
    ),
    measure_options,
)


def sweep_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of sweeps to a command."""
    for option in reversed(SWEEP_OPTIONS):
        command = option(command)
    return command


def place_of(where: Where, asked: str | None, *, minimum: int = 1) -> tuple[Device, int]:
    """Return the device and the number of ranks of a sweep.

    Args:
        where: The options of the measurement.
        asked: --ranks, or None.
        minimum: Minimum of the default.

    Raises:
        InputError: If there are too few devices, or the number is unknown.
    """
    from scalewise.measure.launch import check_room
    from scalewise.units import parse_count

    device, count = where.devices()
    if asked is None and count is None:
        raise InputError("--slurm needs --ranks or --ranks-per-node", hint="add --ranks-per-node 8")
    ranks = parse_count(asked) if asked is not None else max(count or 1, minimum)
    if ranks < 1:
        raise InputError(f"--ranks {ranks} must be at least 1", hint="--ranks 1")
    if not where.on_slurm:
        check_room(device, ranks, count or 1, f"--ranks {ranks}")
    return device, ranks


def take(
    what: Kind, plan: msgspec.Struct, where: Where, *, device: Device, ranks: int
) -> tuple[Record, str]:
    """Run a sweep on this machine or on Slurm.

    Args:
        what: Kind of the sweep.
        plan: Points to time.
        where: The options of the measurement.
        device: See `place_of`.
        ranks: See `place_of`.

    Returns:
        The new record, and its file.

    Raises:
        LaunchError: If a rank fails.
    """
    import msgspec

    from scalewise.measure.idle import idle_checked
    from scalewise.measure.launch import LocalLauncher
    from scalewise.measure.machine import idle_warnings
    from scalewise.measure.sweeps import SweepSpec
    from scalewise.records.files import new_id, read_records

    file = where.file(what)
    spec = SweepSpec(
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
        made, _, problem = where.run_on_slurm([spec])
        if problem is not None:
            raise problem
    else:
        click.echo(f"{what}s on {ranks} x {device} ...", err=True)
        with idle_checked(file, spec.id):
            LocalLauncher(timeout=where.launch_seconds(), logs=file.parent / "logs").run(spec)
        made = {spec.id}
    found = read_records(file, kind=what).records
    return next(record for record in found if record.id in made), str(file)
