"""One point of a scaling curve: a question that stands alone, and the function that answers it.

    task = Task(model=model, cluster=cluster, rule=rule, template=template, stack=stack)
    price(task).point.tokens_per_second

A task carries its nouns whole and needs nothing else, so that a sweep is a list of tasks that any
machine can answer in any order. What a point gains over its neighbor is added later, by `join`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.cluster import Cluster
from scalewise.errors import InputError
from scalewise.explore.causes import gather_parts
from scalewise.explore.points import InfeasibleSize, Point
from scalewise.explore.search import Search, search
from scalewise.explore.sizes import Rule
from scalewise.explore.templates import BEST, Template, choices
from scalewise.explore.usual import usual
from scalewise.model import Convention, Model
from scalewise.stack import Stack
from scalewise.step.estimate import CHOSEN_FIT, Estimates, estimate
from scalewise.step.feasibility import OUT_OF_MEMORY
from scalewise.units import GIB

if TYPE_CHECKING:
    from scalewise.step.result import Estimate
    from scalewise.workload import Workload


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy, or the best one, at one size."""

    model: Model
    """What is trained."""
    cluster: Cluster
    """On what, at its size."""
    rule: Rule
    """What a step trains there."""
    template: Template
    """How the work is split, or what a search may try."""
    stack: Stack | None
    """Software, with all its constants; None for the usual one of each strategy."""
    by: str = "time"
    """What a search makes small: "time", "cost" or "energy"."""
    convention: Convention = "causal"
    """How the FLOPs of MFU are counted."""
    fit: float = CHOSEN_FIT
    """Chance to fit into memory that is demanded of what is chosen here."""
    exhaustive: bool = False
    """Whether `best` is the best of all strategies, and not of the usual ones."""


class PointResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to a task: a point, or why there is none."""

    point: Point | None = None
    """What it costs, also where it does not fit the memory."""
    missing: InfeasibleSize | None = None
    """Why the strategy cannot have this size."""
    warnings: tuple[str, ...] = ()
    """What to know before trusting the point."""


def price(task: Task) -> PointResult:
    """Answer one task.

    Args:
        task: The question.

    Returns:
        The point without marginal values, or the reason why there is none.
    """
    try:
        workload = task.rule.at(task.cluster)
        if task.template.limits is None:
            return _filled(task, workload)
        if task.template.label == BEST and not task.exhaustive:
            return _usual(task, workload)
        return _searched(task, workload)
    except InputError as error:
        return _missing(task, str(error))


def _filled(task: Task, workload: Workload) -> PointResult:
    """Give the template its size, with the largest micro-batch that fits the memory."""
    offered = choices(task.template, task.cluster.accelerators, workload.global_batch)
    kind: dict[str, Any] = {"stack": task.stack, "convention": task.convention}
    many = estimate(task.model, task.cluster, workload, offered, fit=task.fit, **kind)
    codes = np.broadcast_to(many.infeasible_code, (len(offered),)).astype(int)
    compiled = task.template.base.compiled
    if codes[0] not in (0, OUT_OF_MEMORY) or compiled is not None or task.template.base.ep > 1:
        # Of arrays, what cannot be is only flagged; asked alone it is refused in a sentence.
        estimate(task.model, task.cluster, workload, offered[0], **kind)
    fits = np.flatnonzero(codes == 0)
    if not len(fits) or task.template.has_micro_batch:
        # What the user names has to fit as predicted only.
        many = estimate(task.model, task.cluster, workload, offered[:1], **kind)
        return _answer(many, 0)
    return _answer(many, int(fits[-1]))


def _usual(task: Task, workload: Workload) -> PointResult:
    """Take the best of the usual strategies."""
    of = (task.model, task.cluster, workload)
    choice = usual(*of, task.stack, by=task.by, convention=task.convention, fit=task.fit)
    e = choice.estimate
    if not e.feasible:
        return _missing(task, _none_fits(e, choice.evaluated))
    return _answer(e.many, e.row, evaluated=choice.evaluated)


def _searched(task: Task, workload: Workload) -> PointResult:
    """Try every strategy and take the best."""
    found = search(
        task.model,
        task.cluster,
        workload,
        limits=task.template.limits,
        by=task.by,
        top=1,
        stack=task.stack,
        convention=task.convention,
        fit=task.fit,
    ).whole()
    if found.best is None:
        return _missing(task, _why_none(found))
    many = estimate(
        task.model,
        task.cluster,
        workload,
        [found.best.strategy],
        stack=task.stack,
        convention=task.convention,
        fit=task.fit,
    )
    return _answer(many, 0, evaluated=found.evaluated)


def _why_none(found: Search) -> str:
    """Return why a search found nothing."""
    if found.nearest is not None:
        return _none_fits(found.nearest, found.evaluated)
    if not found.infeasible:
        return "mesh: no strategy within the limits divides this size"
    reason, count = max(found.infeasible.items(), key=lambda item: item[1])
    return f"none of {found.evaluated:,} strategies can run, {count:,} of them because of {reason}"


def _none_fits(nearest: Estimate, evaluated: int) -> str:
    return (
        f"memory: none of {evaluated:,} strategies fits; the nearest is {nearest.strategy}, which "
        f"needs {nearest.memory_bytes / GIB:.1f} GiB of {nearest.memory_capacity / GIB:.1f} GiB"
    )


def _missing(task: Task, reason: str) -> PointResult:
    return PointResult(
        missing=InfeasibleSize(accelerators=task.cluster.accelerators, reason=reason)
    )


def _answer(many: Estimates, row: int, *, evaluated: int | None = None) -> PointResult:
    """Read one estimate as the answer to a task."""
    e = many[row]
    point = point_of(e, parts=gather_parts(many, row), evaluated=evaluated)
    return PointResult(point=point, warnings=e.warnings)


def point_of(
    e: Estimate, *, parts: tuple[float, float] | None = None, evaluated: int | None = None
) -> Point:
    """Read an estimate as a point that does not know its neighbors yet.

    Args:
        e: The estimate.
        parts: Seconds of a layer's gather and its latency, from `gather_parts`.
        evaluated: How many strategies were tried to find this one.
    """
    gather, latency = parts or (None, None)
    days_low, days_high = e.days_interval or (None, None)
    run, statistical = e.goodput, e.statistical
    fraction = None if statistical is None else statistical.fraction
    rate, each = e.tokens_per_second, e.tokens_per_second_per_accelerator
    return Point(
        accelerators=e.cluster.accelerators,
        strategy=str(e.strategy),
        stack=e.stack.name,
        global_batch=e.workload.global_batch,
        num_microbatches=e.num_microbatches,
        step_seconds=e.step_seconds,
        terms=e.terms,
        tokens_per_second=e.tokens_per_second,
        tokens_per_second_per_accelerator=e.tokens_per_second_per_accelerator,
        low=e.low,
        high=e.high,
        mfu=e.mfu,
        exposed_fraction=e.exposed_fraction,
        contention_share=e.contention_share,
        memory_bytes=e.memory_bytes,
        fit=e.fit,
        watts_per_accelerator=e.watts_per_accelerator,
        facility_watts_per_accelerator=e.facility_watts_per_accelerator,
        tokens_per_joule=e.tokens_per_joule,
        usd_per_million_tokens=e.usd_per_million_tokens,
        days=e.days,
        days_low=days_low,
        days_high=days_high,
        run_usd=e.run_usd,
        run_joules=e.run_joules,
        goodput=None if run is None else run.fraction,
        goodput_low=None if run is None else run.low,
        goodput_high=None if run is None else run.high,
        checkpoint_interval=None if run is None else run.interval,
        statistical_efficiency=fraction,
        statistical_low=None if statistical is None else statistical.low,
        statistical_high=None if statistical is None else statistical.high,
        effective_tokens_per_second=None if fraction is None else fraction * rate,
        effective_tokens_per_second_per_accelerator=None if fraction is None else fraction * each,
        all_gather_seconds=gather,
        all_gather_latency=latency,
        evaluated=evaluated,
        infeasible=e.infeasible,
        family=e.basis.family,
        chip=e.basis.chip,
        beyond=e.basis.beyond,
    )
