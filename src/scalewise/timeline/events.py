"""What can be seen of a step: events on streams of ranks.

    Event(rank=0, stream="data", name="gather layer 3", kind="gather", start=0.1, seconds=0.002)

The nouns of `timeline`; `play` makes them, `trace` writes them, `report.schedule` draws them.
"""

from __future__ import annotations

import msgspec

STREAMS = ("compute", "tensor", "context", "data", "pipeline", "host")
"""Streams of a rank, in the order in which they are shown."""

STREAM_NAMES = {
    "compute": "compute",
    "tensor": "tensor parallel",
    "context": "context parallel",
    "data": "data parallel",
    "pipeline": "pipeline send/recv",
    "host": "host launches",
}
"""How people call the streams."""


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One thing that a rank did."""

    rank: int
    """Pipeline stage whose rank did it."""
    stream: str
    """One of STREAMS."""
    name: str
    """What people read."""
    kind: str
    """What it is: forward, backward, inputs, weights, head forward, head backward, gather, reduce,
    send, receive, collective, kernel, wait, launch, optimizer, overhead, straggler."""
    start: float
    """Seconds from the start of the step."""
    seconds: float
    """How long it took."""
    micro: int = -1
    """Micro batch, or -1."""
    chunk: int = -1
    """Chunk of the stage, or -1."""
    layer: int = -1
    """Layer of the chunk, or -1."""
    flow: int = -1
    """Number of the message it sends or receives, or -1."""

    @property
    def end(self) -> float:
        """When it ended, seconds."""
        return self.start + self.seconds


class Sample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A counter's value from a moment on."""

    start: float
    """Seconds from the start of the step."""
    value: float
    """Bytes, or watts."""
