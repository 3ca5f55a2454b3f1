"""How do scaling curves look on a page? Four panels over size, with intervals, working offline.

    curves_html(curves)               # needs plotly, the extra `plot`

Computing is `explore.scale`; the terminal's view is `report.curves`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalewise.errors import require
from scalewise.report.curves import curve_name
from scalewise.report.scatter import PALETTE, SYMBOLS
from scalewise.units import format_percent

if TYPE_CHECKING:
    from scalewise.explore.points import Curve, Curves, Point

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
                    name=curve_name(curve, curves),
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
