"""A log as data: its steps, and what else it states.

log = read_log("train.log")
log.framework, log.steps.seconds, log.stated["batch"].value
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from scalewise.logs.line import Memory
from scalewise.numeric import Array, Index

CHECKPOINT, EVALUATION = 1, 2
"""What is printed before a step, as bits."""


@dataclass(frozen=True, kw_only=True)
class Steps:
    """Steps in the order of the log, each once; NaN where a log does not say."""

    line: Index
    """Line each stands on, from 1."""
    step: Index
    """Number of the optimizer step."""
    every: Index
    """Optimizer steps since the last line of the same start, at least 1."""
    start: Index
    """Which start of the run it belongs to, from 0."""
    seconds: Array
    """Time of one step."""
    device_tokens: Array
    """Tokens/s per GPU."""
    total_tokens: Array
    """Tokens/s of all GPUs."""
    samples: Array
    """Sequences/s of all GPUs."""
    loss: Array
    """Training loss."""
    memory: Array
    """Peak memory of the GPU that printed it, bytes."""
    clock: Array
    """Wall clock when it was printed, s."""
    events: Index
    """What was printed since the last step: bits `CHECKPOINT` and `EVALUATION`."""
    waited: Array
    """Fraction of the time that waits for data, where a framework measures it."""

    def __len__(self) -> int:
        return len(self.line)

    def times(self) -> Array:
        """Return what is proportional to the time of a step: seconds, or the inverse of a rate.

        A rate of zero, as of a step that has not ended, gives infinity: no time.
        """
        for column in (self.seconds, self.device_tokens, self.total_tokens, self.samples):
            if np.isfinite(column).any():
                with np.errstate(divide="ignore"):
                    return column if column is self.seconds else 1.0 / column
        return self.seconds


MAX_STEP = 2.0**53
"""Limit of the number of a step: floats beyond are no exact whole numbers."""


@dataclass(frozen=True, kw_only=True)
class Stated:
    """One thing that a log says of its run."""

    value: str
    """As words of a question."""
    line: int
    """Line it stands on; 0 if it follows from several."""


@dataclass(frozen=True, kw_only=True)
class RunLog:
    """A log of a training run."""

    path: str
    framework: str
    """What wrote it; empty for an export."""
    steps: Steps
    stated: dict[str, Stated] = field(default_factory=dict)
    """Fields of a question that it states: batch, seq, gpus."""
    head: str = ""
    """Text before the first step, where configurations are printed."""
    memory: Memory = ""
    """Kind of the memory of its steps."""
    window: bool = False
    """Whether times are means since the last line."""
    digits: float = 0.0
    """Relative error of printed numbers."""
    damaged: tuple[int, ...] = ()
    """Lines of steps that are cut or mixed with others, and were left out."""
    notes: tuple[str, ...] = ()
    """What a reader should know, one sentence each."""
