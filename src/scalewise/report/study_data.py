"""How are the points of a study written down? One flat table: CSV, Parquet.

    study_csv(rows)                   # text
    study_parquet(rows)               # bytes; needs polars, the extra `data`

Columns are all axes and all metrics in SI, the same for every study, so that tables of several
studies can be laid under each other.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

from scalewise.errors import require
from scalewise.study.measures import AXES, METRICS
from scalewise.study.rows import Row

COLUMNS = (
    "experiment", *AXES, "strategy_with_sizes", *METRICS, "low", "high", "infeasible", "note",
)  # fmt: skip
"""Of every table."""


def study_records(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as flat records with all columns; None where there is nothing."""
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


def study_csv(rows: Sequence[Row]) -> str:
    """The table as CSV; empty cells where there is nothing."""
    page = io.StringIO()
    writer = csv.DictWriter(page, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(study_records(rows))
    return page.getvalue()


def study_parquet(rows: Sequence[Row]) -> bytes:
    """The table as Parquet."""
    polars: Any = require("polars", "data")
    whole = ("sequence", "tp", "pp", "cp", "accelerators", "nodes", "message_bytes")
    numbers = (*METRICS, "low", "high")
    schema = {
        name: polars.Int64
        if name in whole
        else polars.Float64
        if name in numbers
        else polars.String
        for name in COLUMNS
    }
    page = io.BytesIO()
    polars.DataFrame(study_records(rows), schema=schema).write_parquet(page)
    return page.getvalue()
