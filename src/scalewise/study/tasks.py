"""What is one point of a study? A question that stands alone, and the function that answers it.

    answer = price_step(Task(...))            # a training step, with all that a study reads off
    time_collectives(CollectiveTask(...))     # one collective at one size, for several messages
    find_changes(ChangesTask(...))            # what each change of a cluster would bring

Tasks carry their nouns whole, so that any process or machine can answer them in any order, and
that a store knows them again in another study.
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
from scalewise.explore.tasks import Priced, Task, price
from scalewise.explore.templates import Template, fill
from scalewise.model import Model
from scalewise.physics import collectives as physics
from scalewise.stack import Stack
from scalewise.step.case import Case
from scalewise.step.estimate import choose_stack, estimate
from scalewise.step.groups import links, shard_group
from scalewise.strategies import Strategies
from scalewise.strategy import Strategy, parse_strategy
from scalewise.workload import Workload


class StepAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a training step costs, beyond what a scaling curve needs."""

    priced: Priced
    """The point, or why there is none."""
    load_seconds: float | None = None
    """Communication of one rank in a step, hidden or not, seconds."""
    tflops: float | None = None
    """Model TFLOP/s per accelerator."""
    hfu: float | None = None
    """Model and recomputed FLOP/s over peak."""
    provenance: dict[str, str] = {}
    """Where the numbers behind each part came from."""


class CollectiveTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One collective over all accelerators of a cluster."""

    cluster: Cluster
    """At its size, with its algorithm."""
    collective: str
    """all_gather, reduce_scatter or all_reduce."""
    messages: tuple[float, ...]
    """Sizes of the whole buffer, bytes."""


class CollectiveAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long it takes."""

    seconds: tuple[float, ...]
    """By message."""


class ChangesTask(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy at one size, whose cluster is changed."""

    model: Model
    """What is trained."""
    cluster: Cluster
    """On what, at its size."""
    rule: Rule
    """What a step trains there."""
    template: Template
    """How the work is split; a template to be searched stands for the best strategy."""
    stack: Stack
    """Software, with all its constants."""
    factor: float = 2.0
    """Of the finite changes."""
    reoptimise: bool = False
    """Whether the best strategy is found again after every change."""


class ChangesAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the changes bring, or why nothing can be said."""

    strategy: str = ""
    """What runs today."""
    rows: tuple[Sensitivity, ...] = ()
    """One for each change, the largest gain first."""
    missing: str | None = None
    """Why there is none."""


def price_step(task: Task) -> StepAnswer:
    """Answer one training step."""
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
        load_seconds=sum(e.load.values()),
        tflops=e.tflops,
        hfu=e.hfu,
        provenance=e.provenance,
    )


def time_collectives(task: CollectiveTask) -> CollectiveAnswer:
    """Time one collective for all messages."""
    case = _case(task.cluster)
    wires, group = links(case), shard_group(case)
    sizes = np.asarray(task.messages, dtype=float)
    if task.collective == "all_reduce":
        seconds = [float(np.ravel(physics.all_reduce_seconds(s, group, wires))[0]) for s in sizes]
    else:
        seconds = [float(np.ravel(physics.gather_seconds(s, group, wires))[0]) for s in sizes]
    return CollectiveAnswer(seconds=tuple(seconds))


def find_changes(task: ChangesTask) -> ChangesAnswer:
    """Try every change of a cluster alone."""
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
            reoptimise=task.reoptimise,
            limits=task.template.limits,
        )
    except InputError as error:
        return ChangesAnswer(missing=str(error))
    if found.infeasible is not None:
        return ChangesAnswer(strategy=str(found.today.strategy), missing=found.infeasible)
    return ChangesAnswer(strategy=str(found.today.strategy), rows=tuple(found.rows))


@lru_cache(maxsize=256)
def _case(cluster: Cluster) -> Case:
    """Lay a group over the whole cluster, as a step would; what is trained does not matter."""
    model = Model(name="none", layers=1, hidden=128, heads=1, ffn=128, vocab=128)
    stack, _ = choose_stack(None, cluster, compiled=None)
    strategy = Strategy(dp_shard=cluster.accelerators)
    workload = Workload(
        sequence=128,
        global_batch=cluster.accelerators,
        precision="bf16" if "bf16" in cluster.accelerator.peak_flops else "fp16",
    )
    chip = load_chip(cluster.accelerator.architecture)
    return Case.of(model, cluster, workload, Strategies.of([strategy]), stack, chip)
