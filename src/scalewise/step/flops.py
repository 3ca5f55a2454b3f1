"""Useful and repeated FLOPs of a step, for MFU and HFU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Array, some
from scalewise.step.case import Case

if TYPE_CHECKING:
    from scalewise.model import Model


def recompute_flops(case: Case, model: Model, seq_len: int) -> Array:
    """Return FLOPs per token that backward repeats of forward.

    Full recompute repeats a layer's forward, without its last product where the stack stops
    early; selective repeats attention, and the fraction of GEMMs that the stack's policy drops.
    """
    split, habits = case.split, case.habits
    if not some(split.recompute):
        return case.zeros
    parts = model.forward_flops_parts(seq_len)
    products = parts["qkv"] + parts["attention_out"] + parts["mlp"]
    down = 2.0 * model.hidden * model.ffn * model.layers
    full = products - habits.recompute_skips_last * down + parts["attention"]
    selective = habits.selective_share * products + parts["attention"]
    return np.where(split.recomputes_all, full, np.where(split.recomputes_some, selective, 0.0))
