"""Totals of a captured step: collectives by mesh dimension, FLOPs, parameters and memory.

for row in collectives_of(capture):
    print(row.dimension, row.operation, row.calls, row.bytes)
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from scalewise.program.events import Capture


class Traffic(msgspec.Struct, frozen=True, kw_only=True):
    """Collectives of one kind on one dimension of the mesh, of one rank and step."""

    dimension: str
    """Dimension of the mesh."""
    ranks: int
    """Ranks of the group."""
    operation: str
    """Collective, as NCCL calls it."""
    phase: str
    """forward, backward, recompute or optimizer."""
    calls: int
    bytes: float
    """Whole messages: gathered, or not yet scattered."""


def collectives_of(captures: Sequence[Capture]) -> list[Traffic]:
    """Return the traffic of the ranks, summed up, largest first.

    Args:
        captures: One, or one per pipeline stage.
    """
    sums: dict[tuple[str, int, str, str], tuple[int, float]] = {}
    for capture in captures:
        for event in capture.collectives():
            group = capture.groups[event.group]
            key = (group.dimension, group.size, event.name, event.phase)
            calls, size = sums.get(key, (0, 0.0))
            sums[key] = (calls + 1, size + event.bytes)
    rows = [
        Traffic(
            dimension=dimension, ranks=ranks, operation=operation, phase=phase,
            calls=calls, bytes=size,
        )
        for (dimension, ranks, operation, phase), (calls, size) in sums.items()
    ]  # fmt: skip
    return sorted(rows, key=lambda row: -row.bytes)


def flops_by_phase(captures: Sequence[Capture]) -> dict[str, float]:
    """Return FLOPs of the ranks by phase.

    Args:
        captures: One, or one per pipeline stage.
    """
    sums: dict[str, float] = {}
    for capture in captures:
        for event in capture.kernels():
            if event.flops:
                sums[event.phase] = sums.get(event.phase, 0.0) + event.flops
    return sums
