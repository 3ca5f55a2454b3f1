"""Degraded rows of a sweep: found where they are far below their neighbors, and only there."""

import numpy as np
import pytest

from scalewise.evidence.degraded import FEWEST, degraded, shortest_half


def healthy(count, center=0.0, spread=0.08):
    return center + np.random.default_rng(7).normal(0.0, spread, count)


def test_slow_rows_are_found_and_healthy_ones_are_not():
    slow = np.log([1 / 2.0, 1 / 5.0, 1 / 40.0])
    found = degraded(np.concatenate([healthy(100), slow]), ["a"] * 103)
    assert found.tolist() == [False] * 100 + [True] * 3


def test_nearly_half_may_be_slow():
    off = np.concatenate([healthy(100), np.linspace(-3.5, -1.0, 90)])
    assert degraded(off, ["a"] * 190).sum() == 90


def test_a_sweep_that_is_slow_as_a_whole_is_not_degraded():
    # Its software is slower than predicted: an error of the constants.
    assert not degraded(healthy(100, center=-1.2), ["a"] * 100).any()


def test_fast_rows_are_not_degraded():
    assert not degraded(np.append(healthy(50), 2.0), ["a"] * 51).any()


def test_small_sweeps_have_no_center():
    off = np.append(np.zeros(FEWEST - 2), -2.0)
    assert not degraded(off, ["a"] * len(off)).any()
    assert degraded(np.append(off, 0.0), ["a"] * (len(off) + 1)).sum() == 1


def test_sweeps_are_apart_and_gaps_do_not_count():
    off = np.concatenate([healthy(40), healthy(40, center=-1.0), [np.nan]])
    assert not degraded(off, ["a"] * 40 + ["b"] * 41).any()


@pytest.mark.parametrize(
    ("values", "center"),
    [([1.0], 1.0), ([0.0, 0.1, 5.0], 0.05), ([-9.0, -7.0, 0.0, 0.1, 0.2], 0.1)],
)
def test_shortest_half(values, center):
    assert shortest_half(np.array(values)) == pytest.approx(center)


def test_the_shipped_sweep_has_some():
    from scalewise.evidence.runs import read_runs
    from scalewise.evidence.validate import validate

    result = validate([run for run in read_runs() if run.source in ("nanotron", "llm-foundry")])
    slow = [row for row in result.rows if row.degraded]
    assert {row.source for row in slow} == {"nanotron"}
    assert 200 < len(slow) < 350
    assert min(row.error for row in slow) > 0.4
    assert result.by_source()["nanotron"].degraded == len(slow)
    assert not any(row.judged for row in slow)
