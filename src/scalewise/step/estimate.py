"""What one training step costs: the verb of scalewise.

    e = estimate(model, cluster, workload, strategy)
    e.tokens_per_second_per_accelerator, e.terms, e.memory, e.infeasible
    many = estimate(model, cluster, workload, [strategy, ...])       # arrays, same lines
    many.step_seconds, many[3]

One strategy gives an `Estimate` of plain numbers; a sequence (or a `Strategies` of arrays) gives
`Estimates`. A strategy that cannot run is still an answer: `infeasible` holds the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, overload

import numpy as np

from scalewise.chip import Calibration, load_chip
from scalewise.errors import InputError
from scalewise.numeric import Array, Index, Mask, Num, lazy
from scalewise.physics import cost, power
from scalewise.physics.memory import fit_chance, fit_factor
from scalewise.ranges import Basis, family_of, knowledge_of, parts_of
from scalewise.results import Result
from scalewise.software import choose_stack
from scalewise.step.case import Case
from scalewise.step.compose import Step, compose
from scalewise.step.feasibility import feasibility
from scalewise.step.flops import recompute_flops
from scalewise.step.layout import lay_out
from scalewise.step.memory import MemoryParts, stage_memory, worst_rank
from scalewise.step.result import Estimate
from scalewise.step.stages import stage_layers
from scalewise.step.support import check_supported
from scalewise.step.terms import CommTime, Terms, comm_time, step_terms
from scalewise.strategies import Strategies, decode, encode
from scalewise.strategy import Strategy

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Convention, Model
    from scalewise.stack import Stack
    from scalewise.workload import Workload

STATED_FIT = 0.5
"""Chance to fit that is demanded of a strategy the user names: predicted memory within capacity."""

CHOSEN_FIT = 0.9
"""Chance to fit that is demanded of a strategy that is chosen or suggested: the upper end of the
80% interval within capacity."""

RAN_FIT = 0.1
"""Chance to fit below which even a run that is known to have run would be refused."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Estimates(Result):
    """Many estimates of one model, cluster and workload: arrays over strategies."""

    model: Model
    cluster: Cluster
    workload: Workload
    strategies: Strategies
    stack: Stack
    others: tuple[Stack, ...]
    """Stacks that are plausible as well, where none was named: the interval covers them."""
    chip: Calibration
    convention: Convention
    """How FLOPs are counted in `tflops`, `mfu` and `hfu`."""
    fit: float
    """Chance to fit into memory below which a strategy counts as infeasible."""
    defaults: tuple[str, ...]
    """What was chosen for the user."""
    case: Case
    step: Step
    """What its layers, its slowest stage and its pipeline do."""
    terms: Terms
    step_seconds: Array
    """Time of one optimizer step: the sum of its terms."""

    def __len__(self) -> int:
        return len(self.strategies)

    @lazy
    def comm_time(self) -> CommTime:
        """Communication of one rank, hidden or not."""
        return comm_time(self.case, self.step)

    @lazy
    def tokens_per_second(self) -> Array:
        """Tokens per second of the whole cluster."""
        return self.workload.tokens_per_step / self.step_seconds

    @lazy
    def tokens_per_second_per_accelerator(self) -> Array:
        """Tokens per second of one accelerator."""
        return self.tokens_per_second / self.cluster.accelerators

    @lazy
    def beyond(self) -> float:
        """Doublings of GPUs beyond the largest run the stack was fitted on."""
        largest = self.stack.largest_run
        return max(float(np.log2(self.cluster.accelerators / largest)), 0.0) if largest else 0.0

    def basis(self, rows: int | Index) -> Basis:
        """Return what the intervals of levels and ratios of some rows depend on."""
        stack, shape = self.stack, self.strategies.shape

        def pick(values: Num) -> Num:
            return np.broadcast_to(values, shape).ravel()[rows]

        terms = {name: pick(seconds) for name, seconds in self.terms.parts().items()}
        return Basis(
            rate=pick(self.tokens_per_second_per_accelerator),
            parts=parts_of(terms, pick(self.step_seconds)),
            software=stack.name,
            family=family_of(stack),
            chip=self.chip.name,
            accelerators=self.cluster.accelerators,
            beyond=self.beyond,
            parameters=float(self.model.parameters),
            seq_len=self.workload.seq_len,
            tokens=self.workload.tokens_per_step / self.cluster.accelerators,
            knowledge=knowledge_of(stack, stated=not self.others),
            own_runs=stack.own_runs,
            own_noise=stack.own_noise,
            calibrated=self.chip.calibrated,
        )

    @lazy
    def tflops(self) -> Array:
        """Model TFLOP/s per accelerator, in the convention."""
        flops = self.model.training_flops(self.workload.seq_len, self.convention)
        return self.tokens_per_second_per_accelerator * flops / 1e12

    @lazy
    def mfu(self) -> Array:
        """Model FLOP/s over the peak of the precision."""
        return self.tflops * 1e12 / self.case.rates.peak

    @lazy
    def hfu(self) -> Array:
        """Like MFU, with recomputed FLOPs counted."""
        extra = recompute_flops(self.case, self.model, self.workload.seq_len)
        return self.mfu + self.tokens_per_second_per_accelerator * extra / self.case.rates.peak

    @lazy
    def _stages(self) -> MemoryParts:
        """Memory of every stage of which the worst rank may be."""
        return stage_memory(self.case)

    @lazy
    def memory(self) -> MemoryParts:
        """Memory of the worst rank by part."""
        return worst_rank(self._stages)

    @lazy
    def memory_bytes(self) -> Array:
        """Peak memory of the worst rank."""
        return np.asarray(np.max(self._stages.total, axis=0))

    @lazy
    def infeasible_code(self) -> Array:
        """0 where the strategy can run, else a place in `REASONS`."""
        factor = fit_factor(self.fit, self.stack.memory_interval)
        return feasibility(self.case, self.memory_bytes * factor)

    @lazy
    def fit_chance(self) -> Array:
        """Chance that the worst rank stays within its memory."""
        capacity = self.case.rates.memory_bytes
        return np.asarray(fit_chance(self.memory_bytes, capacity, self.stack.memory_interval))

    @lazy
    def feasible(self) -> Mask:
        """Whether the strategy can run."""
        return np.asarray(self.infeasible_code == 0.0)

    @lazy
    def watts_per_accelerator(self) -> Array | None:
        """Mean power of one device over the step; None where its power is not published."""
        limit, idle = self.cluster.power_limit, self.cluster.idle
        if limit is None or idle is None:
            return None
        parts = self.terms.parts()
        return np.asarray(power.device_watts(parts, self.step_seconds, idle=idle, cap=limit))

    @lazy
    def facility_watts_per_accelerator(self) -> Array | None:
        """With its share of host and network, times PUE."""
        if self.watts_per_accelerator is None:
            return None
        cluster = self.cluster
        return np.asarray(
            power.facility_watts(
                self.watts_per_accelerator,
                host=cluster.host_watts,
                network=cluster.network_watts,
                pue=cluster.pue,
            )
        )

    @lazy
    def joules_per_token(self) -> Array | None:
        """Energy of the site per token."""
        if self.facility_watts_per_accelerator is None:
            return None
        return self.facility_watts_per_accelerator / self.tokens_per_second_per_accelerator

    @lazy
    def usd_per_million_tokens(self) -> Array | None:
        """Rent per million tokens; None where no price is known."""
        price = self.cluster.usd_per_hour
        if price is None:
            return None
        rate = self.tokens_per_second_per_accelerator
        return np.asarray(cost.usd_per_token(price, rate)) * 1e6

    def __getitem__(self, row: int) -> Estimate:
        from scalewise.step.result import estimate_row

        return estimate_row(self, row)


@overload
def estimate(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Strategy,
    *,
    stack: Stack | str | None = None,
    convention: Convention = "causal",
    fit: float = STATED_FIT,
) -> Estimate: ...


@overload
def estimate(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Sequence[Strategy] | Strategies,
    *,
    stack: Stack | str | None = None,
    convention: Convention = "causal",
    fit: float = STATED_FIT,
) -> Estimates: ...


def estimate(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Strategy | Sequence[Strategy] | Strategies,
    *,
    stack: Stack | str | None = None,
    convention: Convention = "causal",
    fit: float = STATED_FIT,
) -> Estimate | Estimates:
    """Predict what one training step costs.

    Args:
        model: What is trained.
        cluster: On what; its accelerators must be the product of the strategy's degrees.
        workload: Sequence length, global batch, precision.
        strategy: How the work is split; one, or many.
        stack: Software, by name or as constants; by default what is usual for the strategy and
            the device, with an interval that covers the other plausible stacks. Many strategies
            share one: PyTorch if all are fully sharded, else Megatron.
        convention: How FLOPs are counted: "causal", "palm", "megatron" or "6n".
        fit: Chance to fit into memory below which a strategy counts as infeasible.

    Returns:
        An `Estimate` for one strategy, `Estimates` for many.

    Raises:
        InputError: If a single strategy does not fit the cluster's size or the batch.
        UnsupportedModelError: If the model has parts that are not modeled.
    """
    check_supported(model)
    single = isinstance(strategy, Strategy)
    if isinstance(strategy, Strategy):
        strategy.check_mesh(cluster.accelerators)
        strategy.microbatches_of(workload)
        _check_splits(model, workload, strategy)
        many = Strategies.of([strategy])
    else:
        many = strategy if isinstance(strategy, Strategies) else Strategies.of(strategy)
    mode = many.compiled.flat[0]
    stated = decode("compiled", float(mode)) if (many.compiled == mode).all() else None
    software = choose_stack(
        stack,
        cluster,
        fully_sharded=bool(
            ((many.sharding == encode("sharding", "zero3")) & (many.dp_shard > 1.0)).all()
        ),
        compiled=stated,
    )
    chip = load_chip(cluster.accelerator.architecture)
    case = lay_out(model, cluster, workload, many, software.stack, chip)
    step = compose(case)
    terms, seconds = step_terms(case, step)
    result = Estimates(
        model=model,
        cluster=cluster,
        workload=workload,
        strategies=many,
        stack=software.stack,
        others=software.others,
        chip=chip,
        convention=convention,
        fit=fit,
        defaults=() if software.reason is None else (software.default,),
        case=case,
        step=step,
        terms=terms,
        step_seconds=np.asarray(seconds),
    )
    return result[0] if single else result


def _check_splits(model: Model, workload: Workload, strategy: Strategy) -> None:
    """Refuse degrees that do not divide what they split."""
    if model.heads % strategy.tp:
        divisors = [str(d) for d in range(1, model.heads + 1) if model.heads % d == 0]
        raise InputError(
            f"tp = {strategy.tp} does not divide the {model.heads} attention heads of {model.name}",
            hint=f"use tp {', '.join(divisors)}",
        )
    if workload.seq_len % strategy.cp:
        raise InputError(
            f"cp = {strategy.cp} does not divide the sequence of {workload.seq_len} tokens",
            hint="use a divisor of the sequence length",
        )
    if strategy.ep > 1 and model.moe is None:
        raise InputError(
            f"ep = {strategy.ep} needs a mixture of experts, but {model.name} is dense",
            hint="drop the ep token",
        )
    stage_layers(
        model,
        strategy.pp,
        first=strategy.first_stage_layers,
        last=strategy.last_stage_layers,
    )
    chunks = strategy.pp * strategy.virtual_stages
    if strategy.pp > 1 and strategy.schedule == "zbv" and 2 * strategy.pp > model.layers:
        raise InputError(
            f"schedule zbv makes two chunks of each of {strategy.pp} stages, more than the "
            f"{model.layers} layers of {model.name}",
            hint=f"use at most pp{model.layers // 2}, or zbh1",
        )
    # Embedding and head may take the place of a layer each.
    if chunks > model.layers + 2:
        raise InputError(
            f"pp = {strategy.pp} x virtual_stages = {strategy.virtual_stages} makes {chunks} "
            f"chunks of the {model.layers} layers of {model.name}",
            hint=f"keep pp x v at or below {model.layers + 2}",
        )
