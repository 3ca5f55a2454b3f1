"""The search view: table, Pareto front and map of all strategies.

    answer = search_answer(SearchRequest(by="time"), progress=print)
    answer["rows"][0]["strategy"], answer["front"], answer["map"], answer["why"]

`explore.search` estimates every strategy; this file turns the result into rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.errors import ScalewiseError
from scalewise.explore.objectives import objective_of, why_slower
from scalewise.explore.space import Limits
from scalewise.ranges import TIE_CHANCE
from scalewise.strategy import Strategy
from scalewise.terms import GROUPS
from scalewise.ui.inputs import inputs, resolve
from scalewise.ui.requests import SearchRequest

if TYPE_CHECKING:
    from scalewise.explore.search import Search
    from scalewise.step.result import Estimate


def search_answer(
    request: SearchRequest, progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Try every strategy.

    Args:
        request: What is asked.
        progress: Called with the strategies tried so far, and all there are; may raise to stop.

    Raises:
        InputError: If a word is not understood, or the objective is not known of the cluster.
    """
    asked = inputs(request.question)
    known_power = asked.cluster.power_limit is not None
    found = asked.search(
        limits=None if request.every else Limits(overlap=(True,)),
        by=request.by,
        top=request.top,
        pareto=("time", "energy") if known_power else ("time", "memory"),
        best_by_tp_pp=True,
        progress=progress,
    )
    current = None
    if request.question.strategy is not None:
        try:
            current = resolve(request.question).estimate
        except ScalewiseError:
            current = None
    return {
        "question": msgspec.to_builtins(asked.question),
        "by": request.by,
        "evaluated": found.evaluated,
        "feasible": found.feasible,
        "infeasible": found.infeasible,
        "ties": found.ties,
        "tie_chance": TIE_CHANCE,
        "simplest": None if found.simplest is None else str(found.simplest.strategy),
        "safest": None if found.safest is None else _row(found.safest, found),
        "rows": [_row(e, found) for e in found.strategies],
        "front": [_row(e, found) for e in found.pareto],
        "front_by": "energy" if known_power else "memory",
        "map": [
            {"tp": tp, "pp": pp, **_row(e, found)} for (tp, pp), e in found.best_by_tp_pp.items()
        ],
        "why": found.why(),
        "nearest": None if found.nearest is None else _row(found.nearest, found),
        "current": _current(current, found),
        "experts": asked.model.moe is not None,
    }


def _row(e: Estimate, found: Search) -> dict[str, Any]:
    best = found.best
    value = objective_of(e, found.by)
    largest = max(e.exposed, key=lambda key: e.exposed[key])
    return {
        "strategy": str(e.strategy),
        "step_seconds": e.step_seconds,
        "rate": [e.tokens_per_second_per_accelerator, e.low, e.high],
        "mfu": e.mfu,
        "memory_bytes": e.memory_bytes,
        "memory_capacity": e.memory_capacity,
        "fit": e.fit,
        "stack": e.stack.name,
        "usd": e.run_usd,
        "joules": e.run_joules,
        "joules_per_token": e.joules_per_token,
        "exposed_fraction": e.exposed_fraction,
        "exposed_most": GROUPS[largest],
        "gap": 0.0 if best is None else value / objective_of(best, found.by) - 1.0,
        "tie": found.is_tie(e),
        "degrees": degrees(e.strategy),
    }


def degrees(s: Strategy) -> dict[str, Any]:
    """The parts of a strategy, for columns and filters."""
    names = (
        "dp_replicate", "dp_shard", "sharding", "tp", "cp", "pp", "virtual_stages", "schedule",
        "ep", "etp", "micro_batch", "recompute",
    )  # fmt: skip
    return {name: getattr(s, name) for name in names}


def _current(current: Estimate | None, found: Search) -> dict[str, Any] | None:
    """The plan of the page against the winner: what would change, and what it would gain."""
    best = found.best
    if current is None:
        return None
    answer = _row(current, found)
    answer["feasible"] = current.feasible
    if best is None:
        return answer
    old, new = degrees(current.strategy), degrees(best.strategy)
    answer["changes"] = [[name, old[name], new[name]] for name in old if old[name] != new[name]]
    answer["why"] = why_slower(current, best, found.by)
    return answer
