"""Headline of runs of experts: by hand on made-up rows, and as a guard on the shipped table."""

import pytest

from scalewise.evidence.expert_accuracy import Pairs, expert_accuracy, layout_pairs, too_large
from scalewise.evidence.runs import read_runs
from scalewise.evidence.validate import Validation, validate
from scalewise.workload import Workload
from verdicts import verdict

BF16, FP8 = (
    Workload(seq_len=4096, global_batch=64, precision=precision) for precision in ("bf16", "fp8")
)


def row(predicted, measured, strategy="ep8", size=64, workload=BF16, **changes):
    group = ("me", "moe", "h100", size, workload)
    made = {"dense": False, "experts": True, "gpu": True, "strategy": strategy, "group": group}
    return verdict(predicted, measured, **{**made, **changes})


@pytest.fixture(scope="module")
def shipped():
    return validate([run for run in read_runs() if run.number("experts")])


class TestPairs:
    def test_order_by_hand(self):
        rows = [
            row(100.0, 100.0, "ep8"),
            row(110.0, 120.0, "ep16"),
            row(90.0, 130.0, "ep32"),
        ]
        # 16 over 8 is right, 32 over 8 and 32 over 16 are not.
        assert layout_pairs(rows) == Pairs(count=3, ordered=1)

    def test_same_layouts_near_ties_and_other_questions_are_no_pairs(self):
        rows = [
            row(100.0, 100.0, "ep8"),
            row(100.0, 150.0, "ep8"),
            row(100.0, 104.0, "ep16"),
            row(100.0, 200.0, "ep32", size=128),
            row(100.0, 300.0, "ep32", workload=FP8),
        ]
        # 16 against the second row only: 1.44 apart, predicted equal, so the order is wrong.
        assert layout_pairs(rows) == Pairs(count=1, ordered=0)


class TestHeadline:
    def test_grades_and_accelerators_apart(self):
        found = expert_accuracy(
            [
                row(110.0, 100.0),
                row(80.0, 100.0, gpu=False),
                row(200.0, 100.0, quality="secondhand"),
                row(None, 100.0, status="unsupported", reason="seq_len is not stated"),
                row(100.0, 100.0, status="infeasible"),
            ]
        )
        assert (found.complete, found.predicted, found.infeasible) == (4, 3, 1)
        assert found.refused == {"seq_len is not stated": 1}
        assert {name: each.count for name, each in found.groups.items()} == {
            "GPU": 2, "TPU": 1, "other grades": 1,
        }  # fmt: skip
        assert found.groups["GPU"].median_error == pytest.approx(0.05)
        assert found.groups["TPU"].bias == pytest.approx(-0.2)
        assert found.groups["other grades"].median_error == pytest.approx(1.0)

    def test_dense_rows_have_none(self):
        assert expert_accuracy([]) is None
        assert Validation(rows=[verdict(100.0, 100.0)]).experts() is None

    def test_experts_are_in_no_dense_number(self):
        dense = [verdict(p, 100.0) for p in (101.0, 102.0, 103.0)]
        alone, mixed = Validation(rows=dense), Validation(rows=[*dense, row(300.0, 100.0)])
        assert mixed.accuracy() == alone.accuracy()
        assert mixed.by_source() == alone.by_source()
        assert mixed.by_family() == alone.by_family()

    def test_memory_above_the_card(self):
        rows = [
            row(1.0, 1.0, memory_gb_predicted=96.0, memory_gb_capacity=80.0),
            row(1.0, 1.0, "ep16", memory_gb_predicted=79.0, memory_gb_capacity=80.0),
        ]
        assert too_large(rows) == {"moe on 64 h100, ep8": pytest.approx(1.2)}


class TestShipped:
    def test_no_complete_run_is_refused(self, shipped):
        found = shipped.experts()
        assert (found.complete, found.predicted, found.infeasible) == (149, 149, 0)
        assert found.refused == {}

    def test_errors_on_gpus(self, shipped):
        gpu = shipped.experts().groups["GPU"]
        assert gpu.count == 138
        assert gpu.median_error <= 0.07
        assert gpu.p90_error <= 0.23
        assert abs(gpu.bias) <= 0.05

    def test_errors_with_the_source_left_out(self, shipped):
        gpu = shipped.experts().groups["GPU"]
        assert sum(r.left_out is not None for r in shipped.rows if r.gpu and r.sound) == 138
        assert gpu.left_out_error <= 0.11
        assert gpu.left_out_p90 <= 0.33
        assert 0.70 <= gpu.left_out_coverage <= 0.90

    def test_errors_on_tpus(self, shipped):
        tpu = shipped.experts().groups["TPU"]
        assert tpu.count == 11
        assert tpu.median_error <= 0.15
        assert 0.70 <= tpu.left_out_coverage <= 0.90

    def test_order_of_layouts(self, shipped):
        pairs = shipped.experts().pairs
        assert pairs.count == 64
        assert pairs.ordered >= 57

    def test_order_without_untuned_frameworks(self, shipped):
        # The rows of two vendors' recipes alone: 42 of 47 is what a first model reached.
        rows = [r for r in shipped.rows if r.gpu and r.sound and r.source != "megatron-moe-zoo"]
        pairs = layout_pairs(rows)
        assert pairs.ordered / pairs.count >= 42 / 47

    def test_memory_of_what_ran(self, shipped):
        # Two layouts of gpt-oss: the micro-batch of one is that of no recipe, and the other keeps
        # more than fits with optimizer states in 32 bits.
        found = shipped.experts().too_large
        assert {name.split(",")[0] for name in found} == {
            "gpt-oss-120b on 64 b200-sxm-180gb", "gpt-oss-120b on 64 h100-sxm-80gb",
        }  # fmt: skip
        assert max(found.values()) < 1.25
