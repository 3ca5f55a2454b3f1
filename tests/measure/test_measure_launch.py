import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest

from measure_jobs import job
from scalewise.measure.launch import (
    LaunchError,
    LocalLauncher,
    environment_for,
    first_failure,
    last_error,
    log_of,
    threads_for,
)
from scalewise.measure.launch_spec import LaunchSpec, PlannedJob
from scalewise.measure.machine import cores
from scalewise.records.files import read_records
from waiting import PATIENCE


def spec(folder, *jobs):
    planned = [PlannedJob(job=each, id=f"job{i}") for i, each in enumerate(jobs)]
    file = str(folder / "train.jsonl")
    return LaunchSpec(planned=planned, records=file, device="cpu", threads=1)


class Instead(LocalLauncher):
    """Starts some Python code in place of torchrun."""

    code = ""

    def command(self, spec, file, folder):
        return [sys.executable, "-S", "-E", "-c", self.code]


def test_a_launch_that_takes_too_long_is_ended(tmp_path):
    launcher = Instead(timeout=5.0, logs=tmp_path)
    launcher.code = (
        "import os, time, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(os.getpid()))\n"
        "time.sleep(100)"
    )
    with pytest.raises(LaunchError, match=r"did not finish within 5 s and were ended; logs are"):
        launcher.run(spec(tmp_path, job("ddp1-mb8")))
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_a_torchrun_that_fails_by_itself_is_quoted(tmp_path):
    launcher = Instead(timeout=PATIENCE, logs=tmp_path)
    launcher.code = "import sys; print('no such option'); sys.exit(3)"
    with pytest.raises(LaunchError, match="torchrun failed with exit code 3: no such option"):
        launcher.run(spec(tmp_path, job("ddp1-mb8")))


def test_success_leaves_no_logs(tmp_path):
    launcher = Instead(timeout=PATIENCE, logs=tmp_path / "logs")
    launcher.code = "pass"
    launcher.run(spec(tmp_path, job("ddp1-mb8")))
    assert list((tmp_path / "logs").iterdir()) == []


def test_an_error_in_a_rank_names_the_rank_and_keeps_finished_records(tmp_path):
    pytest.importorskip("torch", reason="needs the extra `measure`")
    jobs = [job("ddp1-mb8"), job("ddp1-mb8", text="/no/such/file")]
    with pytest.raises(LaunchError) as caught:
        LocalLauncher(timeout=PATIENCE, logs=tmp_path).run(spec(tmp_path, *jobs))
    assert str(caught.value) == (
        "rank 0 failed: --text /no/such/file cannot be read: no such file or directory"
    )
    log = Path(caught.value.hint.removeprefix("the full log is "))
    assert "Traceback" in log.read_text()
    assert [r.id for r in read_records(tmp_path / "train.jsonl").records] == ["job0"]


def kill_a_rank(marker, rank):
    """SIGKILL the process of a rank, once its second record shows that it is at work."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        time.sleep(0.1)
        if not Path(marker).exists():
            continue
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
                variables = (folder / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            mine = b"scalewise.measure.worker" in words and f"RANK={rank}".encode() in variables
            if mine and any(str(Path(marker).parent).encode() in word for word in words):
                os.kill(int(folder.name), signal.SIGKILL)
                return


def test_a_killed_rank_is_named(tmp_path):
    pytest.importorskip("torch", reason="needs the extra `measure`")
    jobs = [job("ddp2-mb4"), job("ddp2-mb4", steps=100_000)]
    killer = threading.Thread(target=kill_a_rank, args=(tmp_path / "train.jsonl", 1))
    killer.start()
    with pytest.raises(LaunchError, match=r"rank 1 was killed by SIGKILL; its log is .*stderr.log"):
        LocalLauncher(timeout=PATIENCE, logs=tmp_path).run(spec(tmp_path, *jobs))
    killer.join()
    assert [r.id for r in read_records(tmp_path / "train.jsonl").records] == ["job0"]


def report(*failures):
    """What torchrun prints: the first failure it noticed comes last."""
    rank, code = failures[-1]
    text = f"E1119 api.py:1002] failed (exitcode: {code}) local_rank: {rank} (pid: 7) of binary\n"
    text += "ChildFailedError:\nFailures:\n"
    for i, (rank, code) in enumerate(failures):
        if i == len(failures) - 1:
            text += "Root Cause (first observed failure):\n"
        text += f"[{i}]:\n  rank      : {rank} (local_rank: {rank})\n"
        text += f"  exitcode  : {code} (pid: 1{i})\n"
    return text


@pytest.mark.parametrize(
    ("failures", "expected"),
    [
        ([(1, 1), (0, 1)], (0, 1)),
        ([(1, -9), (0, -15)], (1, -9)),
        ([(1, -9), (0, 1)], (1, -9)),
        ([(1, -15), (0, 1)], (0, 1)),
        ([(0, 1), (1, -15)], (0, 1)),
        ([(1, -15)], (1, -15)),
    ],
)
def test_the_rank_at_fault_is_found(failures, expected):
    assert first_failure(report(*failures)) == expected


def test_no_rank_at_fault():
    assert first_failure("usage: torchrun [-h]") is None


def test_cores_are_shared_out():
    assert threads_for("cpu", 1) == cores()
    assert threads_for("cpu", 10_000) == 1
    assert threads_for("cuda", 8) is None


def test_ranks_start_with_their_share_of_threads(tmp_path):
    assert environment_for(spec(tmp_path, job("ddp1-mb8")))["OMP_NUM_THREADS"] == "1"


def test_the_last_error_of_a_log_is_found(tmp_path):
    log = tmp_path / "stderr.log"
    log.write_text(
        "warning\nTraceback (most recent call last):\n  File x\n"
        "[rank1]: torch.OutOfMemoryError: CUDA out of memory.\n[rank1]: and more words\n"
    )
    assert last_error(log) == "torch.OutOfMemoryError: CUDA out of memory."
    log.write_text("scalewise.errors.InputError: seq = 0 must be positive\n")
    assert last_error(log) == "seq = 0 must be positive"
    log.write_text("Killed\n")
    assert last_error(log) == "Killed"
    assert last_error(tmp_path / "none") == "no output"


def test_a_rank_without_log_points_to_torchruns(tmp_path):
    assert log_of(tmp_path, 3) == tmp_path / "torchrun.log"
