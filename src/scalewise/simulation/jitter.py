"""Seeded variation of kernel times, and the wait for the slowest of many ranks.

    jitter = Jitter(spread=0.02, seed=1)
    jitter.kernel(1e-3)              # about 1 ms
    jitter.wait(1e-3, ranks=256)     # wait of a collective for the slowest of 256 ranks

Every kernel is drawn independently. A collective starts when the last of its ranks arrives. The
largest of n normal draws is taken from its exact distribution instead of n draws.
"""

from __future__ import annotations

from random import Random
from statistics import NormalDist

NORMAL = NormalDist()


class Jitter:
    """Source of noise; the same seed gives the same step."""

    def __init__(self, *, spread: float, seed: int = 0) -> None:
        self.spread = spread
        self._random = Random(seed)

    def kernel(self, seconds: float) -> float:
        """Draw the seconds of a kernel: normal around its duration, never below half of it."""
        return seconds * max(1.0 + self.spread * self._random.gauss(0.0, 1.0), 0.5)

    def wait(self, seconds: float, ranks: int) -> float:
        """Draw the wait of a collective for the slowest of its ranks, seconds.

        Args:
            seconds: Compute since the last collective.
            ranks: Ranks of the collective.
        """
        if ranks <= 1:
            return 0.0
        # The largest of n has the distribution function F(x) ** n.
        slowest = NORMAL.inv_cdf(max(self._random.random(), 1e-12) ** (1.0 / ranks))
        return seconds * self.spread * max(slowest - self._random.gauss(0.0, 1.0), 0.0)
