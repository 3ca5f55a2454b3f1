"""Timings of a model's kernels: GEMMs, attention, memory-bound kernels, loss, launches.

    results = run_kernels(plan, device)              # on every rank, inside a process group
    results["rows"][0]["tflops"]

All ranks run at the same time, as they do in training: on a CPU they share memory and power, so a
kernel alone on an idle machine would be too fast. The samples of all ranks are pooled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - as everybody writes it

from scalewise.measure.decoder import rotary_angles, rotate
from scalewise.measure.kernel_plan import Attention, Elementwise, Gemm, KernelPlan, Loss
from scalewise.measure.timing import sample
from scalewise.records.rows import timed_row

DTYPES = {"bf16": torch.bfloat16, "fp32": torch.float32}

BACKWARD_WORK = 2.5
"""FLOPs of attention's backward over those of its forward, as estimates count them."""

Row = tuple[dict[str, Any], Callable[[], object], float, str]
"""Columns, what to call, work (FLOP or bytes), and the column that the rate goes to."""


def run_kernels(plan: KernelPlan, device: torch.device) -> dict[str, Any]:
    """Time everything that a plan says.

    Args:
        plan: What.
        device: This rank's.

    Returns:
        "rows": one dictionary per kernel.
    """
    rows = []
    for columns, call, work, rate in _kernels(plan, device):
        seconds = sample(
            call,
            device,
            iters=plan.iters,
            warmup=plan.warmup,
            budget=plan.budget,
            slowest=False,
        )
        row = timed_row({**columns, "dtype": plan.dtype}, seconds)
        if rate:
            row[rate] = work / row["time_us"] * 1e6 / (1e12 if rate == "tflops" else 1e9)
        rows.append(row)
    return {"rows": rows}


def _kernels(plan: KernelPlan, device: torch.device) -> Iterator[Row]:
    """Every kernel of the plan, built when it is its turn."""
    options: dict[str, Any] = {"dtype": DTYPES[plan.dtype], "device": device}
    for gemm in plan.gemms:
        yield (_grouped_gemm if gemm.groups > 1 else _gemm)(gemm, options)
    for attention in plan.attention:
        yield from _attention(attention, options)
    for block in plan.elementwise:
        yield _elementwise(block, options)
    for loss in plan.losses:
        yield _loss(loss, options)
    for parameters in plan.optimizer:
        yield _optimizer(parameters, device)
    for size in plan.stream_bytes:
        yield _copy(size, device)
    if plan.launch:
        yield _launch(device)


def _gemm(row: Gemm, options: dict[str, Any]) -> Row:
    a = torch.randn(row.m, row.k, **options)
    # Linear layers keep their weights as (out, in).
    b = torch.randn(row.n, row.k, **options).t()
    out = torch.empty(row.m, row.n, **options)
    columns = {"kernel": "gemm", "m": row.m, "n": row.n, "k": row.k, "notes": row.role}
    return columns, lambda: torch.mm(a, b, out=out), 2.0 * row.m * row.n * row.k, "tflops"


def _grouped_gemm(row: Gemm, options: dict[str, Any]) -> Row:
    """Products of experts with the same number of rows, as the decoder computes them."""
    a = torch.randn(row.groups, row.m, row.k, **options)
    b = torch.randn(row.groups, row.n, row.k, **options).transpose(1, 2)
    out = torch.empty(row.groups, row.m, row.n, **options)
    columns = {
        "kernel": "grouped_gemm", "batch": row.groups, "m": row.m, "n": row.n, "k": row.k,
        "notes": row.role,
    }  # fmt: skip
    work = 2.0 * row.groups * row.m * row.n * row.k
    return columns, lambda: torch.bmm(a, b, out=out), work, "tflops"


def _attention(row: Attention, options: dict[str, Any]) -> Iterator[Row]:
    shape = (row.batch, row.heads, row.seq_len, row.head_dim)
    q, k, v = (torch.randn(*shape, **options, requires_grad=True) for _ in range(3))
    columns = {
        "kernel": "sdpa", "batch": row.batch, "heads": row.heads, "seq_len": row.seq_len,
        "head_dim": row.head_dim, "causal": True,
    }  # fmt: skip
    work = 2.0 * row.batch * row.heads * row.seq_len**2 * row.head_dim

    def forward() -> torch.Tensor:
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both() -> object:
        out = forward()
        return torch.autograd.grad(out, (q, k, v), torch.ones_like(out))

    def alone() -> object:
        with torch.no_grad():
            return forward()

    yield {**columns, "direction": "fwd"}, alone, work, "tflops"
    yield {**columns, "direction": "fwd+bwd"}, both, (1.0 + BACKWARD_WORK) * work, "tflops"


def _elementwise(row: Elementwise, options: dict[str, Any]) -> Row:
    """Norms, additions, rotary and activation of a block, forward and backward."""
    heads = max(row.query // row.head_dim, 1)
    cos, sin = rotary_angles(row.head_dim, row.tokens, options["device"])
    x, y = (torch.randn(row.tokens, row.hidden, **options, requires_grad=True) for _ in range(2))
    weight = torch.ones(row.hidden, **options, requires_grad=True)
    q = torch.randn(1, row.tokens, heads, row.head_dim, **options, requires_grad=True)
    groups = max(row.key_value // row.head_dim, 1)
    k = torch.randn(1, row.tokens, groups, row.head_dim, **options, requires_grad=True)
    up, gate = (torch.randn(row.tokens, row.ffn, **options, requires_grad=True) for _ in range(2))
    leaves = [x, y, weight, q, k, up, *([gate] if row.gated else [])]

    def both() -> object:
        once = x + F.rms_norm(x, (row.hidden,), weight)
        outs = [
            once + F.rms_norm(y, (row.hidden,), weight),
            rotate(q, cos, sin),
            rotate(k, cos, sin),
            F.silu(up) * gate if row.gated else F.gelu(up),
        ]
        return torch.autograd.grad(outs, leaves, [torch.ones_like(out) for out in outs])

    columns = {
        "kernel": "block_elementwise", "direction": "fwd+bwd", "m": row.tokens, "n": row.hidden,
        "k": row.ffn, "query": row.query, "key_value": row.key_value, "gated": row.gated,
        "head_dim": row.head_dim,
    }  # fmt: skip
    return columns, both, 0.0, ""


def _loss(row: Loss, options: dict[str, Any]) -> Row:
    logits = torch.randn(row.tokens, row.vocab, **options, requires_grad=True)
    targets = torch.zeros(row.tokens, dtype=torch.long, device=options["device"])

    def both() -> object:
        loss = F.cross_entropy(logits.float(), targets)
        return torch.autograd.grad(loss, logits)

    columns = {"kernel": "cross_entropy", "direction": "fwd+bwd", "m": row.tokens, "n": row.vocab}
    return columns, both, 0.0, ""


def _optimizer(parameters: int, device: torch.device) -> Row:
    # Master weights are in 32 bits whatever the products are in.
    weight = torch.nn.Parameter(torch.randn(parameters, device=device))
    weight.grad = torch.randn(parameters, device=device)
    optimizer = torch.optim.AdamW([weight], lr=1e-4, fused=weight.is_cuda or None)
    return {"kernel": "adamw", "m": parameters}, optimizer.step, 0.0, ""


def _copy(size: int, device: torch.device) -> Row:
    source = torch.zeros(size // 4, device=device)
    target = torch.empty_like(source)
    columns = {"kernel": "hbm_stream_copy", "m": size}
    return columns, lambda: target.copy_(source), 2.0 * size, "gb_per_s"


def _launch(device: torch.device) -> Row:
    """A kernel that does next to nothing; many of them make a sample."""
    one = torch.zeros(1, device=device)
    return {"kernel": "launch"}, lambda: one.add_(1.0), 0.0, ""
