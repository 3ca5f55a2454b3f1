"""How does a trace go on to other tools? One row per rank, step, collective, group and size.

    trace_csv(summary)                # text
    trace_parquet(summary)            # bytes; needs polars, the extra `data`

Seconds, bytes and percent; `scope` says what a row is about, and what does not apply is empty.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from scalewise.errors import require
from scalewise.trace.summary import Communication, Times, TraceSummary

COLUMNS = (
    "scope", "rank", "device", "file", "step", "counted", "name", "group_size", "calls", "bytes",
    "smallest_bytes", "largest_bytes", *Times.__struct_fields__,
)  # fmt: skip
"""In order; `scope` is "all", "step", "collective", "group" or "size", for the mean of all ranks
where `rank` and `file` are empty, and for one rank where they are not; "rank" is a whole rank."""

_TEXT = ("scope", "device", "file", "name")
_WHOLE = ("rank", "step", "group_size", "smallest_bytes", "largest_bytes")


def rows(summary: TraceSummary) -> list[dict[str, Any]]:
    """Everything as rows: the mean over ranks first, then rank by rank."""
    told = [_row("all", summary), *_inside(summary, {})]
    for rank in summary.ranks:
        named = {"rank": rank.rank, "device": rank.device, "file": rank.file}
        told += [_row("rank", rank) | named, *_inside(rank, named)]
    return told


def _inside(whole: Any, named: dict[str, Any]) -> list[dict[str, Any]]:
    """The steps and calls of all ranks or of one."""
    told = [_row("step", step) for step in whole.steps]
    for scope in ("collective", "group", "size"):
        told += [_row(scope, row) for row in getattr(whole, scope + "s")]
    return [row | named for row in told]


def _row(scope: str, part: Times | Communication) -> dict[str, Any]:
    known = {name: getattr(part, name) for name in COLUMNS if hasattr(part, name)}
    return dict.fromkeys(COLUMNS) | known | {"scope": scope}


def trace_csv(summary: TraceSummary) -> str:
    """Write the rows as CSV; what is not known is empty."""
    page = io.StringIO()
    writer = csv.DictWriter(page, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(summary))
    return page.getvalue()


def trace_parquet(summary: TraceSummary) -> bytes:
    """The rows as a Parquet file, with a type for every column, also for empty ones."""
    polars: Any = require("polars", "data")
    kinds = dict.fromkeys(_TEXT, polars.String) | dict.fromkeys(_WHOLE, polars.Int64)
    kinds["counted"] = polars.Boolean
    schema = {name: kinds.get(name, polars.Float64) for name in COLUMNS}
    page = io.BytesIO()
    polars.DataFrame(rows(summary), schema=schema).write_parquet(page)
    return page.getvalue()
