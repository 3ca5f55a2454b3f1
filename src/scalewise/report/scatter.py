"""Draw predicted against measured: one point per run, one colour per source.

    scatter_html(validation)          # a page that works offline

Computing is `evidence.validate`; this file only draws.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from scalewise.errors import require

if TYPE_CHECKING:
    from scalewise.evidence.validate import Validation, Verdict

# Okabe and Ito's colour-blind-safe palette, and marker shapes for more sources than colours.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x")


def scatter_figure(validation: Validation, title: str = "") -> Any:
    """A log-log scatter with the diagonal and bands of 10 and 25 %.

    Args:
        validation: What to draw; rows without both numbers are left out.
        title: Over the figure; by default the headline errors.

    Returns:
        A plotly figure.
    """
    go: Any = require("plotly.graph_objects", "plot")
    rows = validation.judged()
    figure = go.Figure()
    values = [v for r in rows for v in _pair(r)]
    low, high = min(values, default=1.0) * 0.7, max(values, default=10.0) * 1.4
    for band, shade in ((0.25, "rgba(120,120,120,0.10)"), (0.10, "rgba(120,120,120,0.18)")):
        figure.add_trace(
            go.Scatter(
                x=[low, high, high, low],
                y=[low * (1 + band), high * (1 + band), high * (1 - band), low * (1 - band)],
                mode="lines",
                fill="toself",
                fillcolor=shade,
                line={"width": 0},
                hoverinfo="skip",
                name=f"within {band:.0%}",
            )
        )
    figure.add_trace(
        go.Scatter(
            x=[low, high],
            y=[low, high],
            mode="lines",
            name="equal",
            line={"color": "#888888", "width": 1},
            hoverinfo="skip",
        )
    )
    # The largest source first, so that it does not cover the others.
    counts = Counter(row.source for row in rows)
    for place, (source, _) in enumerate(sorted(counts.items(), key=lambda item: -item[1])):
        mine = [row for row in rows if row.source == source]
        figure.add_trace(
            go.Scatter(
                x=[_pair(row)[0] for row in mine],
                y=[_pair(row)[1] for row in mine],
                mode="markers",
                name=f"{source} ({len(mine)})",
                marker={
                    "color": PALETTE[place % len(PALETTE)],
                    "symbol": SYMBOLS[place % len(SYMBOLS)],
                    "size": 6,
                    "opacity": 0.75,
                },
                text=[_label(row) for row in mine],
                hovertemplate="%{text}<extra></extra>",
            )
        )
    figure.update_layout(
        title=title or _headline(validation),
        template="plotly_white",
        width=1000,
        height=720,
        legend={"title": {"text": "source (runs)"}},
        xaxis=_axis("measured, tokens/s per accelerator", low, high),
        yaxis=_axis("predicted, tokens/s per accelerator", low, high),
    )
    return figure


def scatter_html(validation: Validation, title: str = "") -> str:
    """The scatter as a self-contained page."""
    page: str = scatter_figure(validation, title).to_html(include_plotlyjs=True, full_html=True)
    return page


def _pair(row: Verdict) -> tuple[float, float]:
    """Measured and predicted of a judged row."""
    return float(row.measured_tokens_per_second or 0.0), float(
        row.predicted_tokens_per_second or 0.0
    )


def _label(row: Verdict) -> str:
    """What hovering over a point says."""
    measured, predicted = _pair(row)
    return (
        f"{row.id}<br>{row.strategy} ({row.stack})<br>measured {measured:,.0f}, "
        f"predicted {predicted:,.0f} ({row.low:,.0f} to {row.high:,.0f}): {row.error:+.1%}"
    )


def _headline(validation: Validation) -> str:
    """The errors in one line."""
    overall = validation.overall()
    if overall.median_error is None:
        return "Predicted against measured: no run has both"
    return (
        f"Predicted against measured: {overall.count:,} dense runs, median error "
        f"{100 * overall.median_error:.1f} %, 90th percentile "
        f"{100 * (overall.p90_error or 0.0):.0f} %"
    )


def _axis(title: str, low: float, high: float) -> dict[str, Any]:
    """A logarithmic axis with round ticks."""
    import math

    return {
        "title": {"text": title},
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "dtick": 1,
        "minor": {"showgrid": True},
    }
