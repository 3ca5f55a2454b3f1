"""Which strategies cannot run, and why.

    codes = feasibility(case, memory_low)      # 0 fits, else a place in REASONS

Infeasible is an answer: each strategy gets at most one reason, the first that applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Array
from scalewise.step.case import Case

if TYPE_CHECKING:
    from scalewise.numeric import Num

REASONS = (
    "fits",
    "mesh: the degrees do not multiply to the accelerators",
    "batch: micro batch x data-parallel ranks does not divide the global batch",
    "heads: tp does not divide the attention heads",
    "sequence: cp does not divide the sequence",
    "stages: the layers cannot be split into these pipeline stages and chunks",
    "experts: expert parallelism, but the model is dense",
    "software: the strategy is eager or compiled, the stack is not",
    "memory: the fullest rank does not fit",
)


def feasibility(case: Case, memory_low: Num) -> Array:
    """Return for each step its place in `REASONS`.

    Args:
        case: The steps.
        memory_low: Low end of the predicted peak memory, bytes: only what certainly does not fit
            is refused; a configuration known to have run must not be.
    """
    ranks = case.dp_replicate * case.dp_shard
    wrong = (
        ranks * case.tp * case.cp * case.pp != case.accelerators,
        np.remainder(case.global_batch, ranks * case.micro_batch) != 0.0,
        np.remainder(case.heads, case.tp) != 0.0,
        np.remainder(case.sequence, case.cp) != 0.0,
        # Embedding and head may take the place of a layer each (Megatron: 126 + 2 on 128 chunks).
        (case.pp * case.chunks > case.layers + 2.0)
        | (case.stages_fit == 0.0)
        # ZB-V gives every stage two chunks, whatever is asked.
        | ((case.schedule == 3.0) & (case.pp > 1.0) & (2.0 * case.pp > case.layers)),
        case.experts_fit == 0.0,
        case.software_fits == 0.0,
        np.asarray(memory_low) > case.memory_bytes,
    )
    codes = np.where(wrong[-1], float(len(wrong)), 0.0)
    for code in range(len(wrong) - 1, 0, -1):
        # Looking costs as much as writing a few rows.
        if codes.size < 64 or wrong[code - 1].any():
            codes = np.where(wrong[code - 1], float(code), codes)
    return codes
