"""Pipelines: bubbles and sends by hand."""

from types import SimpleNamespace

import numpy as np
import pytest

from scalewise.physics.collectives import CALL_SECONDS
from scalewise.step.pipeline import bubble_seconds, kept_share, passes_left, sends
from toys import case_of, one, toy_cluster, toy_model

# A Simple message of NCCL's model inside a domain and between two.
INSIDE = CALL_SECONDS + (8.4 + 3.4) * 1e-6
ACROSS = CALL_SECONDS + (8.4 + 14.0) * 1e-6


def layer_of(forward, inputs, weights):
    """Passes of a layer that are as long as this, seconds."""
    backward = np.array([inputs + weights])
    return SimpleNamespace(
        forward=np.array([forward]),
        backward=backward,
        device_backward=backward,
        layer=SimpleNamespace(weights=np.array([weights])),
    )


def bubble_of(case):
    layer = layer_of(1.0, 1.0, 1.0)
    return bubble_seconds(case, np.array([10.0]), np.array([2.5]), layer)


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
        # One micro batch on four stages: each of two chunks waits for three that are not there.
        ("fsdp2-pp4-v2-mb8", 3.75 + 0.5 * 0.75 * 10.0),
        # Nothing to fill the drain with but the weights of the only micro batch.
        ("fsdp2-pp4-zbh1-mb8", 5.0),
        ("fsdp2-pp4-zbv-mb8", 5.0),
    ],
)
def test_bubble_is_the_time_of_the_other_stages(spelling, bubble):
    # One micro batch takes 10 s through all stages, 2.5 s on this one.
    case = case_of(spelling, model=toy_model(layers=16))
    assert one(bubble_of(case)) == pytest.approx(bubble)


@pytest.mark.parametrize(
    ("spelling", "passes", "share"),
    [
        # (forward, gradients of inputs, of weights); 3 hops, 8 micro steps.
        ("fsdp2-pp4-zbh1", (1.0, 3.0, 1.0), 9 / 15),  # 3 (1 + 3) - 3 x 1 of 3 x 5
        ("fsdp2-pp4-zbh1", (2.0, 1.0, 3.0), 6 / 18),  # never below 3 forward passes
        ("fsdp2-pp4-zbv", (2.0, 1.0, 1.0), 3 / 12),  # half a forward per hop
        ("fsdp2-pp4-zbv", (1.0, 3.0, 1.0), 6 / 15),  # inputs wait for what weights do not fill
    ],
)
def test_zero_bubble_schedules_keep_what_weights_cannot_fill(spelling, passes, share):
    case = case_of(spelling, model=toy_model(layers=16))
    assert one(kept_share(case, layer_of(*passes))) == pytest.approx(share)


def test_bubble_share_of_equal_stages_is_the_textbook_one():
    # (pp - 1) / micro steps of the busy time, over the chunks.
    case = case_of("fsdp2-pp4-v2", model=toy_model(layers=16))
    busy = one(case.micro_steps) * 2.5
    bubble = one(bubble_of(case))
    assert bubble / busy == pytest.approx((4 - 1) / 8 / 2)


@pytest.mark.parametrize(
    ("spelling", "accelerators", "messages", "one_message"),
    [
        # 8 micro steps x (two neighbours, both directions); 2 x 1000 x 1024 bytes at 10 GB/s
        ("fsdp2-pp4", 8, 8 * 4, INSIDE + 2_048_000 / 100e9),
        ("fsdp4-pp4", 16, 4 * 4, ACROSS + 2_048_000 / 10e9),
        # two stages have one neighbour each
        ("fsdp4-pp2", 8, 4 * 2, ACROSS + 2_048_000 / 10e9),
        # sequence parallelism splits the message
        ("fsdp2-tp2-pp4", 16, 8 * 4, ACROSS + 1_024_000 / 10e9),
        ("fsdp2-tp2-nosp-pp4", 16, 8 * 4, ACROSS + 2_048_000 / 10e9),
        ("fsdp2-cp2-pp4", 16, 8 * 4, ACROSS + 1_024_000 / 10e9),
        ("fsdp4-pp4-mb2", 16, 2 * 4, ACROSS + 4_096_000 / 10e9),
        # every chunk sends
        ("fsdp4-pp4-v2", 16, 4 * 4 * 2, ACROSS + 2_048_000 / 10e9),
    ],
)
def test_sends(spelling, accelerators, messages, one_message):
    case = case_of(spelling, model=toy_model(layers=16), cluster=toy_cluster(accelerators))
    load, exposed, waiting = sends(case)
    assert one(load) == pytest.approx(messages * one_message, rel=1e-9)
    if one(case.chunks) == 1.0:
        assert one(exposed) == one(load)
        # The first micro batch passes every stage down and up once, this one among them.
        others = 2 * (one(case.pp) - 1) - messages / one(case.micro_steps)
        assert one(waiting) == pytest.approx(others * one_message, rel=1e-9)


@pytest.mark.parametrize("schedule", ["zbh1", "zbv"])
def test_zero_bubble_schedules_post_their_sends_ahead(schedule):
    case = case_of(f"fsdp2-pp4-{schedule}", model=toy_model(layers=16))
    _, exposed, waiting = sends(case)
    message = INSIDE + 2_048_000 / 100e9
    # Down and up three hops: four messages are its own, two are those of others.
    assert one(exposed) == pytest.approx(4 * message, rel=1e-9)
    assert one(waiting) == pytest.approx(2 * message, rel=1e-9)


def test_interleaving_hides_sends_but_for_fill_and_drain():
    cluster, model = toy_cluster(16), toy_model(layers=16)
    case = case_of("fsdp4-pp4-v2", "fsdp4-pp4-v2-noppoverlap", model=model, cluster=cluster)
    load, exposed, waiting = (np.asarray(part) for part in sends(case))
    message = ACROSS + 2_048_000 / 10e9
    assert exposed[0] == pytest.approx(4 * message, rel=1e-9)
    assert waiting[0] == pytest.approx(2 * message, rel=1e-9)
    assert exposed[0] < load[0] == load[1] == exposed[1]


def test_without_a_pipeline_nothing_is_sent():
    assert [one(part) for part in sends(case_of("fsdp8"))] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("spelling", "passes"),
    [
        ("fsdp2-pp4", 1.0),
        ("fsdp8", 1.0),
        ("fsdp2-pp4-v2", 2.5),  # half of the stage, three micro batches more
        ("fsdp2-pp4-v4", 3.25),
        ("fsdp2-pp4-v2-mb8", 1.0),  # one micro batch
    ],
)
def test_interleaved_chunks_leave_more_to_hide_behind(spelling, passes):
    case = case_of(spelling, model=toy_model(layers=16))
    assert one(np.asarray(passes_left(case))) == pytest.approx(passes)
