"""Streaming reader of trace files: gigabytes in a few megabytes of memory.

    stream = EventStream("rank0.json.gz")
    for batch in stream: ...          # lists of Event, in the order of the file
    stream.meta["distributedInfo"], stream.events, stream.cut

The file is JSON with one long list, `traceEvents`. It is split between two events, and each piece
is decoded as a list of its own. The split is guessed from the text `}, {` and checked by the
decoder: a piece that was split inside an event or a string is not valid JSON. Only then is the text
scanned for quotes and brackets.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from scalewise.errors import InputError
from scalewise.reading import open_regular

PIECE = 1 << 20
"""Bytes that are read, and at most decompressed, at once."""
LONGEST_HEAD = 1 << 26
"""Bytes before and after the list of events beyond which a file is not a PyTorch trace."""
LONGEST_EVENT = 1 << 28
"""Bytes of one event beyond which a file is not a trace."""

_GUESSES = 64
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"[\s,]*")
_BEFORE = re.compile(rb"\}\s*,\s*\Z")
# Kineto divides by durations of zero and prints the result of C++.
_NO_NUMBER = re.compile(rb"([:\[,]\s*)-?(?:nan|inf|NaN|Infinity)\b")
_GZIP, _BOM = b"\x1f\x8b", b"\xef\xbb\xbf"
_FOREIGN = {
    b"PK\x03\x04": "a zip archive",
    b"\x28\xb5\x2f\xfd": "compressed with zstd",
    b"BZh": "compressed with bzip2",
    b"\xfd7zXZ": "compressed with xz",
    b"SQLite format 3": "an SQLite database, as Nsight Systems writes it",
}


class Event(msgspec.Struct, gc=False):
    """One event of the trace-event format: the fields that are used here."""

    ph: str = ""
    """Kind: "X" is one with a duration."""
    cat: str | None = None
    """Category, such as "kernel"."""
    name: str = ""
    """Of the kernel, operator or annotation."""
    pid: int | str | float | None = None
    """Process; for what runs on a device, the number of the device."""
    tid: int | str | float | None = None
    """Thread; for what runs on a device, the stream."""
    ts: float | None = None
    """Start, in microseconds."""
    dur: float | None = None
    """Duration, in microseconds."""
    args: msgspec.Raw = msgspec.Raw(b"")
    """Not decoded: few events need it."""


_events = msgspec.json.Decoder(list[Event])
_event = msgspec.json.Decoder(Event)
# Errors of the decoder for text that is not JSON, for invalid UTF-8 and for depth.
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_raws = msgspec.json.Decoder(list[msgspec.Raw])


class EventStream:
    """Events of one file, in batches; iterate once.

    Attributes:
        path: The file.
        meta: Fields beside the events; complete after the iteration.
        events: Events read so far, of any kind.
        cut: Why the file is truncated, as the end of a sentence; None if it is whole.
        damaged: Events that are not valid JSON and were left out.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.meta: dict[str, Any] = {}
        self.events = 0
        self.cut: str | None = None
        self.damaged = 0
        self._over = False

    def __iter__(self) -> Iterator[list[Event]]:
        """Read the file.

        Raises:
            InputError: If the file cannot be read or is not a trace. A truncated file is no error
                here: see `cut`.
        """
        pieces = self._pieces()
        rest, is_list = self._head(pieces)
        ended = False
        while not ended:
            rest, batch, ended = self._batch(rest, pieces)
            if batch:
                self.events += len(batch)
                yield batch
            if self._over:
                return
        self._tail(rest, pieces, is_list=is_list)

    # Bytes.

    def _pieces(self) -> Iterator[bytes]:
        """Yield the bytes of the file, decompressed; sets `cut` if they end early."""
        try:
            with os.fdopen(open_regular(self.path, what="trace"), "rb") as file:
                start = file.read(16)
                file.seek(0)
                if start.startswith(_GZIP):
                    yield from self._unzipped(file)
                else:
                    for magic, what in _FOREIGN.items():
                        if start.startswith(magic):
                            raise InputError(
                                f"{self.path} is {what}, not a trace in JSON",
                                hint="give the .json or .json.gz that torch.profiler wrote",
                            )
                    while piece := file.read(PIECE):
                        yield piece
        except OSError as error:
            raise InputError(
                f"{self.path} cannot be read: {error.strerror or error}",
                hint="name a .json or .json.gz that torch.profiler wrote",
            ) from error

    def _unzipped(self, file: Any) -> Iterator[bytes]:
        packed = b""
        while True:
            unzip = zlib.decompressobj(wbits=31)
            while not unzip.eof:
                packed = packed or file.read(PIECE)
                try:
                    # Bounded, because a file of zeros grows a thousandfold. Buffered bytes may come
                    # out later, also after the end of the input.
                    piece = unzip.decompress(packed, PIECE)
                except zlib.error:
                    self.cut = "its compressed data is damaged"
                    return
                if not packed and not piece and not unzip.eof:
                    self.cut = "its compressed data ends early"
                    return
                packed = unzip.unconsumed_tail
                if piece:
                    yield piece
            packed = unzip.unused_data or file.read(PIECE)
            if not packed.startswith(_GZIP):
                return

    # What stands before the events.

    def _head(self, pieces: Iterator[bytes]) -> tuple[bytes, bool]:
        """Read up to the first event; return the rest, and whether the file is a bare list."""
        text = next(pieces, b"")
        text = text.removeprefix(_BOM).lstrip()
        while not text and (piece := next(pieces, b"")):
            text = piece.lstrip()
        if not text:
            self._refuse_empty()
        if text.startswith(b"["):
            return text[1:], True
        if not text.startswith(b"{"):
            raise self._foreign("it is not JSON")
        seen = 0
        while True:
            for match in _LIST.finditer(text, seen):
                # A list of this name at a deeper level leaves brackets open: then this is not JSON.
                try:
                    head = _object(text[: match.end()] + b"]}")
                except _BAD:
                    continue
                self.meta = {key: value for key, value in head.items() if key != "traceEvents"}
                return text[match.end() :], False
            seen = max(0, len(text) - 64)
            piece = next(pieces, b"")
            if not piece:
                self._refuse_headless(text)
            if len(text) > LONGEST_HEAD:
                raise self._foreign(f"its first {LONGEST_HEAD >> 20} MiB have no `traceEvents`")
            text += piece

    def _refuse_empty(self) -> None:
        if self.cut is not None:
            raise self._foreign(f"{self.cut}, before the first event")
        raise self._foreign("it is empty")

    def _refuse_headless(self, text: bytes) -> None:
        """Raise for a file without events: other JSON, truncated, or not JSON."""
        try:
            content = _object(text)
        except _BAD:
            sentence = self.cut or "it ends early or is not JSON"
            raise self._foreign(f"{sentence}, and no event is in it") from None
        keys = ", ".join(f"`{key[:40]}`" for key in list(content)[:4]) or "nothing"
        raise self._foreign(f"it is JSON without a list `traceEvents` (it has {keys})")

    def _foreign(self, why: str) -> InputError:
        return InputError(
            f"{self.path} is no profiler trace: {why}",
            hint="give what torch.profiler's export_chrome_trace wrote, .json or .json.gz",
        )

    # The events.

    def _batch(self, rest: bytes, pieces: Iterator[bytes]) -> tuple[bytes, list[Event], bool]:
        """Decode the next events.

        Args:
            rest: Text that was read but not decoded; it starts between two events.
            pieces: The following text.

        Returns:
            The remaining text, the events, and whether the list has ended; the remaining text then
            starts behind it.
        """
        wanted = PIECE
        while True:
            got = [rest]
            size = 0
            while size < wanted and (piece := next(pieces, b"")):
                got.append(piece)
                size += len(piece)
            text = b"".join(got)
            start = _between(text)
            if text[start : start + 1] == b"]":
                return text[start + 1 :], [], True
            if size:
                guess = _guess(text, start)
                if guess is not None:
                    try:
                        return text[guess:], _events.decode(b"[%b]" % text[start:guess]), False
                    except msgspec.ValidationError:
                        return text[guess:], self._tolerant(text[start:guess]), False
                    except _BAD:
                        pass  # the split was wrong, or the text is: scan it
            spans, end, broken = scan(text, start)
            batch = self._decoded(text, spans)
            if broken:
                self._over, self.cut = True, self.cut or "it is damaged in the middle"
                return b"", batch, False
            if end is not None:
                return text[end + 1 :], batch, True
            if spans:
                return text[spans[-1][1] :], batch, False
            if not size:
                self._over, self.cut = True, self.cut or "it ends in the middle of the events"
                return b"", [], False
            if len(text) > LONGEST_EVENT:
                raise self._foreign(f"one event is longer than {LONGEST_EVENT >> 20} MiB")
            rest = text
            wanted = max(PIECE, len(text))

    def _tolerant(self, text: bytes) -> list[Event]:
        """Decode events of which some have fields of other types; those are skipped."""
        found = []
        for raw in _raws.decode(b"[%b]" % text):
            try:
                found.append(_event.decode(raw))
            except _BAD:
                found.append(Event())
        return found

    def _decoded(self, text: bytes, spans: list[tuple[int, int]]) -> list[Event]:
        """Decode events one by one, with repairs of known profiler bugs."""
        found = []
        for first, last in spans:
            raw = text[first:last]
            try:
                found.append(_event.decode(raw))
                continue
            except msgspec.ValidationError:
                found.append(Event())
                continue
            except _BAD:
                mended = _mended(raw)
            try:
                found.append(_event.decode(mended))
            except msgspec.ValidationError:
                found.append(Event())
            except _BAD:
                self.damaged += 1
        return found

    # What stands after the events.

    def _tail(self, rest: bytes, pieces: Iterator[bytes], *, is_list: bool) -> None:
        """Read the fields after the list; if they are truncated, all events were read."""
        got, size = [rest], len(rest)
        for piece in pieces:
            got.append(piece)
            size += len(piece)
            if size > LONGEST_HEAD:
                return
        if self.cut is not None or is_list:
            return
        text = b"".join(got)
        try:
            self.meta |= _object(b"{" + text[_between(text) :])
        except _BAD:
            self.cut = "it ends in the middle of what follows the events"


def _mended(text: bytes) -> bytes:
    """Replace known invalid JSON of profilers: invalid UTF-8, NaN, infinity."""
    return _NO_NUMBER.sub(rb"\1null", text.decode(errors="replace").encode())


def _object(text: bytes) -> dict[str, Any]:
    """Decode the fields around the events."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except _BAD:
        return msgspec.json.decode(_mended(text), type=dict[str, Any])


def _between(text: bytes) -> int:
    """Return the number of blanks and commas before the first event."""
    match = _BETWEEN.match(text)
    return match.end() if match else 0


def _guess(text: bytes, start: int) -> int | None:
    """Return the probable end of the last whole event: before the last `}, {`."""
    place = len(text)
    for _ in range(_GUESSES):
        place = text.rfind(b"{", start + 1, place)
        if place < 0:
            return None
        low = max(start, place - 80)
        match = _BEFORE.search(text[low:place])
        if match is not None:
            return low + match.start() + 1
    return None


def scan(text: bytes, start: int = 0) -> tuple[list[tuple[int, int]], int | None, bool]:
    """Find the objects of a list by its quotes and brackets.

    Args:
        text: JSON text.
        start: Where to start: inside of the list, not inside of an object.

    Returns:
        (first, behind last) of every whole object; the end of the list, None if it is not here; and
        whether brackets close that were never opened.
    """
    codes = np.frombuffer(text, dtype=np.uint8)[start:]
    quotes = codes == ord('"')
    if b"\\" in text:
        quotes &= ~_escaped(codes)
    # An odd number of quotes before a byte: it is in a string. Overflow keeps the parity.
    outside = (np.cumsum(quotes, dtype=np.uint8) & 1) == 0
    # `|` 32 makes "[" of "{" and "]" of "}" the same.
    kind = np.where(outside, codes | 32, 0)
    steps = (kind == ord("{")).astype(np.int8) - (kind == ord("}")).astype(np.int8)
    places = np.flatnonzero(steps)
    depth = np.cumsum(steps[places], dtype=np.int64)
    below = np.flatnonzero(depth < 0)
    end, broken = None, False
    if below.size:
        stop = int(below[0])
        where = int(places[stop])
        broken = codes[where] != ord("]")
        end = None if broken else start + where
        places, depth = places[:stop], depth[:stop]
    closes = places[depth == 0]
    opens = places[(depth == 1) & (steps[places] > 0)][: closes.size]
    spans = [
        (start + int(first), start + int(last) + 1)
        for first, last in zip(opens, closes, strict=True)
    ]
    return spans, end, broken


def _escaped(codes: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which bytes follow an odd number of backslashes."""
    slash = codes == ord("\\")
    places = np.arange(codes.size)
    # Start of the run of backslashes that ends here.
    last_other = np.maximum.accumulate(np.where(slash, -1, places))
    run = places - last_other
    escaped = np.zeros(codes.size, dtype=np.bool_)
    escaped[1:] = slash[:-1] & (run[:-1] % 2 == 1)
    return escaped
