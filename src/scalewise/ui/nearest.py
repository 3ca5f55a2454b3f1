"""Distance of a question from measured runs: the nearest ones, and a grade.

    near = nearest(index, e)          # the runs, their distance, the error of our prediction there
    near["grade"]                     # "inside", "edge" or "outside"

Distance is in doublings: of model size (half all parameters, half active ones), accelerators,
sequence, and of each degree of parallelism (half weight), with fixed additions for another chip,
precision or kind of software. Models with experts are compared with such models alone, dense ones
with dense ones. Distance says how far a prediction is from evidence, not how wrong it is; the error
at the nearest runs is given beside.
"""

from __future__ import annotations

from functools import lru_cache
from math import log2
from threading import Lock
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.errors import ScalewiseError
from scalewise.evidence.degraded import degraded
from scalewise.evidence.left_out_table import LeftOutRow, read_left_out
from scalewise.evidence.runs import Run, read_runs
from scalewise.evidence.table import completed_plan
from scalewise.evidence.validate import JUDGED_QUALITIES, Verdict, judge, with_left_out
from scalewise.step.sequences import useful_flops

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.numeric import Array
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload

INSIDE, EDGE = 2.0, 4.0
"""Distances up to which a question lies inside the evidence, or at its edge. Chosen, not fitted: no
relation between distance and error was measured."""

SHOWN = 3

ALIKE = 0.3
"""Doublings of model size within which a run is drawn beside a curve."""

OTHER_CHIP, OTHER_PRECISION, OTHER_STACK = 3.0, 1.5, 1.0
"""Additions, in doublings: another architecture, precision or stack. Chosen as well."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """Where a run lies."""

    row: int
    """Of the table of runs."""
    model: str
    accelerator: str
    accelerators: int
    architecture: str
    precision: str
    stack: str
    experts: bool
    """Whether the model has layers with experts."""
    numbers: tuple[float, ...]
    """Logarithms to the base of two: parameters, active parameters, accelerators, sequence, tp,
    pp, cp, ep."""


WEIGHTS = (0.5, 0.5, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5)


@lru_cache(maxsize=1)
def runs() -> list[Run]:
    """The shipped runs."""
    return read_runs()


def places() -> list[Place]:
    """Lay out every shipped run that can be predicted and counts in the headline."""
    return places_of(runs())


def places_of(table: list[Run]) -> list[Place]:
    """Lay out the runs of a table that can be predicted and count in the headline."""
    found = []
    for row, run in enumerate(table):
        if run.quality not in JUDGED_QUALITIES:
            continue
        try:
            if not run.tokens_per_second:
                continue
            plan, stack = completed_plan(run)
        except ScalewiseError:
            continue
        s = plan.strategy
        found.append(
            Place(
                row=row,
                model=plan.model.name,
                accelerator=plan.cluster.accelerator.name,
                accelerators=plan.cluster.accelerators,
                architecture=plan.cluster.accelerator.architecture,
                precision=s.precision or plan.workload.precision,
                stack=stack.name,
                experts=plan.model.moe is not None,
                numbers=_numbers(plan.model, plan.cluster, plan.workload, s),
            )
        )
    return found


def _numbers(model: Model, cluster: Cluster, workload: Workload, s: Strategy) -> tuple[float, ...]:
    values = (
        model.parameters, model.active_parameters, cluster.accelerators, workload.seq_len,
        s.tp, s.pp, s.cp, s.ep,
    )  # fmt: skip
    return tuple(log2(max(float(value), 1.0)) for value in values)


class Index:
    """All places as arrays."""

    def __init__(self, found: list[Place], table: list[Run] | None = None) -> None:
        self.places = found
        self.table = runs() if table is None else table
        numbers: Array = np.array([place.numbers for place in found], dtype=float)
        self.numbers = numbers.reshape(len(found), len(WEIGHTS))
        self.chips, self.precisions, self.stacks = (
            np.array([getattr(place, name) for place in found], dtype=str)
            for name in ("architecture", "precision", "stack")
        )
        self.experts = np.array([place.experts for place in found], dtype=bool)

    def distances(self, e: Estimate) -> Array:
        """How far each run is from an estimate; infinitely far if only one of them has experts."""
        s = e.strategy
        here = np.array(_numbers(e.model, e.cluster, e.workload, s))
        away: Array = np.abs(self.numbers - here) @ np.array(WEIGHTS)
        precision = s.precision or e.workload.precision
        chip = e.cluster.accelerator.architecture
        away = away + OTHER_CHIP * (self.chips != chip)
        away = away + OTHER_PRECISION * (self.precisions != precision)
        away = away + OTHER_STACK * (self.stacks != e.stack.name)
        alike = self.experts == (e.model.moe is not None)
        return np.where(alike, away, np.inf)


_index: Index | None = None
_laying = Lock()


def index() -> Index:
    """All shipped runs; laid out once, which takes seconds, unless `share` has brought them."""
    with _laying:
        if _index is None:
            share(places())
    assert _index is not None
    return _index


def share(found: list[Place]) -> None:
    """Take over what another process has laid out."""
    global _index
    _index = Index(found)


def nearest(index: Index, e: Estimate) -> dict[str, Any]:
    """The nearest runs, and the grade that follows from them.

    Args:
        index: All runs.
        e: The estimate in question.
    """
    away = index.distances(e)
    alike = np.flatnonzero(np.isfinite(away))
    if not len(alike):
        return {
            "grade": "outside",
            "runs": [],
            "within": 0,
            "words": "there are no measured runs to compare with",
        }
    # Repeats of one run say nothing new: one of each source, model and size.
    shown: list[dict[str, Any]] = []
    seen: set[tuple[Any, ...]] = set()
    for place in alike[np.argsort(away[alike], kind="stable")][:200]:
        here = index.places[int(place)]
        run = index.table[here.row]
        key = (run.source, here.model, here.accelerators)
        if key in seen:
            continue
        seen.add(key)
        verdict = _verdict(here.row) if index.table is runs() else judge(run)
        shown.append(_answer(run, here, verdict, float(away[place])))
        if len(shown) == SHOWN:
            break
    minimum = shown[0]["distance"]
    largest = max(index.places[int(place)].accelerators for place in alike)
    grade = "inside" if minimum <= INSIDE else "edge" if minimum <= EDGE else "outside"
    if e.cluster.accelerators > largest:
        grade = "outside"
    within = int(np.count_nonzero(away <= INSIDE))
    return {
        "grade": grade,
        "runs": shown,
        "within": within,
        "words": _words(grade, minimum, within),
    }


def overlay(index: Index, e: Estimate) -> dict[str, Any]:
    """Measured runs of models of this size on this accelerator: dots for the curves.

    Args:
        index: All runs.
        e: The estimate in question.
    """
    chip, sizes = e.cluster.accelerator, (e.model.parameters, e.model.active_parameters)
    flops = useful_flops(e.model, e.workload, e.convention)
    precision = e.strategy.precision or e.workload.precision
    shown = []
    for place in index.places:
        near = place.experts == (e.model.moe is not None) and all(
            abs(there - log2(here)) <= ALIKE
            for there, here in zip(place.numbers, sizes, strict=False)
        )
        if place.accelerator != chip.name or place.precision != precision or not near:
            continue
        run = index.table[place.row]
        rate = run.tokens_per_second or 0.0
        shown.append(
            {
                "row": place.row,
                "id": run.id,
                "source": run.source,
                "model": place.model,
                "accelerators": place.accelerators,
                "seq_len": run.count("seq_len"),
                "strategy": run.framework,
                "measured": rate,
                "mfu": rate * flops / e.peak_flops,
            }
        )
    return {"runs": shown, "words": f"models within {2**ALIKE - 1:.0%} of the size, same chip"}


def _words(grade: str, minimum: float, within: int) -> str:
    if grade == "inside":
        return f"{within:,} measured runs within {INSIDE:g} doublings of this plan"
    return f"the nearest measured run is {minimum:.1f} doublings away"


def _answer(run: Run, place: Place, verdict: Verdict, distance: float) -> dict[str, Any]:
    return {
        "id": run.id,
        "source": run.source,
        "reference": run.text("source_ref"),
        "framework": run.framework,
        "model": place.model,
        "accelerator": place.accelerator,
        "accelerators": place.accelerators,
        "strategy": verdict.strategy,
        "measured": verdict.measured_tokens_per_second,
        "predicted": verdict.predicted_tokens_per_second,
        "error": verdict.error,
        "distance": distance,
    }


def evidence_row(run: Run) -> dict[str, Any]:
    """The verdict on one run, with what the page filters by.

    `held_out` marks runs that no fit has used: those that calibration leaves aside because their
    publication is incomplete, second hand or at odds with itself, but that can be predicted.
    """
    verdict = with_left_out(judge(run), left_out().get(run.id))
    predicted, complete = verdict.error is not None, verdict.quality in JUDGED_QUALITIES
    return {
        "id": verdict.id,
        "source": verdict.source,
        "reference": run.text("source_ref"),
        "framework": run.framework,
        "model": run.text("model"),
        "parameters": run.number("params_total"),
        "accelerator": run.text("accelerator"),
        "accelerators": run.count("accelerators"),
        "seq_len": run.count("seq_len"),
        "precision": run.text("precision"),
        "strategy": verdict.strategy,
        "split": split_of(run),
        "layers": "dense" if run.dense else "experts" if run.number("experts") else "other",
        "stack": verdict.stack,
        "status": verdict.status,
        "quality": verdict.quality,
        "judged": predicted and complete,
        "held_out": predicted and not complete,
        "measured": verdict.measured_tokens_per_second,
        "predicted": verdict.predicted_tokens_per_second,
        "low": verdict.low,
        "high": verdict.high,
        "error": verdict.error,
        "left_out": verdict.left_out,
        "left_out_low": verdict.left_out_low,
        "left_out_high": verdict.left_out_high,
        "reason": verdict.reason,
    }


@lru_cache(maxsize=1)
def left_out() -> dict[str, LeftOutRow]:
    """Predictions of the shipped runs with their source left out of the fit."""
    return read_left_out()


def without_degraded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Take runs far slower than the others of their sweep out of the headline, with the reason."""
    errors = [np.nan if row["error"] is None else row["error"] for row in rows]
    sweeps = [(row["source"], row["model"], row["accelerator"]) for row in rows]
    slow = degraded(-np.log1p(np.array(errors, dtype=float)), sweeps)
    change = {"judged": False, "held_out": False, "reason": "degraded (far slower than its sweep)"}
    return [{**row, **change} if flag else row for row, flag in zip(rows, slow, strict=True)]


def split_of(run: Run) -> str:
    """How a run was split, in one word: what reaches furthest across the cluster."""
    for column, word in (("pp", "pipeline"), ("cp", "context"), ("tp", "tensor")):
        if (run.count(column) or 1) > 1:
            return word
    return "data only"


@lru_cache(maxsize=4096)
def _verdict(row: int) -> Verdict:
    """The verdict on a shipped run."""
    return judge(runs()[row])


def errors(rows: list[int]) -> list[float | None]:
    """Errors of the predictions of some shipped runs; a worker keeps what it once computed."""
    return [_verdict(row).error for row in rows]


def bias(found: list[float | None]) -> dict[str, Any]:
    """Median error with its sign, and the middle 80 % of errors."""
    known = [each for each in found if each is not None]
    if not known:
        return {"count": 0, "median": None, "low": None, "high": None}
    low, median, high = np.quantile(np.array(known), (0.1, 0.5, 0.9)).tolist()
    return {"count": len(known), "median": median, "low": low, "high": high}
