"""How do scaling curves look on a page? Panels over size, then what they mean; works offline.

    curves_html(curves)               # needs plotly, the extra `plot`

Computing is `explore.scale`; the terminal's view is `report.curves`, that on paper `figures`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from scalewise.errors import require
from scalewise.explore.points import KNEE, Curves, Point
from scalewise.report import curve_style as style
from scalewise.report import curve_words as words
from scalewise.units import format_percent

COLUMNS = 2
"""Panels beside each other."""

STYLE = """\
body { font: 15px/1.5 system-ui, sans-serif; color: #222; background: #fff; max-width: 84em;
  margin: 1.5em auto; padding: 0 1.5em }
h1 { font-size: 1.35em } h2 { font-size: 1.05em; margin: 1.4em 0 .3em }
ul { margin: 0; padding-left: 1.2em } .source { color: #666; font-size: .9em }"""


def curves_figure(curves: Curves, *, share: float = KNEE) -> Any:
    """Draw throughput with its interval, marginal throughput, power, energy and cost against size.

    Args:
        curves: What to draw; points that cannot run are left out.
        share: Share of the first return below which a size is past its knee.

    Returns:
        A plotly figure; the legend is ordered by throughput at the largest size.
    """
    go: Any = require("plotly.graph_objects", "plot")
    subplots: Any = require("plotly.subplots", "plot")
    shown = style.panels(curves)
    rows = -(-len(shown) // COLUMNS) or 1
    figure = subplots.make_subplots(rows=rows, cols=COLUMNS, vertical_spacing=0.22 / rows)
    drawn = style.order(curves)
    for place, each in enumerate(drawn):
        _add_curve(figure, go, each, place, shown)
    if shown and shown[0] is style.THROUGHPUT:
        _add_marks(figure, go, "knee", "circle-open", style.knee_marks(curves, share))
        _add_marks(figure, go, "crossover", "star-open", style.crossover_marks(curves))
    sizes = list(curves.sizes)
    ticks = [f"{size:,}" for size in sizes]
    figure.update_xaxes(
        type="log", tickvals=sizes, ticktext=ticks, title_text="accelerators",
        range=[math.log10(sizes[0] / 1.2), math.log10(sizes[-1] * 1.2)],
    )  # fmt: skip
    for number, panel in enumerate(shown):
        figure.update_yaxes(
            title_text=panel.title,
            rangemode="tozero",
            tickformat=",",
            row=number // COLUMNS + 1,
            col=number % COLUMNS + 1,
        )
    # Names of some 9 pixels a letter, and room above them for plotly's own buttons.
    lines = 1 + sum(9 * len(each.name) + 60 for each in drawn) // 1000
    top = 70 + 22 * lines
    figure.update_layout(
        template="plotly_white",
        height=top + 70 + 330 * rows,
        margin={"t": top, "l": 70, "r": 20, "b": 60},
        legend={
            "title": {"text": "in order of throughput at the largest size", "side": "top"},
            "orientation": "h", "x": 0.0, "xanchor": "left", "y": 1.01, "yanchor": "bottom",
        },
    )  # fmt: skip
    return figure


def _add_curve(
    figure: Any, go: Any, each: style.Drawn, place: int, shown: Sequence[style.Panel]
) -> None:
    """One line in every panel that knows it; its interval in the panel of throughput."""
    points = each.curve.feasible
    hover = {point.accelerators: _hover(point) for point in points}
    for number, panel in enumerate(shown):
        where = {"row": number // COLUMNS + 1, "col": number % COLUMNS + 1}
        sizes, values = panel.values(each.curve)
        if panel is style.THROUGHPUT:
            figure.add_trace(
                go.Scatter(
                    x=sizes + sizes[::-1],
                    y=[p.high for p in points] + [p.low for p in points][::-1],
                    fill="toself", fillcolor=each.colour, opacity=0.12, mode="lines",
                    line={"width": 0}, hoverinfo="skip", showlegend=False,
                    legendgroup=str(place),
                ), **where,
            )  # fmt: skip
        figure.add_trace(
            go.Scatter(
                x=sizes,
                y=values,
                mode="lines+markers",
                name=each.name,
                legendgroup=str(place),
                showlegend=number == 0,
                line={"color": each.colour, "dash": each.dash},
                marker={"symbol": each.marker, "size": 7},
                text=[hover[size] for size in sizes],
                hovertemplate="%{text}<br>%{y:,.4g} " + panel.title + "<extra></extra>",
            ),
            **where,
        )


def _add_marks(figure: Any, go: Any, name: str, symbol: str, marks: list[style.Mark]) -> None:
    """Point at knees or crossovers in the panel of throughput."""
    if not marks:
        return
    figure.add_trace(
        go.Scatter(
            x=[mark.accelerators for mark in marks],
            y=[mark.value for mark in marks],
            mode="markers",
            name=name,
            text=[mark.text for mark in marks],
            hovertemplate="%{text}<extra></extra>",
            marker={"symbol": symbol, "size": 14, "color": "#333333", "line": {"width": 1.5}},
        ),
        row=1,
        col=1,
    )


def curves_html(curves: Curves, *, share: float = KNEE, chosen: Sequence[str] = ()) -> str:
    """The figure and its sentences as a self-contained page.

    Args:
        curves: What to tell.
        share: Share of the first return below which a size is past its knee.
        chosen: What was chosen for the user.
    """
    plot: str = curves_figure(curves, share=share).to_html(
        include_plotlyjs=True, full_html=False, config={"displaylogo": False}
    )
    told = {
        "Where growing stops paying": words.knee_sentences(curves, share),
        "Who overtakes whom": words.crossover_sentences(curves),
        "What the loss is spent on": words.cause_sentences(curves),
        f"What is best, by {curves.by}": words.best_sentences(curves),
        "No point": words.missing_sentences(curves),
        "Chosen": chosen,
        "Warnings": curves.warnings,
    }
    text = "".join(
        f"<h2>{escape(heading)}</h2><ul>"
        + "".join(f"<li>{escape(line)}</li>" for line in lines)
        + "</ul>"
        for heading, lines in told.items()
        if lines
    )
    name = escape(words.title(curves))
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{name}</title><style>{STYLE}</style></head><body><h1>{name}</h1>"
        f"{plot}{text}<p class='source'>{escape(words.source_line(curves))}</p></body></html>\n"
    )


def _hover(point: Point) -> str:
    return (
        f"{point.strategy} on {point.accelerators:,}<br>"
        f"{point.tokens_per_second_per_accelerator:,.0f} ({point.low:,.0f} - {point.high:,.0f}) "
        f"tokens/s per accelerator, MFU {format_percent(point.mfu)}"
    )
