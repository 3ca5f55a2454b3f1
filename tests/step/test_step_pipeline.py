"""Pipelines: bubbles and sends by hand."""

import numpy as np
import pytest

from scalewise.physics.collectives import CALL_SECONDS
from scalewise.step.pipeline import bubble_seconds, sends
from toys import case_of, one, toy_cluster, toy_model

# A Simple message of NCCL's model inside a domain and between two.
INSIDE = CALL_SECONDS + (8.4 + 3.4) * 1e-6
ACROSS = CALL_SECONDS + (8.4 + 14.0) * 1e-6


@pytest.mark.parametrize(
    ("spelling", "bubble"),
    [
        ("fsdp2-pp4", 7.5),
        ("fsdp2-pp4-gpipe", 7.5),
        ("fsdp2-pp4-v2", 3.75),
        ("fsdp2-pp4-v4-1f1b", 1.875),
        ("fsdp2-pp4-zbh1", 2.5),
        ("fsdp2-pp4-v2-zbv", 0.0),
        ("fsdp8", 0.0),
    ],
)
def test_bubble_is_the_time_of_the_other_stages(spelling, bubble):
    # One micro batch takes 10 s through all stages, 2.5 s on this one.
    case = case_of(spelling, model=toy_model(layers=16))
    assert one(bubble_seconds(case, np.array([10.0]), np.array([2.5]))) == pytest.approx(bubble)


def test_bubble_share_of_equal_stages_is_the_textbook_one():
    # (pp - 1) / micro steps of the busy time, over the chunks.
    case = case_of("fsdp2-pp4-v2", model=toy_model(layers=16))
    busy = one(case.micro_steps) * 2.5
    bubble = one(bubble_seconds(case, np.array([10.0]), np.array([2.5])))
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
    load, exposed = sends(case)
    assert one(load) == pytest.approx(messages * one_message, rel=1e-9)
    if one(case.chunks) == 1.0:
        assert one(exposed) == one(load)


def test_interleaving_hides_sends_but_for_fill_and_drain():
    cluster, model = toy_cluster(16), toy_model(layers=16)
    case = case_of("fsdp4-pp4-v2", "fsdp4-pp4-v2-noppoverlap", model=model, cluster=cluster)
    load, exposed = (np.asarray(part) for part in sends(case))
    assert exposed[0] == pytest.approx(2 * 3 * (ACROSS + 2_048_000 / 10e9), rel=1e-9)
    assert exposed[0] < load[0] == load[1] == exposed[1]


def test_without_a_pipeline_nothing_is_sent():
    assert [one(part) for part in sends(case_of("fsdp8"))] == [0.0, 0.0]
