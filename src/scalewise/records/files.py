"""Record files: one line of JSON per launch, append-only.

    append("records/train.jsonl", record)
    found = read_records("records/")            # found.records, found.notes
    merge(["a/", "b.jsonl"], "all.jsonl")

A line is written in a single call and flushed to the disk, with a line break in front if the file
does not end in one. A crash during a write can therefore tear the line it was writing and no other;
readers skip a torn line and note it. Each line ends with a checksum of what stands before it: a
changed line is skipped and noted, since a flipped bit is another measurement. The schema has a
number: records of a newer scalewise are skipped and noted, too.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec

from scalewise.errors import InputError, ScalewiseError
from scalewise.reading import read_bytes, user_path
from scalewise.records.environment import Environment
from scalewise.records.job import job_of
from scalewise.writing import checksum

SCHEMA = 2
"""Changes whenever an older scalewise could misread a record; from 2 on lines have a checksum."""

ENDING = ".jsonl"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """One launch: what was asked, where it ran, and every sample it took."""

    schema: int = SCHEMA
    """Of this layout."""
    kind: str
    """What was measured: "train"; more kinds may follow."""
    id: str
    """Unique, so that merging twice changes nothing."""
    started: str
    """When, UTC, ISO 8601."""
    launch: int = 1
    """Which of several launches of the same inputs, from 1."""
    environment: Environment
    """Machine and software."""
    inputs: dict[str, Any]
    """Everything that determines the run; for "train", see `job.job_of`."""
    results: dict[str, Any]
    """Raw samples and readings; for "train", a `train.TrainResult`."""
    warnings: list[str] = []
    """What a reader should know before trusting it."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Records that could be read, and what could not."""

    records: list[Record]
    """In the order they were written, each id once."""
    notes: list[str]
    """One sentence for each line that was skipped."""


def new_id() -> str:
    """A name that no other record has."""
    return uuid.uuid4().hex[:16]


def now() -> str:
    """The time, as records write it."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def file_of(output: str | Path, kind: str) -> Path:
    """The file that records of a kind go to.

    Args:
        output: A file that ends in .jsonl, or a folder.
        kind: What is measured.
    """
    path = user_path(output)
    return path if path.suffix == ENDING else path / f"{kind}{ENDING}"


def check_writable(path: str | Path) -> None:
    """Refuse a place where records cannot be kept, before anything is measured in vain.

    Args:
        path: The file; its folder is made if need be.

    Raises:
        InputError: Naming it and the reason.
    """
    file = Path(path)
    new = not file.exists()
    try:
        os.close(_open(file))
        if new:
            file.unlink()
    except OSError as error:
        raise InputError(
            f"records cannot be written to {file}: {error.strerror or error}",
            hint="name another folder or .jsonl file with -o",
        ) from error


def _open(file: Path) -> int:
    """Open a file to add to it, making it and its folder if need be."""
    file.parent.mkdir(parents=True, exist_ok=True)
    return os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)


def append(path: str | Path, record: Record) -> None:
    """Add one record to a file, so that it is on the disk when this returns.

    Args:
        path: The file; it and its folder are made if need be.
        record: What to add.

    Raises:
        ScalewiseError: If it cannot be written; what was in the file stays readable.
    """
    try:
        _append(user_path(path), _line_of(record))
    except OSError as error:
        raise ScalewiseError(
            f"a record cannot be added to {path}: {error.strerror or error}",
            hint="make room, or name another place with -o",
        ) from error


def _line_of(record: Record) -> bytes:
    """A record as a line; its last key is the checksum of the bytes before it."""
    body = msgspec.json.encode(msgspec.structs.replace(record, schema=SCHEMA))[:-1]
    return body + b',"checksum":"' + checksum(body).hex().encode() + b'"}\n'


_CHECKSUM = re.compile(rb',"checksum":"([0-9a-f]{32})"\}\s*$')


def _is_whole(line: bytes) -> bool:
    """Whether a line is as it was written."""
    found = _CHECKSUM.search(line)
    return found is not None and checksum(line[: found.start()]).hex().encode() == found[1]


def _append(file: Path, line: bytes) -> None:
    handle = _open(file)
    try:
        _lock(handle)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":
            # A writer died: keep the torn line apart.
            line = b"\n" + line
        _write(handle, line)
        os.fsync(handle)
    finally:
        os.close(handle)


def _lock(handle: int) -> None:
    """Let no other process write until the file is closed, where the system can do that."""
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX)
    except (ImportError, OSError):
        return


def _write(handle: int, data: bytes) -> None:
    """Write everything; a full disk raises."""
    while data:
        data = data[os.write(handle, data) :]


def files_of(path: str | Path) -> list[Path]:
    """The record files of a folder, or the file itself.

    Raises:
        InputError: If there is neither.
    """
    given = user_path(path)
    if given.is_dir():
        files = sorted(given.rglob(f"*{ENDING}"))
        if not files:
            raise InputError(
                f"{given} holds no records (*{ENDING})",
                hint="`scalewise measure train tiny` writes some",
            )
        return files
    if not given.is_file():
        raise InputError(f"there is no file or folder {given}", hint="give records/ or a .jsonl")
    return [given]


def holds_records(path: str | Path) -> bool:
    """Whether a path looks like records: a folder, or a file of JSON lines; other tables do not."""
    where = user_path(path)
    return where.is_dir() or where.suffix == ".jsonl"


def read_records(*paths: str | Path, kind: str | None = None) -> Found:
    """Read records from files and folders.

    Args:
        *paths: Record files, or folders that hold some.
        kind: Only of this kind, or None for all.

    Raises:
        InputError: If a path does not exist or cannot be read.
    """
    records: dict[str, Record] = {}
    notes: list[str] = []
    for path in paths:
        for file in files_of(path):
            for record in _lines(file, notes):
                if kind is None or record.kind == kind:
                    records.setdefault(record.id, record)
    return Found(records=list(records.values()), notes=notes)


class _Head(msgspec.Struct):
    """What every schema has."""

    schema: int


class _Trained(msgspec.Struct):
    """What everybody who reads a record of training relies on."""

    step_seconds: Annotated[list[float], msgspec.Meta(min_length=1)]
    losses: Annotated[list[float], msgspec.Meta(min_length=1)]
    memory_basis: str


def _check(record: Record) -> None:
    """Refuse what reads as JSON but is no measurement, so that it costs one line and no more.

    Raises:
        InputError: Naming what is wrong.
        msgspec.ValidationError: Naming the field.
    """
    if record.kind != "train":
        return
    job = job_of(record.inputs)
    steps = len(msgspec.convert(record.results, _Trained).step_seconds)
    if steps <= job.warmup:
        raise InputError(f"it has {steps} steps, all of them warm-up ({job.warmup})")


def _lines(file: Path, notes: list[str]) -> Iterator[Record]:
    lines = read_bytes(file, what="records").split(b"\n")
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        where = f"{file} line {number}"
        try:
            head = msgspec.json.decode(line, type=_Head)
            if head.schema > SCHEMA:
                notes.append(
                    f"{where} was skipped: it has schema {head.schema}, newer than the {SCHEMA} "
                    "this scalewise reads"
                )
                continue
            # A flipped bit may also make an older schema of a line that has a checksum.
            if (head.schema != 1 or _CHECKSUM.search(line)) and not _is_whole(line):
                notes.append(
                    f"{where} was skipped: its checksum does not match, it was changed after it "
                    "was written"
                )
                continue
            record = msgspec.json.decode(line, type=Record)
            _check(record)
            yield record
        except InputError as error:
            notes.append(f"{where} was skipped: {error}")
        except (ValueError, RecursionError) as error:
            torn = number == len(lines) or not line.rstrip().endswith(b"}")
            why = "it is truncated, as by a crash during a write" if torn else str(error)
            notes.append(f"{where} was skipped: {why}")


def merge(paths: Iterable[str | Path], output: str | Path) -> Found:
    """Join records into one file; those it already has are not added again.

    Args:
        paths: Record files and folders.
        output: A .jsonl file, new or old.

    Returns:
        Everything the file holds afterwards, and what was skipped on the way.
    """
    target = user_path(output)
    found = read_records(*paths)
    notes = list(found.notes)
    have: set[str] = set()
    if target.exists():
        old = read_records(target)
        have = {record.id for record in old.records}
        notes.extend(note for note in old.notes if note not in notes)
    for record in found.records:
        if record.id not in have:
            append(target, record)
    return Found(records=read_records(target).records if target.exists() else [], notes=notes)
