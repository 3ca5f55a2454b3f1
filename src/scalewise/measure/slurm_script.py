"""The batch script of measurements: one srun after the other, each with fresh ranks.

    text = sbatch_script(launches, folder, Allocation(nodes=16, ranks_per_node=8, device="cuda"))

All launches share one allocation, so that they are compared on the same nodes. A launch that fails,
or is too slow, ends alone. One whose record is there already is skipped, so a job that Slurm
requeues, or that somebody submits again, runs only what is missing.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from scalewise.errors import InputError
from scalewise.measure.missing_launches import Launch
from scalewise.records.job import Device
from scalewise.slurm.script import check_positive, header, minutes


class Allocation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Resources to request from the cluster."""

    nodes: int
    """Nodes."""
    ranks_per_node: int
    """Ranks on each of them, one per device."""
    device: Device
    """Device of the ranks; "cuda" requests GPUs."""
    partition: str | None = None
    """Partition; None leaves it to the cluster."""
    seconds: float = 3600.0
    """Time limit of the job, seconds."""
    launch_seconds: float = 1800.0
    """Time limit of one launch, seconds."""

    def __post_init__(self) -> None:
        check_positive(self, "nodes", "ranks_per_node", "seconds", "launch_seconds")

    @property
    def ranks(self) -> int:
        """Ranks that fit."""
        return self.nodes * self.ranks_per_node

    def check(self, launches: Sequence[Launch]) -> None:
        """Refuse launches that do not fit, or that leave nodes uneven.

        Raises:
            InputError: Naming the launch.
        """
        for launch in launches:
            ranks = launch.spec.ranks
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


def sbatch_script(
    launches: Sequence[Launch], folder: Path, asked: Allocation, *, alone: bool = True
) -> str:
    """Return the script of a job that runs launches.

    Args:
        launches: What to run.
        folder: Holds launch specs and logs, on a file system that all nodes share.
        asked: Resources.
        alone: Whether it brings its launch specs along and removes the folder at the end, so that
            sbatch runs it as it is; otherwise both are left to the process that submits it.
    """
    count = len(launches)
    options: dict[str, Any] = {
        "job_name": "scalewise-measure",
        "partition": asked.partition,
        "nodes": asked.nodes,
        "ntasks_per_node": asked.ranks_per_node,
        "gpus_per_node": asked.ranks_per_node if asked.device == "cuda" else None,
        # A job that shares its nodes measures the other jobs as well.
        "exclusive": True,
        "time": minutes(asked.seconds),
    }
    notes = [
        f"{count} {'launch' if count == 1 else 'launches'}: sbatch THIS_FILE",
        "Submitted again, it runs only what is missing in the records.",
    ]
    specs = ['mkdir -p "$folder"']
    for launch in launches:
        content = msgspec.json.encode(launch.spec).decode()
        specs += [f"cat >\"$folder/{launch.number}.json\" <<'END'", content, "END"]
    return "\n".join([
        *header(options, notes if alone else ()),
        "",
        "set -u",
        f"folder={shlex.quote(str(folder))}",
        f"python={shlex.quote(sys.executable)}",
        *(specs if alone else ()),
        # Slurm may end the job at any time: then, too, the log lists what is missing.
        'report() { "$python" -m scalewise.measure.missing_launches "$folder"; }',
        "trap 'report; exit 143' TERM",
        "launch() {  # number, label, module, options of srun",
        '  if "$python" -m scalewise.measure.missing_launches "$folder/$1.json"; then',
        '    echo "$2: its record is there already"',
        "    return",
        "  fi",
        '  echo "$2"',
        '  srun "${@:4}" --kill-on-bad-exit=1 --cpu-bind=none --input=none --unbuffered \\',
        '    --output="$folder/$1-%t.log" \\',
        '    "$python" -m scalewise.measure.slurm_rank "$3" "$folder/$1.json" 2>"$folder/$1.err"',
        # Also in the log of the job, for those who look there.
        '  cat "$folder/$1.err" >&2',
        "}",
        *(shlex.join(_launch(launch, asked)) for launch in launches),
        "report || exit 1",
        *(['rm -r "$folder"'] if alone else ()),
        "",
    ])  # fmt: skip


def _launch(launch: Launch, asked: Allocation) -> list[str]:
    """Return the words of the line that starts one launch."""
    ranks = launch.spec.ranks
    per_node = min(ranks, asked.ranks_per_node)
    return [
        "launch", str(launch.number), launch.label, launch.spec.module,
        f"--nodes={ranks // per_node}", f"--ntasks={ranks}", f"--ntasks-per-node={per_node}",
        f"--time={minutes(asked.launch_seconds)}",
    ]  # fmt: skip
