"""How does each term of the step come about? Formula, inputs, working and source, term by term.

    for each in explain_terms(work(e)):
        each.title, each.formula, each.result      # result equals e.terms[each.key]

Only terms that are not zero are explained. Communication is in `explain_communication`, the
pipeline in `explain_pipeline`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from scalewise.physics.compute import ATTENTION_HALF_SEQUENCE, K_FILL, KERNEL_SECONDS, gemm_seconds
from scalewise.report.explain_communication import (
    contention,
    context_parallel,
    data_parallel_gather,
    data_parallel_reduce,
    per_step,
    tensor_parallel,
)
from scalewise.report.explain_pipeline import pipeline_bubble, pipeline_send
from scalewise.report.explained import Explained, Letter, plain
from scalewise.report.worked import Worked, number
from scalewise.units import format_bytes, format_flops, format_percent, format_rate, format_seconds


def explain_terms(w: Worked) -> list[Explained]:
    """Explain every term of the step that is not zero, in order.

    Args:
        w: The recomputed estimate.

    Returns:
        One explanation for each.
    """
    shown = [name for name, value in w.e.terms.items() if value and name in _EXPLAIN]
    return [replace(_EXPLAIN[name](w), kind="term") for name in shown]


def _flop(value: float) -> str:
    return format_flops(value).removesuffix("/s")


def _products(w: Worked) -> dict[str, tuple[float, float]]:
    """(columns, depth) of the matrix products of a layer on one rank."""
    tp, hidden = w.field("tp"), w.field("hidden")
    query, ffn = w.field("query"), w.field("ffn")
    return {
        "qkv": ((query + 2 * w.field("key_value")) / tp, hidden),
        "attention out": (hidden, query / tp),
        "MLP up": ((1 + w.field("gated")) * ffn / tp, hidden),
        "MLP down": (hidden, ffn / tp),
    }


def _gemm(w: Worked) -> Explained:
    m = w.tokens
    rate = w.field("rate")
    efficiency = rate / w.e.peak_flops
    known = {
        "rate": rate,
        "units": w.field("units"),
        "memory_rate": w.field("memory_rate"),
        "element_bytes": w.field("matmul_bytes"),
    }
    lines: list[str] = []
    total = 0.0
    for name, (n, k) in _products(w).items():
        forward = number(gemm_seconds(m, n, k, **known))
        backward = number(gemm_seconds(m, k, n, **known)) + number(gemm_seconds(n, k, m, **known))
        reached = 6 * m * n * k / (forward + backward) / rate
        total += forward + backward
        lines.append(
            f"{name}: {plain(m)} x {plain(n)} x {plain(k)}: forward {format_seconds(forward)}, "
            f"backward {format_seconds(backward)}, {format_percent(reached)} of R"
        )
    return Explained(
        key="gemm",
        title="Matrix products",
        formula="T = a L sum of t(m, n, k),  t = waves of tiles x 2 tile (k + fill) / (R / units)",
        letters=(
            *per_step(w),
            Letter("m", plain(m), "tokens of one rank in a micro step"),
            Letter(
                "R",
                format_flops(rate),
                f"sustained rate, {format_percent(efficiency)} of the peak of "
                f"{format_flops(w.e.peak_flops)}",
            ),
            Letter("units", plain(w.field("units")), "compute units that share the tiles"),
            Letter("fill", plain(K_FILL), "depth at which a tile begins to pay, elements"),
            Letter("", format_seconds(KERNEL_SECONDS), "start and end of every kernel, added"),
        ),
        working=(*lines, f"one layer, forward and backward: {format_seconds(total)}"),
        result=w.steps * w.layers * total,
        source=f"peak: datasheet; sustained share: {w.e.provenance['kernel efficiency']}",
    )


def _attention(w: Worked) -> Explained:
    forward = number(w.layer.attention_forward)
    backward = number(w.layer.attention_backward)
    flops = 4 * w.tokens * w.field("span") * w.field("query") / w.field("tp")
    ring = w.field("cp_ring") > 0
    piece = w.field("sequence") / (w.field("cp") if ring else 1)
    unfused = w.field("unfused_attention") > 0
    extra = ("unfused: twice the FLOPs, and every score goes through memory",) if unfused else ()
    return Explained(
        key="attention",
        title="Attention kernels",
        formula="T = a L (F (1 + s0 / s) / Rf + 2.5 F (1 + s0 / s) / Rb),  F = 4 m S q / tp",
        letters=(
            *per_step(w),
            Letter("m", plain(w.tokens), "tokens of one rank in a micro step"),
            Letter("S", plain(w.field("span")), "keys a query sees on average, causal"),
            Letter("q", plain(w.field("query")), "width of all query heads"),
            Letter("tp", plain(w.field("tp")), "tensor-parallel degree"),
            Letter("s", plain(piece), "tokens of one kernel call"),
            Letter("s0", plain(ATTENTION_HALF_SEQUENCE), "tokens at half of the rate"),
            Letter("Rf", format_flops(w.field("attention_forward_rate")), "forward rate"),
            Letter("Rb", format_flops(w.field("attention_backward_rate")), "backward rate"),
        ),
        working=(
            f"F = {_flop(flops)} per layer",
            *extra,
            f"one layer: forward {format_seconds(forward)}, backward {format_seconds(backward)}",
        ),
        result=w.steps * w.layers * (forward + backward),
        source=f"kernel {w.e.stack.attention_kernel}: {w.e.provenance['kernel efficiency']}",
    )


def _memory_bound(w: Worked) -> Explained:
    forward, backward = number(w.layer.memory_forward), number(w.layer.memory_backward)
    gradient = number(w.layer.gradient)
    rate = w.field("memory_rate")
    return Explained(
        key="memory_bound",
        title="Memory-bound work: norms, residuals, rotary, activation, gradients",
        formula="T = a L (2 x E + g P) / B",
        letters=(
            *per_step(w),
            Letter("x", plain(w.field("memory_traffic")), "traffic over the least possible"),
            Letter(
                "E",
                plain((forward + backward) * rate / 2 / w.field("memory_traffic")),
                "16-bit elements that norms, residuals, rotary, activation and casts touch",
            ),
            Letter("g", plain(w.field("gradient_bytes")), "bytes per parameter for gradients"),
            Letter("P", plain(w.field("layer_params") / w.field("tp")), "parameters of a layer"),
            Letter("B", format_rate(rate), "memory rate, sustained"),
        ),
        working=(
            f"forward {format_seconds(forward)}, backward {format_seconds(backward)}, "
            f"gradients {format_seconds(gradient)} per layer",
        ),
        result=w.steps * w.layers * (forward + backward + gradient),
        source=f"bandwidth: datasheet x {w.chip.memory_efficiency:g}; x and g: stack "
        f"{w.e.stack.name}",
    )


def _head(w: Worked) -> Explained:
    columns = w.field("vocab") / w.field("tp")
    return Explained(
        key="head",
        title="Output head and loss",
        formula="T = a (t(m, V / tp, h) + backward + z m V / tp / B)",
        letters=(
            Letter("a", plain(w.steps), "micro steps"),
            Letter("m", plain(w.tokens), "tokens of one rank in a micro step"),
            Letter("V / tp", plain(columns), "columns of the output projection"),
            Letter("h", plain(w.field("hidden")), "width of the residual stream"),
            Letter("z", plain(w.field("logit_bytes")), "bytes moved per logit by the loss"),
            Letter("B", format_rate(w.field("memory_rate")), "memory rate, sustained"),
        ),
        working=(
            f"products {format_seconds(w.head_gemm)}, loss {format_seconds(w.loss)} per micro step",
        ),
        result=w.steps * (w.head_gemm + w.loss),
        source=f"products in 16 bits as above; z: stack {w.e.stack.name}",
    )


def _recompute(w: Worked) -> Explained:
    each = number(w.layer.recompute)
    how = w.e.strategy.recompute
    formula = "T = a L (forward kernels, without the last product where the stack stops early)"
    if how == "selective":
        formula = "T = a L (attention forward + c (products and memory-bound work forward))"
    share = w.field("selective_share")
    selective = (Letter("c", plain(share), "share of the products that is repeated"),)
    return Explained(
        key="recompute",
        title=f"Recompute, {how}",
        formula=formula,
        letters=(*per_step(w), *(selective if how == "selective" else ())),
        working=(f"one layer: {format_seconds(each)}",),
        result=w.steps * w.layers * each,
        source=f"kernel times as above; policy: stack {w.e.stack.name}",
    )


def _host(w: Worked) -> Explained:
    wait = (w.forward - w.device_forward) + (w.backward - w.device_backward)
    return Explained(
        key="host",
        title="Waiting for kernel launches",
        formula="T = a L (smax(d, H) - d), forward and backward,  smax: maximum, corner rounded",
        letters=(
            *per_step(w),
            Letter("d", format_seconds(w.device_forward), "device, forward of a layer"),
            Letter("H", format_seconds(w.host_forward), "host, forward of a layer"),
            Letter("d", format_seconds(w.device_backward), "device, backward of a layer"),
            Letter("H", format_seconds(w.host_backward), "host, backward of a layer"),
        ),
        working=(f"one layer waits {format_seconds(wait)}",),
        result=w.steps * w.layers * wait,
        source=f"host time per layer: stack {w.e.stack.name}",
    )


def _optimizer(w: Worked) -> Explained:
    moved, rate = w.field("optimizer_bytes"), w.field("memory_rate")
    return Explained(
        key="optimizer",
        title="Optimizer update",
        formula="T = b P / B",
        letters=(
            Letter("b", plain(moved), "bytes moved per parameter"),
            Letter("P", plain(w.owned), "parameters that one rank updates"),
            Letter("B", format_rate(rate), "memory rate, sustained"),
        ),
        working=(f"{format_bytes(moved * w.owned)} through memory",),
        result=moved * w.owned / rate,
        source=f"b: stack {w.e.stack.name}",
    )


def _overhead(w: Worked) -> Explained:
    return Explained(
        key="overhead",
        title="Overhead of the software per step",
        formula="T = t0",
        letters=(
            Letter("t0", format_seconds(w.field("step_seconds")), "loader, clipping, logging"),
        ),
        result=w.field("step_seconds"),
        source=f"t0: stack {w.e.stack.name}",
    )


def _straggler(w: Worked) -> Explained:
    busy = sum(value for name, value in w.e.terms.items() if name != "straggler")
    domains = max(w.field("domains"), 1.0)
    return Explained(
        key="straggler",
        title="Waiting for the slowest of all domains",
        formula="T = r log2(D) (sum of all terms above)",
        letters=(
            Letter("r", plain(w.field("straggler")), "share lost per doubling of domains"),
            Letter("D", plain(domains), "scale-up domains"),
            Letter("", format_seconds(busy), "sum of all terms above"),
        ),
        result=busy * w.field("straggler") * number(np.log2(domains)),
        source=f"r: stack {w.e.stack.name}",
    )


_EXPLAIN: dict[str, Callable[[Worked], Explained]] = {
    "gemm": _gemm,
    "attention": _attention,
    "memory_bound": _memory_bound,
    "head": _head,
    "recompute": _recompute,
    "host": _host,
    "tensor_parallel": tensor_parallel,
    "context_parallel": context_parallel,
    "data_parallel_gather": data_parallel_gather,
    "data_parallel_reduce": data_parallel_reduce,
    "contention": contention,
    "bubble": pipeline_bubble,
    "pipeline_send": pipeline_send,
    "optimizer": _optimizer,
    "overhead": _overhead,
    "straggler": _straggler,
}
