"""Feasibility of strategies: rules, and reasons of those that cannot run.

    codes = feasibility(case, memory_low)      # 0 fits, else a place in REASONS

Infeasible is an answer: each strategy gets at most one reason, the first that applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Array, some
from scalewise.step.case import Case

if TYPE_CHECKING:
    from scalewise.numeric import Num

REASONS = (
    "fits",
    "mesh: the degrees do not multiply to the GPUs",
    "batch: micro-batch x data-parallel ranks does not divide the global batch",
    "heads: tp does not divide the attention heads",
    "sequence: cp does not divide the sequence",
    "stages: the layers cannot be split into these pipeline stages and chunks",
    "experts: expert parallelism, but the model is dense",
    "memory: the worst rank does not fit",
)

OUT_OF_MEMORY = len(REASONS) - 1
"""Code of strategies that only memory forbids."""


def feasibility(case: Case, memory_low: Num) -> Array:
    """Return for each step its place in `REASONS`.

    Args:
        case: The steps.
        memory_low: Low end of the predicted peak memory, bytes: only what certainly does not fit
            is refused; a configuration known to have run must not be.
    """
    split, shape = case.split, case.shape
    ranks = split.dp_replicate * split.dp_shard
    wrong = (
        ranks * split.tp * split.cp * split.pp != split.gpus,
        np.remainder(split.global_batch, ranks * split.micro_batch) != 0.0,
        np.remainder(shape.heads, split.tp) != 0.0,
        np.remainder(shape.seq_len, split.cp) != 0.0,
        # Embedding and head may take the place of a layer each (Megatron: 126 + 2 on 128 chunks).
        (split.pp * split.chunks > shape.layers + 2.0)
        | ~split.stages_fit
        # ZB-V gives every stage two chunks, whatever `v` is.
        | (split.zb_v & (2.0 * split.pp > shape.layers)),
        ~split.experts_fit,
        np.asarray(memory_low) > case.rates.memory_bytes,
    )
    codes = np.where(wrong[-1], float(len(wrong)), 0.0)
    for code in range(len(wrong) - 1, 0, -1):
        if some(wrong[code - 1]):
            codes = np.where(wrong[code - 1], float(code), codes)
    return codes
