"""Blocks of whole lines of a log, plain or gzip, with the number of their first line.

    for first, block in line_blocks("train.log.gz"): ...

A carriage return ends a line too, as in progress bars, but has no number of its own.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path

from scalewise.errors import InputError
from scalewise.reading import open_regular

BLOCK = 4 << 20
"""Bytes that are read at once."""

LONGEST_LINE = 64 << 20
"""Bytes of a line beyond which a file is no log."""

MAX_BYTES = 64 << 30
"""Bytes of a log beyond which it is not read, unpacked."""

_BOM, _GZIP = b"\xef\xbb\xbf", b"\x1f\x8b"
_UTF16 = (b"\xff\xfe", b"\xfe\xff")


def line_blocks(path: str | Path) -> Iterator[tuple[int, bytes]]:
    """Return the number of the first line of each block, from 1, and its bytes.

    Raises:
        InputError: If the file cannot be read, or is no text.
    """
    rest, first, total = b"", 1, 0
    for place, piece in enumerate(_pieces(path)):
        if place == 0:
            _check_text(piece, path)
            piece = piece.removeprefix(_BOM)
        total += len(piece)
        if total > MAX_BYTES:
            raise InputError(
                f"log {path} has more than {MAX_BYTES >> 30} GiB", hint="cut out the part to read"
            )
        text = rest + piece
        end = max(text.rfind(b"\n"), text.rfind(b"\r")) + 1
        if not end:
            if len(text) > LONGEST_LINE:
                raise InputError(
                    f"log {path}, line {first}: longer than {LONGEST_LINE >> 20} MiB",
                    hint="name the log of a training run",
                )
            rest = text
            continue
        yield first, text[:end]
        first += text.count(b"\n", 0, end)
        rest = text[end:]
    if rest:
        yield first, rest


def first_bytes(path: str | Path) -> bytes:
    """Return the first bytes of a file, unpacked, at most `BLOCK`.

    Raises:
        InputError: If the file cannot be read.
    """
    return next(_pieces(path), b"")


def _pieces(path: str | Path) -> Iterator[bytes]:
    """The bytes of a file, unpacked; a packed file that was cut ends where it was cut."""
    handle = open_regular(path, what="log")
    with os.fdopen(handle, "rb") as stream:
        try:
            piece = stream.read(BLOCK)
            if not piece.startswith(_GZIP):
                while piece:
                    yield piece
                    piece = stream.read(BLOCK)
                return
            unpack = zlib.decompressobj(wbits=31)
            while piece:
                plain = unpack.decompress(piece, BLOCK)
                if plain:
                    yield plain
                piece = unpack.unconsumed_tail or unpack.unused_data
                if unpack.eof:
                    unpack = zlib.decompressobj(wbits=31)
                    if not piece.startswith(_GZIP):
                        piece = piece.lstrip(b"\0")
                piece = piece or stream.read(BLOCK)
        except OSError as error:
            raise InputError(
                f"log {path} cannot be read: {error.strerror or error}", hint="check the disk"
            ) from error
        except zlib.error as error:
            raise InputError(
                f"log {path} cannot be unpacked: {error}", hint="unpack it with gzip -d"
            ) from error


def _check_text(piece: bytes, path: str | Path) -> None:
    """Refuse what is no text: archives, pictures, and text in 16 bits per letter."""
    if piece.startswith(_UTF16):
        raise InputError(f"log {path} is UTF-16 text", hint="save it as UTF-8")
    head = piece[:4096]
    # A log may have a block of NULs where a node died, but not many other control characters.
    odd = sum(byte < 9 or 14 <= byte < 27 for byte in head.replace(b"\0", b""))
    if odd > 0.05 * len(head):
        raise InputError(f"log {path} is no text", hint="unpack it first, or name another file")
