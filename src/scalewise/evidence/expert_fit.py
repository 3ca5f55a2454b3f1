"""Constants of expert layers, fitted to measured runs of mixtures of experts.

    rows = ExpertRows.of(read_runs())
    fit = fit_experts(rows)
    fit.constants.routing_traffic, fit.spread["overlap"]
    leave_out_experts(rows, rows.usual()).stated      # every source predicted by a fit without it

The constants of dense layers, chips and fabrics stay as they are: what is left between them and
the runs is what experts add. They are fitted on GPUs; TPUs take the same ones. Priors are from
datasheets, public benchmarks and counts of kernels; the loss is soft-L1, because single releases
are off by a factor of two for no stated reason.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.chip import load_chip
from scalewise.errors import require
from scalewise.evidence.calibrate import rates_of
from scalewise.evidence.ranges_fit import ResidualRow
from scalewise.evidence.table import RunTable
from scalewise.evidence.validate import JUDGED_QUALITIES
from scalewise.experts import Experts, load_experts
from scalewise.stack import Stack, load_stack
from scalewise.step.case import Case
from scalewise.step.estimate import estimate
from scalewise.step.layout import lay_out, sparse_columns, without_choice
from scalewise.strategies import Strategies

if TYPE_CHECKING:
    from scalewise.evidence.calibrate import Calibrator
    from scalewise.evidence.runs import Run
    from scalewise.numeric import Array, Mask
    from scalewise.ranges import ExpertSoftware

SCALE = 0.08
"""Residual (log) at which the loss turns from square to linear."""

CONSTANTS = "megatron"
"""Constants that all published runs of experts share."""


@dataclass(frozen=True, kw_only=True)
class Prior:
    """Belief in one constant before the fit."""

    value: float
    spread: float
    """Standard deviation of the logarithm."""
    low: float = 1e-6
    high: float = 1e6


PRIORS = {
    # Relative to what rings sustain. NCCL's all-to-all includes two explicit syncs and unfused
    # preprocessing.
    "nccl": Prior(value=0.50, spread=0.35, low=0.1, high=1.2),
    # DeepEP's tables (catalog/runs/collectives.csv): 0.77 of H800's NVLink, 0.63-0.72 of B200's.
    "deepep": Prior(value=0.70, spread=0.3, low=0.1, high=1.2),
    "hybridep": Prior(value=0.85, spread=0.2, low=0.2, high=1.2),
    # 0.66 to 0.94 of the NIC in DeepEP's tables, by whether tokens that stay on their node count.
    "network": Prior(value=0.85, spread=0.2, low=0.2, high=1.2),
    "grouped_gemm": Prior(value=0.90, spread=0.1, low=0.4, high=1.15),
    # 1 is the least traffic.
    "routing_traffic": Prior(value=1.0, spread=0.5),
    "biased_activation": Prior(value=2.0, spread=0.5),
    "fused_traffic": Prior(value=0.6, spread=0.3, low=0.2, high=1.0),
    # Some 150 launches of attention, 200 of routing and 10 per expert at about 10 us.
    "host_attention_seconds": Prior(value=1.5e-3, spread=0.5),
    "host_routing_seconds": Prior(value=2.0e-3, spread=0.7),
    "host_expert_seconds": Prior(value=1.0e-4, spread=0.7),
    "static_host": Prior(value=0.3, spread=0.5, high=1.0),
    "graph_routing": Prior(value=0.6, spread=0.3, high=1.0),
    "overlap": Prior(value=0.7, spread=0.3, low=0.05, high=1.0),
    # Head dimensions of 192 and 128 against 128 in cuDNN's tables.
    "latent_attention": Prior(value=0.75, spread=0.2),
}
"""By constant of `Experts`."""


@dataclass(frozen=True, kw_only=True)
class ExpertRows:
    """Runs of experts as arrays, with constants of dense layers."""

    table: RunTable
    case: Case
    """Inputs of every run."""

    @classmethod
    def of(cls, runs: Sequence[Run], fit: Calibrator | None = None) -> ExpertRows:
        """Lay out runs of experts that are well graded, can be predicted and state a speed.

        Args:
            runs: Measured runs; dense ones are left out.
            fit: Constants of dense layers; by default those of the catalog.
        """
        chosen = [run for run in runs if run.number("experts") and run.quality in JUDGED_QUALITIES]
        table = RunTable.of(chosen)
        table = table.select(np.isfinite(table.measured))
        return cls(table=table, case=_laid_out(table, fit))

    def __len__(self) -> int:
        return len(self.table)

    @property
    def gpu(self) -> Mask:
        """Which rows are of GPUs: constants are fitted on these alone."""
        return np.array([each.cluster.accelerator.kind == "gpu" for each in self.table.plans])

    def select(self, mask: Mask) -> ExpertRows:
        """The rows where `mask` is true."""
        return ExpertRows(table=self.table.select(mask), case=self.case.take(np.flatnonzero(mask)))

    def usual(self, fit: Calibrator | None = None) -> ExpertRows:
        """The same runs with the dispatcher, graphs and fusion that are usual for their stack."""
        stacks = [_usual(stack) for stack in self.table.stacks]
        table = self.table.with_stacks(stacks)
        return ExpertRows(table=table, case=_laid_out(table, fit))

    def predict(self, constants: Experts) -> Array:
        """Return tokens/s per accelerator with other constants."""
        columns = [
            sparse_columns(without_choice(plan.model), plan.workload, stack, constants)
            for plan, stack in zip(self.table.plans, self.table.stacks, strict=True)
        ]
        changed = {name: np.array([each[name] for each in columns]) for name in columns[0]}
        return rates_of(self.case.changed(**changed))

    def weights(self) -> Array:
        """Weights so that repeats of one recipe over releases share it."""
        table = self.table
        keys = [
            (
                run.source, plan.model.name, plan.cluster.accelerator.name,
                plan.workload.precision, stack.dispatcher, stack.cuda_graphs,
                plan.strategy.ep, plan.strategy.pp, plan.strategy.micro_batch,
            )
            for run, plan, stack in zip(table.runs, table.plans, table.stacks, strict=True)
        ]  # fmt: skip
        counts = Counter(keys)
        return np.array([counts[key] ** -0.5 for key in keys])


FEATURES = ("dispatcher", "cuda_graphs", "overlaps_all_to_all", "fused_experts")
"""Fields of a stack that recipes of experts state."""


def _usual(stack: Stack) -> Stack:
    """The stack with the features of its catalog file."""
    known = load_stack(stack.name)
    return msgspec.structs.replace(stack, **{name: getattr(known, name) for name in FEATURES})


def _laid_out(table: RunTable, fit: Calibrator | None) -> Case:
    """Inputs of every run with fitted constants of dense layers, or those of the catalog."""
    if fit is not None:
        return fit.applied(table)
    cases = []
    for plan, stack in zip(table.plans, table.stacks, strict=True):
        chip = load_chip(plan.cluster.accelerator.architecture)
        many = Strategies.of([plan.strategy])
        cases.append(lay_out(plan.model, plan.cluster, plan.workload, many, stack, chip))
    return Case.join(cases)


@dataclass(frozen=True, kw_only=True)
class ExpertFit:
    """Fitted constants, and how well the runs determine them."""

    constants: Experts
    spread: dict[str, float]
    """Factor of one standard deviation, by constant."""
    rows: ExpertRows
    """Runs it was fitted on."""
    errors: Array
    """Predicted over measured, minus 1, by row."""


def fit_experts(rows: ExpertRows) -> ExpertFit:
    """Fit the constants of experts to runs.

    Args:
        rows: Runs of mixtures of experts; those on TPUs are left out.
    """
    rows = rows.select(rows.gpu)
    measured = rows.table.measured
    optimize: Any = require("scipy.optimize", "calibrate")
    names = list(PRIORS)
    prior = np.log([PRIORS[name].value for name in names])
    spread = np.array([PRIORS[name].spread for name in names])
    low = np.log([PRIORS[name].low for name in names])
    high = np.log([PRIORS[name].high for name in names])
    target, weight = np.log(measured), rows.weights()
    known = load_experts(CONSTANTS)

    def constants(vector: Array) -> Experts:
        values = dict(zip(names, np.exp(vector).tolist(), strict=True))
        return msgspec.structs.replace(known, **values)

    def residuals(vector: Array) -> Array:
        error = (np.log(rows.predict(constants(vector))) - target) / SCALE
        soft = np.sign(error) * np.sqrt(2.0 * (np.sqrt(1.0 + error * error) - 1.0))
        return np.concatenate([weight * soft, (vector - prior) / spread])

    start = np.clip(prior, low + 1e-6, high - 1e-6)
    result = optimize.least_squares(
        residuals, start, bounds=(low, high), diff_step=1e-3, max_nfev=40
    )
    covariance = np.linalg.pinv(result.jac.T @ result.jac)
    deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    found = constants(result.x)
    return ExpertFit(
        constants=found,
        spread=dict(zip(names, np.exp(deviation).tolist(), strict=True)),
        rows=rows,
        errors=rows.predict(found) / measured - 1.0,
    )


@dataclass(frozen=True, kw_only=True)
class ExpertLeftOut:
    """Runs of experts predicted by fits without their source, constants of dense layers kept."""

    stated: list[ResidualRow]
    """With the software that their recipes state."""
    usual: list[ResidualRow]
    """With what is usual for their stack: as if nothing was stated."""


def leave_out_experts(
    rows: ExpertRows, usual: ExpertRows, *, progress: Callable[[str], None] = lambda _: None
) -> ExpertLeftOut:
    """Refit without each source and predict it.

    Args:
        rows: Runs of mixtures of experts.
        usual: The same with usual software.
        progress: Called with the name of each source before its refit.
    """
    sources = np.array([run.source for run in rows.table.runs])
    stated, taken = np.zeros(len(rows)), np.zeros(len(rows))
    for source in sorted(set(sources.tolist())):
        progress(source)
        here = sources == source
        found = fit_experts(rows.select(~here)).constants
        stated[here] = rows.select(here).predict(found)
        taken[here] = usual.select(here).predict(found)
    return ExpertLeftOut(
        stated=residual_rows(rows, stated, "stated"), usual=residual_rows(usual, taken, "usual")
    )


def residual_rows(
    rows: ExpertRows, predicted: Array, software: ExpertSoftware
) -> list[ResidualRow]:
    """Return runs of experts with their predictions.

    Args:
        rows: Measured runs.
        predicted: Tokens/s per accelerator, by a fit that had not seen the row's source.
        software: What was known of their software.
    """
    table, found = rows.table, []
    for place, (run, plan, stack) in enumerate(
        zip(table.runs, table.plans, table.stacks, strict=True)
    ):
        many = estimate(plan.model, plan.cluster, plan.workload, [plan.strategy], stack=stack)
        basis = replace(many[0].basis, rate=float(predicted[place]), experts=software)
        found.append(
            ResidualRow(
                id=run.id,
                source=run.source,
                sweep=(run.source, plan.model.name, plan.cluster.accelerator.name, stack.name,
                       plan.workload.precision),
                mode="unstated",
                basis=basis,
                measured=float(table.measured[place]),
            )
        )  # fmt: skip
    return found
