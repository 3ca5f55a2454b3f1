"""In which words is an estimate told? Labels, numbers and the headline, shared by every view.

    headline(e)[0]        # ("throughput", "7,990 (6,790 - 9,390) tokens/s per accelerator", ...)
    term_label("host")    # "kernel launches"

Text only: `tables` prints it, `html` draws it, `waterfall` and `explain` borrow its words.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from scalewise.step.terms import TERM_NAMES
from scalewise.units import (
    format_count,
    format_dollars,
    format_energy,
    format_joules,
    format_percent,
    format_seconds,
    format_watts,
)

if TYPE_CHECKING:
    from scalewise.step.result import Estimate

GIB = float(2**30)
TERA = 1e12
SECONDS_PER_DAY = 86400.0

_CONVENTIONS = {
    "causal": "6 FLOP per matmul parameter, and the attention that the mask leaves",
    "palm": "6 FLOP per parameter, and attention as if nothing were masked",
    "megatron": "6 FLOP per matmul parameter, and attention as if nothing were masked",
    "6n": "6 FLOP per parameter, attention left out",
}


class Fact(NamedTuple):
    """One line of the headline."""

    name: str
    """What it is."""
    value: str
    """The number, with its unit."""
    detail: str
    """What follows it in the same sentence; may be empty."""


def term_label(name: str) -> str:
    """Say a term of the step in words."""
    return TERM_NAMES.get(name, name.replace("_", " "))


def plain(name: str) -> str:
    """Say a key in words."""
    return name.replace("_", " ")


def convention_words(convention: str) -> str:
    """Say how FLOPs are counted."""
    return _CONVENTIONS.get(convention, convention)


def grouped(value: float, digits: int = 3) -> str:
    """Print a number to significant digits, with thousands separated: "7,990", "85.6"."""
    if value == 0 or not math.isfinite(value):
        return str(value) if value else "0"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def milliseconds(value: float) -> str:
    """Print a time of a breakdown, where one unit must hold for all: "481.7 ms"."""
    return "< 0.1 ms" if 0 < value < 0.5e-4 else f"{value * 1e3:,.1f} ms"


def gibibytes(value: float) -> str:
    """Print a size of a breakdown, where one unit must hold for all: "45.6 GiB"."""
    return "< 0.1 GiB" if 0 < value < 0.05 * GIB else f"{value / GIB:,.1f} GiB"


def percent(share: float) -> str:
    """Print a share of a breakdown: "23.8 %", and never 0 for what is not."""
    return "< 0.1 %" if 0 < share < 0.0005 else format_percent(share)


def counted(number: int, noun: str) -> str:
    """Print a count with its noun: "1 micro step", "2,048 ranks"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def bar(share: float, width: int, *, blocks: bool = True) -> str:
    """Draw a share of 1 as a bar of at most `width` characters.

    Args:
        share: From 0 to 1; more is cut.
        width: Characters of a full bar.
        blocks: Use block characters, with eighths of one; else `#`.
    """
    filled = max(min(share, 1.0), 0.0) * width
    if not blocks:
        return "#" * max(round(filled), 1 if share > 0 else 0)
    whole, eighths = divmod(round(filled * 8), 8)
    if share > 0 and not whole and not eighths:
        eighths = 1
    return "\u2588" * whole + (chr(0x2590 - eighths) if eighths else "")


def title(e: Estimate) -> str:
    """Say what was estimated, in one line."""
    cluster = e.cluster
    device = cluster.accelerator.name
    where = "" if cluster.name == device else f" ({cluster.name})"
    precision = e.strategy.precision or e.workload.precision
    return (
        f"{e.model.name} ({format_count(e.model.parameters)} parameters) on "
        f"{cluster.accelerators:,} x {device}{where}, {e.strategy}, {precision}"
    )


def headline(e: Estimate) -> list[Fact]:
    """Tell the answer: throughput, step, utilisation, memory, power, money, and the whole run."""
    work = e.workload
    rate = grouped(e.tokens_per_second_per_accelerator)
    repeated = f"; HFU {format_percent(e.hfu)}" if e.hfu > e.mfu else ""
    facts = [
        Fact(
            "throughput",
            f"{rate} ({grouped(e.low)} - {grouped(e.high)}) tokens/s per accelerator",
            f", {format_count(e.tokens_per_second)} in total",
        ),
        Fact(
            "step",
            format_seconds(e.step_seconds),
            f" for {format_count(work.tokens_per_step)} tokens: "
            f"{counted(work.global_batch, 'sequence')} of {work.sequence:,}, "
            f"{counted(e.micro_steps, 'micro step')}",
        ),
        Fact(
            "MFU",
            f"{format_percent(e.mfu)} ({e.convention})",
            f", {grouped(e.tflops)} of {grouped(e.peak_flops / TERA)} TFLOP/s per accelerator"
            + repeated,
        ),
        Fact(
            "memory",
            f"{e.memory_bytes / GIB:,.1f} ({e.memory_low / GIB:,.1f} - {e.memory_high / GIB:,.1f})"
            f" of {gibibytes(e.memory_capacity)}",
            " on the fullest accelerator",
        ),
    ]
    return [*facts, _power(e), _money(e), *_whole_run(e)]


def footnote(e: Estimate) -> str:
    """Say how to read the headline: what the brackets hold, and how FLOPs are counted."""
    words = convention_words(e.convention)
    return f"(low - high) holds 80 % of cases. MFU counts {e.convention} FLOPs: {words}."


def _power(e: Estimate) -> Fact:
    watts, site, joules = (
        e.watts_per_accelerator,
        e.facility_watts_per_accelerator,
        e.joules_per_token,
    )
    if watts is None or site is None or joules is None:
        return Fact("power", "not known", f": {e.cluster.accelerator.name} has no published power")
    return Fact(
        "power",
        f"{format_watts(watts)} per accelerator",
        f", {format_watts(site)} with its share of the site, {format_joules(joules)}/token",
    )


def _money(e: Estimate) -> Fact:
    if e.usd_per_million_tokens is None or e.usd_per_hour is None:
        return Fact("price", "not known", ": give one with --set cluster.usd_per_hour=2.5")
    each = e.usd_per_hour / e.cluster.accelerators
    return Fact(
        "price",
        f"{format_dollars(e.usd_per_million_tokens)} per million tokens",
        f", {format_dollars(e.usd_per_hour)}/h at {format_dollars(each)} per accelerator",
    )


def _whole_run(e: Estimate) -> list[Fact]:
    """Tell what the token budget takes, if there is one."""
    if e.days is None or e.workload.tokens is None:
        return []
    seconds = e.days * SECONDS_PER_DAY
    parts = [f"{format_count(e.workload.tokens)} tokens without failures"]
    if e.usd_per_hour is not None:
        parts.append(format_dollars(e.usd_per_hour * seconds / 3600.0))
    if e.joules_per_token is not None:
        parts.append(format_energy(e.joules_per_token * e.workload.tokens))
    return [Fact("whole run", f"{grouped(e.days)} days", " for " + ", ".join(parts))]


def provenance_line(e: Estimate) -> str:
    """Say where the numbers come from, in one line; `--explain` and JSON say it in full."""
    basis = e.provenance.get("kernel efficiency", "").split(":")[0]
    parts = [
        f"datasheet of {e.cluster.accelerator.name}",
        f"kernels {basis}" if basis else "",
        f"software constants of stack {e.stack.name}",
        f"NCCL's cost model, fabric {e.cluster.fabric.name}",
    ]
    return "; ".join(part for part in parts if part)
