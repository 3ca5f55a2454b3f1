"""Measured runs of one question: the same words at another size, or with another strategy.

    runs, asked = measured_runs(question, parse_measured(["8=7000,32=1786"]))
    runs[0].estimate, runs[0].rate

A number for another size keeps the degrees of the strategy and the batch per GPU, as weak scaling
does; data parallelism takes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalewise.ask.resolve import Asked, Objects, resolve
from scalewise.diagnosis.measured import Measurement
from scalewise.errors import InputError
from scalewise.explore.templates import parse_template
from scalewise.ranges import Z80, ratio_deviation
from scalewise.step.estimate import estimate
from scalewise.units import parse_count

if TYPE_CHECKING:
    from scalewise.ask.question import Question
    from scalewise.model import Convention
    from scalewise.numeric import Array
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy

NOISE = 0.05
"""Least noise of a run (log): 3% of a measurement, 4% of a ratio between two predictions."""

LEAST_LEVEL = 0.03
"""Least deviation of the level (log)."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One measured run and its prediction."""

    estimate: Estimate
    measurement: Measurement
    rate: float
    """Measured tokens/s per GPU."""

    @property
    def by_time(self) -> bool:
        """Whether tokens are those of the question, because the time of a step was measured."""
        return self.measurement.unit == "s/step"

    @property
    def by_flops(self) -> bool:
        """Whether an MFU was measured: its FLOPs and its peak can be counted in several ways."""
        return self.measurement.unit == "MFU"


def resized(strategy: Strategy, batch: int, gpus: int) -> tuple[Strategy, int] | None:
    """Return a strategy and its batch at another size; None where the size does not hold it.

    A sharding group that was smaller than the data-parallel ranks stays, if it fits.

    Args:
        strategy: The strategy.
        batch: Its global batch, sequences.
        gpus: The other number of GPUs.
    """
    base = strategy.tp * strategy.cp * strategy.pp
    ranks, before = gpus // base, strategy.data_parallel
    if not ranks or gpus % base or batch * ranks % before:
        return None
    shard = strategy.dp_shard
    if strategy.dp_replicate == 1:
        shard = ranks
    elif shard > 1:
        shard = min(shard, ranks)
    if ranks % shard:
        return None
    changed = strategy.with_(dp_shard=shard, dp_replicate=ranks // shard)
    return changed, batch * ranks // before


def at_size(e: Estimate, gpus: int) -> Estimate | None:
    """Return the same run on another number of GPUs; None where that cannot be."""
    found = resized(e.strategy, e.workload.global_batch, gpus)
    return None if found is None else again(e, found[0], gpus, found[1])


def again(
    e: Estimate, strategy: Strategy, gpus: int | None = None, batch: int | None = None
) -> Estimate | None:
    """Return the same run with another strategy, size or batch; None where that cannot be."""
    try:
        cluster = e.cluster if gpus is None else e.cluster.with_(accelerators=gpus)
        workload = e.workload
        if batch is not None:
            workload = msgspec.structs.replace(workload, global_batch=batch)
        return estimate(
            e.model, cluster, workload, strategy, stack=e.stack, convention=e.convention,
            fit=e.many.fit,
        )  # fmt: skip
    except InputError:
        return None


def measured_runs(
    question: Question,
    measurements: Sequence[Measurement],
    *,
    convention: Convention = "causal",
    objects: Objects | None = None,
) -> tuple[list[Run], Asked]:
    """Resolve a question and every run that was measured.

    Args:
        question: What is asked.
        measurements: Measured numbers.
        convention: FLOP convention of measured MFU and TFLOP/s.
        objects: What is at hand instead of a name.

    Returns:
        The measured runs, that of the question (or the largest) first, and the question resolved.

    Raises:
        InputError: If a word is not understood, or a run cannot be.
    """
    sizes = [each.gpus for each in measurements if each.gpus is not None]
    if question.gpus is None and sizes and (objects is None or objects.cluster is None):
        question = msgspec.structs.replace(question, gpus=max(sizes))
    asked = resolve(question, objects)
    main = asked.estimate(convention)
    runs = []
    for each in measurements:
        e = _run(asked, main, each, convention, objects)
        if e.infeasible is not None and not e.infeasible.startswith("memory"):
            raise InputError(
                f"--measured {each.key or str(e.strategy)}: cannot have run: {e.infeasible}",
                hint="check --strategy and --batch",
                field="measured",
            )
        runs.append(Run(estimate=e, measurement=each, rate=each.rate(e)))

    def order(run: Run) -> tuple[bool, bool, int]:
        gpus = run.estimate.cluster.accelerators
        return run.estimate is not main, gpus != main.cluster.accelerators, -gpus

    runs.sort(key=order)
    return runs, asked


def _run(
    asked: Asked,
    main: Estimate,
    measurement: Measurement,
    convention: Convention,
    objects: Objects | None,
) -> Estimate:
    """The estimate of one measured run."""
    if not measurement.key or measurement.gpus == main.cluster.accelerators:
        return main
    if measurement.gpus is not None:
        found = at_size(main, parse_size(measurement.key))
        if found is None:
            raise InputError(
                f"--measured {measurement.key}: {main.strategy} and a batch of "
                f"{main.workload.global_batch:,} do not scale to {measurement.key} GPUs",
                hint="name that run's strategy instead, such as fsdp8-mb1=7000",
                field="measured",
            )
        return found
    template = parse_template(measurement.key)
    if template.limits is not None:
        raise InputError(
            f"--measured {measurement.key[:60]}: not a strategy with its sizes",
            hint="for example fsdp32-mb1=1786",
            field="measured",
        )
    gpus = template.base.accelerators if template.fixed else main.cluster.accelerators
    batch = main.workload.global_batch * gpus // main.cluster.accelerators
    if objects is not None and objects.strategy is not None:
        objects = Objects(model=objects.model, cluster=objects.cluster, stack=objects.stack)
    other = msgspec.structs.replace(
        asked.question, strategy=measurement.key, gpus=gpus, batch=max(batch, 1)
    )
    return resolve(other, objects).estimate(convention)


def parse_size(text: str) -> int:
    """Read a number of GPUs."""
    count = parse_count(text)
    if count < 1:
        raise InputError(f"--measured {text}: needs at least 1 GPU", field="measured")
    return count


@dataclass(frozen=True, kw_only=True)
class Errors:
    """Errors of the predictions of some runs, before anything is measured (log)."""

    center: Array
    """Middle of the prediction interval over the prediction: not 0 where it covers two stacks."""
    level: list[float]
    """Standard deviation that runs of one software share."""
    noise: Array
    """Standard deviation of each run of its own."""
    groups: list[int]
    """Software of each run."""
    total: Array
    """Standard deviation of a prediction."""


def errors_of(runs: Sequence[Estimate], *, apart: bool = False) -> Errors:
    """Return the errors of predictions: level and noise from the product's own intervals.

    The level and the noise of a run add up to its 80% interval. The noise is what is left in ratios
    between the runs, and at least 0.05.

    Args:
        runs: Estimates.
        apart: Whether every run has software of its own.
    """
    low, high = (np.log([e.interval[end] for e in runs]) for end in (0, 1))
    rates = np.log([e.tokens_per_second_per_accelerator for e in runs])
    total = (high - low) / (2.0 * Z80)
    noise = np.full(len(runs), NOISE)
    for place, e in enumerate(runs):
        ratios = [
            float(ratio_deviation(e.basis, other.basis)) ** 2 / 2.0
            for at, other in enumerate(runs)
            if at != place
        ]
        if ratios:
            noise[place] = max(NOISE, float(np.sqrt(np.mean(ratios))))
    level = np.sqrt(np.maximum(total**2 - noise**2, LEAST_LEVEL**2))
    names = [e.stack.name for e in runs]
    groups = list(range(len(runs))) if apart else [names.index(name) for name in names]
    return Errors(
        center=0.5 * (low + high) - rates, level=level.tolist(), noise=noise, groups=groups,
        total=total,
    )  # fmt: skip
