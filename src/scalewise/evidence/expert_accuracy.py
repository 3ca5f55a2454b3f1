"""Headline numbers of runs of experts: errors, left-out errors, layout pairs, memory.

    found = validate(read_runs()).experts()
    found.groups["GPU"].median_error, found.pairs

Mixtures of experts are judged apart from dense models: their constants are fitted on fewer runs,
and their software changes faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

from scalewise.evidence.validate import JUDGED_QUALITIES, summaries, summarize

if TYPE_CHECKING:
    from scalewise.evidence.validate import Summary, Verdict

APART = 1.05
"""Ratio of measured tokens/s from which two layouts are a pair: below, repeats differ as much."""


@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Runs of one model, accelerator, precision and size in different layouts."""

    count: int
    """Pairs more than 5% apart."""
    ordered: int
    """Pairs of which the faster one is predicted to be faster."""


@dataclass(frozen=True, kw_only=True)
class ExpertAccuracy:
    """Numbers of the headline of runs of experts."""

    complete: int
    """Complete runs."""
    predicted: int
    """Those with a prediction."""
    refused: dict[str, int]
    """Complete runs without a prediction, by reason."""
    infeasible: int
    """Complete runs that ran but are called infeasible."""
    groups: dict[str, Summary]
    """Errors of complete runs on GPUs and on TPUs, and of runs of other grades."""
    sources: dict[str, Summary]
    models: dict[str, Summary]
    """Errors of complete runs by source and by model."""
    pairs: Pairs
    """Order of layouts."""
    too_large: dict[str, float]
    """Layouts on GPUs whose predicted memory is above that of the accelerator, by model and
    accelerator: the ratio. They ran, so it is an error of the prediction or of the table."""


def expert_accuracy(rows: Sequence[Verdict]) -> ExpertAccuracy | None:
    """Return the numbers of runs of experts; None without any.

    Args:
        rows: Verdicts on runs of experts.
    """
    if not rows:
        return None
    complete = [row for row in rows if row.quality in JUDGED_QUALITIES]
    refused = [row for row in complete if row.predicted_tokens_per_second is None]
    sound = [row for row in rows if row.sound]
    groups = {
        "GPU": [row for row in sound if row.gpu],
        "TPU": [row for row in sound if not row.gpu],
        "other grades": [row for row in rows if row.error is not None and row not in complete],
    }
    return ExpertAccuracy(
        complete=len(complete),
        predicted=len(complete) - len(refused),
        refused=dict(Counter(str(row.reason) for row in refused).most_common()),
        infeasible=sum(row.status == "infeasible" for row in complete),
        groups={name: summarize(each) for name, each in groups.items() if each},
        sources=summaries(sound, lambda row: row.source),
        models=summaries(sound, lambda row: str(row.group[1])),
        pairs=layout_pairs(groups["GPU"]),
        too_large=too_large(groups["GPU"]),
    )


def layout_pairs(rows: Sequence[Verdict]) -> Pairs:
    """Return how many pairs of layouts are predicted in the right order.

    Pairs are of one model, accelerator, precision and size, in other layouts, and more than 5%
    apart.
    """
    alike: dict[tuple[Any, ...], list[Verdict]] = {}
    for row in rows:
        _, model, chip, size, workload = row.group
        alike.setdefault((model, chip, size, workload.precision), []).append(row)
    right = []
    for group in alike.values():
        for a, b in combinations(group, 2):
            measured = _ratio(a.measured_tokens_per_second, b.measured_tokens_per_second)
            if a.strategy == b.strategy or max(measured, 1.0 / measured) <= APART:
                continue
            predicted = _ratio(a.predicted_tokens_per_second, b.predicted_tokens_per_second)
            right.append((measured > 1.0) == (predicted > 1.0))
    return Pairs(count=len(right), ordered=sum(right))


def _ratio(a: float | None, b: float | None) -> float:
    return float(a or 0.0) / float(b or 1.0)


def too_large(rows: Sequence[Verdict]) -> dict[str, float]:
    """Return the ratio of predicted to available memory where it is above 1, by layout."""
    found: dict[str, float] = {}
    for row in rows:
        ratio = _ratio(row.memory_gb_predicted, row.memory_gb_capacity)
        if ratio > 1.0:
            found[f"{row.group[1]} on {row.group[3]} {row.group[2]}, {row.strategy}"] = ratio
    return found
