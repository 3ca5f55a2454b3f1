"""The state of Slurm jobs, by squeue and scontrol.

    queue = Queue()
    (queue.look() or {}).get("71")           # Entry(state="PENDING", ...), or None once it ended

`sacct` is not used: it needs a database that small clusters do not have.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from scalewise.errors import InputError, ScalewiseError

QUEUE_FAILURES = 20
"""Failures of `squeue` in a row before waiting ends with an error."""

TAIL = 200
"""Characters of the last line of a log in a message."""

ENDED = "COMPLETING"
"""A state in which no process of the job runs any more: Slurm cleans up after it."""

CLEANUP_SECONDS = 30.0
"""Longest wait for the end of that state, seconds."""

ENDINGS = {
    "CANCELLED": "was canceled",
    "TIMEOUT": "reached its time limit",
    "PREEMPTED": "was preempted",
    "NODE_FAIL": "lost a node",
    "OUT_OF_MEMORY": "ran out of memory",
    "BOOT_FAIL": "got a node that did not boot",
}
"""Final states of a job that explain missing results, as messages put them."""


class Entry(NamedTuple):
    """One job in the queue."""

    state: str
    """PENDING, RUNNING, ..."""
    reason: str
    """Reason of a pending job, such as Priority."""
    nodes: str
    """Nodes of a running job, such as node[1-2]."""


def require_slurm(hint: str) -> None:
    """Check that this machine has Slurm's commands.

    Args:
        hint: The alternative where there is no Slurm.

    Raises:
        InputError: If one of them is not found.
    """
    for name in ("sbatch", "squeue", "srun"):
        if shutil.which(name) is None:
            raise InputError(f"Slurm's `{name}` is not found on this machine", hint=hint)


class Queue:
    """The jobs of this user."""

    def __init__(self) -> None:
        self.failures = 0

    def look(self) -> dict[str, Entry] | None:
        """Return pending and running jobs by number; None if squeue fails this time.

        Raises:
            ScalewiseError: After QUEUE_FAILURES failures in a row.
        """
        form = "--format=%i|%T|%r|%N"
        command = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", form]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            self.failures += 1
            if self.failures > QUEUE_FAILURES:
                raise ScalewiseError(
                    f"squeue failed {self.failures} times in a row: {error}",
                    hint="the jobs are not affected; run the same again to collect them",
                ) from error
            return None
        self.failures = 0
        rows = (line.split("|") for line in done.stdout.splitlines() if line.count("|") == 3)
        return {number.strip(): Entry(*rest) for number, *rest in rows}


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs; those that ended already are ignored."""
    subprocess.run(["scancel", *jobs], check=False, capture_output=True)


def ending_of(job: str) -> str | None:
    """Return how a job ended ("was canceled"); None if its state explains nothing."""
    command = ["scontrol", "show", "job", "--oneliner", job]
    deadline = time.monotonic() + CLEANUP_SECONDS
    while time.monotonic() < deadline:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return None
        found = re.search(r"\bJobState=(\w+)", done.stdout)
        if found is None or found[1] != ENDED:
            return ENDINGS.get(found[1]) if found else None
        time.sleep(0.2)
    return None


def poll_sleep(start: float, maximum: float) -> None:
    """Sleep between two polls: a tenth of the time waited so far, from 0.1 s to `maximum`.

    Args:
        start: Start of waiting, by the monotonic clock, seconds.
        maximum: Longest sleep, seconds.
    """
    time.sleep(min(maximum, max(0.1, (time.monotonic() - start) / 10)))


def log_tail(errors: Path) -> str:
    """Return the path and the last line of the log of a job, for a message.

    Args:
        errors: Its stderr; its stdout is beside it.
    """
    for path in (errors, errors.with_suffix(".out")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            continue
        written = [line.strip() for line in lines if line.strip()]
        if written:
            return f"see {path} ({written[-1][:TAIL]})"
    return f"no log in {errors.parent}, which all nodes must share"
