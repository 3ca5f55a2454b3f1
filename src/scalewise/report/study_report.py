"""How does a study become a folder? A page, all points, every figure, the study itself.

    write_report(answer, "report/", runs=[], command="scalewise study run x -o report/")

Files that are there are replaced; nothing else in the folder is touched.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from scalewise.errors import InputError, MissingExtraError, require
from scalewise.report.study_data import study_csv, study_parquet
from scalewise.report.study_page import study_html
from scalewise.report.study_paper import study_images
from scalewise.report.study_style import Drawing, drawing_of
from scalewise.study.overlays import Measured, marks_of
from scalewise.study.run import Answer
from scalewise.study.tasks import price_step
from scalewise.sweep.fingerprint import fingerprint


def check_libraries() -> None:
    """Refuse before anything is computed, and not after it, where libraries are missing.

    Raises:
        MissingExtraError: Naming the extra.
    """
    require("plotly", "plot")
    require("matplotlib", "plot")


def drawings_of(answer: Answer, runs: Sequence[Measured] = ()) -> dict[str, list[Drawing]]:
    """All figures by experiment; those of which nothing can be drawn are left out."""
    found: dict[str, list[Drawing]] = {}
    for each in answer.study.experiments:
        rows = answer.of(each)
        marks = marks_of(each, rows, runs)
        drawn = (drawing_of(each, number, rows, marks) for number in range(len(each.figures)))
        found[each.id] = [drawing for drawing in drawn if drawing.panels]
    return found


def undrawn(answer: Answer) -> list[str]:
    """Figures without any point, one phrase each: a misspelt `where` must not go unseen."""
    found = []
    for each in answer.study.experiments:
        rows = answer.of(each)
        for number in range(len(each.figures)):
            if not drawing_of(each, number, rows, ()).panels:
                found.append(f"experiment {each.id}, figure {number + 1}: no point to draw")
    return found


def verdict_records(answer: Answer) -> list[dict[str, Any]]:
    """The verdicts as plain types."""
    return [
        {
            "experiment": each.experiment,
            "claim": each.claim.statement,
            "source": each.claim.source,
            "verdict": each.verdict,
            "ours": each.ours,
            "published": each.theirs,
            "value": each.value,
            "why": each.why,
        }
        for each in answer.verdicts
    ]


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
    out = Path(folder).expanduser()
    try:
        (out / "figures").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"cannot make the folder {out}: {error.strerror}", hint="name another with -o"
        ) from error
    drawings = drawings_of(answer, runs)
    flat = [drawing for found in drawings.values() for drawing in found]
    pictures: dict[str, bytes] = {}
    written = [out / "index.html", out / "points.csv", out / "verdicts.json", out / "study.toml"]
    for drawing in flat:
        images = study_images(drawing)
        pictures[drawing.name] = images["svg"]
        for ending, content in images.items():
            path = out / "figures" / f"{drawing.name}.{ending}"
            path.write_bytes(content)
            written.append(path)
    page = study_html(
        answer, drawings, pictures, command=command, fingerprint=fingerprint(price_step)
    )
    written[0].write_text(page, encoding="utf-8")
    written[1].write_text(study_csv(answer.rows), encoding="utf-8")
    verdicts = msgspec.json.encode(verdict_records(answer))
    written[2].write_bytes(msgspec.json.format(verdicts, indent=2) + b"\n")
    written[3].write_text(answer.study.text, encoding="utf-8")
    try:
        (out / "points.parquet").write_bytes(study_parquet(answer.rows))
        written.append(out / "points.parquet")
    except MissingExtraError:
        # A table too many: the same points are in the CSV.
        pass
    return written
