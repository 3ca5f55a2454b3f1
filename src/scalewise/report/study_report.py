"""Folder of a study: page, all points, every figure, the study itself.

    write_report(answer, "report/", runs=[], command="scalewise study run x -o report/")
    study_rows(answer.rows)           # one flat row per point

Existing files of these names are replaced. Columns are all axes and all metrics in SI, the same
for every study, so that tables of several studies can be concatenated.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import InputError, MissingExtraError, require
from scalewise.metrics import METRICS
from scalewise.reading import user_path
from scalewise.report.draw_matplotlib import images
from scalewise.report.study_figure import study_figure, study_figures
from scalewise.report.study_page import study_page
from scalewise.report.table import to_csv, to_json, to_parquet
from scalewise.study.claims import Judged
from scalewise.study.judging import MeasuredAnswer
from scalewise.study.measures import AXES
from scalewise.study.overlays import Measured
from scalewise.study.rows import Row
from scalewise.study.run import Answer
from scalewise.study.tasks import evaluate_step
from scalewise.sweep.fingerprint import fingerprint
from scalewise.writing import write_atomically

_WHOLE = ("seq_len", "tp", "pp", "cp", "accelerators", "nodes", "message_bytes")
COLUMNS: dict[str, type] = {
    "experiment": str, **{name: int if name in _WHOLE else str for name in AXES},
    "strategy_with_sizes": str, **dict.fromkeys(METRICS, float), "low": float, "high": float,
    "infeasible": str, "note": str,
}  # fmt: skip
"""Types by column of every table."""


def study_rows(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Return the points as flat rows with all columns; None where a value is unknown."""
    found = []
    for row in rows:
        low, high = row.interval or (None, None)
        found.append(
            {
                "experiment": row.experiment,
                **{name: row.axes.get(name) for name in AXES},
                "strategy_with_sizes": row.strategy or None,
                **{name: row.metrics.get(name) if row.feasible else None for name in METRICS},
                "low": low if row.feasible else None,
                "high": high if row.feasible else None,
                "infeasible": row.infeasible,
                "note": row.note or None,
            }
        )
    return found


def check_libraries() -> None:
    """Refuse before anything is computed where libraries are missing.

    Raises:
        MissingExtraError: Naming the extra.
    """
    require("plotly", "plot")
    require("matplotlib", "plot")


def undrawn(answer: Answer) -> list[str]:
    """Return figures without any point, one phrase each: a misspelled `where` must be seen."""
    found = []
    for each in answer.study.experiments:
        rows = answer.drawn(each)
        for number in range(len(each.figures)):
            if not study_figure(each, number, rows, ()).panels:
                found.append(f"experiment {each.id}, figure {number + 1}: no point to draw")
    return found


def verdict_records(answer: Answer) -> list[dict[str, Any]]:
    """Return the verdicts as plain types; with those of measurements, if there are records."""
    measured = [] if answer.measured is None else measured_records(answer.measured)
    found = [_record(each) for each in answer.verdicts]
    return [
        record | ({"measured": measured[place]} if measured else {})
        for place, record in enumerate(found)
    ]


def measured_records(measured: MeasuredAnswer) -> list[dict[str, Any]]:
    """Return the verdicts of measurements as plain types."""
    return [_record(each) for each in measured.verdicts]


def _record(each: Judged) -> dict[str, Any]:
    return {
        "experiment": each.experiment,
        "claim": each.claim.statement,
        "source": each.claim.source,
        "verdict": each.verdict,
        "ours": each.ours,
        "published": each.theirs,
        "value": each.value,
        "why": each.why,
    }


def write_report(
    answer: Answer,
    folder: str | Path,
    *,
    runs: Sequence[Measured] = (),
    command: str = "",
) -> list[Path]:
    """Write everything.

    Args:
        answer: What was found.
        folder: Where to; made if it is not there.
        runs: Measured runs to lay over the figures.
        command: What reproduces it, for the page.

    Returns:
        The files, the page first.

    Raises:
        InputError: If the folder cannot be made.
    """
    out = user_path(folder)
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {out}: {error.strerror}", hint="name another with -o"
        ) from error
    figures = study_figures(answer, runs)
    pictures: dict[str, bytes] = {}
    written = [out / "index.html", out / "points.csv", out / "verdicts.json", out / "study.toml"]
    for figure in (figure for found in figures.values() for figure in found):
        files = images(figure)
        pictures[figure.name] = files["svg"]
        for ending, content in files.items():
            path = out / "figures" / f"{figure.name}.{ending}"
            write_atomically(path, content)
            written.append(path)
    rows = study_rows(answer.rows)
    if answer.measured is not None:
        points = to_csv(study_rows(answer.measured.found.rows), COLUMNS)
        written.append(write_atomically(out / "measured.csv", points))
    page = study_page(
        answer, figures, pictures, command=command, fingerprint=fingerprint(evaluate_step)
    )
    texts = (page, to_csv(rows, COLUMNS), to_json(verdict_records(answer)), answer.study.text)
    for path, text in zip(written, texts, strict=False):
        write_atomically(path, text)
    try:
        write_atomically(out / "points.parquet", to_parquet(rows, COLUMNS))
        written.append(out / "points.parquet")
    except MissingExtraError:
        # Not needed: the same points are in the CSV.
        pass
    return written
