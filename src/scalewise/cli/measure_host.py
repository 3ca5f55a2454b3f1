"""`scalewise measure host`: host time that FSDP and tensor parallelism add to a step on CPUs.

scalewise measure host --iters 40
"""

from __future__ import annotations

import click

from scalewise.cli.measure_options import Where, measure_options


@click.command(short_help="Time host work of FSDP and TP on CPUs.")
@click.option(
    "--iters", default=20, show_default=True, metavar="N", help="Maximum steps of each decoder."
)
@measure_options
def host(*, where: Where, iters: int) -> None:
    """Time steps of minimal decoders, plain and with FSDP2 and DTensor, on two ranks of CPUs.

    The difference is host time per layer and per step, which is in no kernel and no collective.
    On GPUs the host works ahead of the device.
    """
    from scalewise.cli.common import show, to_json
    from scalewise.cli.measure_sweeps import place_of, take
    from scalewise.errors import InputError
    from scalewise.measure.host_plan import RANKS, HostPlan

    device, ranks = place_of(where, str(RANKS))
    if device != "cpu":
        raise InputError(
            "host time of wrappers is measured on CPUs: on GPUs it overlaps the device",
            hint="leave it out: a calibration of GPUs needs no host time",
        )
    record, file = take("host", HostPlan(iters=iters), where, device=device, ranks=ranks)
    if where.as_json:
        rows = record.results["rows"]
        click.echo(to_json({"rows": rows, "warnings": record.warnings, "records": file}))
        return
    from scalewise.report.measure_sweeps import print_host

    show(lambda out: print_host(record, file, out))
