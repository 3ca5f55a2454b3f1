"""Feasibility: the first reason that applies, and a sentence for it."""

import numpy as np
import pytest

from scalewise.errors import InputError
from scalewise.step.estimate import RAN_FIT, estimate
from scalewise.step.feasibility import REASONS, feasibility
from scalewise.strategy import parse_strategy
from toys import case_of, toy_cluster, toy_experts, toy_model, toy_stack, toy_workload

# On 8 accelerators, 4 layers, 8 heads, 1000 tokens, 16 sequences.
ANSWERS = [
    ("fsdp8-mb2", "fits"),
    ("fsdp4-mb2", "mesh"),
    ("fsdp8-tp2", "mesh"),
    ("fsdp8-mb3", "batch"),
    ("fsdp8-mb4", "batch"),
    ("fsdp1-cp8", "fits"),
    ("fsdp1-pp8", "stages"),
    ("fsdp2-pp4-v2", "stages"),
    ("fsdp2-pp4", "fits"),
    ("fsdp2-pp2-tp2-v2", "fits"),
    ("fsdp2-pp4-first2", "stages"),
    ("fsdp4-pp2-first1-last1", "stages"),
    ("fsdp4-pp2-last5", "stages"),
    ("fsdp8-fp8-gatherfp8", "fits"),
    ("fsdp8-fp8block-gatherfp8", "fits"),
    ("fsdp8-fp8row-gatherfp8", "precision"),
    ("fsdp8-mxfp8-gatherfp8", "precision"),
    ("zero1x8-gatherfp8", "precision"),
]


@pytest.mark.parametrize(("spelling", "reason"), ANSWERS)
def test_reasons(spelling, reason):
    code = feasibility(case_of(spelling), np.array([0.0]))
    assert REASONS[int(code[0])].split(":")[0] == reason


# Eight experts of 2048 on 8 ranks.
EXPERTS = [
    ("fsdp8-ep8", "fits"),
    ("fsdp8-ep4-etp2", "fits"),
    ("fsdp2-tp4-ep8", "fits"),
    ("fsdp2-tp4-nosp", "experts"),  # all tensor-parallel ranks have the same tokens
    ("fsdp8-ep3", "experts"),
    ("fsdp8-ep8-etp2", "experts"),  # 16 ranks
    ("fsdp4-pp2-ep8", "experts"),  # a stage has four
    ("fsdp4-pp2-ep4", "fits"),
    ("ddp8-ep8", "fits"),
    ("zero1x4x2-ep4", "fits"),  # two replicas of experts in every four ranks
    ("hsdp2x4-etp8", "fits"),
    ("fsdp4-ep4", "mesh"),
]


@pytest.mark.parametrize(("spelling", "reason"), EXPERTS)
def test_reasons_of_experts(spelling, reason):
    code = feasibility(case_of(spelling, model=toy_experts()), np.array([0.0]))
    assert REASONS[int(code[0])].split(":")[0] == reason


def test_shards_of_experts_are_whole():
    # Six shards cannot be divided among groups of four.
    cluster, workload = toy_cluster(12), toy_workload(global_batch=12)
    toys = {"model": toy_experts(), "cluster": cluster, "workload": workload}
    case = case_of("hsdp2x6-ep4", "ddp12-ep4", "fsdp12-ep4", "zero1x2x6-ep2", **toys)
    reasons = [REASONS[int(code)].split(":")[0] for code in feasibility(case, np.zeros(4))]
    assert reasons == ["experts", "fits", "fits", "fits"]


def test_a_strategy_whose_shards_of_experts_are_not_whole_is_refused_alone_and_among_others():
    # Two ranks share the experts, three shard the optimizer: neither divides the other.
    model, cluster, workload = toy_experts(), toy_cluster(24), toy_workload(global_batch=24)
    strategies = [parse_strategy(spelled) for spelled in ("zero1x8x3-ep2", "zero1x6x4-ep2")]
    many = estimate(model, cluster, workload, strategies, stack=toy_stack())
    assert many.feasible.tolist() == [False, True]
    with pytest.raises(InputError, match="ep x etp = 2 and the 3 ranks of a sharding group") as e:
        estimate(model, cluster, workload, strategies[0], stack=toy_stack())
    assert e.value.hint == "make one a multiple of the other"


@pytest.mark.parametrize("spelling", ["fsdp8-ep2", "fsdp8-etp2"])
def test_dense_models_have_no_experts_to_split(spelling):
    code = feasibility(case_of(spelling), np.array([0.0]))
    assert REASONS[int(code[0])].split(":")[0] == "experts"
    field = spelling.split("-")[1][:-1]
    with pytest.raises(InputError, match=f"{field} = 2 needs a mixture of experts"):
        estimate(toy_model(), toy_cluster(), toy_workload(), parse_strategy(spelling))


@pytest.mark.parametrize(
    ("spelling", "says"),
    [
        ("fsdp8-ep3", "ep = 3 does not divide the 8 experts of toy"),
        ("fsdp8-etp3", "etp = 3 does not divide the 2,048 columns of an expert of toy"),
        ("fsdp4-pp2-ep8", "ep x etp = 8 does not divide the 4 ranks of a pipeline stage"),
    ],
)
def test_degrees_of_experts_divide_what_they_split(spelling, says):
    with pytest.raises(InputError, match=says) as caught:
        estimate(toy_experts(), toy_cluster(), toy_workload(), parse_strategy(spelling))
    assert caught.value.hint


def test_heads_and_sequence():
    model, cluster = toy_model(heads=12, head_dim=128), toy_cluster(24)
    workload = toy_workload(global_batch=24)
    case = case_of(
        "fsdp3-tp8", "fsdp1-tp8-cp3", "fsdp8-cp3", "fsdp6-tp4",
        model=model, cluster=cluster, workload=workload,
    )  # fmt: skip
    reasons = [REASONS[int(code)].split(":")[0] for code in feasibility(case, np.zeros(4))]
    # Each gets the first reason only.
    assert reasons == ["heads", "heads", "sequence", "fits"]


def test_memory_is_the_last_reason():
    case = case_of("fsdp8", "fsdp8-mb3", "fsdp8")
    codes = feasibility(case, np.array([16e9 + 1.0, 16e9 + 1.0, 16e9]))
    assert [REASONS[int(code)].split(":")[0] for code in codes] == ["memory", "batch", "fits"]


def test_only_what_certainly_does_not_fit_is_refused():
    # The toy's interval is 0.5 to 1.5: up to twice the memory may still fit.
    model, workload, strategy = toy_model(), toy_workload(), parse_strategy("ddp8")
    needed = estimate(model, toy_cluster(), workload, strategy, stack=toy_stack()).memory_bytes

    def answer(memory):
        chip = toy_cluster().accelerator.with_(memory_bytes=memory)
        cluster = toy_cluster(accelerator=chip)
        return estimate(model, cluster, workload, strategy, stack=toy_stack(), fit=RAN_FIT)

    tight = answer(needed * 0.51)
    assert tight.infeasible is None
    assert tight.memory_headroom < 0.0
    assert 0.1 < tight.fit < 0.11
    refused = answer(needed * 0.49)
    assert refused.infeasible.startswith("memory: needs ")
    assert "optimizer" in refused.infeasible
    assert not refused.feasible
    assert refused.memory_headroom < 0.0
    assert refused.step_seconds > 0.0
    assert 0.09 < refused.fit < 0.1


def test_the_chance_to_fit_decides():
    # The toy's 80 % interval is 0.5 to 1.5: its ends have chances of 0.9 and 0.1.
    model, workload, strategy = toy_model(), toy_workload(), parse_strategy("ddp8")
    needed = estimate(model, toy_cluster(), workload, strategy, stack=toy_stack()).memory_bytes

    def answer(memory, **fit):
        chip = toy_cluster().accelerator.with_(memory_bytes=memory)
        cluster = toy_cluster(accelerator=chip)
        return estimate(model, cluster, workload, strategy, stack=toy_stack(), **fit)

    for factor, chance in ((0.5, 0.1), (1.0, 0.5), (1.5, 0.9)):
        assert answer(needed * factor).fit == pytest.approx(chance, abs=1e-6)
        assert answer(needed * factor * 1.001, fit=chance).feasible
        assert not answer(needed * factor * 0.999, fit=chance).feasible
    # What the user states has to fit as predicted.
    assert answer(needed * 1.001).feasible
    assert not answer(needed * 0.999).feasible


def test_one_among_many_is_an_answer():
    many = [parse_strategy(spelling) for spelling, _ in ANSWERS]
    result = estimate(toy_model(), toy_cluster(), toy_workload(), many, stack=toy_stack())
    assert result.feasible.tolist() == [reason == "fits" for _, reason in ANSWERS]
    for row, (_, reason) in enumerate(ANSWERS):
        infeasible = result[row].infeasible
        assert (infeasible is None) if reason == "fits" else infeasible.startswith(reason)
    assert np.all(np.isfinite(result.step_seconds))


@pytest.mark.parametrize(
    ("spelling", "says"),
    [
        ("fsdp4-mb2", "but the cluster has 8"),
        ("fsdp8-mb3", "not a multiple of micro_batch 3"),
        ("fsdp1-pp8", "pp = 8 is more stages than the 4 layers"),
        ("fsdp2-pp4-v2", "8 chunks of the 4 layers"),
        ("fsdp2-pp4-first2", "first_stage_layers = 2"),
        ("fsdp4-pp2-first1-last1", "leave 2 layers"),
    ],
)
def test_a_single_impossible_strategy_is_refused(spelling, says):
    with pytest.raises(InputError, match=says) as caught:
        estimate(
            toy_model(), toy_cluster(), toy_workload(), parse_strategy(spelling), stack=toy_stack()
        )
    assert caught.value.hint


def test_degrees_that_do_not_divide_are_refused():
    model, cluster = toy_model(heads=12, head_dim=128), toy_cluster(24)
    workload = toy_workload(global_batch=24)
    with pytest.raises(InputError, match="tp = 8 does not divide the 12 attention heads") as caught:
        estimate(model, cluster, workload, parse_strategy("fsdp3-tp8"))
    assert "1, 2, 3, 4, 6, 12" in caught.value.hint
    with pytest.raises(InputError, match="cp = 3 does not divide the sequence of 1000"):
        estimate(model, cluster, workload, parse_strategy("fsdp8-cp3"))
