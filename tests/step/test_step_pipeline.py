"""Pipelines: bubbles and sends by hand."""

import numpy as np
import pytest

from scalewise.physics.collectives import CALL_SECONDS
from scalewise.step.pipeline import Wave, bubble_seconds, message_seconds, passes_left
from scalewise.step.pipeline import sends as sends_of
from toys import case_of, one, toy_cluster, toy_model

# A Simple message of NCCL's model inside a domain and between two.
INSIDE = CALL_SECONDS + (8.4 + 3.4) * 1e-6
ACROSS = CALL_SECONDS + (8.4 + 14.0) * 1e-6


def wave_of(forward=2.5 / 3, backward=5.0 / 3, weights=0.0, head=0.0, ahead=0.0):
    """One micro batch on four stages, each of which takes as long as this, seconds."""
    return Wave(
        forward=np.array([4 * forward]),
        backward=np.array([4 * backward]),
        own_forward=np.array([forward]),
        own_backward=np.array([backward]),
        weights=np.array([weights]),
        head=np.array([head]),
        ahead=np.array([ahead]),
    )


def bubble_of(case):
    """The bubble where a micro batch takes 2.5 s on each stage, a third of it for weights."""
    third = 2.5 / 3
    halves = one(case.schedule) >= 2.0
    wave = wave_of(third, third, third) if halves else wave_of()
    return bubble_seconds(case, wave, np.array([2.5]))


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
        ("fsdp2-pp4-zbv-mb8", 5.0 - 2.5 / 6),
    ],
)
def test_bubble_is_the_time_of_the_other_stages(spelling, bubble):
    # One micro batch takes 10 s through all stages, 2.5 s on this one.
    case = case_of(spelling, model=toy_model(layers=16))
    assert one(bubble_of(case)) == pytest.approx(bubble)


def test_bubble_share_of_equal_stages_is_the_textbook_one():
    # (pp - 1) / micro steps of the busy time, over the chunks.
    case = case_of("fsdp2-pp4-v2", model=toy_model(layers=16))
    busy = one(case.micro_steps) * 2.5
    bubble = one(bubble_of(case))
    assert bubble / busy == pytest.approx((4 - 1) / 8 / 2)


def sends(case, *, on_last=False):
    """Sends where a middle stage, or the last, sets the pace."""
    return sends_of(case, message_seconds(case), np.full(len(case.layers), on_last))


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


def test_the_last_stage_has_one_neighbour():
    cluster, model = toy_cluster(16), toy_model(layers=16)
    case = case_of("fsdp4-pp4", "fsdp4-pp4-v2-noppoverlap", model=model, cluster=cluster)
    message = ACROSS + 2_048_000 / 10e9
    _, exposed, waiting = (np.asarray(part) for part in sends(case, on_last=True))
    assert exposed[0] == pytest.approx(4 * 2 * message, rel=1e-9)
    assert waiting[0] == pytest.approx(4 * message, rel=1e-9)
    # With chunks it hands over to the first stage.
    assert exposed[1] == pytest.approx(4 * 4 * 2 * message, rel=1e-9)


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
