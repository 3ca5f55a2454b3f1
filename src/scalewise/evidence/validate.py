"""Predicted against measured: row by row, source by source.

    v = validate(read_runs())
    v.rows[0].error, v.by_source()["llm-foundry"].median_error
    v.accuracy().methods              # shipped constants, source left out, two baselines

Every row gets a verdict: predicted with its error, infeasible or unsupported with the reason.
Nothing is dropped silently, and no row is judged by anything but stated facts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from scalewise.errors import ScalewiseError
from scalewise.evidence.baselines import Pool, Published, mfu_rate, place_of, published
from scalewise.evidence.calibrate import configuration
from scalewise.evidence.degraded import degraded
from scalewise.evidence.left_out_table import LeftOutRow, read_left_out
from scalewise.evidence.ranges_fit import group_of
from scalewise.evidence.recipes import recipe_of
from scalewise.evidence.runs import read_runs
from scalewise.evidence.sweeps import Sweep, sweeps_of
from scalewise.evidence.table import completed_plan
from scalewise.ranges import Basis, level_range
from scalewise.results import Result
from scalewise.step.estimate import RAN_FIT, estimate

if TYPE_CHECKING:
    from scalewise.evidence.accuracy import Accuracy
    from scalewise.evidence.expert_accuracy import ExpertAccuracy
    from scalewise.evidence.runs import Run
    from scalewise.stack import Stack
    from scalewise.step.case import Case

Status = Literal["ok", "infeasible", "unsupported", "unmeasured"]

JUDGED_QUALITIES = ("ok", "vendor-expected")
"""Grades of rows that count in the headline: complete, and consistent with themselves."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One row: measured, predicted, and the error."""

    id: str
    source: str
    status: Status
    quality: str
    dense: bool
    experts: bool = False
    """Whether the model has experts: such rows have a headline of their own."""
    stack: str | None = None
    """Software constants used."""
    family: str | None = None
    """Software family and mode, such as "pytorch, eager"."""
    gpu: bool = False
    """Whether the accelerator is a GPU."""
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
    memory_gb_capacity: float | None = None
    """Memory of the accelerator."""
    reason: str | None = None
    """Why it is infeasible or unsupported."""
    defaults: tuple[str, ...] = ()
    """What the row does not state and was chosen for it."""
    group: tuple[Any, ...] = ()
    """Model, accelerator, count and precision: rows of one group differ in layout only."""
    simplicity: tuple[float, ...] = ()
    """Stages, tensor degree and memory: what decides between ties."""
    degraded: bool = False
    """Whether it is far slower than its neighbors, for no stated reason."""
    left_out: float | None = None
    """Tokens/s per accelerator predicted by a fit that has not seen the source."""
    left_out_low: float | None = None
    left_out_high: float | None = None
    """80 % interval of that prediction."""
    mfu_40: float | None = None
    """Tokens/s per accelerator at 40% MFU: a baseline."""
    nearest_run: float | None = None
    """Tokens/s per accelerator at the MFU of the nearest published run of another source."""
    recipe: tuple[Any, ...] = ()
    """Everything but the size: rows of one recipe are a weak-scaling series."""
    place: Published | None = None
    """What the nearest published run is found by."""
    basis: Basis | None = None
    """What the interval depends on; with the source left out if `left_out` is there."""

    @property
    def judged(self) -> bool:
        """Whether it counts in the headline: dense, well graded, measured, predicted, healthy."""
        return self.dense and self.sound

    @property
    def sound(self) -> bool:
        """Whether it is well graded, measured, predicted and healthy."""
        graded = self.quality in JUDGED_QUALITIES
        return self.error is not None and graded and not self.degraded

    def to_dict(self) -> dict[str, Any]:
        """Everything but what groups and intervals are made from, as plain types."""
        inner = ("group", "simplicity", "recipe", "place", "basis")
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        plain["defaults"] = list(self.defaults)
        return {name: value for name, value in plain.items() if name not in inner}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """Errors of a set of rows. Shares, not percent."""

    count: int
    """Healthy rows with a prediction and a measurement."""
    degraded: int
    """Rows far slower than their neighbors: in none of the other numbers."""
    unsupported: int
    infeasible: int
    median_error: float | None
    """Of the absolute error."""
    p90_error: float | None
    bias: float | None
    """Median of the signed error."""
    coverage: float | None
    """Share of rows inside their 80 % interval."""
    left_out_error: float | None
    """Median absolute error with the source left out."""
    left_out_p90: float | None
    """Its 90th percentile."""
    left_out_coverage: float | None
    """Share of rows inside the 80 % interval with the source left out."""
    rank_correlation: float | None
    """Spearman within sweeps of layouts, mean over sweeps."""
    regret: float | None
    """Regret of the picked layout against the best measured one, mean over sweeps."""
    memory_count: int
    memory_median_error: float | None


@dataclass(frozen=True, kw_only=True, repr=False)
class Validation(Result):
    """All verdicts, and their summaries."""

    rows: list[Verdict]

    def judged(self) -> list[Verdict]:
        """The rows of the headline."""
        return [row for row in self.rows if row.judged]

    def complete(self) -> list[Verdict]:
        """Complete dense rows: all that a prediction needs is stated."""
        return [r for r in self.rows if r.dense and r.quality in JUDGED_QUALITIES]

    def overall(self) -> Summary:
        """Summary of the headline rows."""
        return summarize(self.complete())

    def by_source(self) -> dict[str, Summary]:
        """Summary of every source without experts; of all its grades if no run is complete."""
        rows = [row for row in self.rows if not row.experts]
        return summaries(rows, lambda row: row.source)

    def by_family(self) -> dict[str, Summary]:
        """Summary of the complete dense rows of every software family."""
        return summaries(self.complete(), lambda row: row.family)

    def accuracy(self) -> Accuracy:
        """Numbers of the headline: left-out errors, baselines, coverage, series, regret."""
        from scalewise.evidence.accuracy import accuracy

        return accuracy(self)

    def experts(self) -> ExpertAccuracy | None:
        """Numbers of the runs of experts; None without any."""
        from scalewise.evidence.expert_accuracy import expert_accuracy

        return expert_accuracy([row for row in self.rows if row.experts])

    def sweeps(self) -> list[Sweep]:
        """Every sweep of layouts among the headline rows, largest models last."""
        return sweeps_of(self.judged())

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON."""
        return {
            "rows": [row.to_dict() for row in self.rows],
            "overall": asdict(self.overall()),
            "sources": {name: asdict(summary) for name, summary in self.by_source().items()},
            "families": {name: asdict(summary) for name, summary in self.by_family().items()},
            "sweeps": [asdict(sweep) for sweep in self.sweeps()],
            "accuracy": asdict(self.accuracy()),
            "experts": None if (experts := self.experts()) is None else asdict(experts),
        }


def summaries(rows: Sequence[Verdict], key: Callable[[Verdict], str | None]) -> dict[str, Summary]:
    """Return the summary of the rows of every name, in order."""
    groups: dict[str, list[Verdict]] = {}
    for row in rows:
        name = key(row)
        if name is not None:
            groups.setdefault(name, []).append(row)
    return {name: summarize(groups[name]) for name in sorted(groups)}


def validate(
    runs: Iterable[Run],
    *,
    left_out: Mapping[str, LeftOutRow] | None = None,
    seconds: Callable[[Case], float] | None = None,
) -> Validation:
    """Predict every run with the shipped constants, without its source, and by baselines.

    Args:
        runs: What was measured.
        left_out: Predictions by fits without the source of a row, by id; by default the shipped
            ones, for rows of the shipped table.
        seconds: Another way to the time of a step than the closed forms of `estimate`, such as
            `simulation.simulate.step_seconds`.
    """
    rows = with_degraded([judge(run, seconds=seconds) for run in runs])
    pool = _pool(rows)
    found = read_left_out() if left_out is None else left_out
    return Validation(
        rows=[with_left_out(_with_baselines(row, pool), found.get(row.id)) for row in rows]
    )


def _pool(rows: Sequence[Verdict]) -> Pool:
    """Runs that the nearest one is taken from: these, and the shipped ones."""
    given = {row.id for row in rows}
    others = (
        run
        for run in read_runs()
        if run.dense and run.quality in JUDGED_QUALITIES and run.id not in given
    )
    return Pool([*(row.place for row in rows if row.judged and row.place), *published(others)])


def _with_baselines(row: Verdict, pool: Pool) -> Verdict:
    """The same verdict, with what "40% MFU" and the nearest published run predict."""
    if row.place is None or not row.judged:
        return row
    return replace(row, mfu_40=mfu_rate(row.place), nearest_run=pool.nearest(row.place))


def with_left_out(row: Verdict, out: LeftOutRow | None) -> Verdict:
    """The same verdict, with the prediction by a fit that has not seen the row's source."""
    if out is None or out.source != row.source or row.basis is None or row.error is None:
        return row
    basis = replace(
        row.basis, rate=out.predicted, knowledge=out.knowledge, calibrated=out.calibrated
    )
    low, high = level_range(basis)
    return replace(
        row,
        left_out=out.predicted,
        left_out_low=low * out.predicted,
        left_out_high=high * out.predicted,
        basis=basis,
    )


def with_degraded(rows: Sequence[Verdict]) -> list[Verdict]:
    """Mark the rows that are far slower than others of their source, model and accelerator."""
    residuals = np.array([-np.log1p(np.nan if r.error is None else r.error) for r in rows])
    slow = degraded(residuals, [row.group[:3] for row in rows])
    return [replace(row, degraded=bool(flag)) for row, flag in zip(rows, slow, strict=True)]


def judge(run: Run, *, seconds: Callable[[Case], float] | None = None) -> Verdict:
    """The verdict on one run, by the closed forms or by another way to the time of its step."""
    verdict = Verdict(
        id=run.id,
        source=run.source,
        status="unsupported",
        quality=run.quality,
        dense=run.dense,
        experts=bool(run.number("experts")),
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
    basis, low, high = result.basis, result.low, result.high
    if basis.experts == "usual" and recipe_of(run) is not None:
        basis = replace(basis, experts="stated")
        low, high = (each * result.tokens_per_second_per_accelerator for each in level_range(basis))
    status: Status = "ok" if measured else "unmeasured"
    return replace(
        verdict,
        status=status if result.feasible else "infeasible",
        stack=stack.name,
        family=family_name(stack),
        gpu=plan.cluster.accelerator.kind == "gpu",
        strategy=str(plan.strategy),
        measured_tokens_per_second=measured,
        predicted_tokens_per_second=rate,
        low=faster * low,
        high=faster * high,
        error=rate / measured - 1.0 if measured else None,
        memory_gb_measured=None if memory is None else memory / 1e9,
        memory_gb_predicted=result.memory_bytes / 1e9,
        memory_gb_capacity=result.memory_capacity / 1e9,
        reason=result.infeasible,
        defaults=plan.defaults,
        group=group_of(run.source, result),
        simplicity=(plan.strategy.pp, plan.strategy.tp, result.memory_bytes),
        recipe=configuration(run, plan, stack),
        place=place_of(run, plan.model, plan.cluster) if measured else None,
        basis=basis,
    )


def family_name(stack: Stack) -> str:
    """Software family with its mode or its device."""
    if stack.family == "xla":
        return f"xla, {stack.devices}"
    if stack.family == "neuron":
        return stack.family
    return f"{stack.family}, {'compiled' if stack.compiled else 'eager'}"


def summarize(rows: Sequence[Verdict]) -> Summary:
    """Errors, coverage, ranking and regret of a set of rows.

    Errors are of complete dense rows, or of all grades if there are none.
    """
    measured = [row for row in rows if row.judged] or [
        row for row in rows if row.error is not None and not row.degraded
    ]
    error = np.array([row.error for row in measured], dtype=float)
    inside = [
        row.low <= row.measured_tokens_per_second <= row.high  # type: ignore[operator]
        for row in measured
    ]
    out = [row for row in measured if row.left_out]
    unseen = [row.left_out / row.measured_tokens_per_second - 1.0 for row in out]  # type: ignore[operator]
    held = [
        row.left_out_low <= row.measured_tokens_per_second <= row.left_out_high  # type: ignore[operator]
        for row in out
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
        degraded=sum(row.degraded for row in rows),
        unsupported=sum(row.status == "unsupported" for row in rows),
        infeasible=sum(row.status == "infeasible" for row in rows),
        median_error=float(np.median(np.abs(error))) if some else None,
        p90_error=float(np.quantile(np.abs(error), 0.9)) if some else None,
        bias=float(np.median(error)) if some else None,
        coverage=float(np.mean(inside)) if some else None,
        left_out_error=float(np.median(np.abs(unseen))) if out else None,
        left_out_p90=float(np.quantile(np.abs(unseen), 0.9)) if out else None,
        left_out_coverage=float(np.mean(held)) if out else None,
        rank_correlation=_mean([sweep.rank_correlation for sweep in sweeps]),
        regret=_mean([sweep.regret for sweep in sweeps]),
        memory_count=len(memory),
        memory_median_error=float(np.median(np.abs(memory))) if len(memory) else None,
    )


def _mean(values: Sequence[float]) -> float | None:
    """The mean, or None of nothing."""
    return float(np.mean(values)) if values else None
