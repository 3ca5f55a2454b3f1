"""The quick choice of a strategy, held against the search that tries them all."""

import msgspec
import pytest

from scalewise.ask.question import Question
from scalewise.ask.resolve import inputs
from scalewise.errors import InputError
from scalewise.explore import usual as module
from scalewise.explore.search import search
from scalewise.explore.space import Limits
from scalewise.explore.usual import usual
from scalewise.ranges import tie_width
from scalewise.stack import load_stack


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


def test_a_choice_is_kept_until_something_changes_that_it_depends_on(monkeypatch):
    q = asked("llama-2-7b", "dgx-h100", 32, 1024)
    first = usual(q.model, q.cluster, q.workload, "megatron")
    chosen = []
    choose = module._choose
    monkeypatch.setattr(module, "_choose", lambda *a: chosen.append(1) or choose(*a))
    longer = msgspec.structs.replace(q.workload, tokens=1e12, goodput="spares=2")
    again = usual(q.model, q.cluster, longer, "megatron")
    assert (again.strategy, again.evaluated, chosen) == (first.strategy, first.evaluated, [])
    assert again.estimate.workload.tokens == 1e12
    assert again.estimate.days > 0.0
    assert first.estimate.days is None
    stack = load_stack("megatron")
    for changed in (
        (q.model, q.cluster.with_(power_cap_watts=500.0), q.workload, "megatron"),
        (q.model, q.cluster, msgspec.structs.replace(q.workload, seq_len=2048), "megatron"),
        (q.model, q.cluster, q.workload, msgspec.structs.replace(stack, gemm=0.9 * stack.gemm)),
    ):
        usual(*changed)
    usual(q.model, q.cluster, q.workload, "megatron", fit=0.5)
    usual(q.model, q.cluster, q.workload, "megatron", by="memory")
    assert len(chosen) == 5


def test_so_many_choices_are_kept(monkeypatch):
    monkeypatch.setattr(module, "_kept", {})
    monkeypatch.setattr(module, "MAX_KEPT", 2)
    for batch in (64, 128, 256):
        q = asked("gpt3-1.3b", "dgx-h100", 8, batch)
        usual(q.model, q.cluster, q.workload, "megatron")
    assert len(module._kept) == 2
