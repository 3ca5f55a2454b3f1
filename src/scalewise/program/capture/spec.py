"""What a capturing process is asked for, and what it answers."""

from __future__ import annotations

import msgspec

from scalewise.program.events import Capture
from scalewise.records.job import TrainJob


class CaptureSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program and the place that it shall believe to have."""

    adapter: str
    """One of `run.ADAPTERS`, or "decoder" for a job of `scalewise measure train`."""
    world: int
    """Number of ranks."""
    rank: int = 0
    """The rank that is captured."""
    per_node: int = 8
    """Ranks of a node."""
    memory_bytes: float = 80e9
    """Memory that a device claims to have."""
    arguments: tuple[str, ...] = ()
    """Script and its arguments."""
    job: TrainJob | None = None
    """Job of the decoder."""


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """A capture, or why there is none."""

    capture: Capture | None = None
    error: str = ""
    hint: str = ""
    exit_code: int = 1
    """2 if the program was asked for wrongly."""
    refused: tuple[str, ...] = ()
    """What the program does that a capture cannot hold."""
