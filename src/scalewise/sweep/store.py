"""Store of results: one SQLite file that survives kills, crashes and sharing.

    with Store("sweep.db") as store:
        store.put([Record(key=key, function="m.price", fingerprint=f, task=json, result=data)])
        store.get([key])                  # {key: data}
        print(store.describe())

Every `put` is one transaction: a process that is killed loses only what it was computing. Several
processes, and several sweeps, may share a file. A damaged file is set aside and a new one begun,
because results can be computed again. Every row has a checksum, because SQLite has none: a row with
a flipped bit counts as missing.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import msgspec

from scalewise._version import __version__
from scalewise.errors import InputError, ScalewiseError
from scalewise.reading import user_path
from scalewise.units import format_bytes
from scalewise.writing import checksum

T = TypeVar("T")

APPLICATION = 0x5CA1E515
"""SQLite's `application_id` of stores, which other programs' databases do not have."""

SCHEMA = 2
"""SQLite's `user_version`: rises with every change of the table."""

BUSY_SECONDS = 60.0
"""How long to wait while another process writes."""

# Files a user may name by mistake: they are never set aside as a damaged store.
FOREIGN = {".csv", ".json", ".toml", ".html", ".svg", ".png", ".parquet", ".py", ".md", ".txt"}

# https://www.sqlite.org/wal.html: a write-ahead log needs memory shared between all processes, so
# it does not work across machines. Names as in the third field from the end of mountinfo.
NETWORK = {"nfs", "nfs4", "cifs", "smb3", "lustre", "beegfs", "gpfs", "ceph", "9p", "afs"}

_COLUMNS = "key, function, fingerprint, version, task, result, made"
_ALL = f"SELECT {_COLUMNS}, checksum FROM points"
_TABLE = """CREATE TABLE points (
    key TEXT PRIMARY KEY, function TEXT NOT NULL, fingerprint TEXT NOT NULL,
    version TEXT NOT NULL, task BLOB NOT NULL, result BLOB NOT NULL, made REAL NOT NULL,
    checksum BLOB NOT NULL
) WITHOUT ROWID"""

# Where SQLite's file format has what tells our files from others, https://sqlite.org/fileformat.html
_MAGIC = b"SQLite format 3\0"
_APPLICATION_AT = slice(68, 72)
_FIRST_PAGE = 4096


class StoreError(ScalewiseError):
    """The store cannot be written or read; what was computed is not lost by that."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One point as it is kept."""

    key: str
    """Name of the point, see `fingerprint.key_of`."""
    function: str
    """Qualified name of the function that computed it."""
    fingerprint: str
    """Physics and constants it was computed with."""
    task: bytes
    """What it was computed from, as JSON for people."""
    result: bytes
    """What came out, as MessagePack: unlike JSON it keeps infinities and every bit."""
    version: str = __version__
    """Version of scalewise that computed it."""
    made: float = 0.0
    """When, seconds since 1970."""


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One point as it is exported: plain types, ready for any table or file."""

    key: str
    """Name of the point."""
    function: str
    """Qualified name of the function that computed it."""
    fingerprint: str
    """Physics and constants it was computed with."""
    version: str
    """Version of scalewise that computed it."""
    made: float
    """When, seconds since 1970."""
    task: Any
    """What it was computed from."""
    result: Any
    """What came out."""


def say_on_stderr(sentence: str) -> None:
    """Print a message on stderr."""
    print(sentence, file=sys.stderr)


class Store:
    """Results on disk, by the name of their point.

    Attributes:
        path: The file.
        say: Told in one sentence what people should know, such as a file that was set aside.
    """

    def __init__(self, path: str | Path, *, say: Callable[[str], None] | None = None) -> None:
        """Open a store, or begin one.

        Args:
            path: The file; folders on the way are made.
            say: Told about a damaged file; by default printed on stderr.

        Raises:
            InputError: If the folder cannot be written, or the file is something else.
        """
        self.path = user_path(path).absolute()
        self.say = say or say_on_stderr
        self._inode = 0
        if self.path.suffix.lower() in FOREIGN:
            raise InputError(
                f"{self.path} does not look like a store by its ending `{self.path.suffix}`",
                hint="name it for example sweep.db",
            )
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot make the folder of the store {self.path}: {error.strerror}",
                hint="name another file",
            ) from error
        self._connection = self._open()

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __bool__(self) -> bool:
        # An empty store is a store: `if store` must not ask for its length.
        return True

    def __len__(self) -> int:
        return int(self._rows("SELECT count(*) FROM points")[0][0])

    def __contains__(self, key: str) -> bool:
        return bool(self.get([key]))

    def __iter__(self) -> Iterator[Point]:
        """Every point with its task and result as plain types, the oldest first."""
        for row in self._sound(f"{_ALL} ORDER BY made, key"):
            key, function, fingerprint, version, task, result, made = row
            try:
                data = msgspec.json.decode(task), msgspec.msgpack.decode(result)
            except ValueError:
                continue  # computed again when it is asked for
            yield Point(
                key=key,
                function=function,
                fingerprint=fingerprint,
                version=version,
                made=made,
                task=data[0],
                result=data[1],
            )

    def close(self) -> None:
        """Close the file; everything that was put is in it already."""
        self._connection.close()

    def get(self, keys: Iterable[str]) -> dict[str, bytes]:
        """Look up points.

        Args:
            keys: Names of points.

        Returns:
            Encoded results of those that are there and as they were written.
        """
        wanted = list(keys)
        found: dict[str, bytes] = {}
        for start in range(0, len(wanted), 500):  # SQLite takes a limited number of parameters
            some = wanted[start : start + 500]
            marks = ",".join("?" * len(some))
            rows = self._sound(f"{_ALL} WHERE key IN ({marks})", some)
            found.update((row[0], row[5]) for row in rows)
        return found

    def put(self, records: Sequence[Record]) -> None:
        """Keep points, all of them or none; what was kept under a name before is replaced.

        Args:
            records: The points.

        Raises:
            StoreError: If they cannot be written: a full disk, a file that became read-only.
        """
        now = time.time()
        rows = [
            (r.key, r.function, r.fingerprint, r.version, r.task, r.result, r.made or now)
            for r in records
        ]
        self._write(lambda c: _insert(c, rows))

    def describe(self) -> str:
        """Return what the store holds: points, functions, versions, size."""
        counts: Counter[tuple[str, str, str]] = Counter()
        last: dict[tuple[str, str, str], float] = {}
        for row in self._sound(_ALL):
            group = (row[1], row[3], row[2])
            counts[group] += 1
            last[group] = max(row[6], last.get(group, 0.0))
        try:
            size = format_bytes(self.path.stat().st_size)
        except OSError:
            size = "unknown size"
        lines = [f"{self.path}: {counts.total()} points, {size}"]
        for group in sorted(counts, key=lambda each: -last[each]):
            function, version, print_ = group
            day = time.strftime("%Y-%m-%d", time.localtime(last[group]))
            lines.append(
                f"  {counts[group]} of {function}, scalewise {version}, physics {print_}, "
                f"last on {day}"
            )
        return "\n".join(lines)

    def _sound(self, query: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Rows as they were written, without their checksum; others are counted and said."""
        rows = self._rows(query, given)
        sound = [row[:-1] for row in rows if _is_sound(row)]
        if len(sound) < len(rows):
            self._say_damaged(len(rows) - len(sound))
        return sound

    def _rows(self, query: str, given: Sequence[Any] = ()) -> list[Any]:
        """Run a query to its end."""
        return self._do(lambda c: c.execute(query, given).fetchall())

    def _write(self, action: Callable[[sqlite3.Connection], Any]) -> None:
        """Run an action as one transaction."""

        def transaction(connection: sqlite3.Connection) -> None:
            connection.execute("BEGIN IMMEDIATE")
            try:
                action(connection)
                connection.execute("COMMIT")
            except BaseException:
                # Some failures roll back by themselves.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                raise

        self._do(transaction)

    def _do(self, action: Callable[[sqlite3.Connection], T]) -> T:
        """Run an action; set a damaged file aside and try once more on a new one."""
        try:
            return action(self._connection)
        except sqlite3.Error as error:
            if not _damaged(error):
                raise self._refusal(error) from error
            self._connection.close()
            self._check_ours(error)
            self._set_aside(str(error))
            self._connection = self._open()
        try:
            return action(self._connection)
        except sqlite3.Error as error:
            raise self._refusal(error) from error

    def _open(self) -> sqlite3.Connection:
        """Connect and check; a damaged file is set aside once."""
        for attempt in (1, 2):
            connection = None
            try:
                connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None)
                # A flipped bit must not end a query; the checksum finds it.
                connection.text_factory = lambda text: text.decode(errors="replace")
                self._inode = self.path.stat().st_ino
                self._prepare(connection)
            except sqlite3.Error as error:
                if connection is not None:
                    connection.close()
                if not _damaged(error) or attempt == 2:
                    raise self._refusal(error, opening=True) from error
                self._check_ours(error)
                self._set_aside(str(error))
            except BaseException:
                if connection is not None:
                    connection.close()
                raise
            else:
                return connection
        raise AssertionError

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Check that the file is a sound store, and make the tables of a new one."""
        # In this order, as another process may be making the same store: it marks the file first,
        # then makes the table, and states its version when it is there.
        _check_header(_head(self.path))
        tables = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL"))
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        ours = tables == {"points": _TABLE}
        if tables and application != APPLICATION:
            if ours:
                raise _Damage("its mark of a store is gone")
            raise InputError(
                f"{self.path} is a database of another program", hint="name another file"
            )
        if tables and not ours and schema > SCHEMA:
            raise InputError(
                f"{self.path} was written by a later version of scalewise",
                hint="update scalewise, or name another file",
            )
        if tables:
            (verdict,) = connection.execute("PRAGMA quick_check(1)").fetchone()
            if verdict != "ok":
                raise _Damage(verdict)
        if tables and (schema not in (0, SCHEMA) if ours else schema == SCHEMA):
            raise _Damage("its table and its version do not match")
        if not tables:
            # Before the write-ahead log, so that the mark is in the file itself from the start.
            connection.execute(f"PRAGMA application_id = {APPLICATION}")
        mode = "DELETE" if on_network(self.path) else "WAL"
        connection.execute(f"PRAGMA journal_mode = {mode}")
        # With a write-ahead log this never waits for the disk, and still loses nothing when a
        # process is killed; a power cut may take the last seconds, never the file.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'WAL' else 'FULL'}")
        # A flipped bit in a key hides rows beside its own from every lookup: all are checked here.
        if schema < SCHEMA or not all(map(_is_sound, connection.execute(_ALL))):
            removed = _make_table(connection)
            if removed:
                self._say_damaged(removed)

    def _say_damaged(self, count: int) -> None:
        self.say(
            f"{count} of the results in {self.path} {'was' if count == 1 else 'were'} damaged "
            "(wrong checksum): computed again"
        )

    def _check_ours(self, error: sqlite3.Error) -> None:
        """Refuse to set aside what is not a store: a file that was named by mistake.

        Raises:
            InputError: If the file bears no sign of a store and is not empty.
        """
        try:
            head = _head(self.path)
        except OSError as failure:
            raise self._refusal(error, opening=True) from failure
        marked = head[_APPLICATION_AT] == APPLICATION.to_bytes(4, "big")
        if head and not marked and b"CREATE TABLE points (" not in head:
            raise InputError(
                f"{self.path} is not a store of results", hint="name another file with --store"
            ) from error

    def _set_aside(self, why: str) -> None:
        """Rename the damaged file and the logs that belong to it."""
        try:
            if self.path.stat().st_ino != self._inode:
                return  # another process was faster
            number = 1
            while (aside := Path(f"{self.path}.corrupt-{number}")).exists():
                number += 1
            self.path.rename(aside)
            for ending in ("-wal", "-shm", "-journal"):
                log = Path(f"{self.path}{ending}")
                if log.exists():
                    log.rename(f"{aside}{ending}")
        except FileNotFoundError:
            return
        except OSError as error:
            raise StoreError(
                f"the store {self.path} is damaged ({why}) and cannot be renamed: {error.strerror}",
                hint="name another file",
            ) from error
        self.say(
            f"the store {self.path} was damaged ({why}): it is set aside as {aside.name}, and its "
            "points are computed again"
        )

    def _refusal(self, error: sqlite3.Error, *, opening: bool = False) -> ScalewiseError:
        """One sentence for what SQLite could not do."""
        code = _code(error)
        why = {
            sqlite3.SQLITE_FULL: "the disk is full",
            sqlite3.SQLITE_READONLY: "it is read-only",
            sqlite3.SQLITE_CANTOPEN: "its folder cannot be read or written",
            sqlite3.SQLITE_PERM: "permission is denied",
            sqlite3.SQLITE_BUSY: f"another process held it for {BUSY_SECONDS:.0f} s",
            sqlite3.SQLITE_IOERR: "the disk does not take or give data",
        }.get(code, str(error))
        kind = InputError if opening else StoreError
        return kind(
            f"cannot use the store {self.path}: {why}",
            hint="free space, or name another file with --store",
        )


class _Damage(sqlite3.DatabaseError):
    """The check of the file found damage."""


def _code(error: sqlite3.Error) -> int:
    """SQLite's primary result code; extended ones carry details in the higher bits."""
    code: int = getattr(error, "sqlite_errorcode", 0) or 0
    return code & 0xFF


def _damaged(error: sqlite3.Error) -> bool:
    """Whether an error comes from the content of the file, not from disk, rights or locks."""
    known = (
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        # Of our own fixed queries: a damaged schema.
        sqlite3.SQLITE_ERROR,
        sqlite3.SQLITE_FORMAT,
        sqlite3.SQLITE_TOOBIG,
    )
    return isinstance(error, _Damage) or _code(error) in known


def _head(path: Path) -> bytes:
    """The first page of a file."""
    with path.open("rb") as stream:
        return stream.read(_FIRST_PAGE)


def _check_header(head: bytes) -> None:
    """Find damage in the header that SQLite takes for another format or for a read-only file."""
    if not head:
        return
    marked = head[_APPLICATION_AT] == APPLICATION.to_bytes(4, "big")
    sound = head.startswith(_MAGIC) and head[18] in (1, 2) and head[19] in (1, 2)
    if marked and not sound:
        raise _Damage("its header is damaged")


def _is_sound(row: Sequence[Any]) -> bool:
    """Whether a row, with its checksum behind it, is as it was written."""
    return bool(row[-1] == _row_checksum(row[:-1]))


def _row_checksum(row: Sequence[Any]) -> bytes:
    return checksum(msgspec.msgpack.encode(tuple(row)))


def _insert(connection: sqlite3.Connection, rows: Iterable[Sequence[Any]]) -> None:
    query = "INSERT OR REPLACE INTO points VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
    connection.executemany(query, [(*row, _row_checksum(row)) for row in rows])


def _make_table(connection: sqlite3.Connection) -> int:
    """Make the table anew with the sound rows of the present one; return how many are not sound.

    Rows of the first version have no checksum and are taken as they are.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have been faster.
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master")]
        rows: list[Any] = []
        old = 0
        if "points" in tables:
            query = _ALL if schema == SCHEMA else f"SELECT {_COLUMNS} FROM points"
            rows = connection.execute(query).fetchall()
            old = len(rows)
            if schema == SCHEMA:
                rows = [row[:-1] for row in rows if _is_sound(row)]
            connection.execute("DROP TABLE points")
        connection.execute(_TABLE)
        _insert(connection, rows)
        connection.execute(f"PRAGMA user_version = {SCHEMA}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return old - len(rows)


def on_network(path: Path) -> bool:
    """Whether a file lies on a file system that other machines may have mounted as well."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False  # not Linux: people do not run clusters on it
    best, kind = "", ""
    place = os.path.realpath(path)
    for line in mounts:
        left, _, right = line.partition(" - ")
        mount = left.split()[4].replace("\\040", " ")
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, right.split()[0]
    return kind in NETWORK or kind.startswith("fuse.")
