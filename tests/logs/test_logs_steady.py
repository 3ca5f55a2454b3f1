"""Warm-up, stalls, drift, and the median with its error."""

from __future__ import annotations

import numpy as np
import pytest

from logs.log_files import DATA
from scalewise.errors import InputError
from scalewise.logs.run_log import CHECKPOINT, EVALUATION, RunLog, Steps
from scalewise.logs.source import read_source
from scalewise.logs.steady import steady
from scalewise.numeric import Array


def log_of(
    seconds: Array, *, events: Array | None = None, gaps: Array | None = None, window: bool = False
) -> RunLog:
    """A log of single steps with a wall clock."""
    count = len(seconds)
    missing = np.full(count, np.nan)
    clock = np.cumsum(seconds + (0.0 if gaps is None else gaps))
    return RunLog(
        path="train.log", framework="", window=window,
        steps=Steps(
            line=np.arange(1, count + 1), step=np.arange(1, count + 1),
            every=np.ones(count, dtype=np.int64), start=np.zeros(count, dtype=np.int64),
            seconds=seconds, device_tokens=missing, total_tokens=missing, samples=missing,
            loss=missing, memory=missing, clock=clock, waited=missing,
            events=np.zeros(count, dtype=np.int64) if events is None else events,
        ),
    )  # fmt: skip


def noisy(count: int, scatter: float = 0.005, seed: int = 1) -> Array:
    return 2.0 * (1.0 + scatter * np.random.default_rng(seed).standard_normal(count))


@pytest.mark.parametrize(
    ("name", "column", "value", "used"),
    [
        ("torchtitan.log", "device_tokens", 6205.0, 96),
        ("megatron-bridge.log", "seconds", 2.31, 36),
        ("nemo-1.log", "seconds", 3.13, 39),
        ("nemo-2.log", "seconds", 12.4, 58),
        ("deepspeed.log", "samples", 25.7, 59),
        ("nanotron.log", "device_tokens", 6885.0, 59),
        ("maxtext.log", "seconds", 13.36, 49),
        ("nanogpt.log", "seconds", 0.56194, 96),
        ("litgpt.log", "seconds", 16 * 0.5455, 99),
        ("transformers.log", "seconds", 3.09, 46),
        ("wandb.csv", "device_tokens", 4120.0, 39),
    ],
)
def test_the_median_is_that_of_usual_steps(name: str, column: str, value: float, used: int) -> None:
    found = steady(read_source(str(DATA / name)))
    assert found.used == used
    assert abs(np.log(getattr(found, column) / value)) < max(3.0 * found.error, 2e-3)
    assert found.error < 0.01


def test_five_steps_of_a_public_log_say_little() -> None:
    # Megatron-Bridge on GB200: 125 s, 6.1, 4.7, 10.7 and 2.3 s; the last ones are the steady state.
    found = steady(log_of(np.array([125.0, 6.1, 4.7, 10.7, 2.3])))
    assert found.seconds == 4.7
    assert found.few
    assert found.used == 3
    assert found.error > 0.3


def test_warm_up_ends_where_steps_settle() -> None:
    seconds = noisy(200)
    seconds[:4] = (125.0, 6.1, 4.7, 10.7)
    found = steady(log_of(seconds))
    assert (found.warm_up, found.used, found.stalls) == (4, 196, ())
    assert found.seconds == pytest.approx(2.0, rel=2e-3)


def test_the_error_covers_the_truth_as_often_as_it_says() -> None:
    away = []
    for seed in range(200):
        found = steady(log_of(noisy(120, 0.02, seed)))
        away.append(np.log(found.seconds / 2.0) / found.error)
    assert 0.6 < np.mean(np.abs(away) < 1.0) < 0.95
    assert np.mean(np.abs(away) < 2.5) > 0.96


def test_checkpoints_and_evaluation_are_told_apart_by_what_is_printed() -> None:
    count = 401
    events, gaps = np.zeros(count, dtype=np.int64), np.zeros(count)
    events[100::100] |= CHECKPOINT
    gaps[100::100] += 30.0
    events[50::50] |= EVALUATION
    gaps[50::50] += 8.0
    found = steady(log_of(noisy(count), events=events, gaps=gaps))
    first, second = found.stalls
    assert (first.cause, first.count, first.period) == ("checkpoint", 4, 100)
    assert first.seconds == pytest.approx(30.0, rel=0.01)
    assert (second.cause, second.count, second.period) == ("evaluation", 8, 50)
    assert second.seconds == pytest.approx(8.0, rel=0.01)
    total = 400 * 2.0 + 4 * 30.0 + 8 * 8.0
    assert found.stalled == pytest.approx((4 * 30.0 + 8 * 8.0) / total, rel=0.01)
    assert found.seconds == pytest.approx(2.0, rel=2e-3)


def test_slow_steps_without_a_word_have_a_period_only() -> None:
    seconds = noisy(301)
    seconds[20::20] += 3.0
    (found,) = steady(log_of(seconds)).stalls
    assert (found.cause, found.count, found.period) == ("unnamed", 15, 20)
    assert found.seconds == pytest.approx(3.0, rel=0.01)


def test_irregular_stalls_have_no_period() -> None:
    seconds = noisy(301)
    seconds[[31, 40, 111, 123, 290]] += 20.0
    (found,) = steady(log_of(seconds)).stalls
    assert (found.count, found.period) == (5, None)


def test_stalls_inside_windows_are_those_of_a_log_with_fewer_lines() -> None:
    (found,) = steady(read_source(str(DATA / "torchtitan.log"))).stalls
    assert (found.cause, found.count, found.period) == ("checkpoint", 3, 250)
    assert found.seconds == pytest.approx(12.4, rel=0.02)


def test_drift_is_named_with_its_time() -> None:
    seconds = noisy(600) * np.linspace(1.0, 1.10, 600)
    found = steady(log_of(seconds))
    assert found.drift is not None
    assert found.drift.change == pytest.approx(0.066, abs=0.005)
    assert found.drift.hours == pytest.approx(400 * 2.1 / 3600, rel=0.05)
    assert found.error > 0.005
    assert steady(log_of(noisy(600))).drift is None


def test_rounding_is_part_of_the_error() -> None:
    found = steady(read_source(str(DATA / "nanotron.log")))
    assert found.error > 0.001


def test_a_log_without_times_is_refused() -> None:
    with pytest.raises(InputError, match="no step has a time or a rate"):
        steady(log_of(np.full(20, np.nan)))
