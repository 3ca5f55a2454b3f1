"""Statistical efficiency: tokens that a very small batch needs over those of this one.

    u = statistical_efficiency(e)
    u.fraction, u.low, u.high, u.batches["kaplan"]

A ratio to training with very small batches, by the laws of `physics.critical_batch` and their
spread; off unless it is asked for. Ratios of two batches of one run are what to read it for.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import msgspec

from scalewise.critical_batch import parse_critical_batch
from scalewise.errors import InputError
from scalewise.physics import critical_batch as physics
from scalewise.units import grouped

if TYPE_CHECKING:
    from scalewise.step.result import Estimate


class StatisticalEfficiency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Statistical efficiency of a batch, and the critical batches behind it."""

    fraction: float
    """Tokens of a very small batch over tokens of this one, for the same loss; at the geometric
    mean of the critical batches."""
    low: float
    """By the law with the smallest critical batch."""
    high: float
    """By the law with the largest one."""
    batches: dict[str, float]
    """Critical batch by law, tokens."""


def critical_batches(text: str, parameters: float, tokens: float | None) -> dict[str, float]:
    """Return the critical batch by law, tokens.

    Args:
        text: As `critical_batch` reads it.
        parameters: Parameters that a token passes.
        tokens: Token budget.

    Raises:
        InputError: If laws are asked beyond their range, or without a token budget.
    """
    asked = parse_critical_batch(text)
    measured = None
    if asked.batch is not None:
        measured = float(physics.from_overhead(asked.batch, asked.overhead))
        if asked.at is None:
            return {"measured": measured}
    if tokens is None:
        raise InputError(
            f"--critical-batch {text}: needs a token budget", hint="add --tokens 300B",
            field="critical_batch",
        )  # fmt: skip
    if not physics.within_range(parameters, tokens):
        sizes = f"{physics.MIN_PARAMETERS / 1e9:g}B to {physics.MAX_PARAMETERS / 1e9:g}B"
        data = f"{physics.MIN_TOKENS_PER_PARAMETER:g} to {physics.MAX_TOKENS_PER_PARAMETER:g}"
        raise InputError(
            f"--critical-batch {text}: {parameters / 1e9:.3g}B parameters and "
            f"{grouped(tokens / parameters)} tokens for each; laws of the critical batch are used "
            f"from {sizes} parameters and {data} tokens per parameter",
            hint="measure it, and say --critical-batch 4Mtok",
            field="critical_batch",
        )
    if measured is not None and asked.at is not None:
        exponents = {
            "zhang": physics.ZHANG_EXPONENT, "bergsma": physics.BERGSMA_EXPONENT,
            "step law": physics.STEP_EXPONENT,
        }  # fmt: skip
        return {
            law: float(physics.grown_batch(measured, asked.at, tokens, exponent))
            for law, exponent in exponents.items()
        }
    return {
        "kaplan": float(physics.kaplan_batch(physics.loss(parameters, tokens))),
        "step law": float(physics.step_law_batch(tokens)),
        "deepseek": float(physics.deepseek_batch(6.0 * parameters * tokens)),
    }


def statistical_efficiency(e: Estimate) -> StatisticalEfficiency | None:
    """Return the statistical efficiency of the batch of a step; None where it is not asked for.

    Raises:
        InputError: As `critical_batches`.
    """
    work = e.workload
    if work.critical_batch is None:
        return None
    batches = critical_batches(work.critical_batch, float(e.model.active_parameters), work.tokens)
    sizes = sorted(batches.values())
    mean = sizes[0]
    if len(sizes) > 1:
        mean = math.exp(sum(math.log(size) for size in sizes) / len(sizes))
    batch = work.tokens_per_step
    return StatisticalEfficiency(
        fraction=float(physics.statistical_efficiency(batch, mean)),
        low=float(physics.statistical_efficiency(batch, sizes[0])),
        high=float(physics.statistical_efficiency(batch, sizes[-1])),
        batches=batches,
    )
