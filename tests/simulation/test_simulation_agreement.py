"""Two ways to a step: how far they agree over random strategies, as the benchmark draws them."""

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from timeline_agreement import EXPERTS, collect


@pytest.fixture(scope="module")
def cases():
    """Strategies of every kind; the benchmark has thousands."""
    return collect(250, seed=2)


@pytest.fixture(scope="module")
def sparse_cases():
    """The same of models with experts."""
    return collect(100, seed=3, models=EXPERTS)


def differences(cases, *, zero_bubble=True):
    """Of the step time and of exposed communication, as shares of the step."""
    chosen = [
        case
        for case in cases
        if zero_bubble or not case.estimate.strategy.schedule.startswith("zb")
    ]
    return (
        np.abs([case.step for case in chosen]),
        np.abs([case.exposed for case in chosen]),
    )


def test_step_and_exposed_communication_agree(cases):
    for each in differences(cases):
        assert np.median(each) < 0.001
        assert np.quantile(each, 0.9) < 0.02
        assert np.quantile(each, 0.97) < 0.05


def test_without_zero_bubble_they_agree_to_the_last_per_cent(cases):
    for each in differences(cases, zero_bubble=False):
        assert np.quantile(each, 0.99) < 0.05


def test_the_sample_has_every_technique(cases):
    plans = [case.estimate.strategy for case in cases]
    assert {plan.sharding for plan in plans} == {"ddp", "zero1", "zero2", "zero3"}
    deep = {plan.schedule for plan in plans if plan.pp > 1}
    assert deep == {"gpipe", "1f1b", "interleaved", "zbh1", "zbv"}
    assert sum(plan.cp > 1 for plan in plans) > 20
    assert sum(plan.tp > 1 for plan in plans) > 50


def test_models_with_experts_agree_as_well(sparse_cases):
    for each in differences(sparse_cases):
        assert np.median(each) < 0.001
        assert np.quantile(each, 0.9) < 0.025
    for each in differences(sparse_cases, zero_bubble=False):
        assert np.quantile(each, 0.95) < 0.05


def test_the_sample_has_every_way_to_split_experts(sparse_cases):
    plans = [case.estimate.strategy for case in sparse_cases]
    assert sum(plan.ep > 1 for plan in plans) > 40
    assert sum(plan.etp > 1 for plan in plans) > 10
    assert len({case.estimate.model.name for case in sparse_cases}) == 5
    assert {case.estimate.stack.dispatcher for case in sparse_cases} == {
        "nccl", "deepep", "hybridep",
    }  # fmt: skip
