"""Files of a queue: page, figure, rows of data, JSON.

queue_file(found, ".html")      # bytes, by file ending
"""

from __future__ import annotations

from typing import Any

from scalewise._version import __version__
from scalewise.explore.queue import Queue
from scalewise.report.page import figure_page, table
from scalewise.report.plan_files import COLUMNS as OF_ROW
from scalewise.report.queue_figure import queue_figure
from scalewise.report.queue_words import lead
from scalewise.report.table import file_bytes
from scalewise.units import grouped

COLUMNS: dict[str, type] = {
    "name": str, "start": str, "end": str, "end_low": str, "end_high": str,
} | OF_ROW  # fmt: skip
"""Types by column: days of the calendar, then those of a plan."""


def queue_file(found: Queue, ending: str) -> bytes:
    """Return a queue as a file: .html, .svg, .png, .csv, .parquet or .json."""
    return file_bytes(
        ending,
        page=lambda: queue_page(found),
        figure=lambda: queue_figure(found),
        rows=lambda: queue_rows(found),
        columns=COLUMNS,
        plain=lambda: queue_dict(found),
    )


def queue_rows(found: Queue) -> list[dict[str, Any]]:
    """Return one row per run, in order."""
    rows: list[dict[str, Any]] = found.to_dict()["runs"]
    return rows


def queue_dict(found: Queue) -> dict[str, Any]:
    """Return everything as plain types."""
    return {"version": __version__, "lead": lead(found), **found.to_dict()}


def queue_page(found: Queue) -> str:
    """Return calendar and table as a self-contained page."""
    cells = [
        (run.name, run.row.model, run.row.strategy, f"{run.row.accelerators:,}",
         str(found.day(run.start.value)), str(found.day(run.end.value)),
         grouped(run.end.value - run.start.value))
        for run in found.calendar.runs
    ]  # fmt: skip
    heads = ("run", "model", "strategy", "GPUs", "start", "end", "days")
    return figure_page(queue_figure(found), table(heads, cells, text=(0, 1, 2)))
