"""A captured step: every kernel, collective and wait of one rank, free of hardware.

    captures = read_captures("capture.json")            # one per pipeline stage
    captures[0].collectives()[0].bytes

`program.capture` writes it, `account` sums it up, `replay` prices it. Streams and waits are those
of the program: what overlaps is a result of the replay.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Literal

import msgspec

from scalewise.errors import InputError
from scalewise.reading import read_bytes

Kind = Literal["kernel", "collective", "wait", "stream_wait", "host_sync"]
Phase = Literal["forward", "backward", "recompute", "optimizer"]

OPERATIONS = (
    "all_gather",
    "reduce_scatter",
    "all_reduce",
    "all_to_all",
    "broadcast",
    "send",
    "recv",
)
"""Collectives and transfers by the names that NCCL and MPI have for them."""


MAX_SIZE = 1e24
"""Limit of FLOPs and bytes of one event: beyond any kernel, and no sum of them overflows."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One thing that the rank issued, in the order in which it issued them."""

    tick: int
    """Place in the order of issue, from 1."""
    kind: Kind
    name: str = ""
    """Kernel: the operator. Collective: one of OPERATIONS."""
    phase: Phase = "forward"
    stream: int = 0
    """Stream on which it was issued; 0 is the default stream."""
    module: str = ""
    """Module of the model that issued it."""
    flops: float = 0.0
    """FLOPs of the kernel; causal attention counts half of the square of the sequence."""
    read: float = 0.0
    """Bytes of its inputs."""
    written: float = 0.0
    """Bytes of its outputs."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """Shapes of its tensor inputs, for kernels with FLOPs."""
    dtype: str = ""
    """Type of the first input, or of the message."""
    bytes: float = 0.0
    """Collective: bytes of the whole message, gathered or not yet scattered, as in nccl-tests."""
    group: str = ""
    """Name of the process group."""
    peer: int = -1
    """Rank at the other end of a send or recv."""
    functional: bool = False
    """Whether a DTensor or functional collective issued it, and not a wrapper or the program."""
    asynchronous: bool = False
    """Whether the program waits for it later."""
    on: int = -1
    """Wait: tick of the collective. Stream wait: the stream that is waited for."""
    until: int = -1
    """Stream wait: everything issued on stream `on` up to this tick."""
    label: str = ""
    """Innermost range of the program's own (FSDP, pipeline actions, record_function)."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """A process group that communicated."""

    name: str
    dimension: str
    """Dimension of the device mesh, such as tp; the group's own description if it has none."""
    ranks: tuple[int, ...]
    """Global ranks, ascending."""

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.ranks)

    @property
    def stride(self) -> int:
        """Distance between neighbors; 1 for a group of one."""
        return self.ranks[1] - self.ranks[0] if len(self.ranks) > 1 else 1


class Mesh(msgspec.Struct, frozen=True, kw_only=True):
    """A device mesh that the program built."""

    names: tuple[str, ...]
    """Names of its dimensions, outermost first."""
    shape: tuple[int, ...]
    """Ranks along each."""


class Capture(msgspec.Struct, frozen=True, kw_only=True):
    """One optimizer step of one rank, and what is known of the program."""

    program: str
    """What was captured, in one line."""
    adapter: str
    """How: "script", "decoder"."""
    world: int
    """Pretended number of ranks."""
    rank: int
    """The rank that was captured."""
    versions: dict[str, str]
    """Of PyTorch and the framework."""
    events: tuple[Event, ...]
    groups: dict[str, Group]
    """Process groups by name."""
    meshes: tuple[Mesh, ...] = ()
    parameters: float
    """Parameters that this rank's modules have in all, before sharding."""
    local_parameters: float
    """Parameters that this rank keeps."""
    multiplied: float
    """Parameters of matrices that GEMMs take: no tables that are looked up, norms and biases."""
    trained_modules: tuple[str, ...] = ()
    """Classes of the outermost modules."""
    inputs: tuple[tuple[int, ...], ...] = ()
    """Shapes of the tokens that the embedding read in the step, one per micro-batch."""
    vocab: int = 0
    """Rows of that embedding, of all ranks together."""
    hidden: int = 0
    """Width of that embedding."""
    layers: int = 0
    """Length of the longest list of equal modules: the layers that this rank holds."""
    peak_bytes: float = 0.0
    """Peak of live tensors during the step, without allocator and workspace, bytes."""
    pipelined: bool = False
    """Whether PyTorch's pipelining ran the step."""
    checkpointed: bool = False
    """Whether backward repeated forward work."""
    build_seconds: float = 0.0
    """CPU time until the captured step began, seconds."""
    step_seconds: float = 0.0
    """CPU time of capturing the step, seconds."""
    resident_bytes: float = 0.0
    """Peak memory of the capturing process, bytes."""
    notes: tuple[str, ...] = ()
    """What was replaced or left out for the capture."""

    @property
    def tokens(self) -> float:
        """Tokens that the rank read in the step."""
        return float(sum(math.prod(shape) for shape in self.inputs))

    def kernels(self) -> list[Event]:
        """Return the kernels, in order."""
        return [event for event in self.events if event.kind == "kernel"]

    def collectives(self) -> list[Event]:
        """Return collectives, sends and receives, in order."""
        return [event for event in self.events if event.kind == "collective"]

    @property
    def flops(self) -> float:
        """FLOPs of all kernels of the step."""
        return sum(event.flops for event in self.events)


def read_captures(path: str | Path) -> list[Capture]:
    """Read the captures that `scalewise program -o` wrote, one per pipeline stage.

    Raises:
        InputError: If they cannot be read.
    """
    data = read_bytes(path, what="capture")
    try:
        found = msgspec.json.decode(data, type=list[Capture])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(
            f"{path} is no capture of a program: {error}",
            hint="write one: scalewise program ... -o capture.json -- train.py",
        ) from error
    if not found:
        raise InputError(f"{path} holds no capture", hint="capture the program again")
    for capture in found:
        for event in capture.events:
            if (wrong := _wrong(event, capture)) is not None:
                raise InputError(
                    f"{path} is no capture of a program: event {event.tick}: {wrong}",
                    hint="capture the program again",
                )
    return found


def _wrong(event: Event, capture: Capture) -> str | None:
    """Return what cannot be about an event, or None."""
    if event.kind == "collective":
        if event.name not in OPERATIONS:
            return f"unknown collective `{event.name[:40]}`"
        if event.group not in capture.groups or not capture.groups[event.group].ranks:
            return f"unknown group `{event.group[:40]}`"
    for name in ("flops", "read", "written", "bytes"):
        if not 0.0 <= (value := getattr(event, name)) < MAX_SIZE:
            return f"{name} = {value:g}"
    return None
