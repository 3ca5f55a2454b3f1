"""How does a search go on to other tools? One row per strategy, as CSV or Parquet.

    ranking_csv(found)                # text: the ranking, then what is only on the front
    ranking_parquet(found)            # bytes; needs polars, the extra `data`

SI units, shares from 0 to 1; `low` and `high` bound 80 % of tokens/s per accelerator. Seconds by
term add up to `step_seconds`, bytes by part to `memory_bytes`.
"""

from __future__ import annotations

import csv
import io
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from scalewise.errors import require
from scalewise.report.ranking_style import is_tie
from scalewise.step.memory import MemoryParts
from scalewise.step.terms import TERM_NAMES
from scalewise.strategies import FIELDS, WORDS

if TYPE_CHECKING:
    from scalewise.explore.search import Search
    from scalewise.step.result import Estimate

_ASKED = (
    "model", "cluster", "accelerators", "stack", "sequence", "global_batch", "precision",
)  # fmt: skip
_DEGREES = tuple(name for name in FIELDS if name != "precision")
_PARTS = tuple(field.name for field in fields(MemoryParts))
_NUMBERS = (
    "step_seconds", "tokens_per_second", "tokens_per_second_per_accelerator", "low", "high", "mfu",
    "hfu", "exposed_share", "memory_bytes", "memory_capacity", "watts_per_accelerator",
    "joules_per_token", "usd_per_million_tokens",
)  # fmt: skip

COLUMNS = (
    "rank", "tie", "front", "strategy", *_ASKED, *_DEGREES, "micro_steps", *_NUMBERS,
    *(f"{name}_seconds" for name in TERM_NAMES), *(f"{name}_bytes" for name in _PARTS),
)  # fmt: skip
"""In order. `rank` is empty for what is on the front only, `tie` says that no model can tell it
from the best, `front` that no other strategy beats it in all of the objectives asked for."""

_SWITCHES = (
    "tie", "front", "reshard", "sequence_parallel", "compiled", "overlap_dp", "overlap_tp",
    "overlap_pp",
)  # fmt: skip
_TEXT = (
    "strategy", "model", "cluster", "stack", "precision",
    *(name for name in WORDS if name not in ("precision", "compiled")),
)  # fmt: skip
_REALS = (*_NUMBERS, *(name for name in COLUMNS if name.endswith(("_seconds", "_bytes"))))


def rows(found: Search) -> list[dict[str, Any]]:
    """One row per strategy of the ranking, then those of the front that are not in it."""
    ranked = [e.strategy for e in found.strategies]
    front = {e.strategy for e in found.pareto}
    told = [
        _row(found, e, rank=place + 1, front=e.strategy in front)
        for place, e in enumerate(found.strategies)
    ]
    told += [
        _row(found, e, rank=None, front=True) for e in found.pareto if e.strategy not in ranked
    ]
    return told


def _row(found: Search, e: Estimate, *, rank: int | None, front: bool) -> dict[str, Any]:
    s, work = e.strategy, e.workload
    return {
        "rank": rank,
        "tie": is_tie(found, e),
        "front": front,
        "strategy": str(s),
        "model": e.model.name,
        "cluster": e.cluster.name,
        "accelerators": e.cluster.accelerators,
        "stack": e.stack.name,
        "sequence": work.sequence,
        "global_batch": work.global_batch,
        "precision": s.precision or work.precision,
        **{name: getattr(s, name) for name in _DEGREES},
        "micro_steps": e.micro_steps,
        **{name: getattr(e, name) for name in _NUMBERS},
        **{f"{name}_seconds": e.terms[name] for name in TERM_NAMES},
        **{f"{name}_bytes": e.memory[name] for name in _PARTS},
    }


def ranking_csv(found: Search) -> str:
    """Write the rows as CSV; what is not known is empty, switches are true or false."""
    page = io.StringIO()
    writer = csv.DictWriter(page, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for row in rows(found):
        writer.writerow({name: _spelled(value) for name, value in row.items()})
    return page.getvalue()


def _spelled(value: Any) -> Any:
    """Booleans as most tools read them."""
    return str(value).lower() if isinstance(value, bool) else value


def ranking_frame(found: Search) -> Any:
    """The rows as a polars frame with a type for every column, also for empty ones."""
    polars: Any = require("polars", "data")
    kinds = (
        dict.fromkeys(_TEXT, polars.String)
        | dict.fromkeys(_SWITCHES, polars.Boolean)
        | dict.fromkeys(_REALS, polars.Float64)
    )
    return polars.DataFrame(
        rows(found), schema={name: kinds.get(name, polars.Int64) for name in COLUMNS}
    )


def ranking_parquet(found: Search) -> bytes:
    """The rows as a Parquet file."""
    page = io.BytesIO()
    ranking_frame(found).write_parquet(page)
    return page.getvalue()
