"""What a pipeline stage does as a whole: the words of every schedule.

Action("F", 0, 3)              # forward of the fourth micro batch through the first chunk
"""

from __future__ import annotations

from typing import NamedTuple


class Action(NamedTuple):
    """One pass of one micro batch through one of a stage's chunks."""

    kind: str
    """F forward; B backward; I and W its two halves: gradients of inputs, and of weights."""
    chunk: int
    """Which of the stage's chunks, in forward order."""
    micro: int
    """Micro batch."""


Order = list[Action]
"""What a stage does, in order."""
