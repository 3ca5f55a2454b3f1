"""Runs of the user's own: kept in the catalog, and what they say of the level of a stack.

    runs = read_own("records/") + read_own("runs.csv")      # diagnosis.own
    fit = fit_own("my-team", runs)                # a stack whose kernels run as fast as measured
    write_own(fit, Path("scalewise-catalog"))     # stacks/my-team.toml, runs/my-team.csv

A level is what runs of one team have in common: compiler, kernels, clocks, data loader. It moves
the speed of kernels and of the host, and leaves links as they are: these have measurements of their
own (`calibrate NAME`). The shift is the posterior mean: of the median error of n runs of noise s
counts 1 / (1 + s^2 / n L^2), with L the deviation of the level before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from scalewise.catalog import load_cluster
from scalewise.cluster import Cluster
from scalewise.errors import InputError
from scalewise.evidence.files import struct_toml
from scalewise.evidence.measured import cell, noun_cells
from scalewise.evidence.runs import Run, read_runs
from scalewise.model import Model
from scalewise.ranges import Z80, level_deviation, noise_deviation
from scalewise.stack import Stack, load_stack, stack_for
from scalewise.step.estimate import estimate
from scalewise.step.result import Estimate
from scalewise.strategy import Strategy, parse_strategy
from scalewise.workload import Workload
from scalewise.writing import csv_text, write_atomically

FASTEST, SLOWEST = 3.0, 1.0 / 3.0
"""Speed of kernels over those of the base between which a level is sought."""

DAMAGED = 3.0
"""Deviations of the prediction from which a run is no level, but a fault."""

NOISE = 0.03
"""Least deviation of a run (log): the repeatability of a measurement."""

SPEEDS = ("gemm", "attention_forward", "attention_backward")
"""Constants of a stack that are rates."""

COSTS = (
    "memory_traffic", "host_layer_seconds", "logit_bytes", "optimizer_bytes", "gradient_bytes",
    "overhead_seconds",
)  # fmt: skip
"""Constants of a stack that are bytes or seconds of kernels and host."""


@dataclass(frozen=True, kw_only=True)
class OwnRun:
    """One measured run."""

    model: Model
    cluster: Cluster
    workload: Workload
    strategy: Strategy
    rate: float
    """Tokens/s per GPU."""
    on: str
    """Name of the cluster in the catalog; empty where the row describes it."""
    framework: str | None = None
    stack: Stack | None = None
    """Software that is named, or usual for it; None follows the framework."""
    row: dict[str, str] | None = None
    """Its columns, where it has those of the shipped table."""

    @property
    def label(self) -> str:
        """What it is, in a line."""
        gpus, chip = self.cluster.accelerators, self.on or self.cluster.accelerator.name
        batch = f"{self.workload.global_batch:,} x {self.workload.seq_len:,}"
        return f"{self.model.name} {self.strategy} on {gpus:,}x {chip}, {batch}"

    def estimate(self, stack: Stack) -> Estimate:
        """Return its prediction."""
        return estimate(self.model, self.cluster, self.workload, self.strategy, stack=stack)


def own_run(run: Run, cluster: Cluster | None = None) -> OwnRun:
    """Return a row with the columns of the shipped table, or a record, as a run of one's own.

    Args:
        run: The row.
        cluster: What it ran on, in place of what it says.

    Raises:
        InputError: If it lacks what a prediction needs, or its throughput.
    """
    if cluster is not None:
        run = Run({**run.row, "accelerator": cluster.accelerator.name}, run.line)
    plan, rate = run.plan(), run.tokens_per_second
    on = run.text("on") or ""
    where = plan.cluster
    if cluster is not None:
        on, where = cluster.name, cluster.with_(accelerators=plan.cluster.accelerators)
    elif on:
        where = load_cluster(on, plan.cluster.accelerators)
    strategy = run.text("strategy")
    if not rate:
        raise InputError(f"line {run.line}: no throughput is stated", hint="give step_seconds")
    return OwnRun(
        model=plan.model, cluster=where, workload=plan.workload,
        strategy=parse_strategy(strategy) if strategy else plan.strategy,
        rate=rate, on=on, framework=run.framework, row=run.row,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OwnFit:
    """A stack that runs as the user's own runs do."""

    name: str
    stack: Stack
    base: Stack
    runs: tuple[OwnRun, ...]
    errors: tuple[float, ...]
    """Measured over predicted of every run with the base, log."""
    left: tuple[float, ...]
    """The same with the own stack."""
    speed: float
    """Speed of kernels and host over those of the base."""
    before: tuple[float, float]
    """80% prediction interval of the first run with the base, as factors."""
    after: tuple[float, float]


def fit_own(name: str, runs: Sequence[OwnRun], base: Stack | None = None) -> OwnFit:
    """Return a stack at the level of some runs.

    Args:
        name: Of the stack.
        runs: Measured runs, at least one.
        base: Stack whose constants it starts from; by default that of the runs' framework.

    Raises:
        InputError: If a run is too far from its prediction to be a level.
    """
    start = base or _usual(runs)
    predicted = [run.estimate(start) for run in runs]
    errors = np.array([_error(run, e) for run, e in zip(runs, predicted, strict=True)])
    level = np.array([float(level_deviation(e.basis)) for e in predicted])
    middle = float(np.median(errors))
    for run, e, error, spread in zip(runs, predicted, errors, level, strict=True):
        if abs(error) > DAMAGED * spread:
            raise InputError(
                f"{run.label}: {run.rate:,.0f} tok/s/GPU measured, "
                f"{e.tokens_per_second_per_accelerator:,.0f} predicted: a fault, not a level",
                hint="ask `scalewise diagnose` about it, or leave it out",
            )
    noise = max(float(np.median([float(noise_deviation(e.basis)) for e in predicted])), NOISE)
    if len(runs) > 2:
        noise = max(noise, float(np.std(errors, ddof=1)))
    # The level before, without the noise of a single run.
    prior = max(float(np.median(level**2)) - noise**2, NOISE**2)
    shift = middle * prior / (prior + noise**2 / len(runs))
    speed = _speed(start, runs, predicted, shift)
    stack = _at_speed(start, speed)
    left = np.array([_error(run, run.estimate(stack)) for run in runs])
    own = msgspec.structs.replace(
        stack, name=name, frameworks=(), since="", until="", constants_from=None, base=None,
        shares=(), own_runs=len(runs), own_noise=round(noise, 4), stands_in=False,
        largest_run=max([start.largest_run, *(run.cluster.accelerators for run in runs)]),
        fitted_on=_fitted_on(start, runs, speed),
    )  # fmt: skip
    first = runs[0]
    return OwnFit(
        name=name, stack=own, base=start, runs=tuple(runs), errors=tuple(errors.tolist()),
        left=tuple(left.tolist()), speed=speed, before=_range(predicted[0]),
        after=_range(first.estimate(own)),
    )  # fmt: skip


def _usual(runs: Sequence[OwnRun]) -> Stack:
    """The stack of the runs' framework; all must have one."""
    found = {
        stack.name: stack
        for run in runs
        if (stack := run.stack or stack_for(
            run.framework, device=run.cluster.accelerator.kind, compiled=run.strategy.compiled,
            fully_sharded=run.strategy.fully_sharded,
        ))
    }  # fmt: skip
    if len(found) > 1:
        raise InputError(
            f"the runs are of several stacks: {', '.join(sorted(found))}",
            hint="remember each under a name of its own, or say which with --stack",
        )
    return next(iter(found.values()))


def _range(e: Estimate) -> tuple[float, float]:
    reach = float(np.exp(Z80 * level_deviation(e.basis)))
    return 1.0 / reach, reach


def _error(run: OwnRun, e: Estimate) -> float:
    return float(np.log(run.rate / e.tokens_per_second_per_accelerator))


def _at_speed(stack: Stack, speed: float) -> Stack:
    """Return a stack whose kernels and host are faster by a factor."""
    changes = {name: getattr(stack, name) * speed for name in SPEEDS}
    changes |= {name: getattr(stack, name) / speed for name in COSTS}
    return msgspec.structs.replace(stack, **changes)


def _speed(
    base: Stack, runs: Sequence[OwnRun], predicted: Sequence[Estimate], shift: float
) -> float:
    """Return the speed at which predictions move by a shift (log), in the median; by bisection."""
    before = np.log([e.tokens_per_second_per_accelerator for e in predicted])

    def moved(speed: float) -> float:
        stack = _at_speed(base, speed)
        rates = [run.estimate(stack).tokens_per_second_per_accelerator for run in runs]
        return float(np.median(np.log(rates) - before))

    low, high = np.log(SLOWEST), np.log(FASTEST)
    guess = shift
    for _ in range(12):
        off = moved(float(np.exp(guess))) - shift
        if abs(off) < 1e-4:
            break
        low, high = (low, guess) if off > 0.0 else (guess, high)
        step = guess - off
        guess = step if low < step < high else 0.5 * (low + high)
    return float(np.exp(guess))


def _fitted_on(base: Stack, runs: Sequence[OwnRun], speed: float) -> str:
    """What the stack is, in a sentence that names the runs."""
    named = "; ".join(run.label for run in runs[:3])
    more = f"; {len(runs) - 3} more" if len(runs) > 3 else ""
    return (
        f"own runs: {named}{more}. Kernels and host of {base.name} at {speed:.3f} times its speed"
    )


def write_own(fit: OwnFit, folder: Path) -> list[Path]:
    """Write the stack and its runs below a catalog folder.

    Args:
        fit: What was fitted.
        folder: Of the catalog; sub-folders are made.
    """
    text = f"base of the level: {fit.base.name}"
    stack = write_atomically(
        folder / "stacks" / f"{fit.name}.toml",
        f"# {text}\n{struct_toml(_rounded(fit.stack), {})}", make_folder=True,
    )  # fmt: skip
    rows = [row_of(run, fit.base.name) for run in fit.runs]
    names = list(dict.fromkeys(key for row in rows for key in row))
    table = write_atomically(
        folder / "runs" / f"{fit.name}.csv", csv_text(rows, names), make_folder=True
    )
    return [stack, table]


def _rounded(stack: Stack) -> Stack:
    """The stack with numbers as a file stores them."""
    changes = {
        field: float(f"{value:.5g}")
        for field in stack.__struct_fields__
        if isinstance(value := getattr(stack, field), float)
    }
    return msgspec.structs.replace(stack, **changes)


def row_of(run: OwnRun, base: str) -> dict[str, Any]:
    """Return a run with the columns of the shipped table, and three more: base, on, strategy."""
    if run.row is not None:
        row: dict[str, Any] = dict(run.row)
    else:
        row = noun_cells(run.model, run.strategy, run.workload) | {
            "source": "own", "source_ref": run.label, "quality": "ok",
            "accelerator": run.cluster.accelerator.name, "accelerators": run.cluster.accelerators,
            "scaleup_domain": run.cluster.scale_up_domain, "framework": run.framework,
            "tokens_per_second_per_accelerator": run.rate,
        }  # fmt: skip
        row = {key: cell(value) for key, value in row.items() if value is not None}
    return row | {"base": base, "on": run.on, "strategy": str(run.strategy)}


def remembered(name: str, folder: Path) -> tuple[tuple[OwnRun, ...], Stack | None]:
    """Return the runs that a name has already, and the base of its level."""
    file = folder / "runs" / f"{name}.csv"
    if not file.exists():
        return (), None
    rows = read_runs(file)
    base = next((text for row in rows if (text := row.text("base"))), None)
    return tuple(own_run(row) for row in rows), load_stack(base) if base else None


def joined(old: Sequence[OwnRun], new: Sequence[OwnRun]) -> list[OwnRun]:
    """Join runs; of the same run with the same number once."""
    found = {(run.label, round(run.rate, 3)): run for run in [*old, *new]}
    return list(found.values())
