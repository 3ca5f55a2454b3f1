"""Verdicts and summaries: by hand on made-up rows, and as a guard on the shipped table."""

import json
from dataclasses import replace

import numpy as np
import pytest

from scalewise.evidence.leave_out import LeftOut
from scalewise.evidence.runs import read_runs
from scalewise.evidence.table import RunTable
from scalewise.evidence.validate import (
    Validation,
    Verdict,
    pick_of,
    spearman,
    summarize,
    sweeps_of,
    validate,
    with_left_out,
)


@pytest.fixture(scope="module")
def runs():
    return {run.id: run for run in read_runs()}


@pytest.fixture(scope="module")
def shipped(runs):
    return validate(runs.values())


@pytest.fixture(scope="module")
def rows(shipped):
    return {row.id: row for row in shipped.rows}


def verdict(predicted=None, measured=None, **changes):
    """A made-up row whose interval is 10 % to both sides."""
    plain = Verdict(
        id="made",
        source="me",
        status="ok",
        quality="ok",
        dense=True,
        strategy="ddp8",
        measured_tokens_per_second=measured,
        predicted_tokens_per_second=predicted,
        low=None if predicted is None else 0.9 * predicted,
        high=None if predicted is None else 1.1 * predicted,
        error=predicted / measured - 1.0 if predicted and measured else None,
        group=("me", "toy", "h100", 8, "bf16"),
    )
    return replace(plain, **changes)


def sweep(predicted, measured, simplicity=None):
    return [
        verdict(p, m, strategy=f"layout{i}", simplicity=(simplicity or [(1, 1, 0.0)] * 9)[i])
        for i, (p, m) in enumerate(zip(predicted, measured, strict=True))
    ]


class TestSummary:
    def test_errors_by_hand(self):
        made = [verdict(p, 100.0) for p in (110.0, 80.0, 102.0, 105.0, 104.0)]
        summary = summarize(made)
        assert summary.count == 5
        # Absolute: 2, 4, 5, 10, 20; nine tenths of the way is 0.6 between the last two.
        assert summary.median_error == pytest.approx(0.05)
        assert summary.p90_error == pytest.approx(0.16)
        # Signed: -20, 2, 4, 5, 10.
        assert summary.bias == pytest.approx(0.04)
        # 80 reaches up to 88 only.
        assert summary.coverage == pytest.approx(0.8)

    def test_refused_rows_are_counted_not_judged(self):
        made = [
            verdict(110.0, 100.0),
            verdict(status="unsupported", measured=50.0),
            verdict(status="unsupported"),
            verdict(90.0, status="infeasible"),
            verdict(90.0, status="unmeasured"),
        ]
        summary = summarize(made)
        assert (summary.count, summary.unsupported, summary.infeasible) == (1, 2, 1)
        assert summary.median_error == pytest.approx(0.1)

    def test_memory_by_hand(self):
        made = [
            verdict(memory_gb_predicted=p, memory_gb_measured=m)
            for p, m in ((11.0, 10.0), (15.0, 20.0), (30.0, 30.0), (5.0, None), (5.0, 0.0))
        ]
        summary = summarize(made)
        # 10, 25 and 0 %; a blank and a zero say nothing.
        assert (summary.memory_count, summary.count) == (3, 0)
        assert summary.memory_median_error == pytest.approx(0.1)

    def test_nothing_gives_none(self):
        summary = summarize([])
        assert summary.count == 0
        assert summary.median_error is summary.p90_error is summary.bias is None
        assert summary.coverage is summary.rank_correlation is summary.regret is None
        assert summary.memory_median_error is None

    def test_headline_is_dense_and_well_graded(self):
        made = Validation(rows=[
            verdict(110.0, 100.0),
            verdict(120.0, 100.0, quality="vendor-expected"),
            verdict(900.0, 100.0, quality="incomplete"),
            verdict(900.0, 100.0, dense=False),
            verdict(status="unsupported"),
        ])  # fmt: skip
        assert len(made.judged()) == 2
        assert made.overall().count == 2
        assert made.overall().median_error == pytest.approx(0.15)
        assert made.overall().unsupported == 1
        assert made.by_source()["me"].count == 4


class TestRanking:
    def test_spearman_by_hand(self):
        # One swap of neighbors among five: 1 - 6 x 2 / (5 x 24).
        a, b = np.array([50.0, 40, 30, 20, 10]), np.array([40.0, 50, 30, 20, 10])
        assert spearman(a, b) == pytest.approx(0.9)
        assert spearman(a, a * 3) == pytest.approx(1.0)
        assert spearman(a, -a) == pytest.approx(-1.0)

    def test_a_sweep(self):
        summary = summarize(sweep([50.0, 40, 30, 20, 10], [40.0, 50, 30, 20, 10]))
        assert summary.rank_correlation == pytest.approx(0.9)
        # The pick does 40, the best 50.
        assert summary.regret == pytest.approx(0.2)

    def test_four_layouts_are_no_sweep(self):
        assert summarize(sweep([50.0, 40, 30, 20], [40.0, 50, 30, 20])).regret is None
        repeats = [verdict(p, 10.0) for p in (1.0, 2, 3, 4, 5, 6)]
        assert summarize(repeats).rank_correlation is None

    def test_groups_are_averaged(self):
        first = sweep([50.0, 40, 30, 20, 10], [40.0, 50, 30, 20, 10])
        second = [
            replace(row, group=("me", "other", "h100", 16, "bf16"))
            for row in sweep([50.0, 40, 30, 20, 10], [50.0, 40, 30, 20, 10])
        ]
        summary = summarize([*second, *first])
        assert summary.rank_correlation == pytest.approx(0.95)
        assert summary.regret == pytest.approx(0.1)
        other, toy = sweeps_of([*second, *first])
        assert (other.model, other.accelerators, other.count) == ("other", 16, 5)
        assert (other.picked, other.best, other.regret) == ("layout0", "layout0", 0.0)
        assert (toy.picked, toy.best) == ("layout0", "layout1")
        assert toy.regret == pytest.approx(0.2)

    @pytest.mark.parametrize(
        ("second", "picked", "regret"),
        [(98.6, "layout1", 0.0), (98.4, "layout0", 0.25)],
        ids=["near-tie", "clear"],
    )
    def test_near_ties_go_to_the_simpler(self, second, picked, regret):
        # The layout without a pipeline is the one that measured best.
        group = sweep(
            [100.0, second, 50.0, 40.0, 30.0],
            [60.0, 80.0, 30.0, 20.0, 10.0],
            [(2, 1, 5.0), (1, 8, 9.0), (1, 1, 1.0), (1, 1, 1.0), (1, 1, 1.0)],
        )
        assert pick_of(group).strategy == picked
        assert summarize(group).regret == pytest.approx(regret)

    @pytest.mark.parametrize(
        ("simplicity", "picked"),
        [
            ([(2, 1, 1.0), (1, 8, 9.0)], "layout1"),
            ([(1, 1, 5.0), (1, 2, 1.0)], "layout0"),
            ([(1, 1, 5.0), (1, 1, 4.0)], "layout1"),
        ],
        ids=["stages", "tensor degree", "memory"],
    )
    def test_what_makes_a_layout_simple(self, simplicity, picked):
        assert pick_of(sweep([100.0, 100.0], [60.0, 80.0], simplicity)).strategy == picked


class TestShape:
    def test_keys(self, shipped):
        plain = shipped.to_dict()
        assert {"rows", "overall", "sources"} <= set(plain)
        assert {
            "id", "status", "measured_tokens_per_second", "predicted_tokens_per_second", "low",
            "high", "error", "memory_gb_predicted", "reason",
        } <= set(plain["rows"][0])  # fmt: skip
        assert {"group", "simplicity"}.isdisjoint(plain["rows"][0])
        assert {"count", "median_error", "p90_error", "coverage", "regret"} <= set(plain["overall"])
        assert set(plain["sources"]["nanotron"]) == set(plain["overall"])
        assert len(plain["rows"]) == len(shipped.rows) == 2013

    def test_it_is_strict_json(self, shipped):
        text = json.dumps(shipped.to_dict(), allow_nan=False)
        assert json.loads(text)["overall"]["count"] == 1712

    def test_left_out_predictions_replace_the_shipped_ones(self, runs, shipped):
        ids = ["mpt-7b-h10080gbx8-s2048-mb6-ga1", "nt-1b-n1-dp8tp1pp1-mb1ga32-z0"]
        table = RunTable.of([runs[name] for name in ids])
        made = np.array([10000.0, 40000.0])
        out = LeftOut(predicted=made, low=made / 2, high=made * 2, known=np.array([True, True]))
        result = with_left_out(shipped, table, out)
        assert len(result.rows) == len(shipped.rows)
        changed = [
            (old, new) for old, new in zip(shipped.rows, result.rows, strict=True) if old != new
        ]
        assert [new.id for _, new in changed] == ids or [new.id for _, new in changed] == ids[::-1]
        (row,) = [new for _, new in changed if new.id == ids[0]]
        assert (row.predicted_tokens_per_second, row.low, row.high) == (10000.0, 5000.0, 20000.0)
        assert row.error == pytest.approx(10000.0 / 10643.0 - 1.0)


class TestShippedRows:
    @pytest.mark.parametrize(
        ("name", "stack", "strategy", "measured"),
        [
            ("mpt-7b-h10080gbx8-s2048-mb6-ga1", "llm-foundry", "fsdp8-nosp-mb6", 10643.0),
            ("mpt-7b-h10080gbx512-s2048-mb6-ga1", "llm-foundry", "fsdp512-nosp-mb6", 9670.0),
            ("nt-1b-n1-dp8tp1pp1-mb1ga32-z0", "nanotron", "ddp8-nosp-mb1", 39273.0),
        ],
    )
    def test_literal(self, rows, name, stack, strategy, measured):
        row = rows[name]
        assert (row.status, row.stack, row.strategy) == ("ok", stack, strategy)
        assert row.measured_tokens_per_second == measured
        assert row.predicted_tokens_per_second == pytest.approx(measured, rel=0.06)
        assert row.error == row.predicted_tokens_per_second / measured - 1.0
        assert row.low < row.predicted_tokens_per_second < row.high
        assert row.reason is None

    def test_peak_memory_of_a_row(self, rows):
        row = rows["nt-1b-n1-dp8tp1pp1-mb1ga32-z0"]
        assert row.memory_gb_measured == 36.7
        assert row.memory_gb_predicted == pytest.approx(36.7, rel=0.15)

    def test_mixtures_are_unsupported_with_the_reason(self, rows):
        row = rows["tr-deepseek-v3-tpu7x-128c-s4096-bf16"]
        assert (row.status, row.dense, row.error) == ("unsupported", False, None)
        assert "mixture of experts" in row.reason

    def test_a_refusal_has_a_reason_and_a_prediction_has_none(self, shipped):
        for row in shipped.rows:
            assert (row.reason is not None) == (row.status in ("unsupported", "infeasible")), row.id

    def test_no_good_dense_row_is_refused(self, shipped):
        overall = shipped.overall()
        assert (overall.unsupported, overall.infeasible) == (0, 0)
        assert overall.count >= 1700


class TestAccuracy:
    """A guard: what breaks one of these made predictions with the shipped constants worse."""

    @staticmethod
    def errors(rows):
        return np.abs([row.error for row in rows])

    def test_all_sources_but_the_noisy_sweep(self, shipped):
        error = self.errors([row for row in shipped.judged() if row.source != "nanotron"])
        assert len(error) >= 690
        assert np.median(error) <= 0.05
        assert np.quantile(error, 0.9) <= 0.15

    def test_nanotron_without_pipelines_below_512(self, shipped, runs):
        error = self.errors([
            row for row in shipped.judged()
            if row.source == "nanotron"
            and (runs[row.id].count("pp") or 1) == 1
            and runs[row.id].count("accelerators") < 512
        ])  # fmt: skip
        assert len(error) >= 250
        assert np.median(error) <= 0.055

    def test_memory(self, shipped):
        overall = shipped.overall()
        assert overall.memory_count >= 1000
        assert overall.memory_median_error <= 0.10

    def test_the_slow_down_of_weak_scaling(self, rows):
        small = rows["mpt-7b-h10080gbx8-s2048-mb6-ga1"]
        large = rows["mpt-7b-h10080gbx512-s2048-mb6-ga1"]
        measured = small.measured_tokens_per_second / large.measured_tokens_per_second - 1.0
        predicted = small.predicted_tokens_per_second / large.predicted_tokens_per_second - 1.0
        assert measured == pytest.approx(0.1006, abs=1e-4)
        assert predicted == pytest.approx(measured, abs=0.025)

    def test_intervals_hold_about_what_they_say(self, shipped):
        assert 0.75 <= shipped.overall().coverage <= 0.95
