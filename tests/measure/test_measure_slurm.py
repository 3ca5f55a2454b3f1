"""Measurements on a real Slurm: two nodes on loopback, Gloo between them, a model of no size."""

import os
import re
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

from measure_jobs import model_file
from scalewise.cli.main import cli
from scalewise.measure import slurm
from scalewise.records.files import read_records
from waiting import PATIENCE, until

pytest.importorskip("torch", reason="needs the extra `measure`")

SHORT = ["--steps", "3", "--warmup", "1", "--seq", "16"]
ENDLESS = ["--steps", "20000", "--warmup", "1", "--seq", "16"]


@pytest.fixture(autouse=True)
def clean(slurm_cluster):
    """Nobody waits for a job that another test left behind."""
    yield
    if queue():
        subprocess.run(["scancel", f"--user={os.getuid()}"], check=True)
        until(lambda: queue() == [])


@pytest.fixture
def model(tmp_path):
    return model_file(tmp_path)


@pytest.fixture
def quick(monkeypatch):
    """The machine that plays two nodes shares one file system, so nothing needs time to show up."""
    monkeypatch.setattr(slurm, "SETTLE_SECONDS", 0.3)
    monkeypatch.setattr(slurm, "POLL_SECONDS", 0.2)


def words(*args, records, nodes=2):
    return ["measure", *args, "--device", "cpu", "--slurm", "--nodes", str(nodes), "--partition",
            "all", "--time", "50min", "-o", str(records)]  # fmt: skip


def run(*args):
    """Run the command line in this process."""
    return CliRunner(env={"COLUMNS": "120"}).invoke(cli, list(args))


def ids(records):
    file = records / "train.jsonl"
    return [r.id for r in read_records(file).records] if file.exists() else []


def queue():
    done = subprocess.run(["squeue", "-h", "-o", "%i %T"], capture_output=True, text=True)
    return done.stdout.split("\n")[:-1]


def test_the_printed_script_runs_as_it_is(slurm_cluster, quick, model, tmp_path):
    records = tmp_path / "records"
    asked = words("train", model, "--strategy", "ddp2", *SHORT, records=records)
    printed = run(*asked, "--slurm-script")
    assert (printed.exit_code, printed.stderr) == (0, "")
    assert not records.exists()
    assert "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --exclusive" in printed.stdout
    file = tmp_path / "job.sh"
    file.write_text(printed.stdout)
    sbatch = ["sbatch", f"--output={tmp_path}/%j.log", str(file)]
    logs = []
    for _ in range(2):
        before = set(tmp_path.glob("*.log"))
        subprocess.run(sbatch, check=True, capture_output=True)
        until(lambda: queue() == [])
        (log,) = set(tmp_path.glob("*.log")) - before
        logs.append(log.read_text())
    # srun itself may have something to say in between.
    assert logs[0].startswith("mine ddp2-mb1, launch 1\n")
    assert logs[0].endswith(f"1 of 1 launches are in {records}/train.jsonl\n")
    # Submitted again, it finds nothing to do.
    assert logs[1].startswith("mine ddp2-mb1, launch 1: its record is there already\n")
    (one,) = read_records(records).records
    assert one.environment.nodes == ["node1", "node2"]
    assert (one.environment.ranks, one.environment.ranks_per_node) == (2, 1)
    assert list((records / "slurm").iterdir()) == []


def scalewise(*args):
    """Start the command line as people do, only less patient."""
    code = (
        "from scalewise.measure import slurm\n"
        "slurm.SETTLE_SECONDS, slurm.POLL_SECONDS = 0.3, 0.2\n"
        "from scalewise.cli.main import main\nmain()"
    )
    return subprocess.Popen(
        [sys.executable, "-c", code, *args], stderr=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip


def test_a_cancelled_job_keeps_what_it_has_and_the_same_command_does_the_rest(
    slurm_cluster, quick, model, tmp_path
):
    records = tmp_path / "records"
    asked = words("train", model, "--sweep", "strategy=ddp2,fsdp2", *SHORT, "--threads", "1",
                  records=records)  # fmt: skip
    command = scalewise(*asked)
    until(lambda: ids(records))
    (number,) = [line.split()[0] for line in queue()]
    subprocess.run(["scancel", number], check=True)
    said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 1
    assert f"2 launches in Slurm job {number}\n" in said
    assert f"Slurm job {number} is running on node[1-2]\n" in said
    assert "1 of 2: mine ddp2-mb1, launch 1 is done\n" in said
    assert (
        f"error: 1 of 2 launches are in {records}/train.jsonl; missing: mine fsdp2-mb1, launch 1: "
        f"Slurm job {number} was canceled\n"
        "hint: run the same command again: it runs only what is missing\n"
    ) in said
    (kept,) = ids(records)

    done = run(*asked)
    assert done.exit_code == 0, done.stderr
    assert "resumed: 1 of 2 launches are in" in done.stderr
    assert "1 launch in Slurm job" in done.stderr
    assert "2 of 2: mine fsdp2-mb1, launch 1 is done" in done.stderr
    found = read_records(records).records
    assert found[0].id == kept
    assert [r.inputs["strategy"] for r in found] == ["ddp2-mb1", "fsdp2-mb1"]
    for one in found:
        where = one.environment
        assert where.nodes == ["node1", "node2"]
        assert (where.ranks, where.ranks_per_node, where.backend) == (2, 1, "gloo")
        assert where.threads == 1
        assert len(one.results["step_seconds"]) == 3
    # The same model, data and steps: both strategies see the same loss.
    assert found[0].results["losses"] == pytest.approx(found[1].results["losses"], rel=1e-4)
    assert "ddp2-mb1" in done.stdout
    assert "fsdp2-mb1" in done.stdout
    assert list((records / "slurm").iterdir()) == []


def test_ctrl_c_cancels_the_job(slurm_cluster, model, tmp_path):
    records = tmp_path / "records"
    asked = words("train", model, "--strategy", "ddp2", *ENDLESS, records=records)
    command = scalewise(*asked)
    until(lambda: any(line.endswith("RUNNING") for line in queue()))
    command.send_signal(signal.SIGINT)
    said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 130
    assert re.search(
        r"Slurm job \d+ was canceled; 0 of 1 launches are in \S+train.jsonl; missing: mine "
        r"ddp2-mb1, launch 1; run the same command again: it runs only what is missing",
        said,
    )
    until(lambda: queue() == [])


def test_a_job_over_its_time_limit(slurm_cluster, quick, model, tmp_path):
    """Slurm counts whole minutes, so its controller is told that they are over; it looks at the
    clock every 30 s."""
    records = tmp_path / "records"
    asked = words("train", model, "--strategy", "ddp2", *ENDLESS, records=records)
    command = scalewise(*asked)
    until(lambda: list(records.glob("slurm/*/1-0.log")))
    (number,) = [line.split()[0] for line in queue()]
    subprocess.run(["scontrol", "update", f"JobId={number}", "EndTime=now"], check=True)
    said = command.communicate(timeout=PATIENCE)[1]
    assert command.returncode == 1
    assert f"ddp2-mb1, launch 1: Slurm job {number} reached its time limit" in said


def test_collectives_between_two_nodes(slurm_cluster, quick, tmp_path):
    records = tmp_path / "records"
    done = run(*words("collectives", "--ranks", "2", "--ops", "all_reduce", "--sizes", "4KiB",
                      "--iters", "3", records=records))  # fmt: skip
    assert done.exit_code == 0, done.stderr
    (one,) = read_records(records, kind="collective").records
    (row,) = one.results["rows"]
    assert (row["accelerators"], row["nodes"], row["scaleup_domain"]) == (2, 2, 1)
    assert one.environment.nodes == ["node1", "node2"]


def test_a_refused_job_is_one_sentence(slurm_cluster, model, tmp_path):
    asked = words("train", model, "--strategy", "ddp2", *SHORT, records=tmp_path / "records")
    done = run(*asked, "--partition", "nowhere")
    assert done.exit_code == 1
    assert re.search(r"error: sbatch refused the measurement: .*[Pp]artition", done.stderr)
    assert "hint: check --partition, --nodes and --time" in done.stderr
