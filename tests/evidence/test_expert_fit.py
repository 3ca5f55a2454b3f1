"""Constants of experts: recovered from made-up speeds, left-out sources, usual software."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from scalewise.evidence.calibrate import Calibrator
from scalewise.evidence.expert_fit import (
    CONSTANTS,
    PRIORS,
    ExpertRows,
    fit_experts,
    leave_out_experts,
)
from scalewise.evidence.runs import read_runs
from scalewise.experts import load_experts


@pytest.fixture(scope="module")
def rows():
    return ExpertRows.of(read_runs())


@pytest.fixture(scope="module")
def few(rows):
    """Two releases of Grok-1 and one of DeepSeek-V3, 38 rows."""
    kept = ("dgxc-v24.11.1", "dgxc-v25.02", "dgxc-v25.05.05")
    return rows.select(np.array([run.source in kept for run in rows.table.runs]))


class TestRows:
    def test_complete_runs_of_experts(self, rows):
        assert (len(rows), int(rows.gpu.sum())) == (149, 138)
        assert all(run.number("experts") for run in rows.table.runs)
        assert {run.quality for run in rows.table.runs} == {"ok", "vendor-expected"}

    def test_shipped_constants_predict_as_estimates_do(self, rows):
        error = rows.predict(load_experts(CONSTANTS)) / rows.table.measured - 1.0
        assert np.median(np.abs(error[rows.gpu])) == pytest.approx(0.0435, abs=0.0005)
        assert np.median(error[~rows.gpu]) == pytest.approx(0.1168, abs=0.0005)

    def test_repeats_share_their_weight(self, few):
        weights = few.weights()
        assert weights.min() > 0.0
        assert weights.max() <= 1.0
        # 38 rows are 30 recipes: squares of the weights of one add up to 1.
        assert len(few) == 38
        assert np.sum(weights**2) == pytest.approx(30.0)

    def test_usual_software_is_that_of_the_stack(self, rows):
        usual = rows.usual()
        newest = [
            place
            for place, stack in enumerate(rows.table.stacks)
            if stack.cuda_graphs == "full" and stack.devices == "gpu"
        ]
        assert newest
        assert {usual.table.stacks[place].cuda_graphs for place in newest} == {"attention"}
        known = load_experts(CONSTANTS)
        # Partial graphs and unfused experts are slower.
        slower = usual.predict(known)[newest] / rows.predict(known)[newest]
        assert np.all(slower < 1.0)

    def test_constants_of_a_dense_fit_take_the_place_of_the_catalogs(self, few):
        runs = few.table.runs
        slow, fast = Calibrator(), Calibrator()
        for fit, share in ((slow, 0.5), (fast, 0.9)):
            fit.values_ = {("chip", "hopper", "gemm.bf16"): share}
        known = load_experts(CONSTANTS)
        laid = [ExpertRows.of(runs, fit) for fit in (slow, fast)]
        rates = [each.predict(known) for each in laid]
        assert np.all(rates[0] < 0.9 * rates[1])
        # Software of Grok-1's releases is the usual one of their time.
        usual = laid[0].usual(slow).predict(known)
        assert usual[:36] == pytest.approx(rates[0][:36])
        assert usual[36:] == pytest.approx([745.1, 732.1], rel=1e-3)


class TestFit:
    def test_priors_are_those_of_every_constant(self):
        known = load_experts(CONSTANTS)
        numbers = [
            name for name in known.__struct_fields__ if isinstance(getattr(known, name), float)
        ]
        assert list(PRIORS) == numbers
        assert all(p.low < p.value < p.high for p in PRIORS.values())
        assert all(PRIORS[n].low <= getattr(known, n) <= PRIORS[n].high for n in numbers)

    def test_made_up_speeds_are_recovered(self, few):
        truth = msgspec.structs.replace(
            load_experts(CONSTANTS), routing_traffic=2.0, grouped_gemm=0.8
        )
        speeds = few.predict(truth)
        made = ExpertRows(table=replace(few.table, measured=speeds), case=few.case)
        fit = fit_experts(made)
        assert np.max(np.abs(fit.errors)) < 0.03
        assert fit.constants.grouped_gemm == pytest.approx(0.8, rel=0.06)
        assert fit.spread["grouped_gemm"] < 1.1

    def test_what_no_run_has_stays_at_its_prior(self, few):
        fit = fit_experts(few)
        # Grok-1 has no clamped activation, and these releases no HybridEP.
        assert fit.constants.biased_activation == pytest.approx(2.0, rel=1e-3)
        assert fit.spread["biased_activation"] == pytest.approx(np.exp(0.5), rel=1e-2)
        assert fit.constants.hybridep == pytest.approx(0.85, rel=1e-3)

    def test_the_shipped_file_is_a_fit_of_the_shipped_runs(self, rows):
        fit = fit_experts(rows)
        known = load_experts(CONSTANTS)
        for name in PRIORS:
            if name not in known.undetermined:
                assert getattr(fit.constants, name) == pytest.approx(getattr(known, name), rel=0.02)


class TestLeftOut:
    def test_a_source_is_predicted_by_the_others(self, few):
        few = few.select(np.array([run.source != "dgxc-v24.11.1" for run in few.table.runs]))
        out = leave_out_experts(few, few.usual())
        assert [row.id for row in out.stated] == [run.id for run in few.table.runs]
        assert {row.basis.experts for row in out.stated} == {"stated"}
        assert {row.basis.experts for row in out.usual} == {"usual"}
        here = np.array([run.source == "dgxc-v25.02" for run in few.table.runs])
        alone = fit_experts(few.select(~here)).constants
        rates = [row.basis.rate for row, flag in zip(out.stated, here, strict=True) if flag]
        assert rates == pytest.approx(few.select(here).predict(alone).tolist())
