"""Predicted against measured: row by row, source by source.

    v = validate(read_runs())
    v.rows[0].error, v.by_source()["llm-foundry"].median_error

Every row gets a verdict: predicted with its error, infeasible or unsupported with the reason.
Nothing is dropped silently, and no row is judged by anything but stated facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scalewise.errors import ScalewiseError
from scalewise.evidence.table import completed_plan
from scalewise.results import Result
from scalewise.step.estimate import NEAR_TIE, RAN_FIT, estimate

if TYPE_CHECKING:
    from scalewise.evidence.leave_out import LeftOut
    from scalewise.evidence.runs import Run
    from scalewise.evidence.table import RunTable
    from scalewise.numeric import Array
    from scalewise.step.case import Case
    from scalewise.step.result import Estimate

Status = Literal["ok", "infeasible", "unsupported", "unmeasured"]

JUDGED_QUALITIES = ("ok", "vendor-expected")
"""Grades of rows that count in the headline: complete, and consistent with themselves."""

SWEEP_SIZE = 5
"""Rows from which a ranking within a sweep is judged."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row: measured, predicted, and the error."""

    id: str
    source: str
    status: Status
    quality: str
    dense: bool
    stack: str | None = None
    """Software constants used."""
    strategy: str | None = None
    measured_tokens_per_second: float | None = None
    """Per accelerator."""
    predicted_tokens_per_second: float | None = None
    """Per accelerator."""
    low: float | None = None
    high: float | None = None
    """80 % interval of the prediction."""
    error: float | None = None
    """Predicted over measured, minus 1."""
    memory_gb_measured: float | None = None
    memory_gb_predicted: float | None = None
    """GB (1e9 bytes) on the worst rank."""
    reason: str | None = None
    """Why it is infeasible or unsupported."""
    defaults: tuple[str, ...] = ()
    """What the row does not state and was chosen for it."""
    group: tuple[Any, ...] = ()
    """Model, accelerator, count and precision: rows of one group differ in layout only."""
    simplicity: tuple[float, ...] = ()
    """Stages, tensor degree and memory: what decides between near-ties."""

    @property
    def judged(self) -> bool:
        """Whether it counts in the headline: dense, well graded, measured and predicted."""
        return self.error is not None and self.dense and self.quality in JUDGED_QUALITIES


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Errors of a set of rows. Shares, not percent."""

    count: int
    """Rows with a prediction and a measurement."""
    unsupported: int
    infeasible: int
    median_error: float | None
    """Of the absolute error."""
    p90_error: float | None
    bias: float | None
    """Median of the signed error."""
    coverage: float | None
    """Share of rows inside their 80 % interval."""
    rank_correlation: float | None
    """Spearman within sweeps of layouts, mean over sweeps."""
    regret: float | None
    """Regret of the picked layout against the best measured one, mean over sweeps."""
    memory_count: int
    memory_median_error: float | None


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Rows that differ in layout only: was the order right, and the choice?"""

    source: str
    model: str
    accelerators: int
    count: int
    """Layouts."""
    rank_correlation: float
    """Spearman of predicted and measured."""
    regret: float
    """Regret of the picked layout against the best measured one."""
    picked: str
    """That layout."""
    best: str
    """The best measured one."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Validation(Result):
    """All verdicts, and their summaries."""

    rows: list[Verdict]

    def judged(self) -> list[Verdict]:
        """The rows of the headline."""
        return [row for row in self.rows if row.judged]

    def overall(self) -> Summary:
        """Summary of the headline rows."""
        return summarize([r for r in self.rows if r.dense and r.quality in JUDGED_QUALITIES])

    def by_source(self) -> dict[str, Summary]:
        """Summary of every source, all of its grades."""
        names = sorted({row.source for row in self.rows})
        return {name: summarize([r for r in self.rows if r.source == name]) for name in names}

    def sweeps(self) -> list[Sweep]:
        """Every sweep of layouts among the headline rows, largest models last."""
        return sweeps_of(self.judged())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON."""
        rows = []
        for row in self.rows:
            plain = asdict(row)
            for key in ("group", "simplicity"):
                plain.pop(key)
            rows.append({**plain, "defaults": list(row.defaults)})
        return {
            "rows": rows,
            "overall": asdict(self.overall()),
            "sources": {name: asdict(summary) for name, summary in self.by_source().items()},
            "sweeps": [asdict(sweep) for sweep in self.sweeps()],
        }


def validate(runs: Iterable[Run], *, seconds: Callable[[Case], float] | None = None) -> Validation:
    """Predict every run with the shipped constants.

    Args:
        runs: What was measured.
        seconds: Another way to the time of a step than the closed forms of `estimate`, such as
            `simulation.simulate.step_seconds`.
    """
    return Validation(rows=[judge(run, seconds=seconds) for run in runs])


def judge(run: Run, *, seconds: Callable[[Case], float] | None = None) -> Verdict:
    """The verdict on one run, by the closed forms or by another way to the time of its step."""
    verdict = Verdict(
        id=run.id, source=run.source, status="unsupported", quality=run.quality, dense=run.dense
    )
    try:
        measured, memory = run.tokens_per_second, run.memory_bytes
        plan, stack = completed_plan(run)
        inputs = plan.model, plan.cluster, plan.workload
        result = estimate(*inputs, plan.strategy, stack=stack, fit=RAN_FIT)
        faster = 1.0
        if seconds is not None:
            faster = result.step_seconds / seconds(result.origin.case)
    except ScalewiseError as error:
        return replace(verdict, reason=str(error))
    rate = faster * result.tokens_per_second_per_accelerator
    status: Status = "ok" if measured else "unmeasured"
    return replace(
        verdict,
        status=status if result.feasible else "infeasible",
        stack=stack.name,
        strategy=str(plan.strategy),
        measured_tokens_per_second=measured,
        predicted_tokens_per_second=rate,
        low=faster * result.low,
        high=faster * result.high,
        error=rate / measured - 1.0 if measured else None,
        memory_gb_measured=None if memory is None else memory / 1e9,
        memory_gb_predicted=result.memory_bytes / 1e9,
        reason=result.infeasible,
        defaults=plan.defaults,
        group=_group(run, result),
        simplicity=(plan.strategy.pp, plan.strategy.tp, result.memory_bytes),
    )


def _group(run: Run, result: Estimate) -> tuple[Any, ...]:
    """What rows share that differ in layout only."""
    workload = result.workload
    return (run.source, result.model.name, result.cluster.accelerator.name,
            result.cluster.accelerators, workload)  # fmt: skip


def with_left_out(validation: Validation, table: RunTable, out: LeftOut) -> Validation:
    """The same verdicts, with predictions by fits that had not seen the row's source."""
    place = {run.id: row for row, run in enumerate(table.runs)}
    rows = []
    for verdict in validation.rows:
        row = place.get(verdict.id)
        measured = verdict.measured_tokens_per_second
        if row is not None and measured:
            rate = float(out.predicted[row])
            verdict = replace(
                verdict,
                predicted_tokens_per_second=rate,
                low=float(out.low[row]),
                high=float(out.high[row]),
                error=rate / measured - 1.0,
            )
        rows.append(verdict)
    return Validation(rows=rows)


def summarize(rows: Sequence[Verdict]) -> Summary:
    """Errors, coverage, ranking and regret of a set of rows."""
    measured = [row for row in rows if row.error is not None]
    error = np.array([row.error for row in measured], dtype=float)
    inside = [
        row.low <= row.measured_tokens_per_second <= row.high  # type: ignore[operator]
        for row in measured
    ]
    memory = np.array(
        [
            row.memory_gb_predicted / row.memory_gb_measured - 1.0
            for row in rows
            if row.memory_gb_measured and row.memory_gb_predicted
        ]
    )
    sweeps = sweeps_of(measured)
    some = len(error) > 0
    return Summary(
        count=len(measured),
        unsupported=sum(row.status == "unsupported" for row in rows),
        infeasible=sum(row.status == "infeasible" for row in rows),
        median_error=float(np.median(np.abs(error))) if some else None,
        p90_error=float(np.quantile(np.abs(error), 0.9)) if some else None,
        bias=float(np.median(error)) if some else None,
        coverage=float(np.mean(inside)) if some else None,
        rank_correlation=_mean([sweep.rank_correlation for sweep in sweeps]),
        regret=_mean([sweep.regret for sweep in sweeps]),
        memory_count=len(memory),
        memory_median_error=float(np.median(np.abs(memory))) if len(memory) else None,
    )


def _mean(values: Sequence[float]) -> float | None:
    """The mean, or None of nothing."""
    return float(np.mean(values)) if values else None


def sweeps_of(rows: Sequence[Verdict]) -> list[Sweep]:
    """Groups of at least `SWEEP_SIZE` layouts of one model, cluster and workload."""
    groups: dict[tuple[Any, ...], list[Verdict]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    found = []
    for key, group in groups.items():
        if len({row.strategy for row in group}) < SWEEP_SIZE:
            continue
        predicted = np.array([row.predicted_tokens_per_second for row in group], dtype=float)
        measured = np.array([row.measured_tokens_per_second for row in group], dtype=float)
        pick = pick_of(group)
        best = max(group, key=lambda row: row.measured_tokens_per_second or 0.0)
        reached = (pick.measured_tokens_per_second or 0.0) / float(measured.max())
        found.append(
            Sweep(
                source=key[0],
                model=key[1],
                accelerators=key[3],
                count=len(group),
                rank_correlation=spearman(predicted, measured),
                regret=1.0 - reached,
                picked=str(pick.strategy),
                best=str(best.strategy),
            )
        )
    return sorted(found, key=lambda sweep: (sweep.source, sweep.model, sweep.accelerators))


def spearman(a: Array, b: Array) -> float:
    """Rank correlation; ties get their order."""
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def pick_of(group: Sequence[Verdict]) -> Verdict:
    """Return the layout that the model picks from a sweep.

    The best prediction; among near-ties, fewer pipeline stages, then a smaller tensor degree, then
    less memory: what is equally fast should be simple.
    """
    top = max(row.predicted_tokens_per_second or 0.0 for row in group)
    near = [r for r in group if (r.predicted_tokens_per_second or 0.0) >= (1.0 - NEAR_TIE) * top]
    return min(near, key=lambda row: row.simplicity)
