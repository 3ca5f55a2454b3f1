"""P2P sends between stages by hand."""

import numpy as np
import pytest

from scalewise.physics.collectives import CALL_SECONDS
from scalewise.step.p2p import sends
from toys import case_of, one, toy_cluster, toy_model

# A Simple message of NCCL's model inside a domain and between two.
INSIDE = CALL_SECONDS + (8.4 + 3.4) * 1e-6
ACROSS = CALL_SECONDS + (8.4 + 14.0) * 1e-6


def sends_of(case, *, on_last=False):
    """Sends where a middle stage, or the last, sets the pace."""
    return sends(case, np.full(len(case), on_last))


@pytest.mark.parametrize(
    ("spelling", "accelerators", "messages", "one_message"),
    [
        # 8 micro-batches x (two neighbors, both directions); 2 x 1000 x 1024 bytes at 10 GB/s
        ("fsdp2-pp4", 8, 8 * 4, INSIDE + 2_048_000 / 100e9),
        ("fsdp4-pp4", 16, 4 * 4, ACROSS + 2_048_000 / 10e9),
        # two stages have one neighbor each
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
    sent = sends_of(case)
    assert one(sent.message) == pytest.approx(one_message, rel=1e-9)
    assert one(sent.seconds) == pytest.approx(messages * one_message, rel=1e-9)
    if one(case.split.chunks) == 1.0:
        assert one(sent.exposed) == one(sent.seconds)
        # The first micro-batch passes every stage down and up once, this one among them.
        others = 2 * (one(case.split.pp) - 1) - messages / one(case.split.num_microbatches)
        assert one(sent.waiting) == pytest.approx(others * one_message, rel=1e-9)


@pytest.mark.parametrize("schedule", ["zbh1", "zbv"])
def test_zero_bubble_schedules_post_their_sends_ahead(schedule):
    case = case_of(f"fsdp2-pp4-{schedule}", model=toy_model(layers=16))
    sent = sends_of(case)
    message = INSIDE + 2_048_000 / 100e9
    # Down and up three hops: four messages are its own, two are those of others.
    assert one(sent.exposed) == pytest.approx(4 * message, rel=1e-9)
    assert one(sent.waiting) == pytest.approx(2 * message, rel=1e-9)


def test_the_last_stage_has_one_neighbor():
    cluster, model = toy_cluster(16), toy_model(layers=16)
    case = case_of("fsdp4-pp4", "fsdp4-pp4-v2-noppoverlap", model=model, cluster=cluster)
    message = ACROSS + 2_048_000 / 10e9
    sent = sends_of(case, on_last=True)
    exposed, waiting = np.asarray(sent.exposed), np.asarray(sent.waiting)
    assert exposed[0] == pytest.approx(4 * 2 * message, rel=1e-9)
    assert waiting[0] == pytest.approx(4 * message, rel=1e-9)
    # With chunks it hands over to the first stage.
    assert exposed[1] == pytest.approx(4 * 4 * 2 * message, rel=1e-9)


def test_interleaving_overlaps_sends_but_for_warm_up_and_cool_down():
    cluster, model = toy_cluster(16), toy_model(layers=16)
    case = case_of("fsdp4-pp4-v2", "fsdp4-pp4-v2-noppoverlap", model=model, cluster=cluster)
    sent = sends_of(case)
    seconds, exposed = np.asarray(sent.seconds), np.asarray(sent.exposed)
    waiting = np.asarray(sent.waiting)
    message = ACROSS + 2_048_000 / 10e9
    assert exposed[0] == pytest.approx(4 * message, rel=1e-9)
    assert waiting[0] == pytest.approx(2 * message, rel=1e-9)
    assert exposed[0] < seconds[0] == seconds[1] == exposed[1]


def test_without_a_pipeline_nothing_is_sent():
    sent = sends_of(case_of("fsdp8"))
    assert [one(sent.seconds), one(sent.exposed), one(sent.waiting)] == [0.0, 0.0, 0.0]
