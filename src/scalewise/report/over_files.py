"""Files of curves and maps over any quantity: page, figure, rows of data, JSON.

over_file(found, ".html")       # bytes, by file ending
over_rows(sweep)                # one row per point and per value that cannot run
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from scalewise._version import __version__
from scalewise.explore.axis import Sweep
from scalewise.explore.points import KNEE, Point
from scalewise.report import over_words as words
from scalewise.report.over_figure import over_figure
from scalewise.report.page import bullets, figure_page
from scalewise.report.table import columns_of, file_bytes

if TYPE_CHECKING:
    from scalewise.ask.over import Over

_OF_AXES: dict[str, type] = {
    "over": str, "value": str, "number": float, "unit": str,
    "over_2": str, "value_2": str, "number_2": float, "unit_2": str,
}  # fmt: skip
_OF_SERIES: dict[str, type] = {"model": str, "cluster": str, "label": str}
_OF_CELL: dict[str, type] = {
    "seq_len": int, "precision": str, "elasticity": float, "per_doubling": float,
}  # fmt: skip
_NOT_HERE = (
    "terms", "cause", "previous", "marginal_tokens_per_second", "marginal_tokens_per_joule",
    "marginal_usd_per_million_tokens",
)  # fmt: skip
_OF_POINT = columns_of(Point, leave=_NOT_HERE)
COLUMNS = (
    _OF_AXES | _OF_SERIES | _OF_CELL | _OF_POINT
    | {"cause": str, "cause_share": float, "loss": float}
)  # fmt: skip
"""Types by column: quantities with their values, series, all fields of `Point` but marginal ones,
changes along the first quantity. `infeasible` is the reason where a value cannot run."""


def over_file(found: Over, ending: str, *, share: float = KNEE) -> bytes:
    """Return the curves or maps as a file.

    Args:
        found: The sweep, and how it came about.
        ending: .html, .svg, .png, .csv, .parquet or .json.
        share: Fraction of the largest gain per doubling below which a gain is past the knee.
    """
    sweep, title = found.sweep, words.title(found)
    return file_bytes(
        ending,
        page=lambda: over_page(found, share=share),
        figure=lambda: over_figure(sweep, share=share, title=title),
        rows=lambda: over_rows(sweep),
        columns=COLUMNS,
        plain=lambda: over_dict(found, share=share),
    )


def over_page(found: Over, *, share: float = KNEE) -> str:
    """Return the figure and its sentences as a self-contained page."""
    sweep = found.sweep
    sentences = {
        "Knees": [words.knee_line(sweep, share)],
        "Crossovers": [words.crossover_line(sweep)],
        "Causes": [words.cause_line(sweep)],
        f"Best strategies, by {sweep.by}": words.strategy_lines(sweep),
        "Infeasible values": words.missing_lines(sweep),
        "What-if changes": found.changes,
        "Defaults": [str(each) for each in found.defaults],
        "Warnings": [*found.notes, *sweep.warnings],
    }
    parts = [bullets(name, [line for line in lines if line]) for name, lines in sentences.items()]
    return figure_page(over_figure(sweep, share=share, title=words.title(found)), *parts)


def over_rows(sweep: Sweep) -> list[dict[str, Any]]:
    """Return one row per point and per value that cannot run, by series."""
    rows = []
    for series in sweep.series:
        head = dict.fromkeys(COLUMNS) | {name: getattr(series, name) for name in _OF_SERIES}
        for cell in series.cells:
            row: dict[str, Any] = head | {name: getattr(cell, name) for name in _OF_CELL}
            for end, axis, place in zip(("", "_2"), sweep.axes, cell.place, strict=False):
                row |= {
                    f"over{end}": axis.name,
                    f"value{end}": axis.texts[place],
                    f"number{end}": None if axis.numbers is None else axis.numbers[place],
                    f"unit{end}": axis.unit,
                }
            if cell.point is not None:
                row |= {name: getattr(cell.point, name) for name in _OF_POINT}
            row["infeasible"] = cell.infeasible
            if (cause := cell.cause) is not None:
                row |= {"cause": cause.name, "cause_share": cause.share, "loss": cause.loss}
            rows.append(row)
    return rows


def sweep_dict(sweep: Sweep, *, share: float = KNEE) -> dict[str, Any]:
    """Return a sweep as plain types: its fields, with knees."""
    return {
        "version": __version__,
        **msgspec.to_builtins(sweep),
        "knee_share": share,
        "knees": msgspec.to_builtins(sweep.knees(share)),
    }


def over_dict(found: Over, *, share: float = KNEE) -> dict[str, Any]:
    """Return everything as plain types: the sweep, with knees, defaults and changes."""
    return {
        **sweep_dict(found.sweep, share=share),
        "defaults": [str(each) for each in found.defaults],
        "changes": list(found.changes),
        "notes": list(found.notes),
    }
