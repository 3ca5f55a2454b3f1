"""What stalls of a run cost: seconds per step, fraction of the time, tokens/s without them.

    costs = stall_costs(log, rate=6207.0, step_seconds=1.32)
    costs[0].seconds_per_step, costs[0].mended

A log measures them, so they need no odds. The steady step leaves them out, and the prediction is
about the steady step. Waiting for data is inside of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from scalewise.diagnosis.logs import LogSummary

Lost = Literal["checkpoint", "evaluation", "unnamed", "data"]

LEAST_WAITED = 0.02
"""Fraction of a step from which waiting for data is named."""

MENDS = {
    "checkpoint": "asynchronous or rarer checkpoints",
    "evaluation": "shorter or rarer evaluation",
    "unnamed": "look at what runs there: data, garbage collection, other jobs",
    "data": "more loader workers, prefetch, local or packed data",
}
"""What is done about each."""


@dataclass(frozen=True, kw_only=True)
class StallCost:
    """One kind of stall and what it costs."""

    cause: Lost
    fraction: float
    """Of the time of the whole run."""
    seconds_per_step: float
    """Spread over all steps, s."""
    gain: float
    """Tokens/s without it over those of the whole run, less 1."""
    mend: str


def stall_costs(log: LogSummary, step_seconds: float) -> tuple[StallCost, ...]:
    """Return what the stalls of a log cost, largest first.

    With f the fraction of the time of all stalls, a steady step of s seconds takes s / (1 - f) with
    them; a stall of fraction x costs x s / (1 - f) of it, and 1 / (1 - x) is gained without it.

    Args:
        log: What it says besides its number.
        step_seconds: Time of a steady step, s.
    """
    lost = sum(stall.fraction for stall in log.stalls)
    whole = step_seconds / (1.0 - lost)
    parts: list[tuple[Lost, float]] = [(stall.cause, stall.fraction) for stall in log.stalls]
    if log.waited is not None and log.waited >= LEAST_WAITED:
        parts.append(("data", log.waited * (1.0 - lost)))
    costs = [
        StallCost(
            cause=cause,
            fraction=fraction,
            seconds_per_step=fraction * whole,
            gain=fraction / (1.0 - fraction),
            mend=MENDS[cause],
        )
        for cause, fraction in parts
    ]
    return tuple(sorted(costs, key=lambda each: -each.fraction))
