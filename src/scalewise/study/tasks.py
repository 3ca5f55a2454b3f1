"""Points of a study: self-contained tasks, and the functions that compute them.

    answer = evaluate_step(Task(...))         # a training step, with all metrics of a study
    time_collectives(CollectiveTask(...))     # one collective at one size, for several messages
    find_changes(ChangesTask(...))            # the gain of each change of a cluster

Tasks contain their whole inputs, so that any process or machine can compute them in any order, and
a store recognizes them in another study.
"""

from __future__ import annotations

from functools import lru_cache

import msgspec
import numpy as np

from scalewise.chip import load_chip
from scalewise.cluster import Cluster
from scalewise.errors import InputError
from scalewise.explore.sensitivity import Sensitivity, sensitivity
from scalewise.explore.sizes import Rule
from scalewise.explore.tasks import PointResult, Task, price
from scalewise.explore.templates import Template, fill
from scalewise.model import Model
from scalewise.numeric import scalar
from scalewise.physics import collectives as physics
from scalewise.software import choose_stack
from scalewise.stack import Stack
from scalewise.step.case import Case
from scalewise.step.estimate import estimate
from scalewise.step.groups import shard_group
from scalewise.step.layout import lay_out
from scalewise.strategies import Strategies
from scalewise.strategy import Strategy, parse_strategy
from scalewise.workload import Workload


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A training step, with more metrics than a scaling curve needs."""

    priced: PointResult
    """The point, or the reason why there is none."""
    comm_seconds: float | None = None
    """Communication of one rank in a step, overlapped and exposed, seconds."""
    tflops: float | None = None
    """Model TFLOP/s per GPU."""
    hfu: float | None = None
    """Model and recomputed FLOP/s over peak."""
    provenance: dict[str, str] = {}
    """Sources of the numbers, by part."""


class CollectiveTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One collective over all GPUs of a cluster."""

    cluster: Cluster
    """Cluster at its size, with its algorithm."""
    collective: str
    """all_gather, reduce_scatter or all_reduce."""
    messages: tuple[float, ...]
    """Sizes of the whole buffer, bytes."""


class CollectiveAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Times of a collective."""

    seconds: tuple[float, ...]
    """By message, seconds."""


class ChangesTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy at one size, whose cluster is changed."""

    model: Model
    """Model."""
    cluster: Cluster
    """Cluster at its size."""
    rule: Rule
    """Workload of a step."""
    template: Template
    """How the work is split; a template to be searched stands for the best strategy."""
    stack: Stack | None
    """Software, with all its constants."""
    factor: float = 2.0
    """Factor of finite changes."""
    reoptimize: bool = False
    """Whether the best strategy is searched again after every change."""


class ChangesAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Gains of the changes, or the reason why there are none."""

    strategy: str = ""
    """The unchanged point."""
    rows: tuple[Sensitivity, ...] = ()
    """One per change, the largest gain first."""
    missing: str | None = None
    """Why there is none."""


def evaluate_step(task: Task) -> StepAnswer:
    """Return the result of one training step."""
    priced = price(task)
    if priced.point is None:
        return StepAnswer(priced=priced)
    e = estimate(
        task.model,
        task.cluster,
        task.rule.at(task.cluster),
        parse_strategy(priced.point.strategy),
        stack=task.stack,
        convention=task.convention,
    )
    return StepAnswer(
        priced=priced,
        comm_seconds=sum(e.comm_seconds.values()),
        tflops=e.tflops,
        hfu=e.hfu,
        provenance=e.provenance,
    )


def time_collectives(task: CollectiveTask) -> CollectiveAnswer:
    """Return the times of one collective for all messages."""
    case = _case(task.cluster)
    group = shard_group(case.split)
    seconds = {
        "all_reduce": physics.all_reduce_seconds,
        "reduce_scatter": physics.reduce_scatter_seconds,
    }.get(task.collective, physics.all_gather_seconds)
    sizes = np.asarray(task.messages, dtype=float)
    return CollectiveAnswer(seconds=tuple(scalar(seconds(s, group, case.links)) for s in sizes))


def find_changes(task: ChangesTask) -> ChangesAnswer:
    """Return the gain of every change of a cluster, one at a time."""
    try:
        workload = task.rule.at(task.cluster)
        strategy = None
        if task.template.limits is None:
            strategy = fill(task.template, task.cluster.accelerators, workload.global_batch)
        found = sensitivity(
            task.model,
            task.cluster,
            workload,
            strategy,
            stack=task.stack,
            factor=task.factor,
            reoptimize=task.reoptimize,
            limits=task.template.limits,
        )
    except InputError as error:
        return ChangesAnswer(missing=str(error))
    if found.infeasible is not None:
        return ChangesAnswer(strategy=str(found.today.strategy), missing=found.infeasible)
    return ChangesAnswer(strategy=str(found.today.strategy), rows=tuple(found.rows))


@lru_cache(maxsize=256)
def _case(cluster: Cluster) -> Case:
    """Return a group over the whole cluster, as in a step; the model does not matter."""
    model = Model(name="none", layers=1, hidden=128, heads=1, ffn=128, vocab=128)
    stack = choose_stack(None, cluster).stack
    strategy = Strategy(dp_shard=cluster.accelerators)
    workload = Workload(
        seq_len=128,
        global_batch=cluster.accelerators,
        precision="bf16" if "bf16" in cluster.accelerator.peak_flops else "fp16",
    )
    chip = load_chip(cluster.accelerator.architecture)
    return lay_out(model, cluster, workload, Strategies.of([strategy]), stack, chip)
