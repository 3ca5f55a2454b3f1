"""Files of scaling curves: page, figure, rows of data, JSON.

scale_file(curves, ".html")       # bytes, by file ending
scale_rows(curves)                # one row per point and per infeasible size
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from scalewise._version import __version__
from scalewise.explore.points import KNEE, Curves, Point
from scalewise.report import scale_words as words
from scalewise.report.needed_words import needed, needed_lines
from scalewise.report.page import bullets, figure_page
from scalewise.report.scale_figure import scale_figure
from scalewise.report.table import columns_of, file_bytes

_OF_CURVE: dict[str, type] = {
    "model": str, "cluster": str, "seq_len": int, "label": str, "stack": str, "precision": str,
}  # fmt: skip
_OF_POINT = columns_of(Point, leave=("terms", "cause"))
COLUMNS = _OF_CURVE | _OF_POINT | {"cause": str, "cause_share": float, "loss": float}
"""Types by column: the curve, all fields of `Point`, and the cause of its loss. `infeasible` is the
reason where a size has no point or does not fit."""


def scale_file(
    curves: Curves,
    ending: str,
    *,
    share: float = KNEE,
    defaults: Sequence[str] = (),
    deadline: float | None = None,
    fit: float = 0.0,
) -> bytes:
    """Return the curves as a file.

    Args:
        curves: The curves.
        ending: .html, .svg, .png, .csv, .parquet or .json.
        share: Fraction of the first marginal efficiency below which a size is past its knee.
        defaults: Defaults that were used.
        deadline: Days that the token budget may take.
        fit: Chance to fit into memory that the smallest size needs.
    """
    enough: dict[str, Any] = {"deadline": deadline, "fit": fit}
    return file_bytes(
        ending,
        page=lambda: scale_page(curves, share=share, defaults=defaults, **enough),
        figure=lambda: scale_figure(curves, share=share),
        rows=lambda: scale_rows(curves),
        columns=COLUMNS,
        plain=lambda: scale_dict(curves, share=share, defaults=defaults, **enough),
    )


def scale_page(
    curves: Curves,
    *,
    share: float = KNEE,
    defaults: Sequence[str] = (),
    deadline: float | None = None,
    fit: float = 0.0,
) -> str:
    """Return the figure and its sentences as a self-contained page."""
    sentences = {
        "GPUs needed": needed_lines(curves, days=deadline, fit=fit),
        "Knees": words.knee_sentences(curves, share),
        "Crossovers": words.crossover_sentences(curves),
        "Causes": words.cause_sentences(curves),
        f"Best strategies, by {curves.by}": words.best_sentences(curves),
        "Infeasible sizes": words.missing_sentences(curves),
        "Defaults": defaults,
        "Warnings": curves.warnings,
    }
    parts = [bullets(name, lines) for name, lines in sentences.items()]
    return figure_page(scale_figure(curves, share=share), *parts)


def scale_rows(curves: Curves) -> list[dict[str, Any]]:
    """Return one row per point and per infeasible size, by curve and then by size."""
    lines: list[dict[str, Any]] = []
    for curve in curves.curves:
        head = dict.fromkeys(COLUMNS) | {name: getattr(curve, name) for name in _OF_CURVE}
        rows: list[dict[str, Any]] = [
            head | {"accelerators": gap.accelerators, "infeasible": gap.reason}
            for gap in curve.missing
        ]
        for point in curve.points:
            row = head | {name: getattr(point, name) for name in _OF_POINT}
            if (cause := point.cause) is not None:
                row |= {"cause": cause.name, "cause_share": cause.share, "loss": cause.loss}
            rows.append(row)
        lines += sorted(rows, key=lambda row: int(row["accelerators"]))
    return lines


def scale_dict(
    curves: Curves,
    *,
    share: float = KNEE,
    defaults: Sequence[str] = (),
    deadline: float | None = None,
    fit: float = 0.0,
) -> dict[str, Any]:
    """Return everything as plain types: the fields of `Curves`, with knees and defaults.

    With a deadline also the smallest size of each curve that meets it.
    """
    plain: dict[str, Any] = msgspec.to_builtins(curves)
    enough = {} if deadline is None else {
        "deadline_days": deadline,
        "needed": [
            {
                "curve": curves.curves.index(each.curve),
                "accelerators": None if each.point is None else each.point.accelerators,
                "days": None if each.point is None else each.point.days,
            }
            for each in needed(curves, days=deadline, fit=fit)
        ],
    }  # fmt: skip
    return {
        "version": __version__,
        **enough,
        **plain,
        "knee_share": share,
        "knees": msgspec.to_builtins(curves.knees(share)),
        "defaults": list(defaults),
    }
