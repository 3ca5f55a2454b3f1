"""The fit: known constants come back, the fast Jacobian is the plain one, gaps get the mean."""

from dataclasses import replace

import numpy as np
import pytest

from scalewise.catalog import load_fabric
from scalewise.chip import load_chip
from scalewise.errors import InputError
from scalewise.evidence.calibrate import (
    Calibrator,
    _dependencies,
    _grouped_jacobian,
    lay_out,
    predict_rows,
    row_weights,
    weak_scaling_sweeps,
)
from scalewise.evidence.parameters import CHIP, FABRIC, OPTIONAL, STACK
from scalewise.evidence.runs import read_runs
from scalewise.evidence.table import RunTable
from scalewise.evidence.validate import JUDGED_QUALITIES, judge
from scalewise.stack import load_stack

PARAMETERS = {parameter.name: parameter for parameter in (*CHIP, *STACK, *OPTIONAL, *FABRIC)}


@pytest.fixture(scope="module")
def good():
    return [run for run in read_runs() if run.dense and run.quality in JUDGED_QUALITIES]


@pytest.fixture(scope="module")
def foundry(good):
    """Forty rows of one source: two chips, two precisions, 8 to 512 accelerators."""
    return RunTable.of([run for run in good if run.source == "llm-foundry"][::7][:40])


@pytest.fixture(scope="module")
def mixed(good):
    """A few rows of three stacks that share no constant but the chip's and the fabric's."""
    picked = []
    for source, step in (("llm-foundry", 40), ("nanotron", 130), ("dgxc-v25.04", 5)):
        picked += [run for run in good if run.source == source][::step]
    return RunTable.of(picked)


@pytest.fixture(scope="module")
def known(foundry):
    """Constants half a spread from what we believe, up and down in turn."""
    slots = lay_out(foundry)
    sign = np.where(np.arange(len(slots.keys)) % 2, 1.0, -1.0)
    spread = np.array([p.spread for p in slots.parameters])
    low, high = (np.array([getattr(p, s) for p in slots.parameters]) for s in ("low", "high"))
    return np.clip(np.array(slots.priors) * np.exp(0.5 * spread * sign), low * 1.01, high / 1.01)


@pytest.fixture(scope="module")
def synthetic(foundry, known):
    return replace(foundry, measured=predict_rows(foundry, lay_out(foundry), known))


class TestFit:
    def test_known_constants_come_back(self, foundry, synthetic):
        slots = lay_out(foundry)
        before = predict_rows(foundry, slots, np.array(slots.priors)) / synthetic.measured - 1.0
        assert np.max(np.abs(before)) > 0.08
        fit = Calibrator().fit(synthetic)
        after = fit.predict(foundry) / synthetic.measured - 1.0
        assert np.max(np.abs(after)) < 0.01
        assert np.median(np.abs(after)) < 0.003
        assert fit.residuals_ == pytest.approx(np.log1p(after), abs=1e-9)

    def test_what_the_runs_determine_is_found(self, synthetic, known):
        fit = Calibrator(prior_weight=0.05).fit(synthetic)
        truth = dict(zip(lay_out(synthetic).keys, known, strict=True))
        # The rate of a GEMM is that of the chip times that of the stack.
        for chip in ("hopper", "ampere"):
            keys = (("chip", chip, "gemm.bf16"), ("stack", "llm-foundry", "gemm"))
            found, known = (np.prod([of[key] for key in keys]) for of in (fit.values_, truth))
            assert found == pytest.approx(known, rel=0.02)
        # No row uses tensor parallelism, so its overlap stays what we believed.
        unused = ("stack", "llm-foundry", "tp_exposed")
        assert fit.values_[unused] == pytest.approx(0.8, rel=1e-3)

    def test_a_degraded_run_does_not_drag_the_rest(self, synthetic):
        measured = synthetic.measured.copy()
        measured[5] *= 0.4
        fit = Calibrator().fit(replace(synthetic, measured=measured))
        error = np.abs(fit.predict(synthetic) / synthetic.measured - 1.0)
        assert np.median(error) < 0.01

    def test_unmeasured_rows_are_left_aside(self, synthetic):
        measured = synthetic.measured.copy()
        measured[::2] = np.nan
        fit = Calibrator().fit(replace(synthetic, measured=measured))
        assert len(fit.residuals_) == 20

    def test_spreads_tell_seen_from_believed(self, synthetic):
        fit = Calibrator().fit(synthetic)
        # The prior's own is exp(0.12) = 1.13; half of it is left, because stacks have a rate too.
        assert fit.spread_["chip", "hopper", "gemm.bf16"] < 1.06
        # exp(0.5): the prior's own.
        unused = fit.spread_["stack", "llm-foundry", "tp_exposed"]
        assert unused == pytest.approx(np.exp(0.5), rel=1e-3)

    @pytest.mark.parametrize("count", [0, 4])
    def test_too_few_rows_are_refused(self, synthetic, count):
        measured = np.full(len(synthetic), np.nan)
        measured[:count] = 1000.0
        with pytest.raises(InputError, match=f"^{count} measured rows are too few") as caught:
            Calibrator().fit(replace(synthetic, measured=measured))
        assert "at least 5" in caught.value.hint

    def test_five_rows_are_enough(self, synthetic):
        measured = np.full(len(synthetic), np.nan)
        measured[:5] = synthetic.measured[:5]
        assert len(Calibrator().fit(replace(synthetic, measured=measured)).residuals_) == 5


class TestJacobian:
    def test_grouped_differences_are_the_plain_ones(self, mixed):
        slots = lay_out(mixed)
        sweeps = [np.array([0, 1, 2])]
        prior = np.log(np.array(slots.priors))
        calls = []

        def residuals(vector, scale):
            calls.append(1)
            error = np.log(predict_rows(mixed, slots, np.exp(vector)) / mixed.measured)
            within = error[sweeps[0]] - error[sweeps[0]].mean()
            return np.concatenate([error / scale, within, vector - prior])

        low = np.log([p.low for p in slots.parameters])
        high = np.log([p.high for p in slots.parameters])
        reads = _dependencies(mixed, slots, sweeps)
        fast = _grouped_jacobian(residuals, reads, low, high)(prior, 0.5)
        used = len(calls)
        base = residuals(prior, 0.5)
        plain = np.zeros_like(fast)
        for column in range(len(prior)):
            step = 1e-6 * max(abs(prior[column]), 1.0)
            step = -step if prior[column] + step > high[column] else step
            moved = prior.copy()
            moved[column] += step
            plain[:, column] = (residuals(moved, 0.5) - base) / step
        assert np.abs(plain[: len(mixed)]).max() > 0.5
        assert fast == pytest.approx(plain, abs=1e-6)
        # Three stacks of 13 constants or more, but one evaluation for each kind of constant.
        assert used < 0.6 * len(prior)

    def test_rows_read_their_own_stack_only(self, mixed):
        slots = lay_out(mixed)
        reads = _dependencies(mixed, slots, [])
        owners = [stack.constants_from or stack.name for stack in mixed.stacks]
        column = slots.keys.index(("stack", "nanotron", "memory_traffic"))
        assert reads[: len(mixed), column].tolist() == [owner == "nanotron" for owner in owners]
        assert reads[len(mixed) :].tolist() == np.eye(len(slots.keys), dtype=bool).tolist()


TUNED, EAGER, OTHER = (("pytorch", "gpu", True), ("pytorch", "gpu", False), ("xla", "gpu", True))


class TestUnknownOwners:
    @pytest.fixture
    def fit(self):
        fit = Calibrator()
        fit.kinds_ = {"a": TUNED, "b": TUNED, "c": EAGER, "d": OTHER}
        fit.values_ = {
            ("stack", "a", "memory_traffic"): 1.2,
            ("stack", "b", "memory_traffic"): 2.5,
            ("stack", "c", "memory_traffic"): 4.0,
            ("stack", "d", "memory_traffic"): 9.0,
            ("stack", "a", "straggler"): 0.008,
        }
        return fit

    @pytest.mark.parametrize(
        ("kind", "mean"), [(TUNED, (1.5 * 1.2 * 2.5) ** (1 / 3)), (EAGER, (3.0 * 4.0) ** 0.5)]
    )
    def test_a_stack_gets_the_mean_of_its_kind_and_the_prior(self, fit, kind, mean):
        key = ("stack", "new", "memory_traffic")
        value = fit.value(key, PARAMETERS["memory_traffic"], kind=kind)
        assert value == pytest.approx(mean, rel=1e-12)

    def test_a_known_stack_gets_its_own(self, fit):
        key = ("stack", "c", "memory_traffic")
        assert fit.value(key, PARAMETERS["memory_traffic"], kind=EAGER) == 4.0

    def test_without_company_it_is_the_prior(self, fit):
        key = ("stack", "new", "straggler")
        assert fit.value(key, PARAMETERS["straggler"], kind=EAGER) == pytest.approx(0.006)

    def test_a_chip_gets_what_its_kernels_reach(self, fit):
        bf16 = PARAMETERS["gemm.bf16"]
        seen = fit.value(("chip", "hopper", "gemm.bf16"), bf16, kind=TUNED)
        assert seen == pytest.approx(0.69861)
        assert fit.value(("chip", "new", "gemm.bf16"), bf16, kind=TUNED) == 0.70

    def test_a_fabric_gets_its_prior(self, fit):
        key = ("fabric", "new", "congestion")
        assert fit.value(key, PARAMETERS["congestion"], kind=TUNED) == 0.04


class TestLayout:
    def test_stacks_of_one_code_share_constants(self, foundry):
        assert {stack.name for stack in foundry.stacks} == {"llm-foundry", "llm-foundry-2023"}
        owners = {owner for scope, owner, _ in lay_out(foundry).keys if scope == "stack"}
        assert owners == {"llm-foundry"}

    def test_stacks_share_single_constants(self, good):
        table = RunTable.of([run for run in good if run.source == "torchtitan"])
        assert {stack.name for stack in table.stacks} == {"pytorch", "pytorch-compiled"}
        owners = {name: {key[1] for key in lay_out(table).keys if key[2] == name}
                  for name in ("contention", "gemm")}  # fmt: skip
        assert owners == {"contention": {"pytorch"}, "gemm": {"pytorch", "pytorch-compiled"}}

    def test_one_board_sees_no_fabric(self, foundry):
        column = lay_out(foundry).columns["congestion"]
        single = np.array([plan.cluster.nodes == 1 for plan in foundry.plans])
        assert single.any()
        assert not single.all()
        assert np.all((column == -1) == single)

    def test_no_constant_belongs_to_a_source(self, mixed):
        keys = lay_out(mixed).keys
        assert {scope for scope, _, _ in keys} == {"chip", "stack", "fabric"}
        assert "dgxc-v25.04" not in {owner for _, owner, _ in keys}

    def test_rows_of_one_recipe_share_its_weight(self, good):
        table = RunTable.of(
            [run for run in good if run.source == "llm-foundry" and run.text("model") == "mpt-7b"]
        )
        weight, sweeps = row_weights(table), weak_scaling_sweeps(table)
        ids = [{table.runs[row].id for row in sweep} for sweep in sweeps]
        assert any("mpt-7b-h10080gbx512-s2048-mb6-ga1" in names for names in ids)
        for sweep in sweeps:
            assert len({table.plans[row].cluster.accelerators for row in sweep}) >= 3
            assert len({table.plans[row].strategy.micro_batch for row in sweep}) == 1
            assert weight[sweep] == pytest.approx(len(sweep) ** -0.25)

    def test_the_fit_prices_rows_as_the_estimate_does(self, mixed):
        """With the shipped constants put in, both paths to a number must meet."""
        slots = lay_out(mixed)
        fabrics = {"rdma": load_fabric("infiniband"), "efa": load_fabric("efa")}

        def shipped(key):
            scope, owner, name = key
            if scope == "chip":
                gemm, family = load_chip(owner).gemm, name.removeprefix("gemm.")
                return gemm[family] if family == "bf16" else gemm[family] / gemm["bf16"]
            if scope == "fabric":
                return getattr(fabrics[owner], name)
            stack = load_stack(owner)
            if name.endswith("_exposed"):
                field = name.replace("exposed", "overlap").replace("update", "update_gather")
                return 1.0 - getattr(stack, field)
            return getattr(stack, name)

        priced = predict_rows(mixed, slots, np.array([shipped(key) for key in slots.keys]))
        alone = [judge(run).predicted_tokens_per_second for run in mixed.runs]
        assert priced == pytest.approx(alone, rel=1e-6)
