"""Constants of chips, stacks and fabrics, fitted to measured runs.

    fit = Calibrator().fit(table)
    fit.values_[("stack", "megatron", "memory_traffic")]
    fit.predict(table)                        # tokens/s per accelerator

One least-squares problem over all runs at once: chips and stacks share constants wherever they are
the same thing, so no source has a constant of its own. The loss is Cauchy, because published sweeps
contain degraded runs that no stated column explains. Rows of one configuration share its weight,
because ten scales of one recipe are not ten independent samples.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.errors import InputError, require
from scalewise.evidence.architectures import gemm_prior
from scalewise.evidence.parameters import CHIP, COMPLEMENT, FABRIC, OPTIONAL, STACK, Parameter
from scalewise.step.compose import compose
from scalewise.step.terms import step_terms

if TYPE_CHECKING:
    from collections.abc import Callable

    from scalewise.evidence.runs import Plan, Run
    from scalewise.evidence.table import RunTable
    from scalewise.numeric import Array, Index, Mask
    from scalewise.stack import Stack
    from scalewise.step.case import Case

Key = tuple[str, str, str]
"""(scope, owner, parameter), for example ("stack", "megatron", "memory_traffic")."""

Kind = tuple[str, str, bool]
"""Family of a stack, its devices, and whether its code is compiled: what unknown software takes
after."""

ANY_KIND: Kind = ("", "any", True)
"""Where no stack is asked for."""

# The same for differences within a weak-scaling sweep, where what is common to all sizes cancels.
# They carry what the tool is about: how the next accelerator's return diminishes.
# Chosen among 0.008, 0.012 and 0.016 with the slow-down of MPT-7B from 8 to 512 GPUs in view.
SWEEP_SCALE = 0.016

# Residual at which the loss turns from square to logarithmic: about the repeatability of runs.
SCALE = 0.04

UNTIMED = 0.25
"""Spread of the belief in the GEMM rate of an architecture whose training steps nobody timed."""

SEEN_VENDORS = ("NVIDIA", "Google")
"""Vendors with several architectures in the table: their libraries keep in training what they
reach in benchmarks."""

_FAMILY = {2.0: "gemm.bf16", 1.0: "gemm.fp8", 0.5: "gemm.fp4"}


@dataclass
class Slots:
    """Which entry of the parameter vector each row reads for each parameter."""

    keys: list[Key] = field(default_factory=list)
    parameters: list[Parameter] = field(default_factory=list)
    priors: list[float] = field(default_factory=list)
    columns: dict[str, Index] = field(default_factory=dict)
    """Parameter name -> index into the vector by row (-1: not calibrated for the row)."""

    def index(self, key: Key, parameter: Parameter, prior: float) -> int:
        """Position of `key`, added if it is new."""
        if key not in self.keys:
            self.keys.append(key)
            self.parameters.append(parameter)
            self.priors.append(prior)
        return self.keys.index(key)


class Calibrator:
    """Fits constants to runs; learned values end in an underscore.

    Args:
        scale: Residual (log of predicted over measured) at which rows start to count less.
        prior_weight: Strength of the priors; 1 takes their spreads at face value.
    """

    def __init__(self, *, scale: float = SCALE, prior_weight: float = 1.0) -> None:
        self.scale = scale
        self.prior_weight = prior_weight
        self.values_: dict[Key, float] = {}
        self.spread_: dict[Key, float] = {}
        self.on_bounds_: list[Key] = []
        self.kinds_: dict[str, Kind] = {}
        self.residuals_: Array = np.zeros(0)

    def fit(self, table: RunTable, start: dict[Key, float] | None = None) -> Calibrator:
        """Learn constants from the measured rows of a table.

        Args:
            table: Runs with measured tokens/s.
            start: Values to start from, for example those of a fit on more rows.

        Raises:
            InputError: If there are fewer than 5 measured rows.
        """
        optimize: Any = require("scipy.optimize", "calibrate")
        measured = np.isfinite(table.measured)
        if int(measured.sum()) < 5:
            raise InputError(
                f"{int(measured.sum())} measured rows are too few to calibrate on",
                hint="give at least 5 rows with tokens_per_second_per_accelerator",
            )
        table = table.select(measured)
        slots = lay_out(table)
        prior = np.log(np.array(slots.priors))
        spread = np.array([p.spread for p in slots.parameters])
        low = np.log(np.array([p.low for p in slots.parameters]))
        high = np.log(np.array([p.high for p in slots.parameters]))
        first = prior.copy()
        for i, key in enumerate(slots.keys):
            if start and key in start:
                first[i] = np.log(start[key])
        first = np.clip(first, low + 1e-6, high - 1e-6)
        weight = row_weights(table)
        target = np.log(table.measured)

        sweeps = weak_scaling_sweeps(table)

        def residuals(vector: Array, scale: float) -> Array:
            error = np.log(predict_rows(table, slots, np.exp(vector))) - target
            within = [error[sweep] - np.median(error[sweep]) for sweep in sweeps]
            slopes = np.concatenate([*within, np.zeros(0)])
            return np.concatenate(
                [
                    _cauchy(error / scale) * weight,
                    _cauchy(slopes / (scale * SWEEP_SCALE / self.scale)),
                    self.prior_weight * (vector - prior) / spread,
                ]
            )

        jacobian = _grouped_jacobian(residuals, _dependencies(table, slots, sweeps), low, high)
        # Wide first: a robust loss that starts narrow takes whole regimes for outliers.
        widths = (8.0, 2.5, 1.0) if start is None else (2.5, 1.0)
        for scale in (width * self.scale for width in widths):
            result = optimize.least_squares(
                residuals,
                first,
                jac=jacobian,
                args=(scale,),
                bounds=(low, high),
                x_scale="jac",
                tr_solver="lsmr",
                max_nfev=40,
                xtol=1e-5,
                ftol=1e-6,
            )
            first = np.clip(result.x, low + 1e-6, high - 1e-6)
        self.kinds_ = kinds(table)
        self.values_ = dict(zip(slots.keys, np.exp(result.x).tolist(), strict=True))
        covariance = np.linalg.pinv(result.jac.T @ result.jac)
        deviation = np.sqrt(np.maximum(np.diag(covariance), 0.0))
        self.spread_ = dict(zip(slots.keys, np.exp(deviation).tolist(), strict=True))
        near = (result.x - low < 1e-3) | (high - result.x < 1e-3)
        self.on_bounds_ = [key for key, flag in zip(slots.keys, near, strict=True) if flag]
        self.residuals_ = np.log(predict_rows(table, slots, np.exp(result.x))) - target
        return self

    def predict(self, table: RunTable) -> Array:
        """Return tokens/s per accelerator for every row."""
        return rates_of(self.applied(table))

    def applied(self, table: RunTable) -> Case:
        """Return the inputs of every row with the learned constants.

        Owners that the fit never saw get the geometric mean of their kind, as a user's unknown
        stack does.
        """
        slots = lay_out(table)
        known = kinds(table)
        vector = np.array(
            [
                self.value(key, parameter, kind=known.get(key[1], ANY_KIND), prior=prior)
                for key, parameter, prior in zip(
                    slots.keys, slots.parameters, slots.priors, strict=True
                )
            ]
        )
        return with_constants(table.case, slots, vector)

    def value(
        self, key: Key, parameter: Parameter, *, kind: Kind, prior: float | None = None
    ) -> float:
        """The learned value; for an owner never seen, the mean of its kind and of the prior.

        The mean is geometric, over the stacks of the same family that are eager or compiled alike,
        with the prior as one more value: the constants of unknown software.
        """
        if key in self.values_:
            return self.values_[key]
        if prior is None:
            prior = parameter.belief(kind[0], compiled=kind[2])
        if key[0] == "chip" and key[2] == "gemm.bf16":
            return gemm_prior(key[1], prior)
        if key[0] != "stack":
            return prior
        alike = [
            value
            for (scope, owner, name), value in self.values_.items()
            if scope == "stack" and name == key[2] and self.kinds_.get(owner) == kind
        ]
        return float(np.exp(np.mean(np.log([prior, *alike]))))

    @staticmethod
    def optional() -> tuple[Parameter, ...]:
        """Parameters that only stacks which list them have."""
        return OPTIONAL


def kinds(table: RunTable) -> dict[str, Kind]:
    """The kind of every owner of constants."""
    return {s.constants_from or s.name: kind_of(s) for s in table.stacks}


def kind_of(stack: Stack) -> Kind:
    """The kind of one stack."""
    return stack.family, stack.devices, stack.compiled


def _dependencies(table: RunTable, slots: Slots, sweeps: list[Index]) -> Mask:
    """Which residual reads which constant: rows, then sweep differences, then priors."""
    count = len(slots.keys)
    reads = np.zeros((len(table), count), dtype=bool)
    for column in slots.columns.values():
        rows = np.flatnonzero(column >= 0)
        reads[rows, column[rows]] = True
    within = [np.tile(reads[sweep].any(axis=0), (len(sweep), 1)) for sweep in sweeps]
    return np.concatenate([reads, *within, np.eye(count, dtype=bool)])


def _grouped_jacobian(
    residuals: Callable[[Array, float], Array], reads: Mask, low: Array, high: Array
) -> Callable[[Array, float], Array]:
    """Finite differences, moving all constants at once that no residual reads together.

    A stack's constants touch its own rows only, so the same constant of ten stacks costs one
    evaluation instead of ten (Curtis, Powell and Reid, 1974).
    """
    groups: list[tuple[list[int], Mask]] = []
    for column in range(reads.shape[1]):
        for members, taken in groups:
            if not np.any(taken & reads[:, column]):
                members.append(column)
                taken |= reads[:, column]
                break
        else:
            groups.append(([column], reads[:, column].copy()))

    def jacobian(vector: Array, scale: float) -> Array:
        base = residuals(vector, scale)
        step = 1e-6 * np.maximum(np.abs(vector), 1.0)
        step = np.where(vector + step > high, -step, step)
        result = np.zeros((len(base), len(vector)))
        for members, _ in groups:
            moved = vector.copy()
            moved[members] += step[members]
            change = residuals(np.clip(moved, low, high), scale) - base
            for column in members:
                rows = reads[:, column]
                result[rows, column] = change[rows] / step[column]
        return result

    return jacobian


def _cauchy(error: Array) -> Array:
    """Residuals whose squares grow like a logarithm: outliers keep little say."""
    result: Array = np.sign(error) * np.sqrt(np.log1p(error * error))
    return result


def configuration(run: Run, plan: Plan, stack: Stack) -> tuple[object, ...]:
    """What makes two rows the same recipe at another size."""
    s, w = plan.strategy, plan.workload
    return (
        run.source, run.framework, stack.name, plan.model.name,
        plan.cluster.accelerator.name, w.precision, w.seq_len, s.tp, s.pp, s.cp,
        s.virtual_stages, s.micro_batch, s.recompute, s.sharding, s.dp_replicate > 1,
        s.reshard_after_forward, s.reduce_precision, s.microbatches_of(w),
    )  # fmt: skip


def weak_scaling_sweeps(table: RunTable) -> list[Index]:
    """Rows of one recipe at three or more sizes, as index arrays."""
    groups: dict[tuple[object, ...], list[int]] = {}
    for row, what in enumerate(zip(table.runs, table.plans, table.stacks, strict=True)):
        groups.setdefault(configuration(*what), []).append(row)
    count = table.case.split.gpus
    return [np.array(rows) for rows in groups.values() if len({*count[rows].tolist()}) >= 3]


def lay_out(table: RunTable) -> Slots:
    """Decide which constants a table needs and which rows read them."""
    slots = Slots()
    rows = range(len(table))

    def put(
        name: str,
        scope: str,
        owners: list[str | None],
        parameters: list[Parameter],
        priors: list[float] | None = None,
    ) -> None:
        column = np.full(len(table), -1)
        for row in rows:
            owner = owners[row]
            if owner is not None:
                parameter = parameters[row]
                stack = table.stacks[row]
                prior = parameter.belief(stack.family, compiled=stack.compiled)
                if priors is not None and priors[row] > 0.0:
                    prior = priors[row]
                column[row] = slots.index((scope, owner, parameter.name), parameter, prior)
        slots.columns[name] = column

    chips: list[str | None] = [plan.cluster.accelerator.architecture for plan in table.plans]
    by_name = {parameter.name: parameter for parameter in CHIP}
    families = [by_name[_FAMILY[float(b)]] for b in table.case.rates.matmul_bytes]
    wide = by_name["gemm.bf16"]
    believed = [gemm_prior(str(chip), 0.0) for chip in chips]
    # Ten boards reach 0.51 to 0.97 of their peak in GEMMs. What a training step sustains of it is
    # seen on the chips of some vendors only.
    unknown = replace(wide, spread=UNTIMED)
    seen = [bool(prior) and plan.cluster.accelerator.vendor in SEEN_VENDORS
            for prior, plan in zip(believed, table.plans, strict=True)]  # fmt: skip
    put("rate16", "chip", chips, [wide if each else unknown for each in seen], believed)
    narrow = [
        None if family is wide else chip for family, chip in zip(families, chips, strict=True)
    ]
    put("rate", "chip", narrow, families)
    for parameter in STACK:
        field = COMPLEMENT.get(parameter.name, parameter.name)
        fitted = [None if field in stack.declares else stack.owner(field) for stack in table.stacks]
        put(parameter.name, "stack", fitted, [parameter] * len(table))
    for parameter in OPTIONAL:
        listed = [
            stack.owner(parameter.name) if parameter.name in stack.fits else None
            for stack in table.stacks
        ]
        put(parameter.name, "stack", listed, [parameter] * len(table))
    # A fabric is only seen by runs that cross domains.
    fabrics = [
        (plan.cluster.fabric.family or plan.cluster.fabric.name) if plan.cluster.nodes > 1 else None
        for plan in table.plans
    ]
    for parameter in FABRIC:
        # Only some fabrics are bound by messages: their files say so by a value above zero.
        if parameter.name == "ring_step_seconds":
            bound = [plan.cluster.fabric.ring_step_seconds > 0.0 for plan in table.plans]
            owners = [f if b else None for f, b in zip(fabrics, bound, strict=True)]
            put(parameter.name, "fabric", owners, [parameter] * len(table))
            continue
        put(parameter.name, "fabric", fabrics, [parameter] * len(table))
    return slots


def predict_rows(table: RunTable, slots: Slots, vector: Array) -> Array:
    """Price every row with the constants of `vector`."""
    return rates_of(with_constants(table.case, slots, vector))


def rates_of(case: Case) -> Array:
    """Return tokens/s per accelerator for every row."""
    terms, _ = step_terms(case, compose(case))
    tokens = case.split.global_batch * case.shape.seq_len
    result: Array = tokens / terms.total / case.split.gpus
    return result


def with_constants(case: Case, slots: Slots, vector: Array) -> Case:
    """Put the constants into the columns they belong to."""

    def read(name: str, otherwise: Array) -> Array:
        column = slots.columns[name]
        return np.where(column >= 0, vector[column], otherwise)

    one = np.ones(len(case))
    rates, links, habits = case.rates, case.links, case.habits
    return case.changed(
        gemm=rates.gemm * read("gemm", one) * read("rate16", one) * read("rate", one),
        gemm16=rates.gemm16 * read("gemm", one) * read("rate16", one),
        attention_forward=rates.attention_forward * read("attention_forward", one),
        attention_backward=rates.attention_backward * read("attention_backward", one),
        memory_traffic=read("memory_traffic", habits.memory_traffic),
        host_layer_seconds=read("host_layer_seconds", habits.host_layer_seconds),
        contention=read("contention", habits.contention),
        tp_overlap=1.0 - read("tp_exposed", 1.0 - habits.tp_overlap),
        dp_overlap=1.0 - read("dp_exposed", 1.0 - habits.dp_overlap),
        shard_overlap=1.0 - read("shard_exposed", 1.0 - habits.shard_overlap),
        update_gather_overlap=1.0 - read("update_exposed", 1.0 - habits.update_gather_overlap),
        gradient_bytes=read("gradient_bytes", habits.gradient_bytes),
        logit_bytes=read("logit_bytes", habits.logit_bytes),
        optimizer_bytes=read("optimizer_bytes", habits.optimizer_bytes),
        overhead_seconds=read("overhead_seconds", habits.overhead_seconds),
        straggler=read("straggler", habits.straggler),
        selective_share=read("selective_share", habits.selective_share),
        pipeline_host_seconds=read("pipeline_host_seconds", habits.pipeline_host_seconds),
        bucket_bytes=read("bucket_bytes", habits.bucket_bytes),
        ring_step_seconds=read("ring_step_seconds", np.asarray(links.ring_step_seconds)),
        congestion=read("congestion", np.asarray(links.congestion)),
        rail_scaling=read("rail_scaling", np.asarray(links.rail_scaling)),
    )


def row_weights(table: RunTable) -> Array:
    """Weights so that scales of one configuration share it, and no source dominates."""
    configurations = [
        configuration(*what) for what in zip(table.runs, table.plans, table.stacks, strict=True)
    ]
    repeats = Counter(configurations)
    per_row = np.array([repeats[c] for c in configurations], dtype=float)
    stacks = Counter(stack.name for stack in table.stacks)
    size = np.array([stacks[stack.name] for stack in table.stacks], dtype=float)
    result: Array = np.power(per_row, -0.25) * np.minimum(1.0, np.power(200.0 / size, 0.25))
    return result
