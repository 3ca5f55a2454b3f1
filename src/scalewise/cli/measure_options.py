"""Options of all measurements: device, time limit, record file and Slurm.

    @click.command()
    @measure_options
    def kernels(*, where: Where, ...):
        device, count = where.devices()

`measure_options` adds the flags; the command gets them as one argument, `where`.
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
    from scalewise.measure.launch_spec import LaunchSpec
    from scalewise.measure.slurm_script import Allocation
    from scalewise.records.job import Device

TIME = "1h"
"""Default time limit of a Slurm job."""

OPTIONS = (
    click.option("--on", metavar="NAME", help="Accelerator or cluster, for peaks. [detected]"),
    click.option(
        "--device", type=click.Choice(["cuda", "cpu"]), help="Device to measure. [GPUs, if any]"
    ),
    click.option(
        "--threads", type=int, metavar="N", help="Threads per rank, on CPUs. [cores / ranks]"
    ),
    click.option(
        "--timeout", metavar="T", default="30min", show_default=True, help="Time limit of one run."
    ),
    click.option(
        "-o",
        "--output",
        metavar="PATH",
        default="records",
        show_default=True,
        help="Output folder or .jsonl file; records are appended.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print the results as JSON."),
    click.option(
        "--slurm", is_flag=True, help="Measure on nodes of a Slurm cluster, and wait for it."
    ),
    click.option("--nodes", type=int, metavar="N", help="Slurm: number of nodes. [1]"),
    click.option(
        "--ranks-per-node",
        type=int,
        metavar="N",
        help="Slurm: GPUs, or CPU processes, per node. [ranks / nodes]",
    ),
    click.option("--partition", metavar="P", help="Slurm: partition. [the cluster's default]"),
    click.option(
        "--time", "time_limit", metavar="T", help=f"Slurm: time limit of the job. [{TIME}]"
    ),
    click.option("--slurm-script", is_flag=True, help="Print the sbatch script, and stop."),
)


def measure_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as one argument, `where`."""

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
    """The flags, checked against each other."""

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
                    f"--{name} {value} needs --slurm",
                    hint="add --slurm, or --slurm-script to print the script",
                )
        counts = {"nodes": self.nodes, "ranks-per-node": self.ranks_per_node,
                  "threads": self.threads}  # fmt: skip
        for name, count in counts.items():
            if count is not None and count < 1:
                raise InputError(f"--{name} {count} must be at least 1", hint=f"--{name} 1")
        seconds_of("--timeout", self.timeout)
        seconds_of("--time", self.time_limit or TIME)

    @property
    def on_slurm(self) -> bool:
        """Whether it runs on Slurm, or prints the script for it."""
        return self.slurm or self.slurm_script

    def devices(self) -> tuple[Device, int | None]:
        """Return the device and how many there are, on this machine or on the Slurm nodes.

        Returns:
            The device, and the number of GPUs or cores; on Slurm the number of ranks, or None
            without --ranks-per-node.
        """
        if not self.on_slurm:
            from scalewise.measure import launch

            device, count = launch.choose_device(self.device)
            return self._checked(device), count
        # The login node that submits seldom has a GPU, unlike the nodes that run.
        each = self.ranks_per_node
        return self._checked(self.device or "cuda"), (self.nodes or 1) * each if each else None

    def _checked(self, device: Device) -> Device:
        if device == "cuda" and self.threads is not None:
            raise InputError(
                f"--threads {self.threads} needs --device cpu",
                hint="leave --threads out, or add --device cpu",
            )
        return device

    def accelerator(self) -> str | None:
        """Return the accelerator that --on names, directly or by its cluster; None without --on."""
        if self.on is None:
            return None
        from scalewise.catalog import load_cluster

        return load_cluster(self.on).accelerator.name

    def threads_of(self, device: Device, ranks: int) -> int | None:
        """Return the threads of each rank; None on Slurm, where each rank takes its cores."""
        from scalewise.measure.launch import threads_for

        if self.threads is not None or self.on_slurm:
            return self.threads
        return threads_for(device, ranks)

    def launch_seconds(self) -> float:
        """Return the time limit of one launch, seconds."""
        return seconds_of("--timeout", self.timeout)

    def file(self, kind: str) -> Path:
        """Return the file for the records, checked before anything is measured.

        Raises:
            InputError: If it cannot be written.
        """
        from scalewise.records.files import check_writable, file_of

        path = file_of(self.output, kind)
        if self.on_slurm:
            path = path.absolute()
        if not self.slurm_script:
            check_writable(path)
        return path

    def allocation(self, device: Device, maximum: int) -> Allocation:
        """Return the resources to request from Slurm.

        Args:
            device: Kind of device.
            maximum: Ranks of the largest launch.

        Raises:
            InputError: If ranks and nodes do not match.
        """
        from scalewise.measure.slurm_script import Allocation

        nodes = self.nodes or 1
        each = self.ranks_per_node
        if each is None and maximum % nodes:
            raise InputError(
                f"--nodes {nodes}: {maximum} ranks are not a multiple of the nodes",
                hint=f"change --strategy, or add --ranks-per-node {-(-maximum // nodes)}",
            )
        return Allocation(
            nodes=nodes,
            ranks_per_node=each or maximum // nodes,
            device=device,
            partition=self.partition,
            seconds=seconds_of("--time", self.time_limit or TIME),
            launch_seconds=self.launch_seconds(),
        )

    def run_on_slurm(self, specs: Sequence[LaunchSpec]) -> tuple[set[str], list[str], Problem]:
        """Run launches on Slurm, or print the script and stop.

        Args:
            specs: One per launch, at least one.

        Returns:
            Ids of the records, a message for each failed launch, and the error to raise after the
            results are printed, or None.
        """
        from scalewise.measure.slurm import Plan, measured, script_of

        asked = self.allocation(specs[0].device, max(spec.ranks for spec in specs))
        if not self.slurm_script:
            require_torch()
        plan = Plan.of(specs, asked)
        if self.slurm_script:
            click.echo(script_of(plan, asked), nl=False)
            raise click.exceptions.Exit(0)
        done = measured(plan, asked, lambda text: click.echo(text, err=True))
        lost = {launch.number for launch in done.left}
        there = (one for one in done.launches if one.number not in lost)
        return {i for one in there for i in one.spec.ids}, done.failures, done.problem


Problem = ScalewiseError | None


def seconds_of(flag: str, text: str) -> float:
    """Return a time limit, seconds.

    Raises:
        InputError: If it is no time, or not positive.
    """
    from scalewise.units import parse

    seconds = parse(text, "seconds")
    if not seconds > 0:
        raise InputError(f"{flag} {text} must be positive", hint=f"{flag} 30min")
    return seconds


def require_torch() -> None:
    """Check that PyTorch is installed before a job is queued: nodes run the Python that submits.

    Raises:
        MissingExtraError: If PyTorch is not installed.
    """
    from importlib.util import find_spec

    if sys.modules.get("torch", ...) is None or find_spec("torch") is None:
        raise MissingExtraError(
            "library torch is not installed",
            hint="pip install 'scalewise[measure]'",
        )
