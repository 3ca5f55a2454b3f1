"""What is one point of a scaling curve? A question that stands alone, and the function it goes to.

    task = Task(model=model, cluster=cluster, rule=rule, template=template, stack=stack)
    price(task).point.tokens_per_second

A task carries its nouns whole and needs nothing else, so that a sweep is a list of tasks that any
machine can answer in any order. What a point gains over its neighbour is added later, by `join`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.cluster import Cluster
from scalewise.errors import InputError
from scalewise.explore.causes import gather_parts
from scalewise.explore.points import Missing, Point
from scalewise.explore.search import MEMORY, Search, search
from scalewise.explore.sizes import Rule
from scalewise.explore.templates import Template, choices
from scalewise.model import Convention, Model
from scalewise.stack import Stack
from scalewise.step.estimate import Estimates, estimate

if TYPE_CHECKING:
    from scalewise.step.result import Estimate
    from scalewise.workload import Workload

GIB = float(2**30)


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
    stack: Stack
    """Software, with all its constants."""
    by: str = "time"
    """What a search makes small: "time", "cost" or "energy"."""
    convention: Convention = "causal"
    """How the FLOPs of MFU are counted."""


class Priced(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer to a task: a point, or why there is none."""

    point: Point | None = None
    """What it costs, also where it does not fit the memory."""
    missing: Missing | None = None
    """Why the strategy cannot have this size."""
    warnings: tuple[str, ...] = ()
    """What to know before trusting the point."""


def price(task: Task) -> Priced:
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
        return _searched(task, workload)
    except InputError as error:
        return _missing(task, str(error))


def _filled(task: Task, workload: Workload) -> Priced:
    """Give the template its size, with the largest micro batch that fits the memory."""
    offered = choices(task.template, task.cluster.accelerators, workload.global_batch)
    kind: dict[str, Any] = {"stack": task.stack, "convention": task.convention}
    many = estimate(task.model, task.cluster, workload, offered, **kind)
    codes = np.broadcast_to(many.infeasible_code, (len(offered),)).astype(int)
    compiled = task.template.base.compiled
    if codes[0] not in (0, MEMORY) or compiled is not None or task.template.base.ep > 1:
        # Of arrays, what cannot be is only flagged; asked alone it is refused in a sentence.
        estimate(task.model, task.cluster, workload, offered[0], **kind)
    # By the predicted memory itself: its low end only says what certainly fails.
    capacity = np.broadcast_to(many.case.memory_bytes, (len(offered),))
    fits = np.flatnonzero((codes == 0) & (many.memory_bytes <= capacity))
    return _answer(many, int(fits[-1]) if len(fits) else 0)


def _searched(task: Task, workload: Workload) -> Priced:
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
    )
    if found.interrupted:
        # The best so far is good for one search, but one point of a curve cannot say so.
        raise KeyboardInterrupt
    if found.best is None:
        return _missing(task, _why_none(found))
    many = estimate(
        task.model,
        task.cluster,
        workload,
        [found.best.strategy],
        stack=task.stack,
        convention=task.convention,
    )
    return _answer(many, 0, examined=found.examined)


def _why_none(found: Search) -> str:
    """Say why a search found nothing."""
    if found.nearest is not None:
        e = found.nearest
        return (
            f"memory: none of {found.examined:,} strategies fits; the nearest is {e.strategy}, "
            f"which needs {e.memory_bytes / GIB:.1f} GiB of {e.memory_capacity / GIB:.1f} GiB"
        )
    if not found.infeasible:
        return "mesh: no strategy within the limits divides this size"
    reason, count = max(found.infeasible.items(), key=lambda item: item[1])
    return f"none of {found.examined:,} strategies can run, {count:,} of them because of {reason}"


def _missing(task: Task, reason: str) -> Priced:
    return Priced(missing=Missing(accelerators=task.cluster.accelerators, reason=reason))


def _answer(many: Estimates, row: int, *, examined: int | None = None) -> Priced:
    """Read one estimate as the answer to a task."""
    e = many[row]
    # Of tight memory the table speaks for itself, at every size anew.
    warnings = tuple(each for each in e.warnings if not each.startswith("memory"))
    point = point_of(e, parts=gather_parts(many, row), examined=examined)
    return Priced(point=point, warnings=warnings)


def point_of(
    e: Estimate, *, parts: tuple[float, float] | None = None, examined: int | None = None
) -> Point:
    """Read an estimate as a point that does not know its neighbours yet.

    Args:
        e: The estimate.
        parts: Seconds of a layer's gather and its latency, from `gather_parts`.
        examined: How many strategies were tried to find this one.
    """
    gather, latency = parts or (None, None)
    return Point(
        accelerators=e.cluster.accelerators,
        strategy=str(e.strategy),
        global_batch=e.workload.global_batch,
        micro_steps=e.micro_steps,
        step_seconds=e.step_seconds,
        terms=e.terms,
        tokens_per_second=e.tokens_per_second,
        tokens_per_second_per_accelerator=e.tokens_per_second_per_accelerator,
        low=e.low,
        high=e.high,
        mfu=e.mfu,
        exposed_share=e.exposed_share,
        contention_share=e.terms["contention"] / e.step_seconds,
        memory_bytes=e.memory_bytes,
        watts_per_accelerator=e.watts_per_accelerator,
        facility_watts_per_accelerator=e.facility_watts_per_accelerator,
        tokens_per_joule=e.tokens_per_joule,
        usd_per_million_tokens=e.usd_per_million_tokens,
        days=e.days,
        gather_seconds=gather,
        gather_latency=latency,
        examined=examined,
        infeasible=e.infeasible,
    )
