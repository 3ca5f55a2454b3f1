"""A chunk of tasks inside of a Slurm job: one file of tasks becomes one file of results.

    python -m scalewise.sweep.chunks /shared/chunk.tasks         # in the job
    read_results(Path("/shared/chunk.results"))                  # where it was submitted

The file of results is replaced as a whole every few seconds, so that readers never see half of one,
and a job that is killed leaves what it had.
"""

from __future__ import annotations

import pickle
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from scalewise.sweep.local import computed
from scalewise.sweep.store import Record
from scalewise.sweep.work import Keyed, Outcome, Work, compute_elsewhere, record_of
from scalewise.writing import checksum, write_atomically

SAVE_SECONDS = 10.0
"""Seconds between two writes of unfinished results, in case the job is killed."""


class Results(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a file of results."""

    records: list[Record]
    """Finished points."""
    failures: list[Outcome]
    """Tasks that failed, with the reason."""
    complete: bool
    """Whether these are all tasks of the chunk."""


def run_chunk(path: str, work: Work, tasks: Sequence[Keyed], cpus: int) -> None:
    """Compute a chunk and write its results to one file.

    Args:
        path: The file.
        work: Function of the sweep.
        tasks: Tasks of the chunk.
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
    """Replace a file of results as a whole."""
    write_sealed(path, msgspec.msgpack.encode(results))


def read_results(path: Path) -> Results | None:
    """Read a file of results; None if there is none, or it is not as it was written."""
    try:
        return msgspec.msgpack.decode(read_sealed(path), type=Results)
    except (OSError, ValueError):
        return None


def write_sealed(path: Path, content: bytes) -> None:
    """Replace a file by content behind its checksum."""
    write_atomically(path, checksum(content) + content)


def read_sealed(path: Path) -> bytes:
    """Read content behind its checksum.

    Raises:
        OSError: If there is no such file.
        ValueError: If the content is not as it was written.
    """
    sealed = path.read_bytes()
    if checksum(sealed[16:]) != sealed[:16]:
        raise ValueError(f"{path} is damaged: its checksum does not match")
    return sealed[16:]


def main() -> None:
    """Compute the chunk that the command line names."""
    # Time limits and scancel arrive as SIGTERM: leave in order, so that results are written.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    file = Path(sys.argv[1])
    work, tasks, cpus = pickle.loads(read_sealed(file))
    run_chunk(str(file.with_suffix(".results")), work, tasks, cpus)


if __name__ == "__main__":
    main()
