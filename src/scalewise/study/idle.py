"""Idle checks around the launches of a study, and the journal that keeps them.

    before = loop_seconds()                       # a fixed loop on all cores
    journal.add(id, LaunchNote(seconds=8.1, before=before, after=loop_seconds()))
    disturbance(ids, journal.notes)               # log of the slowdown, 0 on an idle machine

Other load on a machine makes a fixed loop slower. Its slowdown against the fastest loop of the same
journal widens the interval of a measurement; no measurement is dropped for it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
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
