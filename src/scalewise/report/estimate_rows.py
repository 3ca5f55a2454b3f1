"""One estimate as one flat row: question, degrees, numbers, seconds by term, bytes by memory part.

    estimate_row(e)["step_seconds"], estimate_row(e)["gemm_seconds"]

Seconds by term add up to `step_seconds`, bytes by part to `memory_bytes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from scalewise.strategies import FIELDS, WORDS
from scalewise.strategy import Strategy
from scalewise.terms import MEMORY_PARTS, TERMS

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

_ASKED: dict[str, type] = {
    "model": str, "cluster": str, "accelerators": int, "stack": str, "seq_len": int,
    "global_batch": int, "precision": str,
}  # fmt: skip
_DEGREES: dict[str, type] = {
    name: str if name in WORDS else type(default) if default is not None else int
    for name, default in ((name, getattr(Strategy(), name)) for name in FIELDS)
    if name != "precision"
} | {"compiled": bool}
_NUMBERS = (
    "step_seconds", "tokens_per_second", "tokens_per_second_per_accelerator", "low", "high", "mfu",
    "hfu", "exposed_fraction", "memory_bytes", "memory_capacity", "host_memory_bytes",
    "watts_per_accelerator",
    "joules_per_token", "usd_per_million_tokens", "fit",
)  # fmt: skip
COLUMNS: dict[str, type] = {
    "strategy": str, **_ASKED, **_DEGREES, "num_microbatches": int,
    **dict.fromkeys(_NUMBERS, float),
    **{f"{name}_seconds": float for name in TERMS},
    **{f"{name}_bytes": float for name in MEMORY_PARTS},
}  # fmt: skip
"""Types by column."""


def estimate_row(e: Estimate) -> dict[str, Any]:
    """Return an estimate as a row of `COLUMNS`."""
    s, work = e.strategy, e.workload
    return {
        "strategy": str(s),
        "model": e.model.name,
        "cluster": e.cluster.name,
        "accelerators": e.cluster.accelerators,
        "stack": e.stack.name,
        "seq_len": work.seq_len,
        "global_batch": work.global_batch,
        "precision": s.precision or work.precision,
        **{name: getattr(s, name) for name in _DEGREES},
        "num_microbatches": e.num_microbatches,
        **{name: getattr(e, name) for name in _NUMBERS},
        **{f"{name}_seconds": e.terms[name] for name in TERMS},
        **{f"{name}_bytes": e.memory[name] for name in MEMORY_PARTS},
    }
