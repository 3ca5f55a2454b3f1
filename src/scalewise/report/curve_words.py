"""What do scaling curves say? Knees, crossovers, causes and gaps in sentences.

    knee_sentences(curves, 0.5)       # "fsdp: the knee is at 8,192: after 4,096, an added ..."
    curve_name(curve, curves)         # only what tells it from the others

Computing is `explore.scale`; the terminal, pages and figures all take their words from here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby

from scalewise._version import __version__
from scalewise.explore.causes import Cause
from scalewise.explore.points import KNEE, Crossover, Curve, Curves, Group, Point, knee
from scalewise.step.estimate import NEAR_TIE
from scalewise.units import format_percent


def title(curves: Curves) -> str:
    """What was asked: models, scaling, batch and sequences."""
    rule = curves.rules[0]
    lengths = " / ".join(f"{each.sequence:,}" for each in curves.rules)
    of = "accelerator" if rule.kind == "weak" else "step"
    models = ", ".join(dict.fromkeys(curve.model for curve in curves.curves))
    return f"{models}: {rule.kind} scaling, {rule.batch:,.10g} sequences of {lengths} per {of}"


def source_line(curves: Curves) -> str:
    """Who says so: that it is predicted, by what, with which software's constants."""
    stacks = ", ".join(dict.fromkeys(curve.stack for curve in curves.curves))
    return (
        f"Predicted, not measured: scalewise {__version__}, software stack {stacks}; "
        "bands hold 80 % of cases; sources of all constants: its catalog."
    )


def group_name(group: Group, curves: Curves) -> str:
    """What tells a group from the others of the answer; empty where there is one."""
    groups = curves.groups()
    parts = []
    if len({each.model for each in groups}) > 1:
        parts.append(group.model)
    if len({each.cluster for each in groups}) > 1:
        parts.append(group.cluster)
    if len({each.sequence for each in groups}) > 1:
        parts.append(f"sequence {group.sequence:,}")
    return ", ".join(parts)


def curve_name(curve: Curve, curves: Curves) -> str:
    """What tells a curve from the others: model, cluster, sequence, strategy, where they differ."""
    several = len({each.label for each in curves.curves}) > 1
    name = group_name(curve.group, curves)
    if not name:
        return curve.label
    return f"{name}, {curve.label}" if several else name


def knee_sentences(curves: Curves, share: float = KNEE) -> list[str]:
    """Say for each curve where its knee is, or what the last size still returns."""
    told: list[str] = []
    for curve in curves.curves:
        points = curve.feasible
        name = curve_name(curve, curves)
        if len(points) < 2:
            told.append(f"{name}: fewer than two sizes can run, so there is no knee to find")
            continue
        found = knee(curve, share)
        first = f"each of the first {points[0].accelerators:,}"
        if found is not None:
            told.append(
                f"{name}: the knee is at {found.accelerators:,}: after {found.previous:,}, an "
                f"added accelerator brings {format_percent(found.returned)} of what {first} "
                f"brings, less than {format_percent(share)}"
            )
        else:
            told.append(
                f"{name}: no knee up to {points[-1].accelerators:,}, where an added accelerator "
                f"still brings {format_percent(returned(curve, points[-1]) or 0.0)} of what "
                f"{first} brings"
            )
    return told


def returned(curve: Curve, point: Point) -> float | None:
    """What each accelerator added at a point brings, over what each brings at the first."""
    if point.marginal_tokens_per_second is None:
        return None
    return point.marginal_tokens_per_second / curve.feasible[0].tokens_per_second_per_accelerator


def crossover_sentences(curves: Curves) -> list[str]:
    """Say every crossover, with its group where there are several."""
    told = []
    for each in curves.crossovers:
        name = group_name(Group(each.model, each.cluster, each.sequence), curves)
        told.append((f"{name}: " if name else "") + crossover_words(each))
    return told


def crossover_words(each: Crossover) -> str:
    """Say one crossover: where, by how much, and what becomes of it."""
    text = (
        f"from {each.accelerators:,} accelerators {each.winner} beats {each.loser}, "
        f"by {_lead(each.gain)} there"
    )
    if each.last != each.accelerators:
        if each.last_gain < 0:
            return f"{text}, but not at {each.last:,} any more"
        text += f" and {_lead(each.last_gain)} at {each.last:,}"
    if max(each.gain, each.last_gain) <= NEAR_TIE:
        text += ": a near-tie, which no model can decide"
    return text


def _lead(gain: float) -> str:
    """A lead that rounds to nothing is still one."""
    return format_percent(gain) if gain >= 0.0005 else "less than 0.1 %"


def cause_sentences(curves: Curves) -> list[str]:
    """Say for each curve what ate most between which sizes; equal neighbours are merged."""
    told: list[str] = []
    for curve in curves.curves:
        parts = [_loss_words(run) for run in _runs(curve)]
        if parts:
            told.append(f"{curve_name(curve, curves)}: " + "; ".join(parts))
    return told


def _runs(curve: Curve) -> list[list[tuple[Point, Cause]]]:
    """Split a curve into neighbouring sizes that lose to the same thing."""
    runs: list[list[tuple[Point, Cause]]] = []
    for point in curve.feasible:
        if point.cause is None:
            continue
        last, cause = runs[-1][-1] if runs else (None, None)
        # A size that lost nothing stands between two runs.
        touches = last is not None and last.accelerators == point.previous
        if touches and cause is not None and cause.name == point.cause.name:
            runs[-1].append((point, point.cause))
        else:
            runs.append([(point, point.cause)])
    return runs


def _loss_words(run: Sequence[tuple[Point, Cause]]) -> str:
    shares = [cause.share for _, cause in run]
    kept = math.prod(1.0 - cause.loss for _, cause in run)
    low, high = format_percent(min(shares)), format_percent(max(shares))
    span = low if low == high else f"{low.removesuffix(' %')} to {high}"
    return (
        f"{run[0][0].previous:,} to {run[-1][0].accelerators:,} {run[0][1].name} ({span} of a "
        f"loss of {format_percent(1.0 - kept)})"
    )


def best_sentences(curves: Curves) -> list[str]:
    """Say which strategy was found best at which sizes, for curves that were searched.

    Neighbours that differ in the data-parallel total only share a word, spelled so that it can
    be asked for as a strategy of its own.
    """
    told: list[str] = []
    for curve in curves.curves:
        points = [point for point in curve.feasible if point.examined is not None]
        if not points:
            continue
        tried = sum(point.examined or 0 for point in points)
        parts = []
        for shape, run in groupby(points, key=lambda point: open_spelling(point.strategy)):
            sizes = [point.accelerators for point in run]
            where = f"{sizes[0]:,}" + (f" to {sizes[-1]:,}" if len(sizes) > 1 else "")
            parts.append(f"{where} {shape}")
        told.append(f"{curve_name(curve, curves)}, of {tried:,} tried: " + "; ".join(parts))
    return told


def open_spelling(strategy: str) -> str:
    """Spell a strategy without its data-parallel total: hsdp8x64-tp2 becomes hsdp64-tp2."""
    text = re.sub(r"\bhsdp[0-9]+x([0-9]+)", r"hsdp\1", strategy)
    return re.sub(r"\b(fsdp|ddp|zero[123])x?[0-9]+", r"\1", text)


def missing_sentences(curves: Curves) -> list[str]:
    """Say why sizes have no point; neighbours with the same kind of reason share a line."""
    told: list[str] = []
    for curve in curves.curves:
        gaps = {each.accelerators: each.reason for each in curve.missing}
        gaps |= {p.accelerators: p.infeasible for p in curve.points if p.infeasible is not None}
        # Sizes that run have the key None, and so part the ones that do not.
        for kind, run in groupby(curves.sizes, key=lambda size: _kind(gaps.get(size))):
            sizes = list(run)
            if kind is None:
                continue
            where = f"{sizes[0]:,}" + (f" to {sizes[-1]:,}" if len(sizes) > 1 else "")
            told.append(f"{curve_name(curve, curves)} at {where}: {gaps[sizes[-1]]}")
    return told


def _kind(reason: str | None) -> str | None:
    """What a reason is about: the word before its colon."""
    return None if reason is None else reason.partition(":")[0]
