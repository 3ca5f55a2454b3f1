"""Graph of a step with labels for its tasks.

step = build(durations)
step.labels[task]              # Label(rank=0, stream="compute", kind="forward", ...)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from scalewise.simulation.actions import Action, Order
from scalewise.simulation.graph import NONE, Graph


class Label(NamedTuple):
    """Label of a task."""

    rank: int
    """Pipeline stage."""
    stream: str
    """compute, data, replica or pipeline."""
    kind: str
    """forward, backward, inputs, weights, head forward, head backward, gather, reduce, send ..."""
    chunk: int
    micro: int
    layer: int
    """Layer in the chunk, or -1."""
    to: int = NONE
    """Receiving stage of a P2P transfer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Coarse:
    """One action as a single task, with the times of its detailed simulation."""

    seconds: float
    """From the start of its first block to the end of its last one, seconds."""
    exposed: float
    """Exposed data-parallel communication inside, seconds."""


@dataclass(kw_only=True)
class Step:
    """The graph of one step, and labels of its tasks."""

    graph: Graph
    labels: list[Label | None]
    """By task; None for tasks of zero seconds."""
    schedules: list[Order]
    coarse: list[dict[tuple[str, int, bool], Coarse]] | None
    """By rank, (kind, chunk, last micro-batch or not): where actions are single tasks."""
    bounds: list[dict[Action, tuple[int, int]]] = field(default_factory=list)
    """By rank and action: its first (a gate) and its last task on the compute stream."""
