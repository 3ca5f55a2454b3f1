"""Bayes' rule with a shared level, against numeric integrals and by hand."""

import doctest

import numpy as np
import pytest

from scalewise.diagnosis import measured, posterior
from scalewise.diagnosis.posterior import (
    entropy,
    log_likelihood,
    normalized,
    quantiles,
    shared_level,
)


def integrated(residuals: np.ndarray, level: float, noise: np.ndarray) -> float:
    """The same density by summing over the level."""
    levels = np.linspace(-9.0 * level, 9.0 * level, 20_001)
    prior = np.exp(-0.5 * (levels / level) ** 2) / (level * np.sqrt(2.0 * np.pi))
    each = np.exp(-0.5 * ((residuals[:, None] - levels) / noise[:, None]) ** 2)
    each = each / (noise[:, None] * np.sqrt(2.0 * np.pi))
    return float((prior * each.prod(axis=0)).sum() * (levels[1] - levels[0]))


@pytest.mark.parametrize("residuals", [[0.1], [0.1, -0.3], [-1.2, -1.1, -0.9]])
def test_sherman_morrison_is_the_integral_over_the_level(residuals: list[float]):
    values = np.array(residuals)
    noise = np.array([0.05, 0.2, 0.08])[: len(values)]
    found = shared_level(values[:, None], 0.15, noise[:, None])
    assert np.exp(found.item()) == pytest.approx(integrated(values, 0.15, noise), rel=1e-6)


def test_runs_of_different_software_share_no_level():
    residuals, noise = np.array([[0.2], [-0.4]]), np.array([[0.05], [0.07]])
    apart = log_likelihood(residuals, [0.15, 0.3], noise, [0, 1])
    alone = shared_level(residuals[:1], 0.15, noise[:1]) + shared_level(
        residuals[1:], 0.3, noise[1:]
    )
    assert apart.item() == pytest.approx(alone.item())
    together = log_likelihood(residuals, [0.15, 0.15], noise, [0, 0])
    assert together.item() < apart.item()


def test_posterior_of_two_hypotheses_by_hand():
    # One run at half its rate, s^2 = 0.15^2 + 0.05^2: healthy is ln 2 away, the cause meets it.
    residuals = np.log(0.5) - np.array([[0.0, np.log(0.5)]])
    logs = log_likelihood(residuals, [0.15], np.array([[0.05]]), [0])
    weights = normalized(np.log([0.9, 0.1]) + logs)
    odds = 9.0 * np.exp(-0.5 * np.log(2.0) ** 2 / (0.15**2 + 0.05**2))
    assert weights[0] / weights[1] == pytest.approx(odds)
    assert weights[1] == pytest.approx(0.99939, abs=1e-5)


def test_weights_of_tiny_likelihoods_do_not_overflow():
    weights = normalized(np.array([-5000.0, -5000.0 + np.log(3.0), -np.inf]))
    assert weights == pytest.approx([0.25, 0.75, 0.0])


def test_entropy_and_quantiles():
    assert entropy(np.array([[1.0, 0.0], [0.5, 0.5]])) == pytest.approx([0.0, 1.0])
    values = np.array([3.0, 1.0, 2.0])
    assert quantiles(values, np.ones(3) / 3.0, (0.5,)) == [2.0]


@pytest.mark.parametrize("module", [measured, posterior])
def test_examples_in_docstrings(module):
    failed, attempted = doctest.testmod(module)
    assert failed == 0
    assert attempted > 0
