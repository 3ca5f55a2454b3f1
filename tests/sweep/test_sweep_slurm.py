"""Sweeps on a real Slurm: two nodes on loopback, started by `scripts/slurm_on_loopback.py`."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from sweep_tasks import (
    Number,
    Square,
    calls,
    die_on_three,
    held,
    refuse_three,
    square,
    square_on_node,
)

from scalewise.errors import InputError, ScalewiseError
from scalewise.sweep.run import run, run_all
from scalewise.sweep.slurm import SlurmOptions, chunk_size, script
from scalewise.sweep.store import Store
from waiting import PATIENCE, until

# The machine that plays two nodes shares one file system, so nothing needs time to show up.
QUICK = {"poll_seconds": 0.1, "settle_seconds": 0.3, "seconds": 600.0}


def queue():
    done = subprocess.run(["squeue", "-h", "-r"], capture_output=True, text=True, check=True)
    return done.stdout.split("\n")[:-1]


def files(folder):
    """What is left of jobs beside the store, but for their logs."""
    return [x for x in (folder / "s.db.slurm").iterdir() if x.suffix not in (".out", ".err")]


def test_both_nodes_compute_what_one_process_computes(cluster, tmp_path):
    tasks = [Number(x, seconds=0.02) for x in range(40)]
    serial = run_all(tasks, square_on_node, result_type=Square)
    seen = []
    found = run_all(
        tasks,
        square_on_node,
        result_type=Square,
        store=tmp_path / "s.db",
        slurm=SlurmOptions(nodes=2, tasks_per_job=10, cpus=2, **QUICK),
        progress=lambda done, total: seen.append((done, total)),
    )
    assert [one.y for one in found] == [one.y for one in serial]
    assert {one.node for one in found} == {"node1", "node2"}
    assert {one.limit for one in found} == {float("inf")}
    assert seen[-1] == (40, 40)
    with Store(tmp_path / "s.db") as store:
        assert len(store) == 40
    assert files(tmp_path) == []


SWEEP = """
import sys
from sweep_tasks import *
from scalewise.sweep.run import run_all
from scalewise.sweep.slurm import SlurmOptions
run_all(
    held(12, sys.argv[2], sys.argv[3], free=2, seconds=0.1),
    square, result_type=Square, store=sys.argv[1],
    slurm=SlurmOptions(nodes=2, tasks_per_job=3, poll_seconds=0.1, settle_seconds=0.3),
)
"""


def test_an_interrupted_sweep_is_resumed_without_computing_anything_twice(cluster, tmp_path):
    path, log, hold = tmp_path / "s.db", str(tmp_path / "log"), tmp_path / "hold"
    hold.touch()
    command = [sys.executable, "-c", SWEEP, str(path), log, str(hold)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    until(lambda: len(calls(log)) >= 2, "two tasks")
    first.send_signal(signal.SIGINT)
    said = first.communicate(timeout=PATIENCE)[1]
    assert first.returncode in (1, -signal.SIGINT)
    assert re.search(
        r"\d jobs continue; run the same again to collect them, or end them with: ", said
    )
    assert re.search(r"scancel \d+\n", said)
    assert len(queue()) > 0

    # Nobody waits now, but the jobs go on: some finish before somebody comes back.
    hold.unlink()
    until(lambda: len(calls(log)) >= 8, "eight tasks")
    lines = []
    tasks = held(12, log, hold, free=2, seconds=0.1)
    options = SlurmOptions(nodes=2, tasks_per_job=3, **QUICK)
    found = run_all(tasks, square, result_type=Square, store=path, slurm=options, say=lines.append)
    assert [one.y for one in found] == [x * x for x in range(12)]
    assert re.fullmatch(r"resumed [1-4] jobs? of earlier runs", lines[0])
    assert sorted(calls(log)) == list(range(12))


def test_a_failing_task_is_named_and_the_others_are_kept(cluster, tmp_path):
    tasks = [Number(x) for x in range(6)]
    options = SlurmOptions(nodes=1, tasks_per_job=6, **QUICK)
    with pytest.raises(InputError) as caught:
        run_all(tasks, refuse_three, result_type=Square, store=tmp_path / "s.db", slurm=options)
    assert str(caught.value).startswith('task 4 of 6, {"x":3,')
    assert str(caught.value).endswith(": x = 3 is not allowed")
    assert caught.value.hint == "use 4"
    with Store(tmp_path / "s.db") as store:
        assert sorted(point.result["y"] for point in store) == [0, 1, 4, 16, 25]
    assert files(tmp_path) == []


def test_a_killed_job_is_submitted_again(cluster, tmp_path):
    log, once = str(tmp_path / "log"), str(tmp_path / "once")
    tasks = [Number(x, log=log, once=once) for x in range(2, 5)]
    lines = []
    found = run_all(
        tasks,
        die_on_three,
        result_type=Square,
        store=tmp_path / "s.db",
        slurm=SlurmOptions(nodes=2, tasks_per_job=2, **QUICK),
        say=lines.append,
    )
    assert [one.y for one in found] == [4, 9, 16]
    assert len(lines) == 1
    pattern = (
        r"job (\d+_0) ended without results for 2 tasks, submitted again \(2 of 3\): see (\S+)"
    )
    number, path = re.match(pattern, lines[0]).groups()
    assert Path(path).name == f"{number}.err"
    assert Path(path).is_file()


def test_a_job_that_always_dies_is_given_up_after_three(cluster, tmp_path):
    log = str(tmp_path / "log")
    lines = []
    options = SlurmOptions(nodes=2, tasks_per_job=1, **QUICK)
    store = tmp_path / "s.db"
    tasks = [Number(x, log=log) for x in (3, 4)]
    with pytest.raises(ScalewiseError) as caught:
        run_all(
            tasks, die_on_three, result_type=Square, store=store, slurm=options, say=lines.append
        )
    assert re.match(
        r"job \d+ and 2 before it ended without results for 1 tasks: see .*.err \(.*Killed.*\)",
        str(caught.value),
    )
    assert [f"{n} of 3" in one for n, one in zip((2, 3), lines, strict=True)] == [True, True]
    with Store(store) as opened:
        assert [point.result["y"] for point in opened] == [16]
    assert files(tmp_path) == []


def test_jobs_are_cancelled_if_asked_for(cluster, tmp_path):
    hold = tmp_path / "hold"
    hold.touch()
    tasks = held(3, str(tmp_path / "log"), hold, free=1, seconds=0.0)
    lines = []
    options = SlurmOptions(
        nodes=3, tasks_per_job=1, cancel_on_interrupt=True, extra={"comment": "x"}, **QUICK
    )
    points = run(
        tasks,
        square,
        result_type=Square,
        store=tmp_path / "s.db",
        slurm=options,
        say=lines.append,
    )
    assert next(points) == (0, Square(y=0))
    points.close()
    assert re.fullmatch(
        rf"Slurm job \d+ was canceled; results so far are in {tmp_path / 's.db'}", *lines
    )
    until(lambda: queue() == [])
    hold.unlink()
    with Store(tmp_path / "s.db") as store:
        assert len(store) == 1
    assert list(tmp_path.glob("s.db.slurm/*.job")) == []


def test_a_job_that_slurm_ends_writes_what_it_has(cluster, tmp_path):
    log, hold = str(tmp_path / "log"), tmp_path / "hold"
    hold.touch()
    lines = []
    options = SlurmOptions(nodes=1, tasks_per_job=3, **QUICK)
    points = run(
        held(3, log, hold, free=2, seconds=0.0),
        square,
        result_type=Square,
        store=tmp_path / "s.db",
        slurm=options,
        say=lines.append,
    )
    ended = threading.Thread(target=end_at, args=(log, lines, hold))
    ended.start()
    assert sorted(points) == [(x, Square(y=x * x)) for x in range(3)]
    ended.join()
    assert re.match(r"job \d+ ended without results for 1 tasks, submitted again", lines[0])
    assert calls(log) == [0, 1, 2, 2]


def end_at(log, lines, hold):
    """Cancel the job in its third task; let the next one finish."""
    until(lambda: len(calls(log)) >= 3, "three tasks")
    subprocess.run(["scancel", f"--user={os.getuid()}"], check=True)
    until(lambda: lines, "the next job")
    hold.unlink()


def test_a_refused_job_is_one_sentence(cluster, tmp_path):
    options = SlurmOptions(partition="nowhere", **QUICK)
    with pytest.raises(ScalewiseError, match=r"sbatch refused the sweep: .*[Pp]artition"):
        run_all([Number(1)], square, result_type=Square, store=tmp_path / "s.db", slurm=options)


def test_the_script_is_shown_without_slurm(tmp_path):
    options = SlurmOptions(partition="all", nodes=3, account="us", setup=("module load x",))
    text = script(100, tmp_path / "s.db", options)
    assert "# What --slurm submits: 100 tasks in 12 jobs." in text
    assert "#SBATCH --array=0-11%3" in text
    assert "#SBATCH --partition=all" in text
    assert "#SBATCH --account=us" in text
    assert "#SBATCH --time=60" in text
    assert "\nmodule load x\n" in text


# Without a cluster.


@pytest.mark.parametrize(
    ("tasks", "options", "size"),
    [
        (40, {"nodes": 2}, 5),
        (3, {"nodes": 8}, 1),
        (100_000, {"nodes": 500}, 100),
        (40, {"nodes": 2, "tasks_per_job": 7}, 7),
    ],
)
def test_tasks_of_one_job(tasks, options, size):
    assert chunk_size(tasks, SlurmOptions(**options)) == size


def test_slurm_needs_a_store_and_its_commands(tmp_path, monkeypatch):
    with pytest.raises(InputError, match="needs a store"):
        run([Number(1)], square, result_type=Square, slurm=SlurmOptions())
    monkeypatch.setattr(square, "__module__", "__main__")
    with pytest.raises(InputError, match="jobs cannot import square from the script"):
        run([Number(1)], square, result_type=Square, slurm=SlurmOptions(), store=tmp_path / "s.db")
    monkeypatch.undo()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match="Slurm's `sbatch` is not found"):
        run([Number(1)], square, result_type=Square, slurm=SlurmOptions(), store=tmp_path / "s.db")


@pytest.mark.parametrize("field", ["nodes", "cpus", "seconds", "tasks_per_job", "poll_seconds"])
def test_options_must_be_positive(field):
    with pytest.raises(InputError, match=f"{field} = 0 must be positive"):
        SlurmOptions(**{field: 0})
