"""Kernel times: waves counted by hand, and the limits they must keep."""

import csv
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.catalog import PACKAGE
from scalewise.physics.compute import (
    ATTENTION_HALF_SEQUENCE,
    K_FILL,
    KERNEL_SECONDS,
    attention_seconds,
    clock_factor,
    gemm_seconds,
    smooth_max,
)

FAST_MEMORY = 1e30
POWER_CLOCK = PACKAGE / "runs" / "power_clock.csv"


def tile_seconds(tile, waves, depth, efficiency=1.0, rate=1e12, units=100):
    """Waves of tiles, each unit doing 2 x tile x (depth + fill) FLOP at its share of the rate."""
    return waves * 2.0 * tile * (depth + K_FILL) / efficiency / (rate / units) + KERNEL_SECONDS


@pytest.mark.parametrize(
    ("m", "n", "k", "expected"),
    [
        # 10 x 10 tiles of 256 x 128 fill 100 units exactly once.
        (2560, 1280, 1024, tile_seconds(256 * 128, 1, 1024)),
        # 16 x 16 = 256 of them: three waves, the last half empty. With 128 x 128 it is six waves
        # of half the size at 0.95, which is slower.
        (4096, 2048, 1024, tile_seconds(256 * 128, 3, 1024)),
        # 5 x 10 = 50 large tiles leave half of the units idle; 10 x 10 of 128 x 128 do not.
        (1280, 1280, 1024, tile_seconds(128 * 128, 1, 1024, efficiency=0.95)),
        # One small tile: 64 x 64 at half efficiency beats 128 x 128.
        (64, 64, 1024, tile_seconds(64 * 64, 1, 1024, efficiency=0.5)),
        # One element is a tile, too.
        (1, 1, 1024, tile_seconds(64 * 64, 1, 1024, efficiency=0.5)),
        # Deep and narrow: 25 tiles of 128 x 128, K split in 4 (8192 / 2048), fill the 100 units.
        (640, 640, 8192, tile_seconds(128 * 128, 1, 2048, efficiency=0.95)),
    ],
)
def test_waves_by_hand(m, n, k, expected):
    time = gemm_seconds(
        float(m), float(n), float(k), rate=1e12, units=100.0, memory_rate=FAST_MEMORY
    )
    assert time == pytest.approx(expected, rel=1e-12)


def test_memory_bounds_thin_products():
    # 1 x 4096 x 4096 moves 2 x (4096 + 16,777,216) operand and 2 x 4096 result bytes.
    time = gemm_seconds(1.0, 4096.0, 4096.0, rate=1e18, units=1.0, memory_rate=1e12)
    assert time == pytest.approx(33_570_816 / 1e12 + KERNEL_SECONDS, rel=1e-12)


def test_narrow_operands_move_less():
    time = gemm_seconds(
        1.0, 4096.0, 4096.0, rate=1e18, units=1.0, memory_rate=1e12, element_bytes=1.0
    )
    assert time == pytest.approx((16_781_312 + 8192) / 1e12 + KERNEL_SECONDS, rel=1e-12)


def test_large_products_approach_the_rate():
    size = 65536.0
    time = gemm_seconds(size, size, size, rate=1e15, units=132.0, memory_rate=3e12)
    assert time == pytest.approx(2.0 * size**3 / 1e15, rel=0.01)


def test_small_cubes_reach_a_smaller_share():
    # Published sweeps: cubes of 1k, 2k, 4k and 8k reach growing shares of the peak.
    sizes = np.array([256.0, 512.0, 1024.0, 2048.0, 8192.0])
    time = gemm_seconds(sizes, sizes, sizes, rate=312e12, units=108.0, memory_rate=1.7e12)
    share = 2.0 * sizes * sizes * sizes / time / 312e12
    assert np.all(np.diff(share) > 0.0)
    assert share[0] < 0.1
    assert share[-1] > 0.9


sides = st.integers(1, 100_000).map(float)
rates = st.floats(1e9, 1e18)


@given(sides, sides, sides, rates, st.integers(1, 304), st.floats(1e9, 1e14))
def test_products_are_never_faster_than_rate_and_memory(m, n, k, rate, units, memory_rate):
    time = gemm_seconds(m, n, k, rate=rate, units=float(units), memory_rate=memory_rate)
    assert np.isfinite(time)
    assert time >= 2.0 * m * n * k / rate * (1.0 - 1e-12)
    assert time >= 2.0 * (m * k + k * n + m * n) / memory_rate
    assert time >= KERNEL_SECONDS


@given(sides, sides, sides, rates, st.integers(1, 304), st.floats(1.0, 10.0))
def test_products_gain_from_a_higher_rate(m, n, k, rate, units, factor):
    slow = gemm_seconds(m, n, k, rate=rate, units=float(units), memory_rate=1e12)
    fast = gemm_seconds(m, n, k, rate=rate * factor, units=float(units), memory_rate=1e12)
    assert fast <= slow


def test_attention():
    # Twice the half sequence: the rate is reached to two thirds.
    half = ATTENTION_HALF_SEQUENCE
    assert attention_seconds(1e12, rate=1e14, seq_len=2.0 * half) == pytest.approx(0.015)
    assert attention_seconds(1e12, rate=1e14, seq_len=half) == pytest.approx(0.02)
    assert attention_seconds(1e12, rate=1e14, seq_len=1e12) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (1.0, 1.0, 1.0 + 0.5 * 0.06**0.5),
        (3.0, 0.0, 3.0),
        (0.0, 3.0, 3.0),
        (0.0, 0.0, 0.0),
        (4.0, 1.0, 0.5 * (5.0 + 9.24**0.5)),
    ],
)
def test_smooth_max(a, b, expected):
    assert smooth_max(a, b) == pytest.approx(expected, rel=1e-12)


def test_smooth_max_rounds_the_corner_by_twelve_percent():
    assert smooth_max(1.0, 1.0) == pytest.approx(1.12, abs=0.005)


# Zero, or anything from femtoseconds to hours.
times = st.one_of(st.just(0.0), st.floats(1e-15, 1e4))


@given(times, times, st.floats(0.0, 100.0))
def test_smooth_max_is_a_maximum(a, b, more):
    largest = max(a, b)
    value = smooth_max(a, b)
    assert value == pytest.approx(smooth_max(b, a), rel=1e-12)
    assert largest * (1.0 - 1e-12) <= value <= largest * 1.1225 + 1e-300
    assert smooth_max(a + more, b) >= value * (1.0 - 1e-12)


@pytest.mark.parametrize(
    ("cap", "expected"),
    [
        (700.0, 1.0),
        (900.0, 1.0),
        (550.0, 0.8685815557805903),  # three quarters of the range, above the knee
        (400.0, 0.615),  # half, below the knee: 1.23 x 0.5
        (250.0, 0.3075),
    ],
)
def test_clock_factor(cap, expected):
    assert clock_factor(cap, 700.0, 100.0) == pytest.approx(expected, rel=1e-12)


def test_clock_factor_meets_clock_sweeps_of_a100_sxm():
    # Pipeline stages of GPT-3 175B and BLOOM at fixed clocks, against the clock that 400 W sustain.
    sweeps = defaultdict(list)
    with POWER_CLOCK.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = row["model"], row["stage"], row["instruction"]
            sweeps[key].append((float(row["watts"]), float(row["clock_mhz"])))
    assert len(sweeps) == 32
    for points in sweeps.values():
        watts, clock = np.array(sorted(points)).T
        ratio = clock / np.interp(400.0, watts, clock)
        held = (watts >= 300.0) & (watts <= 400.0)
        assert held.sum() >= 5
        predicted = clock_factor(watts[held], 400.0, 60.0)
        assert np.abs(predicted / ratio[held] - 1.0).max() < 0.05


@pytest.mark.parametrize("series", [(1.0, 0.9716, 0.9301, 0.8490), (1.0, 0.9689, 0.9242, 0.8195)])
def test_clock_factor_meets_power_limits_of_a100_pcie(series):
    # Step times of bloom-3b and gpt3-1.3b at 300, 275, 250 and 225 W: the `perseus-power` runs.
    limits = np.array([300.0, 275.0, 250.0, 225.0])
    assert np.abs(clock_factor(limits, 300.0, 42.0) / series - 1.0).max() < 0.05


def test_clock_factor_below_idle_stays_positive():
    assert 0.0 < clock_factor(50.0, 700.0, 100.0) < 0.01


@given(st.floats(1.0, 2000.0), st.floats(1.0, 2000.0), st.floats(0.0, 200.0))
def test_clock_factor_grows_with_the_cap(cap, more, idle):
    low, high = clock_factor(cap, 700.0, idle), clock_factor(cap + more, 700.0, idle)
    assert 0.0 < low <= high <= 1.0
