"""Work of one transformer layer: FLOPs of attention, elements that memory-bound kernels move.

    attention_flops(4096.0, 2048.5, 4096.0)
    memory_bound_elements(4096.0, 4096.0, 1024.0, 14336.0, gated=1.0)

Pure functions on floats or arrays; per token where not said otherwise.
"""

from __future__ import annotations

from scalewise.numeric import Num

ATTENTION_BACKWARD = 2.5
"""FLOPs of fused attention backward over forward: five products instead of two (FlashAttention,
Dao et al., arXiv 2205.14135, which computes the scores again)."""

UNFUSED_FORWARD, UNFUSED_BACKWARD = 11.0, 17.0
"""Bytes per score of unfused attention: 16-bit scores written and read, softmax and dropout with a
one-byte mask in place. A count of its kernels; no published figure was found."""


def attention_flops(tokens: Num, span: Num, query: Num, tp: Num = 1.0) -> Num:
    """Return the FLOPs of causal attention forward, one layer, one rank.

        4 m S q / tp

    Args:
        tokens: m: tokens of the rank.
        span: S: keys a query attends to, mean over tokens.
        query: q: width of all query heads.
        tp: Tensor-parallel degree.

    >>> attention_flops(4096.0, 2048.5, 4096.0)
    137472507904.0
    """
    return 4.0 * tokens * span * query / tp


def memory_bound_elements(
    hidden: Num, query: Num, key_value: Num, ffn: Num, *, gated: Num, tp: Num = 1.0, sp: Num = 1.0
) -> tuple[Num, Num]:
    """Return the 16-bit elements that norms, residuals, rotary and activation move per token.

        forward:  10 h / sp + 2 (q + kv) / tp + (2 + gated) f / tp
        backward: 12 h / sp + 2 (q + kv) / tp + (3 + 2 gated) f / tp

    The minimum: two norms (4 h), two residual adds (6 h), rotary in place, the activation; backward
    reads one operand more each.

    Args:
        hidden: h: width of the residual stream.
        query: q: width of all query heads.
        key_value: kv: width of all key (or value) heads.
        ffn: f: width of the MLP.
        gated: 1 for gated activations.
        tp: Tensor-parallel degree.
        sp: The same where sequence parallelism splits norms and residuals, else 1.

    >>> memory_bound_elements(4.0, 4.0, 2.0, 16.0, gated=1.0)
    (100.0, 140.0)
    """
    wide = hidden / sp
    rotary = 2.0 * (query + key_value) / tp
    forward = 10.0 * wide + rotary + (2.0 + gated) * ffn / tp
    backward = 12.0 * wide + rotary + (3.0 + 2.0 * gated) * ffn / tp
    return forward, backward


def quantized_elements(
    hidden: Num, query: Num, key_value: Num, ffn: Num, *, gated: Num, tp: Num = 1.0
) -> tuple[Num, Num]:
    """Return the elements per token that are quantized for low-precision GEMMs.

        forward inputs:  2 h + (q + f) / tp
        output gradients: 2 h + (q + 2 kv + (1 + gated) f) / tp

    >>> quantized_elements(4.0, 4.0, 2.0, 16.0, gated=1.0)
    (28.0, 48.0)
    """
    inputs = hidden * 2.0 + (query + ffn) / tp
    gradients = (query + 2.0 * key_value + (1.0 + gated) * ffn) / tp
    return inputs, gradients + 2.0 * hidden
