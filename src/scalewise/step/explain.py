"""Derivations of everything an estimate says: terms, memory, rates, power, cost.

    for derivation in explain(e):
        derivation.key, derivation.formula, derivation.value

In the order in which one follows from the other. Techniques derive their own terms; what is left
is here. Nothing is computed again: letters are read from the parts the estimate was made from.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.model import TRAIN_PER_FORWARD
from scalewise.numeric import scalar
from scalewise.physics.power import ACTIVITY
from scalewise.precision import RECIPES
from scalewise.step import (
    block,
    context_parallel,
    derive_kernels,
    derive_offload,
    expert_parallel,
    layer,
    optimizer,
    p2p,
    schedule,
    tensor_parallel,
    tuning,
    wrappers,
)
from scalewise.step.derive_goodput import derive_run
from scalewise.step.derive_memory import derive_memory
from scalewise.step.hardware import clock
from scalewise.step.sequences import useful_span
from scalewise.terms import TERMS

if TYPE_CHECKING:
    from scalewise.step.origin import Origin
    from scalewise.step.result import Estimate


def explain(e: Estimate) -> list[Derivation]:
    """Return how every number of an estimate comes about.

    Args:
        e: The estimate.
    """
    o = e.origin
    found = [_parameters(e), _flops(e), _rate(e, o)]
    found += [TERM_DERIVATIONS[key](o) for key, seconds in e.terms.items() if seconds]
    found += [_step(e), _throughput(e), _mfu(e), *derive_memory(o), *_power(e), *_cost(e)]
    return [*found, *derive_run(e)]


def _overhead(o: Origin) -> Derivation:
    seconds, more = scalar(o.case.habits.overhead_seconds), scalar(wrappers.step_seconds(o.case))
    wrapped = (Letter("w", more, "FSDP and DTensor outside of layers, per step", "s"),)
    return Derivation(
        key="overhead",
        label="framework overhead",
        formula="t + w" if more else "t",
        letters=(
            Letter("t", seconds, "data loader, clipping, logging, per step", "s"),
            *(wrapped if more else ()),
        ),
        source=f"t: {o.software}",
    )


def _straggler(o: Origin) -> Derivation:
    from scalewise.step.terms import step_terms

    terms, seconds = step_terms(o.case, o.step)
    domains = max(scalar(o.case.split.domains), 1.0)
    return Derivation(
        key="straggler",
        label="stragglers",
        formula="r * log2(d) * T",
        letters=(
            Letter("r", scalar(o.case.habits.straggler), "fraction lost per doubling of domains"),
            Letter("d", domains, "scale-up domains"),
            Letter("T", scalar(seconds) - scalar(terms.straggler), "all other terms", "s"),
        ),
        source=f"r: {o.software}",
    )


TERM_DERIVATIONS: dict[str, Callable[[Origin], Derivation]] = {
    "gemm": derive_kernels.derive_gemm_term,
    "attention": derive_kernels.derive_attention,
    "experts": expert_parallel.derive_experts,
    "routing": expert_parallel.derive_routing,
    "adapters": tuning.derive,
    "dequantize": tuning.derive_dequantize,
    "memory_bound": derive_kernels.derive_memory_bound,
    "head": derive_kernels.derive_head,
    "recompute": derive_kernels.derive_recompute,
    "host": layer.derive_launches,
    "tensor_parallel": tensor_parallel.derive,
    "context_parallel": context_parallel.derive,
    "expert_parallel": expert_parallel.derive,
    "offload": derive_offload.derive,
    "optimizer": optimizer.derive,
    "overhead": _overhead,
    "dp_all_gather": block.derive_all_gather,
    "contention": block.derive_contention,
    "dp_grad_reduce": block.derive_reduce,
    "pp_p2p": p2p.derive,
    "bubble": schedule.derive_bubble,
    "straggler": _straggler,
}
"""By term: a test holds each against the term, and that no term is missing."""


def _sum(key: str, label: str, parts: dict[str, tuple[float, str]], unit: str) -> Derivation:
    """A sum of named parts."""
    letters = tuple(Letter(name, value, what, unit) for name, (value, what) in parts.items())
    return Derivation(key=key, label=label, formula=" + ".join(parts), letters=letters, unit=unit)


def _parameters(e: Estimate) -> Derivation:
    parts = {
        name: (float(count), name.replace("_", " "))
        for name, count in e.model.parameter_parts().items()
        if count
    }
    return _with_source(_sum("parameters", "parameters", parts, ""), e.model.source)


def _with_source(derivation: Derivation, source: str) -> Derivation:
    from dataclasses import replace

    return replace(derivation, source=source)


def _flops(e: Estimate) -> Derivation:
    m, seq_len = e.model, e.workload.seq_len
    widths = float(m.layers * (m.query_width + m.context_width))
    letters: tuple[Letter, ...] = (Letter("N", float(m.active_parameters), "parameters"),)
    formula = "6 * N"
    if e.convention == "causal":
        parts = m.forward_flops_parts(seq_len, useful_span(m, e.workload))
        named = {name: (value, name.replace("_", " ")) for name, value in parts.items() if value}
        forward = _sum("forward_flops", "FLOPs per token, forward", named, "FLOP")
        formula = "k * F"
        letters = (
            Letter("k", float(TRAIN_PER_FORWARD), "training over forward"),
            Letter("F", forward.value, forward.label, "FLOP", forward),
        )
    elif e.convention != "6n":
        count = m.active_parameters if e.convention == "palm" else m.matmul_parameters
        what = "parameters" if e.convention == "palm" else "parameters in matmuls"
        formula = "6 * N + 6 * w * s"
        letters = (
            Letter("N", float(count), what),
            Letter("w", widths, "layers x widths of both attention products"),
            Letter("s", float(seq_len), "tokens per sequence"),
        )
    whole = Derivation(
        key="training_flops",
        label=f"FLOPs per token, convention {e.convention}",
        formula=formula,
        letters=letters,
        unit="FLOP",
    )
    return tuning.derive_flops(e, whole) if e.workload.tuned.frozen else whole


def _rate(e: Estimate, o: Origin) -> Derivation:
    left, gemm = clock(o.cluster, o.chip), o.stack.gemm
    precision = e.strategy.precision or e.workload.precision
    scaled = RECIPES[precision].rate_on(o.cluster.accelerator.peak_flops)
    peak = scalar(o.case.rates.peak)
    sustained = scalar(o.case.rates.gemm) / (peak * left * gemm * scaled)
    return Derivation(
        key="gemm_rate",
        label="sustained GEMM rate",
        formula="R * e * g * f * s",
        letters=(
            Letter("R", peak, "dense peak, datasheet", "FLOP/s"),
            Letter("e", sustained, f"fraction that {o.chip.name} sustains"),
            Letter("g", gemm, f"factor of {o.software}"),
            Letter("f", left, "clock left by the power limit"),
            Letter("s", scaled, f"rate with the scales of {precision} over one per tensor"),
        ),
        unit="FLOP/s",
        source=o.kernels,
    )


def _step(e: Estimate) -> Derivation:
    parts = {key: (value, TERMS[key].label) for key, value in e.terms.items() if value}
    return _sum("step_seconds", "step time", parts, "s")


def _throughput(e: Estimate) -> Derivation:
    documents = e.workload.lengths is not None
    useful = Letter("u", e.workload.useful_fraction, "tokens of documents over all of a sequence")
    return Derivation(
        key="tokens_per_second_per_accelerator",
        label="throughput per GPU",
        formula="b * s * u / (T * g)" if documents else "b * s / (T * g)",
        letters=(
            Letter("b", float(e.workload.global_batch), "sequences per step"),
            Letter("s", float(e.workload.seq_len), "tokens per sequence"),
            *([useful] if documents else []),
            Letter("T", e.step_seconds, "step time", "s"),
            Letter("g", float(e.cluster.accelerators), "GPUs"),
        ),
        unit="tok/s",
        source=e.provenance["interval"],
    )


def _mfu(e: Estimate) -> Derivation:
    flops = e.many.training_flops
    return Derivation(
        key="mfu",
        label=f"MFU, convention {e.convention}",
        formula="X * F / R",
        letters=(
            Letter("X", e.tokens_per_second_per_accelerator, "throughput per GPU", "tok/s"),
            Letter("F", flops, "FLOPs per token", "FLOP"),
            Letter("R", e.peak_flops, "dense peak, datasheet", "FLOP/s"),
        ),
        unit="%",
    )


def _power(e: Estimate) -> list[Derivation]:
    limit, idle, c = e.cluster.power_limit, e.cluster.idle, e.cluster
    if limit is None or idle is None or e.joules_per_token is None:
        return []
    draw = sum(ACTIVITY[key] * seconds for key, seconds in e.terms.items()) / e.step_seconds
    device = Derivation(
        key="watts_per_accelerator",
        label="power per GPU",
        formula="i + (l - i) * a",
        letters=(
            Letter("i", idle, "idle power", "W"),
            Letter("l", limit, "power limit", "W"),
            Letter("a", float(np.asarray(draw)), "mean activity over the step"),
        ),
        unit="W",
        source="draw by activity: public power logs (physics.power)",
    )
    site = Derivation(
        key="facility_watts_per_accelerator",
        label="facility power per GPU",
        formula="(w + h + k) * f",
        letters=(
            Letter("w", device.value, "GPU", "W"),
            Letter("h", c.host_watts, "its part of the host", "W"),
            Letter("k", c.network_watts, "its part of the network", "W"),
            Letter("f", c.pue, "PUE: facility over machines"),
        ),
        unit="W",
        source=c.source,
    )
    rate = Letter("X", e.tokens_per_second_per_accelerator, "throughput per GPU", "tok/s")
    energy = Derivation(
        key="joules_per_token",
        label="energy per token",
        formula="W / X",
        letters=(Letter("W", site.value, "facility power per GPU", "W"), rate),
        unit="J",
    )
    return [device, site, energy]


def _cost(e: Estimate) -> list[Derivation]:
    price = e.cluster.usd_per_hour
    if price is None:
        return []
    return [
        Derivation(
            key="usd_per_million_tokens",
            label="cost per million tokens",
            formula="c / 3600 / X * 1e6",
            letters=(
                Letter("c", price, "per GPU and hour", "$"),
                Letter("X", e.tokens_per_second_per_accelerator, "throughput per GPU", "tok/s"),
            ),
            unit="$",
            source=f"price: {e.provenance['price']}",
        )
    ]
