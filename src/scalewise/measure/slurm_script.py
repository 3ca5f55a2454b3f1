"""What does a job of Slurm run? One step after the other, each with fresh ranks on all its nodes.

    text = sbatch_script(launches, folder, Allocation(nodes=16, ranks_per_node=8, device="cuda"))

All launches share one allocation, so that they are compared on the same nodes. A launch that fails,
or is too slow, ends alone. One whose record is there already is passed over, so that a job that
Slurm starts again, or that somebody submits again, goes on where it was. The lines that launch are
the same whether submitit runs them or people pass the whole script to sbatch.
"""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from scalewise.errors import InputError
from scalewise.measure.job import Device
from scalewise.measure.launch import MODULE
from scalewise.measure.left import Launch
from scalewise.measure.sweeps import WORKER, SweepOrder

NAME = "scalewise-measure"


class Allocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to ask of the cluster."""

    nodes: int
    """Machines."""
    ranks_per_node: int
    """Processes on each of them, one per device."""
    device: Device
    """Whether they need GPUs."""
    partition: str | None = None
    """Where to run; None leaves it to the cluster."""
    seconds: float = 3600.0
    """Time limit of the job, seconds."""
    launch_seconds: float = 1800.0
    """Time limit of one launch, seconds."""

    def __post_init__(self) -> None:
        for name in ("nodes", "ranks_per_node", "seconds", "launch_seconds"):
            if not getattr(self, name) > 0:
                raise InputError(f"{name} = {getattr(self, name)} must be positive")

    @property
    def ranks(self) -> int:
        """Processes that fit."""
        return self.nodes * self.ranks_per_node

    def check(self, launches: Sequence[Launch]) -> None:
        """Refuse launches that do not fit, or not evenly.

        Raises:
            InputError: Naming the launch.
        """
        for launch in launches:
            ranks = launch.order.ranks
            if ranks > self.ranks:
                raise InputError(
                    f"{launch.label} needs {ranks} ranks, but {self.nodes} nodes of "
                    f"{self.ranks_per_node} ranks are asked for",
                    hint="raise --nodes or --ranks-per-node, or take a smaller strategy",
                )
            if ranks > self.ranks_per_node and ranks % self.ranks_per_node:
                raise InputError(
                    f"{launch.label} has {ranks} ranks, which do not fill nodes of "
                    f"{self.ranks_per_node}",
                    hint="every node must run the same number of ranks; see --ranks-per-node",
                )


def wishes(asked: Allocation) -> dict[str, Any]:
    """The options of sbatch, by the names that submitit uses; None for what the cluster decides."""
    return {
        "job_name": NAME,
        "partition": asked.partition,
        "nodes": asked.nodes,
        "ntasks_per_node": asked.ranks_per_node,
        "gpus_per_node": asked.ranks_per_node if asked.device == "cuda" else None,
        # Who shares a node measures the others as well.
        "exclusive": True,
        "time": minutes(asked.seconds),
    }


def minutes(seconds: float) -> int:
    """A time limit as Slurm counts it: whole minutes, at least one."""
    return max(1, math.ceil(seconds / 60.0))


def sbatch_script(launches: Sequence[Launch], folder: Path, asked: Allocation) -> str:
    """A script that sbatch runs as it is, on its own.

    Args:
        launches: What to run.
        folder: Where orders and logs go, on a file system that all nodes share.
        asked: What to ask of the cluster.
    """
    options = {name: value for name, value in wishes(asked).items() if value is not None}
    count = len(launches)
    head = [
        "#!/bin/bash",
        f"# {count} {'launch' if count == 1 else 'launches'}: sbatch THIS_FILE",
        "# Submitted again, it runs only what is missing in the records.",
    ]
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        head.append(f"#SBATCH {flag}" if value is True else f"#SBATCH {flag}={value}")
    orders = ['mkdir -p "$folder"']
    for launch in launches:
        content = msgspec.json.encode(launch.order).decode()
        orders += [f"cat >\"$folder/{launch.number}.json\" <<'END'", content, "END"]
    tail = ['rm -r "$folder"']
    return "\n".join([*head, "", *_lines(launches, folder, asked, orders), *tail, ""])


def steps_script(launches: Sequence[Launch], folder: Path, asked: Allocation) -> str:
    """What runs inside of an allocation, once the orders are in their folder."""
    return "\n".join(["#!/bin/bash", *_lines(launches, folder, asked, []), ""])


def _lines(
    launches: Sequence[Launch], folder: Path, asked: Allocation, orders: Sequence[str]
) -> list[str]:
    return [
        "set -u",
        f"folder={shlex.quote(str(folder))}",
        f"python={shlex.quote(sys.executable)}",
        *orders,
        # Slurm may end the job at any time: then, too, the log says what is missing.
        'report() { "$python" -m scalewise.measure.left "$folder"; }',
        "trap 'report; exit 143' TERM",
        "launch() {  # number, what it is, its worker, options of srun",
        '  if "$python" -m scalewise.measure.left "$folder/$1.json"; then',
        '    echo "$2: its record is there already"',
        "    return",
        "  fi",
        '  echo "$2"',
        '  srun "${@:4}" --kill-on-bad-exit=1 --cpu-bind=none --input=none --unbuffered \\',
        '    --output="$folder/$1-%t.log" \\',
        '    "$python" -m scalewise.measure.slurm_rank "$3" "$folder/$1.json" 2>"$folder/$1.err"',
        # Also among everything else that the job says, for those who look there.
        '  cat "$folder/$1.err" >&2',
        "}",
        *(shlex.join(_launch(launch, asked)) for launch in launches),
        "report || exit 1",
    ]


def _launch(launch: Launch, asked: Allocation) -> list[str]:
    """The words of the line that starts one launch."""
    ranks = launch.order.ranks
    per_node = min(ranks, asked.ranks_per_node)
    worker = WORKER if isinstance(launch.order, SweepOrder) else MODULE
    return [
        "launch", str(launch.number), launch.label, worker, f"--nodes={ranks // per_node}",
        f"--ntasks={ranks}", f"--ntasks-per-node={per_node}",
        f"--time={minutes(asked.launch_seconds)}",
    ]  # fmt: skip
