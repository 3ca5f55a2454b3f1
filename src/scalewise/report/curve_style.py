"""What do pictures of scaling curves have in common? Panels, units, order, colours and marks.

    for drawn in order(curves): drawn.name, drawn.colour, drawn.dash
    for panel in panels(curves): panel.title, panel.values(curve)

`curves_page` draws with plotly, `figures` with matplotlib; both show the same, computed here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

from scalewise.explore.points import KNEE, Curve, Curves, Group, knee
from scalewise.report.curve_words import curve_name, group_name
from scalewise.report.scatter import PALETTE

DASHES = ("solid", "dash", "dot", "dashdot")
"""By strategy, where colours stand for models, clusters and sequences."""
MARKERS = ("circle", "square", "diamond", "triangle-up", "cross", "x")
"""By strategy."""


@dataclass(frozen=True, kw_only=True)
class Panel:
    """One value over size."""

    field: str
    """Of `Point`."""
    title: str
    """Of the axis, with its unit."""
    factor: float = 1.0
    """From SI to the unit of the axis."""

    def values(self, curve: Curve) -> tuple[list[int], list[float]]:
        """Sizes and values of one curve, where both are known."""
        pairs = [
            (point.accelerators, self.factor * getattr(point, self.field))
            for point in curve.feasible
            if getattr(point, self.field) is not None
        ]
        return [size for size, _ in pairs], [value for _, value in pairs]


THROUGHPUT = Panel(field="tokens_per_second_per_accelerator", title="tokens/s per accelerator")
PANELS = (
    THROUGHPUT,
    Panel(field="marginal_tokens_per_second", title="tokens/s per added accelerator"),
    Panel(field="exposed_share", title="exposed communication, % of the step", factor=100.0),
    Panel(field="watts_per_accelerator", title="W per accelerator"),
    Panel(field="tokens_per_joule", title="tokens per joule (site)"),
    Panel(field="usd_per_million_tokens", title="$ per million tokens"),
)


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One curve with its looks."""

    curve: Curve
    name: str
    """In the legend."""
    colour: str
    dash: str
    """Of `DASHES`."""
    marker: str
    """Of `MARKERS`."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A place worth pointing at in the panel of throughput."""

    accelerators: int
    value: float
    """Tokens/s per accelerator."""
    text: str


def panels(curves: Curves) -> list[Panel]:
    """The panels of which anything is known: not every cluster has a price."""
    return [panel for panel in PANELS if any(panel.values(curve)[0] for curve in curves.curves)]


def order(curves: Curves) -> list[Drawn]:
    """The curves that have points, in the order in which they end: the best comes first.

    One group: a colour for each strategy. Several: a colour for each group and a dash for each
    strategy, so that what belongs together looks alike.
    """
    groups = curves.groups()
    labels = list(dict.fromkeys(curve.label for curve in curves.curves))
    found = []
    for curve in sorted(curves.curves, key=_final, reverse=True):
        if not curve.feasible:
            continue
        strategy, group = labels.index(curve.label), groups.index(curve.group)
        several = len(groups) > 1
        found.append(
            Drawn(
                curve=curve,
                name=curve_name(curve, curves),
                colour=PALETTE[(group if several else strategy) % len(PALETTE)],
                dash=DASHES[strategy % len(DASHES)] if several else DASHES[0],
                marker=MARKERS[strategy % len(MARKERS)],
            )
        )
    return found


def _final(curve: Curve) -> tuple[int, float]:
    """Who gets furthest, then who is fastest there."""
    if not curve.feasible:
        return 0, 0.0
    last = curve.feasible[-1]
    return last.accelerators, last.tokens_per_second


def knee_marks(curves: Curves, share: float = KNEE) -> list[Mark]:
    """One mark per knee, at its point."""
    marks = []
    for curve in curves.curves:
        found = knee(curve, share)
        if found is not None:
            point = next(p for p in curve.feasible if p.accelerators == found.accelerators)
            marks.append(
                Mark(
                    accelerators=found.accelerators,
                    value=point.tokens_per_second_per_accelerator,
                    text=f"{curve_name(curve, curves)}: knee at {found.accelerators:,}",
                )
            )
    return marks


def crossover_marks(curves: Curves) -> list[Mark]:
    """One mark per winner and size; several that are beaten there share it."""
    marks = []
    found = sorted(curves.crossovers, key=lambda x: (x.accelerators, x.winner, x.cluster, x.model))
    for (size, winner, group), run in groupby(
        found, key=lambda x: (x.accelerators, x.winner, Group(x.model, x.cluster, x.sequence))
    ):
        beaten = list(run)
        name = group_name(group, curves)
        losers = ", ".join(each.loser for each in beaten)
        marks.append(
            Mark(
                accelerators=size,
                value=beaten[0].rate,
                text=f"{name + ': ' if name else ''}from {size:,} {winner} beats {losers}",
            )
        )
    return marks


# The same words, as matplotlib says them.
PAPER_DASHES = {"solid": "-", "dash": "--", "dot": ":", "dashdot": "-."}
PAPER_MARKERS = {
    "circle": "o",
    "square": "s",
    "diamond": "D",
    "triangle-up": "^",
    "cross": "P",
    "x": "X",
}
INK = "#333333"
"""Of text and axes on paper."""
DOTS = 160
"""Per inch, of PNG."""
