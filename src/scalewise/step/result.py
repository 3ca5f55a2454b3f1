"""One estimate as plain numbers: what it costs, where the time goes, how sure, from where.

    e.step_seconds                 # the sum of e.terms
    e.waterfall()                  # from the chip's peak to the achieved rate, losses named
    e.to_dict()                    # everything, ready for JSON

Data only: tables and pictures of it live in `scalewise.report`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.step.feasibility import REASONS
from scalewise.step.terms import TERM_NAMES

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Convention, Model
    from scalewise.stack import Stack
    from scalewise.step.estimate import Estimates
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload

GIB = float(2**30)

# Terms in which a device computes what the model needs; their excess over the ideal time is the
# kernels' inefficiency.
COMPUTE_TERMS = ("gemm", "attention", "head")

# Exposed communication by group, as terms of the step.
EXPOSED_TERMS = {
    "tensor_parallel": ("tensor_parallel",),
    "context_parallel": ("context_parallel",),
    "data_parallel": ("data_parallel_gather", "data_parallel_reduce"),
    "pipeline": ("pipeline_send",),
}


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What one training step costs. SI units; `low` and `high` bound 80 % of cases."""

    model: Model
    cluster: Cluster
    workload: Workload
    strategy: Strategy
    stack: Stack
    micro_steps: int
    """Micro steps per optimizer step."""
    step_seconds: float
    """Time of one optimizer step: the sum of `terms`."""
    terms: dict[str, float]
    """Seconds of the step by what they are spent on, in order; they add up."""
    load: dict[str, float]
    """Seconds of communication by group, hidden or not."""
    exposed: dict[str, float]
    """Seconds of communication by group that nothing hides."""
    tokens_per_second: float
    """Of the whole cluster."""
    tokens_per_second_per_accelerator: float
    low: float
    """Low end of the 80 % interval of tokens/s per accelerator."""
    high: float
    """High end of it."""
    convention: Convention
    """How FLOPs are counted."""
    tflops: float
    """Model TFLOP/s per accelerator."""
    mfu: float
    """Model FLOP/s over peak."""
    hfu: float
    """The same with recomputed FLOPs counted."""
    peak_flops: float
    """Datasheet FLOP/s of one accelerator at the precision."""
    memory: dict[str, float]
    """Bytes on the fullest rank by what they hold; they add up to `memory_bytes`."""
    memory_bytes: float
    memory_low: float
    """Low end of the 80 % interval of memory."""
    memory_high: float
    memory_capacity: float
    """Bytes of one accelerator."""
    infeasible: str | None
    """Why it cannot run, or None."""
    watts_per_accelerator: float | None
    """Mean power of one device; None where it is not published."""
    facility_watts_per_accelerator: float | None
    """With host, network and PUE."""
    joules_per_token: float | None
    tokens_per_joule: float | None
    usd_per_hour: float | None
    """Price of the whole cluster for an hour."""
    usd_per_million_tokens: float | None
    provenance: dict[str, str]
    """Where the numbers behind each part came from."""
    defaults: tuple[str, ...]
    """What was chosen for the user."""
    warnings: tuple[str, ...]
    """What to know before trusting it."""

    @property
    def feasible(self) -> bool:
        """Whether it can run."""
        return self.infeasible is None

    @property
    def memory_headroom(self) -> float:
        """Bytes left on the fullest rank."""
        return self.memory_capacity - self.memory_bytes

    @property
    def exposed_share(self) -> float:
        """Share of the step spent in communication that nothing hides."""
        return sum(self.exposed.values()) / self.step_seconds

    @property
    def days(self) -> float | None:
        """Days to train the workload's token budget, without failures; None without a budget."""
        if self.workload.tokens is None:
            return None
        return self.workload.tokens / self.tokens_per_second / 86400.0

    def waterfall(self) -> dict[str, float]:
        """From the chip's peak to the achieved rate: shares of peak, each loss named.

        Starts with "peak" (1.0), lists what every loss takes from it, ends with "achieved" (the
        MFU); peak minus the losses is exactly achieved.
        """
        step, terms = self.step_seconds, self.terms
        computing = sum(terms[name] for name in COMPUTE_TERMS)
        losses = {"kernel efficiency": computing / step - self.mfu}
        names = {name: label for name, label in TERM_NAMES.items() if name not in COMPUTE_TERMS}
        losses |= {label: terms[name] / step for name, label in names.items()}
        return {"peak": 1.0, **{k: -v for k, v in losses.items()}, "achieved": self.mfu}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON and tables."""
        plain: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, msgspec.Struct):
                value = str(value) if field.name == "strategy" else _plain_noun(field.name, value)
            elif isinstance(value, tuple):
                value = list(value)
            plain[field.name] = value
        plain["feasible"] = self.feasible
        plain["memory_headroom"] = self.memory_headroom
        plain["exposed_share"] = self.exposed_share
        plain["waterfall"] = self.waterfall()
        plain["days"] = self.days
        return plain

    def _repr_html_(self) -> str:
        from scalewise.report.html import estimate_html

        return estimate_html(self)


def _plain_noun(name: str, noun: msgspec.Struct) -> object:
    """Nouns of the catalog by name (with size), the workload in full."""
    if name == "workload":
        return msgspec.to_builtins(noun)
    if name == "cluster":
        return {"name": noun.name, "accelerators": noun.accelerators}  # type: ignore[attr-defined]
    return noun.name  # type: ignore[attr-defined]


def estimate_row(many: Estimates, row: int) -> Estimate:
    """Read one row of many estimates as plain numbers."""
    step = float(many.step_seconds[row])
    terms = {name: float(np.asarray(v)[row]) for name, v in many.terms.parts().items()}
    load = {name: float(getattr(many.load, name)[row]) for name in EXPOSED_TERMS}
    exposed = {group: sum(terms[t] for t in names) for group, names in EXPOSED_TERMS.items()}
    rate = float(many.tokens_per_second_per_accelerator[row])
    memory = {name: float(np.asarray(v)[row]) for name, v in many.memory.parts().items()}
    total = float(many.memory_bytes[row])
    below, above = many.stack.memory_interval
    low, high = many.interval

    def pick(values: Any) -> float | None:
        return None if values is None else float(values[row])

    joules = pick(many.joules_per_token)
    price = many.cluster.usd_per_hour
    capacity = float(many.case.memory_bytes[row])
    strategy = many.strategies[row]
    return Estimate(
        model=many.model,
        cluster=many.cluster,
        workload=many.workload,
        strategy=strategy,
        stack=many.stack,
        micro_steps=int(many.case.micro_steps[row]),
        step_seconds=step,
        terms=terms,
        load=load,
        exposed=exposed,
        tokens_per_second=float(many.tokens_per_second[row]),
        tokens_per_second_per_accelerator=rate,
        low=rate * low,
        high=rate * high,
        convention=many.convention,
        tflops=float(many.tflops[row]),
        mfu=float(many.mfu[row]),
        hfu=float(many.hfu[row]),
        peak_flops=float(many.case.peak[row]),
        memory=memory,
        memory_bytes=total,
        memory_low=total * below,
        memory_high=total * above,
        memory_capacity=capacity,
        infeasible=_reason(int(many.infeasible_code[row]), memory, total, capacity),
        watts_per_accelerator=pick(many.watts_per_accelerator),
        facility_watts_per_accelerator=pick(many.facility_watts_per_accelerator),
        joules_per_token=joules,
        tokens_per_joule=None if joules is None else 1.0 / joules,
        usd_per_hour=None if price is None else price * many.cluster.accelerators,
        usd_per_million_tokens=pick(many.usd_per_million_tokens),
        provenance=_provenance(many),
        defaults=many.defaults,
        warnings=_warnings(many, total, total * above, capacity),
    )


def _reason(code: int, memory: dict[str, float], total: float, capacity: float) -> str | None:
    """The sentence for a strategy that cannot run."""
    if code == 0:
        return None
    reason = REASONS[code]
    if not reason.startswith("memory"):
        return reason
    largest = sorted(memory.items(), key=lambda item: -item[1])[:4]
    parts = ", ".join(f"{name.replace('_', ' ')} {value / GIB:.1f}" for name, value in largest)
    return f"memory: needs {total / GIB:.1f} GiB of {capacity / GIB:.1f} GiB: {parts} ..."


def _provenance(many: Estimates) -> dict[str, str]:
    """Where each part's numbers came from, in words."""
    chip, stack, cluster = many.chip, many.stack, many.cluster
    state = "calibrated" if chip.calibrated else "uncalibrated"
    return {
        "peaks, memory, links": f"datasheet of {cluster.accelerator.name}",
        "kernel efficiency": f"{state} for {chip.name}: {chip.fitted_on}",
        "software constants": f"stack {stack.name}: {stack.fitted_on}",
        "collectives": "NCCL tuner model (v2.30.7 constants), fabric "
        f"{cluster.fabric.name}: {cluster.fabric.source}",
        "interval": f"residuals of stack {stack.name}"
        + ("" if chip.calibrated else ", widened for an uncalibrated chip"),
        "power": "activity model between idle and cap",
        "price": "catalog" if cluster.usd_per_hour is not None else "not known",
    }


def _warnings(many: Estimates, total: float, high: float, capacity: float) -> tuple[str, ...]:
    """What a reader should know before trusting the numbers."""
    found = list(many.cluster.assumed)
    if not many.chip.calibrated:
        name = many.cluster.accelerator.name
        found.append(f"{name} is uncalibrated: efficiencies are those of other chips")
    if many.stack.largest_run and many.cluster.accelerators > many.stack.largest_run:
        found.append(
            f"larger than any run behind stack {many.stack.name} ({many.stack.largest_run} "
            "accelerators): the interval is widened"
        )
    if many.stack.name.startswith("generic"):
        found.append(f"stack {many.stack.name} speaks for software the catalog does not know")
    if total <= capacity < high or capacity < total:
        found.append(
            f"memory is tight: {total / GIB:.1f} GiB predicted of {capacity / GIB:.1f} GiB, "
            f"up to {high / GIB:.1f} GiB within the interval"
        )
    return tuple(found)
