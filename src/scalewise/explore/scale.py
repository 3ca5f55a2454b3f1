"""What does the next accelerator buy? Weak and strong scaling curves of fixed strategies.

    rule = Rule(kind="weak", batch=2, sequence=4096)
    curves = scale(model, cluster, rule, ["fsdp", "hsdp64"], parse_sizes("8..2048"))
    curves.curves[0].points[-1].marginal_tokens_per_second
    knee(curves.curves[0]), curves.crossovers()

Results are data: `scalewise.report.curves` prints and draws them. A size that a strategy cannot
have is listed in `missing`; one that does not fit the memory is a point with its reason, and
takes no part in marginal values, knees and crossovers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from scalewise.cluster import Cluster
from scalewise.errors import InputError
from scalewise.explore.points import Curve, Curves, Missing, Point, join, knee
from scalewise.explore.sizes import (
    MOST_SIZES,
    Rule,
    Template,
    choices,
    default_precision,
    parse_template,
)
from scalewise.stack import Stack
from scalewise.step.estimate import choose_stack, estimate
from scalewise.step.support import check_supported

if TYPE_CHECKING:
    from scalewise.model import Convention, Model
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload


def scale(
    model: Model,
    cluster: Cluster | Sequence[Cluster],
    rule: Rule,
    templates: Sequence[Template | str],
    sizes: Sequence[int],
    *,
    stack: Stack | str | None = None,
    convention: Convention = "causal",
) -> Curves:
    """Price strategies over sizes.

    Args:
        model: What is trained.
        cluster: On what, one or several; their own size does not matter.
        rule: What a step trains at every size.
        templates: Strategies without sizes. Where one names no micro batch, the largest is taken
            that reaches the batch and whose predicted memory fits, at each size anew.
        sizes: Numbers of accelerators.
        stack: Software; by default the best validated one for the device.
        convention: How the FLOPs of MFU are counted.

    Returns:
        The curves.

    Raises:
        InputError: If something is wrong at all sizes: names, precision, no or repeated inputs.
        UnsupportedModelError: If the model has parts that are not modelled.
    """
    check_supported(model)
    machines = [cluster] if isinstance(cluster, Cluster) else list(cluster)
    plans = [parse_template(each) if isinstance(each, str) else each for each in templates]
    ordered = tuple(sorted({int(size) for size in sizes}))
    _check_once("cluster", [machine.name for machine in machines])
    _check_once("strategy", [plan.label for plan in plans])
    if not ordered or ordered[0] < 1 or len(ordered) > MOST_SIZES:
        raise InputError(
            f"sizes must be 1 to {MOST_SIZES} positive counts", hint="for example 8, 64, 512"
        )
    warnings: dict[str, None] = {}
    curves: list[Curve] = []
    for machine in machines:
        precision = rule.precision or default_precision(machine)
        machine.accelerator.peak(precision)
        for plan in plans:
            software, _ = choose_stack(stack, machine, compiled=plan.base.compiled)
            points: list[Point] = []
            missing: list[Missing] = []
            for size in ordered:
                at = machine.with_(accelerators=size)
                try:
                    e = _priced(model, at, rule.at(at), plan, software, convention)
                except InputError as error:
                    missing.append(Missing(accelerators=size, reason=str(error)))
                    continue
                points.append(point_of(e))
                # Of tight memory the table speaks for itself, at every size anew.
                told = (each for each in e.warnings if not each.startswith("memory"))
                warnings |= dict.fromkeys(told)
            curves.append(
                Curve(
                    label=plan.label,
                    cluster=machine.name,
                    stack=software.name,
                    precision=plan.base.precision or precision,
                    points=join(points),
                    missing=tuple(missing),
                )
            )
    return Curves(
        model=model.name,
        rule=rule,
        sizes=ordered,
        curves=tuple(curves),
        warnings=tuple(warnings),
    )


def point_of(e: Estimate) -> Point:
    """Read an estimate as a point that does not know its neighbours yet."""
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
        infeasible=e.infeasible,
    )


def _check_once(what: str, given: Sequence[str]) -> None:
    """Refuse nothing, and the same thing twice: curves are told apart by these names."""
    if not given:
        raise InputError(f"there is no {what}", hint="give at least one")
    for name in given:
        if given.count(name) > 1:
            raise InputError(f"{what} {name} is given twice", hint="name each one once")


def _priced(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    template: Template,
    stack: Stack,
    convention: Convention,
) -> Estimate:
    """Estimate a template at one size, with the largest micro batch that fits the memory."""
    offered = choices(template, cluster.accelerators, workload.global_batch)
    # A wrong split is refused here, before many are priced, because arrays only flag it.
    smallest = estimate(model, cluster, workload, offered[0], stack=stack, convention=convention)
    if len(offered) == 1:
        return smallest
    chosen = _largest_that_fits(model, cluster, workload, offered, stack)
    if chosen is offered[0]:
        return smallest
    return estimate(model, cluster, workload, chosen, stack=stack, convention=convention)


def _largest_that_fits(
    model: Model, cluster: Cluster, workload: Workload, offered: list[Strategy], stack: Stack
) -> Strategy:
    """Pick by the predicted memory itself: its low end only says what certainly fails."""
    many = estimate(model, cluster, workload, offered, stack=stack)
    fits = np.flatnonzero(many.feasible & (many.memory_bytes <= many.case.memory_bytes))
    return offered[int(fits[-1])] if len(fits) else offered[0]


__all__ = ["Curve", "Curves", "Missing", "Point", "knee", "point_of", "scale"]
