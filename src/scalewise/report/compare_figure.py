"""Figures and pages of predicted against measured: residuals of a fit, steps side by side.

    residual_figure(fit)              # predicted over measured against the measured time
    comparison_figure(comparison)     # every job with both intervals

`evidence.machine` and `evidence.compare` compute.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.report.compare import headline
from scalewise.report.figure import MARKERS, PALETTE, Axis, Figure, Panel, Rule, Trace
from scalewise.report.page import figure_page, table
from scalewise.report.table import file_bytes

if TYPE_CHECKING:
    from scalewise.evidence.compare import Comparison
    from scalewise.evidence.machine import MachineFit


def residual_figure(fit: MachineFit) -> Figure:
    """Return predicted over measured against the measured time, a color for each kind of timing."""
    traces = []
    for place, part in enumerate(dict.fromkeys(r.part for r in fit.residuals_)):
        rows = [r for r in fit.residuals_ if r.part == part]
        ratios = [r.predicted / r.measured for r in rows]
        traces.append(
            Trace(
                name=f"{part} ({len(rows)})",
                xs=[r.measured for r in rows],
                ys=ratios,
                hover=[
                    f"{part}<br>measured {r.measured:.4g} s, predicted {r.predicted:.4g} s"
                    for r in rows
                ],
                mode="points",
                color=PALETTE[place % len(PALETTE)],
                marker=MARKERS[place % len(MARKERS)],
            )
        )
    low, high = fit.interval_
    panel = Panel(
        kind="lines",
        x=Axis(label="measured time (s)", log=True),
        y=Axis(label="predicted / measured", log=True),
        traces=traces,
        rules=[
            Rule(value=1.0, color="#888888"),
            Rule(value=1.0 / high, high=1.0 / low, color="#888888", name="80% interval of steps"),
        ],
    )
    title, notes = f"Calibration of {fit.name}", [fit.fitted_on_, *fit.notes_]
    return Figure(name="residuals", panels=[panel], title=title, notes=notes)


def residual_file(fit: MachineFit, ending: str) -> bytes:
    """Return the residuals as a file: .html with the table of constants, .svg or .png."""
    from scalewise.report.calibrate_table import WORDS, value_of

    figure = residual_figure(fit)
    cells = [
        (WORDS.get(c.name, c.name), value_of(c), f"x/: {c.spread:.2f}", c.source)
        for c in fit.constants_
    ]
    heads = ("constant", "value", "one sigma", "from")
    page = figure_page(figure, table(heads, cells, text=(0, 3))) if ending == ".html" else ""
    return file_bytes(ending, page=lambda: page, figure=lambda: figure)


def comparison_figure(comparison: Comparison) -> Figure:
    """Return measured and predicted step of every job, with their intervals."""
    rows = comparison.rows
    labels = [
        f"{place + 1}: {row.model} {row.strategy} ({row.error:+.0%})"
        for place, row in enumerate(rows)
    ]
    sides = (
        ("measured, range of repeats", "circle", "measured", "measured_low", "measured_high"),
        ("predicted, 80% interval", "diamond", "predicted", "low", "high"),
    )
    traces = []
    for place, (name, marker, *fields) in enumerate(sides):
        middle, low, high = ([getattr(row, field) for row in rows] for field in fields)
        spans = zip(labels, middle, low, high, strict=True)
        traces.append(
            Trace(
                name=name,
                xs=labels,
                ys=middle,
                low=low,
                high=high,
                hover=[f"{n}<br>{fields[0]} {m:.4g} s [{a:.4g}-{b:.4g}]" for n, m, a, b in spans],
                color=PALETTE[place],
                marker=marker,
            )
        )
    panel = Panel(
        kind="ranges",
        x=Axis(values=labels),
        y=Axis(label="step time (s)", log=True),
        traces=traces,
        sideways=True,
    )
    lead = headline(comparison)
    return Figure(name="compare", panels=[panel], title="Predicted against measured", lead=lead)


def comparison_file(comparison: Comparison, ending: str) -> bytes:
    """Return the comparison as a file: .html with its table, .svg or .png."""
    figure = comparison_figure(comparison)
    heads = ("model", "strategy", "measured (s)", "predicted (s)", "error")
    cells = [
        (r.model, r.strategy, f"{r.measured:.4g}", f"{r.predicted:.4g}", f"{r.error:+.1%}")
        for r in comparison.rows
    ]
    page = figure_page(figure, table(heads, cells, text=(0, 1))) if ending == ".html" else ""
    return file_bytes(ending, page=lambda: page, figure=lambda: figure)
