"""Critical batches by law, and what they leave of the tokens of a batch."""

import numpy as np
import pytest

from scalewise.physics import critical_batch as laws


def test_at_the_critical_batch_tokens_and_steps_are_doubled():
    tokens = laws.tokens_needed(1e12, 1e-9, 4e6, 4e6)
    assert tokens == pytest.approx(2e12)
    fewest_steps = 1e12 / 4e6  # S_min = D_min / Bc
    assert tokens / 4e6 == pytest.approx(2.0 * fewest_steps)


def test_tokens_of_two_batches_go_there_and_back():
    more = laws.tokens_needed(3e11, 2e6, 1.6e7, 5e6)
    assert more == pytest.approx(3e11 * 4.2 / 1.4)
    assert laws.tokens_needed(more, 1.6e7, 2e6, 5e6) == pytest.approx(3e11)


def test_chinchilla_loss_and_the_optimum_of_the_refit():
    assert laws.loss(7e10, 1.4e12) == pytest.approx(1.9739, abs=1e-4)
    # At 5.76e23 FLOPs about 18 tokens per parameter are best.
    n = np.geomspace(1e10, 1e12, 4001)
    d = 5.76e23 / (6.0 * n)
    best = int(np.argmin(laws.loss(n, d)))
    assert d[best] / n[best] == pytest.approx(18.4, rel=0.02)


def test_laws_at_seven_billion_parameters():
    parameters, tokens = 7e9, 1.4e11
    assert laws.kaplan_batch(laws.loss(parameters, tokens)) == pytest.approx(4.963e6, rel=0.01)
    assert laws.step_law_batch(tokens) == pytest.approx(1.35e6, rel=0.01)
    assert laws.deepseek_batch(6.0 * parameters * tokens) == pytest.approx(3.837e6, rel=0.01)


def test_a_definition_by_twenty_percent_is_a_fifth():
    critical = laws.from_overhead(8e5, 0.2)
    assert critical == pytest.approx(4e6)
    # Its own batch needs 20% more tokens than the fewest.
    assert 1.0 / laws.statistical_efficiency(8e5, critical) == pytest.approx(1.2)


def test_a_measured_batch_grows_with_data():
    assert laws.grown_batch(1e6, 1e11, 1e11, laws.ZHANG_EXPONENT) == 1e6
    assert laws.grown_batch(1e6, 1e11, 1e13, laws.BERGSMA_EXPONENT) == pytest.approx(
        8.395e6, rel=1e-3
    )


@pytest.mark.parametrize(
    ("parameters", "tokens", "within"),
    [
        (1e8, 5e8, True), (9.9e7, 5e9, False), (1e11, 5e13, True), (1.01e11, 2e12, False),
        (1e9, 4.9e9, False), (1e9, 5.1e11, False),
    ],
)  # fmt: skip
def test_range(parameters, tokens, within):
    assert laws.within_range(parameters, tokens) is within
