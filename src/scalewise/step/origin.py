"""Inputs of one estimate: nouns, case and step, one row each.

    origin = e.origin
    origin.case.split.tp, origin.step.stage.layers

Derivations read it, so that nothing is computed again to explain a number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.derivation import Letter
from scalewise.numeric import scalar

if TYPE_CHECKING:
    from scalewise.chip import Calibration
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.stack import Stack
    from scalewise.step.case import Case
    from scalewise.step.compose import Step


@dataclass(frozen=True, kw_only=True, eq=False)
class Origin:
    """One row of everything between the question and the estimate."""

    model: Model
    cluster: Cluster
    stack: Stack
    chip: Calibration
    case: Case
    step: Step

    @property
    def n(self) -> Letter:
        """Micro-batches per step."""
        return Letter("n", scalar(self.case.split.num_microbatches), "micro-batches per step")

    @property
    def layers(self) -> Letter:
        """Layers of the slowest stage."""
        return Letter("L", scalar(self.step.stage.layers), "layers of the slowest stage")

    @property
    def tokens(self) -> Letter:
        """Tokens of one rank per micro-batch."""
        tokens = self.case.tokens
        return Letter("m", scalar(tokens), "tokens of one rank per micro-batch")

    @property
    def memory(self) -> Letter:
        """Memory bandwidth."""
        return Letter("B", scalar(self.case.rates.memory), "memory bandwidth, sustained", "B/s")

    @property
    def software(self) -> str:
        """Origin of the constants of the software."""
        return f"stack {self.stack.name}"

    @property
    def kernels(self) -> str:
        """Origin of the efficiencies of kernels."""
        state = "calibrated" if self.chip.calibrated else "uncalibrated"
        return f"{state} for {self.chip.name}: {self.chip.fitted_on}"
