"""Files of a plan: page, figure, rows of data, JSON, and the answer as a plan file.

plan_file(found, ".html")       # bytes, by file ending
"""

from __future__ import annotations

from typing import Any

from scalewise._version import __version__
from scalewise.errors import InputError
from scalewise.explore.plan import Plan, Row
from scalewise.report import plan_words as words
from scalewise.report.page import bullets, figure_page
from scalewise.report.plan_figure import plan_figure
from scalewise.report.table import file_bytes

_WORDS = ("model", "cluster", "strategy", "stack", "infeasible", "price_kind", "price_date",
          "price_source")  # fmt: skip
_WHOLE = ("accelerators", "global_batch")

COLUMNS: dict[str, type] = {
    name: str if name in _WORDS else int if name in _WHOLE else bool if name == "asked" else float
    for name in Row(model="", cluster="", accelerators=1).to_dict()
}
"""Types by column. `_low` and `_high` are the ends of the 80% interval."""


def plan_file(found: Plan, ending: str) -> bytes:
    """Return a plan as a file.

    Args:
        found: The plan.
        ending: .html, .svg, .png, .csv, .parquet, .json or .toml.

    Raises:
        InputError: If a plan file is wanted, and there is not one answer.
    """
    if ending == ".toml":
        return plan_toml(found).encode()
    return file_bytes(
        ending,
        page=lambda: plan_page(found),
        figure=lambda: plan_figure(found),
        rows=lambda: plan_rows(found),
        columns=COLUMNS,
        plain=lambda: plan_dict(found),
    )


def plan_toml(found: Plan) -> str:
    """Return the answer as a plan file.

    Raises:
        InputError: If there is none, or there are several models.
    """
    if len(found.answers) > 1:
        raise InputError(
            "a plan file holds one model", hint=f"plan {found.answers[0].model} alone, or -o .json"
        )
    if not found.file:
        raise InputError("nothing is within the limits: there is no plan to write")
    return found.file


def plan_rows(found: Plan) -> list[dict[str, Any]]:
    """Return one row per model, cluster and size, sorted as the table."""
    return [row.to_dict() for row in found.rows]


def plan_dict(found: Plan) -> dict[str, Any]:
    """Return everything as plain types."""
    return {"version": __version__, "lead": words.answer_lines(found), **found.to_dict()}


def plan_page(found: Plan) -> str:
    """Return the figure and its sentences as a self-contained page."""
    sentences = {
        "Nearest": words.nearest_lines(found),
        "Goodput": words.goodput_lines(found),
        "Own or rent": words.own_lines(found),
        "Next": [words.next_line(found)] if found.next else [],
        "Defaults": found.defaults,
    }
    parts = [bullets(name, lines) for name, lines in sentences.items()]
    return figure_page(plan_figure(found), *parts)
