"""Headline numbers of a validation: left-out errors, baselines, coverage, series, regret.

    found = validate(read_runs()).accuracy()
    found.methods["source left out"].source_mean
    found.series, found.regret["nanotron"]

Every number is of healthy complete dense runs. Sources count alike in `source_mean`, because a
sweep of a thousand layouts is one team's work.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from scalewise.evidence.ranges_fit import Coverage, ResidualRow, coverage

if TYPE_CHECKING:
    from scalewise.evidence.validate import Validation, Verdict

METHODS: dict[str, Callable[[Verdict], float | None]] = {
    "shipped constants": lambda row: row.predicted_tokens_per_second,
    "source left out": lambda row: row.left_out,
    "40% MFU": lambda row: row.mfu_40,
    "nearest published run": lambda row: row.nearest_run,
}
"""Predictions of tokens/s per accelerator that are compared."""

SERIES = ("llm-foundry", "modalities", "dgxc", "maxtext")
"""Sources of weak-scaling series, by the start of their name."""

SIZES = 3
"""Sizes from which runs of one recipe are a series."""

UP_TO = 256
"""GPUs up to which the regret is averaged: beyond, the published sweeps are erratic."""


@dataclass(frozen=True, kw_only=True)
class Method:
    """Errors of one way to predict tokens/s. Shares, not percent."""

    count: int
    """Runs it predicts."""
    median_error: float
    """Of the absolute error."""
    p90_error: float
    source_mean: float
    """Mean over sources of the median absolute error."""
    worst_source: str | None
    """GPU source with the largest median error."""
    worst_error: float | None
    """Its median error."""


@dataclass(frozen=True, kw_only=True)
class Series:
    """Runs of one recipe at several sizes: tokens/s per GPU at the largest over the smallest."""

    source: str
    model: str
    smallest: int
    largest: int
    """GPUs."""
    measured: float
    predicted: float
    """Ratio with the shipped constants."""
    left_out: float | None
    """Ratio with the source left out."""
    repeats: float | None = None
    """Largest difference, as a fraction, between measured ratios of this series and of others with
    its traffic: same source, model, sizes and sharding, as many tokens per GPU in other sequences
    and micro-batches. None without any."""

    @property
    def error(self) -> float:
        """Predicted over measured ratio, minus 1."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, kw_only=True)
class Regret:
    """Choices of a strategy in the sweeps of one source, up to `UP_TO` GPUs."""

    sweeps: int
    mean: float
    """Mean fraction that the picked strategy loses against the best measured one."""
    worst: float


@dataclass(frozen=True, kw_only=True)
class Accuracy:
    """Numbers of the headline."""

    complete: int
    """Complete dense runs."""
    predicted: int
    """Those with a prediction."""
    refused: dict[str, int]
    """Complete dense runs without a prediction, by reason."""
    infeasible: int
    """Complete dense runs that ran but are called infeasible."""
    degraded: dict[str, tuple[int, float, float]]
    """Runs far slower than their neighbors by source, in no other number: how many, and predicted
    over measured of the least and the most degraded."""
    unsupported: dict[str, int]
    """Other runs without experts or a prediction: of another architecture, or by their grade."""
    methods: dict[str, Method]
    """Errors of shipped constants, refits without the source, and two baselines."""
    coverage: Coverage
    """Share of measurements inside 80% intervals of levels and ratios, source left out."""
    series: list[Series]
    """Weak-scaling series."""
    memory_count: int
    memory_median_error: float | None
    regret: dict[str, Regret]
    """By source."""

    @property
    def series_errors(self) -> list[float]:
        """Absolute errors of the ratios of weak-scaling series."""
        return [abs(each.error) for each in self.series]


def accuracy(validation: Validation) -> Accuracy:
    """Return the headline numbers of a validation."""
    complete = validation.complete()
    refused = [row for row in complete if row.predicted_tokens_per_second is None]
    others = [
        row
        for row in validation.rows
        if row.status == "unsupported" and not row.experts and row not in refused
    ]
    judged, overall = validation.judged(), validation.overall()
    methods = {name: method(judged, rate) for name, rate in METHODS.items()}
    return Accuracy(
        complete=len(complete),
        predicted=len(complete) - len(refused),
        refused=_reasons(refused),
        infeasible=overall.infeasible,
        degraded=_degraded(complete),
        unsupported=dict(
            Counter(
                row.quality if row.dense else "of another architecture" for row in others
            ).most_common()
        ),
        methods={name: each for name, each in methods.items() if each is not None},
        coverage=coverage([_residual(row) for row in judged if row.left_out]),
        series=series(judged),
        memory_count=overall.memory_count,
        memory_median_error=overall.memory_median_error,
        regret=regret(validation),
    )


def _reasons(rows: Sequence[Verdict]) -> dict[str, int]:
    """Count reasons, the most frequent first."""
    return dict(Counter(str(row.reason) for row in rows).most_common())


def _degraded(rows: Sequence[Verdict]) -> dict[str, tuple[int, float, float]]:
    """Count degraded runs by source, with the range of predicted over measured."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.degraded and row.error is not None:
            found.setdefault(row.source, []).append(1.0 + row.error)
    return {source: (len(each), min(each), max(each)) for source, each in found.items()}


def method(rows: Sequence[Verdict], rate: Callable[[Verdict], float | None]) -> Method | None:
    """Return the errors of one way to predict; None if it predicts nothing.

    Args:
        rows: Measured runs.
        rate: Predicted tokens/s per accelerator of a run.
    """
    found: dict[str, list[float]] = {}
    gpus = {row.source for row in rows if row.gpu}
    for row in rows:
        predicted, measured = rate(row), row.measured_tokens_per_second
        if predicted and measured:
            found.setdefault(row.source, []).append(abs(predicted / measured - 1.0))
    if not found:
        return None
    every = np.concatenate([np.array(errors) for errors in found.values()])
    medians = {source: float(np.median(errors)) for source, errors in found.items()}
    worst = max((name for name in medians if name in gpus), key=medians.__getitem__, default=None)
    return Method(
        count=len(every),
        median_error=float(np.median(every)),
        p90_error=float(np.quantile(every, 0.9)),
        source_mean=float(np.mean(list(medians.values()))),
        worst_source=worst,
        worst_error=None if worst is None else medians[worst],
    )


def _residual(row: Verdict) -> ResidualRow:
    """Return a run and its left-out prediction, for the coverage of its intervals."""
    assert row.basis is not None
    rate = float(row.measured_tokens_per_second or 0.0)
    return ResidualRow.of(row.group, row.stack or "", id=row.id, basis=row.basis, measured=rate)


def series(rows: Sequence[Verdict]) -> list[Series]:
    """Return the weak-scaling series of the sources that publish them.

    Repeats of one size count as their geometric mean.
    """
    recipes: dict[tuple[object, ...], list[Verdict]] = {}
    for row in rows:
        if row.source.startswith(SERIES):
            recipes.setdefault(row.recipe, []).append(row)
    found, traffic = list[Series](), list[tuple[object, ...]]()
    for group in recipes.values():
        sizes = sorted({int(row.group[3]) for row in group})
        if len(sizes) < SIZES:
            continue
        small, large = (
            [row for row in group if row.group[3] == size] for size in (sizes[0], sizes[-1])
        )

        def ratio(
            rate: Callable[[Verdict], float | None],
            small: Sequence[Verdict] = small,
            large: Sequence[Verdict] = large,
        ) -> float | None:
            ends = [[rate(row) for row in end] for end in (large, small)]
            if not all(ends[0]) or not all(ends[1]):
                return None
            top, bottom = (float(np.mean(np.log(np.array(end, dtype=float)))) for end in ends)
            return float(np.exp(top - bottom))

        found.append(
            Series(
                source=group[0].source,
                model=str(group[0].group[1]),
                smallest=sizes[0],
                largest=sizes[-1],
                measured=ratio(lambda row: row.measured_tokens_per_second) or 0.0,
                predicted=ratio(METHODS["shipped constants"]) or 0.0,
                left_out=ratio(METHODS["source left out"]),
            )
        )
        work = group[0].group[4]
        tokens = work.tokens_per_step / group[0].group[3]
        layout = re.sub(r"-mb\d+", "", large[0].strategy or "")
        traffic.append((group[0].source, *group[0].group[1:3], *sizes[::len(sizes) - 1],
                        layout, tokens))  # fmt: skip
    return [
        replace(each, repeats=_repeats(each, [b for b, k in zip(found, traffic, strict=True)
                                              if k == key and b is not each]))
        for each, key in zip(found, traffic, strict=True)
    ]  # fmt: skip


def _repeats(one: Series, others: Sequence[Series]) -> float | None:
    """Return the largest difference between measured ratios, as a fraction."""
    apart = [abs(float(np.log(each.measured / one.measured))) for each in others]
    return float(np.expm1(max(apart))) if apart else None


def regret(validation: Validation) -> dict[str, Regret]:
    """Return the regret of picked strategies by source."""
    found: dict[str, list[float]] = {}
    for sweep in validation.sweeps():
        if sweep.accelerators <= UP_TO:
            found.setdefault(sweep.source, []).append(sweep.regret)
    return {
        source: Regret(sweeps=len(each), mean=float(np.mean(each)), worst=max(each))
        for source, each in found.items()
    }
