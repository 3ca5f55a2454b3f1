"""The graph of a step, and what its tasks are: the nouns between `build` and those who look.

step = build(prices)
step.labels[task]              # Label(rank=0, stream="compute", kind="forward", ...)
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from scalewise.timeline.actions import Action, Order
from scalewise.timeline.graph import NONE, Graph


class Label(NamedTuple):
    """What a task is, for those who look at it."""

    rank: int
    """Pipeline stage."""
    stream: str
    """compute, data, or pipeline."""
    kind: str
    """forward, backward, inputs, weights, head forward, head backward, gather, reduce, send ..."""
    chunk: int
    micro: int
    layer: int
    """Layer in the chunk, or -1."""
    to: int = NONE
    """Receiving stage of a message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Coarse:
    """One action as a single event: what the finer play of it took."""

    seconds: float
    """Compute, from its first block to the end of its last, with everything inside."""
    exposed: float
    """Data-parallel communication inside that nothing hides."""


@dataclass(kw_only=True)
class Step:
    """The graph of one step, and what its tasks are."""

    graph: Graph
    labels: list[Label | None]
    """By task; None for tasks that take no time."""
    orders: list[Order]
    coarse: list[dict[tuple[str, int, bool], Coarse]] | None
    """By rank, (kind, chunk, of the last micro batch): where actions are single events."""
    bounds: list[dict[Action, tuple[int, int]]] = field(default_factory=list)
    """By rank and action: its first (a gate) and its last task on the compute stream."""
