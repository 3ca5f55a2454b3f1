"""The scale view: curves over sizes, with knees, crossovers and causes.

answer = scale_answer(ScaleRequest(sizes="8..2048"))
answer["curves"][0]["points"][-1]["mfu"], answer["knees"], answer["words"]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.names import find_name
from scalewise.ask.overrides import Overrides
from scalewise.ask.scaling import Scaling, scaling
from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.points import Point
from scalewise.explore.sizes import parse_sizes
from scalewise.report import scale_words
from scalewise.terms import TERMS
from scalewise.ui.inputs import inputs
from scalewise.ui.requests import ScaleRequest

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.explore.points import Curve, Curves
    from scalewise.explore.scale import Run

MAX_SIZES = 24
"""Sizes of one request: a doubling range from 1 to 2^20 has 21."""
MAX_TASKS = 120


def scale_answer(request: ScaleRequest, run: Run | None = None) -> dict[str, Any]:
    """Draw the curves.

    Args:
        request: What is asked.
        run: Answers the tasks; by default one after the other.

    Raises:
        InputError: If a word is not understood.
    """
    sizes = parse_sizes(request.sizes)
    if len(sizes) > MAX_SIZES or len(sizes) * len(request.templates) > MAX_TASKS:
        raise InputError(
            f"sizes {request.sizes!r} are too many for one answer",
            hint=f"at most {MAX_SIZES} sizes, such as 8..2048",
        )
    found = inputs(request.question)
    q = request.question
    weak = request.kind == "weak"
    per_gpu = found.workload.global_batch / found.cluster.accelerators
    asked = scaling(
        msgspec.structs.replace(
            q,
            gpus=request.sizes,
            strategy=",".join(dict.fromkeys(request.templates)),
            batch=None if weak else q.batch,
            tokens=found.workload.tokens,
        ),
        weak=weak,
        batch_per_gpu=(request.batch_per_gpu or per_gpu) if weak else None,
    )
    asked = replace(asked, clusters=(*asked.clusters, *_others(request, asked)))
    curves = asked.curves(exhaustive=request.every, run=run)
    return {
        "question": msgspec.to_builtins(found.question),
        "kind": request.kind,
        "batch": asked.rules[0].batch,
        "sizes": list(sizes),
        "every": request.every,
        "tokens": found.workload.tokens,
        "defaults": [str(each) for each in asked.defaults],
        "curves": [_curve(curve, asked.clusters) for curve in curves.curves],
        "knees": msgspec.to_builtins(curves.knees(request.knee)),
        "crossovers": msgspec.to_builtins(curves.crossovers),
        "warnings": list(curves.warnings),
        "words": words(curves, request),
    }


def _others(request: ScaleRequest, asked: Scaling) -> list[Cluster]:
    """Clusters to compare with; changed assumptions hold for them where they can."""
    found: list[Cluster] = []
    for text in request.also:
        name = find_name("clusters", text, also="accelerators")
        cluster = load_cluster(name, accelerators=asked.sizes[-1])
        if cluster.name != asked.clusters[0].name and cluster.name not in [
            each.name for each in found
        ]:
            kept = [each for each in request.question.sets if each.startswith("cluster.pue")]
            found.append(Overrides.read(kept).apply("cluster", cluster))
    return found


def words(curves: Curves, request: ScaleRequest) -> dict[str, list[str]]:
    """What the curves say, in sentences."""
    return {
        "knees": scale_words.knee_sentences(curves, request.knee),
        "crossovers": scale_words.crossover_sentences(curves),
        "causes": scale_words.cause_sentences(curves),
        "best": scale_words.best_sentences(curves),
        "missing": scale_words.missing_sentences(curves),
        "next": [text for curve in curves.curves[:1] for text in next_sentences(curve)],
    }


def next_sentences(curve: Curve) -> list[str]:
    """What each step to the next size brings: throughput, and cost per token."""
    lines = []
    for before, after in pairwise(curve.feasible):
        speed = after.tokens_per_second / before.tokens_per_second
        sizes = f"{before.accelerators:,} to {after.accelerators:,}"
        text = f"{sizes} gives {speed:.2f}x the throughput"
        old, new = before.usd_per_million_tokens, after.usd_per_million_tokens
        if old and new:
            text += f" at {new / old:.2f}x the cost per token"
        lines.append(text)
    return lines


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
    plain["shape"] = scale_words.open_spelling(point.strategy)
    plain["efficiency"] = plain["returned"] = None
    if first is not None:
        base = first.tokens_per_second_per_accelerator
        plain["efficiency"] = point.tokens_per_second_per_accelerator / base
        if point.marginal_tokens_per_second is not None:
            plain["returned"] = point.marginal_tokens_per_second / base
    largest = sorted(point.terms.items(), key=lambda item: -item[1])[:3]
    plain["largest"] = [[TERMS[key].label, value / point.step_seconds] for key, value in largest]
    plain.pop("terms")
    return plain
