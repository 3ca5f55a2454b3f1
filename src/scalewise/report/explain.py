"""Where does this number come from? Every number of an estimate as a worked example.

    for each in explain(e):
        each.title, each.formula, each.letters, each.working, each.result, each.source
    print_explained(e, console)

Nothing here knows a constant: all numbers are asked from `physics` and `step` again, and a test
holds every result against the estimate. Whoever has a pencil can redo it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.model import FLOP_PER_MAC, TRAIN_PER_FORWARD
from scalewise.physics import money, power
from scalewise.report.explain_memory import explain_memory
from scalewise.report.explain_terms import explain_terms
from scalewise.report.explained import Explained, Letter, plain
from scalewise.report.words import convention_words, grouped
from scalewise.report.worked import Worked, number, work
from scalewise.step.case import clock
from scalewise.units import (
    format_dollars,
    format_flops,
    format_joules,
    format_percent,
    format_seconds,
    format_watts,
)

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.step.result import Estimate


def explain(e: Estimate) -> list[Explained]:
    """Work out every number of an estimate.

    Args:
        e: The estimate.

    Returns:
        Explanations in the order in which one follows from the other: parameters, FLOPs, rate,
        the terms of the step, the step, throughput, utilisation, memory, power, money.
    """
    w = work(e)
    told = [_parameters(e), _flops(e), _rate(w), *explain_terms(w), _step(e), _throughput(e)]
    told += [_mfu(w), *explain_memory(w), *_power(e), *_money(e)]
    return told


def _flop(value: float) -> str:
    return format_flops(value).removesuffix("/s")


def _parameters(e: Estimate) -> Explained:
    m = e.model
    parts = {name: count for name, count in m.parameter_parts().items() if count}
    return Explained(
        key="parameters",
        title="Parameters",
        formula="N = V h + L (h (q + k + v) + q h + M h f) + norms and biases + head",
        letters=(
            Letter("V", plain(m.vocab), "rows of the embedding"),
            Letter("h", plain(m.hidden), "width of the residual stream"),
            Letter("L", plain(m.layers), "layers"),
            Letter("q", plain(m.query_width), "width of all queries"),
            Letter("k = v", plain(m.key_width), "width of all keys, and of all values"),
            Letter("f", plain(m.ffn), "width of the MLP"),
            Letter("M", plain(m.mlp_matrices), "matrices of the MLP"),
        ),
        working=tuple(f"{name.replace('_', ' ')}: {count:,}" for name, count in parts.items()),
        result=float(m.parameters),
        show=lambda value: f"{value:,.0f} parameters",
        source=m.source,
    )


def _flops(e: Estimate) -> Explained:
    m, s = e.model, e.workload.sequence
    parts = m.forward_flops_parts(s)
    lines = [f"forward, {name.replace('_', ' ')}: {_flop(v)}" for name, v in parts.items() if v]
    forward = sum(parts.values())
    lines.append(f"forward in all: {_flop(forward)}; training is {TRAIN_PER_FORWARD} x forward")
    return Explained(
        key="training_flops",
        title=f"FLOPs per token, convention {e.convention}",
        formula={
            "causal": "F = 3 (2 x matmul parameters + 2 L (q + c) S)",
            "palm": "F = 6 N + 6 L (q + c) s",
            "megatron": "F = 6 x matmul parameters + 6 L (q + c) s",
            "6n": "F = 6 N",
        }[e.convention],
        letters=(
            Letter("", plain(m.matmul_parameters), "matmul parameters, head included"),
            Letter("N", plain(m.active_parameters), "parameters"),
            Letter("q + c", plain(m.query_width + m.context_width), "widths of both products"),
            Letter("S", plain(m.attention_span(s)), "keys a query sees on average, causal"),
            Letter("s", plain(s), "tokens per sequence"),
            Letter("", plain(FLOP_PER_MAC), "FLOP per multiply-add"),
        ),
        working=tuple(lines),
        result=m.training_flops(s, e.convention),
        show=lambda value: f"{_flop(value)} per token",
        source=f"{e.convention}: {convention_words(e.convention)}",
    )


def _rate(w: Worked) -> Explained:
    pace, gemm = clock(w.e.cluster), w.e.stack.gemm
    share = w.field("rate") / (w.e.peak_flops * pace * gemm)
    return Explained(
        key="rate",
        title="Rate of large matrix products",
        formula="R = peak x e x g x clock",
        letters=(
            Letter("peak", format_flops(w.e.peak_flops), "dense, datasheet"),
            Letter("e", plain(share), f"share that {w.chip.name} sustains"),
            Letter("g", plain(gemm), f"factor of stack {w.e.stack.name}"),
            Letter("clock", plain(pace), "left by the power cap"),
        ),
        result=w.e.peak_flops * share * gemm * pace,
        show=format_flops,
        source=w.e.provenance["kernel efficiency"],
    )


def _step(e: Estimate) -> Explained:
    shown = [name for name, value in e.terms.items() if value]
    return Explained(
        key="step_seconds",
        title="Step",
        formula="T = sum of the terms: " + " + ".join(shown),
        working=(" + ".join(format_seconds(e.terms[name]) for name in shown),),
        result=sum(e.terms.values()),
    )


def _throughput(e: Estimate) -> Explained:
    low, high = (each / e.tokens_per_second_per_accelerator for each in (e.low, e.high))
    return Explained(
        key="tokens_per_second_per_accelerator",
        title="Throughput",
        formula="X = B s / (T n)",
        letters=(
            Letter("B", plain(e.workload.global_batch), "sequences per step"),
            Letter("s", plain(e.workload.sequence), "tokens per sequence"),
            Letter("T", format_seconds(e.step_seconds), "step"),
            Letter("n", plain(e.cluster.accelerators), "accelerators"),
        ),
        working=(
            f"80 % interval: x {low:.2f} to x {high:.2f}, {grouped(e.low)} - {grouped(e.high)}",
        ),
        result=e.workload.tokens_per_step / e.step_seconds / e.cluster.accelerators,
        show=lambda value: f"{grouped(value)} tokens/s per accelerator",
        source=e.provenance["interval"],
    )


def _mfu(w: Worked) -> Explained:
    e = w.e
    flops = e.model.training_flops(e.workload.sequence, e.convention)
    rate = e.tokens_per_second_per_accelerator
    again = (f"with recomputed FLOPs, HFU {format_percent(e.hfu)}",) if e.hfu > e.mfu else ()
    return Explained(
        key="mfu",
        title=f"MFU, convention {e.convention}",
        formula="MFU = X F / peak",
        letters=(
            Letter("X", grouped(rate), "tokens/s per accelerator"),
            Letter("F", _flop(flops), "per token"),
            Letter("peak", format_flops(e.peak_flops), "dense, datasheet"),
        ),
        working=(f"X F = {format_flops(rate * flops)} per accelerator", *again),
        result=rate * flops / w.field("peak"),
        show=format_percent,
        source=f"{e.convention}: {convention_words(e.convention)}",
    )


def _power(e: Estimate) -> list[Explained]:
    limit, idle = e.cluster.power_limit, e.cluster.idle
    if limit is None or idle is None:
        return []
    device = number(power.device_watts(e.terms, e.step_seconds, idle=idle, cap=limit))
    c = e.cluster
    site = number(
        power.facility_watts(device, host=c.host_watts, network=c.network_watts, pue=c.pue)
    )
    activity = (device - idle) / (limit - idle)
    rate = e.tokens_per_second_per_accelerator
    source = "physics.power: shares by activity from public power logs"
    return [
        Explained(
            key="watts_per_accelerator",
            title="Power of one accelerator",
            formula="W = idle + (cap - idle) A,  A = sum of activity x share of the step",
            letters=(
                Letter("idle", format_watts(idle), "without work"),
                Letter("cap", format_watts(limit), "power limit"),
                Letter("A", plain(activity), "mean activity"),
            ),
            result=device,
            show=format_watts,
            source=source,
        ),
        Explained(
            key="facility_watts_per_accelerator",
            title="Power of the site per accelerator",
            formula="Ws = (W + host + network) PUE",
            letters=(
                Letter("W", format_watts(device), "accelerator"),
                Letter("host", format_watts(c.host_watts), "its share of the host"),
                Letter("network", format_watts(c.network_watts), "its share of the network"),
                Letter("PUE", plain(c.pue), "site over machines"),
            ),
            result=site,
            show=format_watts,
            source=c.source,
        ),
        Explained(
            key="joules_per_token",
            title="Energy per token",
            formula="J = Ws / X",
            letters=(
                Letter("Ws", format_watts(site), "site, per accelerator"),
                Letter("X", grouped(rate), "tokens/s per accelerator"),
            ),
            result=site / rate,
            show=lambda value: f"{format_joules(value)} per token",
        ),
    ]


def _money(e: Estimate) -> list[Explained]:
    price = e.cluster.usd_per_hour
    if price is None:
        return []
    rate = e.tokens_per_second_per_accelerator
    return [
        Explained(
            key="usd_per_million_tokens",
            title="Price of a million tokens",
            formula="P = p / 3600 s / X x 1,000,000",
            letters=(
                Letter("p", format_dollars(price), "per accelerator and hour"),
                Letter("X", grouped(rate), "tokens/s per accelerator"),
            ),
            result=number(money.dollars_per_token(price, rate)) * 1e6,
            show=format_dollars,
            source=f"price: {e.provenance['price']}",
        )
    ]


def print_explained(e: Estimate, console: Console) -> None:
    """Print every explanation as a worked example.

    Args:
        e: The estimate.
        console: Where to.
    """
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    for place, each in enumerate(explain(e), start=1):
        console.print()
        console.print(Text(f"{place}. {each.title}", style="bold cyan"))
        console.print(Padding(Text(each.formula, style="italic"), (0, 0, 0, 2)))
        if each.letters:
            table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
            table.add_column(no_wrap=True, style="cyan")
            table.add_column(no_wrap=True, justify="right")
            table.add_column(style="dim")
            for letter in each.letters:
                table.add_row(letter.letter, letter.value, letter.meaning)
            console.print(Padding(table, (0, 0, 0, 4)))
        for line in each.working:
            console.print(Padding(Text(line), (0, 0, 0, 4)))
        console.print(Padding(Text(f"= {each.show(each.result)}", style="bold"), (0, 0, 0, 2)))
        if each.source:
            source = " ".join(each.source.split())
            console.print(Padding(Text(f"source: {source}", style="dim"), (0, 0, 0, 2)))


__all__ = ["Explained", "Letter", "explain", "print_explained"]
