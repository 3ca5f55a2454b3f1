"""Predicted against measured: steps of jobs and residuals of a fit, as figures and files."""

from types import SimpleNamespace

import pytest

from report_cases import is_offline, without_scripts
from scalewise.evidence.compare import Comparison, Row
from scalewise.report.compare_figure import (
    comparison_figure,
    comparison_file,
    residual_figure,
)


@pytest.fixture
def comparison():
    rows = [
        Row(
            model="tiny", strategy="fsdp2-mb1", ranks=2, seq_len=128, global_batch=2, launches=2,
            measured=measured, measured_low=0.9 * measured, measured_high=1.1 * measured,
            predicted=1.0, low=0.8, high=1.25, terms={}, predicted_terms={},
        )
        for measured in (1.0, 2.0)
    ]  # fmt: skip
    return Comparison(cluster="here", stack="torch", rows=rows, skipped=[])


def test_every_job_has_both_intervals(comparison):
    (panel,) = comparison_figure(comparison).panels
    measured, predicted = panel.traces
    assert measured.ys == [1.0, 2.0]
    assert (measured.low[1], measured.high[1]) == pytest.approx((1.8, 2.2))
    assert (predicted.low, predicted.high) == ([0.8, 0.8], [1.25, 1.25])
    # Jobs of one model and strategy stay apart.
    assert panel.x.values == ["1: tiny fsdp2-mb1 (+0%)", "2: tiny fsdp2-mb1 (-50%)"]
    assert panel.y.label == "step time (s)"


def test_files(comparison):
    pytest.importorskip("matplotlib")
    page = comparison_file(comparison, ".html").decode()
    assert is_offline(page)
    assert "-50.0%" in without_scripts(page)
    assert comparison_file(comparison, ".svg").startswith(b"<?xml")


def test_residuals_are_ratios_with_the_interval_of_steps():
    rows = [("gemm", 1.0, 1.1), ("gemm", 2.0, 2.0), ("link", 4.0, 2.0)]
    residuals = [SimpleNamespace(part=p, measured=m, predicted=q) for p, m, q in rows]
    fit = SimpleNamespace(
        name="here", residuals_=residuals, interval_=(0.8, 1.25), fitted_on_="3 timings", notes_=[]
    )
    (panel,) = residual_figure(fit).panels
    assert [trace.name for trace in panel.traces] == ["gemm (2)", "link (1)"]
    assert panel.traces[0].ys == pytest.approx([1.1, 1.0])
    assert panel.traces[1].ys == [0.5]
    line, span = panel.rules
    assert line.value == 1.0
    assert (span.value, span.high) == pytest.approx((0.8, 1.25))
