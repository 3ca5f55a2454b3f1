"""Diagnoses: planted causes are found, healthy runs are normal, odds are as right as they say."""

import math
import sys
from pathlib import Path

import numpy as np
import pytest

import scalewise as sw
from scalewise.diagnosis.predict import predict
from scalewise.diagnosis.runs import resized
from scalewise.strategy import parse_strategy

RUN = {"model": "llama-3-8b", "on": "oci-h100", "gpus": 32, "strategy": "fsdp32-mb1-acop",
       "seq": 8192, "batch": 32}  # fmt: skip


def diagnose(measured, **words):
    return sw.diagnose(**{**RUN, **words}, measured=measured)


@pytest.fixture(scope="module")
def one():
    return diagnose("1,786 tok/s")


@pytest.fixture(scope="module")
def two():
    return diagnose({8: 7144, 32: 1786})


def test_one_number_of_a_slow_network(one):
    assert one.verdict == "slow"
    assert one.causes[0].key == "tcp"
    assert 0.3 < one.causes[0].odds < 0.6
    assert one.causes[1].key == "pcie"
    assert 0.15 < one.other < 0.3
    assert one.groups[0].key == "network"
    total = one.healthy + one.other + sum(cause.odds for cause in one.causes)
    assert total == pytest.approx(1.0, abs=0.02)


def test_the_named_measurement_is_the_run_on_one_node(one):
    first = one.following[0]
    assert first.key == "node"
    assert 1.0 < first.bits < one.entropy
    assert first.gpu_hours == pytest.approx(8 / 6)
    assert "NCCL over TCP sockets instead of RDMA" in first.outcomes[0][1]
    assert one.following[-1].key == "matmul"


def test_a_second_size_makes_the_network_certain(two):
    assert two.causes[0].key == "tcp"
    assert two.causes[0].odds > 0.98
    assert [run.gpus for run in two.runs] == [32, 8]
    assert two.runs[1].strategy == "fsdp8-mb1-acop"
    assert two.causes[0].misfit < 0.2


@pytest.mark.parametrize("place", [4, 9, 14])
def test_inversion_recovers_a_planted_rate(place):
    e = sw.estimate(**RUN)
    table = predict([e])
    center = 0.5 * math.log(e.low * e.high) - math.log(e.tokens_per_second_per_accelerator)
    point = table.points("tcp")[place]
    rate = math.exp(table.log_rate[0, point] + center)
    found = diagnose(f"{rate} tok/s")
    cause = next(each for each in found.causes if each.key == "tcp")
    assert cause.value == pytest.approx(table.value[point], rel=0.05)
    assert cause.low < cause.value < cause.high
    assert cause.misfit < 0.01


@pytest.mark.parametrize("part", [0.92, 1.0, 1.15])
def test_a_healthy_run_is_normal_and_has_no_cause(part):
    rate = part * sw.estimate(**RUN).tokens_per_second_per_accelerator
    found = diagnose(f"{rate} tok/s")
    assert found.verdict == "normal"
    assert found.causes == ()
    assert found.healthy > 0.35


def test_healthy_sizes_are_normal():
    small = sw.estimate(**{**RUN, "gpus": 8, "strategy": "fsdp8-mb1-acop", "batch": 8})
    rates = {8: 0.95 * small.tokens_per_second_per_accelerator,
             32: 0.95 * sw.estimate(**RUN).tokens_per_second_per_accelerator}  # fmt: skip
    assert diagnose(rates).verdict == "normal"


def test_faster_than_possible_says_how_it_may_be_counted():
    e = sw.estimate(**RUN)
    total = 32 * e.tokens_per_second_per_accelerator
    found = diagnose(f"{total} tok/s")
    assert found.verdict == "fast"
    assert found.faster[0].startswith("tokens/s of all GPUs")
    assert found.faster[0].endswith("matches")
    assert diagnose(f"{total} tok/s total").verdict == "normal"


def test_an_mfu_over_the_sparse_peak():
    e = sw.estimate(**RUN)
    found = diagnose(f"{50.0 * e.mfu} % MFU")
    assert found.verdict == "slow"
    assert any("989 TFLOP/s" in note for note in found.notes)


def test_evidence_separates_what_one_number_cannot(one):
    nccl = diagnose("1786 tok/s", nccl="12GB/s")
    assert nccl.causes[0].key == "tcp"
    assert nccl.causes[0].odds > 0.9
    assert all(each.key != "nccl" for each in nccl.following)
    clear = diagnose("1786 tok/s", nccl="270GB/s")
    assert clear.causes[0].key == "pcie"
    stalled = diagnose("1786 tok/s", profile="compute=0.27,exposed=0.02,idle=0.71")
    assert stalled.causes[0].key == "stall"
    assert stalled.causes[0].odds > 0.6


def test_runs_of_different_software_share_no_level():
    together = diagnose({8: 4000, 32: 4000})
    apart = diagnose({8: 4000, 32: 4000}, software_differs=True)
    assert together.causes[0].odds != apart.causes[0].odds


def test_a_run_may_have_a_strategy_of_its_own():
    found = diagnose("fsdp32-mb1-acop=1786,hsdp4x8-mb1-acop=1900")
    assert [run.strategy for run in found.runs] == ["fsdp32-mb1-acop", "hsdp4x8-mb1-acop"]
    assert found.causes[0].key == "tcp"
    assert all(each.key != "sharding" for each in found.following)


def test_what_no_cause_explains_is_said():
    # Sockets would slow the reduction between replicas down as well.
    found = diagnose("fsdp32-mb1-acop=1786,hsdp4x8-mb1-acop=5500")
    assert found.verdict == "slow"
    assert found.other > 0.95
    assert found.causes == ()


def test_what_was_chosen_is_to_be_stated():
    found = sw.diagnose("llama-2-7b", on="dgx-h100", gpus=16, measured="5000")
    assert any("--strategy, --batch" in note for note in found.notes)


def test_published_runs_are_named(one):
    assert 1 <= len(one.comparable) <= 3
    assert len({each.source for each in one.comparable}) == len(one.comparable)
    assert all(each.rate > 0 and 0 < each.mfu < 1 and each.reference for each in one.comparable)


def test_resized():
    assert resized(parse_strategy("hsdp4x8-mb1"), 32, 16) == (parse_strategy("hsdp2x8-mb1"), 16)
    assert resized(parse_strategy("hsdp4x8-mb1"), 32, 4) == (parse_strategy("fsdp4-mb1"), 4)
    assert resized(parse_strategy("zero1x4-tp8"), 32, 8) == (parse_strategy("zero1x1-tp8"), 8)
    assert resized(parse_strategy("zero1x4-tp8"), 32, 4) is None
    assert resized(parse_strategy("fsdp32"), 33, 8) is None


@pytest.mark.parametrize(
    ("words", "rule"),
    [
        ({"measured": "best=5"}, "not a strategy with its sizes"),
        ({"measured": "3=5,32=1786"}, "do not scale to 3 GPUs"),
        ({"measured": "1786", "strategy": "fsdp8-mb1"}, "8"),
        ({"measured": "1786", "batch": 33}, "batch"),
    ],
)
def test_runs_that_cannot_be(words, rule):
    with pytest.raises(sw.InputError) as error:
        sw.diagnose(**{**RUN, "strategy": "zero1x4-tp8-mb1", **words})
    assert rule in str(error.value)


def test_result_shows_itself(one):
    assert repr(one).startswith("<Diagnosis: Slow: 1,786 tok/s/GPU measured")
    assert "<td>" in one._repr_html_()
    frame = one.to_frame()
    assert frame.columns[:4] == ["model", "cluster", "accelerators", "strategy"]
    assert len(frame) == len(one.causes) + 2
    plain = one.to_dict()
    assert plain["verdict"] == "slow"
    assert plain["causes"][0]["key"] == "tcp"
    assert plain["next"][0]["key"] == "node"
    assert len(one.plot().data) == 1


def test_odds_are_right_as_often_as_they_say():
    sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
    import random

    import diagnose_synthetic as synthetic

    draw, noise = random.Random(5), np.random.default_rng(5)
    trials = [synthetic.trial(draw, noise, damaged=True) for _ in range(60)]
    trials += [synthetic.trial(draw, noise, damaged=False) for _ in range(24)]
    pairs = [(t, synthetic.judge(t, "one number")) for t in trials]
    stated, right = [], []
    for t, found in pairs:
        keys = found.state.table.keys
        best = int(np.argmax(found.causes[:-1]))
        stated.append(found.causes[best] / found.causes[:-1].sum())
        right.append(keys[best] == t.key)
    # Three standard errors of 84 draws.
    assert np.mean(right) == pytest.approx(np.mean(stated), abs=0.16)
    healthy = [synthetic._first(found) == "healthy" for t, found in pairs if t.key == "healthy"]
    assert np.mean(healthy) > 0.75


def test_information_is_between_nothing_and_all(one):
    bits = {each.key: each.bits for each in one.following}
    assert set(bits) == {
        "node", "nccl", "profile", "sharding", "micro_batch", "accumulation", "matmul",
    }  # fmt: skip
    assert all(0.0 <= value <= one.entropy for value in bits.values())
    # All that is left of one number is in the network, links, data and padding.
    assert bits["matmul"] < 0.15 < 0.6 < bits["nccl"] < bits["node"]
