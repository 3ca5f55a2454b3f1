"""Useful and repeated FLOPs of a step, for MFU and HFU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Array, some
from scalewise.step.case import Case
from scalewise.step.recompute import repeated

if TYPE_CHECKING:
    from scalewise.model import Model


def recompute_flops(case: Case, model: Model, seq_len: int) -> Array:
    """Return FLOPs per token that backward repeats of forward.

    Whole blocks are repeated without their last product where the stack stops early; the other
    kinds repeat attention or fractions of the products, as `step.recompute` says.
    """
    if not some(case.split.recompute):
        return case.zeros
    again = repeated(case)
    parts = model.forward_flops_parts(seq_len)
    products = parts["qkv"] + parts["attention_out"] + parts["mlp"]
    down = 2.0 * model.hidden * model.ffn * model.layers
    skipped = again.blocks * case.habits.recompute_skips_last * down
    return np.asarray(again.gemm * products - skipped + again.attention * parts["attention"])
