"""Predictions from a calibration of the machine, and measurements, side by side."""

import pytest
from measured_cases import TWO_CORES, claim, study_with, write_records

from machine_records import machine_records
from scalewise.evidence.machine import MachineFit
from scalewise.evidence.machine_files import write_machine
from scalewise.evidence.machine_rows import gather
from scalewise.report.study_figure import study_figures
from scalewise.report.study_page import study_page
from scalewise.study.jobs import points_to_measure
from scalewise.study.judging import measured_answer
from scalewise.study.measure import predicted_step
from scalewise.study.run import run_study

pytest.importorskip("scipy")

SECONDS = {
    ("ddp-mb1", 1): (0.100, 0.101), ("ddp-mb1", 2): (0.120, 0.121),
    ("fsdp-mb1", 1): (0.100, 0.101), ("fsdp-mb1", 2): (0.160, 0.161),
}  # fmt: skip

DDP_FALLS = claim(
    "change", "tokens_per_second_per_accelerator",
    'where = {strategy = "ddp-mb1"}\nfirst = {accelerators = 1}\nsecond = {accelerators = 2}\n'
    "at_most = -0.05",
    statement="DDP falls",
)  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    return MachineFit("this-machine").fit(gather(machine_records()))


@pytest.fixture
def both(fitted, tmp_path, monkeypatch):
    study = study_with(DDP_FALLS)
    assert run_study(study).unpredicted == ["weak"]
    write_machine(fitted, tmp_path / "catalog")
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path / "catalog"))
    write_records(tmp_path / "r", SECONDS, study=study)
    return run_study(study, measured=measured_answer(study, str(tmp_path / "r")))


def test_a_calibration_of_that_name_predicts_the_study(both):
    assert both.unpredicted == []
    assert both.empty == []
    assert [row.axes["stack"] for row in both.rows] == ["this-machine"] * 4
    (verdict,), (measured,) = both.verdicts, both.measured.verdicts
    assert (verdict.verdict, verdict.ours) == ("holds", "-22.4%")
    assert (measured.verdict, measured.ours) == ("holds", "-16.6%")


def test_measured_points_are_marks_in_the_predicted_figures(both):
    (figure,) = study_figures(both)["weak"]
    panel = figure.panels[0]
    assert {trace.name for trace in panel.traces} == {"ddp-mb1", "fsdp-mb1"}
    (marks,) = panel.marks
    assert marks.name == "measured"
    assert sorted(marks.xs) == [1, 1, 2, 2]
    assert max(marks.ys) == pytest.approx((128 / 0.100 + 128 / 0.101) / 2)
    assert set(marks.beside) == {"ddp-mb1", "fsdp-mb1"}


def test_the_page_has_both_verdicts(both):
    page = study_page(both, {"weak": []}, {})
    assert page.count("<th class='w2'>measured</th>") == 2
    assert "predicted: " in page
    assert "measured: holds" in page
    assert "4 points measured on Paper CPU" in page


def test_predicted_steps_begin_the_estimate_of_the_remaining_time(both):
    point = points_to_measure(both.study, TWO_CORES)[0]
    step = predicted_step(point.job)
    assert step == pytest.approx(128 / both.rows[0].metrics["tokens_per_second"], rel=1e-6)


def test_without_a_calibration_no_step_is_predicted():
    point = points_to_measure(study_with(), TWO_CORES)[0]
    assert predicted_step(point.job) is None
