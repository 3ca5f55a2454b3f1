"""Result of `estimate`: plain numbers with breakdown, interval and sources.

    e.step_seconds                 # the sum of e.terms
    e.waterfall()                  # from the chip's peak to the achieved rate, losses named
    e.to_dict()                    # everything, ready for JSON

Data only: tables and pictures of it live in `scalewise.report`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.host import host_of
from scalewise.offload import offloads_of
from scalewise.precision import RECIPES
from scalewise.ranges import Basis, knowledge_of, level_range, mixture_range, run_range
from scalewise.reliability import parse_reliability
from scalewise.results import Result
from scalewise.step.feasibility import REASONS
from scalewise.strategies import decode
from scalewise.terms import EXPOSED, TERMS
from scalewise.tuning import trained_parameters
from scalewise.units import GIB

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Convention, Model
    from scalewise.stack import Stack
    from scalewise.step.estimate import Estimates
    from scalewise.step.goodput import Goodput
    from scalewise.step.origin import Origin
    from scalewise.step.statistical_efficiency import StatisticalEfficiency
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload


@dataclass(frozen=True, kw_only=True, repr=False)
class Estimate(Result):
    """Predicted step: time, memory, power, cost. SI units; `low` to `high` is the 80% interval."""

    model: Model
    cluster: Cluster
    workload: Workload
    strategy: Strategy
    stack: Stack
    trained_parameters: int
    """Parameters that a step updates: all, or those of adapters."""
    num_microbatches: int
    """Micro steps per optimizer step."""
    step_seconds: float
    """Time of one optimizer step: the sum of `terms`."""
    terms: dict[str, float]
    """Seconds of the step by what they are spent on, in order; they add up."""
    comm_seconds: dict[str, float]
    """Seconds of communication by group, overlapped and exposed."""
    exposed: dict[str, float]
    """Seconds of exposed communication by group."""
    tokens_per_second: float
    """Of the whole cluster."""
    tokens_per_second_per_accelerator: float
    convention: Convention
    """FLOP convention of MFU."""
    tflops: float
    """Model TFLOP/s per accelerator."""
    mfu: float
    """Model FLOP/s over peak."""
    hfu: float
    """The same with recomputed FLOPs counted."""
    peak_flops: float
    """Datasheet FLOP/s of one accelerator at the precision."""
    memory: dict[str, float]
    """Bytes of the worst rank by part; they add up to `memory_bytes`."""
    memory_bytes: float
    memory_low: float
    """Low end of the 80 % interval of memory."""
    memory_high: float
    memory_capacity: float
    """Bytes of one accelerator."""
    host_memory_bytes: float
    """Peak memory of one host that offload takes, bytes; 0 without offload."""
    host_memory_capacity: float | None
    """Memory of one host, bytes; None if unknown."""
    fit: float
    """Chance that the worst rank stays within it, 0 to 1."""
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
    """Sources of the numbers, by part."""
    defaults: tuple[str, ...]
    """Defaults that were used."""
    warnings: tuple[str, ...]
    """Warnings."""
    many: Estimates = field(repr=False, compare=False)
    """The estimates it is a row of: everything it was made from."""
    row: int = field(repr=False, compare=False)
    """Its place there."""

    @cached_property
    def origin(self) -> Origin:
        """Its inputs, its case and its step, one row each."""
        from scalewise.step.compose import compose
        from scalewise.step.layout import lay_out
        from scalewise.step.origin import Origin
        from scalewise.strategies import Strategies

        many = self.many
        case, step = many.case, many.step
        if many.strategies.shape != (1,):
            one = Strategies.of([self.strategy])
            case = lay_out(self.model, self.cluster, self.workload, one, self.stack, many.chip)
            step = compose(case)
        return Origin(
            model=self.model, cluster=self.cluster, stack=self.stack, chip=many.chip,
            case=case, step=step,
        )  # fmt: skip

    @cached_property
    def basis(self) -> Basis:
        """What the intervals of its levels and ratios depend on."""
        return self.many.basis(self.row)

    @cached_property
    def interval(self) -> tuple[float, float]:
        """80% prediction interval of tokens/s per GPU.

        Where no software was named it is that of the mixture of all plausible stacks.
        """
        low, high = level_range(self.basis)
        rate = self.tokens_per_second_per_accelerator
        if not self.tuned:
            return rate * low, rate * high
        alike = [replace(e.basis, knowledge=self.basis.knowledge) for e in self.tuned]
        return mixture_range([self.basis, *alike])

    @cached_property
    def tuned(self) -> tuple[Estimate, ...]:
        """The same step with the other plausible software, where none was named.

        The answer itself is software as people get it; this is the end of the family that is
        tuned (compiled code, recipes of the vendor).
        """
        from scalewise.step.estimate import estimate

        # A list, because a strategy may be compiled where the other stack is eager.
        inputs = self.model, self.cluster, self.workload, [self.strategy]
        return tuple(estimate(*inputs, stack=stack)[0] for stack in self.many.others)

    @property
    def low(self) -> float:
        """Low end of the 80% prediction interval of tokens/s per GPU."""
        return self.interval[0]

    @property
    def high(self) -> float:
        """High end of it."""
        return self.interval[1]

    @property
    def feasible(self) -> bool:
        """Whether it can run."""
        return self.infeasible is None

    @property
    def memory_headroom(self) -> float:
        """Free memory of the worst rank, bytes."""
        return self.memory_capacity - self.memory_bytes

    @property
    def exposed_fraction(self) -> float:
        """Exposed communication, fraction of the step."""
        return sum(self.exposed.values()) / self.step_seconds

    @property
    def contention_share(self) -> float:
        """Compute slowed by overlapped communication, fraction of the step."""
        return self.terms["contention"] / self.step_seconds

    @property
    def communication_share(self) -> float:
        """Exposed communication and contention, fraction of the step."""
        return self.exposed_fraction + self.contention_share

    @cached_property
    def goodput(self) -> Goodput | None:
        """Fraction of wall time that trains; None without a token budget, and where it is off."""
        if self.workload.tokens is None and self.workload.goodput is None:
            return None
        from scalewise.step.goodput import goodput

        reliability = parse_reliability(self.workload.goodput)
        return None if reliability is None else goodput(self, reliability)

    @cached_property
    def statistical(self) -> StatisticalEfficiency | None:
        """Statistical efficiency of its batch; None where it is not asked for."""
        from scalewise.step.statistical_efficiency import statistical_efficiency

        return statistical_efficiency(self)

    @property
    def days(self) -> float | None:
        """Days of wall time for the workload's token budget, by goodput; None without a budget."""
        if self.workload.tokens is None:
            return None
        days = self.workload.tokens / self.tokens_per_second / 86400.0
        return days if self.goodput is None else days / self.goodput.fraction

    @property
    def days_interval(self) -> tuple[float, float] | None:
        """80% interval of `days`: of throughput and goodput, taken as independent."""
        if self.days is None:
            return None
        rate, g = self.tokens_per_second_per_accelerator, self.goodput
        slow, fast = rate / self.high, rate / self.low
        goods = (1.0, 1.0) if g is None else (g.fraction / g.high, g.fraction / g.low)
        low, high = run_range((slow, fast), goods)
        return self.days * low, self.days * high

    @property
    def run_usd(self) -> float | None:
        """Dollars of the token budget, spare nodes included; None without budget or price."""
        if self.days is None or self.usd_per_hour is None:
            return None
        factor = 1.0 if self.goodput is None else self.goodput.cost_factor
        return self.usd_per_hour * self.days * 24.0 * factor

    @property
    def run_joules(self) -> float | None:
        """Facility energy of the token budget, joules; None without budget or power.

        Lost time counts at the power of the step, idle spare nodes do not.
        """
        if self.days is None or self.joules_per_token is None:
            return None
        return self.joules_per_token * self.tokens_per_second * self.days * 86400.0

    @property
    def padding(self) -> float:
        """FLOP/s spent on padding over peak; 0 where every token counts."""
        values = np.asarray(self.many.padding).ravel()
        return float(values[self.row if values.size > 1 else 0])

    def waterfall(self) -> dict[str, float]:
        """From the chip's peak to the achieved rate: shares of peak, each loss named.

        Starts with "peak" (1.0), lists what every loss takes from it, ends with "achieved" (the
        MFU); peak minus the losses is exactly achieved. Losses are those of the slowest stage.
        """
        step, terms = self.step_seconds, self.terms
        useful = sum(terms[term.key] for term in TERMS.values() if term.useful)
        losses = {"kernel efficiency": useful / step - self.mfu}
        if self.workload.lengths is not None:
            padding = self.padding
            losses = {"kernel efficiency": useful / step - self.mfu - padding, "padding": padding}
        lost = {t.label: terms[t.key] / step for t in TERMS.values() if not t.useful}
        more = -losses["kernel efficiency"]
        if more > 0.0 and self.strategy.pp > 1 and self.convention == "causal":
            # Other stages compute more than the slowest one: over all of them its waits count less.
            kept = 1.0 - more / sum(lost.values())
            losses["kernel efficiency"] = 0.0
            lost = {label: kept * each for label, each in lost.items()}
        losses |= lost
        return {"peak": 1.0, **{k: -v for k, v in losses.items()}, "achieved": self.mfu}

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types, for JSON and tables."""
        plain: dict[str, Any] = {}
        for each in fields(self):
            if each.name in ("many", "row"):
                continue
            value = getattr(self, each.name)
            if isinstance(value, msgspec.Struct):
                value = str(value) if each.name == "strategy" else _plain_noun(each.name, value)
            elif isinstance(value, tuple):
                value = list(value)
            plain[each.name] = value
            if each.name == "tokens_per_second_per_accelerator":
                plain["low"], plain["high"] = self.interval
                plain["tuned"] = {
                    e.stack.name: e.tokens_per_second_per_accelerator for e in self.tuned
                }
        plain["feasible"] = self.feasible
        plain["memory_headroom"] = self.memory_headroom
        plain["exposed_fraction"] = self.exposed_fraction
        plain["contention_share"] = self.contention_share
        plain["communication_share"] = self.communication_share
        plain["waterfall"] = self.waterfall()
        plain["useful_fraction"] = self.workload.useful_fraction
        plain["goodput"] = None if self.goodput is None else msgspec.to_builtins(self.goodput)
        batch = self.statistical
        plain["statistical_efficiency"] = None if batch is None else msgspec.to_builtins(batch)
        plain["days"] = self.days
        plain["days_interval"] = None if self.days_interval is None else list(self.days_interval)
        plain["run_usd"], plain["run_joules"] = self.run_usd, self.run_joules
        return plain


def _plain_noun(name: str, noun: msgspec.Struct) -> object:
    """Nouns of the catalog by name (with size), the workload in full."""
    if name == "workload":
        return msgspec.to_builtins(noun)
    if name == "cluster":
        return {"name": noun.name, "accelerators": noun.accelerators}  # type: ignore[attr-defined]
    return noun.name  # type: ignore[attr-defined]


def estimate_row(many: Estimates, row: int) -> Estimate:
    """Read one row of many estimates as plain numbers."""

    def pick(values: Any) -> Any:
        if isinstance(values, np.ndarray):
            values = values[row]
        return None if values is None else float(values)

    terms = {name: pick(seconds) for name, seconds in many.terms.parts().items()}
    exposed = {group: sum(terms[t] for t in names) for group, names in EXPOSED.items()}
    memory = {name: pick(part) for name, part in many.memory.parts().items()}
    total = pick(many.memory_bytes)
    below, above = many.stack.memory_interval
    joules = pick(many.joules_per_token)
    price = many.cluster.usd_per_hour
    capacity = pick(many.case.rates.memory_bytes)
    on_host = pick(many.host_memory_bytes)
    return Estimate(
        model=many.model,
        cluster=many.cluster,
        workload=many.workload,
        strategy=many.strategies[row],
        stack=many.stack,
        trained_parameters=trained_parameters(many.model, many.workload.tuned),
        num_microbatches=int(pick(many.case.split.num_microbatches)),
        step_seconds=pick(many.step_seconds),
        terms=terms,
        comm_seconds={name: pick(getattr(many.comm_time, name)) for name in EXPOSED},
        exposed=exposed,
        tokens_per_second=pick(many.tokens_per_second),
        tokens_per_second_per_accelerator=pick(many.tokens_per_second_per_accelerator),
        convention=many.convention,
        tflops=pick(many.tflops),
        mfu=pick(many.mfu),
        hfu=pick(many.hfu),
        peak_flops=pick(many.case.rates.peak),
        memory=memory,
        memory_bytes=total,
        memory_low=total * below,
        memory_high=total * above,
        memory_capacity=capacity,
        host_memory_bytes=on_host,
        host_memory_capacity=many.cluster.host_memory_bytes,
        fit=pick(many.fit_chance),
        infeasible=_reason(
            int(pick(many.infeasible_code)),
            memory,
            total,
            capacity,
            (on_host, many.cluster.host_memory_bytes),
        ),
        watts_per_accelerator=pick(many.watts_per_accelerator),
        facility_watts_per_accelerator=pick(many.facility_watts_per_accelerator),
        joules_per_token=joules,
        tokens_per_joule=None if joules is None else 1.0 / joules,
        usd_per_hour=None if price is None else price * many.cluster.accelerators,
        usd_per_million_tokens=pick(many.usd_per_million_tokens),
        provenance=_provenance(many),
        defaults=many.defaults,
        warnings=_warnings(many, row),
        many=many,
        row=row,
    )


def _reason(
    code: int,
    memory: dict[str, float],
    total: float,
    capacity: float,
    host: tuple[float, float | None],
) -> str | None:
    """The sentence for a strategy that cannot run."""
    if code == 0:
        return None
    reason = REASONS[code]
    if reason.startswith("host memory") and host[1] is not None:
        return f"host memory: needs {host[0] / GIB:,.0f} of {host[1] / GIB:,.0f} GiB per host"
    if not reason.startswith("memory"):
        return reason
    largest = sorted(memory.items(), key=lambda item: -item[1])[:4]
    parts = ", ".join(f"{name.replace('_', ' ')} {value / GIB:.1f}" for name, value in largest)
    return f"memory: needs {total / GIB:.1f} GiB of {capacity / GIB:.1f} GiB: {parts} ..."


_KNOWN = {
    "own": "noise of your own runs, and effects of shape and scale",
    "runs": "effects of team, chip, shape, terms and noise (published runs of sources held out)",
    "family": "effects of team, mode, chip, shape, terms and noise: its family is known",
    "nothing": "all effects, over every plausible stack: no software was named",
}


def _price_words(cluster: Cluster) -> str:
    """Kind, date, origin and source of a price."""
    price = cluster.price
    if price is None:
        return "not known"
    of = f", of {price.chip}" if price.chip else ""
    where = f", {price.region}" if price.region else ""
    return f"{price.words}{of}{where}" + (f": {price.source}" if price.source else "")


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
        "interval": _KNOWN[knowledge_of(stack, stated=not many.others)]
        + ("" if chip.calibrated else ", and of an uncalibrated chip")
        + ("" if many.model.moe is None else ", and of experts with the stack's usual software"),
        "power": "activity model between idle and cap",
        "price": _price_words(cluster),
    }


def _warnings(many: Estimates, row: int) -> tuple[str, ...]:
    """Return the warnings."""
    found = list(many.cluster.assumed)
    if words := offloads_of(many.strategies[row].offload):
        host = host_of(many.cluster)
        found += host.assumed
        if "nvme" in words:
            found += host.assumed_nvme
    if not many.chip.calibrated:
        name = many.cluster.accelerator.name
        found.append(f"{name} is uncalibrated: efficiencies are those of other chips")
    precision = many.precision_of(row)
    if (recipe := RECIPES[precision]).wide and recipe.family not in many.chip.gemm:
        found.append(
            f"no published run is in {precision}: GEMMs and attention are assumed to reach the "
            "fractions of the peak that they reach in 16 bits"
        )
    if many.stack.largest_run and many.cluster.accelerators > many.stack.largest_run:
        found.append(
            f"larger than any run behind stack {many.stack.name} ({many.stack.largest_run} "
            "GPUs): the interval is widened"
        )
    if many.workload.tuned.frozen:
        found.append(
            f"tuning {many.workload.tuning}: no run behind the constants trains adapters, so the "
            "interval is that of full training"
        )
    stated = decode("compiled", float(np.ravel(many.strategies.compiled)[0]))
    if stated not in (None, many.stack.compiled):
        has = "compiled" if many.stack.compiled else "eager"
        says = "compiled" if stated else "eager"
        found.append(f"the strategy says {says}, but stack {many.stack.name} is {has}")
    return tuple(found)
