"""Views of results by type: line, HTML block, rows, figure.

    line(found)           # "<Search: zero1x32-tp4-pp8-v12-mb2, 196 tok/s/GPU ...>"
    to_frame(curves)      # polars or pandas
    plot(e)               # plotly

The one table that joins a type of result to its files of `report`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from html import escape
from typing import Any

from scalewise.report.figure import Figure
from scalewise.report.table import Columns, Rows, frame

MAX_ROWS = 20
"""Rows of a table in a notebook."""


@dataclass(frozen=True, kw_only=True)
class View:
    """How one type of result is seen."""

    line: Callable[[], str]
    """One sentence."""
    rows: Callable[[], Rows]
    columns: Columns | None
    """Types of the columns; None to infer them."""
    figure: Callable[[], Figure]
    html: Callable[[], str] | None = None
    """Block for a notebook; by default line and rows."""


def to_frame(result: Any) -> Any:
    """Return rows as a data frame."""
    view = _view(result)
    return frame(view.rows(), view.columns)


def plot(result: Any) -> Any:
    """Return the figure as plotly's."""
    from scalewise.report.draw_plotly import plotly_figure

    return plotly_figure(_view(result).figure())


def line(result: Any) -> str:
    """Return one line for a prompt."""
    text = _view(result).line()
    return text if text.startswith("<") else f"<{type(result).__name__}: {text}>"


def html(result: Any) -> str:
    """Return a block for a notebook."""
    view = _view(result)
    if view.html is not None:
        return view.html()
    rows = list(view.rows())
    heads = list(rows[0]) if rows else []
    cells = "".join(
        "<tr>" + "".join(f"<td>{escape(_cell(row[name]))}</td>" for name in heads) + "</tr>"
        for row in rows[:MAX_ROWS]
    )
    head = "".join(f"<th>{escape(name)}</th>" for name in heads)
    more = f"<p>{len(rows) - MAX_ROWS:,} more rows</p>" if len(rows) > MAX_ROWS else ""
    return f"<p>{escape(view.line())}</p><table><tr>{head}</tr>{cells}</table>{more}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _view(result: Any) -> View:
    return _VIEWS[type(result).__name__](result)


def _estimate(e: Any) -> View:
    from scalewise.report.estimate_html import estimate_html, estimate_line
    from scalewise.report.estimate_rows import COLUMNS, estimate_row
    from scalewise.report.estimate_waterfall import waterfall_figure

    return View(
        line=lambda: estimate_line(e),
        rows=lambda: [estimate_row(e)],
        columns=COLUMNS,
        figure=lambda: waterfall_figure(e),
        html=lambda: estimate_html(e),
    )


def _estimates(many: Any) -> View:
    from scalewise.report.estimate_rows import COLUMNS, estimate_row
    from scalewise.report.estimate_waterfall import waterfall_figure

    return View(
        line=lambda: f"{len(many):,} strategies of {many.model.name} on {many.cluster.name}",
        rows=lambda: [estimate_row(many[row]) for row in range(len(many))],
        columns=COLUMNS,
        figure=lambda: waterfall_figure(many[int(many.step_seconds.argmin())]),
    )


def _search(found: Any) -> View:
    from scalewise.report import search_files as files
    from scalewise.report.search_figure import search_figure
    from scalewise.report.search_table import headline

    return View(
        line=lambda: headline(found),
        rows=lambda: files.search_rows(found),
        columns=files.COLUMNS,
        figure=lambda: search_figure(found),
    )


def _curves(curves: Any) -> View:
    from scalewise.report import scale_files as files
    from scalewise.report.scale_figure import scale_figure
    from scalewise.report.scale_words import best_lines, title

    return View(
        line=lambda: " ".join([title(curves), *best_lines(curves)]),
        rows=lambda: files.scale_rows(curves),
        columns=files.COLUMNS,
        figure=lambda: scale_figure(curves),
    )


def _sweep(sweep: Any) -> View:
    from scalewise.report import over_files as files
    from scalewise.report.over_figure import over_figure
    from scalewise.report.over_words import axis_words, best_lines

    return View(
        line=lambda: " ".join([f"over {axis_words(sweep)}.", *best_lines(sweep)]),
        rows=lambda: files.over_rows(sweep),
        columns=files.COLUMNS,
        figure=lambda: over_figure(sweep),
    )


def _plan(found: Any) -> View:
    from scalewise.report import plan_files as files
    from scalewise.report.plan_figure import plan_figure
    from scalewise.report.plan_words import answer_lines

    return View(
        line=lambda: " ".join(answer_lines(found)),
        rows=lambda: files.plan_rows(found),
        columns=files.COLUMNS,
        figure=lambda: plan_figure(found),
    )


def _queue(found: Any) -> View:
    from scalewise.report import queue_files as files
    from scalewise.report.queue_figure import queue_figure
    from scalewise.report.queue_words import lead

    return View(
        line=lambda: lead(found),
        rows=lambda: files.queue_rows(found),
        columns=files.COLUMNS,
        figure=lambda: queue_figure(found),
    )


def _sensitivities(found: Any) -> View:
    from scalewise.report import sensitivity_figure as files
    from scalewise.report.sensitivity_table import lead

    return View(
        line=lambda: lead(found),
        rows=lambda: files.sensitivity_rows(found),
        columns=files.COLUMNS,
        figure=lambda: files.sensitivity_figure(found),
    )


def _diagnosis(found: Any) -> View:
    from scalewise.report import diagnose_figure as files
    from scalewise.report.diagnose_table import lead

    return View(
        line=lambda: lead(found),
        rows=lambda: files.diagnose_rows(found),
        columns=files.COLUMNS,
        figure=lambda: files.diagnose_figure(found),
    )


def _timeline(simulated: Any) -> View:
    from scalewise.report.estimate_html import estimate_line
    from scalewise.report.timeline_figure import timeline_figure
    from scalewise.units import format_seconds

    names = ("rank", "stream", "name", "kind", "start", "seconds", "micro")
    return View(
        line=lambda: (
            f"{format_seconds(simulated.step_seconds)} simulated, "
            f"{simulated.difference:+.1%} against {estimate_line(simulated.estimate)}"
        ),
        rows=lambda: [
            {name: getattr(event, name) for name in names}
            for rank in simulated.ranks
            for event in simulated.events(rank)
        ],
        columns=None,
        figure=lambda: timeline_figure(simulated),
    )


def _validation(validation: Any) -> View:
    from scalewise.report.validate_figure import headline, scatter_figure

    def rows() -> Rows:
        plain = [row.to_dict() for row in validation.rows]
        return [{k: v for k, v in row.items() if k != "defaults"} for row in plain]

    return View(
        line=lambda: headline(validation),
        rows=rows,
        columns=None,
        figure=lambda: scatter_figure(validation),
    )


def _trace(summary: Any) -> View:
    from scalewise.report import trace_figure as files
    from scalewise.report.trace_table import lead

    return View(
        line=lambda: lead(summary),
        rows=lambda: files.trace_rows(summary),
        columns=files.COLUMNS,
        figure=lambda: files.trace_figure(summary),
    )


_VIEWS: dict[str, Callable[[Any], View]] = {
    "Curves": _curves,
    "Diagnosis": _diagnosis,
    "Estimate": _estimate,
    "Estimates": _estimates,
    "Plan": _plan,
    "Queue": _queue,
    "Search": _search,
    "Sensitivities": _sensitivities,
    "Sweep": _sweep,
    "Timeline": _timeline,
    "TraceSummary": _trace,
    "Validation": _validation,
}
