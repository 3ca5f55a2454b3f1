"""The quick choice of a strategy, held against the search that tries them all."""

import pytest

from scalewise.ask.question import Question
from scalewise.ask.resolve import inputs
from scalewise.errors import InputError
from scalewise.explore.search import search
from scalewise.explore.space import Limits
from scalewise.explore.usual import usual
from scalewise.ranges import tie_width


def asked(model, on, gpus, batch, seq=4096):
    return inputs(Question(model=model, on=on, gpus=gpus, batch=batch, seq=seq))


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
        ("mixtral-8x7b", "dgx-h100", 64, 1024, 4096),
        ("qwen3-30b-a3b", "dgx-h100", 128, 1024, 4096),
        ("deepseek-v3", "dgx-h100", 512, 4096, 4096),
    ],
)
def test_loses_no_more_than_two_ties_against_every_strategy(model, on, gpus, batch, seq):
    q = asked(model, on, gpus, batch, seq)
    found = usual(q.model, q.cluster, q.workload, q.stack)
    limits = Limits(overlap=(True,))
    best = search(q.model, q.cluster, q.workload, limits=limits, stack=q.stack, top=1).best
    assert found.estimate.feasible
    # One for what is not tried, one for taking the simplest of those that are.
    assert found.estimate.step_seconds <= (1 + 2 * tie_width()) * best.step_seconds
    assert found.evaluated < (20_000 if q.model.moe is None else 40_000)


def test_what_is_found_fits_as_predicted_and_reaches_the_batch():
    q = asked("llama-3-70b", "dgx-h100", 256, 1024)
    e = usual(q.model, q.cluster, q.workload, q.stack).estimate
    assert e.fit >= 0.9
    assert e.strategy.accelerators == 256
    assert e.strategy.microbatches_of(q.workload) == e.num_microbatches


def test_among_near_ties_the_simplest_is_taken():
    q = asked("llama-2-7b", "dgx-h100", 8, 2048)
    assert str(usual(q.model, q.cluster, q.workload, "megatron").estimate.strategy) == "fsdp8-mb2"


def test_where_nothing_fits_the_nearest_is_told():
    q = asked("llama-3-70b", "dgx-h100", 8, 1024)
    e = usual(q.model, q.cluster, q.workload, q.stack).estimate
    assert e.infeasible.startswith("memory: needs ")
    assert e.strategy.recompute == "full"


def test_a_size_that_no_strategy_can_share_is_refused():
    q = asked("llama-2-7b", "dgx-h100", 1009, 1000)
    with pytest.raises(InputError, match="no strategy suits 1,009 GPUs"):
        usual(q.model, q.cluster, q.workload, q.stack)


def test_sizes_with_many_divisors_stay_small():
    q = asked("llama-2-7b", "dgx-h100", 720_720, 720_720)
    assert usual(q.model, q.cluster, q.workload, q.stack).evaluated < 70_000
