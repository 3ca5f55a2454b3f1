"""What do all measurements ask? Where to run, how long, where records go, and on which cluster.

    @click.command()
    @measure_options
    def kernels(*, where: Where, ...):
        device, count = where.devices()

`measure_options` adds the flags and hands them over as one argument, `where`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalewise.errors import InputError, MissingExtraError, ScalewiseError

if TYPE_CHECKING:
    from scalewise.measure.job import Device
    from scalewise.measure.order import Order
    from scalewise.measure.slurm_script import Allocation

TIME = "1h"
"""Time limit of a job of Slurm, unless asked for."""

OPTIONS = (
    click.option("--on", metavar="NAME", help="What the devices are, for peaks. [found out]"),
    click.option("--device", type=click.Choice(["cuda", "cpu"]), help="Where. [GPUs, if any]"),
    click.option("--threads", type=int, metavar="N", help="Per rank, on CPUs. [their share]"),
    click.option("--timeout", metavar="T", default="30min", show_default=True, help="Of a launch."),
    click.option("-o", "--output", metavar="PATH", default="records", show_default=True,
                 help="Folder or .jsonl file that records are added to."),
    click.option("--json", "as_json", is_flag=True, help="Print the results as JSON."),
    click.option("--slurm", is_flag=True, help="Measure on nodes of a Slurm cluster, and wait."),
    click.option("--nodes", type=int, metavar="N", help="Slurm: machines. [1]"),
    click.option("--ranks-per-node", type=int, metavar="N", help="Slurm: GPUs, or CPU processes."),
    click.option("--partition", metavar="P", help="Slurm: where to run. [the cluster's default]"),
    click.option("--time", "time_limit", metavar="T", help=f"Slurm: limit of the job. [{TIME}]"),
    click.option("--slurm-script", is_flag=True, help="Print a script for sbatch, and stop."),
)  # fmt: skip


def measure_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of measurements to a command, which gets them as one argument, `where`."""

    @functools.wraps(command)
    def with_where(*args: Any, **given: Any) -> Any:
        fields = {name: given.pop(name) for name in Where.__dataclass_fields__}
        return command(*args, where=Where(**fields), **given)

    wrapped: Callable[..., Any] = with_where
    for option in reversed(OPTIONS):
        wrapped = option(wrapped)
    return wrapped


@dataclass(frozen=True, kw_only=True)
class Where:
    """The flags as they were typed, checked as far as they can be alone."""

    on: str | None
    device: Device | None
    threads: int | None
    timeout: str
    output: str
    as_json: bool
    slurm: bool
    nodes: int | None
    ranks_per_node: int | None
    partition: str | None
    time_limit: str | None
    slurm_script: bool

    def __post_init__(self) -> None:
        alone = {"nodes": self.nodes, "ranks-per-node": self.ranks_per_node,
                 "partition": self.partition, "time": self.time_limit}  # fmt: skip
        for name, value in alone.items():
            if value is not None and not self.on_slurm:
                raise InputError(
                    f"--{name} {value} has no effect without --slurm",
                    hint="add --slurm, or --slurm-script to see what it would run",
                )
        counts = {"nodes": self.nodes, "ranks-per-node": self.ranks_per_node,
                  "threads": self.threads}  # fmt: skip
        for name, count in counts.items():
            if count is not None and count < 1:
                raise InputError(f"--{name} {count} must be at least 1", hint="leave it out")
        seconds_of("--timeout", self.timeout)
        seconds_of("--time", self.time_limit or TIME)

    @property
    def on_slurm(self) -> bool:
        """Whether a cluster is asked for, or its script."""
        return self.slurm or self.slurm_script

    def devices(self) -> tuple[Device, int | None]:
        """What it runs on, and how many there are: here, or on the nodes that are asked for.

        Returns:
            The device, and the number of GPUs, or of cores; of a cluster the number of ranks, None
            while nobody has said how many a node takes.
        """
        if not self.on_slurm:
            from scalewise.measure import launch

            device, count = launch.choose_device(self.device)
            return self._checked(device), count
        # Nodes are not like the machine that submits, which seldom has a GPU.
        each = self.ranks_per_node
        return self._checked(self.device or "cuda"), (self.nodes or 1) * each if each else None

    def _checked(self, device: Device) -> Device:
        if device == "cuda" and self.threads is not None:
            raise InputError(
                f"--threads {self.threads} has no effect on GPUs",
                hint="leave it out, or add --device cpu",
            )
        return device

    def accelerator(self) -> str | None:
        """The accelerator that was named, directly or by a cluster of it."""
        if self.on is None:
            return None
        from scalewise.catalog import load_cluster

        return load_cluster(self.on).accelerator.name

    def threads_of(self, device: Device, ranks: int) -> int | None:
        """Threads of each rank; on the nodes of a cluster ranks share out the cores themselves."""
        from scalewise.measure.launch import threads_for

        if self.threads is not None or self.on_slurm:
            return self.threads
        return threads_for(device, ranks)

    def launch_seconds(self) -> float:
        """The time limit of one launch, seconds."""
        return seconds_of("--timeout", self.timeout)

    def file(self, kind: str) -> Path:
        """The file that records go to, which can be written.

        Raises:
            InputError: If it cannot, before anything was measured in vain.
        """
        from scalewise.measure.records import check_writable, file_of

        path = file_of(self.output, kind)
        if self.on_slurm:
            path = path.absolute()
        if not self.slurm_script:
            check_writable(path)
        return path

    def allocation(self, device: Device, most: int) -> Allocation:
        """What to ask of the cluster.

        Args:
            device: What runs on it.
            most: Ranks of the largest launch.

        Raises:
            InputError: If ranks and nodes do not match.
        """
        from scalewise.measure.slurm_script import Allocation

        nodes = self.nodes or 1
        each = self.ranks_per_node
        if each is None and most % nodes:
            raise InputError(
                f"{most} ranks do not spread evenly over {nodes} nodes",
                hint="take another strategy, or say --ranks-per-node",
            )
        return Allocation(
            nodes=nodes,
            ranks_per_node=each or most // nodes,
            device=device,
            partition=self.partition,
            seconds=seconds_of("--time", self.time_limit or TIME),
            launch_seconds=self.launch_seconds(),
        )

    def run_on_slurm(self, orders: Sequence[Order]) -> tuple[set[str], list[str], Problem]:
        """Run orders on the cluster, or print the script and stop.

        Args:
            orders: One per launch, at least one.

        Returns:
            Ids of the records that are there, a sentence for each launch that is missing, and what
            to raise once everything else was said, if anything.
        """
        from scalewise.measure.slurm import Plan, measured, script_of

        asked = self.allocation(orders[0].device, max(order.ranks for order in orders))
        if not self.slurm_script:
            require_torch()
        plan = Plan.of(orders, asked)
        if self.slurm_script:
            click.echo(script_of(plan, asked), nl=False)
            raise click.exceptions.Exit(0)
        done = measured(plan, asked, lambda text: click.echo(text, err=True))
        lost = {launch.number for launch in done.left}
        there = (one for one in done.launches if one.number not in lost)
        return {i for one in there for i in one.order.ids}, done.failures, done.problem


Problem = ScalewiseError | None


def seconds_of(flag: str, text: str) -> float:
    """Read a time limit.

    Raises:
        InputError: If it is none, or nothing can be done in it.
    """
    from scalewise.units import parse

    seconds = parse(text, "seconds")
    if not seconds > 0:
        raise InputError(f"{flag} {text} leaves no time", hint=f"for example {flag} 30min")
    return seconds


def require_torch() -> None:
    """Refuse to queue for hours for a job that cannot start: nodes run the Python that submits.

    Raises:
        MissingExtraError: If PyTorch is not installed.
    """
    from importlib.util import find_spec

    if sys.modules.get("torch", ...) is None or find_spec("torch") is None:
        raise MissingExtraError(
            "this needs the library `torch`, which is not installed",
            hint="pip install 'scalewise[measure]'",
        )
