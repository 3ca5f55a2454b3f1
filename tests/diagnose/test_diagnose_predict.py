"""Predictions under every cause: by columns as by the words of a question, and by arithmetic."""

import msgspec
import numpy as np
import pytest

import scalewise as sw
from scalewise.diagnosis.causes import CAUSES, HEALTHY, OTHER, STAGED
from scalewise.diagnosis.parts import COARSE, shares
from scalewise.diagnosis.predict import Table, predict
from scalewise.step.result import Estimate

WORDS = {"model": "llama-3-8b", "on": "dgx-h100", "gpus": 32, "seq": 8192, "batch": 128,
         "stack": "pytorch-compiled"}  # fmt: skip


def asked(**words) -> Estimate:
    return sw.estimate(**{**WORDS, "strategy": "fsdp32-mb1", **words})


@pytest.fixture(scope="module")
def fsdp() -> tuple[Estimate, Table]:
    e = asked()
    return e, predict([e])


def rate(table: Table, key: str, place: int = 0) -> float:
    return float(np.exp(table.log_rate[0, table.points(key)[place]]))


def test_the_first_point_is_the_estimate(fsdp):
    e, table = fsdp
    assert np.exp(table.log_rate[0, 0]) == pytest.approx(e.tokens_per_second_per_accelerator)
    assert table.parts[0].sum(axis=1) == pytest.approx(np.ones(table.parts.shape[1]))


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("recompute", {"strategy": "fsdp32-mb1-acfull"}),
        ("unfused", {"sets": ["stack.attention_kernel=unfused"]}),
        ("pcie", {"sets": ["cluster.scale_up_bandwidth=8GB/s"]}),
    ],
)
def test_columns_give_the_rate_of_the_words(fsdp, key, words):
    e, table = fsdp
    if key == "pcie":
        # The words know the rate of a link, the column what a ring sustains of it.
        kept = e.many.chip.link_efficiency
        words = {"sets": [f"cluster.scale_up_bandwidth={8e9 / kept}B/s",
                          "cluster.accelerator.nvls=false"]}  # fmt: skip
    changed = asked(**words).tokens_per_second_per_accelerator
    assert rate(table, key) == pytest.approx(changed, rel=1e-6)


def test_sockets_give_the_rate_of_the_network_word(fsdp):
    _, table = fsdp
    points = table.points("tcp")
    value = table.value[points][10]
    words = asked(sets=[f"cluster.scale_out_bandwidth={value / 8 / 0.6}B/s"], network="tcp")
    # The column is the rate of a node, whatever NICs it has.
    fabric = msgspec.structs.replace(words.cluster.fabric, rail_scaling=1.0)
    changed = sw.estimate(
        words.model, words.cluster.with_(fabric=fabric), words.workload, words.strategy,
        stack=words.stack,
    )  # fmt: skip
    assert rate(table, "tcp", 10) == pytest.approx(
        changed.tokens_per_second_per_accelerator, rel=1e-6
    )


def test_arithmetic_on_terms(fsdp):
    e, table = fsdp
    points = table.points("stall")
    seconds = e.step_seconds + table.value[points]
    tokens = e.workload.tokens_per_step / 32
    assert np.exp(table.log_rate[0, points]) == pytest.approx(tokens / seconds)
    points = table.points("padding")
    usual = e.tokens_per_second_per_accelerator
    assert np.exp(table.log_rate[0, points]) == pytest.approx(usual * table.value[points])


def test_a_step_time_does_not_count_tokens():
    e = asked()
    timed = predict([e], by_time=[True])
    assert np.ptp(timed.log_rate[0, timed.points("padding")]) == 0.0
    assert np.isinf(timed.log_prior[timed.points("padding")]).all()


def test_fewer_micro_batches(fsdp):
    e, table = fsdp
    assert e.num_microbatches == 4
    half = asked(batch=64).tokens_per_second_per_accelerator
    assert rate(table, "fewer") == pytest.approx(half, rel=1e-6)


def test_waiting_for_a_slow_node_is_exposed_communication(fsdp):
    _, table = fsdp
    point = table.points("slow_node")[-1]
    usual, parts = table.parts[0, 0], table.parts[0, point]
    compute, exposed, idle = (float(shares(parts, name)) for name in COARSE)
    assert exposed > 0.5 > compute
    assert compute * np.exp(-table.log_rate[0, point]) == pytest.approx(
        shares(usual, "compute") * np.exp(-table.log_rate[0, 0])
    )
    assert idle < 0.1


def test_rank_order_spreads_tensor_groups():
    e = asked(strategy="zero1x16-tp2-mb1", stack="megatron")
    table = predict([e])
    assert np.exp(table.log_rate[0, 0]) / rate(table, "rank_order") == pytest.approx(1.3, abs=0.3)
    assert len(predict([asked()]).points("rank_order")) == 0


def test_reductions_in_every_micro_step():
    e = asked(
        model="gpt3-1.3b",
        strategy="ddp32-mb1",
        seq=2048,
        sets=["cluster.scale_out_bandwidth=3GB/s"],
    )
    table = predict([e])
    seconds = e.workload.tokens_per_step / 32 / rate(table, "every_step")
    exposed = float(np.ravel(e.many.step.once.exposed)[0])
    assert seconds - e.step_seconds == pytest.approx(3 * exposed)
    assert exposed > 0.01 * e.step_seconds


def test_priors_add_up_and_small_losses_are_no_cause(fsdp):
    _, table = fsdp
    prior = np.exp(table.log_prior)
    assert prior.sum() == pytest.approx(1.0)
    assert prior[0] == HEALTHY
    assert table.of_causes(prior)[-1] == pytest.approx(OTHER)
    lost = table.log_rate[0, 0] - table.log_rate[0]
    assert (prior[(lost < np.log(1.05)) & (table.cause > 0)] == 0.0).all()


def test_one_node_has_no_network():
    e = asked(gpus=8, strategy="fsdp8-mb1", batch=32)
    table = predict([e])
    for key in ("tcp", "nics", "slow_node"):
        assert len(table.points(key)) == 0


def test_every_cause_has_words():
    for cause in CAUSES.values():
        assert cause.check
        assert not cause.check.endswith(".")
        assert cause.prior > 0.0


def test_an_mfu_may_be_over_the_sparse_peak(fsdp):
    e, plain = fsdp
    counted = predict([e], by_flops=[True])
    point = counted.points("counting")[0]
    assert counted.log_rate[0, 0] - counted.log_rate[0, point] == pytest.approx(np.log(2.0))
    assert np.isinf(plain.log_prior[plain.points("counting")]).all()


def test_network_without_gpudirect_is_a_fraction_of_its_rate(fsdp):
    e, table = fsdp
    points = table.points("nics")
    staged = points[table.variant[points] == STAGED]
    assert table.value[staged][[0, -1]] == pytest.approx([0.33, 0.83])
    assert CAUSES["nics"].words is not None
    assert CAUSES["nics"].words(0.5, STAGED) == "50% of the usual rate (no GPUDirect, other rails)"
    assert CAUSES["nics"].words(0.125, 0.125) == "1 of every 8 NICs"
    shown = CAUSES["nics"].shows
    assert shown is not None
    assert shown(e, 0.5, STAGED).startswith("nccl-tests between two nodes shows about 143 GB/s")


def test_slow_tensor_parallelism_is_of_pytorch():
    e = asked(strategy="fsdp4-tp8-mb1")
    table = predict([e])
    points = table.points("eager_tp")
    seconds = e.workload.tokens_per_step / 32 / np.exp(table.log_rate[0, points[-1]])
    assert seconds - e.step_seconds == pytest.approx(7.0 * e.terms["tensor_parallel"])
    assert (
        len(predict([asked(strategy="zero1x4-tp8-mb1", stack="megatron")]).points("eager_tp")) == 0
    )
