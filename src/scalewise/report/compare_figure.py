"""How do predictions against measurements look? Residuals of a fit, and steps side by side.

    residual_svg(fit)           # text of an SVG; residual_page(fit) for a page that works offline
    comparison_svg(comparison)

Computing is `evidence.machine` and `evidence.compare`; this file only draws. Needs matplotlib, the
extra `plot`.
"""

from __future__ import annotations

import html
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalewise.errors import require
from scalewise.report.compare import headline
from scalewise.report.scatter import PALETTE

if TYPE_CHECKING:
    from scalewise.evidence.compare import Comparison
    from scalewise.evidence.machine import MachineFit

_INK = "#333333"
_MARKERS = "osD^PXv<>"


def residual_svg(fit: MachineFit) -> str:
    """Predicted over measured against the measured time, one colour for each kind of timing."""
    figures: Any = require("matplotlib.figure", "plot")
    figure = figures.Figure(figsize=(9.0, 5.0), layout="constrained")
    axis = figure.subplots()
    for place, part in enumerate(dict.fromkeys(r.part for r in fit.residuals_)):
        rows = [r for r in fit.residuals_ if r.part == part]
        axis.scatter(
            [r.measured for r in rows],
            [r.predicted / r.measured for r in rows],
            s=18,
            color=PALETTE[place % len(PALETTE)],
            marker=_MARKERS[place % len(_MARKERS)],
            alpha=0.8,
            label=f"{part} ({len(rows)})",
        )
    axis.axhline(1.0, color="#888888", linewidth=1)
    low, high = fit.interval_
    axis.axhspan(1.0 / high, 1.0 / low, color="#888888", alpha=0.12, label="80 % interval of steps")
    axis.set_xscale("log")
    axis.set_yscale("log", base=2)
    axis.set_xlabel("measured, seconds")
    axis.set_ylabel("predicted / measured")
    axis.set_title(f"{fit.name}: what the fit left over", fontsize=10)
    axis.grid(visible=True, alpha=0.3)
    axis.legend(fontsize=7.5, ncols=2)
    return _svg(figure)


def comparison_svg(comparison: Comparison) -> str:
    """Measured and predicted step of every job, with the range of launches and the interval."""
    figures: Any = require("matplotlib.figure", "plot")
    rows = comparison.rows
    figure = figures.Figure(figsize=(9.0, 0.42 * len(rows) + 1.6), layout="constrained")
    axis = figure.subplots()
    for place, row in enumerate(reversed(rows)):
        axis.plot([row.low, row.high], [place + 0.16] * 2, color=PALETTE[1], alpha=0.4, linewidth=4)
        axis.plot(row.predicted, place + 0.16, "D", color=PALETTE[1], markersize=5)
        span = [row.measured_low, row.measured_high]
        axis.plot(span, [place - 0.16] * 2, color=PALETTE[0], alpha=0.4, linewidth=4)
        axis.plot(row.measured, place - 0.16, "o", color=PALETTE[0], markersize=5)
    axis.plot([], [], "D", color=PALETTE[1], label="predicted, 80 % interval")
    axis.plot([], [], "o", color=PALETTE[0], label="measured, range of launches")
    names = [f"{row.model} {row.strategy} ({row.error:+.0%})" for row in reversed(rows)]
    axis.set_yticks(range(len(rows)), names, fontsize=8)
    axis.set_xscale("log")
    axis.set_xlabel("seconds per step")
    axis.set_title(f"median error {100 * comparison.median_error:.1f} %", fontsize=10)
    axis.grid(visible=True, axis="x", alpha=0.3)
    axis.legend(fontsize=8)
    return _svg(figure)


def residual_page(fit: MachineFit) -> str:
    """The residuals as a self-contained page, with the constants below."""
    from scalewise.report.machine import WORDS, value_of

    cells = [
        (WORDS.get(c.name, c.name), value_of(c), f"x/: {c.spread:.2f}", c.source)
        for c in fit.constants_
    ]
    lines = [fit.fitted_on_, *fit.notes_]
    heads = ("constant", "value", "one sigma", "from")
    return _page(f"Calibration of {fit.name}", lines, residual_svg(fit), heads, cells)


def comparison_page(comparison: Comparison) -> str:
    """The comparison as a self-contained page, with its table below."""
    cells = [
        (
            row.model,
            row.strategy,
            f"{row.measured:.4g}",
            f"{row.predicted:.4g}",
            f"{row.error:+.1%}",
        )
        for row in comparison.rows
    ]
    heads = ("model", "strategy", "measured, s", "predicted, s", "error")
    title = "Predicted against measured"
    return _page(title, [headline(comparison)], comparison_svg(comparison), heads, cells)


def _svg(figure: Any) -> str:
    """A figure as text that is the same for the same data."""
    mpl: Any = require("matplotlib", "plot")
    page = io.BytesIO()
    settings = {"svg.fonttype": "path", "svg.hashsalt": "scalewise", "text.color": _INK}
    with mpl.rc_context(settings):
        figure.savefig(page, format="svg", metadata={"Date": None})
    return page.getvalue().decode()


def _page(
    title: str, lines: list[str], svg: str, heads: tuple[str, ...], cells: Sequence[tuple[str, ...]]
) -> str:
    """Put a figure and a table on a page."""
    drawing = svg[svg.index("<svg") :]
    rows = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>\n"
        for row in cells
    )
    head = "".join(f"<th>{html.escape(name)}</th>" for name in heads)
    said = "".join(f"<p>{html.escape(line)}</p>\n" for line in lines)
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">\n'
        f"<title>{html.escape(title)}</title>\n"
        "<style>body{font-family:sans-serif;max-width:60em;margin:2em auto;color:#333}"
        "td,th{padding:.2em .8em;text-align:left}svg{max-width:100%;height:auto}</style></head>\n"
        f"<body><h1>{html.escape(title)}</h1>\n{said}{drawing}\n"
        f"<table><tr>{head}</tr>\n{rows}</table></body></html>\n"
    )
