"""Judging on unseen sources: quantiles by hand, intervals from others, a small refit."""

import numpy as np
import pytest

from scalewise.evidence.calibrate import Calibrator
from scalewise.evidence.leave_out import (
    balanced_quantiles,
    intervals_of_others,
    leave_one_source_out,
)
from scalewise.evidence.runs import read_runs
from scalewise.evidence.table import RunTable
from scalewise.evidence.validate import JUDGED_QUALITIES


class TestBalancedQuantiles:
    def test_by_hand(self):
        # Three rows of one group weigh as much as the one of the other: centers of their shares
        # at 1/12, 3/12, 5/12 and 9/12.
        values, groups = np.array([3.0, 10.0, 1.0, 2.0]), np.array(["a", "b", "a", "a"])
        found = balanced_quantiles(values, groups, (0.0, 1 / 4, 1 / 2, 3 / 4, 0.9))
        assert found == pytest.approx((1.0, 2.0, 4.75, 10.0, 10.0))

    def test_one_group_is_the_plain_median(self):
        values = np.array([5.0, 1.0, 4.0, 2.0, 3.0])
        assert balanced_quantiles(values, np.array(["a"] * 5), (0.5,)) == pytest.approx((3.0,))

    def test_repeating_a_group_changes_nothing_much(self):
        a, b = np.linspace(0.0, 1.0, 11), np.linspace(10.0, 11.0, 11)
        groups = np.array(["a"] * 11 + ["b"] * 11)
        once = balanced_quantiles(np.concatenate([a, b]), groups, (0.25, 0.75))
        many = np.concatenate([np.repeat(a, 20), b])
        again = balanced_quantiles(many, np.array(["a"] * 220 + ["b"] * 11), (0.25, 0.75))
        assert once == pytest.approx((0.5, 10.5))
        assert again == pytest.approx(once, abs=0.03)


class TestIntervalsOfOthers:
    def arrays(self, **ratios):
        sources = np.repeat(list(ratios), 10)
        ratio = np.concatenate([np.full(10, value) for value in ratios.values()])
        return ratio, sources

    def test_a_row_asks_the_other_source_of_its_stack(self):
        ratio, sources = self.arrays(x=np.exp(0.1), y=np.exp(-0.3))
        factor = intervals_of_others(ratio, sources, np.array(["s"] * 20), np.ones(20, dtype=bool))
        assert factor[:10] == pytest.approx(np.exp(0.3))
        assert factor[10:] == pytest.approx(np.exp(0.1))

    def test_its_own_errors_are_no_help(self):
        owners, known = np.array(["s"] * 20), np.ones(20, dtype=bool)
        ratio, sources = self.arrays(x=1.1, y=1.3)
        before = intervals_of_others(ratio, sources, owners, known)
        ratio[:10] = 7.0
        after = intervals_of_others(ratio, sources, owners, known)
        assert after[:10] == pytest.approx(before[:10])
        assert after[10:] == pytest.approx(7.0)

    def test_other_stacks_are_not_asked_while_there_are_enough(self):
        ratio, sources = self.arrays(x=1.1, y=1.2, z=2.0)
        owners = np.array(["s"] * 20 + ["t"] * 10)
        factor = intervals_of_others(ratio, sources, owners, np.ones(30, dtype=bool))
        assert factor[:10] == pytest.approx(1.2)
        # Nobody else runs t: x and y are asked, half and half.
        assert 1.1 < factor[20] <= 1.2

    def test_vanished_stacks_ask_vanished_stacks(self):
        ratio, sources = self.arrays(x=1.05, y=1.05, v=1.5, w=1.8)
        owners = np.array(["s"] * 20 + ["v"] * 10 + ["w"] * 10)
        known = np.array([True] * 20 + [False] * 20)
        factor = intervals_of_others(ratio, sources, owners, known)
        assert factor[20:30] == pytest.approx(1.8)
        assert factor[30:] == pytest.approx(1.5)
        assert factor[:20] == pytest.approx(1.05)


@pytest.fixture(scope="module")
def table():
    """Two sources of one stack, and a third whose stack is its own."""
    good = [run for run in read_runs() if run.dense and run.quality in JUDGED_QUALITIES]
    picked = [run for run in good if run.source in ("dgxc-v25.04", "dgxc-v25.04.01")]
    return RunTable.of(picked + [run for run in good if run.source == "llm-foundry"][::15])


@pytest.fixture(scope="module")
def asked():
    return []


@pytest.fixture(scope="module")
def out(table, asked):
    return leave_one_source_out(table, progress=asked.append)


class TestLeaveOneSourceOut:
    def test_every_source_once(self, out, asked, table):
        assert asked == ["dgxc-v25.04", "dgxc-v25.04.01", "llm-foundry"]
        assert np.all(np.isfinite(out.predicted))
        assert len(out.predicted) == len(table)

    def test_known_is_whether_another_source_runs_the_stack(self, out, table):
        sources = [run.source for run in table.runs]
        assert out.known.tolist() == [source != "llm-foundry" for source in sources]

    def test_rows_are_predicted_without_their_source(self, out, table):
        here = np.array([run.source == "dgxc-v25.04.01" for run in table.runs])
        alone = Calibrator().fit(table.select(~here)).predict(table.select(here))
        assert out.predicted[here] == pytest.approx(alone, rel=1e-9)
        seen = Calibrator().fit(table).predict(table.select(here))
        assert np.max(np.abs(seen / alone - 1.0)) > 1e-4

    def test_a_known_stack_is_predicted_well(self, out, table):
        error = np.abs(out.predicted / table.measured - 1.0)
        assert np.median(error[out.known]) < 0.12

    def test_intervals_surround_predictions(self, out):
        assert np.all(out.low < out.predicted)
        assert np.all(out.high > out.predicted)
        assert out.predicted**2 == pytest.approx(out.low * out.high, rel=1e-9)
