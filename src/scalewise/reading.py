"""Reading of files that users name: limits on kind, size, depth and digits.

    table = read_toml("plan.toml", what="plan")
    columns, rows = read_csv("runs.csv", what="table of runs")

One reader for all: whatever is wrong with a file is one InputError with its path. Only regular
files are read, since a pipe can wait for ever and a device never ends.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import Any, NamedTuple

from scalewise.errors import InputError

MAX_TOML = 4 << 20
"""Limit of a TOML file, bytes; the largest shipped one has 20 kB, and its parser is slow."""

MAX_JSON = 64 << 20
"""Limit of a JSON file, bytes."""

MAX_TABLE = 256 << 20
"""Limit of a CSV table or a log, bytes."""

MAX_BYTES = 4 << 30
"""Limit of any file that is read as a whole, bytes."""

MAX_DEPTH = 64
"""Limit of tables inside tables."""

MAX_DIGITS = 300
"""Limit of the digits of a whole number: larger ones are no float."""

# tomllib takes the square of the parts of a dotted key: a.a.a... of 100 kB takes minutes.
_LONG_KEY = re.compile(
    r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+)"""
    f"{{{MAX_DEPTH}}}"
)
_SHORT_TEXT = 8192


FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""Starts of a cell that a spreadsheet runs (OWASP, CSV injection)."""


class CsvTable(NamedTuple):
    """A CSV table."""

    columns: list[str]
    """Names in the first line."""
    rows: list[tuple[int, dict[str, str]]]
    """Line that each row ends on, and its cells by column; missing ones are empty."""


def user_path(path: str | Path) -> Path:
    """Return a path with `~` and `~user` expanded.

    Raises:
        InputError: If there is no such user.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        first = Path(path).parts[0]
        raise InputError(
            f"{path}: there is no home folder {first}",
            hint=f"write the folder out, or ./{first} if that is its name",
        ) from None


def open_regular(path: str | Path, *, what: str = "file", hint: str | None = None) -> int:
    """Open a regular file to read and return its descriptor; a pipe is refused, not waited for.

    Raises:
        InputError: If there is no such file, or it is a folder, pipe or device.
    """
    file = user_path(path)
    try:
        handle = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        raise _unreadable(file, what, error, hint) from error
    kind = os.fstat(handle).st_mode
    if stat.S_ISREG(kind):
        return handle
    os.close(handle)
    named = "a folder" if stat.S_ISDIR(kind) else "a pipe or device"
    raise InputError(
        f"{what} {file} cannot be read: it is {named}", hint=hint or "name a regular file"
    )


def read_bytes(
    path: str | Path, *, what: str = "file", most: int = MAX_BYTES, hint: str | None = None
) -> bytes:
    """Return the content of a regular file.

    Args:
        path: The file; `~` is expanded.
        what: Noun for it in messages: "plan", "table of runs".
        most: Largest size, bytes.
        hint: What to type instead if it cannot be read.

    Raises:
        InputError: If it cannot be read, is not a regular file, or is larger than `most`.
    """
    handle = open_regular(path, what=what, hint=hint)
    try:
        with os.fdopen(handle, "rb") as stream:
            size = os.fstat(handle).st_size
            # One byte more shows a file that grows; `most` bytes would be reserved at once.
            content = b"" if size > most else stream.read(size + 1)
    except OSError as error:
        raise _unreadable(Path(path), what, error, hint) from error
    if max(size, len(content)) > most:
        raise InputError(
            f"{what} {path} cannot be read: it has more than {most >> 20} MiB",
            hint=hint or "split it, or name another file",
        )
    return content


def read_text(
    path: str | Path, *, what: str = "file", most: int = MAX_TABLE, hint: str | None = None
) -> str:
    """Return the text of a file in UTF-8, without a byte order mark; see `read_bytes`.

    Raises:
        InputError: If it cannot be read, or is not UTF-8.
    """
    content = read_bytes(path, what=what, most=most, hint=hint)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{what} {path} cannot be read: it is not UTF-8 text (byte {error.start})",
            hint=hint or "save it as UTF-8",
        ) from error


def read_toml(
    path: str | Path, *, what: str = "file", most: int = MAX_TOML, hint: str | None = None
) -> dict[str, Any]:
    """Return the content of a TOML file; see `read_bytes` and `parse_toml`.

    Raises:
        InputError: If it cannot be read, or is not valid TOML.
    """
    return parse_toml(read_text(path, what=what, most=most, hint=hint), str(path), hint=hint)


def read_json(
    path: str | Path, *, what: str = "file", most: int = MAX_JSON, hint: str | None = None
) -> Any:
    """Return the content of a JSON file; see `read_bytes` and `parse_json`.

    Raises:
        InputError: If it cannot be read, or is not valid JSON.
    """
    return parse_json(read_text(path, what=what, most=most, hint=hint), str(path), hint=hint)


def read_csv(
    path: str | Path, *, what: str = "table", most: int = MAX_TABLE, hint: str | None = None
) -> CsvTable:
    """Return the columns and rows of a CSV file with a header; see `read_bytes`.

    Raises:
        InputError: If it cannot be read, or is not CSV.
    """
    import csv
    import io

    text = read_text(path, what=what, most=most, hint=hint)
    reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
    try:
        columns = list(reader.fieldnames or [])
        # Cells behind the last column are under the key None.
        rows = [
            (
                reader.line_num,
                {key: _cell(cell) for key, cell in row.items() if isinstance(key, str)},
            )
            for row in reader
        ]
    except csv.Error as error:
        raise InputError(
            f"{what} {path} cannot be read: line {reader.reader.line_num} is not CSV ({error})",
            hint=hint or "save it as CSV with commas",
        ) from error
    return CsvTable(columns, rows)


def _cell(text: str) -> str:
    """A cell without the apostrophe that keeps a spreadsheet from running it."""
    return text[1:] if text.startswith("'") and text[1:].startswith(FORMULA) else text


def parse_toml(text: str, where: str, *, hint: str | None = None) -> dict[str, Any]:
    """Return the content of TOML text, its depth and digits within limits.

    Args:
        text: TOML.
        where: Name of the text in messages.
        hint: What to type instead if it is not valid.

    Raises:
        InputError: If it is not valid.
    """
    import tomllib

    if len(text) > _SHORT_TEXT and _LONG_KEY.search(text):
        raise _depth(where, hint)
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{where} is not valid TOML: {error}", hint=hint) from error
    except (RecursionError, ValueError) as error:
        raise _beyond(error, where, hint) from None
    check_limits(table, where, hint=hint)
    return table


def parse_json(text: str | bytes, where: str, *, hint: str | None = None) -> Any:
    """Return the content of JSON text, its depth and digits within limits; see `parse_toml`.

    Raises:
        InputError: If it is not valid.
    """
    import json

    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise InputError(
            f"{where}, line {error.lineno}: not valid JSON ({error.msg})", hint=hint
        ) from error
    except UnicodeDecodeError as error:
        raise InputError(f"{where} is not UTF-8 text", hint=hint) from error
    except (RecursionError, ValueError) as error:
        raise _beyond(error, where, hint) from None
    check_limits(value, where, hint=hint)
    return value


def check_limits(value: Any, where: str, *, hint: str | None = None) -> None:
    """Refuse plain data that is nested too deeply or holds a number that is no float.

    Raises:
        InputError: Naming the limit.
    """
    largest = 10**MAX_DIGITS
    level: list[Any] = [value]
    for _ in range(MAX_DEPTH):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += each.values()
            elif isinstance(each, list | tuple):
                inner += each
            elif isinstance(each, int) and not -largest < each < largest:
                raise _digits(where, hint)
        if not inner:
            return
        level = inner
    raise _depth(where, hint)


def _beyond(error: Exception, where: str, hint: str | None) -> InputError:
    """Python's own limits: recursion, and 4,300 digits of a whole number."""
    return (_depth if isinstance(error, RecursionError) else _digits)(where, hint)


def _depth(where: str, hint: str | None) -> InputError:
    return InputError(
        f"{where}: more than {MAX_DEPTH} tables or lists inside each other", hint=hint
    )


def _digits(where: str, hint: str | None) -> InputError:
    return InputError(f"{where}: a whole number has more than {MAX_DIGITS} digits", hint=hint)


def _unreadable(path: Path, what: str, error: Exception, hint: str | None) -> InputError:
    reason = getattr(error, "strerror", None) or str(error)
    return InputError(
        f"{what} {path} cannot be read: {reason[:1].lower()}{reason[1:]}",
        hint=hint or "check the path",
    )
