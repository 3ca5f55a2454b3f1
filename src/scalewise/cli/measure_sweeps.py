"""What sweeps of collectives and of kernels share: launch the ranks, and fetch the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scalewise.errors import InputError

if TYPE_CHECKING:
    import msgspec

    from scalewise.measure.job import Device
    from scalewise.measure.records import Record
    from scalewise.measure.sweeps import Kind


def take(
    what: Kind,
    plan: msgspec.Struct,
    *,
    device: Device,
    ranks: int,
    on: str | None,
    timeout: str,
    output: str,
) -> tuple[Record, str]:
    """Run a sweep on the devices that are here.

    Args:
        what: Which kind.
        plan: What to time.
        device: Where.
        ranks: Processes.
        on: What the devices are, if the user says.
        timeout: Of the launch, with its unit.
        output: Folder or file for the record.

    Returns:
        The record that was written, and the file it is in.

    Raises:
        InputError: If there are fewer GPUs than ranks.
        LaunchError: If a rank fails.
    """
    import msgspec

    from scalewise.cli.measure_train import _accelerator
    from scalewise.measure.launch import choose_device, threads_for
    from scalewise.measure.machine import idle_warnings
    from scalewise.measure.records import file_of, new_id, read_records
    from scalewise.measure.sweeps import SweepLauncher, SweepOrder
    from scalewise.units import parse

    if ranks < 1 or (device == "cuda" and ranks > choose_device(device)[1]):
        raise InputError(
            f"--ranks {ranks} is not what this machine has: {choose_device(device)[1]} GPUs"
            if ranks > 0
            else f"--ranks {ranks} must be at least 1"
        )
    file = file_of(output, what)
    order = SweepOrder(
        what=what,
        plan=msgspec.to_builtins(plan),
        processes=ranks,
        id=new_id(),
        records=str(file),
        device=device,
        accelerator=_accelerator(on),
        threads=threads_for(device, ranks),
        warnings=list(idle_warnings()),
    )
    click.echo(f"{what}s on {ranks} x {device} ...", err=True)
    SweepLauncher(timeout=parse(timeout, "seconds"), logs=file.parent / "logs").run(order)
    found = read_records(file, kind=what).records
    return next(record for record in found if record.id == order.id), str(file)
