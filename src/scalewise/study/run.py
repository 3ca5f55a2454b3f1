"""How is a study answered? All its tasks in sweeps, then one table.

    answer = run_study(load_study("hardware-scaling-trends"))
    answer.rows, answer.verdicts

`runner` decides where tasks are computed and where answers are kept, see `scalewise.sweep`: a
study that is killed goes on where it was, and two studies share the points they have in common.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from scalewise.explore.points import Point, join
from scalewise.study.claims import Judged, judge
from scalewise.study.files import Experiment, Study
from scalewise.study.plan import Item, plan
from scalewise.study.rows import Row
from scalewise.study.tasks import (
    ChangesAnswer,
    CollectiveAnswer,
    CollectiveTask,
    StepAnswer,
    find_changes,
    price_step,
    time_collectives,
)
from scalewise.units import parse

R = TypeVar("R")


class Runner(Protocol):
    """Computes a list of tasks, yielding (position, result) as they get ready."""

    def __call__(
        self, tasks: Iterable[Any], function: Callable[[Any], R], result_type: Any
    ) -> Iterator[tuple[int, R]]:
        """See `scalewise.sweep.run.run`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a study found."""

    study: Study
    """The question."""
    rows: list[Row]
    """All points of all experiments, in order."""
    verdicts: list[Judged]
    """One for each claim, in order."""
    warnings: dict[str, list[str]] = field(default_factory=dict)
    """What to know before trusting the points, each once, with the experiments it concerns."""
    provenance: dict[str, list[str]] = field(default_factory=dict)
    """Where the numbers came from, by part."""
    seconds: float = 0.0
    """How long it took, seconds."""

    def of(self, experiment: Experiment | str) -> list[Row]:
        """The rows of one experiment."""
        name = experiment if isinstance(experiment, str) else experiment.id
        return [row for row in self.rows if row.experiment == name]

    @property
    def empty(self) -> list[str]:
        """Experiments none of whose points can run."""
        return [
            each.id
            for each in self.study.experiments
            if not any(row.feasible for row in self.of(each))
        ]


def run_study(study: Study, runner: Runner | None = None) -> Answer:
    """Answer a study.

    Args:
        study: The question.
        runner: Where tasks are computed; by default here, one after the other.

    Raises:
        InputError: If a name in the study is not known.
    """
    began = time.perf_counter()
    compute = runner or _one_by_one
    plans = {each.id: plan(each) for each in study.experiments}
    answers: dict[int, Any] = {}
    kinds: tuple[tuple[str, Callable[[Any], Any], type], ...] = (
        ("collectives", time_collectives, CollectiveAnswer),
        ("scale", price_step, StepAnswer),
        ("sensitivity", find_changes, ChangesAnswer),
    )
    for kind, function, result_type in kinds:
        items = [item for e in study.experiments if e.kind == kind for item in plans[e.id]]
        # Without tasks a runner has nothing to say, not even a bar.
        for place, result in (
            compute([i.task for i in items], function, result_type) if items else ()
        ):
            answers[id(items[place])] = result
    rows: list[Row] = []
    warnings: dict[str, list[str]] = {}
    provenance: dict[str, list[str]] = {}
    for experiment in study.experiments:
        pairs = [(item, answers[id(item)]) for item in plans[experiment.id]]
        rows += _ROWS[experiment.kind](experiment, pairs)
        if experiment.kind == "scale":
            for _, answer in pairs:
                for sentence in answer.priced.warnings:
                    _note(warnings, sentence, experiment.id)
                for part, sentence in answer.provenance.items():
                    _note(provenance, part, sentence)
    return Answer(
        study=study,
        rows=rows,
        verdicts=[
            judge(claim, experiment, [row for row in rows if row.experiment == experiment.id])
            for experiment in study.experiments
            for claim in experiment.claims
        ],
        warnings=warnings,
        provenance=provenance,
        seconds=time.perf_counter() - began,
    )


def _one_by_one(
    tasks: Iterable[Any], function: Callable[[Any], R], result_type: Any
) -> Iterator[tuple[int, R]]:
    """The plain runner."""
    del result_type
    return iter(enumerate(map(function, tasks)))


def _note(into: dict[str, list[str]], key: str, value: str) -> None:
    if value not in into.setdefault(key, []):
        into[key].append(value)


def _step_rows(experiment: Experiment, pairs: Sequence[tuple[Item, StepAnswer]]) -> list[Row]:
    """One row for each size of each curve, with what each size gains over the one before it."""
    curves: dict[tuple[Any, ...], list[tuple[Item, StepAnswer]]] = {}
    for item, answer in pairs:
        key = tuple(v for k, v in item.axes.items() if k not in ("accelerators", "nodes"))
        curves.setdefault(key, []).append((item, answer))
    rows: list[Row] = []
    for curve in curves.values():
        told = [answer.priced.point for _, answer in curve if answer.priced.point is not None]
        joined = {point.accelerators: point for point in join(told)}
        first = next((point for point in joined.values() if point.feasible), None)
        for item, answer in curve:
            point = joined.get(int(item.axes["accelerators"]))
            rows.append(_step_row(experiment.id, item, answer, point, first))
    return rows


def _step_row(
    name: str, item: Item, answer: StepAnswer, point: Point | None, first: Point | None
) -> Row:
    if point is None or answer.load_seconds is None:
        missing = answer.priced.missing
        reason = missing.reason if missing is not None else "no point"
        return Row(experiment=name, axes=item.axes, infeasible=reason)
    exposed = point.exposed_share * point.step_seconds
    load = answer.load_seconds
    site = point.facility_watts_per_accelerator
    metrics: dict[str, float | None] = {
        "tokens_per_second": point.tokens_per_second,
        "tokens_per_second_per_accelerator": point.tokens_per_second_per_accelerator,
        "tflops_per_accelerator": answer.tflops,
        "mfu": point.mfu,
        "hfu": answer.hfu,
        "step_seconds": point.step_seconds,
        "load_share": load / point.step_seconds,
        "exposed_share": point.exposed_share,
        "contention_share": point.contention_share,
        "communication_share": point.exposed_share + point.contention_share,
        "hidden_share": 1.0 - min(exposed / load, 1.0) if load > 0.0 else None,
        "bubble_share": point.terms.get("bubble", 0.0) / point.step_seconds,
        "gather_seconds": point.gather_seconds,
        "memory_bytes": point.memory_bytes,
        "watts_per_accelerator": point.watts_per_accelerator,
        "site_watts": None if site is None else site * point.accelerators,
        "tokens_per_joule": point.tokens_per_joule,
        "usd_per_million_tokens": point.usd_per_million_tokens,
        "marginal_tokens_per_second": point.marginal_tokens_per_second,
        "marginal_tokens_per_joule": point.marginal_tokens_per_joule,
        "marginal_usd_per_million_tokens": point.marginal_usd_per_million_tokens,
    }
    if point.gather_seconds and point.gather_latency is not None:
        metrics["gather_latency_share"] = point.gather_latency / point.gather_seconds
    if first is not None and point.feasible:
        rate = first.tokens_per_second_per_accelerator
        metrics["scaling_efficiency"] = point.tokens_per_second_per_accelerator / rate
        metrics["speedup"] = point.tokens_per_second / first.tokens_per_second
        if point.marginal_tokens_per_second is not None:
            metrics["marginal_return"] = point.marginal_tokens_per_second / rate
    return Row(
        experiment=name,
        axes=item.axes,
        metrics=metrics,
        strategy=point.strategy,
        interval=(point.low, point.high),
        infeasible=point.infeasible,
        point=point,
    )


def _collective_rows(
    experiment: Experiment, pairs: Sequence[tuple[Item, CollectiveAnswer]]
) -> list[Row]:
    """One row for each message."""
    rows: list[Row] = []
    messages = [parse(text, "bytes") for text in experiment.messages]
    for item, answer in pairs:
        assert isinstance(item.task, CollectiveTask)
        ranks = item.task.cluster.accelerators
        # nccl-tests: bus bandwidth is bytes/time x (n-1)/n, twice that for an all-reduce.
        moved = (ranks - 1) / ranks * (2.0 if item.task.collective == "all_reduce" else 1.0)
        for size, seconds in zip(messages, answer.seconds, strict=True):
            metrics: dict[str, float | None] = {"collective_seconds": seconds}
            if seconds > 0.0:
                metrics["bus_bandwidth"] = moved * size / seconds
            axes = {**item.axes, "message_bytes": int(size)}
            rows.append(Row(experiment=experiment.id, axes=axes, metrics=metrics))
    return rows


def _change_rows(experiment: Experiment, pairs: Sequence[tuple[Item, ChangesAnswer]]) -> list[Row]:
    """One row for each change."""
    rows: list[Row] = []
    for item, answer in pairs:
        if answer.missing is not None:
            rows.append(Row(experiment=experiment.id, axes=item.axes, infeasible=answer.missing))
        for each in answer.rows:
            rows.append(
                Row(
                    experiment=experiment.id,
                    axes={**item.axes, "change": f"{each.name}, {each.upgrade}"},
                    metrics={
                        "gain": each.gain,
                        "energy_gain": each.energy_gain,
                        "cost_gain": each.cost_gain,
                        "elasticity": each.elasticity,
                    },
                    strategy=each.strategy or answer.strategy,
                    note=each.note or each.means,
                )
            )
    return rows


_ROWS: dict[str, Callable[[Experiment, Any], list[Row]]] = {
    "scale": _step_rows,
    "collectives": _collective_rows,
    "sensitivity": _change_rows,
}
