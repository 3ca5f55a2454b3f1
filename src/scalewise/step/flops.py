"""Useful and repeated FLOPs of a step, for MFU and HFU."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Array
from scalewise.step.case import Case

if TYPE_CHECKING:
    from scalewise.model import Model


def recompute_flops(case: Case, model: Model, sequence: int) -> Array:
    """Return FLOPs per token that backward repeats of forward.

    Full recompute repeats a layer's forward, without its last product where the stack stops
    early; selective repeats attention, and the share of products that the stack's policy drops.
    """
    if not case.recompute.any():
        return np.zeros_like(case.layers)
    parts = model.forward_flops_parts(sequence)
    products = parts["qkv"] + parts["attention_out"] + parts["mlp"]
    down = 2.0 * model.hidden * model.ffn * model.layers
    full = products - case.recompute_skips_last * down + parts["attention"]
    selective = case.selective_share * products + parts["attention"]
    return np.where(case.recompute == 2.0, full, np.where(case.recompute == 1.0, selective, 0.0))
