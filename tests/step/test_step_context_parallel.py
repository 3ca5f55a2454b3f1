"""Context parallelism: keys and values under attention, by hand."""

import numpy as np
import pytest

from scalewise.physics.collectives import CALL_SECONDS, all_gather_seconds
from scalewise.step.context_parallel import layer_seconds
from scalewise.step.groups import context_group
from scalewise.step.kernels import layer_kernels
from toys import case_of, one, toy_stack

# Keys and values of 250 tokens: 2 x 2 bytes x 256; a Simple message inside a domain at 100 GB/s.
LOCAL = 2 * 2 * 250 * 256
HOP = CALL_SECONDS + (8.4 + 3.4) * 1e-6 + LOCAL / 100e9


def seconds(spelling, *, attention=None):
    """(all, forward, backward) of one layer; attention of both directions may be replaced."""
    case = case_of(spelling)
    kernels = layer_kernels(case)
    forward, backward = kernels.attention_forward, kernels.attention_backward
    if attention is not None:
        forward = backward = np.array([attention])
    return [one(part) for part in layer_seconds(case, forward, backward)]


def test_ring_with_nothing_to_overlap():
    # Three hops forward, and twice the bytes backward.
    assert seconds("fsdp2-cp4", attention=0.0) == pytest.approx([9 * HOP, 3 * HOP, 6 * HOP])


def test_ring_overlaps_attention():
    everything, forward, backward = seconds("fsdp2-cp4", attention=1.0)
    assert (forward, backward) == (0.0, 0.0)
    assert everything == pytest.approx(9 * HOP)
    # A quarter of the attention is one block: half a hop of it overlaps half.
    _, forward, backward = seconds("fsdp2-cp4", attention=4 * HOP / 2)
    assert forward == pytest.approx(3 * HOP / 2)
    assert backward == pytest.approx(3 * 1.5 * HOP)


def test_recompute_sends_again():
    everything, forward, backward = seconds("fsdp2-cp4-acfull", attention=0.0)
    assert [everything, forward, backward] == pytest.approx([12 * HOP, 3 * HOP, 9 * HOP])
    everything, forward, backward = seconds("fsdp2-cp4-ac1of3", attention=0.0)
    assert [everything, forward, backward] == pytest.approx([10 * HOP, 3 * HOP, 7 * HOP])
    # Every other matmul: attention is kept.
    assert seconds("fsdp2-cp4-acop", attention=0.0) == seconds("fsdp2-cp4", attention=0.0)


def test_all_gather_is_exposed():
    case = case_of("fsdp2-cp4ag")
    gather = one(all_gather_seconds(np.array([4.0 * LOCAL]), context_group(case.split), case.links))
    assert seconds("fsdp2-cp4ag", attention=1.0) == pytest.approx([3 * gather, gather, 2 * gather])


def test_tensor_parallelism_splits_keys_and_values():
    everything, _, _ = seconds("fsdp1-tp2-cp4", attention=0.0)
    message = LOCAL / 2
    # Ranks 2 apart: four of them span two domains of 4, so messages cross the network.
    hop = CALL_SECONDS + (8.4 + 14.0) * 1e-6 + message / 10e9
    assert everything == pytest.approx(9 * hop)


def test_alone_nothing_is_communicated():
    assert seconds("fsdp8") == [0.0, 0.0, 0.0]
    assert seconds("fsdp8-cp1ag-acfull") == [0.0, 0.0, 0.0]


def test_a_ring_without_load_balancing_waits_for_its_last_rank():
    # The last of four ranks attends to all keys: 8 / 5 of the mean. All-gathers split evenly.
    for spelling, factor in (("fsdp2-cp4", 1.6), ("fsdp2-cp4ag", 1.0), ("fsdp8", 1.0)):
        even = layer_kernels(case_of(spelling))
        uneven = layer_kernels(case_of(spelling, stack=toy_stack(balanced_ring=False)))
        ratio = one(uneven.attention_forward) / one(even.attention_forward)
        assert ratio == pytest.approx(factor, rel=1e-12)
