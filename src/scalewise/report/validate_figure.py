"""Figure of predicted against measured throughput: one point per run, one color per source.

    scatter_figure(validation)        # a Figure for every renderer
    scatter_html(validation)          # a page that works offline

`evidence.validate` computes.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scalewise.metrics import METRICS
from scalewise.report.figure import MARKERS, PALETTE, Axis, Figure, Panel, Trace
from scalewise.report.page import figure_page

if TYPE_CHECKING:
    from scalewise.evidence.validate import Validation, Verdict


def scatter_figure(validation: Validation, title: str = "") -> Figure:
    """Return a log-log scatter with the diagonal and bands of 10 and 25%.

    Args:
        validation: The verdicts; rows without both numbers are left out.
        title: Above the figure; by default the errors in one line.
    """
    rows = validation.judged()
    numbers = [number for row in rows for number in _pair(row)]
    low, high = min(numbers, default=1.0) * 0.7, max(numbers, default=10.0) * 1.4
    ends = (low, high)
    traces = [
        Trace(
            name=f"within {band:.0%}",
            xs=ends,
            ys=(),
            low=[(1.0 - band) * end for end in ends],
            high=[(1.0 + band) * end for end in ends],
            mode="area",
            color="#777777",
        )
        for band in (0.25, 0.10)
    ]
    traces.append(Trace(name="equal", xs=ends, ys=ends, color="#888888", marker=""))
    # The largest source first, so that it does not cover the others.
    counts = Counter(row.source for row in rows)
    for place, (source, count) in enumerate(sorted(counts.items(), key=lambda item: -item[1])):
        mine = [row for row in rows if row.source == source]
        traces.append(
            Trace(
                name=f"{source} ({count})",
                xs=[_pair(row)[0] for row in mine],
                ys=[_pair(row)[1] for row in mine],
                hover=[_hover(row) for row in mine],
                mode="points",
                color=PALETTE[place % len(PALETTE)],
                marker=MARKERS[place % len(MARKERS)],
            )
        )
    metric = METRICS["tokens_per_second_per_accelerator"].axis
    panel = Panel(
        kind="lines",
        x=Axis(label=f"measured {metric}", log=True, span=ends),
        y=Axis(label=f"predicted {metric}", log=True, span=ends),
        traces=traces,
        stretch=1.8,
    )
    return Figure(name="validate", panels=[panel], title=title or headline(validation))


def scatter_html(validation: Validation, title: str = "") -> str:
    """Return the scatter as a self-contained page."""
    return figure_page(scatter_figure(validation, title))


def _pair(row: Verdict) -> tuple[float, float]:
    """Return measured and predicted throughput of a judged row."""
    measured, predicted = row.measured_tokens_per_second, row.predicted_tokens_per_second
    return float(measured or 0.0), float(predicted or 0.0)


def _hover(row: Verdict) -> str:
    measured, predicted = _pair(row)
    return (
        f"{row.id}<br>{row.strategy} ({row.stack})<br>measured {measured:,.0f}, "
        f"predicted {predicted:,.0f} [{row.low:,.0f}-{row.high:,.0f}]: {row.error:+.1%}"
    )


def headline(validation: Validation) -> str:
    """Return the errors in one line."""
    overall = validation.overall()
    if overall.median_error is None:
        return "Predicted against measured: no run has both"
    return (
        f"Predicted against measured: {overall.count:,} dense runs, median error "
        f"{100 * overall.median_error:.1f}%, 90th percentile "
        f"{100 * (overall.p90_error or 0.0):.0f}%"
    )
