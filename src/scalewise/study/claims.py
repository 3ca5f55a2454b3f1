"""Verdicts on published claims: predicted number, published number, reason.

    judged = judge(claim, experiment, rows)
    judged.verdict, judged.ours, judged.theirs, judged.why

Numbers are compared as factors, so that too large and too small weigh the same. A claim holds if
the prediction is within its tolerance. It holds with a difference if the effect has the same
direction and order of magnitude (a factor of `WIDE`). Otherwise it does not hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

from scalewise.explore.causes import find_cause
from scalewise.ranges import tie_width
from scalewise.study.files import Claim, Experiment, Where
from scalewise.study.measures import AXES, METRICS, Axis, Metric, Value
from scalewise.study.rows import Row, metric_of, select, values_of
from scalewise.terms import TERMS

Verdict = Literal[
    "holds", "holds with a difference", "does not hold", "not told apart", "not judged"
]
"""Of a claim; "not told apart" is of measurements only: the repeats vary too much to decide."""

WIDE = 3.0
"""Half an order of magnitude: the limit for "the same order of magnitude"."""

AHEAD = 1e-6
"""Relative lead below which two values count as equal."""

# Metrics that the terms of a step explain.
_SPEED = (
    "tokens_per_second", "tokens_per_second_per_accelerator", "mfu", "hfu", "tokens_per_joule",
    "tflops_per_accelerator", "speedup", "scaling_efficiency", "usd_per_million_tokens",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Judged:
    """A claim and its verdict."""

    claim: Claim
    """The claim."""
    experiment: str
    """Id of the experiment."""
    verdict: Verdict
    """Verdict."""
    ours: str
    """Predicted number, as text."""
    theirs: str
    """Published number, as text."""
    why: str
    """One or two sentences: the composition of the prediction, and the reason of a difference."""
    value: float | None = None
    """Predicted number, SI, if it is one."""


R = TypeVar("R", bound=Row)

_TIE = ": a near-tie, which no model can decide"


class NotJudgedError(Exception):
    """Points of a claim are missing."""


def judge(claim: Claim, experiment: Experiment, rows: Sequence[Row]) -> Judged:
    """Return the verdict on a claim.

    Args:
        claim: The claim.
        experiment: Its experiment.
        rows: The points of that experiment.
    """
    metric = METRICS[claim.metric]
    try:
        if claim.measure in ("peak", "order"):
            return _judge_axis(claim, experiment, rows)
        value, reason = _number(claim, rows)
    except NotJudgedError as error:
        return Judged(
            claim=claim,
            experiment=experiment.id,
            verdict="not judged",
            ours="-",
            theirs=theirs_text(claim, metric),
            why=f"{error}.",
        )
    return Judged(
        claim=claim,
        experiment=experiment.id,
        verdict=compare(claim, value),
        ours=number_text(claim, value, metric),
        theirs=theirs_text(claim, metric),
        why=" ".join(part for part in (reason, claim.why) if part),
        value=value,
    )


def compare(claim: Claim, value: float, *, tie: float | None = None) -> Verdict:
    """Compare a predicted number with a claim.

    Args:
        claim: With a published number, or a bound.
        value: Prediction: a value, a change (-0.24 is 24% less), a ratio or a size.
        tie: Distance from no effect within which the sign is undecided; by default that of
            predictions.
    """
    near_tie = tie_width() if tie is None else tie
    # The effect of a ratio is its distance from one: 1.02 and 0.98 are opposite effects.
    neutral = 1.0 if claim.measure == "ratio" else 0.0
    if isinstance(claim.published, int | float):
        theirs = float(claim.published)
        if (value - neutral) * (theirs - neutral) <= 0.0:
            return "holds" if value == theirs else "does not hold"
        apart = max(value / theirs, theirs / value)
        if apart <= 1.0 + claim.tolerance:
            return "holds"
        effect = (value - neutral) / (theirs - neutral)
        return "holds with a difference" if 1 / WIDE <= effect <= WIDE else "does not hold"
    for bound, side in ((claim.at_least, 1.0), (claim.at_most, -1.0)):
        if bound is None:
            continue
        beyond = side * (value - bound)
        if bound == neutral:
            # The sign of the lead: within a tie it cannot be decided.
            if abs(value - bound) <= near_tie:
                return "holds with a difference"
            return "holds" if beyond > 0.0 else "does not hold"
        if beyond >= 0.0:
            return "holds"
        # A bound that is missed by little, relative to its own size, holds with a difference.
        near = -beyond <= claim.tolerance * abs(bound)
        return "holds with a difference" if near else "does not hold"
    return "not judged"


def _number(claim: Claim, rows: Sequence[Row]) -> tuple[float, str]:
    """Return the predicted number and its composition."""
    if claim.measure == "crossover":
        return _crossover(claim, rows)
    second = one_row(claim, rows, claim.second)
    after = _value(second, claim.metric)
    if claim.measure == "value":
        return after, _makeup(second, claim.metric)
    first = one_row(claim, rows, claim.first)
    before = _value(first, claim.metric)
    if before == 0.0:
        raise NotJudgedError(f"{claim.metric} is zero at {_words(claim.first)}")
    ratio = after / before
    reason = _cause(first, second) if claim.metric in _SPEED else ""
    return (ratio if claim.measure == "ratio" else ratio - 1.0), reason


def one_row(claim: Claim, rows: Sequence[R], where: Where) -> R:
    """Return the one point of a selection."""
    found = select(rows, {**claim.where, **where})
    if len(found) != 1:
        number = "no point" if not found else f"{len(found)} points"
        raise NotJudgedError(f"the claim is about {number} of this run, not about one")
    return found[0]


def _value(row: Row, name: str) -> float:
    value = metric_of(row, name)
    if value is None:
        raise NotJudgedError(f"the point it is about has no {name}: {row.infeasible or 'unknown'}")
    return value


def _crossover(claim: Claim, rows: Sequence[Row]) -> tuple[float, str]:
    """Return the first value of the axis at which the second selection leads, and the reason."""
    behind, ahead = (
        {
            row.axes[claim.axis]: row
            for row in select(rows, {**claim.where, **where})
            if metric_of(row, claim.metric)
        }
        for where in (claim.first, claim.second)
    )
    shared = [x for x in values_of(rows, claim.axis) if x in behind and x in ahead]
    if not shared:
        raise NotJudgedError("the two curves share no point")
    for x in shared:
        one, other = _value(behind[x], claim.metric), _value(ahead[x], claim.metric)
        if other > one * (1.0 + AHEAD):
            return float(x), _cause(behind[x], ahead[x])
    raise NotJudgedError(f"it never gets ahead, up to {shared[-1]:,} {claim.axis}")


def _judge_axis(claim: Claim, experiment: Experiment, rows: Sequence[Row]) -> Judged:
    """Return the value with the largest metric, or the order of values."""
    axis, metric = AXES[claim.axis], METRICS[claim.metric]
    best: dict[Value, float] = {}
    for row in select(rows, {**claim.where, **claim.second}):
        value = metric_of(row, claim.metric)
        if value is not None and claim.axis in row.axes:
            place = row.axes[claim.axis]
            best[place] = max(value, best.get(place, value))
    if len(best) < 2:
        raise NotJudgedError(f"fewer than two values of {axis.label} can run")
    ranked = sorted(best, key=lambda place: -best[place])
    wanted = wanted_values(claim)
    if claim.measure == "peak":
        verdict, ours = peak_verdict(ranked[0], values_of(rows, claim.axis), wanted), ranked[:1]
    else:
        verdict, ours = order_verdict(ranked, wanted), ranked
    listed = ", ".join(f"{axis.show(each)}: {metric.show(best[each])}" for each in sorted(
        best, key=values_of(rows, claim.axis).index))  # fmt: skip
    return Judged(
        claim=claim,
        experiment=experiment.id,
        verdict=verdict,
        ours=values_text(axis, ours, claim.measure),
        theirs=values_text(axis, wanted, claim.measure),
        why=" ".join(part for part in (f"{metric.axis}: {listed}.", claim.why) if part),
        value=float(ranked[0]) if not isinstance(ranked[0], str) else None,
    )


def wanted_values(claim: Claim) -> Sequence[Value]:
    """Return the published values of a peak, or of an order."""
    return claim.published if isinstance(claim.published, list) else [str(claim.published)]


def peak_verdict(found: Value, values: Sequence[Value], wanted: Sequence[Value]) -> Verdict:
    """Return the verdict on a peak at another value: inside the range, it is still a maximum."""
    if str(found) in map(str, wanted):
        return "holds"
    inside = len(values) > 2 and found not in (values[0], values[-1])
    return "holds with a difference" if inside else "does not hold"


def order_verdict(ranked: Sequence[Value], wanted: Sequence[Value]) -> Verdict:
    """Compare two orders: equal, equal except for two neighbors, or different.

    Args:
        ranked: Predicted, the largest first.
        wanted: Published.
    """
    names = [str(each) for each in ranked if str(each) in set(map(str, wanted))]
    theirs = [str(each) for each in wanted if str(each) in set(names)]
    if len(names) < 2:
        return "not judged"
    swaps = sum(
        names.index(theirs[i]) > names.index(theirs[j])
        for i in range(len(theirs))
        for j in range(i + 1, len(theirs))
    )
    if swaps == 0:
        return "holds"
    return "holds with a difference" if swaps == 1 and len(names) > 2 else "does not hold"


def _cause(first: Row, second: Row) -> str:
    """Return the terms in which the slower of two steps loses."""
    same = ("model", "cluster", "seq_len", "precision")
    if any(first.axes.get(name) != second.axes.get(name) for name in same):
        return ""
    if first.point is None or second.point is None:
        return ""
    fast, slow = first.point, second.point
    if fast.tokens_per_second_per_accelerator < slow.tokens_per_second_per_accelerator:
        fast, slow = slow, fast
    cause = find_cause(fast, slow)
    if cause is None:
        return ""
    return (
        f"{slow.strategy} on {slow.accelerators:,} loses {100 * cause.loss:.0f}% against "
        f"{fast.strategy} on {fast.accelerators:,}, {100 * cause.share:.0f}% of it to "
        f"{cause.name}{_TIE if cause.loss <= tie_width() else ''}."
    )


def _makeup(row: Row, metric: str) -> str:
    """Return the composition of a step, or of the loss of its last doubling."""
    point = row.point
    if point is None:
        return ""
    if metric.startswith("marginal"):
        if point.cause is None or point.previous is None:
            return ""
        return (
            f"From {point.previous:,} to {point.accelerators:,}, {100 * point.cause.share:.0f}% "
            f"of what is lost goes to {point.cause.name}."
        )
    if metric not in _SPEED:
        return ""
    largest = sorted(point.terms, key=lambda name: -point.terms[name])[:3]
    parts = [
        f"{100 * point.terms[name] / point.step_seconds:.0f}% {TERMS[name].label}"
        for name in largest
    ]
    return f"The step of {point.strategy} is {', '.join(parts)}."


def number_text(claim: Claim, value: float, metric: Metric) -> str:
    """Return the predicted number with the unit of its metric."""
    if claim.measure == "change":
        return f"{100 * value:+.1f}%"
    if claim.measure == "ratio":
        return f"{value:.2f} x"
    if claim.measure == "crossover":
        return f"{value:,.0f} {AXES[claim.axis].label}"
    unit = "" if metric.is_share else metric.words[1] or metric.words[0]
    return f"{metric.show(value)} {unit}".strip()


def theirs_text(claim: Claim, metric: Metric) -> str:
    """Return the published number or bound, with its unit."""
    if claim.measure in ("peak", "order"):
        return values_text(AXES[claim.axis], wanted_values(claim), claim.measure)
    if isinstance(claim.published, int | float):
        return number_text(claim, float(claim.published), metric)
    if claim.at_least is not None:
        return "at least " + number_text(claim, claim.at_least, metric)
    if claim.at_most is not None:
        return "at most " + number_text(claim, claim.at_most, metric)
    return "-"


def values_text(axis: Axis, values: Sequence[Value], measure: str) -> str:
    """Return values of an axis: an order, or alternatives."""
    if measure == "order":
        return " > ".join(axis.show(each) for each in values)
    name = axis.label if not isinstance(values[0], str) else ""
    return f"{name} {' or '.join(axis.show(each) for each in values)}".strip()


def _words(where: Where) -> str:
    return ", ".join(f"{name} {value}" for name, value in where.items())
