"""Streams and events that record who waits for whom, in place of those of `torch.cpu`.

FSDP2 takes its device handle as `getattr(torch, device_type)`, so its copy, all-gather and
reduce-scatter streams are recorded as if on an accelerator. CPU streams do nothing themselves.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch


class Recorder(Protocol):
    """Where waits are written."""

    tick: int

    def emit(self, kind: str, **fields: Any) -> int:
        """Write an event; return its tick."""
        ...


class _State:
    recorder: Recorder | None = None
    current: list[Stream] = []  # noqa: RUF012 - one process has one state


class Stream:
    """A queue of work; its number tells it apart."""

    numbers = itertools.count(1)

    def __init__(self, device: Any = None, priority: int = 0, *, number: int | None = None) -> None:
        self.number = next(Stream.numbers) if number is None else number
        self.priority = priority
        self._context: StreamContext | None = None

    def record_event(self, event: Event | None = None) -> Event:
        """Mark the place that has been reached."""
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Make later work wait for a mark."""
        if event.tick is not None and event.stream != self.number and _State.recorder is not None:
            _State.recorder.emit(
                "stream_wait", stream=self.number, on=event.stream, until=event.tick
            )

    def wait_stream(self, other: Stream) -> None:
        """Make later work wait for all that another stream has."""
        if _State.recorder is not None and other is not self:
            _State.recorder.emit(
                "stream_wait", stream=self.number, on=other.number, until=_State.recorder.tick
            )

    def synchronize(self) -> None:
        """Make the host wait."""
        if _State.recorder is not None:
            _State.recorder.emit("host_sync", stream=self.number)

    def query(self) -> bool:
        """Return whether all work is done: nothing takes time here."""
        return True

    def is_capturing(self) -> bool:
        """Return whether a graph is recorded."""
        return False

    def __enter__(self) -> Stream:
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self._context is not None:
            self._context.__exit__(*error)


class Event:
    """A mark in a stream."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self.stream = -1
        self.tick: int | None = None

    def record(self, stream: Stream | None = None) -> Event:
        """Mark the place that a stream has reached."""
        self.stream = (stream or current_stream()).number
        self.tick = None if _State.recorder is None else _State.recorder.tick
        return self

    def wait(self, stream: Stream | None = None) -> None:
        """Make a stream wait for the mark."""
        (stream or current_stream()).wait_event(self)

    def query(self) -> bool:
        """Return whether the mark is reached."""
        return True

    def synchronize(self) -> None:
        """Make the host wait for the mark."""
        if _State.recorder is not None and self.tick is not None:
            _State.recorder.emit("host_sync", stream=self.stream)

    def elapsed_time(self, other: Event) -> float:
        """Return milliseconds between two marks: none pass here, and none is divided by."""
        return 1.0


class StreamContext:
    """`with torch.cpu.stream(s)`."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        _State.current.append(self.stream if self.stream is not None else current_stream())

    def __exit__(self, *error: object) -> None:
        _State.current.pop()


DEFAULT = Stream(number=0)


def current_stream(device: Any = None) -> Stream:
    """Return the stream that work is issued on."""
    return _State.current[-1] if _State.current else DEFAULT


@contextmanager
def recorded_streams(recorder: Recorder) -> Iterator[None]:
    """Replace the streams of `torch.cpu` and record their waits."""
    ours = {
        "Stream": Stream, "Event": Event, "current_stream": current_stream, "stream": StreamContext,
    }  # fmt: skip
    before = {name: getattr(torch.cpu, name, None) for name in ours}
    for name, value in ours.items():
        setattr(torch.cpu, name, value)
    _State.recorder = recorder
    try:
        yield
    finally:
        _State.recorder = None
        for name, value in before.items():
            setattr(torch.cpu, name, value)
