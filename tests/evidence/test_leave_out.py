"""Judging on unseen sources: a small refit."""

import numpy as np
import pytest

from scalewise.evidence.calibrate import Calibrator
from scalewise.evidence.leave_out import leave_one_source_out
from scalewise.evidence.runs import read_runs
from scalewise.evidence.table import RunTable
from scalewise.evidence.validate import JUDGED_QUALITIES


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
        # Healthy or not was settled before: intervals are fitted on all rows of the table.
        assert [row.id for row in out.rows] == [run.id for run in table.runs]

    def test_known_is_whether_other_sources_have_enough_runs_of_the_stack(self, out, table):
        sources = [run.source for run in table.runs]
        # dgxc-v25.04 has 34 runs; dgxc-v25.04.01, its only sibling, has 24.
        assert out.known.tolist() == [source == "dgxc-v25.04.01" for source in sources]

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

    def test_intervals_are_wider_where_the_stack_is_unknown(self, out):
        found = {row.source: row.basis.knowledge for row in out.rows}
        assert found == {
            "dgxc-v25.04": "family", "dgxc-v25.04.01": "runs", "llm-foundry": "nothing",
        }  # fmt: skip
