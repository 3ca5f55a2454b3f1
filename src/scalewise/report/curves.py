"""How do scaling curves read? A table and a small chart per cluster, then what they mean.

    print_curves(curves, Console(), share=0.5)
    curves_csv(curves)                # one line per point, missing ones with their reason

Computing is `explore.scale`; this file only says it. The page with plots is `curves_page`.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.explore.points import KNEE, Cause, Crossover, Curve, Curves, Point, knee
from scalewise.report.tables import INDENT, sentences
from scalewise.report.words import grouped
from scalewise.units import format_count, format_percent

CHART_HEIGHT = 10
"""Lines of the chart."""
CHART_WIDTH = 56
"""Columns of the chart, without its axis."""
MARKS = "abcdefghijklmnopqrstuvwxyz"
"""One letter per curve; several curves in one cell are a `*`."""

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
        precisions = " and ".join(dict.fromkeys(curve.precision for curve in mine))
        console.print(Text(f"{cluster}, {precisions}", style="bold cyan"))
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
        parts = [_loss_words(run) for run in _runs(curve)]
        if parts:
            told.append(f"{curve_name(curve, curves)}: " + "; ".join(parts))
    return told


def _runs(curve: Curve) -> list[list[tuple[Point, Cause]]]:
    """Split a curve into neighbouring sizes that lose to the same term."""
    runs: list[list[tuple[Point, Cause]]] = []
    for point in curve.feasible:
        if point.cause is None:
            continue
        last, cause = runs[-1][-1] if runs else (None, None)
        # A size that lost nothing stands between two runs.
        touches = last is not None and last.accelerators == point.previous
        if touches and cause is not None and cause.term == point.cause.term:
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


def curve_name(curve: Curve, curves: Curves) -> str:
    """The label, with its cluster where there are several."""
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
    """One row per strategy and size that has a point; what cannot run shows dashes.

    Columns that the width has no room for are dropped in the order of `SPARE`: JSON and CSV have
    them all, and a number cut in two is worse than none.
    """
    columns: dict[str, list[str]] = {}
    for curve in curves:
        label = curve.label
        for point in curve.points:
            cells = {"strategy": label, "size": f"{point.accelerators:,}"} | _cells(curve, point)
            for name, cell in cells.items():
                columns.setdefault(name, []).append(cell)
            label = ""
    columns = {name: cells for name, cells in columns.items() if any(c.strip("-") for c in cells)}
    gap, spare = 2, list(SPARE)
    while _width(columns, gap) > width - INDENT and (gap > 1 or spare):
        if gap > 1:
            gap = 1
        else:
            columns.pop(spare.pop(0), None)
    table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
    for name in columns:
        table.add_column(
            name, justify="left" if name == "strategy" else "right", no_wrap=True, vertical="bottom"
        )
    for row in zip(*columns.values(), strict=True):
        table.add_row(*row)
    return table


# What a narrow terminal does without, first to last.
SPARE = ("$ per M\ntokens", "exposed\n%", "mb", "tokens\nper J", "W\neach", "days", "MFU\n%")


def _width(columns: dict[str, list[str]], gap: int) -> int:
    """Characters that a table needs."""
    needed = (max(map(len, [*name.split("\n"), *cells])) for name, cells in columns.items())
    return sum(needed) + gap * len(columns)


def _micro_batch(point: Point) -> str:
    """The micro batch, read from the one spelling of the strategy, which always states it."""
    return next(part[2:] for part in point.strategy.split("-") if part.startswith("mb"))


def _cells(curve: Curve, point: Point) -> dict[str, str]:
    """The cells of a row by the heading of their column."""
    gain = returned(curve, point) if point.feasible else None
    cells = {
        "mb": _micro_batch(point),
        "tokens/s": format_count(point.tokens_per_second),
        "each": grouped(point.tokens_per_second_per_accelerator),
        "low - high": f"{grouped(point.low)} - {grouped(point.high)}",
        "MFU\n%": f"{100 * point.mfu:.1f}",
        "exposed\n%": f"{100 * point.exposed_share:.1f}",
        "W\neach": _or_dash(point.watts_per_accelerator, "{:,.0f}"),
        "tokens\nper J": _or_dash(point.tokens_per_joule, "{:.3g}"),
        "$ per M\ntokens": _or_dash(point.usd_per_million_tokens, "{:.3g}"),
        "days": _or_dash(point.days, "{:,.3g}" if (point.days or 0.0) < 100 else "{:,.0f}"),
        "return\n%": "" if gain is None else f"{100 * gain:.1f}",
    }
    return cells if point.feasible else dict.fromkeys(cells, "-") | {"mb": cells["mb"]}


def _or_dash(value: float | None, shape: str) -> str:
    return "-" if value is None else shape.format(value)
