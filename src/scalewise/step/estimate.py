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
from typing import TYPE_CHECKING, cast, overload

import numpy as np

from scalewise.chip import Calibration, load_chip
from scalewise.errors import InputError
from scalewise.numeric import Array, Index, Mask, Num, every, lazy, mask
from scalewise.offload import offloads_of
from scalewise.optimizer import load_optimizer
from scalewise.physics import cost, power
from scalewise.physics.memory import fit_chance, fit_factor
from scalewise.precision import RECIPES
from scalewise.ranges import Basis, family_of, knowledge_of, parts_of
from scalewise.results import Result
from scalewise.software import Software, choose_stack
from scalewise.step.case import Case
from scalewise.step.compose import Step, compose
from scalewise.step.feasibility import feasibility
from scalewise.step.finite import check_finite, check_row
from scalewise.step.flops import recompute_flops
from scalewise.step.layout import lay_out
from scalewise.step.memory import MemoryParts, stage_memory, worst_rank
from scalewise.step.offload import host_bytes
from scalewise.step.result import Estimate
from scalewise.step.sequences import padding_flops, useful_flops
from scalewise.step.stages import stage_layers
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

    def precision_of(self, rows: int | Index) -> str:
        """Return the precision of GEMMs: that of the (first) strategy, or the workload's."""
        codes = self.strategies.precision
        if codes.size > 1:
            codes = np.broadcast_to(codes, self.strategies.shape).ravel()[rows]
        stated = decode("precision", float(np.ravel(codes)[0]))
        return str(stated or self.workload.precision)

    @lazy
    def comm_time(self) -> CommTime:
        """Communication of one rank, hidden or not."""
        return comm_time(self.case, self.step)

    @lazy
    def tokens_per_second(self) -> Array:
        """Tokens per second of the whole cluster, padding left out."""
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
            calibrated=self.chip.knows(RECIPES[self.precision_of(rows)].family),
            experts="none" if self.model.moe is None else "usual",
        )

    @lazy
    def training_flops(self) -> float:
        """FLOPs of a step per token that the tuning needs, in the convention."""
        return useful_flops(self.model, self.workload, self.convention)

    @lazy
    def tflops(self) -> Array:
        """Model TFLOP/s per accelerator, in the convention."""
        flops = self.training_flops
        return self.tokens_per_second_per_accelerator * flops / 1e12

    @lazy
    def mfu(self) -> Array:
        """Model FLOP/s over the peak of the precision."""
        return self.tflops * 1e12 / self.case.rates.peak

    @lazy
    def hfu(self) -> Array:
        """Like MFU, with recomputed FLOPs and those of padding counted."""
        peak, work = self.case.rates.peak, self.workload
        shape, bare = self.case.shape, work.lengths is None
        span = None if bare else shape.span
        extra = recompute_flops(self.case, self.model, work.seq_len, work.tuned, span)
        if bare:
            return self.mfu + self.tokens_per_second_per_accelerator * extra / peak
        computed = work.global_batch * shape.seq_len / self.step_seconds
        repeated = computed / self.cluster.accelerators * extra / peak
        return self.mfu + self.padding + repeated

    @lazy
    def padding(self) -> Array:
        """FLOP/s spent on padding over peak."""
        flops = padding_flops(self.case, self.model, self.workload)
        peak = self.case.rates.peak * self.cluster.accelerators
        return flops / self.step_seconds / peak

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
        most: Array = np.max(self._stages.total, axis=0)
        return most

    @lazy
    def host_memory_bytes(self) -> Array:
        """Peak memory of one host that offload takes, bytes; 0 without offload."""
        return cast("Array", host_bytes(self.case))

    @lazy
    def infeasible_code(self) -> Array:
        """0 where the strategy can run, else a place in `REASONS`."""
        factor = fit_factor(self.fit, self.stack.memory_interval)
        return feasibility(self.case, self.memory_bytes * factor)

    @lazy
    def fit_chance(self) -> Array:
        """Chance that the worst rank stays within its memory."""
        capacity = self.case.rates.memory_bytes
        return cast("Array", fit_chance(self.memory_bytes, capacity, self.stack.memory_interval))

    @lazy
    def feasible(self) -> Mask:
        """Whether the strategy can run."""
        return mask(self.infeasible_code == 0.0)

    @lazy
    def watts_per_accelerator(self) -> Array | None:
        """Mean power of one device over the step; None where its power is not published."""
        limit, idle = self.cluster.power_limit, self.cluster.idle
        if limit is None or idle is None:
            return None
        parts = self.terms.parts()
        return cast("Array", power.device_watts(parts, self.step_seconds, idle=idle, cap=limit))

    @lazy
    def facility_watts_per_accelerator(self) -> Array | None:
        """With its share of host and network, times PUE."""
        if self.watts_per_accelerator is None:
            return None
        cluster = self.cluster
        return cast(
            "Array",
            power.facility_watts(
                self.watts_per_accelerator,
                host=cluster.host_watts,
                network=cluster.network_watts,
                pue=cluster.pue,
            ),
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
        return cast("Array", cost.usd_per_token(price, rate) * 1e6)

    def __getitem__(self, row: int) -> Estimate:
        from scalewise.step.result import estimate_row

        with np.errstate(all="ignore"):
            found = estimate_row(self, row)
        check_row(found)
        return found


@overload
def estimate(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Strategy,
    *,
    stack: Software | Stack | str | None = None,
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
    stack: Software | Stack | str | None = None,
    convention: Convention = "causal",
    fit: float = STATED_FIT,
) -> Estimates: ...


def estimate(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Strategy | Sequence[Strategy] | Strategies,
    *,
    stack: Software | Stack | str | None = None,
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
        InputError: If a single strategy does not fit the cluster's size or the batch, or constants
            are so far off that a number is not finite.
    """
    single = isinstance(strategy, Strategy)
    if isinstance(strategy, Strategy):
        strategy.check_mesh(cluster.accelerators)
        strategy.microbatches_of(workload)
        _check_splits(model, workload, strategy)
        many = Strategies.one(strategy)
    else:
        many = strategy if isinstance(strategy, Strategies) else Strategies.of(strategy)
    mode = many.compiled.reshape(-1)[0]
    stated = decode("compiled", float(mode)) if every(many.compiled == mode) else None
    sharded = (many.sharding == encode("sharding", "zero3")) & (many.dp_shard > 1.0)
    software = choose_stack(
        stack,
        cluster,
        fully_sharded=every(sharded),
        frozen=workload.tuned.frozen,
        compiled=stated,
    )
    chip = load_chip(cluster.accelerator.architecture)
    # What is not finite is refused below, in a sentence.
    with np.errstate(all="ignore"):
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
            step_seconds=cast("Array", seconds),
        )
        check_finite(result)
    return result[0] if single else result


def _check_experts(model: Model, s: Strategy) -> None:
    """Refuse degrees of experts that do not divide what they split."""
    moe = model.moe
    if moe is None:
        if s.ep > 1 or s.etp > 1:
            name, degree = ("ep", s.ep) if s.ep > 1 else ("etp", s.etp)
            raise InputError(
                f"{name} = {degree} needs a mixture of experts, but {model.name} is dense",
                hint=f"drop the {name} token",
            )
        return
    stage = s.tp * s.cp * s.data_parallel
    inside = s.tp * s.cp * s.dp_shard
    for name, degree, whole, what in (
        ("ep", s.ep, moe.experts, f"experts of {model.name}"),
        ("etp", s.etp, moe.ffn, f"columns of an expert of {model.name}"),
        ("ep x etp", s.ep * s.etp, stage, "ranks of a pipeline stage (tp x cp x dp)"),
    ):
        if whole % degree:
            raise InputError(
                f"{name} = {degree} does not divide the {whole:,} {what}",
                hint=f"use a divisor of {whole:,}",
            )
    if s.sharding != "ddp" and inside % (s.ep * s.etp) and (s.ep * s.etp) % inside:
        raise InputError(
            f"ep x etp = {s.ep * s.etp} and the {inside} ranks of a sharding group (tp x cp x "
            "dp_shard) do not divide each other",
            hint="make one a multiple of the other",
        )
    if s.tp > 1 and not s.sequence_parallel:
        raise InputError(
            f"nosp: experts with tp = {s.tp} need sequence parallelism, which makes the tokens of "
            "each rank distinct",
            hint="drop the nosp token",
        )


def _check_tiles(model: Model, workload: Workload, s: Strategy) -> None:
    """Refuse tiles of an MLP that is not there, or of less than a token."""
    if s.mlp_tiles == 1:
        return
    if not model.dense_layers:
        raise InputError(
            f"mlp_tiles = {s.mlp_tiles} needs dense MLPs, but {model.name} has experts alone",
            hint="drop the tilemlp token",
        )
    tokens = s.micro_batch * workload.seq_len // s.cp
    if s.mlp_tiles > tokens:
        raise InputError(
            f"mlp_tiles = {s.mlp_tiles} is more than the {tokens:,} tokens of a micro-batch",
            hint="use tilemlp8",
        )


def _check_offload(workload: Workload, s: Strategy) -> None:
    """Refuse what cannot be offloaded."""
    words = offloads_of(s.offload)
    if "param" in words and s.sharding != "zero3":
        raise InputError(
            f"offparam needs fully sharded parameters, but the strategy is {s.sharding}",
            hint=f"use fsdp{s.data_parallel}, or offopt alone",
        )
    matmuls = load_optimizer(workload.optimizer).matmuls if "opt" in words else "none"
    if matmuls != "none":
        raise InputError(
            f"offopt does not support the optimizer {workload.optimizer}, whose products "
            f"({matmuls}) are too slow on CPUs",
            hint="use --optimizer adamw, or drop the offopt token",
        )


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
    if workload.batching == "bucketed" and strategy.cp > 1:
        raise InputError(
            f"cp = {strategy.cp} needs sequences of one length, but batching is bucketed",
            hint="use --batching packed, or drop the cp token",
        )
    _check_experts(model, strategy)
    shards = strategy.dp_shard * strategy.cp
    if strategy.backward_shard is not None and shards % strategy.backward_shard:
        raise InputError(
            f"backward_shard = {strategy.backward_shard} does not divide the {shards} ranks of a "
            "sharding group (dp_shard x cp)",
            hint="use hpz with a divisor of them, or drop the hpz token",
        )
    _check_tiles(model, workload, strategy)
    _check_offload(workload, strategy)
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
