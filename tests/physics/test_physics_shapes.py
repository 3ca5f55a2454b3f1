"""Measured GEMM shapes: near them they decide, far away the smooth law does."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.physics.shapes import SMOOTH_WEIGHT, shape_factor

TIMED = ((4096.0, 4096.0, 4096.0, 1.2), (4096.0, 512.0, 4096.0, 0.8))
sides = st.floats(1.0, 1e6)


def test_nothing_timed_leaves_the_smooth_law():
    assert shape_factor(10.0, 10.0, 10.0, ()) == 1.0


def test_a_timed_shape_takes_its_own_ratio_but_for_the_weight_of_the_law():
    alone = shape_factor(4096.0, 4096.0, 4096.0, TIMED[:1])
    assert alone == pytest.approx(1.2 ** (1.0 / (1.0 + SMOOTH_WEIGHT)))
    assert alone == pytest.approx(1.18027, rel=1e-5)


def test_one_doubling_away_the_weights_are_those_of_a_gaussian():
    # exp(-1 / (2 * 0.25)) = 0.135335 beside 0.1 of the law.
    share = 0.1353353 / 0.2353353
    assert shape_factor(8192.0, 4096.0, 4096.0, TIMED[:1]) == pytest.approx(1.2**share, rel=1e-6)


def test_arrays_of_shapes():
    factors = shape_factor(4096.0, np.array([512.0, 4096.0, 1e6]), 4096.0, TIMED)
    assert factors == pytest.approx([0.81643, 1.18026, 1.0], rel=1e-4)


@given(sides, sides, sides)
def test_factors_stay_between_the_law_and_the_timings(m, n, k):
    assert 0.8 <= shape_factor(m, n, k, TIMED) <= 1.2
