"""How does a figure of a study look on a page? The same drawing with plotly.

    study_plot(drawing)               # an HTML block without plotly itself; see `study_page`

What is shown in which colour is `study_style`, for paper as well.
"""

from __future__ import annotations

import math
from typing import Any

from scalewise.errors import require
from scalewise.report.study_paper import cells, thinning
from scalewise.report.study_style import Drawing, Panel

PANEL_HEIGHT = 330
"""Pixels of one row of panels."""
_INK = "#333333"


def study_figure(drawing: Drawing) -> Any:
    """Draw a figure with plotly.

    Args:
        drawing: What to draw.

    Returns:
        A plotly figure.
    """
    go: Any = require("plotly.graph_objects", "plot")
    subplots: Any = require("plotly.subplots", "plot")
    count = max(len(drawing.panels), 1)
    columns = 3 if count == 3 and drawing.kind == "lines" else min(2, count)
    rows = -(-count // columns)
    height = PANEL_HEIGHT
    if drawing.kind == "changes":
        height = 90 + 30 * len(drawing.xs)
    figure = subplots.make_subplots(
        rows=rows,
        cols=columns,
        subplot_titles=[panel.title for panel in drawing.panels],
        vertical_spacing=0.26 / rows if rows > 1 else 0.1,
        horizontal_spacing=0.22 / columns,
        shared_yaxes=drawing.kind == "changes",
    )
    seen: set[str] = set()
    for number, panel in enumerate(drawing.panels):
        where = {"row": number // columns + 1, "col": number % columns + 1}
        if drawing.kind == "map":
            _add_map(figure, go, drawing, panel, where)
        else:
            _add_traces(figure, go, drawing, panel, where, seen)
            _add_marks(figure, go, panel, where, seen)
            _axes(figure, drawing, panel, where)
    names = drawing.names if drawing.kind != "map" else []
    legend = len(names) > 1 or any(panel.marks for panel in drawing.panels)
    # Names of some 7 pixels a letter, and room above them for plotly's own buttons.
    lines = 1 + sum(7 * len(name) + 60 for name in names) // 900 if legend else 0
    titled = 26 if any(panel.title for panel in drawing.panels) else 0
    top = 46 + 21 * lines + titled
    whole = top + 60 + height * rows
    figure.update_layout(
        template="plotly_white", height=whole, barmode="group",
        margin={"t": top, "l": 70, "r": 20, "b": 60}, showlegend=legend,
        font={"family": "system-ui, sans-serif", "size": 12, "color": _INK},
        legend={
            "orientation": "h", "x": 0.0, "xanchor": "left", "yanchor": "bottom",
            "y": 1.0 + (titled + 8) / (height * rows), "traceorder": "normal",
        },
    )  # fmt: skip
    return figure


def study_plot(drawing: Drawing) -> str:
    """The figure as a block of HTML that expects plotly on the page."""
    text: str = study_figure(drawing).to_html(
        include_plotlyjs=False,
        full_html=False,
        div_id=f"plot-{drawing.name}",
        config={"displaylogo": False, "responsive": True},
    )
    return text


def _add_traces(
    figure: Any, go: Any, drawing: Drawing, panel: Panel, where: dict[str, int], seen: set[str]
) -> None:
    for place, trace in enumerate(panel.traces):
        thin = thinning(place, len(panel.traces))
        shown = trace.name not in seen
        seen.add(trace.name)
        common = {
            "name": trace.name, "legendgroup": trace.name, "showlegend": shown,
            "text": trace.hover, "hovertemplate": "%{text}<extra></extra>",
        }  # fmt: skip
        if drawing.kind == "lines":
            if trace.low and len(trace.low) == len(trace.xs):
                figure.add_trace(
                    go.Scatter(
                        x=trace.xs + trace.xs[::-1], y=trace.high + trace.low[::-1],
                        fill="toself", fillcolor=trace.colour, opacity=0.12, mode="lines",
                        line={"width": 0}, hoverinfo="skip", showlegend=False,
                        legendgroup=trace.name,
                    ), **where,
                )  # fmt: skip
            figure.add_trace(
                go.Scatter(
                    x=trace.xs, y=trace.ys, mode="lines+markers", **common,
                    line={"color": trace.colour, "dash": trace.dash, "width": 1.8 * thin},
                    marker={"symbol": trace.marker, "size": 6 * thin},
                ), **where,
            )  # fmt: skip
        elif drawing.kind == "changes":
            pairs = dict(zip(trace.xs, trace.ys, strict=True))
            figure.add_trace(
                go.Bar(
                    x=[pairs.get(x) for x in drawing.xs], y=[str(x) for x in drawing.xs],
                    orientation="h", name=trace.name, legendgroup=trace.name, showlegend=shown,
                    marker={"color": trace.colour},
                    hovertemplate="%{y}<br>%{x:.1f}<extra>" + trace.name + "</extra>",
                ), **where,
            )  # fmt: skip
        else:
            figure.add_trace(
                go.Bar(
                    x=[drawing.x.show(x) for x in trace.xs], y=trace.ys, **common,
                    marker={"color": trace.colour}, textposition="none",
                ), **where,
            )  # fmt: skip


def _add_marks(figure: Any, go: Any, panel: Panel, where: dict[str, int], seen: set[str]) -> None:
    for each in panel.marks:
        shown = each.name not in seen
        seen.add(each.name)
        figure.add_trace(
            go.Scatter(
                x=each.xs, y=each.ys, mode="markers", name=each.name, legendgroup=each.name,
                showlegend=shown, text=each.hover,
                hovertemplate="%{y:,.4g}<br>%{text}<extra></extra>",
                marker={
                    "symbol": "star" if each.published else "x-thin", "color": "black",
                    "size": 14 if each.published else 8,
                    "line": {"width": 1 if each.published else 1.6,
                             "color": "white" if each.published else "black"},
                },
            ), **where,
        )  # fmt: skip


def _axes(figure: Any, drawing: Drawing, panel: Panel, where: dict[str, int]) -> None:
    if drawing.kind == "changes":
        figure.update_xaxes(title_text=panel.metric.label, zerolinecolor=_INK, **where)
        figure.update_yaxes(autorange="reversed", automargin=True, **where)
        return
    numbers = [float(x) for x in drawing.xs if not isinstance(x, str)]
    if drawing.kind == "lines" and numbers and drawing.x.log:
        figure.update_xaxes(
            type="log", tickvals=numbers, ticktext=[drawing.x.show(x) for x in drawing.xs],
            title_text=drawing.x.label,
            range=[math.log10(min(numbers) / 1.2), math.log10(max(numbers) * 1.2)], **where,
        )  # fmt: skip
    elif drawing.kind == "lines":
        figure.update_xaxes(title_text=drawing.x.label, **where)
    else:
        names = [drawing.x.show(x) for x in drawing.xs]
        figure.update_xaxes(type="category", categoryarray=names, categoryorder="array", **where)
    figure.update_yaxes(
        title_text=panel.metric.label.replace(", % of the step", ",<br>% of the step"),
        rangemode="tozero" if panel.metric.zero and not drawing.log_y else "normal",
        type="log" if drawing.log_y else "linear",
        **({"dtick": 1} if drawing.log_y else {"tickformat": _ticks(panel)}), **where,
    )  # fmt: skip


def _ticks(panel: Panel) -> str:
    """Millions as M, all else with commas."""
    large = any(y >= 1e6 for trace in panel.traces for y in trace.ys)
    return "~s" if large else ","


def _add_map(figure: Any, go: Any, drawing: Drawing, panel: Panel, where: dict[str, int]) -> None:
    assert drawing.up is not None
    grid = cells(drawing, panel)
    texts = [
        ["-" if v is None else (f"{v:,.0f}" if abs(v) >= 100 else f"{v:.3g}") for v in line]
        for line in grid
    ]
    figure.add_trace(
        go.Heatmap(
            z=grid, x=[drawing.x.show(x) for x in drawing.xs],
            y=[drawing.up.show(u) for u in drawing.ups], text=texts, texttemplate="%{text}",
            colorscale=[[0.0, "#f3ead3"], [1.0, "#00224e"]], showscale=False,
            hovertemplate=f"{drawing.x.label} %{{x}}, {drawing.up.label} %{{y}}<br>"
            f"%{{z:,.4g}} {panel.metric.label}<extra></extra>",
        ), **where,
    )  # fmt: skip
    figure.update_xaxes(type="category", title_text=drawing.x.label, **where)
    figure.update_yaxes(type="category", title_text=drawing.up.label, **where)
