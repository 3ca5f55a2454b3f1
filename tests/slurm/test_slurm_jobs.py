"""The life of pieces without a cluster: squeue and sbatch are scripts of the test."""

import msgspec
import pytest

from scalewise.errors import InputError, ScalewiseError
from scalewise.slurm.jobs import Job, JobRun


class Letters(JobRun[str]):
    """Pieces are letters; one is done when a file of its name is in the folder."""

    what, hint, attempts, array_size, cancels = "test", "check it", 2, 2, False

    def _split(self, keys):
        return [[key] for key in keys]

    def _script(self, jobs):
        return "#!/bin/bash\n" + "\n".join(job.keys[0] for job in jobs)

    def _collect(self, job):
        found = [key for key in job.keys if key in self.wanted and (self.folder / key).exists()]
        for key in found:
            del self.wanted[key]
        return found, not any(key in self.wanted for key in job.keys)

    def _summary(self):
        return f"{len(self.wanted)} left"


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """An empty queue, numbers from 1, and a list of what was submitted."""
    folder = tmp_path / "bin"
    folder.mkdir()
    programs = {
        "squeue": "true",
        "scancel": f'echo "$@" >> {tmp_path}/canceled',
        "sbatch": f"cat >> {tmp_path}/scripts; grep -c bash {tmp_path}/scripts",
    }
    for name, lines in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{lines}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return tmp_path


def letters(slurm, keys, lines):
    return Letters(keys, slurm / "jobs", lines.append, poll_seconds=0.0, settle_seconds=0.0)


def test_pieces_are_submitted_as_arrays_and_remembered(slurm):
    run = letters(slurm, "abc", [])
    run.submit_rest()
    assert [(job.keys, job.number) for job in run.jobs.values()] == [
        (["a"], "1_0"),
        (["b"], "1_1"),
        (["c"], "2"),
    ]
    again = letters(slurm, "bcd", [])
    again.attach()
    assert sorted(job.keys for job in again.jobs.values()) == [["b"], ["c"]]
    again.submit_rest()
    assert [job.number for job in again.jobs.values() if job.keys == ["d"]] == ["3"]


def test_a_damaged_file_of_a_job_is_no_job(slurm):
    (slurm / "jobs").mkdir()
    (slurm / "jobs" / "x.job").write_bytes(b"{")
    run = letters(slurm, "a", [])
    run.attach()
    assert run.jobs == {}


def test_results_are_collected_and_jobs_forgotten(slurm):
    lines = []
    run = letters(slurm, "ab", lines)
    results = run.results()
    (slurm / "jobs").mkdir()
    (slurm / "jobs" / "a").touch()
    assert next(results) == ["a"]
    (slurm / "jobs" / "b").touch()
    assert list(results) == [["b"]]
    assert list((slurm / "jobs").glob("*.job")) == []
    assert lines == []


def test_lost_pieces_are_submitted_again_and_given_up(slurm):
    lines = []
    with pytest.raises(ScalewiseError) as caught:
        list(letters(slurm, "a", lines).results())
    assert lines == [
        "job 1 ended without results for 1 tasks, submitted again (2 of 2): "
        f"no log in {slurm}/jobs, which all nodes must share"
    ]
    assert str(caught.value).startswith("job 2 and 1 before it ended without results for 1 tasks")
    assert caught.value.hint == "results of other jobs are kept; run the same again to retry"
    assert list((slurm / "jobs").iterdir()) == []


def test_jobs_of_earlier_runs_are_resumed(slurm):
    (slurm / "jobs").mkdir()
    job = Job(keys=["a"], name="old", number="7")
    (slurm / "jobs" / "old.job").write_bytes(msgspec.json.encode(job))
    (slurm / "jobs" / "a").touch()
    lines = []
    assert list(letters(slurm, "a", lines).results()) == [["a"]]
    assert lines == ["resumed 1 job of earlier runs"]
    assert not (slurm / "scripts").exists()


def test_an_interrupt_leaves_jobs_or_cancels_them(slurm):
    lines = []
    run = letters(slurm, "abc", lines)
    run.submit_rest()
    run.interrupted()
    assert lines == [
        "3 jobs continue; run the same again to collect them, or end them with: scancel 1 2"
    ]
    run.cancels = True
    run.interrupted()
    assert lines[1] == "Slurm job 1 2 was canceled; 3 left"
    assert (slurm / "canceled").read_text() == "1 2\n"
    assert list((slurm / "jobs").iterdir()) == []
    run.interrupted()
    assert len(lines) == 2


def test_a_folder_that_cannot_be_written_is_refused(slurm):
    (slurm / "jobs").write_text("not a folder")
    with pytest.raises(InputError, match=f"jobs cannot be written to {slurm}/jobs: "):
        letters(slurm, "a", []).submit_rest()
