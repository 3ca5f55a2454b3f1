"""Terms that mislead the choice of a layout in published sweeps.

    for choice in choices(validation, runs):
        choice.picked.strategy, choice.best.strategy, choice.regret, choice.misled

A measured run has a total, not terms, so each term is tried alone: it is scaled by the same factor
in all layouts of the sweep until the picked layout has a regret of at most `TOLERATED`. The term
that needs the smallest factor misled the choice; it was too small (factor above 1) or too large
(below). If no term does it within a factor of `LARGEST`, none did: the picked run is an outlier
among its neighbors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.evidence.sweeps import SWEEP_SIZE, pick_of
from scalewise.evidence.table import completed_plan
from scalewise.ranges import tie_width
from scalewise.step.estimate import estimate

if TYPE_CHECKING:
    from scalewise.evidence.runs import Run
    from scalewise.evidence.validate import Validation, Verdict
    from scalewise.numeric import Array

TOLERATED = 0.05
"""Share of throughput that a choice may lose before it needs an explanation."""

LARGEST = 4.0
"""Largest factor by which one term is scaled: beyond, it would be another term."""

STEPS = 57
"""Factors tried in each direction, evenly spaced in logarithms: 2.5 % apart."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """One layout of a sweep: measured, and predicted by terms."""

    strategy: str
    measured: float
    """Tokens/s per accelerator."""
    predicted: float
    """Tokens/s per accelerator."""
    inside: bool
    """Whether the measurement lies in the 80 % interval of the prediction."""
    terms: dict[str, float]
    """Predicted seconds of the step, by term."""

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, kw_only=True)
class Suspect:
    """A term that, scaled alone in the whole sweep, would have led to a good choice."""

    term: str
    factor: float
    """By which it must be scaled at least."""
    picked: str
    """What would be picked then."""
    regret: float
    """What that loses."""

    @property
    def distance(self) -> float:
        """How far the factor is from 1, up or down."""
        return abs(float(np.log(self.factor)))


@dataclass(frozen=True, kw_only=True)
class Choice:
    """A sweep whose picked layout loses more than is tolerated."""

    source: str
    model: str
    accelerators: int
    layouts: int
    regret: float
    """What the picked layout loses against the best measured."""
    median_error: float
    """Predicted over measured, minus 1, in the median of the sweep: what its neighbors do."""
    picked: Layout
    best: Layout
    differences: dict[str, float]
    """Predicted seconds of the picked layout minus the best one's, as a share of the best one's
    step, by term; the largest credit of the picked one first. They add up to the predicted gap."""
    suspects: tuple[Suspect, ...]
    """Terms that could have misled the choice, the most likely (smallest factor) first."""

    @property
    def misled(self) -> Suspect | None:
        """The term that misled the choice, or None if no single one did."""
        return self.suspects[0] if self.suspects else None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON."""
        plain = asdict(self)
        plain["suspects"] = list(plain["suspects"])
        plain["picked"]["error"], plain["best"]["error"] = self.picked.error, self.best.error
        plain["misled"] = None if self.misled is None else self.misled.term
        return plain


def choices(
    validation: Validation, runs: Iterable[Run], *, tolerated: float = TOLERATED
) -> list[Choice]:
    """Explain every sweep of the headline rows whose picked layout loses too much.

    Args:
        validation: The verdicts, made with the shipped constants.
        runs: The runs behind them.
        tolerated: Share of throughput that needs no explanation.

    Returns:
        By source, model and size.
    """
    by_id = {run.id: run for run in runs}
    groups: dict[tuple[Any, ...], list[Verdict]] = {}
    for row in validation.judged():
        groups.setdefault(row.group, []).append(row)
    found = []
    for group in groups.values():
        if len({row.strategy for row in group}) < SWEEP_SIZE:
            continue
        best = max(_rate(row) for row in group)
        if 1.0 - _rate(pick_of(group)) / best > tolerated:
            found.append(_explained(group, [by_id[row.id] for row in group], tolerated))
    return sorted(found, key=lambda choice: (choice.source, choice.model, choice.accelerators))


def _rate(row: Verdict) -> float:
    return float(row.measured_tokens_per_second or 0.0)


def _explained(group: Sequence[Verdict], runs: Sequence[Run], tolerated: float) -> Choice:
    """Predict a sweep again, term by term, and try which term is to blame."""
    terms = [_terms(run) for run in runs]
    pick = group.index(pick_of(group))
    best = int(np.argmax([_rate(row) for row in group]))
    step = sum(terms[best].values())
    gaps = {name: (terms[pick][name] - terms[best][name]) / step for name in terms[pick]}
    return Choice(
        source=group[pick].source,
        model=str(group[pick].group[1]),
        accelerators=int(group[pick].group[3]),
        layouts=len(group),
        regret=1.0 - _rate(group[pick]) / _rate(group[best]),
        median_error=float(np.median([row.error or 0.0 for row in group])),
        picked=_layout(group[pick], terms[pick]),
        best=_layout(group[best], terms[best]),
        differences=dict(sorted(gaps.items(), key=lambda item: item[1])),
        suspects=suspects(group, terms, tolerated=tolerated),
    )


def _terms(run: Run) -> dict[str, float]:
    plan, stack = completed_plan(run)
    return estimate(plan.model, plan.cluster, plan.workload, plan.strategy, stack=stack).terms


def _layout(row: Verdict, terms: dict[str, float]) -> Layout:
    measured = _rate(row)
    return Layout(
        strategy=str(row.strategy),
        measured=measured,
        predicted=float(row.predicted_tokens_per_second or 0.0),
        inside=(row.low or 0.0) <= measured <= (row.high or 0.0),
        terms=terms,
    )


def suspects(
    group: Sequence[Verdict],
    terms: Sequence[dict[str, float]],
    *,
    tolerated: float = TOLERATED,
    largest: float = LARGEST,
) -> tuple[Suspect, ...]:
    """Find the terms that, scaled alone, would have led to a good choice.

    Args:
        group: The layouts of a sweep; their step has the same tokens.
        terms: Predicted seconds by term, for each of them.
        tolerated: What a good choice may lose.
        largest: Largest factor to try, and its inverse.

    Returns:
        One suspect per term that can do it, the smallest factor (up or down) first.
    """
    measured = np.array([_rate(row) for row in group])
    # The order in which `pick_of` prefers ties.
    preference = sorted(range(len(group)), key=lambda place: group[place].simplicity)
    rank = np.empty(len(group))
    rank[preference] = np.arange(len(group))
    total = np.array([sum(each.values()) for each in terms])
    factors = np.exp(np.linspace(0.0, np.log(largest), STEPS)[1:])
    found = []
    for name in terms[0]:
        seconds = np.array([each[name] for each in terms])
        for factor in np.stack([factors, 1.0 / factors], axis=1).ravel().tolist():
            place = _picked(1.0 / (total + (factor - 1.0) * seconds), rank)
            regret = float(1.0 - measured[place] / measured.max())
            if regret <= tolerated:
                found.append(
                    Suspect(
                        term=name,
                        factor=factor,
                        picked=str(group[place].strategy),
                        regret=regret,
                    )
                )
                break
    return tuple(sorted(found, key=lambda suspect: suspect.distance))


def _picked(rate: Array, rank: Array) -> int:
    """The place of what `pick_of` would take at these predicted rates."""
    near = rate >= (1.0 - tie_width()) * rate.max()
    return int(np.argmin(np.where(near, rank, np.inf)))
