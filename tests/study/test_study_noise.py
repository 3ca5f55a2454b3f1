import math

import pytest

from scalewise.study.noise import Noise, student_975


def test_the_variation_of_repeats_is_pooled_over_points():
    noise = Noise.of([[1.0, 1.1], [20.0, 22.0], [5.0]])
    # Logs of each pair differ by ln 1.1: squares 2 x (ln 1.1 / 2)^2 each, one degree of freedom.
    assert noise.freedom == 2
    assert noise.deviation == pytest.approx(math.log(1.1) / math.sqrt(2.0))


def test_single_repeats_have_an_unknown_variation():
    noise = Noise.of([[1.0], [2.0]])
    assert not noise.known
    assert noise.freedom == 0


@pytest.mark.parametrize(
    ("freedom", "expected"), [(1, 12.706), (2, 4.303), (3, 3.182), (5, 2.571), (30, 2.042)]
)
def test_quantiles_are_those_of_the_tables(freedom, expected):
    assert student_975(freedom) == pytest.approx(expected, rel=0.01)


def test_no_freedom_means_no_limit():
    assert student_975(0) == math.inf


def test_the_interval_of_a_ratio_has_the_variance_of_both_points():
    noise = Noise(deviation=0.05, freedom=30)
    low, high = noise.interval(0.8, [[1.0, 1.0], [1.0, 1.0]])
    reach = math.exp(2.042 * 0.05)
    assert high == pytest.approx(0.8 * reach, rel=1e-3)
    assert low == pytest.approx(0.8 / reach, rel=1e-3)


def test_a_point_that_varies_more_counts_with_its_own_variation():
    noise = Noise(deviation=0.01, freedom=30)
    calm = noise.interval(1.0, [[1.0, 1.0]])
    wild = noise.interval(1.0, [[1.0, 1.5]])
    assert wild[1] - wild[0] > 10.0 * (calm[1] - calm[0])


def test_other_load_widens_the_interval():
    noise = Noise(deviation=0.01, freedom=30)
    _, idle = noise.interval(1.0, [[1.0, 1.0]])
    _, busy = noise.interval(1.0, [[1.0, 1.0]], [math.log(1.3)])
    assert idle == pytest.approx(1.0145, abs=1e-3)
    assert busy == pytest.approx(
        math.exp(2.042 * math.hypot(0.01 / 2**0.5, math.log(1.3))), rel=1e-3
    )
