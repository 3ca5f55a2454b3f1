"""Specification of a launch: the jobs of its ranks, and the file for their records.

    spec = LaunchSpec(planned=[PlannedJob(job=job, id=new_id())], records="records/train.jsonl",
                      device="cpu", threads=1)

Plain data in a file, for any launcher: torchrun on this machine, or a Slurm script.
"""

from __future__ import annotations

import msgspec

from scalewise.records.job import Device, TrainJob
from scalewise.records.links import ShapedLinks

MODULE = "scalewise.measure.worker"

NOTICED = "SCALEWISE_NOTICED"
"""Variable by which a rank that Slurm started hears what its machine did just before, as JSON."""


class PlannedJob(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job of a launch."""

    job: TrainJob
    """What to run."""
    id: str
    """Of the record it will become."""
    launch: int = 1
    """Which of several launches, from 1."""
    warnings: list[str] = []
    """What was noticed before the start, for the record."""


class LaunchSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the ranks need to know."""

    planned: list[PlannedJob]
    """In this order; all with the same number of ranks."""
    records: str
    """The file that records are added to."""
    device: Device
    """Where to run."""
    accelerator: str | None = None
    """The catalog's name of the devices, if the user gave it."""
    threads: int | None = None
    """Per rank, on CPUs; None leaves it to PyTorch."""
    links: ShapedLinks | None = None
    """Links between pretend nodes; None for the machine as it is."""

    copies: int = 1
    """Copies of the jobs that run at the same time, each on ranks of its own: on a CPU they share
    memory and power, as the ranks of one job do. A step lasts as long as that of the slowest."""

    @property
    def module(self) -> str:
        """Module that every rank runs."""
        return MODULE

    @property
    def ranks(self) -> int:
        """Processes that it takes."""
        return self.copies * self.planned[0].job.ranks

    @property
    def ids(self) -> list[str]:
        """Of the records that it will become."""
        return [planned.id for planned in self.planned]
