"""Runs laid out as arrays, so that a whole table is predicted in one pass.

    table = RunTable.of(read_runs())
    table.case, table.measured, table.rejected

Rows that cannot be predicted are kept aside with their reason; none is dropped silently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalewise.chip import Calibration, load_chip
from scalewise.errors import InputError, ScalewiseError
from scalewise.evidence.runs import Plan, Run
from scalewise.numeric import Array, Mask
from scalewise.physics.memory import fit_factor
from scalewise.stack import Stack, stack_for
from scalewise.step.case import Case
from scalewise.step.estimate import RAN_FIT
from scalewise.step.layout import lay_out
from scalewise.step.memory import peak_memory
from scalewise.step.support import check_supported
from scalewise.strategies import Strategies

if TYPE_CHECKING:
    from collections.abc import Sequence


def _table_chip(architecture: str) -> Calibration:
    """The chip's kernel tables, with GEMM shares of 1 that the calibration multiplies in."""
    chip = load_chip(architecture)
    return msgspec.structs.replace(chip, gemm={"bf16": 1.0, "fp8": 1.0, "fp4": 1.0})


def completed_plan(run: Run) -> tuple[Plan, Stack]:
    """A run as nouns, with the stack that speaks for it.

    Where the row does not say what was recomputed, the least that fits into memory is taken: it
    ran, so it must have fitted.
    """
    plan = run.plan()
    stack = stack_of(run, plan)
    if run.states_recompute:
        return plan, stack
    check_supported(plan.model)
    chip = load_chip(plan.cluster.accelerator.architecture)
    choices = [plan.strategy.with_(recompute=kind) for kind in ("none", "selective", "full")]
    case = lay_out(plan.model, plan.cluster, plan.workload, Strategies.of(choices), stack, chip)
    low = np.asarray(peak_memory(case).total) * fit_factor(RAN_FIT, stack.memory_interval)
    fits = np.flatnonzero(low <= case.rates.memory_bytes)
    strategy = choices[int(fits[0]) if len(fits) else 0]
    note = f"recompute {strategy.recompute} (not stated; the least that fits)"
    return replace(plan, strategy=strategy, defaults=(*plan.defaults, note)), stack


def stack_of(run: Run, plan: Plan) -> Stack:
    """The stack that speaks for a run: by framework, date and kind of device."""
    return stack_for(
        run.framework,
        date=run.text("software_date") or "",
        device=plan.cluster.accelerator.kind,
        compiled=plan.strategy.compiled,
    )


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
                unit = msgspec.structs.replace(
                    stack, attention_forward=1.0, attention_backward=1.0, gemm=1.0
                )
                chip = _table_chip(plan.cluster.accelerator.architecture)
                check_supported(plan.model)
                plan.strategy.microbatches_of(plan.workload)
                case = lay_out(
                    plan.model,
                    plan.cluster,
                    plan.workload,
                    Strategies.of([plan.strategy]),
                    unit,
                    chip,
                )
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
