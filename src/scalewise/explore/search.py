"""Search over all strategies of a model on a cluster.

    found = search(model, cluster, workload, by="time", top=10)
    found.best, found.evaluated, found.infeasible      # an Estimate; counts by reason

Every strategy of `space` goes through the functions of `estimate`, piece by piece, so that memory
does not grow with the space. Strategies that cannot run are counted by reason. Ties are marked:
strategies with a chance of at least 1 in 3 to be better than the best.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from scalewise.errors import InputError, did_you_mean
from scalewise.explore.objectives import OBJECTIVES, effort, objective, objective_of, why_slower
from scalewise.explore.ranking import ParetoFront, Rows, TopK, candidates, smallest
from scalewise.explore.space import Limits, count, pieces
from scalewise.numeric import Array, Index, keep_freed_memory
from scalewise.physics.memory import fit_chance
from scalewise.ranges import TIE_CHANCE, chance, ratio_deviation
from scalewise.results import Result
from scalewise.software import choose_stack
from scalewise.step.estimate import CHOSEN_FIT, Estimates, estimate
from scalewise.step.feasibility import OUT_OF_MEMORY, REASONS
from scalewise.step.result import Estimate
from scalewise.strategies import WORDS, Strategies

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Convention, Model
    from scalewise.stack import Stack
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload

MAX_TIES = 200
"""Ties that are counted and compared, at most."""

SAFE_WITHIN = 0.02
"""How far behind the best the safest layout may lie, as a fraction."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Search(Result):
    """What a search found."""

    by: str
    """Objective; smaller is better."""
    evaluated: int
    """Strategies evaluated."""
    feasible: int
    infeasible: dict[str, int]
    """Counts by reason."""
    strategies: list[Estimate]
    """The best ones, best first."""
    ties: int
    """Number of strategies that tie with the best, itself included; counted up to `MAX_TIES`."""
    simplest: Estimate | None = None
    """The simplest of them."""
    loser: Estimate | None = None
    """The best one that is not a tie."""
    safest: Estimate | None = None
    """Of all within `SAFE_WITHIN` of the best, the one most likely to fit into memory."""
    pareto: list[Estimate] = field(default_factory=list)
    """Pareto front of the given objectives, best first in the first of them."""
    objectives: tuple[str, ...] = ()
    """Its objectives."""
    best_by_tp_pp: dict[tuple[int, int], Estimate] = field(default_factory=dict)
    """The best of each (tp, pp) that can run, if requested."""
    nearest: Estimate | None = None
    """If nothing fits: the strategy that needs the least memory."""
    interrupted: bool = False
    """Whether the user stopped it: then this is the best so far."""

    @property
    def best(self) -> Estimate | None:
        """The best strategy, or None if nothing can run."""
        return self.strategies[0] if self.strategies else None

    def whole(self) -> Search:
        """Return itself.

        The best so far is good for one search, but an estimate or a point of a curve that it is
        part of cannot say so.

        Raises:
            KeyboardInterrupt: If the user stopped it.
        """
        if self.interrupted:
            raise KeyboardInterrupt
        return self

    def is_tie(self, e: Estimate) -> bool:
        """Return whether an estimate ties with the best."""
        return self.ties > 1 and self.chance(e) >= TIE_CHANCE

    def chance(self, e: Estimate) -> float:
        """Return the chance that an estimate is better than the best, 0 to 1; 0.5 for itself."""
        best = self.best
        assert best is not None
        lead = np.log(objective_of(best, self.by) / objective_of(e, self.by))
        return float(chance(lead, ratio_deviation(e.basis, best.basis)))

    def why(self) -> list[str]:
        """Return why others are slower, by term: the runner-up, and the best that is not a tie."""
        best = self.best
        if best is None:
            return []
        others = [*self.strategies[1:2], self.loser]
        lines = [why_slower(other, best, self.by) for other in others if other is not None]
        return list(dict.fromkeys(lines))


@dataclass(frozen=True, kw_only=True)
class _Question:
    """Inputs that all pieces of the space share."""

    model: Model
    cluster: Cluster
    workload: Workload
    stack: Stack | str | None
    """Software; None for the usual one of each strategy."""
    convention: Convention
    by: str
    pareto: tuple[str, ...]
    best_by_tp_pp: bool
    fit: float

    def estimate(self, strategies: Strategies | list[Strategy]) -> Estimates:
        """Estimate strategies of one family: all fully sharded, or none."""
        return estimate(
            self.model,
            self.cluster,
            self.workload,
            strategies,
            stack=self.stack,
            convention=self.convention,
            fit=self.fit,
        )

    def full(self, rows: Rows) -> list[Estimate]:
        """Estimate rows in their order, each with its own software."""
        found: dict[int, Estimate] = {}
        for places, many in self.families(rows):
            found |= {place: many[row] for row, place in enumerate(places.tolist())}
        return [found[place] for place in sorted(found)]

    def families(self, rows: Rows) -> Iterator[tuple[Index, Estimates]]:
        """Estimate rows by the software that runs them: places, and their estimates."""
        strategies = rows.strategies()
        # As `estimate` chooses: fully sharded or not, eager or not.
        kinds = [
            self.stack is not None
            or (s.sharding == "zero3" and s.dp_shard > 1, s.compiled is False)
            for s in strategies
        ]
        for kind in dict.fromkeys(kinds):
            places = np.array([place for place, each in enumerate(kinds) if each == kind])
            yield places, self.estimate([strategies[place] for place in places])

    def chances(self, rows: Rows) -> Array:
        """Return the chance that each row is better than the first one."""
        found = np.zeros(rows.values.shape[1])
        lead = np.log(rows.values[0, :1] / rows.values[0])
        for _, first in self.families(rows.take(np.arange(min(len(found), 1)))):
            best = first.basis(0)
            for places, many in self.families(rows):
                wide = ratio_deviation(many.basis(np.arange(len(places))), best)
                found[places] = chance(lead[places], wide)
        return found


@dataclass(frozen=True, kw_only=True)
class _Findings:
    """Candidates of one piece of the space."""

    evaluated: int
    reasons: Index
    """Counts by place in `REASONS`."""
    best: Rows
    nearest: Rows
    """The one that needs the least memory, of those that only memory excludes."""
    front: Rows
    meshes: dict[tuple[int, int], Rows]
    """The best of each (tp, pp)."""
    safe: Rows
    """Values and risks of rows near the best so far that no faster row is safer than."""


def _safe(values: Array, many: Estimates, piece: Strategies, best: float) -> Rows:
    """Return rows near the best so far that no better row is at least as likely to fit as.

    Whichever row is the best, the safest row within reach of it is among them.

    Args:
        values: Objective, flat.
        many: Estimates of the piece.
        piece: The strategies.
        best: Value of the best of earlier pieces.
    """
    reach = (1.0 + SAFE_WITHIN) * min(best, float(values.min(initial=np.inf)))
    near = np.flatnonzero(values <= reach) if np.isfinite(reach) else np.zeros(0, dtype=int)
    if not len(near):
        return Rows.none(2)
    near = near[np.argsort(values[near], kind="stable")]
    # Within a piece the chance to fit falls with memory.
    memory = np.broadcast_to(many.memory_bytes, piece.shape).ravel()[near]
    lighter = np.ones(len(near), dtype=bool)
    lighter[1:] = memory[1:] < np.minimum.accumulate(memory)[:-1]
    near, memory = near[lighter], memory[lighter]
    capacity = many.cluster.accelerator.memory_bytes
    risks = 1.0 - np.asarray(fit_chance(memory, capacity, many.stack.memory_interval))
    return Rows(values=np.stack([values[near], risks]), codes=piece.codes(near))


def _best_of_meshes(
    values: Array, piece: Strategies, so_far: dict[tuple[int, int], TopK]
) -> dict[tuple[int, int], Rows]:
    """Return the best row of each (tp, pp) of a piece.

    Args:
        values: Objective, one row, flat.
        piece: The strategies.
        so_far: Values of earlier pieces; only better ones are returned.
    """
    table = values.reshape(-1, piece.shape[-1])
    # How a layer is split is the last axis, and tp and pp depend on nothing else.
    # Axis by axis, so that NumPy's inner loop is long: all at once it would be as long as the last.
    minimum = values.reshape(piece.shape)
    for _ in piece.shape[1:]:
        minimum = minimum.min(axis=0)
    degrees = (np.broadcast_to(each.reshape(-1), minimum.shape) for each in (piece.tp, piece.pp))
    places: dict[tuple[int, int], list[int]] = {}
    for place, (tp, pp) in enumerate(zip(*degrees, strict=True)):
        if minimum[place] < np.inf:
            places.setdefault((int(tp), int(pp)), []).append(place)
    found = {}
    for mesh, split in sorted(places.items()):
        layer = split[int(np.argmin(minimum[split]))]
        if mesh not in so_far or minimum[layer] < so_far[mesh].bound:
            row = np.argmin(table[:, layer]) * len(minimum) + layer
            found[mesh] = Rows.of(values, piece, np.array([row]))
    return found


def _examine(
    ask: _Question,
    piece: Strategies,
    top: int,
    bound: float,
    front: Array,
    meshes: dict[tuple[int, int], TopK],
    best_so_far: float,
) -> _Findings:
    """Evaluate a piece and return its candidates.

    Args:
        ask: The question.
        piece: The strategies.
        top: Number of strategies to return.
        bound: Value of the worst candidate of earlier pieces, if they filled the list.
        front: Values of the front so far.
        meshes: The best of each (tp, pp) so far.
        best_so_far: Value of the best of earlier pieces.
    """
    many = ask.estimate(piece)
    codes = np.broadcast_to(many.infeasible_code, piece.shape).ravel()
    runs = codes == 0.0

    def columns(names: Sequence[str]) -> Array:
        found = np.empty((len(names), *piece.shape))
        for values, name in zip(found, names, strict=True):
            values[...] = objective(many, name)
        return found.reshape(len(names), -1)

    names = tuple(dict.fromkeys((ask.by, *ask.pareto)))
    wanted = columns(names)
    values = wanted[:1]
    values[:, ~runs] = np.inf
    best = smallest(values[0], top, bound)
    nearest = Rows.none()
    if not runs.any():
        needs = columns(("memory",))
        needs[:, codes != OUT_OF_MEMORY] = np.inf
        nearest = Rows.of(needs, piece, smallest(needs[0], 1))
    on_front = Rows.none(len(ask.pareto))
    if ask.pareto:
        # Values of what cannot run are not looked at.
        if names != ask.pareto:
            wanted = wanted[[names.index(name) for name in ask.pareto]]
        on_front = Rows.of(wanted, piece, candidates(wanted, np.flatnonzero(runs), front))
    return _Findings(
        evaluated=codes.size,
        reasons=np.bincount(codes.astype(np.intp), minlength=len(REASONS)),
        best=Rows.of(values, piece, best),
        nearest=nearest,
        front=on_front,
        meshes=_best_of_meshes(values, piece, meshes) if ask.best_by_tp_pp else {},
        safe=_safe(values[0], many, piece, best_so_far),
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
    best_by_tp_pp: bool = False,
    fit: float = CHOSEN_FIT,
    jobs: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Search:
    """Evaluate every strategy and return the best.

    Args:
        model: Model.
        cluster: Cluster.
        workload: Sequence length, global batch (never changed) and precision.
        limits: Allowed strategies.
        by: Objective: "time", "tokens", "cost", "energy" or "memory".
        top: Number of strategies to return.
        pareto: Two or more objectives of a Pareto front.
        stack: Software, as for `estimate`.
        convention: FLOP convention of MFU.
        best_by_tp_pp: Whether to return the best of each (tp, pp) too.
        fit: Chance to fit into memory that strategies need.
        jobs: Threads; by default one per core.
        progress: Called after each piece with the strategies evaluated so far, and their total.

    Returns:
        The best strategies as full estimates, and counts of the others.

    Raises:
        InputError: On unknown objectives.
    """
    for name in (by, *pareto):
        if name not in OBJECTIVES:
            raise InputError(f"unknown objective {name}", hint=did_you_mean(name, OBJECTIVES))
    spaces = _families(cluster, stack, limits or Limits(), frozen=workload.tuned.frozen)
    ask = _Question(
        model=model,
        cluster=cluster,
        workload=workload,
        stack=stack,
        convention=convention,
        by=by,
        pareto=tuple(pareto),
        best_by_tp_pp=best_by_tp_pp,
        fit=fit,
    )
    keep_freed_memory()
    kept, minimum, front = TopK(max(top, MAX_TIES)), TopK(1), ParetoFront(len(pareto))
    meshes: dict[tuple[int, int], TopK] = {}
    safe = Rows.none(2)
    evaluated, interrupted = 0, False
    size = sum(count(model, cluster, workload, space) for space in spaces)
    reasons = np.zeros(len(REASONS), dtype=int)

    def examine(piece: Strategies) -> _Findings:
        # The bound of earlier pieces only; an outdated one lets more through, never less.
        least = float(kept.rows.values[0, 0]) if kept.rows.values.size else np.inf
        return _examine(ask, piece, kept.maximum, kept.bound, front.rows.values, meshes, least)

    every = chain.from_iterable(pieces(model, cluster, workload, space) for space in spaces)
    try:
        for found in _in_threads(examine, every, jobs or os.cpu_count() or 1):
            evaluated += found.evaluated
            reasons += found.reasons
            kept.add(found.best)
            minimum.add(found.nearest)
            front.add(found.front)
            safe = _within_reach(safe.with_(found.safe), kept)
            for mesh, rows in found.meshes.items():
                meshes.setdefault(mesh, TopK(1)).add(rows)
            if progress is not None:
                progress(evaluated, size)
    except KeyboardInterrupt:
        interrupted = True

    values = kept.rows.values[0]
    near = ask.chances(kept.rows) >= TIE_CHANCE
    best = ask.full(kept.rows.take(np.arange(min(top, len(values)))))
    equals = kept.rows.take(np.flatnonzero(near))
    efforts = [effort(s) for s in equals.strategies()]
    easiest = np.array([efforts.index(min(efforts))] if efforts else [], dtype=int)
    of_meshes = Rows.none()
    for mesh in sorted(meshes):
        of_meshes = of_meshes.with_(meshes[mesh].rows)
    return Search(
        by=by,
        evaluated=evaluated,
        feasible=int(reasons[0]),
        infeasible={REASONS[code]: int(n) for code, n in enumerate(reasons) if code and n},
        strategies=best,
        ties=len(efforts),
        simplest=next(iter(ask.full(equals.take(easiest))), None),
        loser=next(iter(ask.full(kept.rows.take(np.flatnonzero(~near)[:1]))), None),
        safest=_safest(ask, safe) if best and by != "memory" else None,
        pareto=sorted(ask.full(front.rows), key=lambda e: objective_of(e, pareto[0])),
        objectives=tuple(pareto),
        best_by_tp_pp=dict(zip(sorted(meshes), ask.full(of_meshes), strict=True)),
        nearest=None if best else next(iter(ask.full(minimum.rows)), None),
        interrupted=interrupted,
    )


def _families(
    cluster: Cluster, stack: Stack | str | None, limits: Limits, *, frozen: bool
) -> list[Limits]:
    """Yield the parts of the space that each run with one software, in its schedules."""
    if stack is not None:
        return [_of_software(limits, choose_stack(stack, cluster).stack)]
    kinds = limits.sharding or WORDS["sharding"]
    found = []
    for sharded in (False, True):
        of_family = tuple(kind for kind in kinds if (kind == "zero3") is sharded)
        if of_family:
            # A single data-parallel rank shards nothing: it is evaluated once.
            alone = not (sharded and len(of_family) < len(kinds))
            part = msgspec.structs.replace(limits, sharding=of_family, single_rank=alone)
            software = choose_stack(None, cluster, fully_sharded=sharded, frozen=frozen)
            found.append(_of_software(part, software.stack))
    return found


def _of_software(limits: Limits, stack: Stack) -> Limits:
    """Return the limits with the schedules of the software, and what has an effect in it."""
    sharded = max(stack.shard_overlap, stack.update_gather_overlap)
    idle = {
        "overlap_tp": stack.tp_overlap <= 0.0,
        "overlap_dp ddp": stack.dp_overlap <= 0.0,
        "overlap_dp zero1": sharded <= 0.0,
        "reshard_after_forward": stack.pipeline_gathers_once,
    }
    return msgspec.structs.replace(
        limits,
        schedule=stack.schedules if limits.schedule is None else limits.schedule,
        no_effect=tuple(name for name, nothing in idle.items() if nothing),
    )


def _within_reach(rows: Rows, kept: TopK) -> Rows:
    """Drop rows that are too far behind the best so far."""
    if not kept.rows.values.size:
        return rows
    reach = (1.0 + SAFE_WITHIN) * kept.rows.values[0, 0]
    return rows.take(np.flatnonzero(rows.values[0] <= reach))


def _safest(ask: _Question, rows: Rows) -> Estimate | None:
    """Return the row most likely to fit, the better one of equals."""
    order = np.lexsort((rows.values[0], rows.values[1]))
    return next(iter(ask.full(rows.take(order[:1]))), None)


T = TypeVar("T")


def _in_threads(
    function: Callable[[Strategies], T], items: Iterator[Strategies], workers: int
) -> Iterator[T]:
    """Apply a function to items in a few threads, and yield the results in order.

    NumPy releases the GIL while it loops over an array, so threads use all cores and start at no
    cost. At most two items per thread are in flight: memory stays bounded.
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
