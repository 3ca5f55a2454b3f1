from itertools import pairwise

import pytest

from scalewise.timeline.orders import pipeline_orders


def told(order):
    return " ".join(f"{a.kind}{a.micro}" + (f".{a.chunk}" if a.chunk else "") for a in order)


def test_gpipe_does_all_forward_first():
    orders = pipeline_orders("gpipe", stages=2, chunks=1, micro_steps=3)
    assert [told(order) for order in orders] == ["F0 F1 F2 B0 B1 B2"] * 2


def test_1f1b_runs_ahead_by_the_stages_behind():
    orders = pipeline_orders("1f1b", stages=3, chunks=1, micro_steps=4)
    assert [told(order) for order in orders] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_interleaved_gives_chunks_in_rounds_of_the_stages():
    first, last = pipeline_orders("1f1b", stages=2, chunks=2, micro_steps=4)
    assert told(first) == ("F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3")
    assert told(last) == "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3"


def test_zbh1_puts_weights_off_by_the_stages_before():
    orders = pipeline_orders("zbh1", stages=3, chunks=1, micro_steps=3)
    assert [told(order) for order in orders] == [
        "F0 F1 F2 I0 W0 I1 W1 I2 W2",
        "F0 F1 I0 F2 I1 W0 I2 W1 W2",
        "F0 I0 F1 I1 F2 I2 W0 W1 W2",
    ]


def test_zbv_holds_no_more_activations_than_1f1b():
    for order in pipeline_orders("zbv", stages=4, chunks=1, micro_steps=16):
        held = most = 0
        for action in order:
            held += {"F": 1, "I": 0, "W": -1}[action.kind]
            most = max(most, held)
        assert held == 0
        assert most <= 8


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zbh1", "zbv"])
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("micro_steps", [1, 3, 4, 7, 16])
def test_every_pass_is_done_once_and_in_order(schedule, chunks, micro_steps):
    orders = pipeline_orders(schedule, stages=4, chunks=chunks, micro_steps=micro_steps)
    real = 2 if schedule == "zbv" else chunks
    for order in orders:
        places = {action: place for place, action in enumerate(order)}
        assert len(places) == len(order)
        kinds = "FIW" if schedule.startswith("zb") else "FB"
        assert len(order) == len(kinds) * real * micro_steps
        for action in order:
            for before, after in pairwise(kinds):
                if action.kind == after:
                    assert places[action._replace(kind=before)] < places[action]
