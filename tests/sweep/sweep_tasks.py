"""Tasks and functions of the sweep tests, in a module that workers can import by name."""

import os
import signal
import time
from pathlib import Path

import msgspec

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.search import search
from scalewise.explore.space import Limits
from scalewise.model import load_model
from scalewise.workload import Workload


class Number(msgspec.Struct, frozen=True):
    x: int
    log: str = ""
    """Where calls are counted: one line each."""
    seconds: float = 0.0
    once: str = ""
    """A file that makes the second attempt different from the first."""
    hold: str = ""
    """The task waits for as long as this file exists."""


class Square(msgspec.Struct, frozen=True):
    y: int
    node: str = ""
    limit: float = float("inf")


def count(task):
    if task.log:
        with Path(task.log).open("a") as file:
            file.write(f"{task.x} {os.getpid()}\n")


def calls(log):
    """Which numbers were asked for, in order."""
    if not Path(log).exists():
        return []
    return [int(line.split()[0]) for line in Path(log).read_text().splitlines()]


def pids(log):
    return {int(line.split()[1]) for line in Path(log).read_text().splitlines()}


def square(task: Number) -> Square:
    count(task)
    while task.hold and Path(task.hold).exists():
        time.sleep(0.01)
    time.sleep(task.seconds)
    return Square(y=task.x**2)


def held(count, log, hold, *, free, seconds):
    """Tasks that wait for a file to go, all but the first `free`: nobody has to be quick."""
    return [
        Number(x, log=log, seconds=seconds, hold="" if x < free else str(hold))
        for x in range(count)
    ]


def square_on_node(task: Number) -> Square:
    """Also say on which node of a cluster it was computed."""
    count(task)
    time.sleep(task.seconds)
    return Square(y=task.x**2, node=os.environ.get("SLURMD_NODENAME", ""))


def refuse_three(task: Number) -> Square:
    if task.x == 3:
        raise InputError("x = 3 is not allowed", hint="use 4")
    return square(task)


def break_on_three(task: Number) -> Square:
    if task.x == 3:
        raise ZeroDivisionError("by three")
    return square(task)


def die_on_three(task: Number) -> Square:
    """Die at number three as if memory had run out; with `once`, only at the first attempt."""
    if task.x == 3 and not (task.once and Path(task.once).exists()):
        if task.once:
            Path(task.once).touch()
        time.sleep(0.2)  # let the others finish
        os.kill(os.getpid(), signal.SIGKILL)
    return square(task)


class Question(msgspec.Struct, frozen=True):
    model: str
    cluster: str
    accelerators: int
    batch: int


class Answer(msgspec.Struct, frozen=True):
    strategy: str
    step_seconds: float
    evaluated: int


def best(task: Question) -> Answer:
    found = search(
        load_model(task.model),
        load_cluster(task.cluster, accelerators=task.accelerators),
        Workload(seq_len=2048, global_batch=task.batch),
        limits=Limits(tp=(1, 2), pp=(1,), cp=(1,), micro_batch=(1, 2)),
        top=1,
    )
    return Answer(
        strategy=str(found.best.strategy),
        step_seconds=found.best.step_seconds,
        evaluated=found.evaluated,
    )


def leave_at_three(task: Number) -> Square:
    """End the process in an orderly way, as a batch system does that gives notice."""
    if task.x == 3:
        raise SystemExit(1)
    return square(task)
