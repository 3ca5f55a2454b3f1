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
from functools import cached_property
from typing import TYPE_CHECKING, overload

import numpy as np

from scalewise.catalog import knows, names
from scalewise.chip import Calibration, load_chip
from scalewise.errors import InputError, did_you_mean, is_like
from scalewise.numeric import Array, Mask
from scalewise.physics import money, power
from scalewise.stack import Stack, load_stack, stack_for
from scalewise.step.case import Case
from scalewise.step.feasibility import REASONS, feasibility
from scalewise.step.flops import recompute_flops
from scalewise.step.memory import MemoryParts, fullest, stage_memory
from scalewise.step.result import Estimate
from scalewise.step.stages import stage_layers
from scalewise.step.support import check_supported
from scalewise.step.terms import Load, Terms, communication_load, step_terms
from scalewise.step.work import Work, work
from scalewise.strategies import Strategies, encode
from scalewise.strategy import Strategy

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Convention, Model
    from scalewise.workload import Workload

DEFAULT_STACKS = {"gpu": "megatron", "tpu": "maxtext-tpu", "other": "neuronx"}
"""Software assumed when none is named: the best validated one for the kind of device."""


# Predictions closer than this are one: repeats of a run differ by about 1 % (FSDP tables) and
# ZeRO-0/1 twins of a sweep by 1.1 % in the median. Chosen after 0 and 2 % with the sweeps' regret
# in view, so the regret reported with it is in sample.
NEAR_TIE = 0.015

# Widening per doubling beyond the runs a stack has seen. Fitted on FSDP up to 512 GPUs, the model
# loses 24 % from 128 to 2,048 H100s where arXiv 2411.13055 measured 37 %: 9 % per doubling.
EXTRAPOLATION = 1.09


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Many estimates of one model, cluster and workload: arrays over strategies."""

    model: Model
    cluster: Cluster
    workload: Workload
    strategies: Strategies
    stack: Stack
    chip: Calibration
    convention: Convention
    """How FLOPs are counted in `tflops`, `mfu` and `hfu`."""
    defaults: tuple[str, ...]
    """What was chosen for the user."""
    case: Case
    work: Work
    """What its layers and its slowest stage do."""
    terms: Terms
    step_seconds: Array
    """Time of one optimizer step: the sum of its terms."""

    def __len__(self) -> int:
        return len(self.strategies)

    @cached_property
    def load(self) -> Load:
        """Communication of one rank, hidden or not."""
        return communication_load(self.case, self.work)

    @cached_property
    def tokens_per_second(self) -> Array:
        """Tokens per second of the whole cluster."""
        return self.workload.tokens_per_step / self.step_seconds

    @cached_property
    def tokens_per_second_per_accelerator(self) -> Array:
        """Tokens per second of one accelerator."""
        return self.tokens_per_second / self.cluster.accelerators

    @cached_property
    def interval(self) -> tuple[float, float]:
        """80 % interval of throughput, as factors.

        The residuals of the stack, widened by an uncalibrated chip and by every doubling beyond
        the largest run the stack was fitted on.
        """
        beyond = 1.0
        if self.stack.largest_run and self.cluster.accelerators > self.stack.largest_run:
            doublings = np.log2(self.cluster.accelerators / self.stack.largest_run)
            beyond = float(EXTRAPOLATION**doublings)
        low = self.stack.interval[0] * self.chip.interval[0] / beyond
        return low, self.stack.interval[1] * self.chip.interval[1] * beyond

    @cached_property
    def tflops(self) -> Array:
        """Model TFLOP/s per accelerator, in the convention."""
        flops = self.model.training_flops(self.workload.sequence, self.convention)
        return self.tokens_per_second_per_accelerator * flops / 1e12

    @cached_property
    def mfu(self) -> Array:
        """Model FLOP/s over the peak of the precision."""
        return self.tflops * 1e12 / self.case.peak

    @cached_property
    def hfu(self) -> Array:
        """Like MFU, with recomputed FLOPs counted."""
        extra = recompute_flops(self.case, self.model, self.workload.sequence)
        return self.mfu + self.tokens_per_second_per_accelerator * extra / self.case.peak

    @cached_property
    def _stages(self) -> MemoryParts:
        """Memory of every stage that can be the fullest."""
        return stage_memory(self.case)

    @cached_property
    def memory(self) -> MemoryParts:
        """Memory of the fullest rank by part."""
        return fullest(self._stages)

    @cached_property
    def memory_bytes(self) -> Array:
        """Peak memory of the fullest rank."""
        return np.asarray(np.max(self._stages.total, axis=0))

    @cached_property
    def infeasible_code(self) -> Array:
        """0 where the strategy can run, else a place in `REASONS`."""
        return feasibility(self.case, self.memory_bytes * self.stack.memory_interval[0])

    @cached_property
    def feasible(self) -> Mask:
        """Whether the strategy can run."""
        return np.asarray(self.infeasible_code == 0.0)

    @cached_property
    def watts_per_accelerator(self) -> Array | None:
        """Mean power of one device over the step; None where its power is not published."""
        limit, idle = self.cluster.power_limit, self.cluster.idle
        if limit is None or idle is None:
            return None
        parts = self.terms.parts()
        return np.asarray(power.device_watts(parts, self.step_seconds, idle=idle, cap=limit))

    @cached_property
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

    @cached_property
    def joules_per_token(self) -> Array | None:
        """Energy of the site per token."""
        if self.facility_watts_per_accelerator is None:
            return None
        return self.facility_watts_per_accelerator / self.tokens_per_second_per_accelerator

    @cached_property
    def usd_per_million_tokens(self) -> Array | None:
        """Rent per million tokens; None where no price is known."""
        price = self.cluster.usd_per_hour
        if price is None:
            return None
        rate = self.tokens_per_second_per_accelerator
        return np.asarray(money.dollars_per_token(price, rate)) * 1e6

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
) -> Estimates: ...


def estimate(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Strategy | Sequence[Strategy] | Strategies,
    *,
    stack: Stack | str | None = None,
    convention: Convention = "causal",
) -> Estimate | Estimates:
    """Predict what one training step costs.

    Args:
        model: What is trained.
        cluster: On what; its accelerators must be the product of the strategy's degrees.
        workload: Sequence length, global batch, precision.
        strategy: How the work is split; one, or many.
        stack: Software, by name or as constants; by default the best validated one for the
            kind of accelerator.
        convention: How FLOPs are counted: "causal", "palm", "megatron" or "6n".

    Returns:
        An `Estimate` for one strategy, `Estimates` for many.

    Raises:
        InputError: If a single strategy does not fit the cluster's size or the batch.
        UnsupportedModelError: If the model has parts that are not modelled.
    """
    check_supported(model)
    single = isinstance(strategy, Strategy)
    if isinstance(strategy, Strategy):
        strategy.check_mesh(cluster.accelerators)
        strategy.micro_steps(workload)
        _check_splits(model, workload, strategy)
        many = Strategies.of([strategy])
    else:
        many = strategy if isinstance(strategy, Strategies) else Strategies.of(strategy)
    eager = (many.compiled == encode("compiled", False)).all()
    software, note = choose_stack(stack, cluster, compiled=False if eager else None)
    if isinstance(strategy, Strategy) and strategy.compiled not in (None, software.compiled):
        raise InputError(
            f"the strategy says {'compiled' if strategy.compiled else 'eager'}, but stack "
            f"{software.name} is {'compiled' if software.compiled else 'eager'}",
            hint="drop the word from the strategy, or name generic-eager or generic-compiled",
        )
    chip = load_chip(cluster.accelerator.architecture)
    case = Case.of(model, cluster, workload, many, software, chip)
    done = work(case)
    terms, seconds = step_terms(case, done)
    result = Estimates(
        model=model,
        cluster=cluster,
        workload=workload,
        strategies=many,
        stack=software,
        chip=chip,
        convention=convention,
        defaults=() if note is None else (note,),
        case=case,
        work=done,
        terms=terms,
        step_seconds=np.asarray(seconds),
    )
    return result[0] if single else result


def choose_stack(
    stack: Stack | str | None, cluster: Cluster, *, compiled: bool | None
) -> tuple[Stack, str | None]:
    """Find the software constants for a name, a framework, or nothing.

    Args:
        stack: Constants, the name or file of a stack, the name of a framework, or None.
        cluster: Whose devices it must run on.
        compiled: What the strategy says of the code, or None.

    Returns:
        The stack, and a sentence where it was chosen for the user: the best validated one for the
        device, or the generic one for a framework that the catalog does not know.

    Raises:
        InputError: If the stack does not run on the device.
    """
    kind, note = cluster.accelerator.kind, None
    if stack is None:
        stack = "generic-eager" if compiled is False else DEFAULT_STACKS[kind]
        if knows("stacks", cluster.name):
            # A calibrated machine has software of its own name.
            stack = cluster.name
        note = f"software stack {stack}"
    if isinstance(stack, Stack):
        software = stack
    elif stack.endswith(".toml") or knows("stacks", stack):
        software = load_stack(stack)
    else:
        # A misspelt name is an error; a name like no other is software we have never seen.
        if is_like(stack, names("stacks")):
            raise InputError(
                f"`{stack}` is not in the catalog of stacks",
                hint=did_you_mean(stack, names("stacks")),
            )
        software = stack_for(stack, device=kind, compiled=compiled)
        note = f"software stack {software.name} for {stack}"
        if software.name.startswith("generic"):
            note += ", which the catalog does not know"
    if software.devices not in (kind, "any"):
        raise InputError(
            f"stack {software.name} runs on a {software.devices}, but "
            f"{cluster.accelerator.name} is a {kind}",
            hint=f"leave the stack out for {DEFAULT_STACKS[kind]}, or use generic-compiled",
        )
    return software, note


def _check_splits(model: Model, workload: Workload, strategy: Strategy) -> None:
    """Refuse degrees that do not divide what they split."""
    if model.heads % strategy.tp:
        divisors = [str(d) for d in range(1, model.heads + 1) if model.heads % d == 0]
        raise InputError(
            f"tp = {strategy.tp} does not divide the {model.heads} attention heads of {model.name}",
            hint=f"use tp {', '.join(divisors)}",
        )
    if workload.sequence % strategy.cp:
        raise InputError(
            f"cp = {strategy.cp} does not divide the sequence of {workload.sequence} tokens",
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


__all__ = ["DEFAULT_STACKS", "NEAR_TIE", "REASONS", "Estimates", "choose_stack", "estimate"]
