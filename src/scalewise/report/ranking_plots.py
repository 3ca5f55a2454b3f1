"""How does a search look on a screen? Bars of the best, the front, and a map of the meshes.

    bars_figure(found), front_figure(found), mesh_figure(found)      # plotly, the extra `plot`

`ranking_page` puts them between its sentences; colours and labels come from `ranking_style`.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from scalewise.errors import require
from scalewise.explore.search import objective_of
from scalewise.report import ranking_style as style
from scalewise.report.words import grouped
from scalewise.step.estimate import NEAR_TIE
from scalewise.units import format_percent

if TYPE_CHECKING:
    from scalewise.explore.search import Search
    from scalewise.step.result import Estimate

FONT = {"family": "system-ui, sans-serif", "size": 13, "color": "#222222"}
ROOM = 1.45
"""Length of the axis of bars, as a multiple of the longest: for the words behind it."""
WIDE = 10.0
"""Largest over smallest step time from which on the axis of a front is logarithmic."""
WORST = 100.0
"""Per cent above the best at which the colours of the map end: beyond, nothing is of interest."""
_BUTTONS: dict[str, Any] = {
    "type": "buttons", "direction": "right", "x": 0.0, "xanchor": "left", "yanchor": "bottom",
    "pad": {"t": 0, "b": 4}, "bgcolor": "#ffffff", "bordercolor": "#bbbbbb",
}  # fmt: skip


def bars_figure(found: Search) -> Any:
    """One stacked bar per strategy: first by kind, and by single terms at the press of a button."""
    go: Any = require("plotly.graph_objects", "plot")
    rows = style.drawn(found)
    labels = [_spaced(row.label) for row in rows]
    figure = go.Figure()
    for parts, whole in ((style.kinds(rows), True), (style.segments(rows), False)):
        for part in parts:
            seconds = [part.seconds(row.estimate) for row in rows]
            shares = [s / row.estimate.step_seconds for s, row in zip(seconds, rows, strict=True)]
            figure.add_trace(
                go.Bar(
                    x=seconds, y=labels, orientation="h", name=part.label, visible=whole,
                    legendgroup=None if whole else part.kind,
                    legendgrouptitle={} if whole else {"text": part.kind},
                    marker={"color": part.colour, "line": {"color": "#ffffff", "width": 0.8}},
                    customdata=[format_percent(share) for share in shares],
                    hovertemplate="%{y}<br>" + part.label
                    + ": %{x:.4g} s, %{customdata} of the step<extra></extra>",
                )
            )  # fmt: skip
    longest = max((row.estimate.step_seconds for row in rows), default=1.0)
    line = 0.0
    if found.ties > 1 and found.by in ("time", "tokens", "cost") and found.best is not None:
        # Rent is proportional to time, so that one line holds for all three.
        line = (1.0 + NEAR_TIE) * found.best.step_seconds
        figure.add_vline(x=line, line={"color": "#222222", "width": 1, "dash": "dot"})
    for label, row in zip(labels, rows, strict=True):
        e = row.estimate
        told = f"{grouped(e.step_seconds)} s, {e.tokens_per_second_per_accelerator:,.0f} tokens/s"
        figure.add_annotation(
            x=max(e.step_seconds, line), y=label, xanchor="left", align="left", xshift=6,
            text=told + (f"<br><i>{row.note}</i>" if row.note else ""), showarrow=False,
            font={"size": 12},
        )  # fmt: skip
    figure.update_yaxes(autorange="reversed", automargin=True, ticks="", type="category")
    figure.update_xaxes(
        title_text="seconds per step; behind each bar tokens/s per accelerator",
        title_font_size=13,
        range=[0.0, ROOM * longest],
    )
    # The legend goes below, where the words behind the bars cannot meet it on a narrow page; that
    # of single terms is taller, and the page grows for it so that the bars stay as they are.
    tall = 36 * max(len(rows), 1)
    first = [bool(trace.visible) for trace in figure.data]
    buttons = (("by kind", first, 125), ("by single term", [not on for on in first], 235))
    figure.update_layout(
        barmode="stack", bargap=0.28, height=60 + tall + 125, template="plotly_white", font=FONT,
        margin={"t": 60, "l": 10, "r": 10, "b": 125},
        legend={"groupclick": "toggleitem", "traceorder": "grouped", "orientation": "h",
                "x": 0.0, "xanchor": "left", "y": -52 / tall, "yanchor": "top",
                "font": {"size": 12}},
        updatemenus=[_BUTTONS | {"y": 1.02, "buttons": [
            {"label": name, "method": "update",
             "args": [{"visible": shown}, {"margin.b": below, "height": 60 + tall + below}]}
            for name, shown, below in buttons
        ]}],
    )  # fmt: skip
    return figure


def front_axes(found: Search) -> list[str]:
    """What of the front's objectives it can be drawn against time, in the order asked for."""
    return [
        name
        for name in found.objectives
        if name not in ("time", "tokens") and len({_on(e, name) for e in found.pareto}) > 1
    ]


def front_figure(found: Search) -> Any:
    """Step time against what it is traded for, one point per strategy of the front."""
    go: Any = require("plotly.graph_objects", "plot")
    axes = front_axes(found)
    ordered = sorted(found.pareto, key=lambda e: e.step_seconds)
    best, simplest = found.best, found.simplest
    groups = [("front", "circle", "#0072B2", ordered)]
    if simplest is not None and best is not None and simplest.strategy != best.strategy:
        groups.append(("simplest near-tie", "diamond", "#009E73", [simplest]))
    if best is not None:
        groups.append((f"best by {found.by}", "star", "#D55E00", [best]))
    figure = go.Figure()
    for name, symbol, colour, some in groups:
        line = name == "front"
        figure.add_trace(
            go.Scatter(
                x=[e.step_seconds for e in some], y=[_on(e, axes[0]) for e in some], name=name,
                mode="lines+markers" if line else "markers",
                # Steps, because between two strategies there is none.
                line={"shape": "hv", "width": 1, "color": "#9cc3dc"},
                marker={"symbol": symbol, "size": 7 if line else 15, "color": colour,
                        "line": {"color": "#ffffff", "width": 0.8}},
                text=[_told(e) for e in some], hovertemplate="%{text}<extra></extra>",
            )
        )  # fmt: skip
    spread = ordered[-1].step_seconds / ordered[0].step_seconds
    figure.update_xaxes(
        title_text=style.QUANTITIES["time"].label, type="log" if spread > WIDE else "linear"
    )
    figure.update_yaxes(title_text=style.QUANTITIES[axes[0]].label, rangemode="tozero")
    figure.update_layout(
        height=430, template="plotly_white", font=FONT,
        margin={"t": 60, "l": 10, "r": 10, "b": 50},
    )  # fmt: skip
    if len(axes) > 1:
        figure.update_layout(
            updatemenus=[_BUTTONS | {"y": 1.02, "buttons": [
                {"label": name, "method": "update", "args": [
                    {"y": [[_on(e, name) for e in some] for *_, some in groups]},
                    {"yaxis.title.text": style.QUANTITIES[name].label},
                ]}
                for name in axes
            ]}],
        )  # fmt: skip
    return figure


def mesh_figure(found: Search) -> Any:
    """The best of every tensor-parallel x pipeline degree, coloured by how far behind it is."""
    go: Any = require("plotly.graph_objects", "plot")
    tps, pps = (sorted({mesh[place] for mesh in found.by_mesh}) for place in (0, 1))
    quantity, by = style.QUANTITIES[found.by], found.by
    values = {mesh: objective_of(e, by) for mesh, e in found.by_mesh.items()}
    least = min(values.values())
    behind, texts, hovers = [], [], []
    for tp in tps:
        line = [(found.by_mesh.get((tp, pp)), values.get((tp, pp), 0.0)) for pp in pps]
        behind.append(
            [None if e is None else min(100.0 * (v / least - 1.0), WORST) for e, v in line]
        )
        texts.append(["" if e is None else quantity.text(v) for e, v in line])
        hovers.append(
            ["" if e is None else f"{_told(e)}<br>{100.0 * (v / least - 1.0):+.1f} %"
             for e, v in line]
        )  # fmt: skip
    figure = go.Figure(
        go.Heatmap(
            z=behind, x=[f"{pp}" for pp in pps], y=[f"{tp}" for tp in tps],
            zmin=0.0, zmax=WORST, text=texts, texttemplate="%{text}", hovertext=hovers,
            hovertemplate="%{hovertext}<extra></extra>", xgap=2, ygap=2, hoverongaps=False,
            # Light is good and prints well; lightness alone orders it for every colour vision.
            colorscale=[[0.0, "#F7FBFF"], [0.15, "#C6DBEF"], [0.5, "#6BAED6"], [1.0, "#08519C"]],
            colorbar={"title": {"text": "% above<br>the best"}, "thickness": 14,
                      "tickvals": [0, 25, 50, 75, 100],
                      "ticktext": ["0", "25", "50", "75", "100 or more"]},
        )
    )  # fmt: skip
    if found.best is not None:
        s = found.best.strategy
        if (s.tp, s.pp) in found.by_mesh:
            column, row = pps.index(s.pp), tps.index(s.tp)
            figure.add_shape(
                type="rect", x0=column - 0.49, x1=column + 0.49, y0=row - 0.48, y1=row + 0.48,
                line={"color": "#D55E00", "width": 3},
            )  # fmt: skip
    figure.update_xaxes(title_text="pipeline stages", type="category", showgrid=False, ticks="")
    figure.update_yaxes(
        title_text="tensor-parallel degree", type="category", showgrid=False, ticks=""
    )
    figure.update_layout(
        height=170 + 44 * len(tps), template="plotly_white", font=FONT,
        margin={"t": 40, "l": 10, "r": 10, "b": 50},
    )  # fmt: skip
    return figure


def _on(e: Estimate, name: str) -> float:
    """A coordinate in the unit of its axis."""
    return style.QUANTITIES[name].factor * objective_of(e, name)


def _told(e: Estimate) -> str:
    """What hovering over a strategy says."""
    price, watts = e.usd_per_million_tokens, e.joules_per_token
    known = [
        f"<b>{escape(str(e.strategy))}</b>",
        f"{grouped(e.step_seconds)} s, {e.tokens_per_second_per_accelerator:,.0f} tokens/s per "
        f"accelerator, MFU {format_percent(e.mfu)}",
        f"{e.memory_bytes * 2**-30:.1f} of {e.memory_capacity * 2**-30:.1f} GiB",
        *([] if watts is None else [f"{watts:.3g} J per token"]),
        *([] if price is None else [f"${price:.3g} per million tokens"]),
    ]
    return "<br>".join(known)


def _spaced(label: str) -> str:
    """Plotly swallows spaces in a row; those that do not break stay."""
    return escape(label).replace(" ", "\u00a0")
