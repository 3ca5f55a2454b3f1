"""Events and counters of a simulated step, on streams of ranks.

    Event(rank=0, stream="data", name="all-gather layer 3", kind="all-gather", start=0.1, ...)

`detail` makes them, `trace` writes them, `report.timeline_figure` draws them.
"""

from __future__ import annotations

import msgspec

STREAMS = ("compute", "tensor", "context", "expert", "data", "replica", "pipeline", "host")
"""Streams of a rank, in display order."""

STREAM_NAMES = {
    "compute": "compute",
    "tensor": "tensor parallel",
    "context": "context parallel",
    "expert": "expert parallel",
    "data": "data parallel",
    "replica": "replicas",
    "pipeline": "pipeline send/recv",
    "host": "host launches",
}
"""Labels of the streams."""


class Event(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """One event of a rank."""

    rank: int
    """Pipeline stage of the rank."""
    stream: str
    """One of STREAMS."""
    name: str
    """Label."""
    kind: str
    """Kind: forward, backward, inputs, weights, head forward, head backward, gather, reduce, send,
    receive, collective, kernel, wait, launch, optimizer, overhead, straggler."""
    start: float
    """Start, seconds from the start of the step."""
    seconds: float
    """Duration, seconds."""
    micro: int = -1
    """Micro-batch, or -1."""
    chunk: int = -1
    """Chunk of the stage, or -1."""
    layer: int = -1
    """Layer of the chunk, or -1."""
    flow: int = -1
    """Number of the P2P transfer that it sends or receives, or -1."""

    @property
    def end(self) -> float:
        """End, seconds."""
        return self.start + self.seconds


class Sample(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, gc=False):
    """Value of a counter from a moment on."""

    start: float
    """Seconds from the start of the step."""
    value: float
    """Bytes, or watts."""
