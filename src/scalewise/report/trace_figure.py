"""Figure and files of a trace: one stacked bar per rank and per step.

    trace_figure(summary)             # a Figure for every renderer
    trace_file(summary, ".html")      # bytes, by file ending

`trace.read` reads; parts, colors and sentences are those of `trace_table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise._version import __version__
from scalewise.report.figure import Axis, Figure, Panel, Trace
from scalewise.report.page import bullets, figure_page, heading, table
from scalewise.report.table import columns_of, file_bytes
from scalewise.report.trace_table import PARTS, lead, size_range
from scalewise.report.trace_table import heading as trace_heading
from scalewise.trace.summary import Times

if TYPE_CHECKING:
    from scalewise.trace.summary import Communication, TraceSummary

COLUMNS: dict[str, type] = {
    "scope": str, "rank": int, "device": str, "file": str, "step": int, "counted": bool,
    "name": str, "group_size": int, "calls": float, "bytes": float, "smallest_bytes": int,
    "largest_bytes": int, **columns_of(Times),
}  # fmt: skip
"""Types by column; `scope` is "all", "step", "collective", "group" or "size", for the mean of all
ranks where `rank` and `file` are empty, and for one rank where they are not; "rank" is one rank."""

FEW = 12
"""Bars up to which two panels stand side by side."""


def trace_file(summary: TraceSummary, ending: str) -> bytes:
    """Return a trace as a file: .html, .svg, .png, .csv, .parquet or .json."""
    return file_bytes(
        ending,
        page=lambda: trace_page(summary),
        figure=lambda: trace_figure(summary),
        rows=lambda: trace_rows(summary),
        columns=COLUMNS,
        plain=lambda: {"version": __version__, **msgspec.to_builtins(summary)},
    )


def trace_figure(summary: TraceSummary) -> Figure:
    """Return ranks where there are several, and steps where there are any; else one bar."""
    panels = []
    if len(summary.ranks) > 1:
        numbers = [each.rank for each in summary.ranks]
        plain = len(set(numbers)) == len(numbers) and None not in numbers
        names = [
            str(each.rank) if plain else f"{place}: {each.rank}, {each.device}"
            for place, each in enumerate(summary.ranks)
        ]
        panels.append(_panel("rank", names, summary.ranks))
    if summary.steps:
        mean = ", mean of the ranks" if len(summary.ranks) > 1 else ""
        steps = [str(step.step) for step in summary.steps]
        panels.append(_panel("step" + mean, steps, summary.steps))
    few = all(len(panel.x.values) <= FEW for panel in panels)
    return Figure(
        name="trace",
        panels=panels or [_panel("", ["whole trace"], [summary])],
        columns=2 if few else 1,
        title=lead(summary),
        notes=[f"{trace_heading(summary)}. Read by Scalewise {__version__}."],
    )


def _panel(label: str, names: Sequence[str], bars: Sequence[Times]) -> Panel:
    traces = []
    for part in PARTS:
        numbers = [1e3 * max(part.seconds(times), 0.0) for times in bars]
        hover = [f"{n}: {ms:,.2f} ms {part.name}" for n, ms in zip(names, numbers, strict=True)]
        traces.append(Trace(name=part.name, xs=names, ys=numbers, hover=hover, color=part.color))
    x, y = Axis(label=label, values=names), Axis(label="time (ms)")
    return Panel(kind="bars", x=x, y=y, traces=traces, stacked=True)


def trace_page(summary: TraceSummary) -> str:
    """Return the figure and the tables of calls as a self-contained page."""
    tables = (
        ("By collective", summary.collectives),
        ("By process group", summary.groups),
        ("By collective and size", summary.sizes),
    )
    parts = [_calls(name, rows) for name, rows in tables if rows]
    return figure_page(trace_figure(summary), *parts, bullets("Notes", summary.notes))


def _calls(name: str, rows: Sequence[Communication]) -> str:
    heads = ("", "ranks", "calls", "bytes per call", "ms", "exposed ms", "overlap")
    cells = [
        (
            row.name,
            "?" if row.group_size is None else f"{row.group_size:,}",
            f"{row.calls:,.10g}",
            size_range(row),
            f"{row.communication_seconds * 1e3:,.2f}",
            f"{row.exposed_seconds * 1e3:,.2f}",
            "-" if row.overlap_pct is None else f"{row.overlap_pct:.1f}%",
        )
        for row in rows
    ]
    return heading(name) + table(heads, cells)


def trace_rows(summary: TraceSummary) -> list[dict[str, Any]]:
    """Return everything as rows: the mean over ranks first, then rank by rank."""
    lines = [_row("all", summary), *_inside(summary, {})]
    for rank in summary.ranks:
        named = {"rank": rank.rank, "device": rank.device, "file": rank.file}
        lines += [_row("rank", rank) | named, *_inside(rank, named)]
    return lines


def _inside(whole: Any, named: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the steps and calls of all ranks or of one."""
    lines = [_row("step", step) for step in whole.steps]
    for scope in ("collective", "group", "size"):
        lines += [_row(scope, row) for row in getattr(whole, scope + "s")]
    return [row | named for row in lines]


def _row(scope: str, part: Times | Communication) -> dict[str, Any]:
    known = {name: getattr(part, name) for name in COLUMNS if hasattr(part, name)}
    return dict.fromkeys(COLUMNS) | known | {"scope": scope}
