"""Figure and files of a diagnosis: one bar per cause, the most likely first.

    diagnose_figure(found)         # odds of causes
    diagnose_file(found, ".csv")   # bytes, by file ending

`scalewise.diagnosis` computes, `diagnose_table` has the sentences.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalewise._version import __version__
from scalewise.report.diagnose_table import (
    comparable_line,
    groups_line,
    lead,
    mended_line,
    next_lines,
    odds,
)
from scalewise.report.figure import PALETTE, Axis, Figure, Panel, Trace
from scalewise.report.page import bullets, figure_page
from scalewise.report.table import file_bytes
from scalewise.report.words import device_word, title

if TYPE_CHECKING:
    from scalewise.diagnosis.result import Diagnosis

COLUMNS: dict[str, type] = {
    "model": str, "cluster": str, "accelerators": int, "strategy": str, "measured": float,
    "expected": float, "cause": str, "label": str, "group": str, "odds": float, "value": float,
    "low": float, "high": float, "text": str, "mended": float, "check": str, "mend": str,
}  # fmt: skip
"""Types by column: the first run, then the fields of a `Finding`; rates in tokens/s per GPU."""


def diagnose_rows(found: Diagnosis) -> list[dict[str, Any]]:
    """Return one row per hypothesis: causes, a healthy run, and what is not on the list."""
    e, run = found.estimate, found.runs[0]
    same: dict[str, Any] = dict.fromkeys(COLUMNS)
    same |= {
        "model": e.model.name,
        "cluster": e.cluster.name,
        "accelerators": e.cluster.accelerators,
        "strategy": run.strategy,
        "measured": run.measured,
        "expected": run.expected,
    }
    rows = []
    for each in found.causes:
        own = {name: getattr(each, name) for name in COLUMNS if hasattr(each, name)}
        rows.append(same | own | {"cause": each.key})
    rows.append(same | {"cause": "healthy", "label": "a healthy run", "odds": found.healthy})
    rows.append(
        same | {"cause": "other", "label": "something not on this list", "odds": found.other}
    )
    return rows


def diagnose_dict(found: Diagnosis) -> dict[str, Any]:
    """Return everything as plain types, with the sentence above the table."""
    return {"version": __version__, "lead": lead(found), **found.to_dict()}


def diagnose_figure(found: Diagnosis) -> Figure:
    """Return the odds of all hypotheses as bars."""
    rows = sorted(diagnose_rows(found), key=lambda row: -float(row["odds"]))
    labels = [str(row["label"]) for row in rows]
    trace = Trace(
        name="",
        xs=labels,
        ys=[100.0 * float(row["odds"]) for row in rows],
        hover=[f"{row['label']}<br>{odds(row['odds'])}<br>{row['text'] or ''}" for row in rows],
        color=PALETTE[0],
    )
    e = found.estimate
    return Figure(
        name="diagnose",
        panels=[
            Panel(
                kind="bars", x=Axis(values=labels), y=Axis(label="odds (%)"), traces=[trace],
                sideways=True,
            )
        ],
        title=title(e),
        lead=lead(found),
        notes=[
            f"Predicted by Scalewise {__version__}: stack {e.stack.name}, fabric "
            f"{e.cluster.fabric.name}. Odds by Bayes' rule over a list of causes."
        ],
    )  # fmt: skip


def diagnose_file(found: Diagnosis, ending: str) -> bytes:
    """Return a diagnosis as a file: .html, .svg, .png, .csv, .parquet or .json."""
    word = device_word(found.estimate.cluster.accelerator.kind)
    figure = diagnose_figure(found)
    together = [line] if (line := groups_line(found)) else []

    def page() -> str:
        return figure_page(
            figure,
            bullets("Together", together),
            bullets("Differs", found.trace.findings if found.trace is not None else ()),
            bullets("Value", [f"{c.label}: {c.text}" for c in found.causes if c.text]),
            bullets("Check", [f"{c.label}: {c.check}" for c in found.causes]),
            bullets("Mended", mended_line(found, word)),
            bullets("Next", next_lines(found, word)),
            bullets("Possible", found.faster),
            bullets("Published", [comparable_line(each, word) for each in found.comparable]),
            bullets("Notes", found.notes),
            bullets("Defaults", [str(each) for each in found.defaults]),
        )

    return file_bytes(
        ending,
        page=page,
        figure=lambda: figure,
        rows=lambda: diagnose_rows(found),
        columns=COLUMNS,
        plain=lambda: diagnose_dict(found),
    )
