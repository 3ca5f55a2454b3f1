"""Figures of a search: step time by term, best strategy by TP and PP degree, Pareto front.

    search_figure(found)              # one stacked bar per strategy, by kind and by term
    mesh_figure(found)                # the best strategy of every TP x PP degree
    front_figure(found)               # step time against the other objectives

`explore.search` computes, `search_files` writes pages and data.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple

from scalewise._version import __version__
from scalewise.explore.objectives import objective_of
from scalewise.metrics import METRICS
from scalewise.report.figure import Axis, Figure, Marks, Panel, Trace
from scalewise.report.search_table import headline
from scalewise.terms import COLORS, TERMS
from scalewise.units import format_count, format_percent

if TYPE_CHECKING:
    from scalewise.explore.search import Search
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy

SHOWN = 12
"""Strategies that have a bar, besides the simplest tie and the best strategy that is no tie."""
SMALL = 0.005
"""Fraction of every step below which the terms of a kind are drawn as one."""
WORST = 100.0
"""Percent above the best at which the colors of the map end."""
WIDE = 10.0
"""Ratio of step times from which the axis of a front is logarithmic."""

OBJECTIVES = {
    "time": METRICS["step_seconds"],
    "tokens": METRICS["accelerator_seconds_per_token"],
    "cost": METRICS["usd_per_million_tokens"],
    "energy": METRICS["joules_per_token"],
    "memory": METRICS["memory_bytes"],
}
"""Metrics by objective of a search."""


class Bar(NamedTuple):
    """One strategy that has a bar."""

    estimate: Estimate
    label: str
    """Rank and strategy; ties have `=` between them, as in the terminal."""
    note: str
    """What sets it apart; may be empty."""


class Segment(NamedTuple):
    """One part of every bar."""

    label: str
    color: str
    terms: tuple[str, ...]
    """Terms that it adds up."""

    def seconds(self, e: Estimate) -> float:
        """Return its length in the bar of an estimate."""
        return sum(e.terms[name] for name in self.terms)


def bars(found: Search, maximum: int = SHOWN) -> list[Bar]:
    """Return the first strategies, the simplest tie, and the best strategy that is no tie."""
    best = [(f"{place + 1}", e) for place, e in enumerate(found.strategies[:maximum])]
    notes: dict[Strategy, list[str]] = {}
    others = (found.best, "best"), (found.simplest, "simplest tie"), (found.loser, "best non-tie")
    for e, note in others:
        if e is not None:
            notes.setdefault(e.strategy, []).append(note)
            if all(e.strategy != shown.strategy for _, shown in best):
                best.append(("...", e))
    return [
        Bar(e, f"{rank} {'=' if found.is_tie(e) else ' '} {e.strategy}",
            ", ".join(notes.get(e.strategy, ())))
        for rank, e in best
    ]  # fmt: skip


def kinds(rows: Sequence[Bar]) -> list[Segment]:
    """Return one segment for each kind of term that takes any time."""
    return [
        Segment(kind, color, tuple(largest))
        for kind, color in COLORS.items()
        if (largest := _largest(rows, kind))
    ]


def segments(rows: Sequence[Bar], *, small: float = SMALL) -> list[Segment]:
    """Return one segment for each term that takes any time, by kind.

    Args:
        rows: Strategies that have a bar.
        small: Terms below this fraction of every step are joined, where a kind has several.
    """
    parts: list[Segment] = []
    for kind in COLORS:
        largest = _largest(rows, kind)
        rest = tuple(key for key, fraction in largest.items() if fraction < small)
        alone = [key for key in largest if key not in rest or len(rest) < 2]
        parts += [Segment(TERMS[key].label, TERMS[key].color, (key,)) for key in alone]
        if len(rest) > 1:
            parts.append(Segment(f"other {kind}", TERMS[rest[-1]].color, rest))
    return parts


def _largest(rows: Sequence[Bar], kind: str) -> dict[str, float]:
    """Return the largest fraction of a step of every term of a kind that takes any time."""
    found = {}
    for key, term in TERMS.items():
        shares = [row.estimate.terms[key] / row.estimate.step_seconds for row in rows]
        if term.kind == kind and any(shares):
            found[key] = max(shares)
    return found


def search_figure(found: Search) -> Figure:
    """Return one stacked bar per strategy: by kind, and by term."""
    rows = bars(found)
    traces = [
        _bar_trace(part, rows, view)
        for view, parts in (("by kind", kinds(rows)), ("by term", segments(rows)))
        for part in parts
    ]
    panel = Panel(
        kind="bars",
        x=Axis(values=[row.label for row in rows]),
        y=Axis(label=METRICS["step_seconds"].axis),
        traces=traces,
        ends=[_end(row) for row in rows],
        sideways=True,
        stacked=True,
    )
    tie = " =: at least 1 chance in 3 to be better than the best." if found.ties > 1 else ""
    small = f"Terms below {100 * SMALL:.1f}% of every step are joined by kind.{tie}"
    return Figure(
        name="search",
        panels=[panel] if rows else [],
        title=title(found),
        lead=headline(found),
        notes=[small, source_line(found)],
    )


def _bar_trace(part: Segment, rows: Sequence[Bar], view: str) -> Trace:
    seconds = [part.seconds(row.estimate) for row in rows]
    shares = [s / row.estimate.step_seconds for s, row in zip(seconds, rows, strict=True)]
    return Trace(
        name=part.label,
        xs=[row.label for row in rows],
        ys=seconds,
        texts=[f"{100 * share:.0f}%" for share in shares],
        hover=[
            f"{escape(str(row.estimate.strategy))}<br>{part.label}: {s:.4g} s, "
            f"{format_percent(share)} of step"
            for row, s, share in zip(rows, seconds, shares, strict=True)
        ],
        color=part.color,
        view=view,
    )


def _end(row: Bar) -> str:
    return _speed(row.estimate) + (f"\n{row.note}" if row.note else "")


def _speed(e: Estimate) -> str:
    step, rate = METRICS["step_seconds"], METRICS["tokens_per_second_per_accelerator"]
    return " ".join(
        (step.number(e.step_seconds), f"{step.unit},",
         rate.number(e.tokens_per_second_per_accelerator), rate.unit)
    )  # fmt: skip


def front_axes(found: Search) -> list[str]:
    """Return the objectives that the front trades step time for."""
    return [
        name
        for name in found.objectives
        if name not in ("time", "tokens") and len({_on(e, name) for e in found.pareto}) > 1
    ]


def front_figure(found: Search) -> Figure:
    """Return step time against every other objective, one point per strategy of the front."""
    ordered = sorted(found.pareto, key=lambda e: e.step_seconds)
    best, simplest = found.best, found.simplest
    special = [(f"best by {found.by}", best), ("simplest tie", simplest)]
    if best is None or simplest is None or simplest.strategy == best.strategy:
        special.pop()
    wide = ordered[-1].step_seconds > WIDE * ordered[0].step_seconds
    axes = front_axes(found)
    panels = [
        Panel(
            kind="lines",
            x=Axis(label=OBJECTIVES["time"].axis, log=wide),
            y=Axis(label=OBJECTIVES[name].axis),
            traces=[
                Trace(
                    name="Pareto front",
                    xs=[e.step_seconds for e in ordered],
                    ys=[_on(e, name) for e in ordered],
                    hover=[_hover(e) for e in ordered],
                    steps=True,
                )
            ],
            marks=[
                Marks(
                    name=group,
                    xs=[e.step_seconds],
                    ys=[_on(e, name)],
                    hover=[_hover(e)],
                    symbol="star" if e is best else "open-star",
                )
                for group, e in special
                if e is not None
            ],
        )
        for name in axes
    ]
    return Figure(name="front", panels=panels, columns=len(axes))


def mesh_figure(found: Search) -> Figure:
    """Return the best strategy of every TP and PP degree, colored by its distance to the best."""
    meshes = found.best_by_tp_pp
    tps, pps = (sorted({mesh[place] for mesh in meshes}) for place in (0, 1))
    minimum = min(objective_of(e, found.by) for e in meshes.values())
    traces = []
    for tp in tps:
        known = [(pp, meshes[tp, pp]) for pp in pps if (tp, pp) in meshes]
        above = [100.0 * (objective_of(e, found.by) / minimum - 1.0) for _, e in known]
        traces.append(
            Trace(
                name=f"{tp}",
                xs=[pp for pp, _ in known],
                ys=[min(percent, WORST) for percent in above],
                texts=[_cell(e, found.by) for _, e in known],
                hover=[
                    f"{_hover(e)}<br>{percent:+.1f}%"
                    for (_, e), percent in zip(known, above, strict=True)
                ],
            )
        )
    s = found.best.strategy if found.best is not None else None
    panel = Panel(
        kind="map",
        x=Axis(label="pipeline stages", values=pps),
        y=Axis(label="tensor parallel degree", values=tps),
        traces=traces,
        scale=f"% above the best (up to {WORST:.0f})",
        frame=(s.pp, s.tp) if s is not None and (s.tp, s.pp) in meshes else None,
    )
    return Figure(name="meshes", panels=[panel])


def _cell(e: Estimate, by: str) -> str:
    """Return the text of a cell: the objective, and how experts are split if there are any."""
    text, s = objective_text(by, objective_of(e, by)), e.strategy
    if e.model.moe is None:
        return text
    return f"{text}\nEP {s.ep}" + (f" x ETP {s.etp}" if s.etp > 1 else "")


def objective_text(by: str, value: float) -> str:
    """Return the value of an objective with its unit."""
    metric = OBJECTIVES[by]
    return f"${metric.number(value)}" if by == "cost" else f"{metric.number(value)} {metric.unit}"


def _on(e: Estimate, name: str) -> float:
    """Return an objective in the unit of its axis."""
    return OBJECTIVES[name].factor * objective_of(e, name)


def _hover(e: Estimate) -> str:
    cost, energy = e.usd_per_million_tokens, e.joules_per_token
    lines = [
        f"<b>{escape(str(e.strategy))}</b>",
        f"{_speed(e)}, MFU {format_percent(e.mfu)}",
        f"{e.memory_bytes * 2**-30:.1f} of {e.memory_capacity * 2**-30:.1f} GiB",
        *([] if energy is None else [f"{energy:.3g} J/token"]),
        *([] if cost is None else [f"${cost:.3g}/M tokens"]),
    ]
    return "<br>".join(lines)


def title(found: Search) -> str:
    """Return the question in one line."""
    e = found.best or found.nearest
    if e is None:
        return "Search of strategies"
    device, cluster = e.cluster.accelerator.name, e.cluster.name
    where = "" if cluster == device else f" ({cluster})"
    return (
        f"{e.model.name} ({format_count(e.model.parameters)}) on {e.cluster.accelerators:,}x "
        f"{device}{where}: {found.evaluated:,} strategies by {found.by}"
    )


def source_line(found: Search) -> str:
    """Return what the numbers come from."""
    e = found.best or found.nearest
    text = f"Predicted by Scalewise {__version__}"
    if e is None:
        return text + "."
    work, dated = e.workload, e.cluster.accelerator.price_date
    price = "" if dated is None or e.usd_per_hour is None else f", price of {dated}"
    return (
        f"{text}: sequence length {work.seq_len:,}, batch {work.global_batch:,}, "
        f"{work.precision}; datasheet of {e.cluster.accelerator.name}, stack {e.stack.name}, "
        f"fabric {e.cluster.fabric.name}{price}."
    )
