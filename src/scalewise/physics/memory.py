"""Bytes that training keeps per parameter and per token.

    state_bytes(zero_stage=3.0, shards=256.0, gradient_bytes=4.0)    # bytes per parameter
    activation_elements(4096.0, 4096.0, 10240.0, 14336.0, gated=1.0)  # per token and layer

Mixed-precision AdamW: 2 bytes of weights, 4 of master weights, 8 of moments, gradients as the
software keeps them (Rajbhandari et al., arXiv 1910.02054). Pure functions on floats or arrays.
"""

from __future__ import annotations

import numpy as np

from scalewise.numeric import Num, maximum, where

WEIGHT, MASTER, MOMENTS, REDUCED = 2.0, 4.0, 8.0, 4.0
"""Bytes per parameter: 16-bit weights, 32-bit master copy, two moments, a reduced gradient."""


def parameter_bytes(
    zero_stage: Num, shards: Num, weight: Num = WEIGHT, master: Num = MASTER
) -> Num:
    """Return the bytes of stored weights per parameter of one rank.

    ZeRO-3 keeps a shard of the 32-bit master copy and gathers 16-bit weights from it; without a
    master copy a shard of the weights.

    Args:
        zero_stage: 0 to 3.
        shards: Ranks that share one copy of what is sharded.
        weight: Weights that compute reads, bytes.
        master: Master copy, bytes; 0 without one.

    >>> float(parameter_bytes(3.0, 8.0)), float(parameter_bytes(1.0, 8.0))
    (0.5, 2.0)
    >>> float(parameter_bytes(3.0, 8.0, master=0.0))
    0.25
    """
    sharded = where(master > 0.0, master, weight)
    result: Num = where(zero_stage == 3.0, sharded / shards, weight)
    return result


def gradient_bytes(zero_stage: Num, shards: Num, kept: Num, reduced: Num = REDUCED) -> Num:
    """Return the bytes of gradients per parameter of one rank.

    Args:
        zero_stage: 0 to 3.
        shards: Ranks that share one copy of what is sharded.
        kept: Bytes the software keeps per gradient that is not sharded, buffers included.
        reduced: Bytes of a reduced gradient.

    >>> float(gradient_bytes(2.0, 8.0, 6.0)), float(gradient_bytes(1.0, 8.0, 6.0))
    (0.5, 6.0)
    """
    result: Num = where(zero_stage >= 2.0, reduced / shards, kept)
    return result


def optimizer_bytes(
    zero_stage: Num, shards: Num, moments: Num = MOMENTS, master: Num = MASTER
) -> Num:
    """Return the bytes of optimizer state per parameter of one rank.

    Master weights and moments; under ZeRO-3 the master copy counts as the parameters.

    Args:
        zero_stage: 0 to 3.
        shards: Ranks that share one copy of what is sharded.
        moments: State besides master weights, bytes per parameter.
        master: Master copy, bytes per parameter; 0 without one.

    >>> float(optimizer_bytes(3.0, 8.0)), float(optimizer_bytes(1.0, 8.0))
    (1.0, 1.5)
    >>> float(optimizer_bytes(0.0, 8.0))
    12.0
    """
    own = where(zero_stage == 3.0, moments, master + moments)
    result: Num = where(zero_stage >= 1.0, own / shards, own)
    return result


def activation_elements(
    hidden: Num, query: Num, kept: Num, ffn: Num, *, gated: Num, tp: Num = 1.0, sp: Num = 1.0
) -> tuple[Num, Num]:
    """Return 16-bit elements kept per token and layer, and those of them that are GEMM inputs.

        4 h / sp + (a + (2 + gated) f) / tp
        2 h / sp + (q + f) / tp

    The minimum that backward needs with fused attention (Korthikanti et al., arXiv 2205.05198):
    inputs of two norms and of the qkv and up projections, queries, keys, values and attention
    output, inputs and output of the activation.

    Args:
        hidden: h: width of the residual stream.
        query: q: width of the attention output of all heads.
        kept: a: queries, keys, values and attention output.
        ffn: f: width of the MLP.
        gated: 1 for gated activations.
        tp: Tensor-parallel degree.
        sp: The same where sequence parallelism splits norms and residuals, else 1.

    >>> elements, inputs = activation_elements(4.0, 4.0, 12.0, 16.0, gated=1.0)
    >>> float(elements), float(inputs)
    (76.0, 28.0)
    """
    wide = hidden / sp
    elements = 4.0 * wide + (kept + (2.0 + gated) * ffn) / tp
    return elements, 2.0 * wide + (query + ffn) / tp


def op_fraction(query: Num, key_value: Num, ffn: Num, *, gated: Num) -> Num:
    """Return the fraction of a layer's forward GEMM FLOPs that "op" recompute repeats.

        (q + kv + gated f) / (2 q + 2 kv + (2 + gated) f)

    Of the matmuls in order (query, key, value, out, gate, up, down) every second one is not kept:
    key, out and up. Without a gate the sixth is the last, whose output backward does not need.
    pytorch/torchtitan, selective activation checkpointing with `selective_ac_option = "op"`.

    >>> round(float(op_fraction(4096.0, 1024.0, 14336.0, gated=1.0)), 4)
    0.3654
    """
    repeated = query + key_value + gated * ffn
    return repeated / (2.0 * (query + key_value) + (2.0 + gated) * ffn)


def op_elements(
    hidden: Num, query: Num, key_value: Num, ffn: Num, *, gated: Num, tp: Num = 1.0, sp: Num = 1.0
) -> Num:
    """Return 16-bit elements that "op" recompute keeps per token and layer.

        (1 + gated) h / sp + (2 q + kv + f) / tp

    The block's input, the attention output, and the outputs of the matmuls that `op_fraction` does
    not repeat: query, value, gate and down, or query, value and up without a gate.

    >>> float(op_elements(4096.0, 4096.0, 1024.0, 14336.0, gated=1.0))
    31744.0
    """
    return (1.0 + gated) * hidden / sp + (2.0 * query + key_value + ffn) / tp


def fit_chance(needed: Num, capacity: Num, interval: tuple[float, float]) -> Num:
    """Return the chance that a rank stays within its memory, 0 to 1.

        Phi(1.2816 ln(capacity / needed) / ln(high)),  ln(1 / low) on the other side

    The 80% prediction interval of peak memory, read as a normal distribution of its logarithm with
    the prediction in the middle: 0.5 where prediction and capacity are equal, 0.9 where the upper
    end of the interval just fits.

    Args:
        needed: Predicted peak memory, bytes.
        capacity: Memory of one accelerator, bytes.
        interval: Ends of the 80% interval as factors on the prediction.

    >>> [round(float(fit_chance(need, 80.0, (0.8, 1.25))), 3) for need in (64.0, 80.0, 100.0)]
    [0.9, 0.5, 0.1]
    """
    low, high = interval
    room = np.log(capacity / maximum(needed, 1.0))
    width = where(room >= 0.0, max(np.log(high), 1e-9), max(-np.log(low), 1e-9))
    return normal_cdf(_Z90 * room / width)


def fit_factor(chance: float, interval: tuple[float, float]) -> float:
    """Return the factor on predicted memory that must fit for a given chance: its quantile.

    The inverse of `fit_chance`: 1 for 0.5, the upper end of the interval for 0.9.

    Args:
        chance: Demanded chance to fit, above 0 and below 1.
        interval: Ends of the 80% interval as factors on the prediction.

    >>> [round(fit_factor(chance, (0.8, 1.25)), 3) for chance in (0.1, 0.5, 0.9)]
    [0.8, 1.0, 1.25]
    """
    if chance == 0.5:
        # The prediction itself, and no 5 ms to import `statistics`.
        return 1.0
    from statistics import NormalDist

    low, high = interval
    z = NormalDist().inv_cdf(chance) / _Z90
    return float(high**z if z >= 0.0 else low**-z)


_Z90 = 1.2815515655446004
"""The 90th percentile of a standard normal distribution."""


def normal_cdf(z: Num) -> Num:
    """Distribution function of a standard normal variable.

    Abramowitz and Stegun, 26.2.17; absolute error below 7.5e-8. NumPy has no erf, and SciPy is
    too heavy to ask for it.

    >>> [round(float(normal_cdf(np.asarray(z))), 4) for z in (-1.2816, 0.0, 1.2816)]
    [0.1, 0.5, 0.9]
    """
    t = 1.0 / (1.0 + 0.2316419 * np.abs(z))
    series = t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    tail = np.exp(-0.5 * z * z) / np.sqrt(2.0 * np.pi) * series
    result: Num = where(z >= 0.0, 1.0 - tail, tail)
    return result
