"""Sweeps on this machine: stored, shared, interrupted, killed."""

import os
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest
from sweep_tasks import (
    Answer,
    Number,
    Question,
    Square,
    best,
    break_on_three,
    calls,
    die_on_three,
    held,
    pids,
    refuse_three,
    square,
)

import toys
from scalewise.errors import InputError, ScalewiseError
from scalewise.explore.scale import scale
from scalewise.explore.sizes import Rule
from scalewise.explore.tasks import PointResult
from scalewise.sweep import local
from scalewise.sweep.local import chunk_size
from scalewise.sweep.run import cores, run, run_all
from scalewise.sweep.store import Store
from scalewise.sweep.work import Work, compute_elsewhere
from waiting import PATIENCE, until

# Before whatever finds this copy of scalewise.
SEEN = os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]))


@pytest.fixture
def log(tmp_path):
    return str(tmp_path / "log")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "sweep.db"


def numbers(count, log="", seconds=0.0):
    return [Number(x, log=log, seconds=seconds) for x in range(count)]


@pytest.mark.parametrize("jobs", [1, 2])
def test_results_keep_their_places_and_equal_tasks_are_computed_once(log, jobs):
    tasks = [Number(x, log=log) for x in (5, 3, 5, 2, 3, 5)]
    seen = []
    pairs = list(
        run(
            tasks,
            square,
            result_type=Square,
            jobs=jobs,
            progress=lambda *now: seen.append(now),
        )
    )
    assert sorted((index, one.y) for index, one in pairs) == [
        (0, 25), (1, 9), (2, 25), (3, 4), (4, 9), (5, 25),
    ]  # fmt: skip
    assert sorted(calls(log)) == [2, 3, 5]
    assert seen[-1] == (6, 6)


def test_what_is_stored_comes_at_once_and_is_not_computed_again(path, log):
    assert [one.y for one in run_all(numbers(4, log), square, result_type=Square, store=path)] == [
        0, 1, 4, 9,
    ]  # fmt: skip
    with Store(path) as store:
        points = run(numbers(6, log), square, result_type=Square, store=store)
        first = [next(points) for _ in range(4)]
        assert first == [(x, Square(y=x * x)) for x in range(4)]
        assert calls(log) == [0, 1, 2, 3]
        assert list(points) == [(4, Square(y=16)), (5, Square(y=25))]
        assert len(store) == 6
    assert calls(log) == [0, 1, 2, 3, 4, 5]


def test_each_point_is_on_disk_before_the_next_is_begun(path, log):
    points = run(numbers(5, log), square, result_type=Square, store=path)
    next(points)
    next(points)
    with Store(path) as other:
        assert len(other) == 2
    points.close()
    assert calls(log) == [0, 1]


def test_stored_results_equal_fresh_ones_to_the_last_bit(path):
    question = Question("gpt2", "dgx-h100", 8, 64)
    fresh = run_all([question], best, result_type=Answer, store=path)
    stored = run_all([question], best, result_type=Answer, store=path)
    assert fresh == stored == [best(question)]
    assert fresh[0].evaluated > 10


def test_several_cores_find_what_one_finds():
    tasks = [Question("gpt2", on, n, 64) for on in ("dgx-h100", "dgx-a100") for n in (8, 16, 32)]
    one = run_all(tasks, best, result_type=Answer)
    assert run_all(tasks, best, result_type=Answer, jobs=2) == one
    assert len({answer.step_seconds for answer in one}) == 6


def test_points_of_curves_are_tasks_like_any_other(path):
    def question(run=None):
        return scale(
            toys.toy_model(),
            toys.toy_cluster(8),
            Rule(kind="weak", batch=2, seq_len=1024),
            ["fsdp", "best"],
            [4, 8, 16],
            run=run,
        )

    def swept(tasks, function):
        return run(tasks, function, result_type=PointResult, store=path, jobs=2)

    plain = question()
    assert question(swept) == plain
    with Store(path) as store:
        assert len(store) == 6
    assert question(swept) == plain


class Wider(msgspec.Struct, frozen=True):
    y: int
    z: int


def test_a_result_that_does_not_fit_its_type_any_more_is_computed_again(path, log):
    run_all(numbers(2, log), square, result_type=Square, store=path)
    with pytest.raises(msgspec.ValidationError):
        run_all(numbers(2, log), square, result_type=Wider, store=path)
    assert calls(log) == [0, 1, 0]
    with Store(path) as store:
        broken = [
            msgspec.structs.replace(_record(store, key), result=b"\xc1") for key in _keys(store)
        ]
        store.put(broken)
    found = run_all(numbers(2, log), square, result_type=Square, store=path)
    assert [one.y for one in found] == [0, 1]
    assert calls(log) == [0, 1, 0, 0, 1]


def _keys(store):
    return [point.key for point in store]


def _record(store, key):
    from scalewise.sweep.store import Record

    point = next(point for point in store if point.key == key)
    return Record(
        key=key, function=point.function, fingerprint=point.fingerprint, task=b"{}", result=b""
    )


def test_another_catalog_is_another_result(path, log, tmp_path, monkeypatch):
    run_all(numbers(2, log), square, result_type=Square, store=path)
    (tmp_path / "own" / "stacks").mkdir(parents=True)
    (tmp_path / "own" / "stacks" / "mine.toml").write_text("x = 1\n")
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path / "own"))
    run_all(numbers(2, log), square, result_type=Square, store=path)
    assert calls(log) == [0, 1, 0, 1]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_failing_task_is_named_and_what_was_done_is_kept(path, jobs):
    with pytest.raises(InputError) as caught:
        run_all(numbers(5), refuse_three, result_type=Square, store=path, jobs=jobs)
    assert str(caught.value) == (
        'task 4 of 5, {"x":3,"log":"","seconds":0.0,"once":"","hold":""}: x = 3 is not allowed'
    )
    assert caught.value.hint == "use 4"
    with Store(path) as store:
        kept = {point.result["y"] for point in store}
    if jobs == 1:
        assert kept == {0, 1, 4}
    assert kept
    assert kept <= {0, 1, 4, 16}


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_bug_in_a_task_shows_where_it_is(jobs):
    with pytest.raises(
        RuntimeError, match=r"task 4 of 5, .*: ZeroDivisionError: by three"
    ) as caught:
        run_all(numbers(5), break_on_three, result_type=Square, jobs=jobs)
    assert 'sweep_tasks.py", line' in caught.value.__notes__[0]


def test_a_killed_worker_is_one_sentence_and_finished_points_stay(path, log):
    tasks = [Number(x, log=log) for x in (0, 1, 2, 3)]
    with pytest.raises(ScalewiseError, match="a worker process was killed") as caught:
        run_all(tasks, die_on_three, result_type=Square, store=path, jobs=2)
    assert "fewer --jobs" in caught.value.hint
    done = calls(log)
    assert run_all(tasks, square, result_type=Square, store=path) != []
    with Store(path) as store:
        kept = {p.result["y"] for p in store if p.function.endswith("die_on_three")}
    assert kept
    assert kept <= {x * x for x in done}


def test_a_full_disk_is_said_once_and_results_go_on(path, log):
    lines = []
    with Store(path) as store:
        store.put([])
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages}")
        found = run_all(numbers(300), square, result_type=Square, store=store, say=lines.append)
    assert [one.y for one in found] == [x * x for x in range(300)]
    assert lines == [
        f"cannot use the store {path}: the disk is full; results from here on are not kept"
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"jobs": -1}, "jobs = -1 is negative"),
        ({"tasks": [3]}, "a task is a msgspec struct, not 3"),
        ({"function": lambda task: task}, "top of a module"),
        ({"store": "/proc/none/x.db"}, "cannot make the folder"),
    ],
)
def test_wrong_arguments_are_refused(change, message):
    given = {"tasks": numbers(1), "function": square, "result_type": Square} | change
    with pytest.raises(InputError, match=message):
        run_all(given.pop("tasks"), given.pop("function"), **given)


def test_a_worker_with_other_physics_refuses(monkeypatch):
    stale = Work(square, "sweep_tasks.square", "0" * 16)
    outcomes, _ = compute_elsewhere(stale, [("k", Number(1))])
    assert "not the same in the worker" in outcomes[0].failure.message


@pytest.mark.parametrize(
    ("seconds", "left", "jobs", "size"),
    [(None, 1000, 2, 1), (0.001, 1000, 2, 100), (0.001, 40, 2, 10), (5.0, 1000, 2, 1),
     (1e-9, 10**9, 2, 100_000), (0.001, 1, 2, 1)],
)  # fmt: skip
def test_chunks_take_a_tenth_of_a_second(seconds, left, jobs, size):
    assert chunk_size(seconds, left, jobs) == size


def test_quick_tasks_do_not_drown_in_traffic(monkeypatch):
    sizes = []
    submit = local.ProcessPoolExecutor.submit

    def counted(self, function, work, chunk):
        sizes.append(len(chunk))
        return submit(self, function, work, chunk)

    monkeypatch.setattr(local.ProcessPoolExecutor, "submit", counted)
    found = run_all(numbers(20_000), square, result_type=Square, jobs=2)
    assert [one.y for one in found] == [x * x for x in range(20_000)]
    assert sum(sizes) == 20_000
    assert len(sizes) < 400
    assert sizes[0] == 1


def test_cores_are_those_this_process_may_use():
    assert cores() == len(os.sched_getaffinity(0))


# Killed and interrupted, for real.

SWEEP = """
import sys
from sweep_tasks import *
from scalewise.sweep.run import run_all
if __name__ == "__main__":
    log, store, hold, jobs = sys.argv[1:]
    tasks = held(24, log, hold, free=10, seconds=0.25)
    run_all(tasks, square, result_type=Square, store=store, jobs=int(jobs))
"""


def sweeping(tmp_path, log, path, hold, jobs):
    """A sweep in a process of its own, at a moment when some points are done."""
    hold.touch()
    script = tmp_path / "script.py"
    script.write_text(SWEEP)
    process = subprocess.Popen(
        [sys.executable, str(script), log, str(path), str(hold), str(jobs)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": SEEN},
        start_new_session=True,
    )
    until(lambda: len(calls(log)) >= 8 or process.poll() is not None, "eight points")
    assert process.poll() is None, process.communicate()[1]
    return process


def gone(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.parametrize("jobs", [1, 2])
@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGINT])
def test_a_stopped_sweep_goes_on_where_it_was(tmp_path, log, path, jobs, sign):
    hold = tmp_path / "hold"
    process = sweeping(tmp_path, log, path, hold, jobs)
    process.send_signal(sign)
    hold.unlink()
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode != 0
    workers = pids(log)
    until(lambda: all(gone(pid) for pid in workers), "workers that outlive their parent")

    before = Counter(calls(log))
    assert max(before.values()) == 1
    with Store(path) as store:
        kept = {point.task["x"] for point in store}
    # A process loses at most what it computes; of a worker, one result more may be on its way.
    assert len(before) >= 8
    assert len(before) - len(kept) <= (1 if jobs == 1 else 2 * jobs)
    if sign == signal.SIGINT:
        assert re.search(r"\d+ of 24 results are in .*sweep.db: run the same again", said)
        assert said.count("KeyboardInterrupt") == 1

    tasks = held(24, log, hold, free=10, seconds=0.25)
    found = run_all(tasks, square, result_type=Square, store=path, jobs=2)
    assert [one.y for one in found] == [x * x for x in range(24)]
    after = Counter(calls(log)) - before
    assert set(after) == set(range(24)) - kept
    assert max(after.values()) == 1
