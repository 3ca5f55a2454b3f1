"""How are gigabytes of trace read in a few megabytes? Piece by piece, a batch of events at once.

    stream = EventStream("rank0.json.gz")
    for batch in stream: ...          # lists of Event, in the order of the file
    stream.meta["distributedInfo"], stream.events, stream.cut

The file is JSON with one long list, `traceEvents`. Its pieces are cut between two events and each
piece is decoded as a list of its own. Where to cut is guessed, from the text `}, {`, and the
decoder is the judge: a piece that was cut inside an event or a string is no valid list. Only
where the guess fails is the text scanned for quotes and brackets.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from scalewise.errors import InputError

PIECE = 1 << 20
"""Bytes that are read, and at most decompressed, at once."""
LONGEST_HEAD = 1 << 26
"""Bytes before and after the list of events beyond which a file is no trace of PyTorch."""
LONGEST_EVENT = 1 << 28
"""Bytes of one event beyond which a file is no trace."""

_GUESSES = 64
_LIST = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"[\s,]*")
_BEFORE = re.compile(rb"\}\s*,\s*\Z")
# Kineto divides by durations of zero, and prints what C++ prints.
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
    """One event of the trace-event format, as far as it is needed here."""

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
# What text that is no JSON makes the decoder raise: also for bytes of no character, and for depth.
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
_raws = msgspec.json.Decoder(list[msgspec.Raw])


class EventStream:
    """The events of one file, in batches; iterate once.

    Attributes:
        path: The file.
        meta: What stands beside the events; complete when the iteration has ended.
        events: How many events were read so far, of any kind.
        cut: Why not all could be read, as the end of a sentence; None if the file is whole.
        damaged: Events that are no valid JSON and were left out.
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
            InputError: If the file cannot be read or is no trace. A file that ends early is no
                error here: see `cut`.
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
        """The bytes of the file, decompressed; notes in `cut` when they end early."""
        try:
            with self.path.open("rb") as file:
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
                    # Bounded, because a file of zeros grows a thousandfold. Some of what was
                    # taken in may come out later, also when there is nothing left to take.
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
        """Read up to the first event; return what follows, and whether the file is a bare list."""
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
                # A list of this name deeper down leaves brackets open: then this is no JSON.
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
        """No events in the whole file: say whether it is other JSON, cut, or no JSON."""
        try:
            content = _object(text)
        except _BAD:
            told = self.cut or "it ends early or is not JSON"
            raise self._foreign(f"{told}, and no event is in it") from None
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
            rest: Text that was read but not decoded; it begins between two events.
            pieces: What follows.

        Returns:
            What is left, the events, and whether the list has ended; what is left then begins
            behind it.
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
                        pass  # the guess was wrong, or the text is: look closely
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
        """Decode events of which some have fields of other types; those say nothing here."""
        found = []
        for raw in _raws.decode(b"[%b]" % text):
            try:
                found.append(_event.decode(raw))
            except _BAD:
                found.append(Event())
        return found

    def _decoded(self, text: bytes, spans: list[tuple[int, int]]) -> list[Event]:
        """Decode events one by one, mending what profilers are known to get wrong."""
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
        """Read what follows the list; where it is cut, all events were there, and we say so."""
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
    """Replace what is no JSON though profilers write it: bytes of no character, no numbers."""
    return _NO_NUMBER.sub(rb"\1null", text.decode(errors="replace").encode())


def _object(text: bytes) -> dict[str, Any]:
    """Decode what surrounds the events."""
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except _BAD:
        return msgspec.json.decode(_mended(text), type=dict[str, Any])


def _between(text: bytes) -> int:
    """How many blanks and commas stand before the first event."""
    match = _BETWEEN.match(text)
    return match.end() if match else 0


def _guess(text: bytes, start: int) -> int | None:
    """Behind which byte the last whole event seems to end: before the last `}, {`."""
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
        start: Where to begin: inside of the list, not inside of an object.

    Returns:
        (first, behind last) of every whole object; where the list ends, None if not here; and
        whether brackets close that were never opened.
    """
    codes = np.frombuffer(text, dtype=np.uint8)[start:]
    quotes = codes == ord('"')
    if b"\\" in text:
        quotes &= ~_escaped(codes)
    # Odd numbers of quotes before a byte: it stands in a string. Overflow keeps the parity.
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
    """Which bytes follow an odd number of backslashes."""
    slash = codes == ord("\\")
    places = np.arange(codes.size)
    # Where the run of backslashes that ends here began.
    last_other = np.maximum.accumulate(np.where(slash, -1, places))
    run = places - last_other
    escaped = np.zeros(codes.size, dtype=np.bool_)
    escaped[1:] = slash[:-1] & (run[:-1] % 2 == 1)
    return escaped
