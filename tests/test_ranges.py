"""Intervals of levels and ratios, by hand: what is stated narrows, what is shared cancels."""

import doctest
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from scalewise import ranges
from scalewise.errors import InputError
from scalewise.evidence import degraded
from scalewise.ranges import (
    FILE,
    TIE_CHANCE,
    TIE_DEVIATIONS,
    Z80,
    Basis,
    Effects,
    chance,
    chance_faster,
    knowledge_of,
    level_deviation,
    level_range,
    load_effects,
    mixture_range,
    noise_deviation,
    parts_of,
    plus_minus,
    ratio_deviation,
    ratio_range,
    tie_width,
    with_own_runs,
    without_own_runs,
)
from scalewise.stack import load_stack
from scalewise.terms import TERMS

EFFECTS = Effects(
    family=0.12, generation=0.05, mode=0.09, source=0.12, shape=0.08, compute=0.0, memory=0.3,
    communication=0.4, waiting=0.2, noise=0.02, idle_noise=0.1, scale=0.01, beyond=0.07,
    uncalibrated=0.2, fitted_on="made up",
)  # fmt: skip
COMPUTE = Basis(
    rate=100.0, parts=parts_of({"gemm": 1.0}, 1.0), software="a", family="pytorch", chip="hopper",
    accelerators=8, beyond=0.0, parameters=7e9, seq_len=4096, tokens=8192.0,
)  # fmt: skip
MIXED = replace(COMPUTE, parts=parts_of({"gemm": 0.5, "contention": 0.3, "bubble": 0.2}, 1.0))


def test_examples():
    for module in (ranges, degraded):
        assert doctest.testmod(module).failed == 0


def test_every_term_of_a_step_has_a_part():
    parts = parts_of(dict.fromkeys(TERMS, 0.1), 0.1 * len(TERMS))
    assert sum(parts.values()) == pytest.approx(1.0)
    assert set(parts) == {"compute", "memory", "communication", "waiting"}


class TestLevel:
    @pytest.mark.parametrize(
        ("knowledge", "software"),
        [
            # Squares: 0.12^2 + 0.05^2 = 0.0169 of team and chip, 0.0081 of mode, 0.0144 of family.
            ("runs", 0.0169),
            ("family", 0.0250),
            ("nothing", 0.0394),
        ],
    )
    def test_less_knowledge_is_wider(self, knowledge, software):
        found = level_deviation(replace(COMPUTE, knowledge=knowledge), EFFECTS)
        # 0.08^2 of shape and 0.02^2 of noise on top.
        assert float(found) ** 2 == pytest.approx(software + 0.0064 + 0.0004)

    def test_own_runs_leave_the_noise(self):
        own = replace(COMPUTE, knowledge="own", own_runs=4)
        expected = 1.0 / (1.0 / (0.0169 + 0.0064) + 4 / 0.0004) + 0.0004
        assert float(level_deviation(own, EFFECTS)) ** 2 == pytest.approx(expected)

    def test_noisy_own_runs_count_as_they_are(self):
        own = replace(COMPUTE, own_runs=4, own_noise=0.1)
        assert float(level_deviation(own, EFFECTS)) > 0.1

    def test_terms_count_by_their_fraction(self):
        noise = float(noise_deviation(MIXED, EFFECTS)) ** 2
        assert noise == pytest.approx(0.0004 + 0.0025)
        terms = (0.4 * 0.3) ** 2 + (0.2 * 0.2) ** 2
        found = float(level_deviation(MIXED, EFFECTS)) ** 2
        assert found == pytest.approx(0.0169 + terms + 0.0064 + noise)

    def test_wider_beyond_the_evidence_and_without_a_calibration(self):
        here = float(level_deviation(MIXED, EFFECTS)) ** 2
        far = float(level_deviation(replace(MIXED, beyond=2.0), EFFECTS)) ** 2
        # 0.07 for each of two doublings, of the 0.3 that communicate.
        assert far - here == pytest.approx(2 * 0.01**2 + (0.07 * 2 * 0.3) ** 2)
        here = float(level_deviation(COMPUTE, EFFECTS)) ** 2
        strange = float(level_deviation(replace(COMPUTE, calibrated=False), EFFECTS)) ** 2
        assert strange - here == pytest.approx(0.04)

    def test_range_is_symmetric_in_logs(self):
        low, high = level_range(COMPUTE, EFFECTS)
        assert high == pytest.approx(np.exp(Z80 * np.sqrt(0.0237)))
        assert low * high == pytest.approx(1.0)


class TestRatio:
    def test_what_is_shared_cancels(self):
        # Twice the noise of 0.02, and nothing else.
        assert float(ratio_deviation(COMPUTE, COMPUTE, EFFECTS)) == pytest.approx(0.02 * 2**0.5)
        unknown = replace(COMPUTE, knowledge="nothing")
        assert ratio_deviation(unknown, unknown, EFFECTS) == ratio_deviation(
            COMPUTE, COMPUTE, EFFECTS
        )

    def test_one_configuration_has_one_noise(self):
        assert float(ratio_deviation(COMPUTE, COMPUTE, EFFECTS, paired=True)) == 0.0

    def test_what_differs_stays(self):
        found = float(ratio_deviation(COMPUTE, MIXED, EFFECTS)) ** 2
        noise = 0.0004 + 0.0004 + 0.0025
        terms = (0.4 * 0.3) ** 2 + (0.2 * 0.2) ** 2
        apart = (0.5**2 + 0.3**2 + 0.2**2) / 0.1**2
        shape = 2 * 0.0064 * (1.0 - np.exp(-0.5 * apart))
        assert found == pytest.approx(noise + terms + shape)

    @pytest.mark.parametrize(
        ("change", "more"),
        [
            ({"accelerators": 64}, 3 * 0.01**2),
            ({"beyond": 2.0}, 0.0),
            ({"software": "b"}, 2 * 0.09**2),
            ({"software": "b", "family": "megatron"}, 2 * 0.12**2),
            ({"chip": "blackwell"}, 2 * 0.05**2),
            ({"chip": "toy", "calibrated": False}, 2 * 0.05**2 + 0.04),
            ({"tokens": 4 * 8192.0}, 2 * 0.08**2 * (1.0 - np.exp(-0.5))),
        ],
    )
    def test_each_difference(self, change, more):
        other = replace(COMPUTE, **change)
        found = float(ratio_deviation(COMPUTE, other, EFFECTS)) ** 2
        assert found - 0.0008 == pytest.approx(more)

    def test_extrapolated_communication_does_not_cancel(self):
        found = float(ratio_deviation(MIXED, replace(MIXED, beyond=2.0), EFFECTS)) ** 2
        noise = 2 * (0.0004 + 0.0025)
        assert found - noise == pytest.approx((0.07 * 2 * 0.3) ** 2)

    def test_range_and_chance_agree(self):
        # Where the low end of the 80% interval is 1, the chance is 90%.
        reach = np.exp(Z80 * 0.02 * 2**0.5)
        faster = replace(COMPUTE, rate=100.0 * reach)
        low, high = ratio_range(faster, COMPUTE, EFFECTS)
        assert (low, high) == pytest.approx((1.0, reach**2))
        assert float(chance_faster(faster, COMPUTE, EFFECTS)) == pytest.approx(0.9, abs=1e-4)
        assert float(chance_faster(COMPUTE, faster, EFFECTS)) == pytest.approx(0.1, abs=1e-4)

    def test_arrays(self):
        many = replace(COMPUTE, rate=np.array([90.0, 100.0, 110.0]))
        found = chance_faster(many, COMPUTE, EFFECTS)
        assert found[1] == pytest.approx(0.5)
        assert found[0] == pytest.approx(1.0 - float(chance_faster(COMPUTE, replace(
            COMPUTE, rate=90.0), EFFECTS)), abs=1e-6)  # fmt: skip


class TestMixture:
    def test_one_answer_has_its_own_interval(self):
        low, high = level_range(COMPUTE, EFFECTS)
        found = mixture_range([COMPUTE], EFFECTS)
        assert found == pytest.approx((100.0 * low, 100.0 * high), rel=1e-4)
        assert mixture_range([COMPUTE, COMPUTE], EFFECTS) == pytest.approx(found)

    def test_two_answers_are_wider_than_each_and_narrower_than_both(self):
        slow = replace(COMPUTE, rate=70.0)
        (first, last), (low, high) = (mixture_range([b], EFFECTS) for b in (slow, COMPUTE))
        ends = mixture_range([slow, COMPUTE], EFFECTS)
        assert first < ends[0] < low
        assert last < ends[1] < high


def test_ties():
    assert float(chance(-TIE_DEVIATIONS, 1.0)) == pytest.approx(TIE_CHANCE, abs=1e-4)
    assert tie_width(EFFECTS) == pytest.approx(np.expm1(0.4307 * 0.0282843), rel=1e-5)


def test_own_runs_of_a_question():
    own = with_own_runs(COMPUTE, [0.10, 0.12, 0.08])
    assert (own.own_runs, own.knowledge) == (3, "own")
    assert own.own_noise == pytest.approx(0.02)
    assert without_own_runs(own).own_runs == 0
    before, after = (level_range(b, EFFECTS) for b in (without_own_runs(own), own))
    assert (plus_minus(before), plus_minus(after)) == ("±23%", "±3%")


def test_knowledge():
    megatron = load_stack("megatron")
    assert knowledge_of(megatron, stated=True) == "runs"
    assert knowledge_of(megatron, stated=False) == "nothing"
    guessed = msgspec.structs.replace(megatron, stands_in=True)
    assert knowledge_of(guessed, stated=True) == "nothing"
    assert knowledge_of(msgspec.structs.replace(megatron, runs=29), stated=True) == "family"
    assert knowledge_of(msgspec.structs.replace(megatron, own_runs=3), stated=False) == "own"


def test_a_catalog_of_ones_own_may_have_effects(tmp_path, monkeypatch):
    text = FILE.read_text(encoding="utf-8")
    shipped = load_effects()
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path / "empty"))
    assert load_effects() == shipped
    (tmp_path / "ranges.toml").write_text(text.replace(
        f"noise = {shipped.noise}", "noise = 0.0123", 1), encoding="utf-8")  # fmt: skip
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    assert load_effects().noise == 0.0123


def test_the_catalog_has_positive_effects():
    effects = load_effects()
    assert 0.0 < effects.noise < effects.source < 0.5
    with pytest.raises(InputError, match=r"ranges\.toml: source = -1"):
        msgspec.structs.replace(effects, source=-1.0)


def test_experts_widen_a_level_and_cancel_in_a_ratio():
    effects = msgspec.structs.replace(EFFECTS, experts=0.05, recipe=0.12)
    known = [
        float(level_deviation(replace(COMPUTE, experts=software), effects)) ** 2
        for software in ("none", "stated", "usual")
    ]
    assert known[1] - known[0] == pytest.approx(0.05**2)
    assert known[2] - known[1] == pytest.approx(0.12**2)
    usual = replace(COMPUTE, experts="usual")
    assert ratio_deviation(usual, usual, effects) == ratio_deviation(COMPUTE, COMPUTE, effects)
    # Own runs identify them.
    own = with_own_runs(usual, [0.0] * 50)
    assert float(level_deviation(own, effects)) < 0.025


def test_shipped_effects_of_experts():
    effects = load_effects()
    assert 0.03 < effects.experts < 0.15
    assert 0.05 < effects.recipe < 0.3
