"""Words and numbers of an estimate, shared by every view.

    title(e)            # "llama-2-7b (6.74B) | 2,048x h100-sxm-80gb (dgx-h100) | fsdp2048-mb2 | .."
    headline(e)[0]      # Fact("throughput", "9,490 tok/s/GPU [8,120-10,600]", "19.4M tok/s total")
    term_label("host")  # "kernel launches"

Text only: `estimate_table` prints it, `estimate_html` draws it. Numbers are printed by `units`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from scalewise.ranges import level_range, plus_minus, without_own_runs
from scalewise.step.estimate import STATED_FIT
from scalewise.terms import TERMS
from scalewise.units import (
    GIB,
    format_count,
    format_dollars,
    format_energy,
    format_joules,
    format_percent,
    format_seconds,
    format_watts,
)
from scalewise.units import grouped as grouped

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.step.result import Estimate

TERA = 1e12

INTERVAL = "[low-high]: 80% prediction interval"
"""How to read the brackets of every output."""

_CONVENTIONS = {
    "causal": "6 FLOP per GEMM parameter, plus attention under the causal mask",
    "palm": "6 FLOP per parameter, plus attention without a mask",
    "megatron": "6 FLOP per GEMM parameter, plus attention without a mask",
    "6n": "6 FLOP per parameter, without attention",
}


class Fact(NamedTuple):
    """One line of the answer."""

    name: str
    """What it is."""
    value: str
    """The number with its unit, and its interval."""
    detail: str
    """More of the same; may be empty."""


def term_label(name: str) -> str:
    """Return the label of a term of the step."""
    return TERMS[name].label if name in TERMS else name.replace("_", " ")


def plain(name: str) -> str:
    """Return a key as words."""
    return name.replace("_", " ")


def convention_words(convention: str) -> str:
    """Return how a convention counts FLOPs."""
    return _CONVENTIONS.get(convention, convention)


def device_word(kind: str) -> str:
    """Return what one accelerator is called in text: GPU, or chip."""
    return "GPU" if kind == "gpu" else "chip"


def milliseconds(value: float) -> str:
    """Print a time of a breakdown, where one unit holds for all: "481.7 ms"."""
    return "<0.1 ms" if 0 < value < 0.5e-4 else f"{value * 1e3:,.1f} ms"


def gibibytes(value: float) -> str:
    """Print a size of a breakdown, where one unit holds for all: "45.6 GiB"."""
    return "<0.1 GiB" if 0 < value < 0.05 * GIB else f"{value / GIB:,.1f} GiB"


def percent(fraction: float) -> str:
    """Print a fraction of a breakdown: "23.8%", and never 0 for a term that is not 0."""
    return "<0.1%" if 0 < fraction < 0.0005 else format_percent(fraction)


def counted(number: int, noun: str) -> str:
    """Print a count with its noun: "1 rank", "2,048 ranks", "2 micro-batches"."""
    plural = "es" if noun.endswith("ch") else "s"
    return f"{number:,} {noun}" + ("" if number == 1 else plural)


def bar(fraction: float, width: int, *, blocks: bool = True) -> str:
    """Draw a fraction of 1 as a bar of at most `width` characters.

    Args:
        fraction: From 0 to 1; more is truncated.
        width: Characters of a full bar.
        blocks: Use block characters, with eighths of one; else `#`.
    """
    filled = max(min(fraction, 1.0), 0.0) * width
    if not blocks:
        return "#" * max(round(filled), 1 if fraction > 0 else 0)
    whole, eighths = divmod(round(filled * 8), 8)
    if fraction > 0 and not whole and not eighths:
        eighths = 1
    return "\u2588" * whole + (chr(0x2590 - eighths) if eighths else "")


def model_words(model: Model) -> str:
    """Return a model with its parameters: "llama-2-7b (6.74B)"."""
    return f"{model.name} ({format_count(model.parameters)})"


def cluster_words(cluster: Cluster) -> str:
    """Return a cluster with its size: "2,048x h100-sxm-80gb (dgx-h100)"."""
    device = cluster.accelerator.name
    where = "" if cluster.name == device else f" ({cluster.name})"
    return f"{cluster.accelerators:,}x {device}{where}"


def precision_of(e: Estimate) -> str:
    """Return the precision of the GEMMs: the strategy's, or else the workload's."""
    return e.strategy.precision or e.workload.precision


def title(e: Estimate) -> str:
    """Return what was estimated, in one line."""
    parts = (
        model_words(e.model), cluster_words(e.cluster), str(e.strategy), precision_of(e),
        f"stack {e.stack.name}",
    )  # fmt: skip
    return " | ".join(parts)


def interval(low: float, high: float) -> str:
    """Print an interval: "[8,120-10,600]"."""
    return f"[{grouped(low)}-{grouped(high)}]"


def interval_words(e: Estimate) -> str:
    """Return what the brackets mean, and by how much own runs narrow them."""
    if not e.stack.own_runs:
        return INTERVAL
    before = plus_minus(level_range(without_own_runs(e.basis)))
    after = plus_minus(level_range(e.basis))
    runs = counted(e.stack.own_runs, "run")
    named = own_run_names(e.stack.fitted_on)
    return f"{INTERVAL}; your {runs}{named} narrow it from {before} to {after}"


def own_run_names(fitted_on: str) -> str:
    """Return the first runs that a stack was fitted on in parentheses; empty for other stacks.

    >>> own_run_names("own runs: a on 8x h100; b on 8x h100; c on 8x h100; 1 more. Kernels ...")
    ' (a on 8x h100; ...)'
    """
    start = "own runs: "
    if not fitted_on.startswith(start):
        return ""
    named = fitted_on.removeprefix(start).split(". ")[0].split("; ")
    return f" ({'; '.join([named[0], '...'] if len(named) > 1 else named)})"


def gain_interval(low: float, high: float) -> str:
    """Print an interval of gains: "[+12% to +22%]"."""
    ends = (format_percent(end, sign=True, decimals=0) for end in (low, high))
    return f"[{' to '.join(ends)}]"


def chance(fit: float) -> str:
    """Print a chance in whole percent, without claiming certainty."""
    if fit > 0.99:
        return ">99%"
    return "<1%" if fit < 0.01 else format_percent(fit, decimals=0)


def rate_words(e: Estimate) -> str:
    """Print the throughput with its interval: "9,490 tok/s/GPU [8,120-10,600]"."""
    word = device_word(e.cluster.accelerator.kind)
    rate = grouped(e.tokens_per_second_per_accelerator)
    return f"{rate} {useful_word(e)}tok/s/{word} {interval(e.low, e.high)}"


def useful_word(e: Estimate) -> str:
    """Return "useful " where padding is computed that does not count; else nothing."""
    return "useful " if e.workload.useful_fraction < 1.0 else ""


def memory_words(e: Estimate) -> str:
    """Print peak memory with its interval, capacity and chance to fit."""
    return (
        f"{grouped(e.memory_bytes / GIB)} GiB {interval(e.memory_low / GIB, e.memory_high / GIB)} "
        f"of {grouped(e.memory_capacity / GIB)} GiB (chance to fit {chance(e.fit)})"
    )


def verdict(e: Estimate) -> str | None:
    """Return why a strategy cannot run, or will probably run out of memory; None if it fits."""
    if e.fit < STATED_FIT:
        return f"LIKELY OUT OF MEMORY: {memory_words(e)}"
    if e.infeasible is None:
        return None
    if e.infeasible.startswith("memory"):
        return f"MAY RUN OUT OF MEMORY: {memory_words(e)}, {chance(e.many.fit)} demanded"
    return f"CANNOT RUN: {e.infeasible}"


def headline(e: Estimate) -> list[Fact]:
    """Return the answer: throughput, step, MFU, communication, memory, power, cost, whole run."""
    work = e.workload
    word = device_word(e.cluster.accelerator.kind)
    hfu = f"; HFU {format_percent(e.hfu)}" if e.hfu > e.mfu else ""
    facts = [
        Fact("throughput", rate_words(e), _total(e)),
        Fact(
            "step time",
            format_seconds(e.step_seconds),
            f"{format_count(work.tokens_per_step)} {useful_word(e)}tokens: {work.global_batch:,} x "
            f"{work.seq_len:,}{_documents(e)}, grad accum {e.num_microbatches:,}",
        ),
        Fact(
            "MFU",
            f"{format_percent(e.mfu)} ({e.convention})",
            f"{grouped(e.tflops)} of {grouped(e.peak_flops / TERA)} TFLOP/s per {word}{hfu}",
        ),
        *_tuning(e),
        *_communication(e),
        Fact(
            "peak memory",
            f"{grouped(e.memory_bytes / GIB)} GiB "
            f"{interval(e.memory_low / GIB, e.memory_high / GIB)}",
            _fit(e),
        ),
        *_host_memory(e),
    ]
    return [*facts, _power(e, word), _cost(e, word), *_whole_run(e)]


def _documents(e: Estimate) -> str:
    """Return how sequences are filled with documents; empty where lengths are not given."""
    work = e.workload
    if work.lengths is None:
        return ""
    share = format_percent(work.useful_fraction, decimals=0)
    return f" {work.batching}" + (f" ({share})" if work.useful_fraction < 0.995 else "")


def footnote(e: Estimate) -> str:
    """Return how to read the answer: what the brackets hold, and how FLOPs are counted."""
    return f"{interval_words(e)}. MFU ({e.convention}): {convention_words(e.convention)}."


def _total(e: Estimate) -> str:
    """Return the throughput of all devices, and of one with tuned software if that is faster."""
    ends = "".join(
        f"; tuned ({other.stack.name}) {grouped(other.tokens_per_second_per_accelerator)}"
        for other in e.tuned
        if other.step_seconds < e.step_seconds
    )
    return f"{format_count(e.tokens_per_second)} tok/s total{ends}"


def _tuning(e: Estimate) -> list[Fact]:
    """Return the trained parameters; empty where all are trained."""
    tuning = e.workload.tuned
    if not tuning.frozen:
        return []
    count, whole = e.trained_parameters, e.model.parameters
    stored = "4 bits (NF4)" if tuning.quantized else "16 bits"
    frozen = f"{percent(count / whole)} of {format_count(whole)}, which are frozen in {stored}"
    return [Fact("trained", f"{format_count(count)} parameters", frozen)]


def _communication(e: Estimate) -> list[Fact]:
    """Return exposed communication, contention, and how much is overlapped; empty without any."""
    total, exposed = sum(e.comm_seconds.values()), sum(e.exposed.values())
    if not total:
        return []
    value = f"{percent(exposed / e.step_seconds)} exposed"
    overlapped = total - exposed
    rest = format_seconds(overlapped) if overlapped > 1e-9 * total else "none"
    whole = f"{format_seconds(total)} per rank, {rest} overlapped"
    if e.contention_share:
        value += f" + {percent(e.contention_share)} contention"
        whole = f"{percent(e.communication_share)} together; {whole}"
    return [Fact("communication", value, whole)]


def _fit(e: Estimate) -> str:
    """Return whether the worst rank fits, with the chance unless it is about 100%."""
    capacity = f"{grouped(e.memory_capacity / GIB)} GiB"
    if e.fit < STATED_FIT:
        return f"of {capacity} (chance to fit {chance(e.fit)})"
    return f"fits in {capacity}" + ("" if e.fit > 0.99 else f" with {chance(e.fit)} chance")


def _host_memory(e: Estimate) -> list[Fact]:
    """Return the memory of a host that offload takes; empty without."""
    if not e.host_memory_bytes:
        return []
    has = e.host_memory_capacity
    size = "unknown size" if has is None else f"{grouped(has / GIB)} GiB"
    return [Fact("host memory", f"{grouped(e.host_memory_bytes / GIB)} GiB", f"of {size} per host")]


def _power(e: Estimate, word: str) -> Fact:
    watts, facility = e.watts_per_accelerator, e.facility_watts_per_accelerator
    if watts is None or facility is None or e.joules_per_token is None:
        return Fact("power", "unknown", f"no published power of {e.cluster.accelerator.name}")
    return Fact(
        "power",
        f"{format_watts(watts)}/{word}",
        f"{format_watts(facility)}/{word} facility, {format_joules(e.joules_per_token)}/token",
    )


def _cost(e: Estimate, word: str) -> Fact:
    if e.usd_per_million_tokens is None or e.usd_per_hour is None:
        return Fact("cost", "unknown", f"no price of {e.cluster.name}: set one with --price")
    each = e.usd_per_hour / e.cluster.accelerators
    return Fact(
        "cost",
        f"{format_dollars(e.usd_per_million_tokens)}/M tokens",
        f"{format_dollars(e.usd_per_hour)}/h at {format_dollars(each)}/{word}-h",
    )


def _whole_run(e: Estimate) -> list[Fact]:
    """Return time, cost and energy of the token budget; empty without one."""
    if e.days is None or e.workload.tokens is None:
        return []
    parts = [f"{format_count(e.workload.tokens)} tokens without failures"]
    if e.usd_per_hour is not None:
        parts.append(format_dollars(e.usd_per_hour * e.days * 24.0))
    if e.joules_per_token is not None:
        parts.append(format_energy(e.joules_per_token * e.workload.tokens))
    return [Fact("whole run", f"{grouped(e.days)} days", ", ".join(parts))]


def provenance_line(e: Estimate) -> str:
    """Return the sources of the numbers in one line; `--explain` and JSON have them in full."""
    basis = e.provenance.get("kernel efficiency", "").split(":")[0]
    parts = [
        f"datasheet of {e.cluster.accelerator.name}",
        f"kernels {basis}" if basis else "",
        f"software constants of stack {e.stack.name}",
        f"NCCL tuner model, fabric {e.cluster.fabric.name}",
    ]
    return "; ".join(part for part in parts if part)
