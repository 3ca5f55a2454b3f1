"""What do pictures and pages of a search have in common? Rows, terms, colours and sentences.

    for row in drawn(found): row.label, row.estimate
    for part in segments(drawn(found)): part.label, part.colour, part.seconds(row.estimate)

`ranking_page` draws with plotly, `ranking_figure` with matplotlib; both show the same, chosen here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise._version import __version__
from scalewise.explore.search import objective_of
from scalewise.report.ranking import KINDS
from scalewise.report.words import grouped, term_label
from scalewise.step.estimate import NEAR_TIE
from scalewise.units import format_count

if TYPE_CHECKING:
    from scalewise.explore.search import Search
    from scalewise.step.result import Estimate

SHOWN = 12
"""Strategies that have a bar, besides the simplest near-tie and the first that is none."""

SMALL = 0.005
"""Share of the step below which a term joins the others of its kind on paper."""

KIND_COLOURS = {"compute": "#0072B2", "communication": "#D55E00", "waiting": "#8A8A8A"}
"""Okabe and Ito's blue and vermilion, and grey: told apart by every kind of colour vision."""

# Shades of the colour of a kind, dark to light in the order of `KINDS`, so that neighbours in a
# bar differ in lightness and the terms of a kind are seen as one.
_SHADES = {
    "compute": ("#06497A", "#0072B2", "#3F97CC", "#79B6DD", "#A9D0EA", "#D3E7F5"),
    "communication": (
        "#7A3500", "#A84A00", "#D55E00", "#E8853C", "#F1A76D", "#F7C79F", "#FBE2CD",
    ),
    "waiting": ("#5E5E5E", "#979797", "#CFCFCF"),
}  # fmt: skip
COLOURS = {
    term: shade
    for kind, terms in KINDS.items()
    for term, shade in zip(terms, _SHADES[kind], strict=True)
}
"""Of every term, the same in every picture."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One strategy that has a bar."""

    estimate: Estimate
    label: str
    """Its place and spelling; near-ties have `=` between them, as in the terminal."""
    note: str
    """What it is known for; may be empty."""


@dataclass(frozen=True, kw_only=True)
class Segment:
    """One part of every bar."""

    label: str
    kind: str
    """Of `KINDS`."""
    colour: str
    terms: tuple[str, ...]
    """What it adds up."""

    def seconds(self, e: Estimate) -> float:
        """Its length in the bar of an estimate."""
        return sum(e.terms[name] for name in self.terms)


@dataclass(frozen=True, kw_only=True)
class Quantity:
    """An objective as people read it."""

    label: str
    """Of an axis, with the unit."""
    unit: str
    """After a number."""
    factor: float = 1.0
    """From SI to the unit."""

    def text(self, value: float) -> str:
        """A number of SI units in words."""
        number = grouped(self.factor * value)
        return f"${number}" if self.unit == "$" else f"{number} {self.unit}"


QUANTITIES = {
    "time": Quantity(label="step, seconds", unit="s"),
    "tokens": Quantity(label="microseconds per token and accelerator", unit="us", factor=1e6),
    "cost": Quantity(label="$ per million tokens", unit="$"),
    "energy": Quantity(label="joules per token (site)", unit="J"),
    "memory": Quantity(label="memory of the fullest accelerator, GiB", unit="GiB", factor=2**-30),
}
"""By objective of a search; smaller is better in all of them."""


def is_tie(found: Search, e: Estimate) -> bool:
    """Whether an estimate is one of several that no model can tell from the best."""
    if found.best is None or found.ties < 2:
        return False
    best = objective_of(found.best, found.by)
    return objective_of(e, found.by) <= (1.0 + NEAR_TIE) * best


def drawn(found: Search, most: int = SHOWN) -> list[Drawn]:
    """The strategies that get a bar: the first ones, the simplest near-tie, the first loser."""
    rows: list[Drawn] = []
    for place, e in enumerate(found.strategies[:most]):
        sign = "=" if is_tie(found, e) else " "
        note = "best" if place == 0 else ""
        rows.append(Drawn(estimate=e, label=f"{place + 1} {sign} {e.strategy}", note=note))
    extra = ((found.simplest, "simplest near-tie"), (found.loser, "best that is no near-tie"))
    for other, note in extra:
        if other is None:
            continue
        known = [place for place, row in enumerate(rows) if row.estimate.strategy == other.strategy]
        if known:
            row = rows[known[0]]
            both = f"{row.note}, {note}" if row.note else note
            rows[known[0]] = Drawn(estimate=row.estimate, label=row.label, note=both)
        else:
            sign = "=" if is_tie(found, other) else " "
            rows.append(Drawn(estimate=other, label=f"... {sign} {other.strategy}", note=note))
    return rows


def kinds(rows: Sequence[Drawn]) -> list[Segment]:
    """Bars of three parts: compute, communication and waiting, as far as there is any."""
    whole = [
        Segment(label=kind, kind=kind, colour=KIND_COLOURS[kind], terms=terms)
        for kind, terms in KINDS.items()
    ]
    return [part for part in whole if any(part.seconds(row.estimate) > 0.0 for row in rows)]


def segments(rows: Sequence[Drawn], *, small: float = 0.0) -> list[Segment]:
    """Bars of single terms, in the order of `KINDS`; what no strategy spends time on is left out.

    Args:
        rows: What is drawn.
        small: Terms below this share of every step are told as one per kind.
    """
    parts: list[Segment] = []
    for kind, terms in KINDS.items():
        largest = {
            name: max((r.estimate.terms[name] / r.estimate.step_seconds for r in rows), default=0.0)
            for name in terms
        }
        seen = [name for name in terms if largest[name] > 0.0]
        rest = tuple(name for name in seen if largest[name] < small)
        if len(rest) < 2:
            # One term alone is told by its own name, however small.
            rest = ()
        for name in seen:
            if name not in rest:
                label, colour = term_label(name), COLOURS[name]
                parts.append(Segment(label=label, kind=kind, colour=colour, terms=(name,)))
        if rest:
            label, colour = f"other {kind}", _SHADES[kind][-1]
            parts.append(Segment(label=label, kind=kind, colour=colour, terms=rest))
    return parts


def asked_of(found: Search) -> Estimate | None:
    """An estimate that knows what was asked: the best, or the nearest where nothing fits."""
    return found.best or found.nearest


def title(found: Search) -> str:
    """What was searched, in one line."""
    e = asked_of(found)
    if e is None:
        return "Search of strategies"
    device, cluster = e.cluster.accelerator.name, e.cluster.name
    where = "" if cluster == device else f" ({cluster})"
    return (
        f"{e.model.name} ({format_count(e.model.parameters)} parameters) on "
        f"{e.cluster.accelerators:,} x {device}{where}: {found.examined:,} strategies by {found.by}"
    )


def inputs(found: Search) -> dict[str, str]:
    """What went in, by name."""
    e = asked_of(found)
    if e is None:
        return {}
    work = e.workload
    return {
        "model": f"{e.model.name}, {format_count(e.model.parameters)} parameters",
        "cluster": f"{e.cluster.name}, {e.cluster.accelerators:,} x {e.cluster.accelerator.name}",
        "sequence": f"{work.sequence:,} tokens",
        "global batch": f"{work.global_batch:,} sequences, the same for every strategy",
        "precision": work.precision,
        "software stack": e.stack.name,
        "ranked by": QUANTITIES[found.by].label,
    }


def source_line(found: Search) -> str:
    """Who says so, and from which numbers."""
    e = asked_of(found)
    told = f"Predicted by Scalewise {__version__}"
    if e is None:
        return told + "."
    work, paid = e.workload, e.cluster.accelerator.price_date
    rent = "" if paid is None or e.usd_per_hour is None else f", rent of {paid}"
    return (
        f"{told}: sequence {work.sequence:,}, batch {work.global_batch:,}, {work.precision}; "
        f"datasheet of {e.cluster.accelerator.name}, stack {e.stack.name}, fabric "
        f"{e.cluster.fabric.name}{rent}."
    )
