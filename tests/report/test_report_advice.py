import re

import pytest

from report_cases import CASES, priced
from scalewise import estimate, parse_strategy
from scalewise.report.advice import advice, neighbours


@pytest.mark.parametrize("name", CASES)
def test_neighbours_use_the_same_accelerators(name):
    e = priced(name)
    found = neighbours(e)
    assert found
    for why, strategy in found.items():
        assert strategy.accelerators == e.cluster.accelerators, why
        assert strategy != e.strategy


def test_advice_names_the_largest_avoidable_term_and_a_tried_change(fsdp):
    first = advice(fsdp)[0]
    name = max(
        ("contention", "data_parallel_gather", "data_parallel_reduce", "overhead"),
        key=lambda term: fsdp.terms[term],
    )
    share = fsdp.terms[name] / fsdp.step_seconds
    assert f"is the largest avoidable cost: {share * 100:.1f} % of the step." in first
    spelled = re.search(r"Try (\S+) \(", first)[1]
    tried = estimate(fsdp.model, fsdp.cluster, fsdp.workload, parse_strategy(spelled))
    gain = tried.tokens_per_second_per_accelerator / fsdp.tokens_per_second_per_accelerator - 1
    assert gain > 0.02
    assert first.endswith(f"predicted, {gain * 100:+.0f} %.")


def test_advice_for_what_does_not_fit_is_something_that_fits():
    e = priced("fsdp")
    large = estimate(
        e.model, e.cluster.with_(accelerator=e.cluster.accelerator.with_(memory_bytes="20GiB")),
        e.workload, e.strategy,
    )  # fmt: skip
    assert large.infeasible is not None
    told = advice(large)
    assert len(told) == 1
    spelled = told[0].split()[0]
    fits = estimate(large.model, large.cluster, large.workload, parse_strategy(spelled))
    assert fits.feasible
    assert " fits: " in told[0]


@pytest.mark.parametrize("name", CASES)
def test_there_are_one_or_two_sentences(name):
    told = advice(priced(name))
    assert 1 <= len(told) <= 2
    assert all(sentence.endswith(".") for sentence in told)
