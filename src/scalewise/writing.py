"""Writing of files: whole or not at all, so that no reader ever sees half of one.

    write_atomically("out/report.html", text)

The content goes to a temporary file beside the target, to the disk, and then takes the target's
name in one step of the file system (POSIX rename). A kill, a full disk or a second writer leaves
the old file or the new one.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import InputError, ScalewiseError
from scalewise.reading import FORMULA, user_path

TEMPORARY = ".scalewise-"
"""Start of the names of temporary files; a killed process may leave one behind."""

# The user named a place that cannot take a file; anything else is a failure of the machine.
_WRONG_PLACE = {
    errno.EACCES,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
    errno.EINVAL,
}


def checksum(content: bytes) -> bytes:
    """Return 16 bytes that tell whether content changed after it was written (BLAKE2b).

    >>> checksum(b"result").hex()
    '9a0af8c54b85ba4d2769356f9606970f'
    """
    return hashlib.blake2b(content, digest_size=16).digest()


# All but line break and tab: C0, DEL, C1, and what turns the direction of text around.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
_COLORED = re.compile(rf"(\x1b\[[0-9;]*m)|{_CONTROL.pattern}")


def visible(text: str, *, colored: bool = False) -> str:
    r"""Return text whose control characters are written out, so that no terminal obeys them.

    Names come from files, and ESC ] changes titles and clipboards of terminals (ECMA-48).

    Args:
        text: For a terminal or a table.
        colored: Whether colors stay.

    >>> print(visible("llama\x1b]0;title\x07"))
    llama\x1b]0;title\x07
    """
    if text.isprintable():
        return text
    return (_COLORED if colored else _CONTROL).sub(_written, text)


def _written(found: re.Match[str]) -> str:
    if found.lastindex:
        return found[0]
    code = ord(found[0])
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"


def csv_text(rows: Iterable[Mapping[str, Any]], columns: Sequence[str]) -> str:
    r"""Return rows as CSV; booleans are `true` and `false`, unknown cells empty.

    A text that a spreadsheet would run as a formula gets an apostrophe, which `reading.read_csv`
    takes away again.

    >>> csv_text([{"model": "=1+1", "fits": True, "change": -0.5}], ["model", "fits", "change"])
    "model,fits,change\n'=1+1,true,-0.5\n"
    """
    file = io.StringIO()
    writer = csv.DictWriter(file, list(columns), lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return file.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = visible(value)
        return f"'{text}" if text.startswith(FORMULA) and not _is_number(text) else text
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def write_atomically(
    path: str | Path, content: str | bytes, *, make_folder: bool = False, hint: str | None = None
) -> Path:
    """Replace a file by new content as a whole, and return its path.

    A link stays a link: its target is replaced. A device or a pipe (/dev/stdout) is written to.

    Args:
        path: The file; `~` is expanded.
        content: Bytes, or text, which is written in UTF-8.
        make_folder: Whether its folder is made if it is missing.
        hint: What to type instead if the place is wrong.

    Raises:
        InputError: If the path cannot name a file: no such folder, permission denied.
        ScalewiseError: If the machine cannot write it: full disk, I/O error.
    """
    target = user_path(path)
    data = content.encode(errors="backslashreplace") if isinstance(content, str) else content
    try:
        if make_folder:
            target.parent.mkdir(parents=True, exist_ok=True)
        _write(target, data)
    except (OSError, ValueError) as error:
        code = getattr(error, "errno", None)
        reason = getattr(error, "strerror", None) or str(error)
        sentence = f"{target} cannot be written: {reason[:1].lower()}{reason[1:]}"
        if code is None or code in _WRONG_PLACE:
            raise InputError(
                sentence, hint=hint or "name a file in a folder that exists"
            ) from error
        raise ScalewiseError(sentence, hint=hint or "free space, or name another file") from error
    return target


def _write(target: Path, data: bytes) -> None:
    mode = _mode(target)
    if mode is not None and not stat.S_ISREG(mode):
        with target.open("wb") as stream:
            stream.write(data)
        return
    final = Path(os.path.realpath(target))
    # Own name: two writers, on two machines even, never share one.
    beside = final.with_name(f"{TEMPORARY}{os.getpid()}-{secrets.token_hex(4)}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            if mode is not None:
                os.chmod(beside, stat.S_IMODE(mode))  # noqa: PTH101 - beside its neighbors of os
            os.fsync(stream.fileno())
        os.replace(beside, final)  # noqa: PTH105
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(final.parent)


def _mode(target: Path) -> int | None:
    """Type and permissions of what is there; None if nothing is."""
    try:
        return target.stat().st_mode
    except FileNotFoundError:
        return None


def _sync_folder(folder: Path) -> None:
    """Put the new name on the disk as well, where the file system can do that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    except OSError:
        return
    finally:
        os.close(handle)
