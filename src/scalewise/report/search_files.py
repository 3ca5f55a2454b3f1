"""Files of a search: page, figure, rows of data.

    search_file(found, ".html")       # bytes, by file ending
    search_rows(found)                # one row per strategy, then those only on the front

Seconds by term add up to `step_seconds`, bytes by part to `memory_bytes`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scalewise.errors import InputError
from scalewise.explore.objectives import objective_of
from scalewise.metrics import METRICS
from scalewise.report import estimate_rows
from scalewise.report import search_figure as figures
from scalewise.report.draw_plotly import plot
from scalewise.report.page import bullets, details, facts, heading, lead, note, page, table
from scalewise.report.search_table import FRONT_SHOWN, headline, launch_facts
from scalewise.report.table import file_bytes
from scalewise.report.words import percent, provenance_line
from scalewise.units import format_count

if TYPE_CHECKING:
    from scalewise.explore.search import Search
    from scalewise.step.result import Estimate

COLUMNS: dict[str, type] = {"rank": int, "tie": bool, "front": bool, **estimate_rows.COLUMNS}
"""Types by column. `rank` is empty for strategies that are only on the Pareto front."""

_SHOWN = tuple(
    METRICS[name]
    for name in (
        "tokens_per_second_per_accelerator", "step_seconds", "mfu", "hfu", "exposed_fraction",
        "memory_bytes", "watts_per_accelerator", "joules_per_token", "usd_per_million_tokens",
    )
)  # fmt: skip


def search_file(found: Search, ending: str, *, defaults: Sequence[str] = ()) -> bytes:
    """Return a search as a file.

    Args:
        found: The search.
        ending: .html, .svg, .png, .csv or .parquet.
        defaults: Defaults that were used.

    Raises:
        InputError: If no strategy fits and a picture is asked for.
    """
    if ending in (".svg", ".png") and found.best is None:
        raise InputError(
            "no strategy fits: there is no bar to draw",
            hint="write a page (.html) with the reasons, or ask for more GPUs",
        )
    return file_bytes(
        ending,
        page=lambda: search_page(found, defaults=defaults),
        figure=lambda: figures.search_figure(found),
        rows=lambda: search_rows(found),
        columns=COLUMNS,
    )


def search_rows(found: Search) -> list[dict[str, Any]]:
    """Return one row per strategy of the ranking, then those of the front that are not in it."""
    ranked = [e.strategy for e in found.strategies]
    front = {e.strategy for e in found.pareto}
    more = [e for e in found.pareto if e.strategy not in ranked]
    rows = []
    for place, e in enumerate([*found.strategies, *more]):
        row = estimate_rows.estimate_row(e)
        rank = place + 1 if place < len(ranked) else None
        rows.append({"rank": rank, "tie": found.is_tie(e), "front": e.strategy in front, **row})
    return rows


def search_page(found: Search, *, defaults: Sequence[str] = ()) -> str:
    """Return a search as a self-contained page.

    Raises:
        MissingExtraError: If plotly is needed and not installed.
    """
    e = found.best or found.nearest
    source = figures.source_line(found)
    stopped = lead("Interrupted: the best strategies so far.") if found.interrupted else ""
    return page(
        figures.title(found),
        stopped,
        lead(headline(found)),
        *(_ranking(found, found.best) if found.best is not None else _nearest(found)),
        _counts(found),
        facts("Question", _question(found)),
        bullets("Defaults", defaults),
        bullets("Warnings", () if e is None else e.warnings),
        source=source if e is None else f"{source} Numbers: {provenance_line(e)}.",
    )


def _ranking(found: Search, best: Estimate) -> list[str]:
    """Return the blocks of a search that found something."""
    bars = figures.search_figure(found)
    parts = [
        heading("Step time by term"),
        plot(bars),
        note(bars.notes[0]),
        heading("Ranking"),
        _table(found, found.strategies),
        bullets("Differences to the best", [f"{sentence}." for sentence in found.why()]),
        # At commas, but not inside brackets.
        bullets(f"Launch {best.strategy}", re.split(r", (?![^(]*\))", launch_facts(best))),
    ]
    if len(found.best_by_tp_pp) > 1:
        parts += [
            heading("Best strategy by tensor parallel degree and pipeline stages"),
            plot(figures.mesh_figure(found)),
            note(f"{figures.OBJECTIVES[found.by].axis}. Frame: the best. Empty: none fits."),
        ]
    if found.pareto:
        parts += _front(found)
    return parts


def _front(found: Search) -> list[str]:
    """Return the Pareto front as a figure where it is a trade, and as a table."""
    name = heading("Pareto front of " + ", ".join(found.objectives))
    if len(found.pareto) == 1:
        return [name, note(f"One strategy is best in all objectives: {found.pareto[0].strategy}.")]
    ordered = sorted(found.pareto, key=lambda e: objective_of(e, "time"))
    return [
        name,
        plot(figures.front_figure(found)) if figures.front_axes(found) else "",
        details(
            f"All {len(ordered)} strategies of the front, by step time",
            _table(found, ordered),
            opened=len(ordered) <= FRONT_SHOWN,
        ),
    ]


def _nearest(found: Search) -> list[str]:
    e = found.nearest
    return [] if e is None else [lead(f"Nearest: {e.strategy}, {e.infeasible or ''}")]


def _table(found: Search, rows: Sequence[Estimate]) -> str:
    """Return one row per strategy; ties with the best are marked."""
    ties = [place for place, e in enumerate(rows) if found.is_tie(e)]
    cells = []
    for place, e in enumerate(rows):
        texts = [metric.number(getattr(e, metric.name)) for metric in _SHOWN]
        texts.insert(1, f"{e.low:,.0f}-{e.high:,.0f}")
        cells.append([f"{place + 1}", ("= " if place in ties else "") + str(e.strategy), *texts])
    heads = [metric.head for metric in _SHOWN]
    heads.insert(1, "80% interval")
    return table(["", "strategy", *heads], cells, text=(1,), marked=ties)


def _counts(found: Search) -> str:
    """Return how many strategies fit, and why the others do not."""
    reasons = sorted(found.infeasible.items(), key=lambda item: -item[1])
    rows = [
        (reason, f"{count:,}", percent(count / max(found.evaluated, 1)))
        for reason, count in [("fits", found.feasible), *reasons]
    ]
    return heading(f"{found.evaluated:,} strategies evaluated") + table((), rows)


def _question(found: Search) -> dict[str, str]:
    e = found.best or found.nearest
    if e is None:
        return {}
    work, model = e.workload, e.model
    active = f", {format_count(model.active_parameters)} active" if model.moe else ""
    return {
        "model": f"{model.name}, {format_count(model.parameters)} parameters{active}",
        "cluster": f"{e.cluster.name}, {e.cluster.accelerators:,}x {e.cluster.accelerator.name}",
        "sequence length": f"{work.seq_len:,} tokens",
        "global batch": f"{work.global_batch:,} sequences",
        "precision": work.precision,
        "software stack": e.stack.name,
        "objective": figures.OBJECTIVES[found.by].axis,
    }
