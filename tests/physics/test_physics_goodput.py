"""Goodput: Daly's exact form, its best interval, and what more nodes, failures and bytes do."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.physics.goodput import (
    best_interval,
    mean_time_between_failures,
    requeue_seconds,
    segment,
    unavailable,
)

MTBF = st.floats(1e3, 1e7)
CHECKPOINT = st.floats(0.1, 300.0)
RESTART = st.floats(0.0, 3600.0)


def test_the_exact_form_of_daly():
    tau, w, restart, mtbf = 650.0, 20.0, 300.0, 11100.0
    exact = tau / (mtbf * math.exp(restart / mtbf) * (math.exp((tau + w) / mtbf) - 1.0))
    assert float(segment(tau, w, restart, mtbf).fraction) == pytest.approx(exact, rel=1e-12)
    assert exact == pytest.approx(0.91607, abs=1e-5)


def test_llama_3_with_twenty_seconds_and_with_a_minute():
    mtbf = mean_time_between_failures(2048.0, 3.79e-3 / 86400.0)
    assert float(mtbf) == pytest.approx(11131.3, abs=0.1)
    found = {
        (w, restart): float(segment(best_interval(w, mtbf), w, restart, mtbf).fraction)
        for w, restart in ((20.0, 300.0), (20.0, 600.0), (60.0, 600.0))
    }
    assert found == {
        (20.0, 300.0): pytest.approx(0.9162, abs=1e-4),
        (20.0, 600.0): pytest.approx(0.8919, abs=1e-4),
        (60.0, 600.0): pytest.approx(0.8525, abs=1e-4),
    }


@given(MTBF, CHECKPOINT, RESTART)
def test_no_interval_beats_the_best(mtbf, w, restart):
    tau = float(best_interval(w, mtbf))
    best = float(segment(tau, w, restart, mtbf).fraction)
    for factor in (0.2, 0.8, 0.97, 1.03, 1.25, 5.0):
        assert float(segment(factor * tau, w, restart, mtbf).fraction) <= best + 1e-12
    assert math.sqrt(2.0 * w * mtbf) - w <= tau * (1.0 + 1e-9) <= math.sqrt(2.0 * w * mtbf) * 1.0001


@given(MTBF, CHECKPOINT, RESTART, st.floats(0.0, 60.0), st.floats(0.3, 3.0))
def test_parts_add_up_and_the_fraction_is_one(mtbf, w, restart, lag, factor):
    one = segment(factor * best_interval(w, mtbf), w, restart, mtbf, lag=lag)
    assert 0.0 < float(one.fraction) <= 1.0
    assert all(float(part) >= 0.0 for part in one)
    losses = (one.checkpoint + one.rework + one.restart) / one.wall
    assert float(losses + one.fraction) == pytest.approx(1.0, abs=1e-12)


@given(st.floats(1.0, 1e4), st.floats(1e-9, 1e-6), CHECKPOINT, RESTART)
def test_goodput_falls_with_nodes_rate_and_write_time(nodes, rate, w, restart):
    def best(nodes, rate, w):
        mtbf = mean_time_between_failures(nodes, rate)
        return float(segment(best_interval(w, mtbf), w, restart, mtbf).fraction)

    here = best(nodes, rate, w)
    assert best(2.0 * nodes, rate, w) < here
    assert best(nodes, 2.0 * rate, w) < here
    assert best(nodes, rate, 2.0 * w) < here


def test_nothing_is_lost_without_failures_and_checkpoints():
    mtbf = mean_time_between_failures(1.0, 0.0)
    assert math.isinf(mtbf)
    assert math.isinf(best_interval(20.0, mtbf))
    assert [float(part) for part in segment(3600.0, 0.0, 300.0, mtbf)] == [3600.0, 0.0, 0.0, 0.0]
    assert float(segment(3600.0, 36.0, 300.0, mtbf).fraction) == pytest.approx(1.0 / 1.01)


def test_free_checkpoints_are_taken_all_the_time():
    assert float(best_interval(0.0, 1e6)) == 0.0


def test_a_lag_goes_back_one_checkpoint_further():
    without = segment(600.0, 1.0, 300.0, 10_000.0)
    late = segment(600.0, 1.0, 300.0, 10_000.0, lag=60.0)
    assert float(late.restart) == float(without.restart)
    # Failures per segment times the lag.
    failures = math.expm1(601.0 / 10_000.0) * math.exp(0.03)
    assert float(late.rework - without.rework) == pytest.approx(
        failures * 10_000.0 * math.expm1(0.006)
    )


def test_a_hopeless_run_stays_finite():
    one = segment(best_interval(600.0, 1.0), 600.0, 600.0, 1.0)
    assert 0.0 < float(one.fraction) < 1e-80


def test_spares_run_out():
    # One node is out of every eleven; both others of three are there with 0.909 ** 2.
    rate, repair = 1.0, 0.1
    assert float(unavailable(2.0, 0, rate, repair)) == 1.0
    assert float(unavailable(2.0, 1, rate, repair)) == pytest.approx(1.0 - (1.0 / 1.1) ** 2)
    chances = [float(unavailable(1024.0, s, 4.4e-8, 86400.0)) for s in range(20)]
    assert chances == sorted(chances, reverse=True)
    assert chances[-1] < 1e-6
    assert float(unavailable(5.0, 3, 0.0, repair)) == 0.0


def test_requeue_meets_its_measurements():
    sizes = np.array([2048.0, 4096.0, 8192.0, 16384.0])
    found = requeue_seconds(sizes, 454.0, 2048.0, 0.253)
    assert found.tolist() == pytest.approx([454.0, 545.0, 635.0, 768.0], rel=0.02)


def test_arrays_are_the_numbers_one_by_one():
    mtbf = np.array([1e3, 1e4, np.inf])
    tau = best_interval(20.0, mtbf)
    assert tau.tolist() == [float(best_interval(20.0, each)) for each in mtbf]
    many = segment(600.0, 20.0, 300.0, mtbf)
    assert many.fraction.tolist() == [
        float(segment(600.0, 20.0, 300.0, each).fraction) for each in mtbf
    ]
