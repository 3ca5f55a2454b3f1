import json
import os
import signal
import subprocess
import sys

import msgspec
import pytest

from machine_records import WHERE, record
from measure_jobs import model_file
from scalewise.cli.study import run_command
from scalewise.cli.study_measure import measure_command
from scalewise.measure import launch
from scalewise.records.files import append, read_records
from scalewise.records.job import inputs_of
from waiting import PATIENCE, until

STUDY = """
title = "Two points"
[[experiment]]
id = "weak"
title = "1. Weak scaling"
models = ["{model}"]
clusters = ["this-machine"]
precisions = ["fp32"]
sequences = [32]
sizes = [1, 2]
strategies = ["ddp-mb1"]
batch = 1
steps = 3
[[experiment.figures]]
y = ["tokens_per_second_per_accelerator"]
[[experiment.claims]]
statement = "Throughput per rank falls"
source = "a test"
measure = "change"
metric = "tokens_per_second_per_accelerator"
first = {{accelerators = 1}}
second = {{accelerators = 2}}
at_most = -0.1
"""


@pytest.fixture
def study(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(STUDY.format(model=model_file(tmp_path)))
    return str(path)


@pytest.fixture
def here(monkeypatch):
    """Two cores whose launches leave records of 10 ms per step and rank, and are noted."""
    specs = []

    def start(self, spec):
        specs.append(spec)
        (planned,) = spec.planned
        step = 0.01 * planned.job.ranks * (1.0 + 0.01 * planned.launch)
        where = msgspec.structs.replace(WHERE, ranks=planned.job.ranks)
        results = {"step_seconds": [step] * 3, "losses": [3.0, 2.0, 1.0], "memory_basis": "rss"}
        made = record("train", inputs_of(planned.job), results, where=where)
        append(spec.records, msgspec.structs.replace(made, id=planned.id, launch=planned.launch))

    monkeypatch.setattr(launch, "choose_device", lambda asked: ("cpu", 2))
    monkeypatch.setattr("scalewise.study.measure.idle_warnings", lambda: ())
    monkeypatch.setattr("scalewise.measure.idle.loop_seconds", lambda: 0.01)
    monkeypatch.setattr(launch.LocalLauncher, "run", start)
    return specs


def launched(specs):
    return [(spec.planned[0].launch, spec.ranks) for spec in specs]


def test_flags_are_the_promised_ones():
    names = {name for option in measure_command.params for name in option.opts}
    assert names == {
        "name", "--repeats", "--budget", "--quick", "--on", "--device", "--threads", "--timeout",
        "-o", "--output", "--json", "--slurm", "--nodes", "--ranks-per-node", "--partition",
        "--time", "--slurm-script",
    }  # fmt: skip
    assert "--records" in {name for option in run_command.params for name in option.opts}


def test_all_points_are_measured_once_before_any_twice(run, here, study, tmp_path):
    result = run("study", "measure", study, "-o", str(tmp_path / "r"), "--repeats", "2")
    assert result.exit_code == 0
    assert launched(here) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert "2 of 2 points fit: 2 launches x 2 repeats" in result.stderr
    assert "3 of 4: mine ddp1-mb1, seq 32, repeat 2; " in result.stderr
    assert {spec.threads for spec in here} == {1}, "equal ranks at all points"
    assert "Measured: 1 holds." in result.stdout


def test_the_same_command_measures_only_what_is_missing(run, here, study, tmp_path):
    records = str(tmp_path / "r")
    run("study", "measure", study, "-o", records, "--repeats", "1")
    result = run("study", "measure", study, "-o", records, "--repeats", "2")
    assert launched(here) == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert "2 of 4 launches have records: resumed" in result.stderr
    run("study", "measure", study, "-o", records, "--repeats", "2")
    assert len(here) == 4


def test_a_budget_leaves_launches_out_and_says_so(run, here, study, tmp_path):
    result = run("study", "measure", study, "-o", str(tmp_path / "r"), "--budget", "1e-9s",
                 "--json")  # fmt: skip
    assert result.exit_code == 0
    assert here == []
    answer = json.loads(result.stdout)
    assert (answer["launches"], answer["done"], answer["left_out"]) == (6, 0, 6)
    assert "left out for --budget: 6 of 6 launches" in result.stderr


def test_the_report_has_measured_points_and_verdicts(run, here, study, tmp_path):
    records, out = str(tmp_path / "r"), tmp_path / "report"
    run("study", "measure", study, "-o", records)
    result = run("study", "run", study, "--records", records, "-o", str(out), "--json")
    assert result.exit_code == 0
    (verdict,) = json.loads(result.stdout)
    assert (verdict["verdict"], verdict["measured"]["verdict"]) == ("not judged", "holds")
    assert verdict["why"] == "Not predicted: the catalog has no calibration this-machine."
    assert verdict["measured"]["ours"] == "-50.0%"
    page = (out / "index.html").read_text()
    assert "2 points measured on Paper CPU (2 cores)" in page
    assert "Nothing is predicted" in page
    assert (out / "figures" / "weak-1.svg").exists()
    assert len((out / "measured.csv").read_text().splitlines()) == 3


def test_a_failed_launch_is_named_and_the_others_go_on(run, here, study, tmp_path, monkeypatch):
    start = launch.LocalLauncher.run

    def fail_on_two(self, spec):
        if spec.ranks == 2:
            raise launch.LaunchError("rank 1 failed: no memory", hint="take fewer")
        start(self, spec)

    monkeypatch.setattr(launch.LocalLauncher, "run", fail_on_two)
    result = run("study", "measure", study, "-o", str(tmp_path / "r"), "--repeats", "2")
    assert result.exit_code == 1
    assert launched(here) == [(1, 1), (2, 1)]
    assert (
        "failed: mine ddp2-mb1, seq 32, repeat 2: rank 1 failed: no memory (take fewer)"
        in result.stderr
    )
    assert "2 of 4 launches have records" in result.stderr
    monkeypatch.setattr(launch.LocalLauncher, "run", start)
    again = run("study", "measure", study, "-o", str(tmp_path / "r"), "--repeats", "2")
    assert again.exit_code == 0
    assert launched(here)[2:] == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["nothing"], "there is no study `nothing`"),
        (["what-to-buy"], "no point of study what-to-buy can be measured here"),
        (["scaling-on-this-machine", "--repeats", "0"], "--repeats 0 must be at least 1"),
        (["scaling-on-this-machine", "--budget", "soon"], "soon"),
        (["scaling-on-this-machine", "--slurm"], "a study on --slurm needs --ranks-per-node"),
        (["scaling-on-this-machine", "--nodes", "2"], "--nodes 2 needs --slurm"),
        (["what-to-buy", "--slurm", "--budget", "1h", "--time", "2h"],
         "--budget 1h and --time 2h exclude each other"),
    ],
)  # fmt: skip
def test_wrong_usage_is_2(run, here, args, message, tmp_path):
    result = run("study", "measure", *args, "-o", str(tmp_path / "r"))
    assert result.exit_code == 2
    assert message in result.stderr
    assert here == []


def test_without_records_or_calibration_there_is_no_answer(run, study, tmp_path):
    result = run("study", "run", study, "-o", str(tmp_path / "report"))
    assert result.exit_code == 2
    assert "is about this-machine, which has no calibration in the catalog" in result.stderr
    assert "--records records" in result.stderr


def test_the_slurm_script_has_every_launch(run, study, tmp_path):
    result = run("study", "measure", study, "--slurm-script", "--nodes", "2", "--ranks-per-node",
                 "1", "--device", "cpu", "--repeats", "2", "-o", str(tmp_path / "r"))  # fmt: skip
    assert result.exit_code == 0
    assert result.stdout.startswith("#!/bin/")
    assert result.stdout.count("launch 2") >= 2


def test_a_killed_run_loses_nothing_and_doubles_nothing(study, tmp_path):
    pytest.importorskip("torch", reason="needs the extra `measure`")
    records = tmp_path / "r"
    words = [sys.executable, "-m", "scalewise", "study", "measure", study, "-o", str(records),
             "--repeats", "1", "--device", "cpu"]  # fmt: skip
    with subprocess.Popen(words, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as first:
        until(lambda: list(records.glob("logs/*/launch.json")), "the first launch")
        os.kill(first.pid, signal.SIGKILL)
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0, done.stderr
    assert "2 of 2 launches have records" in done.stderr
    found = read_records(records)
    assert sorted(r.environment.ranks for r in found.records) == [1, 2]
    assert found.notes == []
