"""Idle checks before and after each launch, and the journal that keeps them beside the records.

    with idle_checked("records/", id):            # a fixed loop on all cores, before and after
        launcher.run(spec)
    disturbance(ids, read_journal(journal_of("records/")))     # log of the slowdown, 0 if idle

Other load on a machine makes a fixed loop slower. Its slowdown against the fastest loop of the same
journal widens the interval of a measurement; no measurement is dropped for it. Warnings about load
before the start (`machine.idle_warnings`) are in the record itself.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec

from scalewise.errors import ScalewiseError
from scalewise.measure.machine import BUSY_FRACTION, cores
from scalewise.reading import read_bytes, user_path
from scalewise.writing import write_atomically

JOURNAL = "launches.json"
"""Name of the journal, beside the records."""

LOOP_BYTES = 16 * 2**20
"""Bytes that each core hashes in the fixed loop: about 10 to 40 ms with SHA-256 in OpenSSL."""

LOOP_LIMIT = 3600.0
"""Seconds of a loop beyond which a journal is damaged."""

LOOPS = 5
"""Repeats of the loop; the median counts."""


class LaunchNote(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a launch besides its record."""

    seconds: float
    """Duration with the start of the processes, seconds."""
    before: float
    """The fixed loop before the launch, seconds."""
    after: float
    """The fixed loop after the launch, seconds."""


def loop_seconds() -> float:
    """Return the time of the fixed loop, seconds: the same hash on every core at once."""
    block, count = bytes(LOOP_BYTES), cores()
    times = []
    with ThreadPoolExecutor(count) as pool:
        for _ in range(LOOPS):
            began = time.perf_counter()
            # hashlib releases the interpreter lock for large blocks.
            list(pool.map(lambda _: hashlib.sha256(block).digest(), range(count)))
            times.append(time.perf_counter() - began)
    return sorted(times)[LOOPS // 2]


@contextmanager
def idle_checked(records: str | Path, *ids: str) -> Iterator[None]:
    """Time the fixed loop before and after a launch, and note both; a failed launch leaves no note.

    Args:
        records: Where its record goes.
        ids: Of the record; of several for launches at the same time.
    """
    before, began = loop_seconds(), time.monotonic()
    yield
    seconds = time.monotonic() - began
    note = LaunchNote(seconds=seconds, before=before, after=loop_seconds())
    for id in ids:
        note_launch(journal_of(records), id, note)


def load_warnings(ids: Iterable[str], notes: Mapping[str, LaunchNote]) -> list[str]:
    """Return a sentence about other load around a launch; none on an idle machine."""
    slower = math.exp(disturbance(ids, notes))
    if slower <= 1.0:
        return []
    return [f"a fixed loop around the launch took {slower:.2f} times its fastest: other load"]


def disturbance(ids: Iterable[str], notes: Mapping[str, LaunchNote]) -> float:
    """Return the log of the mean slowdown of the fixed loop around some launches.

    Args:
        ids: Records of the launches.
        notes: The journal. Slowdowns up to a tenth count as an idle machine.
    """
    fastest = min((min(each.before, each.after) for each in notes.values()), default=0.0)
    known = [notes[each] for each in ids if each in notes]
    slowest = max((max(each.before, each.after) for each in known), default=0.0)
    # A damaged journal says nothing.
    if not known or not fastest > 0.0 or not slowest < LOOP_LIMIT:
        return 0.0
    slow = [max(each.before, each.after) / fastest for each in known]
    mean = sum(slow) / len(slow)
    return math.log(mean) if mean > 1.0 + BUSY_FRACTION else 0.0


def journal_of(records: str | Path) -> Path:
    """Return the journal beside records.

    Args:
        records: A folder, or a file of records.
    """
    given = user_path(records)
    return (given.parent if given.suffix == ".jsonl" else given) / JOURNAL


def read_journal(path: Path) -> dict[str, LaunchNote]:
    """Return the journal; empty if there is none or it is damaged: it holds no measurement."""
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(read_bytes(path, what="journal"), type=dict[str, LaunchNote])
    except (ScalewiseError, ValueError, RecursionError):
        return {}


def note_launch(path: Path, id: str, note: LaunchNote) -> None:
    """Add a launch to the journal."""
    notes = read_journal(path) | {id: note}
    write_atomically(path, msgspec.json.format(msgspec.json.encode(notes), indent=1))
