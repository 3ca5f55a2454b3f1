"""Figure and files of upgrades: one group of bars per change, the largest gain first.

    sensitivity_figure(found)         # gains on the left, elasticities on the right
    sensitivity_file(found, ".svg")   # bytes, by file ending

`explore.sensitivity` computes, `sensitivity_table` has the sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise._version import __version__
from scalewise.explore.sensitivity import Sensitivity
from scalewise.metrics import METRICS
from scalewise.report.figure import PALETTE, Axis, Figure, Panel, Trace
from scalewise.report.page import bullets, figure_page
from scalewise.report.sensitivity_table import MEANS, lead, signed
from scalewise.report.table import columns_of, file_bytes
from scalewise.report.words import title

if TYPE_CHECKING:
    from scalewise.explore.sensitivity import Sensitivities

SERIES = (
    ("gain", "elasticity", "tok/s", PALETTE[0]),
    ("energy_gain", "energy_elasticity", "tok/J", PALETTE[4]),
    ("cost_gain", "cost_elasticity", "tok/$ at the same price", PALETTE[2]),
)
"""Metrics of both panels, name and color, in the order of the legend."""

COLUMNS: dict[str, type] = {
    "model": str, "cluster": str, "accelerators": int, "today": str, "reoptimized": bool,
    **columns_of(Sensitivity),
}  # fmt: skip
"""Types by column: the question, then the fields of `Sensitivity`."""


def sensitivity_file(found: Sensitivities, ending: str, *, defaults: Sequence[str] = ()) -> bytes:
    """Return upgrades as a file: .html, .svg, .png, .csv, .parquet or .json."""
    figure = sensitivity_figure(found)
    return file_bytes(
        ending,
        page=lambda: figure_page(figure, bullets("Defaults", defaults)),
        figure=lambda: figure,
        rows=lambda: sensitivity_rows(found),
        columns=COLUMNS,
        plain=lambda: sensitivity_dict(found, defaults=defaults),
    )


def sensitivity_dict(found: Sensitivities, *, defaults: Sequence[str] = ()) -> dict[str, Any]:
    """Return everything as plain types, with the sentence above the table."""
    plain = found.to_dict()
    return {"version": __version__, "lead": lead(found), **plain, "defaults": list(defaults)}


def sensitivity_rows(found: Sensitivities) -> list[dict[str, Any]]:
    """Return one row per change, with the question."""
    today = found.today
    same = {
        "model": today.model.name,
        "cluster": today.cluster.name,
        "accelerators": today.cluster.accelerators,
        "today": str(today.strategy),
        "reoptimized": found.reoptimized,
    }
    return [same | msgspec.to_builtins(row) for row in found.rows]


def sensitivity_figure(found: Sensitivities) -> Figure:
    """Return gains and elasticities; changes without a number are left out."""
    rows = [row for row in found.rows if row.gain is not None]
    known = [each for each in SERIES if any(getattr(row, each[0]) is not None for row in rows)]
    labels = [f"{row.name}, {row.upgrade} ({MEANS[row.means]})" for row in rows]
    gains, slopes = [], []
    for gain, slope, name, color in known:
        gains.append(
            Trace(
                name=name,
                xs=labels,
                ys=[_percent(getattr(row, gain)) for row in rows],
                hover=[
                    f"{label}<br>{signed(getattr(row, gain))} {name}<br>{row.strategy or ''}"
                    for label, row in zip(labels, rows, strict=True)
                ],
                color=color,
            )
        )
        numbers = [getattr(row, slope) for row in rows]
        slopes.append(
            Trace(
                name=name,
                xs=labels,
                ys=numbers,
                hover=[
                    f"{label}<br>{0.0 if number is None else number:.3f}% {name} per 1%"
                    for label, number in zip(labels, numbers, strict=True)
                ],
                color=color,
            )
        )
    keys = Axis(values=labels)
    panels = [
        Panel(kind="bars", x=keys, y=Axis(label=axis), traces=traces, sideways=True, width=width)
        for axis, traces, width in (
            ("change by the upgrade (%)", gains, 3.0),
            (f"elasticity ({METRICS['elasticity'].unit})", slopes, 2.0),
        )
    ]
    return Figure(
        name="sensitivity",
        panels=panels if rows else [],
        columns=2,
        title=title(found.today),
        lead=lead(found),
        notes=[source_line(found)],
    )


def source_line(found: Sensitivities) -> str:
    """Return what the numbers come from."""
    e = found.today
    how = "searched again after every change" if found.reoptimized else "the same throughout"
    dated = e.cluster.accelerator.price_date
    price = "" if dated is None or e.usd_per_hour is None else f", price of {dated}"
    return (
        f"Strategy {how}. Predicted by Scalewise {__version__}: datasheet of "
        f"{e.cluster.accelerator.name}, stack {e.stack.name}, fabric {e.cluster.fabric.name}"
        f"{price}."
    )


def _percent(fraction: float | None) -> float | None:
    return None if fraction is None else 100.0 * fraction
