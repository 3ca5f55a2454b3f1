"""How do scaling curves read? A table and a small chart per cluster, then what they mean.

    print_curves(curves, Console(), share=0.5)
    curves_csv(curves)                # one line per point, missing ones with their reason
    curves_html(curves)               # a page that works offline

Computing is `explore.scale`; this file only says and draws it.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.errors import require
from scalewise.explore.scale import KNEE, Crossover, Curve, Curves, Point, knee
from scalewise.report.scatter import PALETTE, SYMBOLS
from scalewise.report.tables import INDENT, sentences
from scalewise.report.words import grouped
from scalewise.units import format_count, format_dollars, format_percent

if TYPE_CHECKING:
    from rich.console import JustifyMethod

CHART_HEIGHT = 10
"""Lines of the chart."""
CHART_WIDTH = 56
"""Columns of the chart, without its axis."""
MARKS = "abcdefghijklmnopqrstuvwxyz"
"""One letter per curve; several curves in one cell are a `*`."""
WIDE = 100
"""Columns from which a table has room between its own."""

COLUMNS = (
    "cluster", "label", "accelerators", "strategy", "global_batch", "micro_steps", "step_seconds",
    "tokens_per_second", "tokens_per_second_per_accelerator", "low", "high", "mfu",
    "exposed_share", "contention_share", "memory_bytes", "watts_per_accelerator",
    "facility_watts_per_accelerator", "tokens_per_joule", "usd_per_million_tokens", "days",
    "previous", "marginal_tokens_per_second", "marginal_tokens_per_joule",
    "marginal_usd_per_million_tokens", "cause", "cause_share", "loss", "infeasible",
)  # fmt: skip
"""Of the CSV, in order; SI units, shares from 0 to 1."""


def print_curves(
    curves: Curves, console: Console, *, share: float = KNEE, chosen: Sequence[str] = ()
) -> None:
    """Print everything a reader needs about scaling curves.

    Args:
        curves: What to tell.
        console: Where to.
        share: Share of the first return below which a size is past its knee.
        chosen: What was chosen for the user.
    """
    console.print(Text(f"{curves.model}: {curves.rule}", style="bold"))
    for cluster in curves.clusters():
        mine = curves.on(cluster)
        console.print()
        console.print(Text(f"{cluster}, {mine[0].precision}", style="bold cyan"))
        console.print(Padding(_table(mine, console.width), (0, 0, 0, INDENT)))
        if any(curve.feasible for curve in mine):
            console.print()
            for line in chart_lines(mine):
                console.print(Padding(Text(line, no_wrap=True), (0, 0, 0, INDENT)))
    several = len(curves.clusters()) > 1
    sentences(console, "Where growing stops paying", knee_sentences(curves, share))
    sentences(
        console,
        "Who overtakes whom",
        [_where(each.cluster, several) + crossover_words(each) for each in curves.crossovers()],
    )
    sentences(console, "What the loss is spent on", cause_sentences(curves))
    sentences(console, "No point", missing_sentences(curves), style="yellow")
    sentences(console, "Chosen for you", chosen)
    sentences(console, "Warnings", curves.warnings, style="yellow")
    sentences(
        console,
        "How to read it",
        [
            "low - high holds 80 % of cases. `return` is what each added accelerator brings, over "
            "what each one brings at the smallest size."
        ],
    )


def knee_sentences(curves: Curves, share: float = KNEE) -> list[str]:
    """Say for each curve where its knee is, or what the last size still returns."""
    told: list[str] = []
    for curve in curves.curves:
        points = curve.feasible
        name = _name(curve, curves)
        if len(points) < 2:
            told.append(f"{name}: fewer than two sizes can run, so there is no knee to find")
            continue
        found = knee(curve, share)
        first = f"each of the first {points[0].accelerators:,}"
        if found is not None:
            told.append(
                f"{name}: the knee is at {found.accelerators:,}: from {found.previous:,} on, an "
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


def crossover_words(each: Crossover) -> str:
    """Say one crossover: where, by how much, and what becomes of it."""
    text = (
        f"from {each.accelerators:,} accelerators {each.winner} beats {each.loser}, "
        f"by {format_percent(each.gain)} there"
    )
    if each.last == each.accelerators:
        return text
    if each.last_gain < 0:
        return f"{text}, but not at {each.last:,} any more"
    return f"{text} and {format_percent(each.last_gain)} at {each.last:,}"


def cause_sentences(curves: Curves) -> list[str]:
    """Say for each curve which term ate most between which sizes; equal neighbours are merged."""
    told: list[str] = []
    for curve in curves.curves:
        parts: list[str] = []
        losing = [(point, point.cause) for point in curve.feasible if point.cause is not None]
        # Sizes without a loss break a run, hence the place in the curve as a part of the key.
        for name, run in groupby(losing, key=lambda pair: pair[1].name):
            group = list(run)
            shares = [cause.share for _, cause in group]
            kept = math.prod(1.0 - cause.loss for _, cause in group)
            low, high = format_percent(min(shares)), format_percent(max(shares))
            span = low if low == high else f"{low.removesuffix(' %')} to {high}"
            parts.append(
                f"{group[0][0].previous:,} to {group[-1][0].accelerators:,} {name} ({span} of a "
                f"loss of {format_percent(1.0 - kept)})"
            )
        if parts:
            told.append(f"{_name(curve, curves)}: " + "; ".join(parts))
    return told


def missing_sentences(curves: Curves) -> list[str]:
    """Say why sizes have no point; sizes with the same kind of reason share a line."""
    told: list[str] = []
    for curve in curves.curves:
        gaps = [(each.accelerators, each.reason) for each in curve.missing]
        gaps += [(p.accelerators, p.infeasible) for p in curve.points if p.infeasible is not None]
        for _, run in groupby(sorted(gaps), key=lambda gap: gap[1].split(":")[0]):
            group = list(run)
            sizes = f"{group[0][0]:,}"
            if len(group) > 1:
                sizes += f" to {group[-1][0]:,}" if len(group) > 2 else f" and {group[-1][0]:,}"
            told.append(f"{_name(curve, curves)} at {sizes}: {group[-1][1]}")
    return told


def returned(curve: Curve, point: Point) -> float | None:
    """What each accelerator added at a point brings, over what each brings at the first."""
    if point.marginal_tokens_per_second is None:
        return None
    return point.marginal_tokens_per_second / curve.feasible[0].tokens_per_second_per_accelerator


def chart_lines(curves: Sequence[Curve]) -> list[str]:
    """Draw tokens/s per accelerator against size, on log2, from zero, in plain characters."""
    points = [(place, point) for place, curve in enumerate(curves) for point in curve.feasible]
    sizes = sorted({point.accelerators for _, point in points})
    top = max(point.tokens_per_second_per_accelerator for _, point in points)
    span = math.log2(sizes[-1] / sizes[0]) or 1.0

    def column(size: int) -> int:
        return round(math.log2(size / sizes[0]) / span * (CHART_WIDTH - 1))

    grid = [[" "] * CHART_WIDTH for _ in range(CHART_HEIGHT)]
    for place, point in points:
        up = point.tokens_per_second_per_accelerator / top * (CHART_HEIGHT - 1)
        row, at = CHART_HEIGHT - 1 - round(up), column(point.accelerators)
        grid[row][at] = MARKS[place % len(MARKS)] if grid[row][at] == " " else "*"
    labels = {0: grouped(top), CHART_HEIGHT - 1: "0"}
    width = max(len(label) for label in labels.values())
    lines = ["tokens/s per accelerator"]
    for row, cells in enumerate(grid):
        lines.append(f"{labels.get(row, ''):>{width}} |{''.join(cells)}".rstrip())
    lines.append(" " * width + " +" + "-" * CHART_WIDTH)
    lines.append(" " * (width + 2) + _ticks([(column(size), f"{size:,}") for size in sizes]))
    marks = ", ".join(
        f"{MARKS[place % len(MARKS)]} {curve.label}" for place, curve in enumerate(curves)
    )
    lines.append(" " * (width + 2) + f"accelerators; {marks}, * several")
    return lines


def curves_csv(curves: Curves) -> str:
    """Write one line per point, and one per missing size with its reason."""
    page = io.StringIO()
    writer = csv.DictWriter(page, COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    for curve in curves.curves:
        head = {"cluster": curve.cluster, "label": curve.label}
        rows: list[dict[str, object]] = [
            {**head, "accelerators": gap.accelerators, "infeasible": gap.reason}
            for gap in curve.missing
        ]
        for point in curve.points:
            row: dict[str, object] = {
                name: getattr(point, name) for name in COLUMNS if hasattr(point, name)
            }
            cause = point.cause
            if cause is not None:
                row |= {"cause": cause.term, "cause_share": cause.share, "loss": cause.loss}
            rows.append(head | row)
        writer.writerows(sorted(rows, key=lambda row: int(str(row["accelerators"]))))
    return page.getvalue()


# What the panels of the page show: field, axis title.
PANELS = (
    ("tokens_per_second_per_accelerator", "tokens/s per accelerator"),
    ("marginal_tokens_per_second", "tokens/s per added accelerator"),
    ("watts_per_accelerator", "W per accelerator"),
    ("tokens_per_joule", "tokens per joule (site)"),
)


def curves_figure(curves: Curves) -> Any:
    """Draw throughput with its interval, marginal throughput, power and energy against size.

    Args:
        curves: What to draw; points that cannot run are left out.

    Returns:
        A plotly figure; the legend is ordered by throughput at the largest size.
    """
    go: Any = require("plotly.graph_objects", "plot")
    subplots: Any = require("plotly.subplots", "plot")
    figure = subplots.make_subplots(rows=2, cols=2, subplot_titles=[name for _, name in PANELS])
    drawn = [curve for curve in curves.curves if curve.feasible]
    drawn.sort(key=_final, reverse=True)
    for place, curve in enumerate(drawn):
        colour = PALETTE[place % len(PALETTE)]
        points = curve.feasible
        x = [point.accelerators for point in points]
        figure.add_trace(
            go.Scatter(
                x=x + x[::-1],
                y=[p.high for p in points] + [p.low for p in points][::-1],
                fill="toself", fillcolor=colour, opacity=0.15, mode="lines", line={"width": 0},
                hoverinfo="skip", showlegend=False, legendgroup=str(place),
            ), row=1, col=1,
        )  # fmt: skip
        for number, (field, unit) in enumerate(PANELS):
            figure.add_trace(
                go.Scatter(
                    x=x,
                    y=[getattr(point, field) for point in points],
                    mode="lines+markers",
                    name=_name(curve, curves),
                    legendgroup=str(place),
                    showlegend=number == 0,
                    line={"color": colour},
                    marker={"symbol": SYMBOLS[place % len(SYMBOLS)], "size": 7},
                    text=[_hover(point) for point in points],
                    hovertemplate="%{text}<br>%{y:,.4g} " + unit + "<extra></extra>",
                ),
                row=number // 2 + 1,
                col=number % 2 + 1,
            )
    ticks = [f"{size:,}" for size in curves.sizes]
    figure.update_xaxes(
        type="log", tickvals=list(curves.sizes), ticktext=ticks, title_text="accelerators"
    )
    for number, (_, unit) in enumerate(PANELS):
        figure.update_yaxes(
            title_text=unit, rangemode="tozero", row=number // 2 + 1, col=number % 2 + 1
        )
    figure.update_layout(
        title=f"{curves.model}: {curves.rule} (bands hold 80 % of cases)",
        template="plotly_white",
        height=860,
        legend={"title": {"text": "by throughput at the largest size"}},
    )
    return figure


def curves_html(curves: Curves) -> str:
    """The figure as a self-contained page."""
    page: str = curves_figure(curves).to_html(include_plotlyjs=True, full_html=True)
    return page


def _final(curve: Curve) -> tuple[int, float]:
    """Order of the legend: who gets furthest, then who is fastest there."""
    last = curve.feasible[-1]
    return last.accelerators, last.tokens_per_second


def _hover(point: Point) -> str:
    return (
        f"{point.strategy} on {point.accelerators:,}<br>"
        f"{point.tokens_per_second_per_accelerator:,.0f} ({point.low:,.0f} - {point.high:,.0f}) "
        f"tokens/s per accelerator, MFU {format_percent(point.mfu)}"
    )


def _name(curve: Curve, curves: Curves) -> str:
    return _where(curve.cluster, len(curves.clusters()) > 1) + curve.label


def _where(cluster: str, several: bool) -> str:  # noqa: FBT001 - a prefix or none
    return f"{cluster}, " if several else ""


def _ticks(places: Iterable[tuple[int, str]]) -> str:
    """Write labels under their columns, leaving out those that have no room."""
    line = ""
    for at, label in places:
        if not line or at > len(line):
            line = line.ljust(at) + label
    return line


def _table(curves: Sequence[Curve], width: int) -> Table:
    """One row per strategy and size that has a point; what cannot run shows dashes."""
    budget = any(point.days is not None for curve in curves for point in curve.points)
    gap = 2 if width >= WIDE + 8 * budget else 1
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    sides: tuple[tuple[str, JustifyMethod], ...] = (
        ("strategy", "left"), ("size", "right"), ("mb", "right"), ("tokens/s", "right"),
        ("each", "right"), ("low - high", "right"), ("MFU %", "right"), ("expo-\nsed %", "right"),
        ("W each", "right"), ("tokens\n/J", "right"), ("$ per M\ntokens", "right"),
        ("return\n%", "right"), *((("days", "right"),) if budget else ()),
    )  # fmt: skip
    for name, side in sides:
        table.add_column(name, justify=side, no_wrap=True, vertical="bottom")
    for curve in curves:
        label = curve.label
        for point in curve.points:
            size, micro = f"{point.accelerators:,}", _micro_batch(point)
            if point.feasible:
                table.add_row(label, size, micro, *_cells(curve, point, budget=budget))
            else:
                table.add_row(label, size, micro, *["-"] * (len(sides) - 3), style="dim")
            label = ""
    return table


def _micro_batch(point: Point) -> str:
    """The micro batch, read from the one spelling of the strategy, which always states it."""
    return next(part[2:] for part in point.strategy.split("-") if part.startswith("mb"))


def _cells(curve: Curve, point: Point, *, budget: bool) -> list[str]:
    gain = returned(curve, point)
    cells = [
        format_count(point.tokens_per_second),
        grouped(point.tokens_per_second_per_accelerator),
        f"{grouped(point.low)} - {grouped(point.high)}",
        f"{100 * point.mfu:.1f}",
        f"{100 * point.exposed_share:.1f}",
        _or_dash(point.watts_per_accelerator, "{:,.0f}"),
        _or_dash(point.tokens_per_joule, "{:.3g}"),
        "-"
        if point.usd_per_million_tokens is None
        else format_dollars(point.usd_per_million_tokens),
        "" if gain is None else f"{100 * gain:.1f}",
    ]
    return [*cells, _or_dash(point.days, "{:,.1f}")] if budget else cells


def _or_dash(value: float | None, shape: str) -> str:
    return "-" if value is None else shape.format(value)
