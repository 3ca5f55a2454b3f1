"""Runs laid out as arrays, so that a whole table is predicted in one pass.

    table = RunTable.of(read_runs())
    table.case, table.measured, table.rejected

Rows that cannot be predicted are kept aside with their reason; none is dropped silently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

import msgspec
import numpy as np

from scalewise.chip import Calibration, load_chip
from scalewise.errors import InputError, ScalewiseError
from scalewise.evidence.recipes import recipe_of
from scalewise.evidence.runs import Plan, Run, UnsupportedError
from scalewise.numeric import Array, Mask
from scalewise.physics.memory import fit_factor
from scalewise.precision import RECIPES
from scalewise.stack import AttentionKernel, Stack, stack_for
from scalewise.step.case import Case
from scalewise.step.estimate import RAN_FIT
from scalewise.step.layout import lay_out
from scalewise.step.memory import peak_memory
from scalewise.strategies import Strategies

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scalewise.strategy import Strategy


def _table_chip(architecture: str) -> Calibration:
    """The chip's kernel tables, with GEMM shares of 1 that the calibration multiplies in."""
    chip = load_chip(architecture)
    return msgspec.structs.replace(chip, gemm={"bf16": 1.0, "fp8": 1.0, "fp4": 1.0})


def _unit_case(plan: Plan, stack: Stack) -> Case:
    """The inputs of one run, with shares of 1 that the calibration multiplies in."""
    unit = msgspec.structs.replace(stack, attention_forward=1.0, attention_backward=1.0, gemm=1.0)
    chip = _table_chip(plan.cluster.accelerator.architecture)
    plan.strategy.microbatches_of(plan.workload)
    many = Strategies.of([plan.strategy])
    return lay_out(plan.model, plan.cluster, plan.workload, many, unit, chip)


def completed_plan(run: Run) -> tuple[Plan, Stack]:
    """A run as nouns, with the stack that speaks for it.

    It ran, so it must have fitted. Where the row does not say what was recomputed, the smallest
    number of blocks is taken that fits into memory. Where nothing fits, the software is taken with
    a setting that saves memory.

    Raises:
        UnsupportedError: If it states no sharding, and fits neither as taken nor fully sharded.
    """
    plan = run.plan()
    stack = stack_of(run, plan)
    notes: list[str] = []
    choices = [plan.strategy] if run.states_recompute else recompute_choices(plan, stack)
    place = _first_fit(plan, stack, choices)
    if place is None and run.text("recompute") in (None, "unknown"):
        # The recipe of the release does not fit: the row states another setting.
        choices = recompute_choices(plan, stack)
        place = _first_fit(plan, stack, choices)
        notes.append("recompute of more than the recipe (nothing else fits)")
    for saving, words in _saving(stack, plan.strategy) if place is None else ():
        place = _first_fit(plan, saving, choices)
        if place is not None:
            stack = saving
            notes.append(f"{words} (not stated; nothing else fits)")
            break
    if place is None and run.text("sharding") is None:
        choices = [_sharded(strategy) for strategy in choices]
        place = _first_fit(plan, stack, choices)
        if place is None:
            raise UnsupportedError("layout not stated: what is stated does not fit into memory")
        notes.append("sharding zero3 (not stated; the least that fits)")
    strategy = choices[place or 0]
    if not run.states_recompute:
        notes.append(f"recompute {strategy.recompute} (not stated; the least that fits)")
    return replace(plan, strategy=strategy, defaults=(*plan.defaults, *notes)), stack


def _saving(stack: Stack, strategy: Strategy) -> Iterator[tuple[Stack, str]]:
    """The software with settings that save memory, each with its name."""
    replaced = msgspec.structs.replace
    if strategy.sharding == "zero2":
        yield replaced(stack, zero2_every_micro_step=True), "gradients reduced in every micro-batch"
    if stack.keeps_sp_all_gather:
        yield replaced(stack, keeps_sp_all_gather=False), "second all-gather of inputs"
    yield replaced(stack, logit_memory=0.0), "chunked loss"


def _sharded(s: Strategy) -> Strategy:
    """The same with everything sharded over all data-parallel ranks."""
    return s.with_(sharding="zero3", dp_replicate=1, dp_shard=s.data_parallel)


def recompute_choices(plan: Plan, stack: Stack) -> list[Strategy]:
    """Strategies that recompute more and more: none, stored scores, then block after block."""
    layers = plan.model.layers
    kinds = ["none", *(f"{count}of{layers}" for count in range(1, layers)), "full"]
    if stack.attention_kernel == "unfused":
        kinds.insert(1, "attention")
    return [plan.strategy.with_(recompute=kind) for kind in kinds]


def _first_fit(plan: Plan, stack: Stack, choices: Sequence[Strategy]) -> int | None:
    """The place of the first strategy that may have fitted; None if none of them does."""
    chip = load_chip(plan.cluster.accelerator.architecture)
    many = Strategies.of(choices)
    case = lay_out(plan.model, plan.cluster, plan.workload, many, stack, chip)
    low = np.asarray(peak_memory(case).total) * fit_factor(RAN_FIT, stack.memory_interval)
    fits = np.flatnonzero(low <= case.rates.memory_bytes)
    return int(fits[0]) if len(fits) else None


ASYNC_TP = 0.55
"""Fraction of tensor-parallel traffic that PyTorch's asynchronous TP overlaps: between what two
published pairs with and without it gain (1.09 in bf16, 1.16 in fp8)."""


FUSED_LOSS = ("fused linear cross-entropy", "loss implementation fused-linear")
"""What notes call a loss inside the LM head, which never holds all logits."""


def stack_of(run: Run, plan: Plan) -> Stack:
    """The stack that speaks for a run: by framework, date, device and mode.

    What the row says of its own code (attention kernel, asynchronous TP, fused loss) goes before
    the stack's.
    """
    if run.stack is not None:
        return run.stack
    accelerator, date = plan.cluster.accelerator, run.text("software_date") or ""
    stack = stack_for(
        run.framework,
        date=date,
        device=accelerator.kind,
        compiled=run.flag("compiled"),
        fully_sharded=plan.strategy.sharding == "zero3",
    )
    changes: dict[str, object] = {}
    recipe = recipe_of(run) if plan.model.moe is not None else None
    stated = run.text("attention_kernel")
    if recipe is not None and stack.family == "megatron":
        # Its grouped GEMMs are those of Transformer Engine, and so is attention then.
        stated = stated or "te"
    kernel = attention_kernel(stated, date, accelerator.architecture)
    if kernel is not None and accelerator.kind == "gpu":
        changes["attention_kernel"] = kernel
    notes = run.text("notes") or ""
    if "async TP" in notes:
        changes["tp_overlap"] = ASYNC_TP
    if recipe is not None:
        changes |= {
            "dispatcher": recipe.dispatcher,
            "cuda_graphs": recipe.cuda_graphs,
            "overlaps_all_to_all": recipe.overlap,
            "fused_experts": recipe.fused,
        }
    if any(word in notes for word in FUSED_LOSS):
        changes["logit_memory"] = 0.0
    return msgspec.structs.replace(stack, **changes) if changes else stack


def attention_kernel(word: str | None, date: str, architecture: str) -> str | None:
    """Return the generation of an attention kernel that a row names, or None.

    Args:
        word: As in the runs table: "unfused", "flash", "te" and the like.
        date: Software date; FlashAttention-2 is of July 2023 (arXiv 2307.08691).
        architecture: Transformer Engine takes cuDNN's kernel from Hopper on.
    """
    if word == "flash":
        return "flash2" if date >= "2023-08" else "flash1"
    if word == "te":
        return "flash2" if architecture == "ampere" else "cudnn"
    return word if word in get_args(AttentionKernel) else None


@dataclass(frozen=True, kw_only=True)
class RunTable:
    """Predictable runs as arrays, and the others with reasons."""

    runs: list[Run]
    plans: list[Plan]
    stacks: list[Stack]
    """The stack that speaks for each run."""
    case: Case
    """Inputs of every run; rates are datasheet peaks, without efficiencies."""
    measured: Array
    """Tokens/s per accelerator; NaN where the run has none."""
    rejected: list[tuple[Run, str]]
    """Runs that cannot be predicted, with the reason."""

    def __len__(self) -> int:
        return len(self.runs)

    @classmethod
    def of(cls, runs: Sequence[Run]) -> RunTable:
        """Lay out runs; what cannot be predicted goes to `rejected`."""
        kept: list[tuple[Run, Plan, Stack, Case, float]] = []
        rejected: list[tuple[Run, str]] = []
        for run in runs:
            try:
                plan, stack = completed_plan(run)
                case = _unit_case(plan, stack)
            except ScalewiseError as error:
                rejected.append((run, str(error)))
                continue
            kept.append((run, plan, stack, case, run.tokens_per_second or float("nan")))
        if not kept:
            raise InputError(
                "no run of the table can be predicted"
                + (f": {rejected[0][1]}" if rejected else ""),
                hint="see the columns of the shipped table",
            )
        return cls(
            runs=[k[0] for k in kept],
            plans=[k[1] for k in kept],
            stacks=[k[2] for k in kept],
            case=Case.join([k[3] for k in kept]),
            measured=np.array([k[4] for k in kept]),
            rejected=rejected,
        )

    def with_stacks(self, stacks: Sequence[Stack]) -> RunTable:
        """The same runs with other software."""
        cases = [_unit_case(*each) for each in zip(self.plans, stacks, strict=True)]
        return replace(self, stacks=list(stacks), case=Case.join(cases))

    def select(self, mask: Mask) -> RunTable:
        """The rows where `mask` is true."""
        keep = np.flatnonzero(mask)
        return RunTable(
            runs=[self.runs[i] for i in keep],
            plans=[self.plans[i] for i in keep],
            stacks=[self.stacks[i] for i in keep],
            case=self.case.take(keep),
            measured=self.measured[keep],
            rejected=[],
        )


def precision_families(table: RunTable) -> list[str]:
    """The family of precisions of every row, as calibrations name it: "bf16", "fp8" or "fp4"."""
    return [RECIPES[plan.workload.precision].family for plan in table.plans]
