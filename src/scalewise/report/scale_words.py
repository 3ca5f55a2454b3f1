"""Sentences about scaling curves: knees, crossovers, causes, searched strategies, gaps.

    best_lines(curves)                # ["Best at 2,048 GPUs: hsdp64, 11,100 tok/s/GPU [...], ..."]
    crossover_sentences(curves)       # ["hsdp64 > fsdp from 128 GPUs", ...]
    curve_name(curve, curves)         # what differs from the other curves, and nothing else

Computing is `explore.scale`; terminal, pages and figures take their words from here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from itertools import groupby

from scalewise._version import __version__
from scalewise.explore.causes import Cause
from scalewise.explore.points import (
    KNEE,
    Crossover,
    Curve,
    Curves,
    Group,
    Point,
    knee,
    marginal_efficiency,
)
from scalewise.ranges import TIE_CHANCE, ratio_range, tie_width
from scalewise.report.goodput_words import of_point
from scalewise.report.words import chance, device_word, gain_interval, interval
from scalewise.units import format_count, format_percent, grouped

SURE = 0.9
"""Chance of a lead from which it is not named: the 80% interval of the ratio is above 1."""
MAX_BEST = 2
"""Models and sequence lengths whose best strategy is named."""
MAX_PHRASES = 5
"""Curves and crossovers that a line names."""


def words_of(curves: Curves) -> str:
    """Return what one accelerator of the curves is called: GPU, or chip."""
    return device_word("gpu" if any(each.kind == "gpu" for each in curves.curves) else "tpu")


def title(curves: Curves) -> str:
    """Return what was asked, in one line: models, clusters, sizes, batch, precision, software."""
    rule, word = curves.rules[0], words_of(curves)
    sizes = f"{curves.sizes[0]:,}"
    if len(curves.sizes) > 1:
        sizes += f"-{curves.sizes[-1]:,}"
    lengths = " / ".join(f"{each.seq_len:,}" for each in curves.rules)
    per = f" per {word}" if rule.kind == "weak" else ""
    models = {each.model: each.parameters for each in curves.curves}

    def joined(field: str) -> str:
        return ", ".join(dict.fromkeys(getattr(each, field) for each in curves.curves))

    parts = (
        ", ".join(f"{name} ({format_count(n)})" if n else name for name, n in models.items()),
        f"{joined('cluster')}, {sizes} {word}s",
        f"{rule.kind}, {'' if per else 'batch '}{rule.batch:,.10g} x {lengths}{per}",
        joined("precision"),
        f"stack {joined('stack')}",
    )
    return " | ".join(parts)


def source_line(curves: Curves) -> str:
    """Return where the numbers come from: predicted, by which version, for which software."""
    stacks = ", ".join(dict.fromkeys(curve.stack for curve in curves.curves))
    return (
        f"Predicted, not measured: scalewise {__version__}, stack {stacks}. "
        "Bands: 80% prediction interval. Sources of all constants: the catalog."
    )


def group_name(group: Group, curves: Curves) -> str:
    """Return what differs between a group and the others; empty where there is one."""
    groups = curves.groups()
    parts = []
    if len({each.model for each in groups}) > 1:
        parts.append(group.model)
    if len({each.cluster for each in groups}) > 1:
        parts.append(group.cluster)
    if len({each.seq_len for each in groups}) > 1:
        parts.append(f"seq {group.seq_len:,}")
    return ", ".join(parts)


def curve_name(curve: Curve, curves: Curves) -> str:
    """Return what differs between a curve and the others: model, cluster, sequence, strategy."""
    several = len({each.label for each in curves.curves}) > 1
    name = group_name(curve.group, curves)
    if not name:
        return curve.label
    return f"{name}, {curve.label}" if several else name


def ranked(curves: Curves) -> list[Curve]:
    """Return the curves with a point that runs, best at the largest size first."""
    known = [curve for curve in curves.curves if curve.feasible]

    def key(curve: Curve) -> tuple[int, float]:
        last = curve.feasible[-1]
        return -last.accelerators, -last.tokens_per_second_per_accelerator

    return sorted(known, key=key)


def best_lines(curves: Curves, share: float = KNEE) -> list[str]:
    """Return the best strategy at the largest size, for each model and sequence length."""
    order = ranked(curves)
    if not order:
        return ["No strategy can run at any of these sizes"]
    questions = dict.fromkeys((curve.model, curve.seq_len) for curve in curves.curves)
    lines = []
    for question in questions:
        mine = [curve for curve in order if (curve.model, curve.seq_len) == question]
        if mine:
            lines.append(_best(mine, curves))
    lines = lines[:MAX_BEST]
    if not curves.knees(share) and any(len(curve.feasible) > 1 for curve in order):
        lines[-1] += f" No knee up to {order[0].feasible[-1].accelerators:,}."
    return lines


def _best(order: Sequence[Curve], curves: Curves) -> str:
    """Return the first of some curves with its throughput, and its lead."""
    best, word = order[0], words_of(curves)
    last = best.feasible[-1]
    found = f" ({last.strategy})" if last.evaluated is not None else ""
    text = (
        f"Best at {last.accelerators:,} {word}s: {curve_name(best, curves)}{found}, "
        f"{grouped(last.tokens_per_second_per_accelerator)} tok/s/{word} "
        f"{interval(last.low, last.high)}"
    )
    # Against the strategy that was named first, or else the runner-up.
    others = [curve for curve in order[1:] if _at(curve, last) is not None]
    named = [curve for curve in others if curve.label == curves.curves[0].label]
    for rival in (named or others)[:1]:
        other = _at(rival, last)
        assert other is not None
        gain = last.tokens_per_second / other.tokens_per_second - 1.0
        parts = [rival.cluster] if rival.cluster != best.cluster else []
        parts += [rival.label] if rival.label != best.label else []
        low, high = ratio_range(last.basis, other.basis)
        text += (
            f", {format_percent(gain, sign=True, decimals=0)} "
            f"{gain_interval(low - 1.0, high - 1.0)} over {', '.join(parts)}"
        )
    return text + "."


def knee_line(curves: Curves, share: float = KNEE) -> str:
    """Return the knees of all curves in one line; empty if there is none."""
    parts = []
    for curve in curves.curves:
        found = knee(curve, share)
        if found is not None:
            marginal = format_percent(found.returned)
            name = curve_name(curve, curves)
            parts.append(f"{name} at {found.accelerators:,} (marginal {marginal})")
    return "; ".join(parts)


def _at(curve: Curve, point: Point) -> Point | None:
    """Return the point of a curve at the size of another, if it runs."""
    found = (each for each in curve.feasible if each.accelerators == point.accelerators)
    return next(found, None)


def knee_sentences(curves: Curves, share: float = KNEE) -> list[str]:
    """Return for each curve where its knee is, or the marginal efficiency at the last size."""
    word = words_of(curves)
    lines: list[str] = []
    for curve in curves.curves:
        points, name = curve.feasible, curve_name(curve, curves)
        if len(points) < 2:
            lines.append(f"{name}: no knee, fewer than two sizes can run")
            continue
        found = knee(curve, share)
        if found is not None:
            lines.append(
                f"{name}: knee at {found.accelerators:,} {word}s, marginal efficiency "
                f"{format_percent(found.returned)}, below {format_percent(share, decimals=0)}"
            )
        else:
            lines.append(
                f"{name}: no knee up to {points[-1].accelerators:,} {word}s, marginal efficiency "
                f"{format_percent(returned(curve, points[-1]) or 0.0)}"
            )
    return lines


def returned(curve: Curve, point: Point) -> float | None:
    """Return the marginal efficiency of a point: what added GPUs bring relative to the first."""
    return marginal_efficiency(curve.feasible[0], point)


def crossover_sentences(curves: Curves) -> list[str]:
    """Return crossovers, one phrase each; those of several winners at one size are joined."""
    lines: list[str] = []
    for (group, size, loser), run in groupby(
        sorted(curves.crossovers, key=_place),
        key=lambda each: (
            Group(each.model, each.cluster, each.seq_len), each.accelerators, each.loser,
        ),
    ):  # fmt: skip
        found = list(run)
        name = group_name(group, curves)
        lines.append(
            (f"{name}: " if name else "")
            + ", ".join(each.winner for each in found)
            + f" > {loser} from {size:,} {words_of(curves)}s"
            + _sure(found)
        )
    return lines


def _sure(found: Sequence[Crossover]) -> str:
    """Return the chance of the lead at the largest size, the least of several; empty if sure."""
    least = min(found, key=lambda each: each.chance)
    if least.chance < 1.0 - TIE_CHANCE:
        return " (tie)"
    if least.chance > SURE:
        return ""
    return f" (chance {chance(least.chance)} at {least.last:,})"


def crossover_line(curves: Curves) -> str:
    """Return all crossovers in one line, which names GPUs once; empty if there is none."""
    first, *others = crossover_sentences(curves) or [""]
    others = [each.replace(f" {words_of(curves)}s", "") for each in others]
    return "; ".join(_first([first, *others], curves))


def _first(phrases: Sequence[str], curves: Curves) -> list[str]:
    """Return the first phrases, fewer where names are long, and how many more there are."""
    count = MAX_PHRASES if len(curves.groups()) == 1 else MAX_PHRASES // 2
    more = len(phrases) - count
    return [*phrases[:count], f"{more} more"] if more > 1 else [*phrases]


def _place(each: object) -> tuple[object, ...]:
    fields = ("model", "cluster", "seq_len", "accelerators", "loser")
    return tuple(getattr(each, field) for field in fields)


def cause_sentences(curves: Curves, *, short: bool = False) -> list[str]:
    """Return for each curve what costs most between which sizes; losses within a tie are left out.

    Args:
        curves: The curves.
        short: Name only what makes the cost grow, such as ring latency.
    """
    lines: list[str] = []
    for curve in curves.curves:
        parts = [_loss_words(run, curves, short=short) for run in _losses(curve)]
        if parts:
            lines.append(f"{curve_name(curve, curves)} " + ", then ".join(parts))
    return lines


def cause_line(curves: Curves) -> str:
    """Return the causes of all curves in one line, what they share first; empty without a loss."""
    shared = {run[0][1].what for curve in curves.curves for run in _losses(curve)}
    short = len(shared) == 1
    phrases = _first(cause_sentences(curves, short=short), curves)
    return (f"{shared.pop()}. " if short else "") + "; ".join(phrases)


def statistical_line(curves: Curves) -> str:
    """Return the statistical efficiency of the best curve at its ends; empty where it is off."""
    order = ranked(curves)
    if not order or order[0].feasible[-1].statistical_efficiency is None:
        return ""
    of_best, word = order[0].feasible, words_of(curves)
    lines = []
    for point in of_best if len(of_best) < 2 else (of_best[0], of_best[-1]):
        middle, low, high = (
            100.0 * (value or 0.0)
            for value in (
                point.statistical_efficiency,
                point.statistical_low,
                point.statistical_high,
            )
        )
        batch = format_count(float(point.global_batch * order[0].seq_len))
        lines.append(
            f"{middle:.0f}% [{low:.0f}-{high:.0f} by law] at {batch} tokens per step on "
            f"{point.accelerators:,} {word}s"
        )
    return "; ".join(lines)


def goodput_line(curves: Curves) -> str:
    """Return the goodput of the best curve at its ends; empty where nothing was asked of runs."""
    order = ranked(curves)
    if not order or order[0].feasible[-1].goodput is None:
        return ""
    of_best, word = order[0].feasible, words_of(curves)
    points = of_best if len(of_best) < 2 else (of_best[0], of_best[-1])
    return "; ".join(
        f"{of_point(point).removeprefix('goodput ')} on {point.accelerators:,} {word}s"
        for point in points
    )


def _losses(curve: Curve) -> list[list[tuple[Point, Cause]]]:
    """Split a curve into neighboring sizes that lose to the same cause, and more than a tie."""
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
    return [run for run in runs if _loss(run) > tie_width()]


def _loss(run: Sequence[tuple[Point, Cause]]) -> float:
    return 1.0 - math.prod(1.0 - cause.loss for _, cause in run)


def _loss_words(run: Sequence[tuple[Point, Cause]], curves: Curves, *, short: bool) -> str:
    """Return a loss with its last size, unless that is the last of all, and its cause."""
    cause, size = run[0][1], run[-1][0].accelerators
    text = format_percent(-_loss(run))
    if size != curves.sizes[-1]:
        text += f" up to {size:,} {words_of(curves)}s"
    why = cause.driver if short else cause.name.replace(" (", ", ").removesuffix(")")
    return f"{text} ({why})" if why else text


def best_sentences(curves: Curves) -> list[str]:
    """Return which strategy is best at which sizes, for curves that were searched.

    Neighbors that differ in the data-parallel total only share a name, spelled so that it can be
    asked for as a strategy of its own.
    """
    lines: list[str] = []
    for curve in curves.curves:
        points = [point for point in curve.feasible if point.evaluated is not None]
        if not points:
            continue
        count = sum(point.evaluated or 0 for point in points)
        parts = []
        for shape, run in groupby(points, key=lambda point: open_spelling(point.strategy)):
            sizes = [point.accelerators for point in run]
            parts.append(f"{shape} at {_span(sizes)}")
        name = curve_name(curve, curves)
        lines.append(f"{name}: " + ", ".join(parts) + f" ({count:,} evaluated)")
    return lines


def open_spelling(strategy: str) -> str:
    """Spell a strategy without its data-parallel total: hsdp8x64-tp2 becomes hsdp64-tp2."""
    text = re.sub(r"\bhsdp[0-9]+x([0-9]+)", r"hsdp\1", strategy)
    return re.sub(r"\b(fsdp|ddp|zero[123])x?[0-9]+", r"\1", text)


def missing_sentences(curves: Curves) -> list[str]:
    """Return why sizes have no point; neighbors with the same kind of reason share a line."""
    lines: list[str] = []
    for curve in curves.curves:
        gaps = {each.accelerators: each.reason for each in curve.missing}
        gaps |= {p.accelerators: p.infeasible for p in curve.points if p.infeasible is not None}
        # Sizes that run have the key None, and so separate those that do not.
        for kind, run in groupby(curves.sizes, key=lambda size: _kind(gaps.get(size))):
            sizes = list(run)
            if kind is not None:
                reason = str(gaps[sizes[-1]])
                if reason.startswith("memory: needs"):
                    # Without the parts of memory.
                    reason = reason.rpartition(": ")[0]
                lines.append(f"{curve_name(curve, curves)} at {_span(sizes)}: {reason}")
    return lines


def _span(sizes: Sequence[int]) -> str:
    """Print sizes as a range: "8", "8-64"."""
    return f"{sizes[0]:,}" + (f"-{sizes[-1]:,}" if len(sizes) > 1 else "")


def _kind(reason: str | None) -> str | None:
    """Return what a reason is about: the word before its colon."""
    return None if reason is None else reason.partition(":")[0]
