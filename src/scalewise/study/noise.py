"""Run-to-run variation of measured points, and the interval of a number computed from them.

    noise = Noise.of([[1.00, 1.02], [2.0, 2.1]])     # repeats of two points
    noise.interval(0.5, [(2, 1.0), (2, 1.0)])        # of a ratio of two points with 2 repeats each

Repeats of one point are few, so their variance is pooled over all points of a study: logs of
repeats around the mean of their point. The interval has 95% by Student's t with the pooled degrees
of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

NORMAL_975 = 1.959963985
"""97.5% quantile of the normal distribution."""


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Variation of repeats, pooled over points."""

    deviation: float
    """Standard deviation of the log of one repeat."""
    freedom: int
    """Degrees of freedom: repeats beyond the first of each point; 0 if the variation is unknown."""

    @classmethod
    def of(cls, points: Iterable[Sequence[float]]) -> Noise:
        """Return the variation of repeats of points; numbers that are not positive do not count."""
        squares, freedom = 0.0, 0
        for samples in points:
            logs = [math.log(each) for each in samples if each > 0.0]
            if len(logs) > 1:
                middle = sum(logs) / len(logs)
                squares += sum((each - middle) ** 2 for each in logs)
                freedom += len(logs) - 1
        return cls(deviation=math.sqrt(squares / freedom) if freedom else 0.0, freedom=freedom)

    @property
    def known(self) -> bool:
        """Whether any point has two repeats."""
        return self.freedom > 0

    def interval(
        self, value: float, parts: Sequence[Sequence[float]], disturbed: Sequence[float] = ()
    ) -> tuple[float, float]:
        """Return the 95% interval of a product or quotient of points.

        value x exp(-+ t s), s^2 = sum over points of d^2 / n + b^2. A point whose own repeats vary
        more than the pooled deviation d counts with its own.

        Args:
            value: The number.
            parts: Repeats of every point in it.
            disturbed: b of every point: log of the slowdown by other load; 0 by default.
        """
        total = 0.0
        for samples in parts:
            own = Noise.of([samples])
            total += max(self.deviation, own.deviation) ** 2 / max(len(samples), 1)
        total += sum(each**2 for each in disturbed)
        reach = math.exp(student_975(self.freedom) * math.sqrt(total))
        low, high = value / reach, value * reach
        return min(low, high), max(low, high)


def student_975(freedom: int) -> float:
    """Return the 97.5% quantile of Student's t.

    1 and 2 degrees of freedom have closed forms; above, the expansion of Abramowitz and Stegun,
    Handbook of Mathematical Functions, 26.7.5, up to the third power of 1 / freedom.

        >>> [round(student_975(n), 2) for n in (1, 2, 5, 30)]
        [12.71, 4.3, 2.57, 2.04]
    """
    if freedom < 1:
        return math.inf
    if freedom == 1:
        return math.tan(math.pi * 0.475)
    if freedom == 2:
        return 0.95 * math.sqrt(2.0 / (1.0 - 0.95**2))
    x, n = NORMAL_975, freedom
    return (
        x
        + (x**3 + x) / (4 * n)
        + (5 * x**5 + 16 * x**3 + 3 * x) / (96 * n**2)
        + (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / (384 * n**3)
    )
