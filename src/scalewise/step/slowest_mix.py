"""Whether dense first layers make the first stage of a pipeline the slowest one.

    case.first_slowest, case.slowest_sparse        # where the layers are priced with its mix

Dense layers come first (DeepSeek), so the first stage has another mix than the others. A dense MLP
can take longer than experts: where it has more FLOPs, or alone is recomputed or tensor parallel.
"""

from __future__ import annotations

from scalewise.numeric import Mask, Num, mask, maximum, some, squeeze_constant_axes, where
from scalewise.step import data_parallel
from scalewise.step.block import layer_block
from scalewise.step.case import Case
from scalewise.step.layer import Layer, layer_times
from scalewise.step.stage import slowest_stage


def first_is_slowest(case: Case) -> Mask:
    """Return whether the first stage with its own mix is slower than every other with theirs.

    ZB-V has both ends of the model on one stage, which is taken as a middle one.
    """
    split = case.split
    differs = mask(split.pipelined & ~split.zb_v & (split.first_sparse != split.middle_sparse))
    if not some(differs):
        return differs
    mix, none = split.first_sparse, 0.0 * split.first_layers
    first = case.changed(middle_sparse=mix, middle_layers=split.first_layers, last_layers=none)
    # Of two stages, none is between.
    between = where(split.pp > 2.0, split.middle_layers, split.last_layers)
    others = case.changed(
        first_sparse=split.middle_sparse, first_layers=none, middle_layers=between
    )
    dense, mixed = layer_times(first), layer_times(others)
    longer = (
        split.first_layers * dense.seconds > maximum(between, split.last_layers) * mixed.seconds
    )
    differs = squeeze_constant_axes(mask(differs & longer))
    if not some(differs):
        # Layers without experts have fewer parameters to all-gather and gradients to reduce.
        return differs
    slower = _seconds(first, dense, case.zeros) > _seconds(others, mixed, mixed.kernels.head)
    return squeeze_constant_axes(mask(differs & slower))


def _seconds(case: Case, layer: Layer, head: Num) -> Num:
    """One micro-batch on the slowest of stages of one mix, seconds."""
    traffic = data_parallel.layer_traffic(case)
    return slowest_stage(case, layer_block(case, layer, traffic), traffic, head).seconds
