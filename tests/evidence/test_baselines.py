"""Baselines by hand: 40% MFU, and the nearest run of another source."""

from dataclasses import replace

import pytest

from scalewise.evidence.baselines import Pool, Published, mfu_rate, published
from scalewise.evidence.runs import Run, read_runs

HERE = Published(
    source="me", parameters=8e9, accelerators=64, seq_len=4096, chip="hopper", precision="bf16",
    full=20000.0, mfu=0.45,
)  # fmt: skip


def other(**changes):
    return replace(HERE, **{"source": "them", **changes})


def test_40_percent_of_the_peak():
    assert mfu_rate(HERE) == 8000.0


@pytest.mark.parametrize(
    ("changes", "distance"),
    [
        ({}, 0.0),
        ({"parameters": 32e9}, 2.0),
        ({"accelerators": 8}, 3.0),
        ({"seq_len": 16384}, 1.0),
        ({"chip": "ampere"}, 3.0),
        ({"precision": "fp8"}, 1.5),
        ({"chip": "ampere", "precision": "fp16", "parameters": 4e9}, 5.5),
    ],
)
def test_distance_in_doublings(changes, distance):
    assert Pool([other(**changes)]).distances(HERE) == pytest.approx([distance])


def test_the_nearest_run_lends_its_mfu():
    pool = Pool([other(mfu=0.3, accelerators=128), other(mfu=0.5, chip="ampere")])
    assert pool.nearest(HERE) == pytest.approx(6000.0)


def test_of_equally_near_runs_the_median_counts():
    pool = Pool([other(mfu=mfu) for mfu in (0.1, 0.4, 0.5)])
    assert pool.nearest(HERE) == pytest.approx(8000.0)


def test_the_source_itself_is_excluded():
    pool = Pool([replace(HERE, mfu=0.9), other(mfu=0.2, accelerators=2048)])
    assert pool.nearest(HERE) == pytest.approx(4000.0)
    assert Pool([HERE]).nearest(HERE) is None
    assert Pool([]).nearest(HERE) is None


def test_a_published_run():
    runs = {run.id: run for run in read_runs()}
    (place,) = published([runs["mpt-7b-h10080gbx8-s2048-mb6-ga1"]])
    assert (place.chip, place.accelerators, place.seq_len) == ("hopper", 8, 2048)
    # 10,643 tokens/s at 989.4 TFLOP/s; 6.65 B parameters and 2,048 tokens make 41.5 GFLOP each.
    assert place.full == pytest.approx(989.4e12 / 41.5e9, rel=0.01)
    assert place.mfu == pytest.approx(10643.0 / place.full)


def test_runs_that_state_too_little_are_skipped():
    assert list(published([Run({"id": "x", "accelerator": "h100-sxm-80gb"}, 2)])) == []
