"""Files that jobs leave, and what is made of them; no cluster needed."""

import multiprocessing
import pickle
import signal
import sys

import msgspec
import pytest
from sweep_tasks import Number, die_on_three, leave_at_three, refuse_three, square

from scalewise.errors import ScalewiseError
from scalewise.slurm.jobs import Job
from scalewise.slurm.queue import Queue
from scalewise.sweep import chunks
from scalewise.sweep.chunks import Results, read_results, run_chunk, write_results, write_sealed
from scalewise.sweep.slurm import ChunkRun, SlurmOptions
from scalewise.sweep.store import Store
from scalewise.sweep.work import Outcome, Work, compute, record_of


def keyed(*numbers):
    return [(str(x), Number(x)) for x in numbers]


def test_a_chunk_becomes_one_file(tmp_path):
    path = tmp_path / "chunk.results"
    run_chunk(str(path), Work.of(refuse_three), keyed(2, 3, 4), 1)
    left = read_results(path)
    assert left.complete is True
    assert [one.key for one in left.records] == ["2", "4"]
    assert [(one.key, one.failure.message) for one in left.failures] == [
        ("3", "x = 3 is not allowed")
    ]
    assert left.records[0].function == "sweep_tasks.refuse_three"
    assert msgspec.json.decode(left.records[0].task)["x"] == 2
    assert [file.name for file in tmp_path.iterdir()] == ["chunk.results"]


def test_files_of_a_job_with_a_flipped_bit_are_not_read(tmp_path):
    path = tmp_path / "chunk.results"
    run_chunk(str(path), Work.of(square), keyed(2, 3), 1)
    whole = path.read_bytes()
    for place in range(0, len(whole) * 8, 7):
        broken = bytearray(whole)
        broken[place // 8] ^= 1 << place % 8
        path.write_bytes(broken)
        assert read_results(path) is None


def test_a_job_that_has_to_leave_writes_down_what_it_has(tmp_path):
    path = tmp_path / "chunk.results"
    with pytest.raises(SystemExit):
        run_chunk(str(path), Work.of(leave_at_three), keyed(0, 1, 2, 3, 4), 1)
    left = read_results(path)
    assert [one.key for one in left.records] == ["0", "1", "2"]
    assert left.complete is False


def test_a_file_of_tasks_is_computed_by_a_command(tmp_path, monkeypatch):
    work, path = Work.of(square), tmp_path / "chunk.tasks"
    write_sealed(path, pickle.dumps((work, keyed(2, 3), 1)))
    monkeypatch.setattr(sys, "argv", ["chunks", str(path)])
    handler = signal.getsignal(signal.SIGTERM)
    try:
        chunks.main()
        with pytest.raises(SystemExit) as caught:
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert caught.value.code == 143
    assert [one.key for one in read_results(tmp_path / "chunk.results").records] == ["2", "3"]


def chunk_saved_often(path):
    chunks.SAVE_SECONDS = -1.0
    run_chunk(path, Work.of(die_on_three), keyed(1, 2, 3, 4), 1)


def test_a_job_that_is_killed_has_written_before(tmp_path):
    path = tmp_path / "chunk.results"
    child = multiprocessing.get_context("fork").Process(target=chunk_saved_often, args=[str(path)])
    child.start()
    child.join(30)
    assert child.exitcode == -signal.SIGKILL
    left = read_results(path)
    assert [one.key for one in left.records] == ["1", "2"]
    assert left.complete is False


def test_what_cannot_be_read_is_not_there(tmp_path):
    path = tmp_path / "chunk.results"
    assert read_results(path) is None
    path.write_bytes(b"\x93half")
    assert read_results(path) is None


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "s.db") as opened:
        yield opened


@pytest.fixture
def silent(monkeypatch):
    """A cluster on which nothing runs any more; what would be submitted is listed."""
    submitted = []
    monkeypatch.setattr(Queue, "look", lambda self: {})
    monkeypatch.setattr(ChunkRun, "submit", lambda self, jobs: submitted.extend(jobs))
    return submitted


def array_of(store, tasks, lines, **options):
    given = SlurmOptions(settle_seconds=0.0, **options)
    return ChunkRun(Work.of(square), tasks, store, given, lines.append)


def finished(*numbers):
    work = Work.of(square)
    return [
        record_of(work, task, one)
        for (key, task), one in zip(keyed(*numbers), compute(work, keyed(*numbers)), strict=True)
    ]


def remembered(array, **fields):
    array.folder.mkdir()
    job = Job(name="c", number="71_0", **fields)
    (array.folder / "c.job").write_bytes(msgspec.json.encode(job))
    return array.folder / "c.results"


def test_part_of_a_chunk_is_kept_and_only_the_rest_submitted_again(store, silent):
    lines = []
    array = array_of(store, keyed(1, 2, 3), lines)
    path = remembered(array, keys=["1", "2", "3"])
    write_results(path, Results(records=finished(1, 2), failures=[], complete=False))
    array.attach()
    array.submit_rest()
    assert silent == []
    assert [one.key for one in array.collect()] == ["1", "2"]
    assert sorted(store.get("123")) == ["1", "2"]
    assert array.collect() == []
    assert array.resubmit_lost() == []  # looks once more before it believes
    assert silent == []
    assert array.resubmit_lost() == []
    assert [(job.keys, job.attempt) for job in silent] == [(["3"], 2)]
    assert lines[0] == (
        "job 71_0 ended without results for 1 tasks, submitted again (2 of 3): "
        f"no log in {path.parent}, which all nodes must share"
    )
    assert list(path.parent.iterdir()) == []


def test_points_of_other_sweeps_in_the_same_job_are_kept_as_well(store, silent):
    array = array_of(store, keyed(2), [])
    path = remembered(array, keys=["1", "2"])
    write_results(path, Results(records=finished(1, 2), failures=[], complete=True))
    array.attach()
    assert [one.key for one in array.collect()] == ["2"]
    assert sorted(store.get("12")) == ["1", "2"]
    assert list(path.parent.iterdir()) == []


def test_what_another_process_collected_is_taken_from_the_store(store, silent):
    array = array_of(store, keyed(1, 2), [])
    remembered(array, keys=["1", "2"])
    array.attach()
    store.put(finished(1, 2))  # the other one; it removed the file of the job, too
    array.resubmit_lost()
    assert array.resubmit_lost() == [
        Outcome(key=one.key, result=one.result) for one in finished(1, 2)
    ]
    assert (array.wanted, silent) == ({}, [])


def test_the_third_failure_is_the_last(store, silent):
    array = array_of(store, keyed(1), [])
    remembered(array, keys=["1"], attempt=3)
    array.attach()
    array.resubmit_lost()
    with pytest.raises(ScalewiseError, match="job 71_0 and 2 before it ended without results"):
        array.resubmit_lost()
    assert list(array.folder.iterdir()) == []  # the next run begins anew


def test_a_full_disk_does_not_take_results_away(store, silent):
    lines = []
    array = array_of(store, keyed(*range(100)), lines)
    path = remembered(array, keys=[str(x) for x in range(100)])
    write_results(path, Results(records=finished(*range(100)), failures=[], complete=True))
    array.attach()
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    assert len(array.collect()) == 100
    assert lines[0].startswith(f"cannot use the store {store.path}: the disk is full; results from")
    assert path.exists()
