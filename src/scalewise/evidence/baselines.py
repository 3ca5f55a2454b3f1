"""Predictions without a model of the step: "40% MFU", and the nearest published run.

    pool = Pool(published(read_runs()))
    mfu_rate(place), pool.nearest(place)       # tokens/s per accelerator

What anyone can do with a calculator. A model that does not beat them is not worth running.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING

import numpy as np

from scalewise.errors import ScalewiseError

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.evidence.runs import Run
    from scalewise.model import Model
    from scalewise.numeric import Array

MFU = 0.40
"""MFU of the first baseline: the usual rule of thumb."""

WEIGHTS = {"parameters": 1.0, "accelerators": 1.0, "seq_len": 0.5}
"""Distance per doubling."""

OTHER_CHIP, OTHER_PRECISION = 3.0, 1.5
"""Distance of another chip generation and of another precision, in doublings."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """One run: what the distance depends on, and its MFU."""

    source: str
    parameters: float
    accelerators: int
    seq_len: int
    chip: str
    """Architecture."""
    precision: str
    full: float
    """Tokens/s per accelerator at 100% MFU: peak of the precision over FLOPs per token."""
    mfu: float
    """Measured, causal convention."""


def place_of(run: Run, model: Model, cluster: Cluster) -> Published | None:
    """Return what the distance of a measured run depends on, or None if it is not stated."""
    rate, seq_len = run.tokens_per_second, run.count("seq_len")
    if not rate or not seq_len:
        return None
    precision = run.text("precision") or "bf16"
    full = cluster.accelerator.peak(precision) / model.training_flops(seq_len, "causal")
    return Published(
        source=run.source,
        parameters=float(model.parameters),
        accelerators=cluster.accelerators,
        seq_len=seq_len,
        chip=cluster.accelerator.architecture,
        precision=precision,
        full=full,
        mfu=rate / full,
    )


def published(runs: Iterable[Run]) -> Iterator[Published]:
    """Yield the measured runs that state what a distance needs."""
    for run in runs:
        try:
            place = place_of(run, run.model([]), run.cluster([]))
        except ScalewiseError:
            continue
        if place is not None:
            yield place


def mfu_rate(place: Published) -> float:
    """Return tokens/s per accelerator at 40% MFU."""
    return MFU * place.full


class Pool:
    """Published runs as arrays, to find the nearest of them."""

    def __init__(self, places: Iterable[Published]) -> None:
        found = list(places)
        self.sources = np.array([place.source for place in found])
        self.chips = np.array([place.chip for place in found])
        self.precisions = np.array([place.precision for place in found])
        self.numbers = np.array([_numbers(place) for place in found]).reshape(-1, len(WEIGHTS))
        self.mfu = np.array([place.mfu for place in found])

    def distances(self, place: Published) -> Array:
        """Return how far each run is from another one, in doublings.

        Doublings of model size and of GPUs count 1, of the sequence 0.5. Another chip generation
        adds 3, another precision 1.5.
        """
        away = np.abs(self.numbers - np.array(_numbers(place))).sum(axis=1)
        away = away + OTHER_CHIP * (self.chips != place.chip)
        return np.asarray(away + OTHER_PRECISION * (self.precisions != place.precision))

    def nearest(self, place: Published) -> float | None:
        """Return tokens/s per accelerator at the MFU of the nearest run of another source.

        Of several runs at the same distance, the median: a sweep of layouts has many.
        """
        others = self.sources != place.source
        if not others.any():
            return None
        away = self.distances(place)[others]
        return place.full * float(np.median(self.mfu[others][away <= away.min() + 1e-9]))


def _numbers(place: Published) -> list[float]:
    """Return weighted logarithms to the base of two."""
    return [weight * log2(getattr(place, name)) for name, weight in WEIGHTS.items()]
