"""Published sweeps of layouts: rank correlation, the picked layout, and its regret.

for sweep in sweeps_of(validation.judged()):
sweep.model, sweep.picked, sweep.best, sweep.regret
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.ranges import tie_width

if TYPE_CHECKING:
    from scalewise.evidence.validate import Verdict
    from scalewise.numeric import Array

SWEEP_SIZE = 5
"""Rows from which a ranking within a sweep is judged."""


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Rows that differ in layout only: was the order right, and the choice?"""

    source: str
    model: str
    accelerators: int
    count: int
    """Layouts."""
    rank_correlation: float
    """Spearman of predicted and measured."""
    regret: float
    """Regret of the picked layout against the best measured one."""
    picked: str
    """That layout."""
    best: str
    """The best measured one."""


def sweeps_of(rows: Sequence[Verdict]) -> list[Sweep]:
    """Groups of at least `SWEEP_SIZE` layouts of one model, cluster and workload."""
    groups: dict[tuple[Any, ...], list[Verdict]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    found = []
    for key, group in groups.items():
        if len({row.strategy for row in group}) < SWEEP_SIZE:
            continue
        predicted = np.array([row.predicted_tokens_per_second for row in group], dtype=float)
        measured = np.array([row.measured_tokens_per_second for row in group], dtype=float)
        pick = pick_of(group)
        best = max(group, key=lambda row: row.measured_tokens_per_second or 0.0)
        reached = (pick.measured_tokens_per_second or 0.0) / float(measured.max())
        found.append(
            Sweep(
                source=key[0],
                model=key[1],
                accelerators=key[3],
                count=len(group),
                rank_correlation=spearman(predicted, measured),
                regret=1.0 - reached,
                picked=str(pick.strategy),
                best=str(best.strategy),
            )
        )
    return sorted(found, key=lambda sweep: (sweep.source, sweep.model, sweep.accelerators))


def spearman(a: Array, b: Array) -> float:
    """Rank correlation; ties get their order."""
    ranks = [np.argsort(np.argsort(values)).astype(float) for values in (a, b)]
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def pick_of(group: Sequence[Verdict]) -> Verdict:
    """Return the layout that the model picks from a sweep.

    The best prediction; among ties with it, fewer pipeline stages, then a smaller tensor degree,
    then less memory: what is equally fast should be simple.
    """
    top = max(row.predicted_tokens_per_second or 0.0 for row in group)
    least = top / (1.0 + tie_width())
    ties = [row for row in group if (row.predicted_tokens_per_second or 0.0) >= least]
    return min(ties, key=lambda row: row.simplicity)
