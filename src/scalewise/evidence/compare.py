"""Estimates against a user's own records, in total and term by term.

    comparison = compare(read_records("records/").records, load_cluster("my-cluster"))
    comparison.rows[0].error, comparison.median_error

One row for each measured job, all its repeats together. The step time is always compared; compute,
exposed communication and idle time are compared where the job was traced. Every error comes with
the run-to-run variation of its job: no prediction can be better than that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from scalewise.cluster import Cluster
from scalewise.errors import InputError, ScalewiseError
from scalewise.evidence.runs import Run, UnsupportedError
from scalewise.evidence.table import completed_plan
from scalewise.ranges import level_range, with_own_runs
from scalewise.records.files import Record
from scalewise.records.job import TrainJob, job_of
from scalewise.records.metrics import by_job, quantile, summarize
from scalewise.stack import Stack
from scalewise.step.estimate import estimate
from scalewise.step.result import Estimate

IDLE_TERMS = ("bubble", "straggler")
"""Terms of an estimate in which a device waits without communicating."""


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One job, measured and predicted; seconds of one step."""

    model: str
    """Its name."""
    strategy: str
    """In its one spelling."""
    ranks: int
    """Devices."""
    seq_len: int
    """Tokens per sequence."""
    global_batch: int
    """Sequences per step."""
    launches: int
    """How often it was started."""
    measured: float
    """Median over launches of the median step."""
    measured_low: float
    """Fastest launch's median."""
    measured_high: float
    """Slowest launch's median."""
    predicted: float
    """What the estimate says."""
    low: float
    """Fast end of its 80 % interval."""
    high: float
    """Slow end of it."""
    terms: dict[str, tuple[float | None, float]]
    """Measured and predicted seconds of "compute", "communication", "exposed", "idle", and
    "waiting" (exposed and idle together: a trace shows a pipeline's wait for its neighbor as
    communication, an estimate as bubble); measured is None without a trace."""
    predicted_terms: dict[str, float]
    """Every term of the estimate."""
    warnings: list[str] = []
    """Of the launches."""

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1.0

    @property
    def noise(self) -> float:
        """Half the range of launches over their median."""
        return 0.5 * (self.measured_high - self.measured_low) / self.measured

    @property
    def inside(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.low <= self.measured <= self.high


class Comparison(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All jobs, and what the errors come to."""

    cluster: str
    """What was predicted with."""
    stack: str
    """Likewise."""
    rows: list[Row]
    """In the order they were measured."""
    interval: tuple[float, float] = (1.0, 1.0)
    """80% prediction interval of the last job, as factors."""
    calibrated: tuple[float, float] | None = None
    """The same after a calibration on these jobs; None if they are behind the stack already."""
    skipped: list[str] = []
    """A sentence for each job that could not be predicted."""

    @property
    def median_error(self) -> float:
        """Median of the sizes of the errors."""
        return quantile(sorted(abs(row.error) for row in self.rows), 0.5)

    @property
    def median_noise(self) -> float | None:
        """Median of what launches differ by; None if nothing was launched twice."""
        known = sorted(row.noise for row in self.rows if row.launches > 1)
        return quantile(known, 0.5) if known else None

    @property
    def coverage(self) -> float:
        """Share of the measurements that lie in their interval."""
        return sum(row.inside for row in self.rows) / len(self.rows)

    def by_strategy(self) -> dict[str, float]:
        """Median size of the error by strategy."""
        names = dict.fromkeys(row.strategy for row in self.rows)
        return {
            name: quantile(sorted(abs(r.error) for r in self.rows if r.strategy == name), 0.5)
            for name in names
        }


def compare(
    records: Sequence[Record],
    cluster: Cluster | None = None,
    stack: Stack | str | None = None,
    *,
    min_ranks: int = 1,
) -> Comparison:
    """Predict every measured job.

    Args:
        records: Of any kind; training is compared.
        cluster: What they ran on; by default the device that the records name.
        stack: Software; by default the stack of the cluster's name, if there is one.
        min_ranks: Jobs on fewer devices are left out.

    Raises:
        InputError: If there is no training to compare, or the device is unknown.
    """
    groups = [
        launches
        for launches in by_job(record for record in records if record.kind == "train")
        if job_of(launches[0].inputs).ranks >= min_ranks
    ]
    if not groups:
        raise InputError(
            "there is no measured training to compare with",
            hint="`scalewise measure train tiny --strategy ddp2` measures some",
        )
    rows: list[Row] = []
    skipped: list[str] = []
    used: Estimate | None = None
    for launches in groups:
        job = job_of(launches[0].inputs)
        try:
            used = predict(job, launches[0], cluster, stack)
        except ScalewiseError as error:
            skipped.append(f"{job.model.name} {job.strategy}: {error}")
            continue
        rows.append(_row(job, launches, used))
    if not rows or used is None:
        raise InputError(f"none of {len(groups)} jobs can be predicted: {skipped[0]}")
    basis = used.basis
    off = [float(np.log(row.predicted / row.measured)) for row in rows]
    own = None if basis.own_runs else level_range(with_own_runs(basis, off))
    return Comparison(
        cluster=used.cluster.name,
        stack=used.stack.name,
        rows=rows,
        interval=level_range(basis),
        calibrated=own,
        skipped=skipped,
    )


def compare_runs(
    runs: Sequence[Run], cluster: Cluster | None = None, stack: Stack | str | None = None
) -> Comparison:
    """Predict the runs of a table.

    Args:
        runs: Rows with a measured rate.
        cluster: What they ran on; by default what each row names.
        stack: Software; by default what each row names, or its framework.

    Raises:
        InputError: If none can be predicted.
    """
    rows: list[Row] = []
    skipped: list[str] = []
    used: list[Estimate] = []
    for run in runs:
        try:
            plan, usual = completed_plan(run)
            measured = run.tokens_per_second
            if measured is None:
                raise UnsupportedError("nothing is measured")
            on = plan.cluster
            if cluster is not None:
                on = cluster.with_(accelerators=plan.cluster.accelerators)
            e = estimate(plan.model, on, plan.workload, plan.strategy, stack=stack or usual)
        except ScalewiseError as error:
            skipped.append(f"{run.id}: {error}")
            continue
        rows.append(_run_row(run, measured, e, plan.defaults))
        used.append(e)
    if not rows:
        raise InputError(
            f"none of {len(runs)} runs can be predicted" + (f": {skipped[0]}" if skipped else ""),
            hint="a row needs model, on, gpus, strategy, seq, batch and a measured number",
        )
    names = [dict.fromkeys(part) for part in
             ((e.cluster.name for e in used), (e.stack.name for e in used))]  # fmt: skip
    return Comparison(
        cluster=", ".join(names[0]),
        stack=", ".join(names[1]),
        rows=rows,
        interval=level_range(used[-1].basis),
        skipped=skipped,
    )


def _run_row(run: Run, rate: float, e: Estimate, defaults: Sequence[str]) -> Row:
    """One run of a table, as one launch without a trace."""
    per_rank = e.workload.tokens_per_step / e.cluster.accelerators
    seconds = per_rank / rate
    exposed, idle = sum(e.exposed.values()), sum(e.terms[name] for name in IDLE_TERMS)
    return Row(
        model=e.model.name,
        strategy=str(e.strategy),
        ranks=e.cluster.accelerators,
        seq_len=e.workload.seq_len,
        global_batch=e.workload.global_batch,
        launches=1,
        measured=seconds,
        measured_low=seconds,
        measured_high=seconds,
        predicted=e.step_seconds,
        low=per_rank / e.high,
        high=per_rank / e.low,
        terms={
            "compute": (None, e.step_seconds - exposed - idle),
            "communication": (None, sum(e.comm_seconds.values())),
            "exposed": (None, exposed),
            "idle": (None, idle),
            "waiting": (None, exposed + idle),
        },
        predicted_terms=e.terms,
        warnings=[f"{run.id}: {note}" for note in defaults if "assumed" in note],
    )


def predict(
    job: TrainJob, record: Record, cluster: Cluster | None, stack: Stack | str | None
) -> Estimate:
    """The estimate of one job on the devices of its record.

    Raises:
        InputError: If the device is unknown, or the job cannot be estimated.
    """
    from scalewise.catalog import knows, load_cluster

    if cluster is None:
        name = record.environment.accelerator
        if name is None:
            raise InputError(
                f"{record.environment.device_name} is not in the catalog",
                hint="calibrate it, and name it with --on",
            )
        cluster = load_cluster(name)
    sized = cluster.with_(accelerators=job.ranks)
    if (links := record.environment.links) is not None:
        sized = links.of(sized)
    if stack is None and knows("stacks", cluster.name):
        stack = cluster.name
    precision = _precision(job, cluster)
    return estimate(job.model, sized, job.workload(precision), job.strategy, stack=stack)


def _precision(job: TrainJob, cluster: Cluster) -> Any:
    """The precision to ask for: a machine calibrated in fp32 has its rates in the 16-bit column."""
    peaks = cluster.accelerator.peak_flops
    same = job.precision == "fp32" and peaks.get("fp32") == peaks.get("bf16")
    return "bf16" if same else job.precision


def _row(job: TrainJob, launches: Sequence[Record], e: Estimate) -> Row:
    summary = summarize(launches)
    medians = sorted(summary.launch_medians)
    per_rank = job.tokens_per_step / job.ranks
    exposed = sum(e.exposed.values())
    idle = sum(e.terms[name] for name in IDLE_TERMS)
    traced = [trace for record in launches if (trace := record.results.get("trace"))]

    def seen(part: str) -> float | None:
        known = sorted(float(trace[part]) for trace in traced if trace.get(part) is not None)
        return quantile(known, 0.5) if known else None

    waiting = seen("exposed_seconds"), seen("idle_seconds")
    return Row(
        model=summary.model,
        strategy=summary.label,
        ranks=job.ranks,
        seq_len=job.seq_len,
        global_batch=job.global_batch,
        launches=summary.launches,
        measured=quantile(medians, 0.5),
        measured_low=medians[0],
        measured_high=medians[-1],
        predicted=e.step_seconds,
        low=per_rank / e.high,
        high=per_rank / e.low,
        terms={
            "compute": (seen("compute_seconds"), e.step_seconds - exposed - idle),
            "communication": (seen("communication_seconds"), sum(e.comm_seconds.values())),
            "exposed": (seen("exposed_seconds"), exposed),
            "idle": (seen("idle_seconds"), idle),
            "waiting": (
                None if waiting[0] is None or waiting[1] is None else waiting[0] + waiting[1],
                exposed + idle,
            ),
        },
        predicted_terms=e.terms,
        warnings=summary.warnings,
    )
