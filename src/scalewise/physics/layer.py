"""Work of one transformer layer: FLOPs of attention, elements that memory-bound kernels move.

    attention_flops(4096.0, 2048.5, 4096.0)
    memory_bound_elements(4096.0, 10240.0, 14336.0, gated=1.0)

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


def unfused_bytes(element: Num) -> tuple[Num, Num]:
    """Return the bytes that unfused attention moves per score, forward and backward.

        5 e + 1        8 e + 1

    Args:
        element: e: bytes of a score; the mask of dropout has one.

    >>> unfused_bytes(2.0) == (UNFUSED_FORWARD, UNFUSED_BACKWARD), unfused_bytes(4.0)
    (True, (21.0, 33.0))
    """
    forward, backward = (UNFUSED_FORWARD - 1.0) / 2.0, (UNFUSED_BACKWARD - 1.0) / 2.0
    return forward * element + 1.0, backward * element + 1.0


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
    hidden: Num, rotary: Num, ffn: Num, *, gated: Num, tp: Num = 1.0, sp: Num = 1.0
) -> tuple[Num, Num]:
    """Return the 16-bit elements that norms, residuals, rotary and activation move per token.

        forward:  10 h / sp + r / tp + (2 + gated) f / tp
        backward: 12 h / sp + r / tp + (3 + 2 gated) f / tp

    The minimum: two norms (4 h), two residual adds (6 h), rotary in place, the activation; backward
    reads one operand more each.

    Args:
        hidden: h: width of the residual stream.
        rotary: r: what rotary positions read and write, in place 2 (queries + keys).
        ffn: f: width of the MLP.
        gated: 1 for gated activations.
        tp: Tensor-parallel degree.
        sp: The same where sequence parallelism splits norms and residuals, else 1.

    >>> memory_bound_elements(4.0, 12.0, 16.0, gated=1.0)
    (100.0, 140.0)
    """
    wide, heads = hidden / sp, rotary / tp
    forward = 10.0 * wide + heads + (2.0 + gated) * ffn / tp
    backward = 12.0 * wide + heads + (3.0 + 2.0 * gated) * ffn / tp
    return forward, backward


def composed_elements(
    hidden: Num, rotary: Num, ffn: Num, *, tp: Num = 1.0, sp: Num = 1.0
) -> tuple[Num, Num]:
    """Return the 16-bit elements per token beyond the minimum where every operation is a kernel.

        forward:  32 h / sp + 3 r / tp + 2 f / tp
        backward: 86 h / sp + 3 r / tp + 4 f / tp

    with widths as in `memory_bound_elements`.

    Eager PyTorch has single kernels for layer norm and GELU, and composes what Llama has instead.
    A count of reads and writes, two for fp32, minus the minimum. RMS norm: cast, square, mean,
    scale, cast and weight, 18 - 2 forward and 46 - 3 backward, two norms. Rotary: cast, complex
    product, cast, 8 - 2 each way. SiLU and product: 5 - 3 forward, 9 - 5 backward.

    >>> composed_elements(4.0, 12.0, 16.0)
    (196.0, 444.0)
    """
    heads = 3.0 * rotary / tp
    forward = 32.0 * hidden / sp + heads + 2.0 * ffn / tp
    backward = 86.0 * hidden / sp + heads + 4.0 * ffn / tp
    return forward, backward


def activation_traffic(ffn: Num, *, gated: Num, tp: Num = 1.0) -> tuple[Num, Num]:
    """Return the elements per token that the activation moves forward: the minimum, and more.

        (2 + gated) f / tp        2 gated f / tp

    The parts of `memory_bound_elements` and `composed_elements` that belong to the MLP.

    >>> activation_traffic(16.0, gated=1.0)
    (48.0, 32.0)
    """
    return (2.0 + gated) * ffn / tp, 2.0 * gated * ffn / tp


def quantized_elements(
    hidden: Num,
    query: Num,
    qkv: Num,
    ffn: Num,
    *,
    latents: Num = 0.0,
    gated: Num,
    tp: Num = 1.0,
) -> tuple[Num, Num]:
    """Return the elements per token that are quantized for low-precision GEMMs.

        forward inputs:  2 h + l + (q + f) / tp
        output gradients: 2 h + (qkv + (1 + gated) f) / tp

    Args:
        hidden: h: width of the residual stream.
        query: q: width of the attention output of all heads.
        qkv: Width of queries, keys and values together.
        ffn: f: width of the MLP.
        latents: l: width of both latents (MLA).
        gated: 1 for gated activations.
        tp: Tensor-parallel degree.

    >>> quantized_elements(4.0, 4.0, 8.0, 16.0, gated=1.0)
    (28.0, 48.0)
    """
    inputs = hidden * 2.0 + latents + (query + ffn) / tp
    gradients = (qkv + (1.0 + gated) * ffn) / tp
    return inputs, gradients + 2.0 * hidden
