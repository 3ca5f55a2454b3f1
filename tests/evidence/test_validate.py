"""Verdicts and summaries: by hand on made-up rows, and as a guard on the shipped table."""

import json
from dataclasses import replace

import numpy as np
import pytest

from scalewise.evidence.left_out_table import LeftOutRow
from scalewise.evidence.runs import read_runs
from scalewise.evidence.validate import Validation, summarize, validate
from scalewise.ranges import level_range
from verdicts import verdict


@pytest.fixture(scope="module")
def runs():
    return {run.id: run for run in read_runs()}


@pytest.fixture(scope="module")
def shipped(runs):
    return validate(runs.values())


@pytest.fixture(scope="module")
def rows(shipped):
    return {row.id: row for row in shipped.rows}


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
        assert made.by_source()["me"].count == 2


class TestShape:
    def test_keys(self, shipped):
        plain = shipped.to_dict()
        assert {"rows", "overall", "sources", "families", "accuracy"} <= set(plain)
        assert {
            "id", "status", "measured_tokens_per_second", "predicted_tokens_per_second", "low",
            "high", "error", "memory_gb_predicted", "reason",
        } <= set(plain["rows"][0])  # fmt: skip
        assert {"group", "simplicity", "recipe", "place", "basis"}.isdisjoint(plain["rows"][0])
        assert {"count", "median_error", "p90_error", "coverage", "regret"} <= set(plain["overall"])
        assert set(plain["sources"]["nanotron"]) == set(plain["overall"])
        assert len(plain["rows"]) == len(shipped.rows) == 2467

    def test_it_is_strict_json(self, shipped):
        text = json.dumps(shipped.to_dict(), allow_nan=False)
        assert json.loads(text)["overall"]["count"] >= 1800

    def test_left_out_predictions_stand_beside_the_shipped_ones(self, runs):
        name = "mpt-7b-h10080gbx8-s2048-mb6-ga1"
        out = LeftOutRow(
            id=name, source="llm-foundry", predicted=10000.0, knowledge="family", calibrated=True
        )
        (row,) = validate([runs[name]], left_out={name: out}).rows
        assert row.predicted_tokens_per_second == pytest.approx(10643.0, rel=0.06)
        assert row.left_out == 10000.0
        assert row.left_out_low < 10000.0 < row.left_out_high
        # Less is known without the source: the interval is wider.
        assert row.left_out_high / 10000.0 > row.high / row.predicted_tokens_per_second
        summary = summarize([row])
        assert summary.left_out_error == pytest.approx(1.0 - 10000.0 / 10643.0)
        (other,) = validate([runs[name]], left_out={}).rows
        assert other.left_out is None
        assert summarize([other]).left_out_error is summarize([other]).left_out_coverage is None

    def test_stored_predictions_need_the_same_source(self, runs):
        name = "mpt-7b-h10080gbx8-s2048-mb6-ga1"
        out = LeftOutRow(
            id=name, source="mine", predicted=10000.0, knowledge="runs", calibrated=True
        )
        (row,) = validate([runs[name]], left_out={name: out}).rows
        assert row.left_out is None


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

    def test_mixtures_are_judged_apart(self, shipped, rows):
        row = rows["tr-deepseek-v3-tpu7x-128c-s4096-bf16"]
        # Layer inputs are on the host, so its memory does not count against it.
        assert (row.status, row.dense, row.experts) == ("ok", False, True)
        assert row.error == pytest.approx(0.107, abs=0.01)
        assert row.sound
        assert not row.judged
        assert row not in shipped.complete()

    def test_stated_software_of_experts_narrows_the_interval(self, rows):
        row = rows["dgxc-v250505-deepseek-v3-h100-1024-bf16-g8192"]
        assert row.basis.experts == "stated"
        usual = level_range(replace(row.basis, experts="usual"))
        stated = row.high / row.predicted_tokens_per_second
        assert 1.1 < stated < usual[1] - 0.05
        assert rows["mpt-7b-h10080gbx8-s2048-mb6-ga1"].basis.experts == "none"

    def test_other_layers_are_unsupported_with_the_reason(self, runs, rows):
        hybrid = [n for n, run in runs.items() if run.text("attention") == "hybrid-mamba"]
        assert len(hybrid) == 31
        for name in hybrid:
            row = rows[name]
            assert (row.status, row.dense, row.experts) == ("unsupported", False, False)
        assert rows[hybrid[0]].reason == "layers is not stated"

    def test_a_refusal_has_a_reason_and_a_prediction_has_none(self, shipped):
        for row in shipped.rows:
            assert (row.reason is not None) == (row.status in ("unsupported", "infeasible")), row.id

    def test_no_good_dense_row_is_refused(self, shipped):
        overall = shipped.overall()
        assert (overall.unsupported, overall.infeasible) == (0, 0)
        assert overall.count >= 1800


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
        assert len(error) >= 230
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
        assert predicted == pytest.approx(measured, abs=0.04)
