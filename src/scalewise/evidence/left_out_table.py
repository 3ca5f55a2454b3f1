"""Predictions with the source of a run left out, as `scalewise calibrate` stores them.

    write_left_out(out.rows, folder)
    read_left_out()["mpt-7b-h10080gbx8-s2048-mb6-ga1"].predicted

Each source needs a refit, minutes in all, so the predictions are a file beside the runs. What was
known of the software and the chip without the source is stored too: intervals depend on it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scalewise.errors import InputError
from scalewise.evidence.runs import SHIPPED
from scalewise.ranges import Knowledge
from scalewise.reading import read_csv, user_path
from scalewise.writing import csv_text, write_atomically

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scalewise.evidence.ranges_fit import ResidualRow

FILE = SHIPPED.parent / "left_out.csv"
"""Predictions of the shipped runs."""


class LeftOutRow(msgspec.Struct, frozen=True, kw_only=True):
    """One run, predicted by a fit that has not seen its source."""

    id: str
    source: str
    predicted: float
    """Tokens/s per accelerator."""
    knowledge: Knowledge
    """What was known of its software without the source."""
    calibrated: bool
    """Whether other sources have enough runs of the chip in the precision."""


def left_out_rows(rows: Sequence[ResidualRow]) -> dict[str, LeftOutRow]:
    """Return the predictions of refits by id."""
    return {
        row.id: LeftOutRow(
            id=row.id,
            source=row.source,
            predicted=float(f"{float(row.basis.rate):.5g}"),
            knowledge=row.basis.knowledge,
            calibrated=row.basis.calibrated,
        )
        for row in rows
    }


def write_left_out(
    rows: Sequence[ResidualRow], folder: Path, *, kept: Mapping[str, LeftOutRow] | None = None
) -> Path:
    """Write the predictions of refits to `runs/left_out.csv` of a catalog folder.

    Args:
        rows: Runs and their predictions.
        folder: A catalog folder.
        kept: Predictions of other runs that stay in the file.
    """
    path = folder / "runs" / FILE.name
    written = [
        {**msgspec.structs.asdict(row), "predicted": f"{row.predicted:.10g}"}
        for row in ({**kept} | left_out_rows(rows) if kept else left_out_rows(rows)).values()
    ]
    text = csv_text(written, LeftOutRow.__struct_fields__)
    return write_atomically(path, text, make_folder=True)


def read_left_out(path: Path | None = None) -> dict[str, LeftOutRow]:
    """Return predictions by id: of the user's catalog if it has them, else the shipped ones."""
    own = os.environ.get("SCALEWISE_CATALOG")
    if path is None and own:
        mine = user_path(own) / "runs" / FILE.name
        path = mine if mine.exists() else None
    table = read_csv(path or FILE)
    try:
        rows = [msgspec.convert(row, LeftOutRow, strict=False) for _, row in table.rows]
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path or FILE} is not a table of predictions: {error}",
            hint="`scalewise calibrate` writes it",
        ) from error
    return {row.id: row for row in rows}
