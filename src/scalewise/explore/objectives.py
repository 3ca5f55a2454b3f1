"""Objectives of a search, and why a strategy loses against another.

objective(many, "cost")                 # numbers to minimize, one per strategy
why_slower(loser, winner)               # "fsdp16-mb1: 3.2% slower; exposed all-gather +2.9%"
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.errors import InputError, did_you_mean
from scalewise.recompute import RECOMPUTES
from scalewise.sharding import is_mics, variant_tokens
from scalewise.terms import TERMS
from scalewise.units import format_percent

if TYPE_CHECKING:
    from scalewise.numeric import Array
    from scalewise.step.estimate import Estimates
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy

OBJECTIVES = {
    "time": "seconds per step",
    "tokens": "seconds per token and accelerator",
    "cost": "dollars per million tokens",
    "energy": "joules per token",
    "memory": "bytes on the worst rank",
}


def objective(many: Estimates, by: str) -> Array:
    """Return the values of an objective; smaller is better.

    Raises:
        InputError: If the objective is unknown, or the cluster has no price or power.
    """
    if by == "time":
        return many.step_seconds
    if by == "tokens":
        return 1.0 / many.tokens_per_second_per_accelerator
    if by == "memory":
        return many.memory_bytes
    values = {"cost": many.usd_per_million_tokens, "energy": many.joules_per_token}.get(by)
    if by not in OBJECTIVES:
        raise InputError(f"unknown objective {by}", hint=did_you_mean(by, OBJECTIVES))
    if values is None:
        what = "cost" if by == "cost" else "power"
        raise InputError(
            f"--by {by}: the {what} of {many.cluster.name} is unknown",
            hint="--price 2.5, or --by time" if by == "cost" else "--by time",
        )
    return values


def objective_of(one: Estimate, by: str) -> float:
    """Return the value of an objective for one estimate."""
    values = {
        "time": one.step_seconds,
        "tokens": 1.0 / one.tokens_per_second_per_accelerator,
        "cost": one.usd_per_million_tokens,
        "energy": one.joules_per_token,
        "memory": one.memory_bytes,
    }
    return float(values[by] or 0.0)


def why_slower(loser: Estimate, winner: Estimate, by: str = "time") -> str:
    """Return how much slower a strategy is, and by which terms: "S: 0.4% slower; attention +0.3%".

    Args:
        loser: The slower strategy.
        winner: The faster one.
        by: The objective.
    """
    value, best = objective_of(loser, by), objective_of(winner, by)
    behind = value / best - 1.0
    more = {"cost": "more expensive", "energy": "more energy", "memory": "more memory"}
    lost = f"{format_percent(behind)} {more.get(by, 'slower')}" if behind >= 5e-4 else "equal"
    gap = max(loser.step_seconds - winner.step_seconds, 0.0)
    changes = {name: loser.terms[name] - winner.terms[name] for name in loser.terms}
    worst = sorted(changes.items(), key=lambda item: -item[1])[:2]
    parts = ", ".join(
        f"{TERMS[name].label} {format_percent(change / winner.step_seconds, sign=True)}"
        for name, change in worst
        if change > max(0.05 * gap, 5e-4 * winner.step_seconds)
    )
    return f"{loser.strategy}: {lost}" + (f"; {parts}" if parts else "")


def effort(s: Strategy) -> tuple[float, ...]:
    """Return the complexity: fewer kinds of parallelism first, then smaller degrees."""
    kinds = (s.tp > 1) + (s.cp > 1) + 2 * (s.pp > 1) + (s.virtual_stages > 1)
    kinds += (s.ep > 1) + (s.etp > 1)
    kinds += s.sharding == "zero3" and s.dp_replicate > 1
    kinds += len(variant_tokens(s)) + is_mics(s)
    switched_off = (not s.reshard_after_forward) + (s.tp > 1 and not s.sequence_parallel)
    switched_off += s.mlp_tiles > 1
    switched_off += 3 - s.overlap_dp - s.overlap_tp - s.overlap_pp + (s.prefetch == 0)
    # K of N blocks stand between the kinds that need no list of blocks and all of them.
    kinds_ = tuple(RECOMPUTES)
    recompute = kinds_.index(s.recompute) if s.recompute in kinds_ else len(kinds_) - 1.5
    return kinds, s.pp, s.tp * s.cp, s.ep * s.etp, switched_off, recompute
