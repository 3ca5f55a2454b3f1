"""Sweeps of collectives, kernels or host time: their launch specification.

    spec = SweepSpec(what="collective", plan=plan_as_dict, processes=2, id=new_id(), ...)
    LocalLauncher(timeout=600.0).run(spec)
    rows_of(read_records("records/", kind="collective").records)

A sweep is one launch and one record: `inputs` holds the plan, `results["rows"]` one dictionary per
timing (`records.rows`).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from scalewise.measure.launch_spec import LaunchSpec, PlannedJob

Kind = Literal["collective", "kernel", "host"]

WORKER = "scalewise.measure.sweep_worker"


class SweepSpec(LaunchSpec, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything the ranks of a sweep need to know."""

    planned: list[PlannedJob] = msgspec.field(default_factory=list)
    """No training: a sweep has a plan instead."""
    what: Kind
    """Which sweep."""
    plan: dict[str, Any]
    """A `CollectivePlan`, a `KernelPlan` or a `HostPlan`, as plain types."""
    processes: int
    """Ranks."""
    id: str
    """Of the record it will become."""
    warnings: list[str] = msgspec.field(default_factory=list)
    """What was noticed before the start, for the record."""

    @property
    def module(self) -> str:
        """Module that every rank runs."""
        return WORKER

    @property
    def ranks(self) -> int:
        """Processes that it takes."""
        return self.processes

    @property
    def ids(self) -> list[str]:
        """Of the one record that it will become."""
        return [self.id]
