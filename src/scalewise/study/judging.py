"""Verdicts on claims from measurements, which respect the run-to-run variation.

    judged = judge_measured(claim, experiment, rows, noise)
    judged.verdict        # "holds", ..., "not told apart"

The rules are those of predictions (`study.claims`), applied at both ends of the 95% interval of the
measured number. If the claim fails at one end and not at the other, repeats do not decide it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from scalewise.study.claims import (
    Judged,
    NotJudgedError,
    Verdict,
    compare,
    number_text,
    one_row,
    peak_verdict,
    theirs_text,
    values_text,
    wanted_values,
)
from scalewise.study.files import Claim, Experiment, Study
from scalewise.study.measured import MeasuredRow, Measurements, measured_rows
from scalewise.study.measures import AXES, METRICS, Value
from scalewise.study.noise import Noise
from scalewise.study.rows import select, values_of

UNDECIDED: Verdict = "not told apart"


def noises(rows: Sequence[MeasuredRow]) -> dict[str, Noise]:
    """Return the variation of every metric, pooled over the points of a study."""
    names = dict.fromkeys(name for row in rows for name in row.samples)
    return {name: Noise.of(_repeats(rows, name)) for name in names}


def _repeats(rows: Sequence[MeasuredRow], name: str) -> Iterator[tuple[float, ...]]:
    """Yield the repeats of a metric by point; points relative to themselves have no variation."""
    for row in rows:
        if name in row.samples and set(row.samples[name]) != {1.0}:
            yield row.samples[name]


def judge_measured(
    claim: Claim, experiment: Experiment, rows: Sequence[MeasuredRow], noise: Mapping[str, Noise]
) -> Judged:
    """Return the verdict of measurements on a claim.

    Args:
        claim: The claim.
        experiment: Its experiment.
        rows: The measured points of that experiment.
        noise: Run-to-run variation by metric, see `noises`.
    """
    metric = METRICS[claim.metric]
    theirs = theirs_text(claim, metric)
    try:
        mine = noise.get(claim.metric, Noise(deviation=0.0, freedom=0))
        if claim.measure in ("peak", "order"):
            verdict, ours, value, why = _axis(claim, rows, mine)
        elif claim.measure == "crossover":
            verdict, ours, value, why = _crossover(claim, rows, mine)
        else:
            verdict, ours, value, why = _number(claim, rows, mine)
    except NotJudgedError as error:
        verdict, ours, value, why = "not judged", "-", None, f"{error}."
    return Judged(
        claim=claim, experiment=experiment.id, verdict=verdict, ours=ours, theirs=theirs, why=why,
        value=value,
    )  # fmt: skip


Found = tuple[Verdict, str, float | None, str]
"""Verdict, measured number as text and in SI, and reason."""


def _number(claim: Claim, rows: Sequence[MeasuredRow], noise: Noise) -> Found:
    """Judge a value, a change or a ratio."""
    second = one_row(claim, rows, claim.second)
    parts = [second]
    value = _median(second, claim.metric)
    if claim.measure != "value":
        first = one_row(claim, rows, claim.first)
        before = _median(first, claim.metric)
        if before == 0.0:
            raise NotJudgedError(f"{claim.metric} is zero at the first point")
        parts.append(first)
        value /= before
    low, high = _interval(value, parts, claim.metric, noise)
    shift = 1.0 if claim.measure == "change" else 0.0
    verdict = _between(*(compare(claim, x - shift, tie=0.0) for x in (low, value, high)))
    text = number_text(claim, value - shift, METRICS[claim.metric])
    if not noise.known:
        verdict = UNDECIDED if verdict != "not judged" else verdict
        return verdict, text, value - shift, "No point has two repeats: their spread is unknown."
    ends = " to ".join(number_text(claim, x - shift, METRICS[claim.metric]) for x in (low, high))
    return verdict, text, value - shift, f"95% interval of the repeats: {ends}.{_load(parts)}"


def _between(low: Verdict, middle: Verdict, high: Verdict) -> Verdict:
    """Return the verdict on the middle, if neither end contradicts it."""
    failed = [each == "does not hold" for each in (low, middle, high)]
    return middle if all(failed) or not any(failed) else UNDECIDED


def _crossover(claim: Claim, rows: Sequence[MeasuredRow], noise: Noise) -> Found:
    """Judge the first value of an axis at which the second selection leads."""
    behind, ahead = (
        {row.axes[claim.axis]: row for row in select(rows, {**claim.where, **where})}
        for where in (claim.first, claim.second)
    )
    shared = [x for x in values_of(rows, claim.axis) if x in behind and x in ahead]
    if not shared:
        raise NotJudgedError("the two curves share no measured point")
    tied: list[Value] = []
    axis = AXES[claim.axis]
    for x in shared:
        lead = _lead(ahead[x], behind[x], claim.metric, noise)
        if lead == 0:
            tied.append(x)
        elif lead > 0:
            verdict = compare(claim, float(x), tie=0.0)
            if tied and compare(claim, float(tied[0]), tie=0.0) != verdict:
                verdict = UNDECIDED
            return verdict, f"{axis.show(x)} {axis.label}", float(x), _ties(tied, claim)
    if tied:
        return UNDECIDED, "-", None, _ties(tied, claim)
    raise NotJudgedError(f"it never gets ahead, up to {axis.show(shared[-1])} {axis.label}")


def _ties(tied: Sequence[Value], claim: Claim) -> str:
    listed = ", ".join(AXES[claim.axis].show(each) for each in tied)
    return f"Within the repeats' interval at {listed} {AXES[claim.axis].label}." if tied else ""


def _axis(claim: Claim, rows: Sequence[MeasuredRow], noise: Noise) -> Found:
    """Judge the value with the largest metric, or the order of values."""
    axis, metric = AXES[claim.axis], METRICS[claim.metric]
    best: dict[Value, MeasuredRow] = {}
    for row in select(rows, {**claim.where, **claim.second}):
        if claim.metric in row.samples and claim.axis in row.axes:
            at = row.axes[claim.axis]
            if at not in best or _median(row, claim.metric) > _median(best[at], claim.metric):
                best[at] = row
    if len(best) < 2:
        raise NotJudgedError(f"fewer than two values of {axis.label} are measured")
    ranked = sorted(best, key=lambda place: -_median(best[place], claim.metric))
    wanted = [str(each) for each in wanted_values(claim)]
    listed = ", ".join(
        f"{axis.show(each)}: {metric.show(_median(best[each], claim.metric))}" for each in ranked
    )
    if claim.measure == "order":
        known = [str(each) for each in ranked]
        order = [by_name for name in wanted for by_name in best if str(by_name) == name]
        if len(order) < 2:
            raise NotJudgedError("fewer than two of its values are measured")
        leads = [_lead(best[a], best[b], claim.metric, noise) for a, b in pairwise(order)]
        verdict: Verdict = "holds"
        if any(lead < 0 for lead in leads):
            swaps = sum(lead < 0 for lead in leads)
            verdict = (
                "holds with a difference" if swaps == 1 and len(order) > 2 else "does not hold"
            )
        elif any(lead == 0 for lead in leads):
            verdict = UNDECIDED
        shown = [each for each in ranked if str(each) in wanted and str(each) in known]
        return verdict, values_text(axis, shown, "order"), None, f"{metric.axis}: {listed}."
    top = ranked[0]
    others = [each for each in ranked if (str(each) in wanted) != (str(top) in wanted)]
    verdict = peak_verdict(top, values_of(rows, claim.axis), wanted)
    if others and _lead(best[top], best[others[0]], claim.metric, noise) == 0:
        verdict = UNDECIDED
    value = None if isinstance(top, str) else float(top)
    return verdict, values_text(axis, [top], "peak"), value, f"{metric.axis}: {listed}."


def _lead(one: MeasuredRow, other: MeasuredRow, metric: str, noise: Noise) -> int:
    """Return 1 if one point is ahead of another beyond the noise, -1 if behind, else 0."""
    base = _median(other, metric)
    if base == 0.0 or not noise.known:
        return 0
    low, high = _interval(_median(one, metric) / base, [one, other], metric, noise)
    return 1 if low > 1.0 else -1 if high < 1.0 else 0


def _interval(
    value: float, parts: Sequence[MeasuredRow], metric: str, noise: Noise
) -> tuple[float, float]:
    if not noise.known:
        return value, value
    return noise.interval(
        value, [row.samples[metric] for row in parts], [row.disturbed for row in parts]
    )


def _median(row: MeasuredRow, metric: str) -> float:
    value = row.metrics.get(metric)
    if value is None or metric not in row.samples:
        raise NotJudgedError(f"{metric} was not measured")
    return value


def _load(parts: Sequence[MeasuredRow]) -> str:
    return " Widened: other load was on the machine." if any(row.disturbed for row in parts) else ""


@dataclass(frozen=True, kw_only=True)
class MeasuredAnswer:
    """The measured points of a study, and the verdicts on its claims."""

    found: Measurements
    """The points."""
    verdicts: list[Judged]
    """One per claim, in order."""
    noise: dict[str, Noise]
    """Run-to-run variation by metric."""


def measured_answer(study: Study, *paths: str) -> MeasuredAnswer:
    """Judge every claim of a study on records.

    Args:
        study: The study.
        *paths: Record files and folders; missing files are left out.

    Raises:
        InputError: If there is no record.
    """
    found = measured_rows(study, *paths)
    noise = noises(found.rows)
    return MeasuredAnswer(
        found=found,
        noise=noise,
        verdicts=[
            judge_measured(claim, experiment, found.of(experiment), noise)
            for experiment in study.experiments
            for claim in experiment.claims
        ],
    )
