"""What context parallelism adds to a layer: keys and values that travel under attention.

Ring: cp - 1 sends of the local keys and values, each hidden behind one block of attention;
backward sends their gradients too. All-gather: the whole sequence's keys and values at once,
before attention starts (and a reduce-scatter of their gradients after it).
"""

from __future__ import annotations

import numpy as np

from scalewise.numeric import Num
from scalewise.physics.collectives import gather_seconds, send_seconds
from scalewise.step.case import Case
from scalewise.step.groups import context_group, links
from scalewise.step.layers import LayerCompute, tokens_per_rank


def layer_seconds(case: Case, layer: LayerCompute) -> tuple[Num, Num, Num]:
    """Return (load, exposed forward, exposed backward) of one layer, seconds."""
    if not (case.cp > 1.0).any():
        none = np.zeros_like(case.layers)
        return none, none, none
    local = 2.0 * 2.0 * tokens_per_rank(case) * case.key_value / case.tp
    group, wires = context_group(case), links(case)
    crosses = np.where(group.domains > 1.0, 1.0, 0.0)
    hop = send_seconds(local, wires, crosses)
    hops = case.cp - 1.0
    block_forward = layer.attention_forward / case.cp
    block_backward = layer.attention_backward / case.cp
    ring_forward = hops * np.maximum(hop - block_forward, 0.0)
    ring_backward = hops * np.maximum(2.0 * hop - block_backward, 0.0)
    gather = gather_seconds(local * case.cp, group, wires)
    ring = case.cp_ring > 0.0
    again = np.where(case.recompute > 0.0, 1.0, 0.0)
    load = np.where(ring, hops * hop * (3.0 + again), gather * (3.0 + again))
    forward = np.where(ring, ring_forward, gather)
    backward = np.where(ring, ring_backward + again * ring_forward, gather * (2.0 + again))
    one = case.cp == 1.0
    return np.where(one, 0.0, load), np.where(one, 0.0, forward), np.where(one, 0.0, backward)
