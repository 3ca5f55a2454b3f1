"""How do scaling curves go on to other tools? One row per point, as CSV or Parquet.

    curves_csv(curves)                # text; missing sizes have a row with their reason
    curves_parquet(curves)            # bytes; needs polars, the extra `data`

SI units, shares from 0 to 1; the columns are the fields of `Point` with what names the curve.
"""

from __future__ import annotations

import csv
import io
from typing import Any

from scalewise.errors import require
from scalewise.explore.points import Curves

_TEXT = ("model", "cluster", "label", "strategy", "stack", "precision", "cause", "infeasible")
_WHOLE = ("sequence", "accelerators", "global_batch", "micro_steps", "examined", "previous")

COLUMNS = (
    "model", "cluster", "sequence", "label", "stack", "precision", "accelerators", "strategy",
    "global_batch", "micro_steps", "step_seconds", "tokens_per_second",
    "tokens_per_second_per_accelerator", "low", "high", "mfu", "exposed_share",
    "contention_share", "memory_bytes", "watts_per_accelerator",
    "facility_watts_per_accelerator", "tokens_per_joule", "usd_per_million_tokens", "days",
    "gather_seconds", "gather_latency", "examined", "previous", "marginal_tokens_per_second",
    "marginal_tokens_per_joule", "marginal_usd_per_million_tokens", "cause", "cause_share",
    "loss", "infeasible",
)  # fmt: skip
"""In order; `infeasible` is the reason where a size has no point or cannot run."""


def rows(curves: Curves) -> list[dict[str, Any]]:
    """One row per point and per missing size, by curve and then by size; None where unknown."""
    told: list[dict[str, Any]] = []
    for curve in curves.curves:
        head = dict.fromkeys(COLUMNS) | {
            name: getattr(curve, name)
            for name in ("model", "cluster", "sequence", "label", "stack", "precision")
        }
        mine: list[dict[str, Any]] = [
            head | {"accelerators": gap.accelerators, "infeasible": gap.reason}
            for gap in curve.missing
        ]
        for point in curve.points:
            row = {name: getattr(point, name) for name in COLUMNS if hasattr(point, name)}
            cause = point.cause
            row["cause"] = None
            if cause is not None:
                row |= {"cause": cause.name, "cause_share": cause.share, "loss": cause.loss}
            mine.append(head | row)
        told += sorted(mine, key=lambda row: int(row["accelerators"]))
    return told


def curves_csv(curves: Curves) -> str:
    """Write the rows as CSV; what is not known is empty."""
    page = io.StringIO()
    writer = csv.DictWriter(page, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows(curves))
    return page.getvalue()


def curves_frame(curves: Curves) -> Any:
    """The rows as a polars frame with a type for every column, also for empty ones."""
    polars: Any = require("polars", "data")
    kinds = dict.fromkeys(_TEXT, polars.String) | dict.fromkeys(_WHOLE, polars.Int64)
    return polars.DataFrame(
        rows(curves), schema={name: kinds.get(name, polars.Float64) for name in COLUMNS}
    )


def curves_parquet(curves: Curves) -> bytes:
    """The rows as a Parquet file."""
    page = io.BytesIO()
    curves_frame(curves).write_parquet(page)
    return page.getvalue()
