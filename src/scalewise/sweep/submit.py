"""What does everything that runs on Slurm need? Submit, look at the queue, cancel, read a log.

    executor = executor_of("/shared/folder", {"partition": "gpu", "nodes": 4})
    queue = Queue()
    (queue.look() or {}).get("71")           # Entry(state="PENDING", ...), or None once it ended

Sweeps of estimates (`sweep.slurm`) and measurements (`measure.slurm`) both submit through submitit
and both ask `squeue` whether a job lives, because `sacct` needs a database that many clusters, and
all small ones, do not have.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from scalewise.errors import InputError, ScalewiseError, require

QUEUE_FAILURES = 20
"""How often in a row `squeue` may fail before we believe it."""

SAID = 200
"""Characters of the last line of a log in a message."""

ENDED = "COMPLETING"
"""A state in which nothing of the job runs any more: Slurm tidies up after it."""


TIDY_SECONDS = 30.0
"""How long that may take before we do without knowing how the job ended."""


class Entry(NamedTuple):
    """One job, as the queue shows it."""

    state: str
    """In Slurm's words, such as PENDING or RUNNING."""
    reason: str
    """Why it waits, such as Priority."""
    nodes: str
    """Where it runs, such as node[1-2]."""


def require_slurm(hint: str) -> Any:
    """Import submitit and look for Slurm.

    Args:
        hint: What to do where there is no Slurm.

    Raises:
        MissingExtraError: If submitit is not installed.
        InputError: If Slurm's commands are not found.
    """
    module = require("submitit", "slurm")
    missing = [name for name in ("sbatch", "squeue", "srun") if shutil.which(name) is None]
    if missing:
        raise InputError(f"Slurm's `{missing[0]}` is not found on this machine", hint=hint)
    return module


def executor_of(folder: Path, given: Mapping[str, Any], hint: str) -> Any:
    """An executor of submitit.

    Args:
        folder: Where jobs leave their logs, on a file system that all nodes share.
        given: Its parameters; those that are None are left to the cluster.
        hint: See `require_slurm`.
    """
    executor = require_slurm(hint).SlurmExecutor(folder=folder)
    executor.update_parameters(**{name: v for name, v in given.items() if v is not None})
    return executor


def batch_script(folder: Path, given: Mapping[str, Any]) -> str:
    """The script that `executor_of` would submit, which needs no Slurm to be read.

    Args:
        folder: Where jobs leave their logs.
        given: Parameters of the executor.
    """
    slurm: Any = require("submitit.slurm.slurm", "slurm")
    command = shlex.join([sys.executable, "-u", "-m", "submitit.core._submit", str(folder)])
    known = {name: v for name, v in given.items() if v is not None}
    text: str = slurm._make_sbatch_string(command=command, folder=folder, **known)
    return text


def refused(error: Exception, what: str, hint: str) -> ScalewiseError:
    """What sbatch said against a job; submitit has its complaint in the last line.

    Args:
        error: As submitit raised it.
        what: Was submitted.
        hint: What to check.
    """
    why = str(error).strip().splitlines()[-1:] or [type(error).__name__]
    return ScalewiseError(f"sbatch refused the {what}: {why[0]}", hint=hint)


class Queue:
    """This user's jobs, as far as Slurm answers."""

    def __init__(self) -> None:
        self.deaf = 0

    def look(self) -> dict[str, Entry] | None:
        """Jobs that wait or run, by their number; None if Slurm does not say just now.

        Raises:
            ScalewiseError: If it has not answered for long.
        """
        form = "--format=%i|%T|%r|%N"
        command = ["squeue", "--noheader", "--array", f"--user={os.getuid()}", form]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError) as error:
            self.deaf += 1
            if self.deaf > QUEUE_FAILURES:
                raise ScalewiseError(
                    f"squeue failed {self.deaf} times in a row: {error}",
                    hint="the jobs are not affected; run the same again to collect them",
                ) from error
            return None
        self.deaf = 0
        rows = (line.split("|") for line in done.stdout.splitlines() if line.count("|") == 3)
        return {number.strip(): Entry(*rest) for number, *rest in rows}


def cancel(jobs: Iterable[str]) -> None:
    """Cancel jobs; what is over already does not mind."""
    subprocess.run(["scancel", *jobs], check=False, capture_output=True)


def state_of(job: str) -> str | None:
    """How a job ended, in Slurm's words; None if the controller does not know, or not yet."""
    command = ["scontrol", "show", "job", "--oneliner", job]
    deadline = time.monotonic() + TIDY_SECONDS
    while time.monotonic() < deadline:
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
        except (OSError, subprocess.SubprocessError):
            return None
        found = re.search(r"\bJobState=(\w+)", done.stdout)
        if found is None or found[1] != ENDED:
            return found[1] if found else None
        time.sleep(0.2)
    return None


def pause(start: float, most: float) -> None:
    """Wait between two looks: eager at first, for small jobs; patient later, for Slurm's sake.

    Args:
        start: When waiting began, by the monotonic clock, seconds.
        most: Longest pause, seconds.
    """
    time.sleep(min(most, max(0.1, (time.monotonic() - start) / 10)))


def last_words(errors: Path) -> str:
    """Name the log of a job, with its last line.

    Args:
        errors: Where it wrote to stderr; what it wrote to stdout lies beside it.
    """
    for path in (errors, errors.with_suffix(".out")):
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
        except OSError:
            continue
        said = [line.strip() for line in lines if line.strip()]
        if said:
            return f"see {path} ({said[-1][:SAID]})"
    return f"it left no log in {errors.parent}, which all nodes must share"
