"""Zero-bubble schedules: backward in halves, and what is left of the bubble, by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from scalewise.step.data_parallel import block_traffic
from scalewise.step.pipeline import Wave
from scalewise.step.zero_bubble import bubble_seconds, halves, passes
from toys import case_of, one, toy_model


def layer_of(forward, inputs, weights, host=0.0):
    """Passes of a layer that are as long as this, seconds."""
    return SimpleNamespace(
        forward=np.array([forward]),
        device_backward=np.array([inputs + weights]),
        host_backward=np.array([host]),
        layer=SimpleNamespace(weights=np.array([weights])),
    )


def test_halves_are_kernels_or_launches():
    inputs, weights = passes(layer_of(1.0, 2.0, 1.0))
    assert (one(inputs), one(weights)) == (pytest.approx(2.0), pytest.approx(1.0))
    # A host of 30 s: a third of its launches are for weights.
    inputs, weights = passes(layer_of(1.0, 2.0, 1.0, host=30.0))
    assert (one(inputs), one(weights)) == (pytest.approx(20.0, 0.01), pytest.approx(10.0, 0.01))


def beside(spelling, gather, reduce):
    case = case_of(spelling, model=toy_model(layers=16))
    gathers, reduces = np.array([gather]), np.array([reduce])
    traffic = replace(block_traffic(case), gather=gathers, again=gathers, reduce=reduces)
    return halves(case, layer_of(3.0, 4.0, 2.0), traffic)


def test_gathers_hide_behind_inputs_and_reductions_behind_weights():
    # Contention 0.5: 4 + 0.5 x 1 beside a gather; 2 + 0.5 x 2 = 3 s beside a reduction of 5.
    half = beside("fsdp2-pp4-zbh1", 1.0, 5.0)
    assert one(half.inputs) == pytest.approx(4.5)
    assert one(half.weights) == pytest.approx(5.0)
    assert one(half.exposed) == pytest.approx(2.0)
    assert one(half.reduce_share) == 1.0
    # A gather that is too long is exposed too.
    half = beside("fsdp2-pp4-zbh1", 7.0, 5.0)
    assert one(half.inputs) == pytest.approx(7.0)
    assert one(half.exposed) == pytest.approx(3.0)
    assert one(half.reduce_share) == pytest.approx(2.0 / 3.0)


def test_without_gathers_reductions_hide_behind_all_passes():
    # 5 s behind 3 + 4 + 2 s.
    half = beside("zero2x2-pp4-zbh1", 0.0, 5.0)
    assert one(half.exposed) == 0.0
    assert one(half.block) == pytest.approx(4.0 + 2.0 + 0.5 * 5.0)


def bubble(spelling, forward, inputs, weights, head=0.0):
    """Four equal stages; the head is on the slowest, in the proportion of a forward to two."""
    case = case_of(spelling, model=toy_model(layers=16))
    wave = Wave(
        forward=np.array([4 * forward + head / 3]),
        backward=np.array([4 * inputs + 2 * head / 3]),
        own_forward=np.array([forward + head / 3]),
        own_backward=np.array([inputs + 2 * head / 3]),
        weights=np.array([weights]),
        head=np.array([head]),
        ahead=np.array([head]),
    )
    return one(bubble_seconds(case, wave, np.array([forward + inputs + weights + head])))


@pytest.mark.parametrize(
    ("spelling", "passes", "expected"),
    [
        # (forward, gradients of inputs, of weights); 3 hops, 8 micro steps.
        ("fsdp2-pp4-zbh1", (1.0, 3.0, 1.0), 9.0),  # 3 (1 + 3) - 3 x 1
        ("fsdp2-pp4-zbh1", (2.0, 1.0, 3.0), 6.0),  # never below 3 forward passes,
        ("fsdp2-pp4-zbh1", (1.0, 2.0, 3.0), 6.0),  # nor below 3 of gradients of inputs
        # Two micro batches for four stages: two more forward passes find nothing to fill them.
        ("fsdp2-pp4-zbh1-mb4", (1.0, 2.0, 3.0), 6.0 + 2.0),
        ("fsdp2-pp4-zbv", (2.0, 1.0, 1.0), 3.0),  # half a forward per hop
        ("fsdp2-pp4-zbv", (1.0, 3.0, 1.0), 6.0),  # inputs wait for what weights do not fill
        # Two micro batches: down and up twice 4 (1 + 3), half of W, and one pass of 3 s behind.
        ("fsdp2-pp4-zbv-mb4", (1.0, 3.0, 1.0), 16.0 + 0.5 + 3.0 - 2 * 5.0),
    ],
)
def test_what_weights_cannot_fill_is_left(spelling, passes, expected):
    assert bubble(spelling, *passes) == pytest.approx(expected)


def test_a_head_that_sets_the_pace_leaves_no_gap_in_a_v():
    # 8 micro batches of a head of 0.1 s take 0.8 s of the 3 s that the others are held up.
    assert bubble("fsdp2-pp4-zbv", 2.0, 1.0, 1.0, head=0.1) == pytest.approx(3.0 - 0.8)
    assert bubble("fsdp2-pp4-zbv", 2.0, 1.0, 1.0, head=1.0) == 0.0
