"""Actions of a pipeline stage: the vocabulary of all schedules.

Action("F", 0, 3)              # forward of the fourth micro-batch through the first chunk
"""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """One pass of one micro-batch through one chunk of a stage."""

    kind: str
    """F: forward; B: backward; I and W: its halves, dgrad and wgrad."""
    chunk: int
    """Chunk of the stage, in forward order."""
    micro: int
    """Micro-batch."""

    def is_edge(self, last: int) -> bool:
        """Whether once-per-step communication is beside it: first forward or last backward."""
        return self.micro == (0 if self.kind == "F" else last)


Order = list[Action]
"""Actions of a stage, in order."""
