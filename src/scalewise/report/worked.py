"""The numbers between input and answer of one estimate, as floats, so that they can be shown.

    w = work(e)
    w.layer.gemm_forward, w.layers, w.steps    # seconds; of the slowest stage; micro steps

An Estimate keeps results only. `step.work` is walked again, with the same inputs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.chip import load_chip
from scalewise.step.case import Case
from scalewise.step.groups import links, shards
from scalewise.step.layers import tokens_per_rank
from scalewise.step.work import work as walk
from scalewise.strategies import Strategies

if TYPE_CHECKING:
    from scalewise.step.result import Estimate


def number(value: Any) -> float:
    """Read a float or an array of one as a float."""
    return float(np.asarray(value).reshape(-1)[0])


class Worked:
    """An estimate, its case, and every field of `step.work.Work` as a float."""

    def __init__(self, e: Estimate) -> None:
        self.e = e
        self.chip = load_chip(e.cluster.accelerator.architecture)
        self.case = Case.of(
            e.model, e.cluster, e.workload, Strategies.of([e.strategy]), e.stack, self.chip
        )
        self.wires = links(self.case)
        self.work = walk(self.case)
        self.tokens = number(tokens_per_rank(self.case))
        """Tokens of one rank in a micro step."""
        self.steps = number(self.case.micro_steps)
        """Micro steps."""
        self.layer = self.work.layer
        self.traffic = self.work.traffic
        self.reduction = self.work.reduction
        self.on_last = bool(number(self.work.on_last))
        """Whether the slowest stage is the last, which has the head."""

    def __getattr__(self, name: str) -> float:
        return number(getattr(self.__dict__["work"], name))

    def field(self, name: str) -> float:
        """Read one number of the case."""
        return number(getattr(self.case, name))

    @property
    def shards(self) -> float:
        """Ranks that share one copy of what is sharded."""
        return number(shards(self.case))


def work(e: Estimate) -> Worked:
    """Recompute what lies between the inputs of an estimate and its terms."""
    return Worked(e)
