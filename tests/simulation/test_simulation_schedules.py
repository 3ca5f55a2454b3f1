from itertools import pairwise

import pytest

from scalewise.simulation.schedules import pipeline_schedule


def as_text(order):
    return " ".join(f"{a.kind}{a.micro}" + (f".{a.chunk}" if a.chunk else "") for a in order)


def test_gpipe_does_all_forward_first():
    schedules = pipeline_schedule("gpipe", stages=2, chunks=1, num_microbatches=3)
    assert [as_text(order) for order in schedules] == ["F0 F1 F2 B0 B1 B2"] * 2


def test_1f1b_runs_ahead_by_the_stages_behind():
    schedules = pipeline_schedule("1f1b", stages=3, chunks=1, num_microbatches=4)
    assert [as_text(order) for order in schedules] == [
        "F0 F1 F2 B0 F3 B1 B2 B3",
        "F0 F1 B0 F2 B1 F3 B2 B3",
        "F0 B0 F1 B1 F2 B2 F3 B3",
    ]


def test_interleaved_gives_chunks_in_rounds_of_the_stages():
    first, last = pipeline_schedule("1f1b", stages=2, chunks=2, num_microbatches=4)
    assert as_text(first) == "F0 F1 F0.1 F1.1 F2 B0.1 F3 B1.1 F2.1 B0 F3.1 B1 B2.1 B3.1 B2 B3"
    assert as_text(last) == "F0 F1 F0.1 B0.1 F1.1 B1.1 F2 B0 F3 B1 F2.1 B2.1 F3.1 B3.1 B2 B3"


def test_zbh1_defers_wgrads_by_the_stages_before():
    schedules = pipeline_schedule("zbh1", stages=3, chunks=1, num_microbatches=3)
    assert [as_text(order) for order in schedules] == [
        "F0 F1 F2 I0 W0 I1 W1 I2 W2",
        "F0 F1 I0 F2 I1 W0 I2 W1 W2",
        "F0 I0 F1 I1 F2 I2 W0 W1 W2",
    ]


def test_zbv_holds_no_more_activations_than_1f1b():
    for order in pipeline_schedule("zbv", stages=4, chunks=1, num_microbatches=16):
        held = maximum = 0
        for action in order:
            held += {"F": 1, "I": 0, "W": -1}[action.kind]
            maximum = max(maximum, held)
        assert held == 0
        assert maximum <= 8


@pytest.mark.parametrize("schedule", ["gpipe", "1f1b", "zbh1", "zbv"])
@pytest.mark.parametrize("chunks", [1, 2, 3])
@pytest.mark.parametrize("num_microbatches", [1, 3, 4, 7, 16])
def test_every_pass_is_done_once_and_in_order(schedule, chunks, num_microbatches):
    schedules = pipeline_schedule(
        schedule, stages=4, chunks=chunks, num_microbatches=num_microbatches
    )
    real = 2 if schedule == "zbv" else chunks
    for order in schedules:
        places = {action: place for place, action in enumerate(order)}
        assert len(places) == len(order)
        kinds = "FIW" if schedule.startswith("zb") else "FB"
        assert len(order) == len(kinds) * real * num_microbatches
        for action in order:
            for before, after in pairwise(kinds):
                if action.kind == after:
                    assert places[action._replace(kind=before)] < places[action]
