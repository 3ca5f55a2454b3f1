"""`scalewise measure collectives`: bandwidth and latency of collectives on this machine.

scalewise measure collectives --ops all_gather,reduce_scatter,all_reduce --sizes 1KiB..1GiB
"""

from __future__ import annotations

from typing import Any

import click

from scalewise.cli.measure_options import Where
from scalewise.cli.measure_sweeps import place_of, sweep_options, take
from scalewise.errors import InputError

CPU_SIZES, GPU_SIZES = "1KiB..64MiB", "1KiB..1GiB"
"""Default message sizes: on CPUs limited by the loopback device, on GPUs up to large gradients."""


@click.command(short_help="Time collectives by message size, group and placement.")
@click.option(
    "--ops",
    metavar="A,B",
    default="all_gather,reduce_scatter,all_reduce,all_to_all,send_recv",
    show_default=True,
    help="Collectives; also: broadcast.",
)
@click.option(
    "--sizes",
    metavar="A..B",
    help="Message sizes: A..B doubles, A,B lists. [1KiB..1GiB; CPUs: ..64MiB]",
)
@click.option("--group-sizes", metavar="N,M", help="Ranks per group. [2, 4, ... all ranks]")
@click.option(
    "--placement",
    metavar="P",
    default="packed,spread",
    show_default=True,
    help="Placement of a group: on neighbors (packed) or far apart (spread).",
)
@sweep_options
def collectives(*, where: Where, **flags: Any) -> None:
    """Time collectives between GPUs (NCCL) or CPUs (Gloo), with the columns of nccl-tests.

    All groups of one size communicate at the same time, as in training. The record has every
    sample, the table medians.
    """
    from scalewise.cli.common import show, to_json

    device, ranks = place_of(where, flags["ranks"], minimum=2)
    plan = plan_of(flags, device, ranks)
    record, file = take("collective", plan, where, device=device, ranks=ranks)
    if where.as_json:
        click.echo(to_json({"rows": record.results["rows"], "beside": record.results["beside"],
                            "warnings": record.warnings, "records": file}))  # fmt: skip
        return
    from scalewise.report.measure_sweeps import print_collectives

    show(lambda out: print_collectives(record, file, out))


def plan_of(flags: dict[str, Any], device: str, ranks: int) -> Any:
    """Return the plan of the flags.

    Raises:
        InputError: If a flag cannot be read, or there is one rank only.
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
        raise InputError(f"--ranks {ranks}: collectives need at least 2 ranks", hint="--ranks 2")
    plain = {
        "ops": words_of(flags["ops"], OPS, "operation"),
        "sizes": sizes_of(flags["sizes"] or (GPU_SIZES if device == "cuda" else CPU_SIZES)),
        "group_sizes": group_sizes_of(flags["group_sizes"], ranks),
        "placements": words_of(flags["placement"], PLACINGS, "placement"),
        "iters": flags["iters"],
    }
    return msgspec.convert(plain, CollectivePlan)
