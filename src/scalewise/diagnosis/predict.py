"""Predictions of all runs under all hypotheses: one case, one step, one table.

    table = predict([e, other], expected_units=("tok/s", "tok/s"))
    table.log_rate[run, point]

A point is a cause with one value of its parameter. The first one is the healthy run; the last ones
are a cause that is not on the list. Nothing is estimated twice: columns of one case are exchanged,
all runs are joined, and the step is composed once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.diagnosis.causes import CAUSES, COUNTS_FROM, HEALTHY, OTHER, Cause
from scalewise.diagnosis.changes import Rows, node_rate
from scalewise.diagnosis.parts import PARTS, PLACE, PROFILE, seconds_by_part
from scalewise.numeric import Array, Index
from scalewise.step.case import Case
from scalewise.step.compose import compose
from scalewise.step.terms import step_terms

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

LOSSES = np.geomspace(1.05, 30.0, 20)
"""Common factors that a cause which is not on the list costs."""

OTHER_SCATTER = 0.35
"""How runs scatter about that factor, standard deviation (log)."""

HEALTHY_POINT, OTHER_KEY, HEALTHY_KEY = 0, "other", "healthy"


@dataclass(frozen=True, kw_only=True)
class Table:
    """What every hypothesis predicts of every run."""

    keys: tuple[str, ...]
    """Healthy, causes, not on the list; `cause` counts in them."""
    cause: Index
    """Place in `keys` of each point."""
    value: Array
    """Its parameter; the factor for a cause that is not on the list."""
    variant: Array
    log_prior: Array
    """Of each point; -inf where it costs nothing in any run."""
    log_rate: Array
    """Predicted tokens/s per GPU (log), a row per run."""
    parts: Array
    """Fractions of the step by part (`parts.PARTS`); axes run, point, part."""
    scatter: Array
    """Additional noise of each run (log), by point."""
    log_node_rate: Array
    """What nccl-tests between two nodes show, bytes/s per node (log)."""
    log_matmul: Array
    """Rate of the slowest GPU alone over the usual (log)."""

    def points(self, key: str) -> Index:
        """Return the places of the points of a cause."""
        return np.flatnonzero(self.cause == self.keys.index(key))

    def of_causes(self, weights: Array) -> Array:
        """Add up weights of points along the last axis, by cause."""
        total = np.zeros((*weights.shape[:-1], len(self.keys)))
        for place in range(len(self.keys)):
            total[..., place] = weights[..., self.cause == place].sum(axis=-1)
        return total


def predict(
    runs: Sequence[Estimate],
    *,
    by_time: Sequence[bool] = (),
    by_flops: Sequence[bool] = (),
    judged: int | None = None,
    causes: Mapping[str, Cause] = CAUSES,
) -> Table:
    """Return what every hypothesis predicts of every run.

    Args:
        runs: Estimates; the first is the one that is asked about.
        by_time: Whether a run was measured as time per step: its tokens are then those stated.
        by_flops: Whether a run was measured as an MFU, which can be counted in several ways.
        judged: Runs that were measured, the first ones: a change that costs less than 5% in all of
            them is no cause. By default all.
        causes: The list.
    """
    first = max(runs, key=lambda e: e.cluster.accelerators)
    grids = {key: cause.grid(first) for key, cause in causes.items()}
    slices, start = {}, 1
    for key, each in grids.items():
        slices[key] = slice(start, start + len(each.values))
        start += len(each.values)
    largest = max(e.cluster.accelerators for e in runs)
    tables = []
    for e in runs:
        columns = _repeated(e.many.case, start)
        for key, place in slices.items():
            change = causes[key].columns
            if change is None or place.start == place.stop:
                continue
            given = grids[key]
            # A slow node that is not among those of a smaller run.
            small = e.cluster.accelerators < largest
            variant = given.variant if small or key != "slow_node" else 0.0 * given.variant
            for name, values in change(e, given.values, variant).items():
                columns[name][place] = values
        tables.append(columns)
    case = tables[0] if len(tables) == 1 else {
        name: np.concatenate([table[name] for table in tables]) for name in tables[0]
    }  # fmt: skip
    everything = Case.of_columns(case)
    step = compose(everything)
    terms, seconds = step_terms(everything, step)
    size = start * len(runs)
    laid = {name: np.broadcast_to(part, (size,)) for name, part in terms.parts().items()}
    once = np.broadcast_to(step.once.exposed, (size,))
    rates, parts = [], []
    for row, e in enumerate(runs):
        here = slice(row * start, (row + 1) * start)
        skipped = {"padding", "fewer"} if row < len(by_time) and by_time[row] else set()
        if not (row < len(by_flops) and by_flops[row]):
            skipped |= {key for key, cause in causes.items() if cause.flops}
        rows = _rows(
            {name: part[here] for name, part in laid.items()}, np.asarray(seconds)[here],
            once[here], float(e.num_microbatches),
        )  # fmt: skip
        _adjust(rows, slices, grids, causes, skipped)
        tokens = e.workload.tokens_per_step / e.cluster.accelerators
        rates.append(np.log(tokens * rows.tokens / rows.seconds))
        parts.append(rows.parts / rows.seconds[:, None])
    return _table(runs, causes, grids, np.array(rates), np.array(parts), judged or len(runs))


def _repeated(case: Case, rows: int) -> dict[str, Any]:
    """Columns of one step, repeated."""
    return {
        name: np.repeat(np.reshape(column, (-1,))[:1], rows)
        for name, column in case.columns().items()
    }


def _rows(terms: Mapping[str, Array], seconds: Array, once: Array, micro: float) -> Rows:
    rows = Rows(
        seconds=seconds, parts=seconds_by_part(terms), tokens=np.ones_like(seconds), terms=terms,
        micro=micro, once=once,
    )  # fmt: skip
    rows.healthy = rows.of(slice(0, 1))
    return rows


def _adjust(
    rows: Rows,
    slices: Mapping[str, slice],
    grids: Mapping[str, Any],
    causes: Mapping[str, Cause],
    skipped: Collection[str],
) -> None:
    """Apply the arithmetic of causes to their rows.

    Skipped are causes that change tokens, for a step time: its tokens are those that are stated,
    and fewer of them do not slow it down.
    """
    names = ("seconds", "parts", "tokens")
    changed = {name: np.array(getattr(rows, name)) for name in names}
    for key, here in slices.items():
        change = causes[key].terms
        if change is None or here.start == here.stop or key in skipped:
            continue
        some = rows.of(here)
        change(some, grids[key].values)
        for name in names:
            changed[name][here] = getattr(some, name)
    for name in names:
        setattr(rows, name, changed[name])


def _table(
    runs: Sequence[Estimate],
    causes: Mapping[str, Cause],
    grids: Mapping[str, Any],
    rates: Array,
    parts: Array,
    judged: int,
) -> Table:
    """Add the hypothesis that is not on the list, and all priors."""
    keys = (HEALTHY_KEY, *causes, OTHER_KEY)
    kinds = kinds_of(runs[0])
    lost = np.repeat(np.log(LOSSES), len(kinds))
    kind = np.tile([PLACE[name] for name in kinds], len(LOSSES))
    healthy = rates[:, :1]
    log_rate = np.concatenate([rates, healthy - lost], axis=1)
    # A factor of 2 adds as much time as there was; it looks like one of the kinds.
    more = np.exp(lost)[:, None] - 1.0
    other = (parts[:, :1] + more * np.eye(len(PARTS))[kind]) / (1.0 + more)
    counts = [1, *(len(grids[key].values) for key in causes), len(lost)]
    cause = np.repeat(np.arange(len(keys)), counts)
    values = [np.ones(1), *(grids[key].values for key in causes), np.exp(lost)]
    variants = [np.zeros(1), *(grids[key].variant for key in causes), kind.astype(float)]
    return Table(
        keys=keys,
        cause=cause,
        value=np.concatenate(values),
        variant=np.concatenate(variants),
        log_prior=_log_prior(keys, causes, grids, cause, log_rate[:judged], tuple(kinds.values())),
        log_rate=log_rate,
        parts=np.concatenate([parts, other], axis=1),
        scatter=np.where(cause == len(keys) - 1, OTHER_SCATTER, 0.0),
        log_node_rate=_node_rates(runs, keys, cause, np.concatenate(values)),
        log_matmul=_matmuls(keys, cause, np.concatenate(values), np.concatenate(variants)),
    )


def kinds_of(e: Estimate) -> dict[str, float]:
    """Return what the time of a cause that is not on the list looks like in a profile.

    Compute, exposed communication or idle, a third each; within them the parts that a run has.
    """
    split = e.strategy
    groups = {"tp": split.tp, "cp": split.cp, "ep": split.ep, "dp": split.data_parallel,
              "pp": split.pp}  # fmt: skip
    exposed = [name for name, degree in groups.items() if degree > 1] or ["idle"]
    found: dict[str, float] = {}
    for names in (PROFILE["compute"], exposed, PROFILE["idle"]):
        for name in names:
            found[name] = found.get(name, 0.0) + 1.0 / (3.0 * len(names))
    return found


def _log_prior(
    keys: Sequence[str],
    causes: Mapping[str, Cause],
    grids: Mapping[str, Any],
    cause: Index,
    log_rate: Array,
    kinds: Sequence[float],
) -> Array:
    """Prior of each point; what costs less than 5% in every run is no cause."""
    prior = np.zeros(len(cause))
    for place, key in enumerate(keys[1:-1], start=1):
        prior[cause == place] = causes[key].prior * grids[key].weights
    costs = np.max(log_rate[:, :1] - log_rate, axis=0) >= np.log1p(COUNTS_FROM)
    prior = np.where(costs, prior, 0.0)
    total = prior.sum()
    prior = prior * ((1.0 - HEALTHY - OTHER) / total if total else 0.0)
    prior[HEALTHY_POINT] = HEALTHY
    other = cause == len(keys) - 1
    prior[other] = OTHER * np.tile(kinds, len(LOSSES)) / len(LOSSES)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(prior))


def _node_rates(
    runs: Sequence[Estimate], keys: Sequence[str], cause: Index, values: Array
) -> Array:
    """What nccl-tests between two nodes show, by point."""
    crossing = [e for e in runs if e.cluster.nodes > 1]
    usual = node_rate(crossing[0]) if crossing else 1.0
    rates = np.full(len(cause), usual)
    if "tcp" in keys:
        here = cause == keys.index("tcp")
        rates[here] = np.minimum(values[here], usual)
    if "nics" in keys:
        here = cause == keys.index("nics")
        rates[here] = usual * values[here]
    return np.asarray(np.log(rates))


def _matmuls(keys: Sequence[str], cause: Index, values: Array, variants: Array) -> Array:
    """Rate of the slowest GPU alone over the usual, by point."""
    del variants
    rates = np.ones(len(cause))
    for key, slower in (("throttled", 1.0), ("slow_node", -1.0)):
        if key in keys:
            here = cause == keys.index(key)
            rates[here] = values[here] ** slower
    return np.asarray(np.log(rates))
