"""Events of a rank: tasks of the graph, opened into kernels while there are few.

    rank_events(simulation, 0)[0]   # Event(stream="compute", name="norm, rotary", ...)

Blocks are opened into kernels, collectives and launches while a rank has few of them. Otherwise a
block, or a whole pass, is one event. A block slowed by contention is stretched evenly.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.simulation.events import STREAMS, Event

if TYPE_CHECKING:
    from scalewise.simulation.layer import Block
    from scalewise.simulation.simulate import Simulation
    from scalewise.simulation.step import Label

KERNELS = 80_000
"""Events of all ranks up to which blocks are opened into kernels."""

_NAMES = {
    "all-gather": "all-gather",
    "reduce": "reduce",
    "inputs": "input gradients",
    "weights": "weight gradients",
}
_PASSES = ("forward", "backward", "inputs", "weights")


def rank_events(simulation: Simulation, rank: int) -> list[Event]:
    """Return all events of one rank, by stream in order of time.

    Args:
        simulation: The step.
        rank: Pipeline stage.
    """
    tasks = [
        (task, label)
        for task, label in enumerate(simulation.step.labels)
        if label is not None and rank in (label.rank, label.to)
    ]
    blocks = sum(1 for _, label in tasks if label.kind in _PASSES)
    pieces = len(simulation.durations.forward_block.pieces) + len(
        simulation.durations.backward_block.pieces
    )
    many = blocks * pieces // 2 * len(simulation.durations.stages)
    opened = simulation.step.coarse is None and many <= KERNELS
    start, end = simulation.times.start, simulation.times.end
    found: list[Event] = []
    for task, label in tasks:
        if label.stream == "pipeline":
            found.append(_message(label, rank, task, start[task], end[task]))
        elif opened and label.kind in _PASSES:
            found += _opened(simulation, label, start[task], end[task])
        elif end[task] > start[task]:
            found.append(_event(label, start[task], end[task]))
    found += _closing(simulation, rank)
    order = {stream: place for place, stream in enumerate(STREAMS)}
    found.sort(key=lambda event: (order[event.stream], event.start))
    return found


def _event(label: Label, start: float, end: float) -> Event:
    """Return a task as one event."""
    name = _NAMES.get(label.kind, label.kind)
    if label.layer >= 0:
        name = f"{name} layer {label.layer}"
    return Event(
        rank=label.rank,
        stream=label.stream,
        name=f"{name} m{label.micro}" if label.stream == "compute" else name,
        kind=label.kind,
        start=start,
        seconds=end - start,
        micro=label.micro,
        chunk=label.chunk,
        layer=label.layer,
    )


def _message(label: Label, rank: int, task: int, start: float, end: float) -> Event:
    """Return a P2P transfer as an event of one of its ends."""
    sends = rank == label.rank
    other = label.to if sends else label.rank
    return Event(
        rank=rank,
        stream="pipeline",
        name=f"send m{label.micro} to {other}" if sends else f"receive m{label.micro} from {other}",
        kind="send" if sends else "receive",
        start=start,
        seconds=end - start,
        micro=label.micro,
        chunk=label.chunk,
        flow=task,
    )


def _opened(simulation: Simulation, label: Label, start: float, end: float) -> list[Event]:
    """Return a block as its kernels, collectives and launches."""
    durations = simulation.durations.on(label.rank)
    block: Block = durations.forward_block if label.kind == "forward" else durations.backward_block
    low, high = 0.0, block.seconds
    cut = block.seconds * durations.inputs / (durations.inputs + durations.weights)
    if label.kind == "inputs":
        high = cut
    elif label.kind == "weights":
        low = cut
    stretch = (end - start) / (high - low) if high > low else 1.0
    found = []
    for piece in block.pieces:
        # Halves of backward show the pieces that lie inside them.
        begin, stop = max(piece.start, low), min(piece.start + piece.seconds, high)
        if stop <= begin:
            continue
        kind = {"compute": "kernel", "host": "launch"}.get(piece.stream, "collective")
        if piece.name == "wait for launch":
            kind = "wait"
        found.append(
            Event(
                rank=label.rank,
                stream=piece.stream,
                name=piece.name,
                kind=kind,
                start=start + (begin - low) * stretch,
                seconds=(stop - begin) * stretch,
                micro=label.micro,
                chunk=label.chunk,
                layer=label.layer,
            )
        )
    return found


def _closing(simulation: Simulation, rank: int) -> list[Event]:
    """Return the events after the last gradient."""
    closing, now = simulation.closing, simulation.times.seconds
    found = []
    last = now + closing.seconds - closing.overhead
    copies = last - closing.offload
    parts = (
        ("compute", "optimizer", "optimizer", now + closing.straggler, closing.optimizer[rank]),
        ("data", "all-gather", "all-gather parameters",
         now + closing.straggler + closing.optimizer[rank], closing.gather[rank]),
        ("compute", "straggler", "wait for the slowest", now, closing.straggler),
        ("compute", "overhead", "wait for copies of offload", copies, closing.offload),
        ("compute", "overhead", "step overhead", last, closing.overhead),
    )  # fmt: skip
    for stream, kind, name, start, seconds in parts:
        if seconds > 0.0:
            found.append(
                Event(rank=rank, stream=stream, name=name, kind=kind, start=start, seconds=seconds)
            )
    return found
