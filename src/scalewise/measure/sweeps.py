"""How does a sweep of collectives or kernels reach the ranks, and come back as one record?

    order = SweepOrder(what="collective", plan=plan_as_dict, processes=2, id=new_id(), ...)
    SweepLauncher(timeout=600.0).run(order)
    rows_of(read_records("records/", kind="collective").records)

A sweep is one launch and one record: `inputs` holds the plan, `results["rows"]` one dictionary per
timing, with the column names of the tables in `catalog/runs`, so that a user's own timings and
published ones read alike. What is new is `samples_us`: every sample, not only their median.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from scalewise.measure.launch import MODULE, LocalLauncher
from scalewise.measure.metrics import Spread
from scalewise.measure.order import Order, Planned
from scalewise.measure.records import Record

Kind = Literal["collective", "kernel"]

WORKER = "scalewise.measure.sweep_worker"


class SweepOrder(Order, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the ranks of a sweep need to know."""

    planned: list[Planned] = msgspec.field(default_factory=list)
    """No training: a sweep has a plan instead."""
    what: Kind
    """Which sweep."""
    plan: dict[str, Any]
    """A `collectives.CollectivePlan` or a `kernels.KernelPlan`, as plain types."""
    processes: int
    """Ranks."""
    id: str
    """Of the record it will become."""
    warnings: list[str] = msgspec.field(default_factory=list)
    """What was noticed before the start, for the record."""

    @property
    def ranks(self) -> int:
        """Processes that it takes."""
        return self.processes

    @property
    def ids(self) -> list[str]:
        """Of the one record that it will become."""
        return [self.id]


class SweepLauncher(LocalLauncher):
    """torchrun on this machine, with the ranks of a sweep."""

    @staticmethod
    def command(order: Order, file: Path, folder: Path) -> list[str]:
        """The command that starts the ranks; see `LocalLauncher.command`."""
        words = LocalLauncher.command(order, file, folder)
        return [WORKER if word == MODULE else word for word in words]


def timed_row(columns: dict[str, Any], seconds: Sequence[float]) -> dict[str, Any]:
    """A row of a record: what was timed, the median, how far the samples scatter, and all of them.

    Args:
        columns: What was timed, by the column names of the shipped tables.
        seconds: Samples.
    """
    spread = Spread.of(seconds)
    return {
        **columns,
        "time_us": spread.median * 1e6,
        "time_us_p5": spread.p5 * 1e6,
        "time_us_p95": spread.p95 * 1e6,
        "samples_us": [round(each * 1e6, 3) for each in seconds],
    }


def rows_of(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """The rows of sweeps, each with the accelerator, the software and the record it came from."""
    for record in records:
        if record.kind not in ("collective", "kernel"):
            continue
        where = record.environment
        for number, row in enumerate(record.results.get("rows", ()), start=1):
            yield {
                "id": f"{record.id}-{number}",
                "accelerator": where.accelerator,
                "hardware_stated": where.device_name,
                "software": f"torch {where.versions.get('torch', '?')}, {where.backend}",
                "source": f"record {record.id} of {record.started[:10]}",
                **row,
            }
