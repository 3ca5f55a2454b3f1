"""Which strategy is best? Try them all.

    found = search(model, cluster, workload, by="time", top=10)
    found.best, found.examined, found.infeasible      # an Estimate; counts by reason

Exhaustive: every strategy of `space` goes through the same lines as `estimate`, piece by piece, so
memory does not grow with the space. What cannot run is counted by reason; near-ties, which no
model can tell apart, are marked.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from scalewise.errors import InputError, did_you_mean
from scalewise.explore.ranking import Front, Kept, Rows, candidates, smallest
from scalewise.explore.space import Limits, count, pieces
from scalewise.numeric import Array, Index, Mask
from scalewise.step.estimate import NEAR_TIE, Estimates, choose_stack, estimate
from scalewise.step.feasibility import REASONS, feasibility
from scalewise.step.result import Estimate
from scalewise.step.terms import TERM_NAMES
from scalewise.strategies import Strategies

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Convention, Model
    from scalewise.stack import Stack
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload

MEMORY = len(REASONS) - 1
"""Code of strategies that do not fit into memory."""

MOST_TIES = 200
"""Near-ties that are counted and compared."""

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
    """How many strategies lie within a near-tie of the best, itself included; counted up to
    `MOST_TIES`."""
    simplest: Estimate | None = None
    """Of these, the one with least to set up: no model can tell them apart, so take this one."""
    loser: Estimate | None = None
    """The best one that is no near-tie any more."""
    pareto: list[Estimate] = field(default_factory=list)
    """Strategies that no other beats in all of the asked objectives."""
    objectives: tuple[str, ...] = ()
    """The objectives of that front."""
    by_mesh: dict[tuple[int, int], Estimate] = field(default_factory=dict)
    """The best of each (tp, pp) that can run, where asked for."""
    nearest: Estimate | None = None
    """Where nothing fits: the strategy that needs the least memory."""
    interrupted: bool = False
    """Whether the user stopped it: then this is the best so far."""

    @property
    def best(self) -> Estimate | None:
        """The winner, or None if nothing can run."""
        return self.strategies[0] if self.strategies else None

    def why(self) -> list[str]:
        """Why others lost, in terms of the step: the runner-up, and the best that is no tie."""
        best = self.best
        if best is None:
            return []
        others = [*self.strategies[1:2], self.loser]
        told = [why_slower(other, best, self.by) for other in others if other is not None]
        return list(dict.fromkeys(told))


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


def why_slower(loser: Estimate, winner: Estimate, by: str = "time") -> str:
    """One sentence: by how much it lost, and which terms cost it its time.

    Args:
        loser: The strategy that lost.
        winner: The one it lost against.
        by: The objective.
    """
    value, best = objective_of(loser, by), objective_of(winner, by)
    behind = 100 * (value / best - 1.0)
    units = {"cost": "dearer", "energy": "more energy", "memory": "more memory"}
    lost = f"{loser.strategy} is {behind:.1f} % {units.get(by, 'slower')} than {winner.strategy}"
    if behind < 0.05:
        lost = f"{loser.strategy} is level with {winner.strategy}"
    gap = max(loser.step_seconds - winner.step_seconds, 0.0)
    changes = {name: loser.terms[name] - winner.terms[name] for name in loser.terms}
    worst = sorted(changes.items(), key=lambda item: -item[1])[:2]
    parts = " and ".join(
        f"{TERM_NAMES[name]} (+{100 * change / winner.step_seconds:.1f} %)"
        for name, change in worst
        if change > max(0.05 * gap, 5e-4 * winner.step_seconds)
    )
    return f"{lost}: more {parts}" if parts else lost


def effort(s: Strategy) -> tuple[float, ...]:
    """How much there is to set up: fewer kinds of parallelism first, then smaller degrees."""
    kinds = (s.tp > 1) + (s.cp > 1) + 2 * (s.pp > 1) + (s.virtual_stages > 1)
    kinds += s.sharding == "zero3" and s.dp_replicate > 1
    switched_off = (not s.reshard) + (s.tp > 1 and not s.sequence_parallel)
    switched_off += 3 - s.overlap_dp - s.overlap_tp - s.overlap_pp + (s.prefetch == 0)
    recompute = ("none", "selective", "full").index(s.recompute)
    return kinds, s.pp, s.tp * s.cp, switched_off, recompute


@dataclass(frozen=True, kw_only=True)
class _Question:
    """What every piece of the space is asked."""

    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack
    convention: Convention
    by: str
    pareto: tuple[str, ...]
    by_mesh: bool

    def estimate(self, strategies: Strategies | list[Strategy]) -> Estimates:
        """Price some strategies."""
        return estimate(
            self.model,
            self.cluster,
            self.workload,
            strategies,
            stack=self.stack,
            convention=self.convention,
        )


@dataclass(frozen=True, kw_only=True)
class _Findings:
    """What one piece of the space has to offer."""

    examined: int
    reasons: Index
    """Counts by place in `REASONS`."""
    best: Rows
    nearest: Rows
    """Of those that only memory forbids, the one that needs least."""
    front: Rows
    meshes: dict[tuple[int, int], Rows]
    """The best of each (tp, pp)."""


def _best_of_meshes(
    values: Array, piece: Strategies, so_far: dict[tuple[int, int], Kept]
) -> dict[tuple[int, int], Rows]:
    """The best row of each tensor-parallel degree of a piece, which has one pipeline degree.

    Args:
        values: What to make small, one row, flat.
        piece: The strategies.
        so_far: What earlier pieces have to offer; only what is better is given.
    """
    table = values.reshape(-1, piece.shape[-1])
    # How a layer is split is the last axis, and tp depends on nothing else.
    # Axis by axis, so that NumPy's inner loop is long: all at once it would be as long as the last.
    least = values.reshape(piece.shape)
    for _ in piece.shape[1:]:
        least = least.min(axis=0)
    degrees = np.broadcast_to(piece.tp.reshape(-1), least.shape)
    found = {}
    for tp in sorted(set(degrees[least < np.inf].tolist())):
        split = np.flatnonzero(degrees == tp)
        layer = split[np.argmin(least[split])]
        mesh = int(tp), int(piece.pp.flat[0])
        if mesh not in so_far or least[layer] < so_far[mesh].bound:
            place = np.argmin(table[:, layer]) * len(least) + layer
            found[mesh] = Rows.of(values, piece, np.array([place]))
    return found


def _examine(
    ask: _Question,
    piece: Strategies,
    top: int,
    bound: float,
    front: Array,
    meshes: dict[tuple[int, int], Kept],
) -> _Findings:
    """Price a piece and keep what may matter.

    Args:
        ask: The question.
        piece: The strategies.
        top: How many are wanted.
        bound: Value of the worst that earlier pieces have to offer, if they filled the list.
        front: Values of the front so far.
        meshes: The best of each (tp, pp) so far.
    """
    many = ask.estimate(piece)
    # What is proposed must fit as predicted, not only at the lucky end of the interval.
    memory = many.memory_bytes
    codes = np.broadcast_to(feasibility(many.case, memory), piece.shape).ravel()
    runs = codes == 0.0

    def column(name: str, allowed: Mask) -> Array:
        values = np.broadcast_to(objective(many, name), piece.shape).ravel()
        return np.where(allowed, values, np.inf)[None]

    values = column(ask.by, runs)
    best = smallest(values[0], top, bound)
    nearest = Rows.none()
    if not runs.any():
        needs = column("memory", codes == MEMORY)
        nearest = Rows.of(needs, piece, smallest(needs[0], 1))
    on_front = Rows.none(len(ask.pareto))
    if ask.pareto:
        wanted = np.concatenate([column(name, runs) for name in ask.pareto])
        on_front = Rows.of(wanted, piece, candidates(wanted, np.flatnonzero(runs), front))
    return _Findings(
        examined=codes.size,
        reasons=np.bincount(codes.astype(np.intp), minlength=len(REASONS)),
        best=Rows.of(values, piece, best),
        nearest=nearest,
        front=on_front,
        meshes=_best_of_meshes(values, piece, meshes) if ask.by_mesh else {},
    )


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
    by_mesh: bool = False,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
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
        by_mesh: Whether the best of each (tp, pp) is wanted as well.
        jobs: Threads; by default one per core.
        progress: Called after each piece with the strategies tried so far, and all there are.

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
    software, _ = choose_stack(stack, cluster, compiled=None)
    allowed = limits or Limits()
    if allowed.schedule is None:
        allowed = msgspec.structs.replace(allowed, schedule=software.schedules)
    ask = _Question(
        model=model,
        cluster=cluster,
        workload=workload,
        stack=software,
        convention=convention,
        by=by,
        pareto=tuple(pareto),
        by_mesh=by_mesh,
    )
    # glibc hands freed memory back to the system and takes it again, page by page, unless it has
    # once seen a block of this size go: a third of the time of a large search.
    np.empty(31 * 2**20, dtype=np.uint8)
    kept, least, front = Kept(max(top, MOST_TIES)), Kept(1), Front(len(pareto))
    meshes: dict[tuple[int, int], Kept] = {}
    examined, interrupted = 0, False
    size = count(model, cluster, workload, allowed)
    reasons = np.zeros(len(REASONS), dtype=int)

    def examine(piece: Strategies) -> _Findings:
        # The bound of earlier pieces only; a stale one lets more through, never less.
        return _examine(ask, piece, kept.most, kept.bound, front.rows.values, meshes)

    try:
        for found in _in_threads(
            examine, pieces(model, cluster, workload, allowed), jobs or os.cpu_count() or 1
        ):
            examined += found.examined
            reasons += found.reasons
            kept.add(found.best)
            least.add(found.nearest)
            front.add(found.front)
            for mesh, rows in found.meshes.items():
                meshes.setdefault(mesh, Kept(1)).add(rows)
            if progress is not None:
                progress(examined, size)
    except KeyboardInterrupt:
        interrupted = True

    def full(rows: Rows) -> list[Estimate]:
        strategies = rows.strategies()
        if not strategies:
            return []
        many = ask.estimate(strategies)
        return [many[row] for row in range(len(many))]

    values = kept.rows.values[0]
    near = values <= (1.0 + NEAR_TIE) * values[:1] if len(values) else np.zeros(0, dtype=bool)
    best = full(kept.rows.take(np.arange(min(top, len(values)))))
    equals = kept.rows.take(np.flatnonzero(near))
    efforts = [effort(s) for s in equals.strategies()]
    easiest = np.array([efforts.index(min(efforts))] if efforts else [], dtype=int)
    of_meshes = Rows.none()
    for mesh in sorted(meshes):
        of_meshes = of_meshes.with_(meshes[mesh].rows)
    return Search(
        by=by,
        examined=examined,
        feasible=int(reasons[0]),
        infeasible={REASONS[code]: int(n) for code, n in enumerate(reasons) if code and n},
        strategies=best,
        ties=len(efforts),
        simplest=next(iter(full(equals.take(easiest))), None),
        loser=next(iter(full(kept.rows.take(np.flatnonzero(~near)[:1]))), None),
        pareto=full(front.rows),
        objectives=tuple(pareto),
        by_mesh=dict(zip(sorted(meshes), full(of_meshes), strict=True)),
        nearest=None if best else next(iter(full(least.rows)), None),
        interrupted=interrupted,
    )


T = TypeVar("T")


def _in_threads(
    function: Callable[[Strategies], T], items: Iterator[Strategies], workers: int
) -> Iterator[T]:
    """Apply a function to items in a few threads, and give the results in order.

    NumPy leaves other threads alone while it loops over an array, so threads use all cores and
    cost no start. Never more than two items per thread are under way: memory stays bounded.
    """
    if workers == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(workers) as pool:
        under_way: deque[Future[T]] = deque()
        try:
            for item in items:
                under_way.append(pool.submit(function, item))
                if len(under_way) >= 2 * workers:
                    yield under_way.popleft().result()
            while under_way:
                yield under_way.popleft().result()
        finally:
            for waiting in under_way:
                waiting.cancel()
