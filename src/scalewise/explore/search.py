"""Which strategy is best? Try them all.

    found = search(model, cluster, workload, by="time", top=10)
    found.best, found.examined, found.infeasible      # an Estimate; counts by reason

Exhaustive: every strategy of `space` goes through the same lines as `estimate`, piece by piece, so
memory does not grow with the space. What cannot run is counted by reason; near-ties, which no
model can tell apart, are marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scalewise.errors import InputError, did_you_mean
from scalewise.explore.space import Limits, pieces
from scalewise.numeric import Array, Index
from scalewise.step.estimate import NEAR_TIE, Estimates, estimate
from scalewise.step.feasibility import REASONS
from scalewise.step.result import Estimate
from scalewise.step.terms import TERM_NAMES
from scalewise.strategies import FIELDS, Strategies

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Convention, Model
    from scalewise.stack import Stack
    from scalewise.workload import Workload

MEMORY = len(REASONS) - 1
"""Code of strategies that do not fit into memory."""

OBJECTIVES = {
    "time": "seconds per step",
    "tokens": "seconds per token and accelerator",
    "cost": "dollars per million tokens",
    "energy": "joules per token",
    "memory": "bytes on the fullest accelerator",
}


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a search found."""

    by: str
    """What it ranked by; smaller is better."""
    examined: int
    """Strategies tried."""
    feasible: int
    infeasible: dict[str, int]
    """Counts by reason."""
    strategies: list[Estimate]
    """The best ones, best first."""
    ties: int
    """How many of them lie within a near-tie of the best."""
    pareto: list[Estimate] = field(default_factory=list)
    """Strategies that no other beats in all of the asked objectives."""
    nearest: Estimate | None = None
    """Where nothing fits: the strategy that needs the least memory."""
    interrupted: bool = False
    """Whether the user stopped it: then this is the best so far."""

    @property
    def best(self) -> Estimate | None:
        """The winner, or None if nothing can run."""
        return self.strategies[0] if self.strategies else None

    def why(self) -> str | None:
        """Why the best layout that is no near-tie of the winner lost, in terms of the step."""
        best = self.best
        if best is None:
            return None
        for other in self.strategies[1:]:
            if objective_of(other, self.by) > (1.0 + NEAR_TIE) * objective_of(best, self.by):
                return why_slower(other, best)
        return None


def objective(many: Estimates, by: str) -> Array:
    """The numbers to make small.

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
        raise InputError(f"objective {by!r} is not known", hint=did_you_mean(by, OBJECTIVES))
    if values is None:
        what = "price" if by == "cost" else "power"
        raise InputError(
            f"cannot search by {by}: the {what} of {many.cluster.name} is not known",
            hint="give it in the cluster, or search by time",
        )
    return values


def objective_of(one: Estimate, by: str) -> float:
    """The same for one estimate."""
    values = {
        "time": one.step_seconds,
        "tokens": 1.0 / one.tokens_per_second_per_accelerator,
        "cost": one.usd_per_million_tokens,
        "energy": one.joules_per_token,
        "memory": one.memory_bytes,
    }
    return float(values[by] or 0.0)


def why_slower(slower: Estimate, faster: Estimate) -> str:
    """One sentence: which terms cost the slower strategy its time."""
    gap = slower.step_seconds - faster.step_seconds
    changes = {name: slower.terms[name] - faster.terms[name] for name in slower.terms}
    worst = sorted(changes.items(), key=lambda item: -item[1])[:2]
    parts = " and ".join(
        f"{TERM_NAMES[name]} (+{100 * change / faster.step_seconds:.1f} %)"
        for name, change in worst
        if change > 0.05 * max(gap, 0.0)
    )
    return (
        f"{slower.strategy} is {100 * gap / faster.step_seconds:.1f} % slower than "
        f"{faster.strategy}: more {parts or 'of everything'}"
    )


class _Kept:
    """The best rows seen so far: values and strategy columns, never more than `most`."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.values: Array = np.zeros(0)
        self.columns: dict[str, Array] = {name: np.zeros(0) for name in FIELDS}

    def add(self, values: Array, strategies: Strategies, rows: Index) -> None:
        """Offer rows; equal values keep the order in which they came."""
        if len(self.values) == self.most:
            # Most of a piece is worse than all that is kept: no need to sort it.
            rows = rows[values[rows] < self.values[-1]]
        if not len(rows):
            return
        if len(rows) > self.most:
            rows = rows[np.argsort(values[rows], kind="stable")[: self.most]]
        joined = np.concatenate([self.values, values[rows]])
        order = np.argsort(joined, kind="stable")[: self.most]
        self.values = joined[order]
        for name in FIELDS:
            column = np.concatenate([self.columns[name], getattr(strategies, name)[rows]])
            self.columns[name] = column[order]


class _Front:
    """Rows that no other row beats in every objective."""

    def __init__(self) -> None:
        self.values: Array = np.zeros((0, 0))
        self.columns: dict[str, Array] = {name: np.zeros(0) for name in FIELDS}

    def add(self, values: Array, strategies: Strategies, rows: Index) -> None:
        """Offer rows; `values` has one row per objective."""
        # Most of a piece is beaten by the front there is; only the rest is compared in full.
        beaten = np.zeros(len(rows), dtype=bool)
        for point in self.values.T:
            beaten |= np.all(point[:, None] <= values[:, rows], axis=0)
        rows = rows[~beaten]
        fresh = values[:, rows]
        old = self.values if self.values.size else np.zeros((len(values), 0))
        joined = np.concatenate([old, fresh], axis=1)
        keep = nondominated(joined)
        self.values = joined[:, keep]
        for name in FIELDS:
            column = np.concatenate([self.columns[name], getattr(strategies, name)[rows]])
            self.columns[name] = column[keep]


def nondominated(values: Array) -> Index:
    """Columns of `values` (one row per objective, smaller is better) that none dominates."""
    order = np.lexsort(values[::-1])
    kept: list[int] = []
    front = np.zeros((len(values), 0))
    for column in order:
        point = values[:, column][:, None]
        if front.size and bool(np.any(np.all(front <= point, axis=0))):
            continue
        kept.append(int(column))
        front = np.concatenate([front, point], axis=1)
    return np.array(sorted(kept), dtype=int)


def search(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    *,
    limits: Limits | None = None,
    by: str = "time",
    top: int = 10,
    pareto: Sequence[str] = (),
    stack: Stack | str | None = None,
    convention: Convention = "causal",
    progress: Callable[[int], None] | None = None,
) -> Search:
    """Try every strategy and keep the best.

    Args:
        model: What is trained.
        cluster: On what.
        workload: Sequence, global batch (never changed) and precision.
        limits: What the user allows.
        by: What to make small: "time", "tokens", "cost", "energy" or "memory".
        top: How many to keep.
        pareto: Two or more objectives of which the front is wanted.
        stack: Software, as for `estimate`.
        convention: How FLOPs are counted.
        progress: Called with the number of strategies tried so far, after each piece.

    Returns:
        The best strategies as full estimates, and what became of the others.

    Raises:
        InputError: On unknown objectives.
    """
    for name in (by, *pareto):
        if name not in OBJECTIVES:
            raise InputError(
                f"objective {name!r} is not known", hint=did_you_mean(name, OBJECTIVES)
            )
    kept, least, front = _Kept(max(top, 1)), _Kept(1), _Front()
    examined, reasons, interrupted = 0, Counter[int](), False
    try:
        for piece in pieces(model, cluster, workload, limits or Limits()):
            many = estimate(model, cluster, workload, piece, stack=stack, convention=convention)
            codes = many.infeasible_code.astype(int)
            # What is proposed must fit as predicted, not only at the lucky end of the interval.
            codes[(codes == 0) & (many.memory_bytes > many.case.memory_bytes)] = MEMORY
            examined += len(codes)
            reasons.update(dict(enumerate(np.bincount(codes, minlength=len(REASONS)).tolist())))
            rows = np.flatnonzero(codes == 0)
            kept.add(objective(many, by), piece, rows)
            least.add(many.memory_bytes, piece, np.flatnonzero(codes == MEMORY))
            if pareto:
                front.add(np.array([objective(many, name) for name in pareto]), piece, rows)
            if progress is not None:
                progress(examined)
    except KeyboardInterrupt:
        interrupted = True

    def full(columns: dict[str, Array]) -> list[Estimate]:
        if not len(columns["tp"]):
            return []
        rows = list(Strategies(columns))
        many = estimate(model, cluster, workload, rows, stack=stack, convention=convention)
        return [many[row] for row in range(len(many))]

    best = full(kept.columns)
    near = [e for e in best if objective_of(e, by) <= (1 + NEAR_TIE) * objective_of(best[0], by)]
    return Search(
        by=by,
        examined=examined,
        feasible=reasons[0],
        infeasible={REASONS[code]: n for code, n in sorted(reasons.items()) if code and n},
        strategies=best,
        ties=len(near),
        pareto=full(front.columns) if pareto else [],
        nearest=None if best else next(iter(full(least.columns)), None),
        interrupted=interrupted,
    )
