"""What does the next accelerator buy? The curves of the page, best strategy at each size anew.

    told = scale_answer(ScaleRequest(sizes="8..2048"))
    told["curves"][0]["points"][-1]["mfu"], told["knees"], told["words"]

`explore.scale` draws them. At first `best` is the best of the few thousand usual strategies, which
takes milliseconds at each size; asked for `every`, it is the best of all there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.catalog import load_cluster
from scalewise.cli.inputs import ask
from scalewise.cli.overrides import Overrides
from scalewise.errors import InputError
from scalewise.explore.causes import gather_parts
from scalewise.explore.points import Missing, Point
from scalewise.explore.scale import scale
from scalewise.explore.sizes import Rule, parse_sizes
from scalewise.explore.tasks import Priced, Task, point_of, price
from scalewise.report import curve_words
from scalewise.step.estimate import estimate
from scalewise.step.feasibility import REASONS
from scalewise.step.terms import TERM_NAMES
from scalewise.ui.lookup import find_name
from scalewise.ui.nouns import flags, named_question, replace_strategy
from scalewise.ui.requests import ScaleRequest
from scalewise.ui.solve import solve

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.explore.points import Curve, Curves

MOST_SIZES = 24
"""Sizes of one request: a doubling range from 1 to 2^20 has 21."""
MOST_TASKS = 120

Runner = Callable[[Sequence[Task], Callable[[Task], Priced]], Iterable[tuple[int, Priced]]]


def quick(task: Task) -> Priced:
    """Answer a task; a search for the best is held to the usual strategies."""
    if task.template.limits is None or task.template.label != "best":
        return price(task)
    size = task.cluster.accelerators
    try:
        workload = task.rule.at(task.cluster)
        found = solve(
            task.model, task.cluster, workload, task.stack, by=task.by, convention=task.convention
        )
    except InputError as error:
        return Priced(missing=Missing(accelerators=size, reason=str(error)))
    e = found.estimate
    if not e.feasible or e.memory_headroom < 0.0:
        reason = e.infeasible or REASONS[-1]
        if reason.startswith("memory"):
            reason = f"memory: none of {found.tried:,} strategies fits; {reason[8:]}"
        return Priced(missing=Missing(accelerators=size, reason=reason))
    many = estimate(
        e.model, e.cluster, workload, [e.strategy], stack=e.stack, convention=e.convention
    )
    warnings = tuple(each for each in e.warnings if not each.startswith("memory"))
    point = point_of(e, parts=gather_parts(many, 0), examined=found.tried)
    return Priced(point=point, warnings=warnings)


def one_by_one(
    tasks: Sequence[Task], function: Callable[[Task], Priced]
) -> Iterable[tuple[int, Priced]]:
    """The runner of small questions."""
    del function
    return enumerate(map(quick, tasks))


def scale_answer(request: ScaleRequest, run: Runner = one_by_one) -> dict[str, Any]:
    """Draw the curves.

    Args:
        request: What is asked.
        run: Answers the tasks.

    Raises:
        InputError: If a word is not understood.
    """
    named, _ = named_question(request.question)
    sizes = parse_sizes(request.sizes)
    if len(sizes) > MOST_SIZES or len(sizes) * len(request.templates) > MOST_TASKS:
        raise InputError(
            f"sizes {request.sizes!r} are too many for one answer",
            hint=f"at most {MOST_SIZES} sizes, such as 8..2048",
        )
    nouns = ask(**flags(replace_strategy(named, None)))
    batch = float(nouns.workload.global_batch)
    if request.kind == "weak":
        batch = request.batch_per_gpu or batch / nouns.cluster.accelerators
    rule = Rule(
        kind=request.kind,
        batch=batch,
        sequence=nouns.workload.sequence,
        precision=nouns.workload.precision,
        tokens=nouns.workload.tokens,
    )
    clusters = [nouns.cluster, *_others(request, nouns.cluster.name, sizes[-1])]
    curves = scale(
        nouns.model,
        clusters,
        rule,
        list(dict.fromkeys(request.templates)),
        sizes,
        by=named.by if named.by in ("time", "cost", "energy") else "time",
        stack=nouns.stack if len(clusters) == 1 else named.stack,
        run=run,
    )
    return {
        "question": msgspec.to_builtins(named),
        "kind": request.kind,
        "batch": batch,
        "sizes": list(sizes),
        "every": request.every,
        "tokens": nouns.workload.tokens,
        "curves": [_curve(curve, clusters) for curve in curves.curves],
        "knees": msgspec.to_builtins(curves.knees(request.knee)),
        "crossovers": msgspec.to_builtins(curves.crossovers),
        "warnings": list(curves.warnings),
        "words": words(curves, request),
    }


def _others(request: ScaleRequest, own: str, largest: int) -> list[Cluster]:
    """Clusters to compare with; changed assumptions hold for them where they can."""
    found: list[Cluster] = []
    for text in request.also:
        name = find_name("clusters", text, also="accelerators")
        cluster = load_cluster(name, accelerators=largest)
        if cluster.name != own and cluster.name not in [each.name for each in found]:
            kept = [each for each in request.question.sets if each.startswith("cluster.pue")]
            found.append(Overrides.read(kept).apply("cluster", cluster))
    return found


def words(curves: Curves, request: ScaleRequest) -> dict[str, list[str]]:
    """What the curves say, in sentences."""
    return {
        "knees": curve_words.knee_sentences(curves, request.knee),
        "crossovers": curve_words.crossover_sentences(curves),
        "causes": curve_words.cause_sentences(curves),
        "best": curve_words.best_sentences(curves),
        "missing": curve_words.missing_sentences(curves),
        "next": [text for curve in curves.curves[:1] for text in next_sentences(curve)],
    }


def next_sentences(curve: Curve) -> list[str]:
    """Say what each doubling buys: so much more throughput for so much more money."""
    told = []
    for before, after in pairwise(curve.feasible):
        speed = after.tokens_per_second / before.tokens_per_second
        text = f"{before.accelerators:,} to {after.accelerators:,} buys {speed:.2f} x the speed"
        old, new = before.usd_per_million_tokens, after.usd_per_million_tokens
        if old and new:
            text += f" for {new / old:.2f} x the money per token"
        told.append(text)
    return told


def _curve(curve: Curve, clusters: Sequence[Cluster]) -> dict[str, Any]:
    machine = next(each for each in clusters if each.name == curve.cluster)
    first = curve.feasible[0] if curve.feasible else None
    return {
        "label": curve.label,
        "cluster": curve.cluster,
        "stack": curve.stack,
        "precision": curve.precision,
        "usd_per_hour": machine.usd_per_hour,
        "domain": machine.scale_up_domain,
        "points": [_point(point, first) for point in curve.points],
        "missing": msgspec.to_builtins(curve.missing),
    }


def _point(point: Point, first: Point | None) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(point)
    plain["shape"] = curve_words.open_spelling(point.strategy)
    plain["efficiency"] = plain["returned"] = None
    if first is not None:
        base = first.tokens_per_second_per_accelerator
        plain["efficiency"] = point.tokens_per_second_per_accelerator / base
        if point.marginal_tokens_per_second is not None:
            plain["returned"] = point.marginal_tokens_per_second / base
    largest = sorted(point.terms.items(), key=lambda item: -item[1])[:3]
    plain["largest"] = [[TERM_NAMES[key], value / point.step_seconds] for key, value in largest]
    plain.pop("terms")
    return plain
