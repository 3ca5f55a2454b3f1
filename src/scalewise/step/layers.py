"""What one layer, the head and the optimizer compute: kernels of one rank, in seconds.

    layer = layer_compute(case)
    layer.gemm_forward, layer.attention_backward ...

All of it is per tensor-parallel rank and per micro step; nothing here communicates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Array, Num, stacked
from scalewise.physics.compute import attention_seconds, gemm_seconds
from scalewise.step.case import Case


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerCompute:
    """Kernel times of one layer and one micro step on one rank, seconds."""

    gemm_forward: Num
    gemm_backward: Num
    attention_forward: Num
    attention_backward: Num
    memory_forward: Num
    """Norms, residuals, rotary, activation, casts."""
    memory_backward: Num
    gradient: Num
    """Flatten, cast and accumulate the layer's gradients."""
    recompute: Num
    """Forward work that backward repeats."""
    weights: Num
    """Of the backward products and the gradients' handling, what concerns weights: zero-bubble
    schedules put it off."""

    @property
    def forward(self) -> Num:
        """All forward kernels."""
        return self.gemm_forward + self.attention_forward + self.memory_forward

    @property
    def backward(self) -> Num:
        """All backward kernels, without what is recomputed."""
        backward = self.gemm_backward + self.attention_backward + self.memory_backward
        return backward + self.gradient


def tokens_per_rank(case: Case) -> Array:
    """Tokens one rank works on in a micro step."""
    return case.micro_batch * case.sequence / case.cp


def product_seconds(case: Case) -> Array:
    """Price every matrix product of a layer and of the head, along a leading axis.

    Rows 0-3 are forward (qkv, out, up, down), 4-7 the gradients of their inputs (tokens x depth x
    columns), 8-11 those of their weights (columns x depth x tokens); 12-14 the same three of the
    output projection, which stays in 16 bits. One pass, because many short calls cost more than
    the arithmetic.
    """
    tokens, tp = tokens_per_rank(case), case.tp
    query, ffn, hidden = case.query / tp, case.ffn / tp, case.hidden
    qkv, up, vocab = query + 2.0 * case.key_value / tp, (1.0 + case.gated) * ffn, case.vocab / tp
    columns, depths = (qkv, hidden, up, hidden), (hidden, query, hidden, ffn)
    rows = (tokens,) * 4
    half = np.broadcast_to(2.0, case.matmul_bytes.shape)
    times = gemm_seconds(
        stacked(*rows, *rows, *columns, tokens, tokens, vocab),
        stacked(*columns, *depths, *depths, vocab, hidden, hidden),
        stacked(*depths, *columns, *rows, hidden, vocab, tokens),
        rate=stacked(*(case.rate,) * 12, *(case.rate16,) * 3),
        units=case.units,
        fill=case.gemm_fill,
        memory_rate=case.memory_rate,
        element_bytes=stacked(*(case.matmul_bytes,) * 12, *(half,) * 3),
    )
    return np.asarray(times)


def layer_compute(case: Case, times: Array | None = None) -> LayerCompute:
    """Price the kernels of one layer.

    Args:
        case: The step.
        times: Its matrix products, if they were priced already.
    """
    tokens = tokens_per_rank(case)
    times = product_seconds(case) if times is None else times
    gemm_forward = times[0] + times[1] + times[2] + times[3]
    of_weights = times[8] + times[9] + times[10] + times[11]
    gemm_backward = (times[4] + times[5] + times[6] + times[7]) + of_weights

    attention_forward, attention_backward = attention(case, tokens)
    memory_forward, memory_backward = memory_bound(case, tokens)
    gradient = case.gradient_bytes * case.layer_params / case.tp / case.memory_rate

    forward = gemm_forward + memory_forward
    skipped = case.recompute_skips_last * times[3]
    recompute = np.where(
        case.recompute == 2.0,
        forward - skipped + attention_forward,
        np.where(case.recompute == 1.0, case.selective_share * forward + attention_forward, 0.0),
    )
    return LayerCompute(
        gemm_forward=gemm_forward,
        gemm_backward=gemm_backward,
        attention_forward=attention_forward,
        attention_backward=attention_backward,
        memory_forward=memory_forward,
        memory_backward=memory_backward,
        gradient=gradient,
        recompute=recompute,
        weights=of_weights + gradient,
    )


def attention(case: Case, tokens: Array) -> tuple[Num, Num]:
    """Forward and backward of attention: causal FLOPs, backward 2.5 x forward.

    An unfused kernel computes the full square and moves every score through memory. Our count:
    11 bytes forward (16-bit scores written and read, softmax and dropout with a one-byte mask in
    place) and 17 backward.
    """
    flops = 4.0 * tokens * case.span * case.query / case.tp
    # Ring steps work on one block of keys at a time.
    piece = np.where(case.cp_ring > 0.0, case.sequence / case.cp, case.sequence)
    forward = attention_seconds(flops, rate=case.attention_forward_rate, sequence=piece)
    backward = attention_seconds(2.5 * flops, rate=case.attention_backward_rate, sequence=piece)
    if case.unfused_attention.any():
        scores = case.unfused_attention * tokens * case.sequence * case.heads / case.tp
        forward = forward * (1.0 + case.unfused_attention) + 11.0 * scores / case.memory_rate
        backward = backward * (1.0 + case.unfused_attention) + 17.0 * scores / case.memory_rate
    return forward, backward


def memory_bound(case: Case, tokens: Array) -> tuple[Num, Num]:
    """Forward and backward of everything that streams through memory.

    The least traffic of a 16-bit layer is two norms (4 h), two residual adds (6 h), rotary
    (2 (q + kv)) and the activation (2 or 3 ffn) elements forward; backward reads one operand
    more each. Quantising to 8 bits or less adds `cast_bytes` per GEMM input element.
    """
    shard = np.where(case.sequence_parallel > 0.0, case.tp, 1.0)
    wide = case.hidden / shard
    rotary = 2.0 * (case.query + case.key_value) / case.tp
    forward = 10.0 * wide + rotary + (2.0 + case.gated) * case.ffn / case.tp
    backward = 12.0 * wide + rotary + (3.0 + 2.0 * case.gated) * case.ffn / case.tp
    low = case.cast_bytes * case.quantised_copies
    inputs = case.hidden * 2.0 + (case.query + case.ffn) / case.tp
    weights = case.layer_params / case.tp
    gradients = (case.query + 2.0 * case.key_value + (1.0 + case.gated) * case.ffn) / case.tp
    gradients = gradients + 2.0 * case.hidden
    scale = 2.0 * case.memory_traffic / case.memory_rate
    cast = low / case.memory_rate
    return (
        scale * tokens * forward + cast * (tokens * inputs + weights),
        scale * tokens * backward + cast * tokens * gradients,
    )


def head_compute(case: Case, times: Array | None = None) -> tuple[Num, Num]:
    """Output projection and loss of one micro step: (GEMM seconds, loss traffic seconds).

    Args:
        case: The step.
        times: Its matrix products, if they were priced already.
    """
    times = product_seconds(case) if times is None else times
    logits = tokens_per_rank(case) * case.vocab / case.tp
    loss = case.logit_bytes * logits / case.memory_rate
    return times[12] + times[13] + times[14], loss
