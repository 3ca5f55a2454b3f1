"""What happens inside of a job of a cluster? A chunk of tasks becomes one file of results.

    run_chunk("/shared/chunk.results", work, tasks, cpus=4)      # in the job
    read_results(Path("/shared/chunk.results"))                  # where it was submitted

The file is replaced as a whole every few seconds, so that whoever reads it never sees half of one,
and a job that is killed leaves what it had.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scalewise.sweep.local import computed
from scalewise.sweep.store import Record
from scalewise.sweep.work import Keyed, Outcome, Work, compute_elsewhere, record_of

SAVE_SECONDS = 10.0
"""How often a job writes down what it has, in case it is killed."""


class Results(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a job writes down."""

    records: list[Record]
    """Finished points."""
    failures: list[Outcome]
    """Tasks that failed, and why."""
    complete: bool
    """Whether that is all of the chunk."""


def run_chunk(path: str, work: Work, tasks: Sequence[Keyed], cpus: int) -> None:
    """Compute a chunk inside of a job, leaving one file.

    Args:
        path: The file.
        work: What to do.
        tasks: What to do it to.
        cpus: Processes to use.
    """
    named = dict(tasks)
    records: list[Record] = []
    failures: list[Outcome] = []
    saved = time.monotonic()
    one_by_one = (compute_elsewhere(work, [task])[0] for task in tasks)
    source = computed(work, tasks, jobs=cpus) if min(cpus, len(tasks)) > 1 else one_by_one
    try:
        for outcomes in source:
            for one in outcomes:
                if one.failure is not None:
                    failures.append(one)
                else:
                    records.append(record_of(work, named[one.key], one))
            if time.monotonic() - saved > SAVE_SECONDS:
                write_results(
                    Path(path), Results(records=records, failures=failures, complete=False)
                )
                saved = time.monotonic()
    finally:
        complete = len(records) + len(failures) == len(tasks)
        write_results(Path(path), Results(records=records, failures=failures, complete=complete))


def write_results(path: Path, results: Results) -> None:
    """Write so that nobody ever reads half of it."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    with beside.open("wb") as file:
        file.write(msgspec.msgpack.encode(results))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


def read_results(path: Path) -> Results | None:
    """Read what a job left; nothing if it left nothing, or nothing that can be read."""
    try:
        return msgspec.msgpack.decode(path.read_bytes(), type=Results)
    except (OSError, msgspec.DecodeError):
        return None
