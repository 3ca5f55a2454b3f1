"""The quick choice of a strategy, held against the search that tries them all."""

import pytest

from scalewise.cli.inputs import ask
from scalewise.errors import InputError
from scalewise.explore.search import search
from scalewise.explore.space import Limits
from scalewise.step.estimate import NEAR_TIE
from scalewise.ui.solve import solve


def nouns(model, on, gpus, batch, seq=4096):
    return ask(model, on, gpus=str(gpus), batch=str(batch), seq=str(seq))


@pytest.mark.parametrize(
    ("model", "on", "gpus", "batch", "seq"),
    [
        ("llama-2-7b", "dgx-h100", 8, 256, 4096),
        ("llama-2-7b", "dgx-h100", 2048, 2048, 4096),
        ("llama-3-70b", "dgx-h100", 512, 1024, 8192),
        ("llama-3-70b", "dgx-a100", 64, 1024, 4096),
        ("llama-3.1-405b", "dgx-h100", 4096, 2048, 8192),
        ("llama-3-8b", "dgx-h100", 128, 128, 32768),
        ("gpt3-1.3b", "dgx-a100", 24, 384, 2048),
    ],
)
def test_loses_no_more_than_two_ties_against_every_strategy(model, on, gpus, batch, seq):
    q = nouns(model, on, gpus, batch, seq)
    found = solve(q.model, q.cluster, q.workload, q.stack)
    limits = Limits(overlap=(True,))
    best = search(q.model, q.cluster, q.workload, limits=limits, stack=q.stack, top=1).best
    assert found.estimate.feasible
    # One for what is not tried, one for taking the simplest of those that are.
    assert found.estimate.step_seconds <= (1 + 2 * NEAR_TIE) * best.step_seconds
    assert found.tried < 20_000


def test_what_is_found_fits_as_predicted_and_reaches_the_batch():
    q = nouns("llama-3-70b", "dgx-h100", 256, 1024)
    e = solve(q.model, q.cluster, q.workload, q.stack).estimate
    assert e.memory_bytes <= e.memory_capacity
    assert e.strategy.accelerators == 256
    assert e.strategy.micro_steps(q.workload) == e.micro_steps


def test_among_near_ties_the_simplest_is_taken():
    q = nouns("llama-2-7b", "dgx-h100", 8, 2048)
    assert str(solve(q.model, q.cluster, q.workload, q.stack).estimate.strategy) == "zero1x8-mb1"


def test_where_nothing_fits_the_nearest_is_told():
    q = nouns("llama-3-70b", "dgx-h100", 8, 1024)
    e = solve(q.model, q.cluster, q.workload, q.stack).estimate
    assert e.infeasible.startswith("memory: needs ")
    assert e.strategy.recompute == "full"


def test_a_size_that_no_strategy_can_share_is_refused():
    q = ask("llama-2-7b", "dgx-h100", gpus="1009", strategy="fsdp1009", batch="1000")
    with pytest.raises(InputError, match="no strategy suits 1,009 accelerators"):
        solve(q.model, q.cluster, q.workload, q.stack)


def test_sizes_with_many_divisors_stay_small():
    q = nouns("llama-2-7b", "dgx-h100", 720_720, 720_720)
    assert solve(q.model, q.cluster, q.workload, q.stack).tried < 70_000
