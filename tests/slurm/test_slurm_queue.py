"""What squeue, scontrol and logs say; the programs are scripts of the test."""

import pytest

from scalewise.errors import InputError, ScalewiseError
from scalewise.slurm.queue import (
    QUEUE_FAILURES,
    Entry,
    Queue,
    ending_of,
    log_tail,
    require_slurm,
)


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Let a script of ours be one of Slurm's programs."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")

    def make(name, lines):
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)

    return make


def test_jobs_by_number(program):
    program("squeue", 'echo "71_0|RUNNING|None|node1"; echo "72|PENDING|Priority|"; echo other')
    assert Queue().look() == {
        "71_0": Entry("RUNNING", "None", "node1"),
        "72": Entry("PENDING", "Priority", ""),
    }


def test_a_silent_controller_is_borne_for_a_while(program):
    program("squeue", "exit 1")
    queue = Queue()
    for _ in range(QUEUE_FAILURES):
        assert queue.look() is None
    with pytest.raises(ScalewiseError, match="squeue failed 21 times in a row"):
        queue.look()
    program("squeue", "true")
    assert queue.look() == {}
    program("squeue", "exit 1")
    assert queue.look() is None


@pytest.mark.parametrize(
    ("state", "ending"),
    [
        ("TIMEOUT", "reached its time limit"),
        ("CANCELLED", "was canceled"),
        ("FAILED", None),
        ("", None),
    ],
)
def test_how_a_job_ended(program, state, ending):
    program("scontrol", f'echo "JobId=71 JobState={state} Reason=None"')
    assert ending_of("71") == ending


def test_a_job_that_slurm_forgot(program):
    program("scontrol", "exit 1")
    assert ending_of("71") is None


def test_the_last_line_of_a_log(tmp_path):
    log = tmp_path / "71.err"
    assert log_tail(log) == f"no log in {tmp_path}, which all nodes must share"
    log.write_text("\n")
    (tmp_path / "71.out").write_text("one\ntwo\n\n")
    assert log_tail(log) == f"see {tmp_path}/71.out (two)"
    log.write_text("x" * 300)
    assert log_tail(log) == f"see {log} ({'x' * 200})"


def test_slurm_is_missed_by_name(program, tmp_path, monkeypatch):
    program("sbatch", "true")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(InputError, match="Slurm's `squeue` is not found") as caught:
        require_slurm("do without")
    assert caught.value.hint == "do without"
