"""Weak and strong scaling of given strategies and of the best one.

    rule = Rule(kind="weak", batch=2, seq_len=4096)
    curves = scale(model, cluster, rule, ["fsdp", "best"], parse_sizes("8..2048"))
    curves.curves[0].points[-1].marginal_tokens_per_second
    curves.knees(), curves.crossovers

A size that a strategy cannot have is listed in `missing`. One that does not fit into memory is a
point with its reason, and is skipped in marginal values, knees and crossovers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import product
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from scalewise.cluster import Cluster
from scalewise.errors import InputError, did_you_mean
from scalewise.explore import crossovers
from scalewise.explore.points import Curve, Curves, Point, join
from scalewise.explore.sizes import MAX_SIZES, Rule, default_precision
from scalewise.explore.tasks import PointResult, Task, price
from scalewise.explore.templates import Template, parse_template
from scalewise.model import Model
from scalewise.price import mixed_kinds
from scalewise.software import choose_stack
from scalewise.step.estimate import CHOSEN_FIT
from scalewise.terms import TERMS

if TYPE_CHECKING:
    from scalewise.explore.points import Crossover
    from scalewise.model import Convention
    from scalewise.stack import Stack

BY = ("time", "cost", "energy")
"""Objectives of the best strategy."""

Run: TypeAlias = Callable[
    [Sequence[Task], Callable[[Task], PointResult]], Iterable[tuple[int, PointResult]]
]
"""Computes tasks in any order: pairs of a task's index and its result."""

_T = TypeVar("_T")


def scale(
    model: Model | Sequence[Model],
    cluster: Cluster | Sequence[Cluster],
    rule: Rule | Sequence[Rule],
    templates: Sequence[Template | str],
    sizes: Sequence[int],
    *,
    by: str = "time",
    stack: Stack | str | None = None,
    convention: Convention = "causal",
    fit: float = CHOSEN_FIT,
    exhaustive: bool = False,
    run: Run | None = None,
) -> Curves:
    """Evaluate strategies over sizes.

    Args:
        model: One or several models.
        cluster: One or several clusters; their own size does not matter.
        rule: Workload at every size; several differ in the sequence length.
        templates: Strategies without sizes. Without a micro-batch size, the largest is taken
            that reaches the batch and fits, at each size. `best` is the best of the usual
            strategies at each size, `best-tp2` the best of all that have TP 2.
        sizes: Numbers of GPUs.
        by: Objective of `best`: "time", "cost" or "energy".
        stack: Software; by default the usual one of each strategy.
        convention: FLOP convention of MFU.
        fit: Chance to fit into memory that chosen strategies need.
        exhaustive: Whether `best` is the best of all strategies.
        run: Computes the tasks; by default in this process, in order.

    Returns:
        The curves. Crossovers between given strategies are refined between the given sizes; those
        of `best`, which needs a search at each size, are not.

    Raises:
        InputError: If an input is invalid at all sizes: names, precision, no or repeated inputs.
    """
    models, machines, rules = _listed(model, Model), _listed(cluster, Cluster), _listed(rule, Rule)
    plans = [parse_template(each) if isinstance(each, str) else each for each in templates]
    ordered = tuple(sorted({int(size) for size in sizes}))
    _check(models, machines, rules, plans, ordered, by)
    tasks = [
        Task(
            model=one,
            cluster=machine.with_(accelerators=size),
            rule=each,
            template=plan,
            stack=_stack(stack, machine, plan),
            by=by,
            convention=convention,
            fit=fit,
            exhaustive=exhaustive,
        )
        for one, machine, each, plan in product(models, machines, rules, plans)
        for size in ordered
    ]
    answers: list[PointResult | None] = [None] * len(tasks)
    for place, answer in (run or _one_by_one)(tasks, price):
        answers[place] = answer
    curves: list[Curve] = []
    for start in range(0, len(tasks), len(ordered)):
        curves.append(_curve(tasks[start], answers[start : start + len(ordered)]))
    warnings = dict.fromkeys(each for a in answers if a is not None for each in a.warnings)
    warnings |= dict.fromkeys([*_part_filled(machines, ordered), *_price_kinds(machines)])
    return Curves(
        rules=tuple(rules),
        sizes=ordered,
        by=by,
        curves=tuple(curves),
        crossovers=_crossovers(curves, {_key(task): task for task in tasks}),
        warnings=tuple(warnings),
    )


def _one_by_one(
    tasks: Sequence[Task], function: Callable[[Task], PointResult]
) -> Iterable[tuple[int, PointResult]]:
    """Compute tasks in this process."""
    return enumerate(map(function, tasks))


def _listed(given: _T | Sequence[_T], kind: type[_T]) -> list[_T]:
    return [given] if isinstance(given, kind) else list(given)  # type: ignore[arg-type]


def _check(
    models: Sequence[Model],
    machines: Sequence[Cluster],
    rules: Sequence[Rule],
    plans: Sequence[Template],
    sizes: Sequence[int],
    by: str,
) -> None:
    """Reject inputs that are invalid at all sizes."""
    _check_once("model", [model.name for model in models])
    _check_once("cluster", [machine.name for machine in machines])
    _check_once("sequence length", [f"{rule.seq_len:,}" for rule in rules])
    _check_once("strategy", [plan.label for plan in plans])
    if any(msgspec.structs.replace(rule, seq_len=1) != msgspec.structs.replace(
        rules[0], seq_len=1) for rule in rules):  # fmt: skip
        raise InputError("rules differ in more than seq_len", hint="use one call per batch")
    if not sizes or sizes[0] < 1 or len(sizes) > MAX_SIZES:
        raise InputError(
            f"sizes must be 1 to {MAX_SIZES} positive numbers", hint="for example 8, 64, 512"
        )
    if by not in BY:
        raise InputError(f"unknown objective {by}", hint=did_you_mean(by, BY))
    for machine, rule in product(machines, rules):
        machine.accelerator.peak(rule.precision or default_precision(machine))
        lacking = {"cost": machine.usd_per_hour, "energy": machine.power_limit}.get(by, 1.0)
        if lacking is None and any(plan.limits is not None for plan in plans):
            what = "cost" if by == "cost" else "power"
            raise InputError(
                f"--by {by}: the {what} of {machine.name} is unknown",
                hint="--price 2.5, or --by time" if by == "cost" else "--by time",
            )


def _check_once(what: str, given: Sequence[str]) -> None:
    """Check that names are given, each once: they identify curves."""
    if not given:
        raise InputError(f"no {what} is given", hint="give at least one")
    for name in given:
        if given.count(name) > 1:
            raise InputError(f"{what} {name} is given twice", hint="give it once")


def _stack(stack: Stack | str | None, machine: Cluster, plan: Template) -> Stack | None:
    """Return the named software."""
    if stack is None:
        return None
    return choose_stack(stack, machine, compiled=plan.base.compiled).stack


def _curve(task: Task, answers: Sequence[PointResult | None]) -> Curve:
    """Return a curve from the results of its tasks."""
    results = [answer for answer in answers if answer is not None]
    found = [_in_order(result.point) for result in results if result.point is not None]
    precision = task.rule.precision or default_precision(task.cluster)
    return Curve(
        label=task.template.label,
        model=task.model.name,
        cluster=task.cluster.name,
        seq_len=task.rule.seq_len,
        stack=", ".join(sorted({point.stack for point in found})),
        precision=task.template.base.precision or precision,
        parameters=task.model.parameters,
        kind=task.cluster.accelerator.kind,
        points=join(found),
        missing=tuple(result.missing for result in results if result.missing is not None),
    )


def _in_order(point: Point) -> Point:
    """Sort the terms of a point by their table; a store may have sorted them otherwise."""
    terms = {name: point.terms[name] for name in TERMS if name in point.terms}
    return msgspec.structs.replace(point, terms=terms)


def _key(task: Task) -> tuple[str, str, int, str]:
    return task.model.name, task.cluster.name, task.rule.seq_len, task.template.label


def _crossovers(
    curves: Sequence[Curve], tasks: dict[tuple[str, str, int, str], Task]
) -> tuple[Crossover, ...]:
    """Return crossovers, refined for given strategies."""
    found: list[Crossover] = []
    for each in crossovers.find(curves):
        group = each.model, each.cluster, each.seq_len
        winner, loser = tasks[(*group, each.winner)], tasks[(*group, each.loser)]
        pair = (winner.template, loser.template)
        if any(plan.limits is not None or plan.fixed for plan in pair):
            found.append(each)
            continue
        known = {winner.template.label: winner, loser.template.label: loser}

        def priced(plan: Template, size: int, known: dict[str, Task] = known) -> Point | None:
            task = known[plan.label]
            sized = task.cluster.with_(accelerators=size)
            point = price(msgspec.structs.replace(task, cluster=sized)).point
            return point if point is not None and point.feasible else None

        inside = crossovers.between(each, winner.cluster, winner.rule, pair)
        found.append(crossovers.refine(each, *pair, inside, priced))
    return tuple(sorted(found, key=lambda each: each.accelerators))


def _part_filled(machines: Iterable[Cluster], sizes: Sequence[int]) -> Iterable[str]:
    """Yield warnings about sizes with a partly filled scale-up domain: its links count as full."""
    for machine in machines:
        domain = machine.scale_up_domain
        odd = [size for size in sizes if size > domain and size % domain]
        if odd:
            yield (
                f"{machine.name}: {', '.join(f'{size:,}' for size in odd)} GPUs are no "
                f"multiple of its scale-up domain of {domain}: the last domain is filled in part"
            )


def _price_kinds(machines: Iterable[Cluster]) -> Iterable[str]:
    """Yield a warning where costs of clusters have prices of different kinds."""
    if found := mixed_kinds((each.name, each.price) for each in machines if each.price is not None):
        yield f"different kinds of price: {found}; their costs are not comparable"


__all__ = ["BY", "Run", "scale"]
