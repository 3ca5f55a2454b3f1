"""What tensor parallelism adds to a layer: collectives on the critical path.

With sequence parallelism a layer gathers before and scatters after attention and MLP: 4
collectives forward, 4 backward, and 2 more gathers in backward for the weight gradients, because
the gathered inputs are not kept. Without it: 2 all-reduces forward and 2 backward.
"""

from __future__ import annotations

import numpy as np

from scalewise.numeric import Num
from scalewise.physics.collectives import all_reduce_seconds, gather_seconds
from scalewise.step.case import Case
from scalewise.step.groups import links, tensor_group
from scalewise.step.layers import tokens_per_rank


def layer_seconds(case: Case) -> tuple[Num, Num]:
    """Return communication of one layer, forward and backward, seconds (hidden or not)."""
    if not (case.tp > 1.0).any():
        none = np.zeros_like(case.layers)
        return none, none
    buffer = 2.0 * tokens_per_rank(case) * case.hidden
    group, wires = tensor_group(case), links(case)
    split = case.sequence_parallel > 0.0
    none = np.zeros_like(buffer)
    gather = gather_seconds(buffer, group, wires) if split.any() else none
    scatter = gather
    if split.any() and (case.scatter_factor != 1.0).any():
        scatter = gather_seconds(case.scatter_factor * buffer, group, wires)
    reduce: Num = none
    if not split.all():
        reduce = all_reduce_seconds(case.all_reduce_factor * buffer, group, wires)
    both = 2.0 * gather + 2.0 * scatter
    forward = np.where(split, both, 2.0 * reduce)
    again = np.where(case.gathers_kept > 0.0, 0.0, 2.0 * gather)
    backward = np.where(split, both + again, 2.0 * reduce)
    repeated = np.where(case.recompute == 2.0, forward, 0.0)
    return forward, backward + repeated


def exposed_seconds(seconds: Num, share: Num, compute: Num) -> Num:
    """What of a layer's communication stays on the path.

    The share that the stack cannot hide; all of it that finds no compute to hide behind.

    Args:
        seconds: Communication of a layer, hidden or not.
        share: Share of it that stays on the path whatever runs beside it.
        compute: Kernels of the layer, seconds.
    """
    result: Num = np.maximum(share * seconds, seconds - compute)
    return result


def exposed_share(case: Case) -> Num:
    """Share of it that stays on the critical path."""
    result: Num = np.where(case.overlap_tp > 0.0, 1.0 - case.tp_overlap, 1.0)
    return result
