"""Diagnose measured runs: verdict, causes with odds and values, next measurement.

    found = diagnose(question, parse_measured(["1,786 tok/s"]))
    found.verdict, found.causes[0].label, found.causes[0].odds

log(measured) = log(predicted under a cause) + level + noise. The level is shared by all runs of one
software, the noise is each run's own. Odds follow from Bayes' rule over `causes.CAUSES`, a healthy
run, and a cause that is not on the list.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalewise.diagnosis.causes import CAUSES, GROUPS, Cause
from scalewise.diagnosis.evidence import Evidence, log_evidence
from scalewise.diagnosis.faster import faster, slower
from scalewise.diagnosis.invert import invert
from scalewise.diagnosis.nearest import nearest_runs, own_runs
from scalewise.diagnosis.next_measurement import (
    Candidate,
    State,
    candidates,
    expected_bits,
)
from scalewise.diagnosis.outcomes import outcomes
from scalewise.diagnosis.posterior import entropy, log_likelihood, normalized
from scalewise.diagnosis.predict import HEALTHY_KEY, OTHER_KEY, Table, predict
from scalewise.diagnosis.result import (
    Diagnosis,
    Finding,
    Group,
    Judged,
    NextMeasurement,
    Verdict,
)
from scalewise.diagnosis.runs import Run, errors_of, measured_runs
from scalewise.diagnosis.stalls import stall_costs
from scalewise.diagnosis.traces import has_all_nodes, lay_beside, with_waits
from scalewise.physics.memory import normal_cdf
from scalewise.ranges import Z80

if TYPE_CHECKING:
    from scalewise.ask.question import Question
    from scalewise.ask.resolve import Asked, Objects
    from scalewise.diagnosis.logs import LogSummary
    from scalewise.diagnosis.measured import Measurement
    from scalewise.model import Convention
    from scalewise.numeric import Array
    from scalewise.step.result import Estimate
    from scalewise.trace.summary import TraceSummary

SHOWN = 0.01
"""Odds from which a cause is not ruled out."""

ENOUGH = 0.85
"""Fraction of the most information from which the cheapest measurement is preferred."""


@dataclass(frozen=True, kw_only=True)
class Posterior:
    """Odds of all causes, and what they follow from."""

    state: State
    causes: Array
    """Odds by place in `Table.keys`."""
    runs: int
    """Measured runs."""

    def odds(self, key: str) -> float:
        """Return the odds of one cause."""
        return float(self.causes[self.state.table.keys.index(key)])


def infer(
    runs: Sequence[Run],
    evidence: Evidence,
    further: Sequence[Estimate] = (),
    *,
    apart: bool = False,
    causes: Mapping[str, Cause] = CAUSES,
    errors: tuple[float, float] | None = None,
) -> Posterior:
    """Return the odds of all causes.

    Args:
        runs: Measured runs, the one that is asked about first.
        evidence: What is known besides.
        further: Runs that could be measured: they have rows in the table, and change nothing.
        apart: Whether every run has software of its own.
        causes: The list.
        errors: Deviations of level and noise (log); by default those of the prediction intervals.
    """
    estimates = [run.estimate for run in runs] + list(further)
    table = predict(
        estimates, by_time=[run.by_time for run in runs], by_flops=[run.by_flops for run in runs],
        judged=len(runs), causes=causes,
    )  # fmt: skip
    known = errors_of(estimates[: len(runs)], apart=apart)
    own = [run.measurement.noise for run in runs]
    more = errors_of(estimates, apart=apart) if further else known
    level, noise, center = [*known.level, *more.level[len(runs) :]], more.noise.copy(), more.center
    noise[: len(runs)] = np.hypot(known.noise, own)
    if errors is not None:
        level = [errors[0]] * len(estimates)
        noise, center = np.full(len(estimates), errors[1]), np.zeros(len(estimates))
    table = _centered(table, center)
    observed = np.log([run.rate for run in runs])
    logs = table.log_prior + log_evidence(table, evidence)
    state = State(
        table=table, logs=logs, weights=np.zeros(0), observed=observed, center=center, level=level,
        noise=noise, groups=more.groups,
    )  # fmt: skip
    residuals = observed[:, None] - table.log_rate[: len(runs)]
    count = len(runs)
    likelihood = log_likelihood(
        residuals, level[:count], state.noise_of(range(count)), more.groups[:count]
    )
    weights = normalized(logs + likelihood)
    state = State(**{**vars(state), "weights": weights})
    return Posterior(state=state, causes=table.of_causes(weights), runs=count)


def _centered(table: Table, center: Array) -> Table:
    """Move predictions to the middle of their intervals."""
    return Table(**{**vars(table), "log_rate": table.log_rate + center[:, None]})


def diagnose(
    question: Question,
    measurements: Sequence[Measurement],
    *,
    evidence: Evidence | None = None,
    convention: Convention = "causal",
    objects: Objects | None = None,
    apart: bool = False,
) -> Diagnosis:
    """Return what explains measured runs.

    Args:
        question: What was run.
        measurements: What was measured.
        evidence: A profile, or nccl-tests.
        convention: FLOP convention of measured MFU and TFLOP/s.
        objects: What is at hand instead of a name.
        apart: Whether every run has software of its own, so that they share no level.

    Raises:
        InputError: If a word is not understood, or a run cannot be.
    """
    runs, asked = measured_runs(question, measurements, convention=convention, objects=objects)
    return diagnose_runs(runs, asked, evidence=evidence, apart=apart)


def diagnose_runs(
    runs: Sequence[Run],
    asked: Asked,
    *,
    evidence: Evidence | None = None,
    logs: Sequence[LogSummary] = (),
    notes: Sequence[str] = (),
    apart: bool = False,
    trace: TraceSummary | None = None,
) -> Diagnosis:
    """Return what explains runs that have their estimates.

    Args:
        runs: Measured runs, the one that is asked about first.
        asked: The question of that run.
        evidence: A profile, or nccl-tests.
        logs: What logs say besides the measured numbers.
        notes: What else a reader should know.
        apart: Whether every run has software of its own, so that they share no level.
        trace: Trace of the first run.
    """
    known = evidence or Evidence()
    e = runs[0].estimate
    own = next((log for log in logs if log.key == runs[0].measurement.key), None)
    gpus = e.cluster.accelerators
    seconds = e.workload.tokens_per_step / (runs[0].rate * gpus)
    if own is not None:
        known = msgspec.structs.replace(known, steady=True)
    beside = None
    if trace is not None:
        beside = lay_beside(e, trace, seconds)
        profile = with_waits(beside.profile, beside, whole=has_all_nodes(e, trace))
        known = msgspec.structs.replace(known, profile=profile)
    listed = candidates(
        e, [run.estimate for run in runs],
        profiled=known.profile is not None, node_rate=known.node_rate is not None,
    )  # fmt: skip
    further = [each.estimate for each in listed if each.estimate is not None]
    found = infer(runs, known, further, apart=apart)
    judged = tuple(_judged(run) for run in runs)
    verdict = _verdict(judged, found)
    following: tuple[NextMeasurement, ...] = ()
    if verdict == "slow":
        following = _following(found, listed, e)
    causes = _findings(found, runs) if verdict == "slow" else ()
    return Diagnosis(
        estimate=e,
        runs=judged,
        verdict=verdict,
        healthy=found.odds(HEALTHY_KEY),
        other=found.odds(OTHER_KEY),
        causes=causes,
        groups=_groups(causes),
        ruled_out=_ruled_out(found) if verdict == "slow" else (),
        entropy=float(entropy(found.causes)),
        following=following,
        comparable=(*own_runs(e), *nearest_runs(e)),
        faster=faster(runs[0]) if verdict == "fast" else (),
        trace=beside,
        notes=(
            *notes,
            *asked.notes,
            *_unstated(asked),
            *_notes(runs),
            *(beside.notes if beside else ()),
        ),
        changes=asked.changes,
        defaults=asked.defaults,
        logs=tuple(logs),
        stalls=() if own is None else stall_costs(own, seconds),
    )


def _judged(run: Run) -> Judged:
    """A measured run in the prediction interval."""
    e = run.estimate
    low, high = e.interval
    deviation = np.log(high / low) / (2.0 * Z80)
    away = (np.log(run.rate) - 0.5 * np.log(low * high)) / deviation
    return Judged(
        label=f"{e.cluster.accelerators:,} GPUs, {e.strategy}",
        text=run.measurement.text,
        gpus=e.cluster.accelerators,
        strategy=str(e.strategy),
        stack=e.stack.name,
        measured=run.rate,
        expected=e.tokens_per_second_per_accelerator,
        low=low,
        high=high,
        percentile=float(normal_cdf(away)),
    )


def _verdict(judged: Sequence[Judged], found: Posterior) -> Verdict:
    """Slow where a cause is more likely than none; fast beyond the range of every run."""
    if all(run.measured > run.high for run in judged):
        return "fast"
    best = int(np.argmax(found.causes))
    if found.state.table.keys[best] == HEALTHY_KEY:
        return "normal"
    single = len(judged) == 1 and judged[0].measured >= judged[0].low
    # One number within its range: level and cause cannot be separated.
    plain = np.array_equal(found.state.logs, found.state.table.log_prior)
    return "normal" if single and plain else "slow"


def _findings(found: Posterior, runs: Sequence[Run]) -> tuple[Finding, ...]:
    """Causes that are not ruled out, most likely first."""
    e = runs[0].estimate
    findings = []
    for place, key in enumerate(found.state.table.keys):
        odds = float(found.causes[place])
        if key not in CAUSES or odds < SHOWN:
            continue
        cause, value = CAUSES[key], invert(found.state, key, found.runs)
        text = ""
        if cause.words is not None:
            text = cause.words(value.value, value.variant)
            if value.high > 1.02 * value.low:
                ends = [cause.words(end, value.variant) for end in (value.low, value.high)]
                text = f"{text} ({_range(*ends)})"
        parametric, check = cause.words is not None, cause.check
        if cause.shows is not None:
            check = f"{check}; {cause.shows(e, value.value, value.variant)}"
        findings.append(
            Finding(
                key=key,
                label=cause.label,
                group=cause.group,
                odds=odds,
                value=value.value if parametric else None,
                low=value.low if parametric else None,
                high=value.high if parametric else None,
                text=text,
                healthy=cause.healthy(e) if cause.healthy is not None else "",
                misfit=value.misfit,
                mended=value.mended,
                check=check,
                mend=cause.mend,
            )
        )
    return tuple(sorted(findings, key=lambda each: -each.odds))


def _range(low: str, high: str) -> str:
    """Join two ends, without what they have in common at the end: "8.2-17.1 GB/s"."""
    words, others = low.split(), high.split()
    if words[1:] == others[1:]:
        return f"{words[0].rstrip('%')}-{others[0]}"
    return f"{' '.join(words[:2])}-{' '.join(others[:2])}"


def _groups(causes: Sequence[Finding]) -> tuple[Group, ...]:
    """Causes that look alike, added up."""
    groups = []
    for key, label in GROUPS.items():
        inside = [each for each in causes if each.group == key]
        if inside:
            odds = sum(each.odds for each in inside)
            names = tuple(each.label for each in inside)
            groups.append(Group(key=key, label=label, odds=odds, causes=names))
    return tuple(sorted(groups, key=lambda each: -each.odds))


def _ruled_out(found: Posterior) -> tuple[str, ...]:
    """Labels of what could be here, and is not."""
    table = found.state.table
    labels = []
    for place, key in enumerate(table.keys):
        possible = bool(np.isfinite(table.log_prior[table.cause == place]).any())
        if key != OTHER_KEY and possible and found.causes[place] < SHOWN:
            labels.append(CAUSES[key].label if key in CAUSES else "a healthy run")
    return tuple(labels)


def _following(
    found: Posterior, listed: Sequence[Candidate], e: Estimate
) -> tuple[NextMeasurement, ...]:
    """Measurements by what they tell: the cheapest of the best first."""
    bits = expected_bits(found.state, listed)
    most = max(bits.values(), default=0.0)
    price = e.cluster.usd_per_hour

    def order(each: Candidate) -> tuple[float, float]:
        good = bits[each.key] >= ENOUGH * most
        return (-most if good else -round(bits[each.key], 1), each.gpu_hours)

    said = outcomes(found.state, listed, found.runs)
    return tuple(
        NextMeasurement(
            key=each.key,
            label=each.label,
            bits=bits[each.key],
            gpu_hours=each.gpu_hours,
            outcomes=said[each.key],
            usd=None if price is None else price * each.gpu_hours,
        )
        for each in sorted(listed, key=order)
    )


def _unstated(asked: Asked) -> tuple[str, ...]:
    """What should be stated of a run that was measured, and was chosen."""
    chosen = {each.flag for each in asked.defaults}
    flags = [] if asked.stated else ["--strategy"]
    flags += [flag for flag in ("--batch", "--seq") if flag in chosen]
    if not flags:
        return ()
    return (f"the answer is about the run as described: state {', '.join(flags)} as it ran",)


def _notes(runs: Sequence[Run]) -> tuple[str, ...]:
    """What looks odd about the runs."""
    notes = []
    for run in runs:
        e = run.estimate
        if e.infeasible is not None:
            notes.append(
                f"{e.strategy} on {e.cluster.accelerators:,} GPUs: predicted {e.infeasible}"
            )
    if (sparse := slower(runs[0])) is not None:
        notes.append(sparse)
    stacks = {run.estimate.stack.name for run in runs}
    if len(stacks) > 1:
        notes.append(
            f"the runs have different software ({', '.join(sorted(stacks))}): one level each"
        )
    return tuple(notes)
