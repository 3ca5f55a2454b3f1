"""Schedules: bubbles by hand."""

from dataclasses import replace

import numpy as np
import pytest

from scalewise.step.schedule import MicrobatchLatency, bubble_seconds, passes_left
from toys import case_of, one, toy_model


def latency_of(forward=2.5 / 3, backward=5.0 / 3, wgrad=0.0, head=0.0, lead=0.0):
    """One micro-batch on four stages, each of which takes as long as this, seconds."""
    return MicrobatchLatency(
        forward=np.array([4 * forward]),
        backward=np.array([4 * backward]),
        own_forward=np.array([forward]),
        own_backward=np.array([backward]),
        wgrad=np.array([wgrad]),
        head=np.array([head]),
        lead=np.array([lead]),
    )


def bubble_of(case):
    """The bubble where a micro-batch takes 2.5 s on each stage, a third of it for wgrad."""
    third = 2.5 / 3
    split = bool(case.split.zero_bubble[0])
    latency = latency_of(third, third, third) if split else latency_of()
    return bubble_seconds(case, latency, np.array([2.5]))


@pytest.mark.parametrize(
    ("spelling", "bubble"),
    [
        ("fsdp2-pp4", 7.5),
        ("fsdp2-pp4-gpipe", 7.5),
        ("fsdp2-pp4-v2", 3.75),
        ("fsdp2-pp4-v4-1f1b", 1.875),
        # Equal passes: what ZB-H1 keeps is a third (arXiv 2401.10241, table 2).
        ("fsdp2-pp4-zbh1", 2.5),
        # Two chunks of half the length: half a pass per hop.
        ("fsdp2-pp4-zbv", 1.25),
        ("fsdp2-pp4-v2-zbv", 1.25),
        ("fsdp8", 0.0),
        # One micro-batch on four stages: each of two chunks waits for three that are not there.
        ("fsdp2-pp4-v2-mb8", 3.75 + 0.5 * 0.75 * 10.0),
        # Nothing to fill the cool-down with but the wgrads of the only micro-batch.
        ("fsdp2-pp4-zbh1-mb8", 5.0),
        ("fsdp2-pp4-zbv-mb8", 5.0 - 2.5 / 6),
    ],
)
def test_bubble_is_the_time_of_the_other_stages(spelling, bubble):
    # One micro-batch takes 10 s through all stages, 2.5 s on this one.
    case = case_of(spelling, model=toy_model(layers=16))
    assert one(bubble_of(case)) == pytest.approx(bubble)


def test_bubble_fraction_of_equal_stages_is_the_textbook_one():
    # (pp - 1) / micro-batches of the busy time, over the chunks.
    case = case_of("fsdp2-pp4-v2", model=toy_model(layers=16))
    busy = one(case.split.num_microbatches) * 2.5
    bubble = one(bubble_of(case))
    assert bubble / busy == pytest.approx((4 - 1) / 8 / 2)


def zero_bubble(spelling, forward, dgrad, wgrad, head=0.0):
    """Four equal stages; the head is on the slowest, in the proportion of a forward to two."""
    case = case_of(spelling, model=toy_model(layers=16))
    latency = MicrobatchLatency(
        forward=np.array([4 * forward + head / 3]),
        backward=np.array([4 * dgrad + 2 * head / 3]),
        own_forward=np.array([forward + head / 3]),
        own_backward=np.array([dgrad + 2 * head / 3]),
        wgrad=np.array([wgrad]),
        head=np.array([head]),
        lead=np.array([head]),
    )
    return one(bubble_seconds(case, latency, np.array([forward + dgrad + wgrad + head])))


@pytest.mark.parametrize(
    ("spelling", "passes", "expected"),
    [
        # (forward, dgrad, wgrad); 3 hops, 8 micro-batches.
        ("fsdp2-pp4-zbh1", (1.0, 3.0, 1.0), 9.0),  # 3 (1 + 3) - 3 x 1
        ("fsdp2-pp4-zbh1", (2.0, 1.0, 3.0), 6.0),  # never below 3 forward passes,
        ("fsdp2-pp4-zbh1", (1.0, 2.0, 3.0), 6.0),  # nor below 3 dgrads
        # Two micro-batches for four stages: two more forward passes find nothing to fill them.
        ("fsdp2-pp4-zbh1-mb4", (1.0, 2.0, 3.0), 6.0 + 2.0),
        ("fsdp2-pp4-zbv", (2.0, 1.0, 1.0), 3.0),  # half a forward per hop
        ("fsdp2-pp4-zbv", (1.0, 3.0, 1.0), 6.0),  # dgrads wait for what wgrads do not fill
        # Two micro-batches: down and up twice 4 (1 + 3), half of W, and one pass of 3 s behind.
        ("fsdp2-pp4-zbv-mb4", (1.0, 3.0, 1.0), 16.0 + 0.5 + 3.0 - 2 * 5.0),
    ],
)
def test_what_wgrads_cannot_fill_is_left(spelling, passes, expected):
    assert zero_bubble(spelling, *passes) == pytest.approx(expected)


def test_a_head_that_sets_the_pace_leaves_no_gap_in_a_v():
    # 8 micro-batches of a head of 0.1 s take 0.8 s of the 3 s that the others are held up.
    assert zero_bubble("fsdp2-pp4-zbv", 2.0, 1.0, 1.0, head=0.1) == pytest.approx(3.0 - 0.8)
    assert zero_bubble("fsdp2-pp4-zbv", 2.0, 1.0, 1.0, head=1.0) == 0.0


@pytest.mark.parametrize(
    ("spelling", "passes"),
    [
        ("fsdp2-pp4", 1.0),
        ("fsdp8", 1.0),
        ("fsdp2-pp4-v2", 2.5),  # half of the stage, three micro-batches more
        ("fsdp2-pp4-v4", 3.25),
        ("fsdp2-pp4-v2-mb8", 1.0),  # one micro-batch
    ],
)
def test_interleaved_chunks_leave_more_to_overlap_with(spelling, passes):
    case = case_of(spelling, model=toy_model(layers=16))
    assert one(np.asarray(passes_left(case))) == pytest.approx(passes)


def test_reductions_done_once_leave_interleaved_chunks_one_after_the_other():
    # A quarter of the bubble of one chunk, and three quarters of what reductions add elsewhere.
    case = case_of("fsdp2-pp4-v4-1f1b")
    slow = replace(latency_of(), once=np.array([4.0]))
    assert one(bubble_seconds(case, slow, np.array([2.5]))) == pytest.approx(1.875 + 3.0)
