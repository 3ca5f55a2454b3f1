"""Execution of a study: all its tasks in sweeps, then one table.

    answer = run_study(load_study("hardware-scaling-trends"))
    answer.rows, answer.verdicts

`runner` determines where tasks are computed and results stored, see `scalewise.sweep`. A killed
study resumes, and two studies share their common points.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from scalewise.explore.points import Point, join
from scalewise.metrics import METRICS
from scalewise.strategy import parse_strategy
from scalewise.study.claims import Judged, judge
from scalewise.study.files import Claim, Experiment, Study
from scalewise.study.judging import MeasuredAnswer
from scalewise.study.plan import THIS_MACHINE, Item, cases_of, plan, predictable
from scalewise.study.rows import Row
from scalewise.study.tasks import (
    ChangesAnswer,
    CollectiveAnswer,
    CollectiveTask,
    StepAnswer,
    evaluate_step,
    find_changes,
    time_collectives,
)
from scalewise.units import parse

R = TypeVar("R")


class Runner(Protocol):
    """Computes a list of tasks, yielding (position, result) as they finish."""

    def __call__(
        self, tasks: Iterable[Any], function: Callable[[Any], R], result_type: Any
    ) -> Iterator[tuple[int, R]]:
        """See `scalewise.sweep.run.run`."""
        ...


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Results of a study."""

    study: Study
    """The study."""
    rows: list[Row]
    """All points of all experiments, in order."""
    verdicts: list[Judged]
    """One per claim, in order."""
    warnings: dict[str, list[str]] = field(default_factory=dict)
    """Warnings, each once, with the experiments it concerns."""
    provenance: dict[str, list[str]] = field(default_factory=dict)
    """Sources of the numbers, by part."""
    seconds: float = 0.0
    """Duration, seconds."""
    measured: MeasuredAnswer | None = None
    """The same points and claims as measured, if there are records."""

    def of(self, experiment: Experiment | str) -> list[Row]:
        """Return the rows of one experiment."""
        name = experiment if isinstance(experiment, str) else experiment.id
        return [row for row in self.rows if row.experiment == name]

    @property
    def empty(self) -> list[str]:
        """Return the experiments none of whose points can run."""
        return [
            each.id
            for each in self.study.experiments
            if predictable(each) and not any(row.feasible for row in self.of(each))
        ]

    @property
    def unpredicted(self) -> list[str]:
        """Return the experiments about a machine without a calibration: measured only."""
        return [each.id for each in self.study.experiments if not predictable(each)]

    def drawn(self, experiment: Experiment | str) -> Sequence[Row]:
        """Return the rows of figures and tables: predicted, else measured ones."""
        rows = self.of(experiment)
        return rows if rows or self.measured is None else self.measured.found.of(experiment)


def run_study(
    study: Study, runner: Runner | None = None, measured: MeasuredAnswer | None = None
) -> Answer:
    """Run a study.

    Args:
        study: The study.
        runner: Where tasks are computed; by default in this process, in order.
        measured: Its measured points, if there are records.

    Raises:
        InputError: If a name in the study is unknown.
    """
    began = time.perf_counter()
    compute = runner or _one_by_one
    plans = {each.id: plan(each) for each in study.experiments}
    answers: dict[int, Any] = {}
    kinds: tuple[tuple[str, Callable[[Any], Any], type], ...] = (
        ("collectives", time_collectives, CollectiveAnswer),
        ("scale", evaluate_step, StepAnswer),
        ("sensitivity", find_changes, ChangesAnswer),
    )
    for kind, function, result_type in kinds:
        items = [item for e in study.experiments if e.kind == kind for item in plans[e.id]]
        # A runner without tasks would print an empty progress bar.
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
            _judged(claim, experiment, [row for row in rows if row.experiment == experiment.id])
            for experiment in study.experiments
            for claim in experiment.claims
        ],
        warnings=warnings,
        provenance=provenance,
        seconds=time.perf_counter() - began,
        measured=measured,
    )


def _judged(claim: Claim, experiment: Experiment, rows: Sequence[Row]) -> Judged:
    """Return the verdict of predictions, which need a calibration of the machine."""
    judged = judge(claim, experiment, rows)
    if predictable(experiment):
        return judged
    why = f"Not predicted: the catalog has no calibration {THIS_MACHINE}."
    return replace(judged, verdict="not judged", why=why)


def _one_by_one(
    tasks: Iterable[Any], function: Callable[[Any], R], result_type: Any
) -> Iterator[tuple[int, R]]:
    """Compute tasks in this process."""
    del result_type
    return iter(enumerate(map(function, tasks)))


def _note(into: dict[str, list[str]], key: str, value: str) -> None:
    if value not in into.setdefault(key, []):
        into[key].append(value)


def _step_rows(experiment: Experiment, pairs: Sequence[tuple[Item, StepAnswer]]) -> list[Row]:
    """Yield one row per size of each curve, with its marginal values."""
    curves: dict[tuple[Any, ...], list[tuple[Item, StepAnswer]]] = {}
    for item, answer in _fastest(experiment, pairs):
        key = tuple(v for k, v in item.axes.items() if k not in ("accelerators", "nodes"))
        curves.setdefault(key, []).append((item, answer))
    rows: list[Row] = []
    for curve in curves.values():
        lines = [answer.priced.point for _, answer in curve if answer.priced.point is not None]
        joined = {point.accelerators: point for point in join(lines)}
        first = next((point for point in joined.values() if point.feasible), None)
        for item, answer in curve:
            point = joined.get(int(item.axes["accelerators"]))
            rows.append(_step_row(experiment.id, item, answer, point, first))
    return rows


def _fastest(
    experiment: Experiment, pairs: Sequence[tuple[Item, StepAnswer]]
) -> list[tuple[Item, StepAnswer]]:
    """Return the fastest of the points that differ only in the axes of `best_over`.

    It has the tokens that all their strategies share for a name: "fsdp-tp2" of "fsdp-tp2-mb1" and
    "fsdp-tp2-mb2".
    """
    over = {name: case.best_over for name, case in cases_of(experiment).items()}
    groups: dict[tuple[Any, ...], list[tuple[Item, StepAnswer]]] = {}
    for item, answer in pairs:
        left_out = over[str(item.axes.get("case", ""))]
        # With the strategy left out, its degrees remain: they are axes of their own.
        groups.setdefault(
            tuple((k, v) for k, v in item.axes.items() if k not in left_out), []
        ).append((item, answer))
    found = []
    for key, group in groups.items():
        item, answer = max(group, key=lambda pair: _speed(pair[1]))
        if "strategy" not in dict(key):
            words = [str(each.axes["strategy"]).split("-") for each, _ in group]
            shared = [word for word in words[0] if all(word in each for each in words)]
            item = Item({**dict(key), "strategy": "-".join(shared)}, item.task)
        found.append((item, answer))
    return found


def _speed(answer: StepAnswer) -> float:
    """Return tokens/s, or nothing for what cannot run."""
    point = answer.priced.point
    return point.tokens_per_second if point is not None and point.feasible else -1.0


def _step_row(
    name: str, item: Item, answer: StepAnswer, point: Point | None, first: Point | None
) -> Row:
    if point is None or answer.comm_seconds is None:
        missing = answer.priced.missing
        reason = missing.reason if missing is not None else "no point"
        return Row(experiment=name, axes=item.axes, infeasible=reason)
    strategy = parse_strategy(point.strategy)
    exposed = point.exposed_fraction * point.step_seconds
    load = answer.comm_seconds
    watts, site = point.watts_per_accelerator, point.facility_watts_per_accelerator
    rate, joule = point.tokens_per_second_per_accelerator, point.tokens_per_joule
    metrics: dict[str, float | None] = {
        name: getattr(point, name) for name in METRICS if hasattr(point, name)
    }
    metrics |= {
        "tflops_per_accelerator": answer.tflops,
        "hfu": answer.hfu,
        "accelerator_seconds_per_token": 1.0 / rate,
        "comm_fraction": load / point.step_seconds,
        "communication_share": point.exposed_fraction + point.contention_share,
        "hidden_share": 1.0 - min(exposed / load, 1.0) if load > 0.0 else None,
        "exposed_contention_share": (exposed + point.contention_share * point.step_seconds) / load
        if load > 0.0
        else None,
        "bubble_share": point.terms.get("bubble", 0.0) / point.step_seconds,
        "site_watts": None if site is None else site * point.accelerators,
        "joules_per_token": None if joule is None else 1.0 / joule,
        "tokens_per_device_joule": None if watts is None else rate / watts,
        "ep_share": point.terms.get("expert_parallel", 0.0) / point.step_seconds,
        **{f"{name}_degree": float(getattr(strategy, name)) for name in ("tp", "pp", "cp", "ep")},
    }
    if point.all_gather_seconds and point.all_gather_latency is not None:
        metrics["gather_latency_share"] = point.all_gather_latency / point.all_gather_seconds
    if first is not None and point.feasible:
        smallest = first.tokens_per_second_per_accelerator
        metrics["scaling_efficiency"] = rate / smallest
        metrics["speedup"] = point.tokens_per_second / first.tokens_per_second
        if point.marginal_tokens_per_second is not None:
            metrics["marginal_return"] = point.marginal_tokens_per_second / smallest
        if point.marginal_tokens_per_joule is not None and first.tokens_per_joule:
            metrics["marginal_joule_return"] = (
                point.marginal_tokens_per_joule / first.tokens_per_joule
            )
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
    """Yield one row per message."""
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
    """Yield one row per change."""
    rows: list[Row] = []
    for item, answer in pairs:
        if answer.missing is not None:
            rows.append(Row(experiment=experiment.id, axes=item.axes, infeasible=answer.missing))
        for each in answer.rows:
            rows.append(
                Row(
                    experiment=experiment.id,
                    axes={**item.axes, "change": f"{each.name}, {each.upgrade}"},
                    metrics={name: getattr(each, name) for name in METRICS if hasattr(each, name)},
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
