"""Figure of scaling curves: one panel per metric, with intervals, knees and crossovers.

    scale_figure(curves)              # a Figure for every renderer

`explore.scale` computes the curves, `scale_words` has the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from scalewise.explore.points import KNEE, Curve, Curves, Group, Point, knee
from scalewise.metrics import METRICS, Metric
from scalewise.report import scale_words as words
from scalewise.report.figure import DASHES, MARKERS, PALETTE, Axis, Figure, Marks, Panel, Trace
from scalewise.units import format_percent

THROUGHPUT = METRICS["tokens_per_second_per_accelerator"]
PANELS = tuple(metric for metric in METRICS.values() if metric.panel)
MAX_NAMED = 380
"""Characters up to which marks are named below the figure; more marks are counted."""


class Look(NamedTuple):
    """One curve with its place in the legend."""

    curve: Curve
    name: str
    color: str
    dash: str
    marker: str


class Mark(NamedTuple):
    """A place to look at in the panel of throughput."""

    accelerators: int
    value: float
    """Tokens/s per accelerator."""
    text: str


def scale_figure(curves: Curves, *, share: float = KNEE) -> Figure:
    """Return throughput with its interval, and every other panel metric, against size.

    Args:
        curves: The curves; points that do not fit are left out.
        share: Fraction of the first marginal efficiency below which a size is past its knee.
    """
    shown = [metric for metric in PANELS if any(values(c, metric)[0] for c in curves.curves)]
    knees, crossings = knee_marks(curves, share), crossover_marks(curves)
    notes = ["Legend in order of throughput at the largest size. " + words.source_line(curves)]
    if crossings:
        notes.insert(0, f"Crossovers: {_named(crossings)}.")
    if knees:
        low = format_percent(share)
        notes.insert(0, f"Knees (marginal efficiency below {low}): {_named(knees)}.")
    return Figure(
        name="scale",
        panels=[_panel(curves, metric, share) for metric in shown],
        columns=3,
        title=words.title(curves),
        notes=notes,
    )


def values(curve: Curve, metric: Metric) -> tuple[list[int], list[float]]:
    """Return sizes and values of a curve, in the unit of the metric, where known."""
    known = [p for p in curve.feasible if getattr(p, metric.name) is not None]
    return [p.accelerators for p in known], [metric.factor * getattr(p, metric.name) for p in known]


def looks(curves: Curves) -> list[Look]:
    """Return the curves that have points, the one that ends best first.

    One group: a color for each strategy. Several groups: a color for each group and a dash for
    each strategy.
    """
    groups = curves.groups()
    labels = list(dict.fromkeys(curve.label for curve in curves.curves))
    several = len(groups) > 1
    found = []
    for curve in sorted(curves.curves, key=_final, reverse=True):
        if curve.feasible:
            strategy, group = labels.index(curve.label), groups.index(curve.group)
            color = PALETTE[(group if several else strategy) % len(PALETTE)]
            dash = DASHES[strategy % len(DASHES)] if several else DASHES[0]
            marker = MARKERS[strategy % len(MARKERS)]
            found.append(Look(curve, words.curve_name(curve, curves), color, dash, marker))
    return found


def _final(curve: Curve) -> tuple[int, float]:
    """Return the largest size and its throughput, for the order of the legend."""
    if not curve.feasible:
        return 0, 0.0
    return curve.feasible[-1].accelerators, curve.feasible[-1].tokens_per_second


def _panel(curves: Curves, metric: Metric, share: float) -> Panel:
    """Return one metric against size; intervals and marks where it is throughput."""
    traces, main = [], metric is THROUGHPUT
    for look in looks(curves):
        sizes, numbers = values(look.curve, metric)
        points = look.curve.feasible
        by_size = {point.accelerators: point for point in points}
        traces.append(
            Trace(
                name=look.name,
                xs=sizes,
                ys=numbers,
                low=[point.low for point in points] if main else (),
                high=[point.high for point in points] if main else (),
                hover=[
                    f"{_hover(by_size[size])}<br>{number:,.4g} {metric.unit}"
                    for size, number in zip(sizes, numbers, strict=True)
                ],
                color=look.color,
                dash=look.dash,
                marker=look.marker,
            )
        )
    return Panel(
        kind="lines",
        x=Axis(label="GPUs", log=True, values=curves.sizes),
        y=Axis(label=metric.axis, zero=metric.zero),
        traces=traces,
        marks=_marks(curves, share) if main else (),
    )


def _marks(curves: Curves, share: float) -> list[Marks]:
    """Return rings around knees, and stars with their size at crossovers."""
    knees, crossings = knee_marks(curves, share), crossover_marks(curves)
    found = []
    if knees:
        sizes, rates, texts = zip(*knees, strict=True)
        found.append(Marks(name="knee", xs=sizes, ys=rates, hover=texts, symbol="ring"))
    if crossings:
        sizes, rates, texts = zip(*crossings, strict=True)
        labels = [f"{size:,}" for size in sizes]
        found.append(
            Marks(name="crossover", xs=sizes, ys=rates, hover=texts, labels=labels,
                  symbol="open-star")
        )  # fmt: skip
    return found


def _hover(point: Point) -> str:
    return (
        f"{point.strategy} on {point.accelerators:,} GPUs<br>"
        f"{point.tokens_per_second_per_accelerator:,.0f} [{point.low:,.0f}-{point.high:,.0f}] "
        f"tok/s/GPU, MFU {format_percent(point.mfu)}"
    )


def _named(marks: Sequence[Mark]) -> str:
    """Return what the marks say, or their number where there are many."""
    text = "; ".join(mark.text for mark in marks)
    return text if len(text) <= MAX_NAMED else f"{len(marks)}, as marked"


def knee_marks(curves: Curves, share: float = KNEE) -> list[Mark]:
    """Return one mark per knee, at its point."""
    marks = []
    for curve in curves.curves:
        found = knee(curve, share)
        if found is not None:
            size = found.accelerators
            point = next(p for p in curve.feasible if p.accelerators == size)
            text = f"{words.curve_name(curve, curves)} at {size:,} GPUs"
            marks.append(Mark(size, point.tokens_per_second_per_accelerator, text))
    return marks


def crossover_marks(curves: Curves) -> list[Mark]:
    """Return one mark per winner and size; several losers share it."""
    marks = []
    found = sorted(curves.crossovers, key=lambda x: (x.accelerators, x.winner, x.cluster, x.model))
    for (size, winner, group), run in groupby(
        found, key=lambda x: (x.accelerators, x.winner, Group(x.model, x.cluster, x.seq_len))
    ):
        beaten = list(run)
        name = words.group_name(group, curves)
        losers = ", ".join(each.loser for each in beaten)
        text = f"{name + ': ' if name else ''}{winner} > {losers} from {size:,} GPUs"
        marks.append(Mark(size, beaten[0].rate, text))
    return marks
