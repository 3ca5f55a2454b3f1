"""What does the next accelerator buy? Weak and strong scaling of given strategies and of the best.

    rule = Rule(kind="weak", batch=2, sequence=4096)
    curves = scale(model, cluster, rule, ["fsdp", "best"], parse_sizes("8..2048"))
    curves.curves[0].points[-1].marginal_tokens_per_second
    curves.knees(), curves.crossovers

Results are data: `scalewise.report.curves` prints and draws them. A size that a strategy cannot
have is listed in `missing`; one that does not fit the memory is a point with its reason, and
takes no part in marginal values, knees and crossovers.
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
from scalewise.explore.sizes import MOST_SIZES, Rule, default_precision
from scalewise.explore.tasks import Priced, Task, price
from scalewise.explore.templates import Template, parse_template
from scalewise.model import Model
from scalewise.step.estimate import choose_stack
from scalewise.step.support import check_supported
from scalewise.step.terms import TERM_NAMES

if TYPE_CHECKING:
    from scalewise.explore.points import Crossover
    from scalewise.model import Convention
    from scalewise.stack import Stack

BY = ("time", "cost", "energy")
"""What the best strategy can be best in."""

Run: TypeAlias = Callable[[Sequence[Task], Callable[[Task], Priced]], Iterable[tuple[int, Priced]]]
"""Answers tasks in any order: pairs of a task's place and its answer."""

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
    run: Run | None = None,
) -> Curves:
    """Price strategies over sizes.

    Args:
        model: What is trained, one or several.
        cluster: On what, one or several; their own size does not matter.
        rule: What a step trains at every size; several that differ in the sequence.
        templates: Strategies without sizes. Where one names no micro batch, the largest is taken
            that reaches the batch and whose predicted memory fits, at each size anew. `best` is
            searched among all strategies, at each size anew.
        sizes: Numbers of accelerators.
        by: What `best` makes small: "time", "cost" or "energy".
        stack: Software; by default the best validated one for the device.
        convention: How the FLOPs of MFU are counted.
        run: Answers the tasks; by default one after the other.

    Returns:
        The curves. Crossovers between given strategies are enclosed more closely than the sizes
        asked for; those of `best`, which takes a search at each size, are not.

    Raises:
        InputError: If something is wrong at all sizes: names, precision, no or repeated inputs.
        UnsupportedModelError: If a model has parts that are not modelled.
    """
    models, machines, rules = _listed(model, Model), _listed(cluster, Cluster), _listed(rule, Rule)
    plans = [parse_template(each) if isinstance(each, str) else each for each in templates]
    ordered = tuple(sorted({int(size) for size in sizes}))
    _check(models, machines, rules, plans, ordered, by)
    tasks = [
        _task(one, machine, each, plan, stack, size, by, convention)
        for one, machine, each, plan in product(models, machines, rules, plans)
        for size in ordered
    ]
    answers: list[Priced | None] = [None] * len(tasks)
    for place, answer in (run or _one_by_one)(tasks, price):
        answers[place] = answer
    curves: list[Curve] = []
    for start in range(0, len(tasks), len(ordered)):
        curves.append(_curve(tasks[start], answers[start : start + len(ordered)]))
    warnings = dict.fromkeys(each for a in answers if a is not None for each in a.warnings)
    warnings |= dict.fromkeys(_part_filled(machines, ordered))
    return Curves(
        rules=tuple(rules),
        sizes=ordered,
        by=by,
        curves=tuple(curves),
        crossovers=_crossovers(curves, {_key(task): task for task in tasks}),
        warnings=tuple(warnings),
    )


def _one_by_one(
    tasks: Sequence[Task], function: Callable[[Task], Priced]
) -> Iterable[tuple[int, Priced]]:
    """The plain runner."""
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
    """Refuse what is wrong at all sizes."""
    for model in models:
        check_supported(model)
    _check_once("model", [model.name for model in models])
    _check_once("cluster", [machine.name for machine in machines])
    _check_once("sequence", [f"{rule.sequence:,}" for rule in rules])
    _check_once("strategy", [plan.label for plan in plans])
    if any(msgspec.structs.replace(rule, sequence=1) != msgspec.structs.replace(
        rules[0], sequence=1) for rule in rules):  # fmt: skip
        raise InputError(
            "rules differ in more than the sequence", hint="compare batches in calls of their own"
        )
    if not sizes or sizes[0] < 1 or len(sizes) > MOST_SIZES:
        raise InputError(
            f"sizes must be 1 to {MOST_SIZES} positive counts", hint="for example 8, 64, 512"
        )
    if by not in BY:
        raise InputError(f"objective {by!r} is not known", hint=did_you_mean(by, BY))
    for machine, rule in product(machines, rules):
        machine.accelerator.peak(rule.precision or default_precision(machine))
        lacking = {"cost": machine.usd_per_hour, "energy": machine.power_limit}.get(by, 1.0)
        if lacking is None and any(plan.limits is not None for plan in plans):
            what = "price" if by == "cost" else "power"
            raise InputError(
                f"cannot search by {by}: the {what} of {machine.name} is not known",
                hint="give it in the cluster, or search by time",
            )


def _check_once(what: str, given: Sequence[str]) -> None:
    """Refuse nothing, and the same thing twice: curves are told apart by these names."""
    if not given:
        raise InputError(f"there is no {what}", hint="give at least one")
    for name in given:
        if given.count(name) > 1:
            raise InputError(f"{what} {name} is given twice", hint="name each one once")


def _task(
    model: Model,
    machine: Cluster,
    rule: Rule,
    plan: Template,
    stack: Stack | str | None,
    size: int,
    by: str,
    convention: Convention,
) -> Task:
    software, _ = choose_stack(stack, machine, compiled=plan.base.compiled)
    return Task(
        model=model,
        cluster=machine.with_(accelerators=size),
        rule=rule,
        template=plan,
        stack=software,
        by=by,
        convention=convention,
    )


def _curve(task: Task, answers: Sequence[Priced | None]) -> Curve:
    """Join the answers to the tasks of one curve, of which one is given."""
    told = [answer for answer in answers if answer is not None]
    precision = task.rule.precision or default_precision(task.cluster)
    return Curve(
        label=task.template.label,
        model=task.model.name,
        cluster=task.cluster.name,
        sequence=task.rule.sequence,
        stack=task.stack.name,
        precision=task.template.base.precision or precision,
        points=join(_in_order(answer.point) for answer in told if answer.point is not None),
        missing=tuple(answer.missing for answer in told if answer.missing is not None),
    )


def _in_order(point: Point) -> Point:
    """Put the terms of a point into the order of their story: what keeps points may sort them."""
    terms = {name: point.terms[name] for name in TERM_NAMES if name in point.terms}
    return msgspec.structs.replace(point, terms=terms)


def _key(task: Task) -> tuple[str, str, int, str]:
    return task.model.name, task.cluster.name, task.rule.sequence, task.template.label


def _crossovers(
    curves: Sequence[Curve], tasks: dict[tuple[str, str, int, str], Task]
) -> tuple[Crossover, ...]:
    """Find crossovers, and enclose those of given strategies between the sizes asked for."""
    found: list[Crossover] = []
    for each in crossovers.find(curves):
        group = each.model, each.cluster, each.sequence
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
    """Say which sizes leave a scale-up domain filled in part: links are counted as if whole."""
    for machine in machines:
        domain = machine.scale_up_domain
        odd = [size for size in sizes if size > domain and size % domain]
        if odd:
            yield (
                f"{machine.name}: {', '.join(f'{size:,}' for size in odd)} accelerators are no "
                f"multiple of its scale-up domain of {domain}: the last domain is filled in part"
            )


__all__ = ["BY", "Run", "scale"]
