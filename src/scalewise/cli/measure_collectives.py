"""`scalewise measure collectives`: what do the links here really carry?

scalewise measure collectives --ops all_gather,reduce_scatter,all_reduce --sizes 1KiB..1GiB
"""

from __future__ import annotations

from typing import Any

import click

from scalewise.cli.measure_options import Where
from scalewise.cli.measure_sweeps import place_of, sweep_options, take
from scalewise.errors import InputError

CPU_SIZES, GPU_SIZES = "1KiB..64MiB", "1KiB..1GiB"
"""Sizes when nobody says: what a loopback can bear, or what gradients of a large model are."""


@click.command(short_help="Time collectives by size, group and placement.")
@click.option("--ops", metavar="A,B", default="all_gather,reduce_scatter,all_reduce,send_recv",
              show_default=True, help="Also: broadcast, all_to_all.")  # fmt: skip
@click.option("--sizes", metavar="A..B", help="Doubling, or a list. [1KiB..1GiB; CPUs: ..64MiB]")
@click.option("--group-sizes", metavar="N,M", help="Members of a group. [2, 4, ... all ranks]")
@click.option("--placement", metavar="P", default="packed,spread", show_default=True,
              help="Neighbours (packed), or far apart (spread).")  # fmt: skip
@sweep_options
def collectives(*, where: Where, **flags: Any) -> None:
    """Time collectives between the devices that are here, in the shape of nccl-tests.

    NCCL between GPUs, Gloo between CPUs. All groups of one size call at the same time, as they do
    in training. The record keeps every sample; the table shows medians.
    """
    from scalewise.cli.common import show, to_json

    device, ranks = place_of(where, flags["ranks"], least=2)
    plan = plan_of(flags, device, ranks)
    record, file = take("collective", plan, where, device=device, ranks=ranks)
    if where.as_json:
        click.echo(to_json({"rows": record.results["rows"], "beside": record.results["beside"],
                            "warnings": record.warnings, "records": file}))  # fmt: skip
        return
    from scalewise.report.sweeps import print_collectives

    show(lambda out: print_collectives(record, file, out))


def plan_of(flags: dict[str, Any], device: str, ranks: int) -> Any:
    """The plan that flags describe.

    Raises:
        InputError: If a flag cannot be read, or there is nobody to talk to.
    """
    import msgspec

    from scalewise.measure.collective_plan import (
        OPS,
        PLACINGS,
        CollectivePlan,
        group_sizes_of,
        sizes_of,
        words_of,
    )

    if ranks < 2:
        raise InputError(f"--ranks {ranks} has nobody to talk to", hint="use 2 ranks or more")
    plain = {
        "ops": words_of(flags["ops"], OPS, "operation"),
        "sizes": sizes_of(flags["sizes"] or (GPU_SIZES if device == "cuda" else CPU_SIZES)),
        "group_sizes": group_sizes_of(flags["group_sizes"], ranks),
        "placements": words_of(flags["placement"], PLACINGS, "placement"),
        "iters": flags["iters"],
    }
    return msgspec.convert(plain, CollectivePlan)
