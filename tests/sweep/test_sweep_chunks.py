"""Files that jobs leave, and what is made of them; no cluster needed."""

import multiprocessing
import signal

import msgspec
import pytest
from sweep_tasks import Number, die_on_three, leave_at_three, refuse_three, square

from scalewise.errors import ScalewiseError
from scalewise.sweep import chunks
from scalewise.sweep.chunks import Results, read_results, run_chunk, write_results
from scalewise.sweep.slurm import Job, SlurmOptions, _Array
from scalewise.sweep.store import Store
from scalewise.sweep.submit import Queue
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


def test_a_job_that_has_to_leave_writes_down_what_it_has(tmp_path):
    path = tmp_path / "chunk.results"
    with pytest.raises(SystemExit):
        run_chunk(str(path), Work.of(leave_at_three), keyed(0, 1, 2, 3, 4), 1)
    left = read_results(path)
    assert [one.key for one in left.records] == ["0", "1", "2"]
    assert left.complete is False


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
    monkeypatch.setattr(_Array, "submit", lambda self, jobs: submitted.extend(jobs))
    return submitted


def array_of(store, tasks, told, **options):
    given = SlurmOptions(settle_seconds=0.0, **options)
    return _Array(Work.of(square), tasks, store, given, told.append)


def finished(*numbers):
    work = Work.of(square)
    return [
        record_of(work, task, one)
        for (key, task), one in zip(keyed(*numbers), compute(work, keyed(*numbers)), strict=True)
    ]


def remembered(store, array, **fields):
    job = Job(chunk="c", folder=str(array.folder), job="71_0", log="/none/71_0_0_log.err", **fields)
    store.remember({"c": msgspec.msgpack.encode(job)})
    return array._file(job)


def test_part_of_a_chunk_is_kept_and_only_the_rest_submitted_again(store, silent):
    told = []
    array = array_of(store, keyed(1, 2, 3), told)
    path = remembered(store, array, keys=["1", "2", "3"])
    write_results(path, Results(records=finished(1, 2), failures=[], complete=False))
    array.attach()
    array.submit_rest()
    assert silent == []
    assert [one.key for one in array.collect()] == ["1", "2"]
    assert sorted(store.get("123")) == ["1", "2"]
    assert array.collect() == []
    assert array.mend() == []  # looks once more before it believes
    assert silent == []
    assert array.mend() == []
    assert [(job.keys, job.attempt) for job in silent] == [(["3"], 2)]
    assert told[1] == (
        "job 71_0 ended without results for 1 tasks, submitted again (2 of 3): "
        "it left no log in /none, which all nodes must share"
    )
    assert store.jobs() == {}
    assert not path.exists()


def test_points_of_other_sweeps_in_the_same_job_are_kept_as_well(store, silent):
    array = array_of(store, keyed(2), [])
    path = remembered(store, array, keys=["1", "2"])
    write_results(path, Results(records=finished(1, 2), failures=[], complete=True))
    array.attach()
    assert [one.key for one in array.collect()] == ["2"]
    assert sorted(store.get("12")) == ["1", "2"]
    assert store.jobs() == {}


def test_what_another_process_collected_is_taken_from_the_store(store, silent):
    array = array_of(store, keyed(1, 2), [])
    remembered(store, array, keys=["1", "2"])
    array.attach()
    store.put(finished(1, 2))  # the other one; it removed the file of the job, too
    array.mend()
    assert array.mend() == [Outcome(key=one.key, result=one.result) for one in finished(1, 2)]
    assert (array.wanted, silent) == ({}, [])


def test_the_third_failure_is_the_last(store, silent):
    array = array_of(store, keyed(1), [])
    remembered(store, array, keys=["1"], attempt=3)
    array.attach()
    array.mend()
    with pytest.raises(ScalewiseError, match="job 71_0 and 2 before it ended without results"):
        array.mend()
    assert store.jobs() == {}  # the next run begins anew


def test_a_full_disk_does_not_take_results_away(store, silent):
    told = []
    array = array_of(store, keyed(*range(100)), told)
    path = remembered(store, array, keys=[str(x) for x in range(100)])
    write_results(path, Results(records=finished(*range(100)), failures=[], complete=True))
    array.attach()
    (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
    store._connection.execute(f"PRAGMA max_page_count = {pages}")
    assert len(array.collect()) == 100
    assert told[1].startswith(f"cannot use the store {store.path}: the disk is full; results from")
    assert path.exists()
