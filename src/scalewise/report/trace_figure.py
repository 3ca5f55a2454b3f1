"""How does a trace look? Stacked bars: what each rank and each step spent its time on.

    trace_html(summary)               # a page that works offline (extra `plot`)
    trace_image(summary, "svg")       # or "png", for papers (extra `plot`)

Reading is `trace.read`; the terminal's view, the parts and their colours are `trace_table`.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from scalewise._version import __version__
from scalewise.errors import require
from scalewise.report.trace_table import PARTS, heading, lead, size_range

if TYPE_CHECKING:
    from scalewise.trace.summary import Communication, Times, TraceSummary

WIDTH, PANEL_HEIGHT = 10.0, 3.6
"""Inches."""
DOTS = 160
"""Per inch, of PNG."""
NAMED = 40
"""Most bars that are named one by one under an axis."""

STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 70em;
  margin: 1.5em auto; padding: 0 1.5em }
h1 { font-size: 1.25em } h2 { font-size: 1.05em; margin: 1.4em 0 .3em }
table { border-collapse: collapse } td, th { padding: .1em 1em .1em 0; text-align: right }
td:first-child, th:first-child { text-align: left } th { color: #666; font-weight: normal }
.source { color: #666; font-size: .9em }"""


class Panel(NamedTuple):
    """Bars beside each other."""

    title: str
    """Of the axis under them."""
    bars: tuple[tuple[str, Times], ...]


def panels(summary: TraceSummary) -> list[Panel]:
    """Ranks where there are several, and steps where there are any; else the whole as one bar."""
    found = []
    if len(summary.ranks) > 1:
        numbers = [each.rank for each in summary.ranks]
        plain = len(set(numbers)) == len(numbers) and None not in numbers
        names = [
            str(each.rank) if plain else f"{place}: {each.rank}, {each.device}"
            for place, each in enumerate(summary.ranks)
        ]
        found.append(Panel("rank", tuple(zip(names, summary.ranks, strict=True))))
    if summary.steps:
        mean = ", mean of the ranks" if len(summary.ranks) > 1 else ""
        bars = tuple((str(step.step), step) for step in summary.steps)
        found.append(Panel("step" + mean, bars))
    return found or [Panel("the whole trace", (("all", summary),))]


def source_line(summary: TraceSummary) -> str:
    """Where the numbers come from."""
    return f"{heading(summary)}. Read by Scalewise {__version__}."


def trace_figure(summary: TraceSummary) -> Any:
    """Draw the bars as a plotly figure, one panel above the other."""
    go: Any = require("plotly.graph_objects", "plot")
    subplots: Any = require("plotly.subplots", "plot")
    shown = panels(summary)
    figure = subplots.make_subplots(rows=len(shown), cols=1, vertical_spacing=0.25 / len(shown))
    for number, panel in enumerate(shown, 1):
        names = [name for name, _ in panel.bars]
        for part in PARTS:
            values = [1e3 * max(part.seconds(times), 0.0) for _, times in panel.bars]
            figure.add_trace(
                go.Bar(
                    x=names,
                    y=values,
                    name=part.name,
                    legendgroup=part.name,
                    showlegend=number == 1,
                    marker={"color": part.colour, "line": {"width": 0}},
                    hovertemplate="%{x}: %{y:,.2f} ms " + part.name + "<extra></extra>",
                ),
                row=number,
                col=1,
            )
        figure.update_xaxes(type="category", title_text=panel.title, row=number, col=1)
        figure.update_yaxes(title_text="ms", rangemode="tozero", row=number, col=1)
    figure.update_layout(
        barmode="stack",
        template="plotly_white",
        height=120 + 360 * len(shown),
        margin={"t": 60, "l": 70, "r": 20, "b": 60},
        legend={"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom", "traceorder": "normal"},
    )
    return figure


def trace_html(summary: TraceSummary) -> str:
    """The figure, its sentence and the tables of calls as a page that needs no network."""
    plot: str = trace_figure(summary).to_html(
        include_plotlyjs=True, full_html=False, config={"displaylogo": False}
    )
    tables = "".join(
        _calls(title, rows)
        for title, rows in (
            ("By collective", summary.collectives),
            ("By process group", summary.groups),
            ("By collective and size", summary.sizes),
        )
        if rows
    )
    notes = "".join(f"<li>{escape(note)}</li>" for note in summary.notes)
    notes = f"<h2>How to read it</h2><ul>{notes}</ul>" if notes else ""
    name = escape(heading(summary))
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{name}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(lead(summary))}</h1>{plot}{tables}{notes}"
        f"<p class='source'>{escape(source_line(summary))}</p></body></html>\n"
    )


def _calls(title: str, rows: Sequence[Communication]) -> str:
    """Calls as a table; every text is escaped, because groups are named by users."""
    heads = ("", "ranks", "calls", "a call moves", "ms", "exposed ms", "overlap")
    lines = []
    for row in rows:
        cells = (
            row.name,
            "?" if row.group_size is None else f"{row.group_size:,}",
            f"{row.calls:,.10g}",
            size_range(row),
            f"{row.communication_seconds * 1e3:,.2f}",
            f"{row.exposed_seconds * 1e3:,.2f}",
            "-" if row.overlap_pct is None else f"{row.overlap_pct:.1f} %",
        )
        lines.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    head = "".join(f"<th>{each}</th>" for each in heads)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return f"<h2>{escape(title)}</h2><table><tr>{head}</tr>{body}</table>"


def trace_image(summary: TraceSummary, kind: Literal["svg", "png"]) -> bytes:
    """Draw the same bars as a still picture.

    Args:
        summary: What to draw.
        kind: "svg", with text as paths so that it looks the same everywhere, or "png".

    Returns:
        The bytes of the file; the same for the same summary.
    """
    mpl: Any = require("matplotlib", "plot")
    figures: Any = require("matplotlib.figure", "plot")
    shown = panels(summary)
    page = io.BytesIO()
    with mpl.rc_context({"svg.fonttype": "path", "svg.hashsalt": "scalewise", "font.size": 9.5}):
        # A figure of its own: no window system, no state shared with the caller's plots.
        size = (WIDTH, PANEL_HEIGHT * len(shown) + 1.0)
        figure = figures.Figure(figsize=size, layout="constrained")
        axes = figure.subplots(len(shown), 1, squeeze=False)[:, 0]
        for axis, panel in zip(axes, shown, strict=True):
            _draw(axis, panel)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(
            handles, labels, loc="outside upper left", ncols=len(PARTS), frameon=False,
            alignment="left", title=textwrap.fill(lead(summary), 105),
            title_fontproperties={"size": 11, "weight": "bold"},
        )  # fmt: skip
        figure.supxlabel(textwrap.fill(source_line(summary), 150), x=0.01, ha="left", fontsize=7.5)
        metadata = {"Date": None} if kind == "svg" else {"Software": None}
        figure.savefig(page, format=kind, dpi=DOTS, metadata=metadata)
    return page.getvalue()


def _draw(axis: Any, panel: Panel) -> None:
    """One panel of stacked bars, from zero."""
    places = range(len(panel.bars))
    bottom = [0.0] * len(panel.bars)
    for part in PARTS:
        values = [1e3 * max(part.seconds(times), 0.0) for _, times in panel.bars]
        axis.bar(places, values, bottom=bottom, color=part.colour, label=part.name, width=0.8)
        bottom = [low + value for low, value in zip(bottom, values, strict=True)]
    every = -(-len(panel.bars) // NAMED)
    named = [name for name, _ in panel.bars][::every]
    turned = 45 if max(map(len, named)) * len(named) > 110 else 0
    axis.set_xticks(places[::every], named, rotation=turned, ha="right" if turned else "center")
    # Few bars stand in the middle instead of filling the page.
    spare = max(6 - len(panel.bars), 0) / 2
    axis.set_xlim(-0.6 - spare, len(panel.bars) - 0.4 + spare)
    axis.set_xlabel(panel.title)
    axis.set_ylabel("ms")
    axis.grid(axis="y", alpha=0.25)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
