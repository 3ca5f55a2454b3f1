"""Kernels of mixture-of-experts layers: grouped GEMMs, permutation and router.

    chip = {"rate": 700e12, "units": 132.0, "memory_rate": 2.8e12}
    grouped_gemm_seconds(8.0, 1024.0, 4096.0, 7168.0, **chip)     # 8 experts, 1,024 tokens each

Pure functions on floats or arrays; SI units.
"""

from __future__ import annotations

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, maximum, minimum, where
from scalewise.physics.compute import (
    K_FILL,
    KERNEL_SECONDS,
    TILE_EFFICIENCY,
    TILE_FLOPS,
    TILE_M,
    TILE_N,
)

# Thin groups and the deep pipelines of 8-bit kernels, from the grouped rows of DeepGEMM
# (catalog/runs/kernels.csv): without them the model is 14 % too fast in the median, 30 % at 256
# rows per expert; with them the median error is 5 %.
THIN_ROWS = 40.0
NARROW_FILL = 450.0

# Passes over the permuted tokens, forward and again backward: permute, unpermute and the buffers of
# the exchange. DeepEP and HybridEP permute once less (NVIDIA/Megatron-LM,
# megatron/core/transformer/moe/token_dispatcher.py).
PERMUTE_PASSES, FUSED_PERMUTE_PASSES = 6.0, 4.0

# Passes of softmax, top-k, normalization and statistics over the router's fp32 scores, and its
# kernels: a count of Megatron-LM's router, with 2 us per kernel.
ROUTER_PASSES, ROUTER_SECONDS = 20.0, 60.0 * 2e-6


def grouped_gemm_seconds(
    groups: Num,
    m: Num,
    n: Num,
    k: Num,
    *,
    rate: Num,
    units: Num,
    memory_rate: Num,
    element_bytes: Num = 2.0,
    fill: Num = K_FILL,
    launches: Num = 1.0,
) -> Num:
    """Return the time of `groups` products C[m, n] = A[m, k] B[k, n] in one kernel, seconds.

        max(min over tiles a x b of
                (ceil(T / units) + T / units THIN_ROWS / min(a ceil(m / a), b ceil(n / b)))
                    * (k + fill) 2 a b / efficiency units / rate,
            g (bytes (m k + k n) + max(bytes, 2) m n) / memory_rate) + launches KERNEL_SECONDS

    with T = g ceil(m / a) ceil(n / b) tiles. Like `physics.compute.gemm_seconds`, with the tiles of
    all groups in the same waves and the weights of every group read once. Each group costs as much
    as THIN_ROWS more rows, so that more tokens never take less time.

    Args:
        groups: g: Experts on the rank.
        m: Rows of one product: tokens of an expert.
        n: Columns.
        k: Depth.
        rate: FLOP/s sustained on large products.
        units: Compute units (SMs).
        memory_rate: Bytes/s that memory sustains.
        element_bytes: Bytes per operand element.
        fill: Pipeline fill of one tile along K, elements; at least `NARROW_FILL` below 16 bits.
        launches: Kernels that the groups are divided into.

    >>> chip = {"rate": 700e12, "units": 132.0, "memory_rate": 2.8e12}
    >>> times = [grouped_gemm_seconds(8.0, m, 4096.0, 7168.0, **chip) for m in (64.0, 1024.0)]
    >>> [round(1e6 * float(seconds), 1) for seconds in times]        # the first is bound by memory
    [174.9, 751.6]
    """
    fill = where(element_bytes < 2.0, maximum(fill, NARROW_FILL), fill)
    shape = (len(TILE_M),) + (1,) * max(np.ndim(groups), np.ndim(m), np.ndim(n), np.ndim(k))
    tile_m, tile_n = TILE_M.reshape(shape), TILE_N.reshape(shape)
    wave = TILE_FLOPS.reshape(shape) * units / rate
    down, across = np.ceil(m / tile_m), np.ceil(n / tile_n)
    full = groups * down * across / units
    thin = THIN_ROWS / maximum(minimum(tile_m * down, tile_n * across), 1.0)
    best = np.minimum.reduce(wave * (np.ceil(full) + full * thin) * (k + fill), axis=0)
    written = maximum(element_bytes, 2.0)
    traffic = groups * (element_bytes * (m * k + k * n) + written * (m * n)) / memory_rate
    return maximum(best, traffic) + KERNEL_SECONDS * launches


def router_seconds(tokens: Num, hidden: Num, experts: Num, *, rate: Num, memory_rate: Num) -> Num:
    """Return the time of the router, forward and backward, seconds.

        6 t h E / rate + 4 ROUTER_PASSES t E / memory_rate + ROUTER_SECONDS

    Args:
        tokens: t: Tokens of the rank.
        hidden: h: Width of the residual stream.
        experts: E: Routed experts.
        rate: FLOP/s of 16-bit GEMMs.
        memory_rate: Bytes/s that memory sustains.

    >>> round(1e6 * float(router_seconds(4096.0, 7168.0, 256.0, rate=6e14, memory_rate=2.8e12)), 1)
    225.1
    """
    scores = tokens * experts
    product = 6.0 * scores * hidden / rate
    return product + 4.0 * ROUTER_PASSES * scores / memory_rate + ROUTER_SECONDS


def derive_grouped_gemm(
    key: str,
    groups: float,
    m: float,
    n: float,
    k: float,
    *,
    rate: float,
    units: float,
    memory_rate: float,
    element_bytes: float = 2.0,
    fill: float = K_FILL,
    launches: float = 1.0,
) -> Derivation:
    """Return how `grouped_gemm_seconds` comes about: its tile, its waves, or its bytes.

    >>> chip = {"rate": 700e12, "units": 132.0, "memory_rate": 2.8e12}
    >>> derive_grouped_gemm("up", 8.0, 64.0, 4096.0, 7168.0, **chip).label
    'grouped GEMM up, bound by memory'
    """
    fill = max(fill, NARROW_FILL) if element_bytes < 2.0 else fill
    choices = []
    for a, b, efficiency in zip(TILE_M, TILE_N, TILE_EFFICIENCY, strict=True):
        wave = 2.0 * a * b / efficiency * units / rate
        down, across = np.ceil(m / a), np.ceil(n / b)
        full = groups * down * across / units
        thin = THIN_ROWS / max(min(a * down, b * across), 1.0)
        seconds = wave * (np.ceil(full) + full * thin) * (k + fill)
        choices.append((float(seconds), float(a), float(b), float(efficiency)))
    best, a, b, efficiency = min(choices)
    shape = (
        Letter("g", groups, "experts on the rank"),
        Letter("m", m, "rows"),
        Letter("n", n, "columns"),
        Letter("k", k, "depth"),
    )
    start = (
        Letter("l", launches, "kernels"),
        Letter("t0", KERNEL_SECONDS, "start and end of a kernel", "s"),
    )
    written = max(element_bytes, 2.0)
    traffic = groups * (element_bytes * (m * k + k * n) + written * (m * n)) / memory_rate
    if traffic >= best:
        return Derivation(
            key=key,
            label=f"grouped GEMM {key}, bound by memory",
            formula="g * (e * (m * k + k * n) + max(e, 2) * m * n) / B + l * t0",
            letters=(
                *shape,
                Letter("e", element_bytes, "bytes per operand element"),
                Letter("B", memory_rate, "memory bandwidth, sustained", "B/s"),
                *start,
            ),
        )
    tiles = "g * ceil(m / a) * ceil(n / b)"
    return Derivation(
        key=key,
        label=f"grouped GEMM {key}",
        formula=f"2 * a * b / E * u / R * (ceil({tiles} / u) + {tiles} / u"
        " * r / max(min(a * ceil(m / a), b * ceil(n / b)), 1)) * (k + f) + l * t0",
        letters=(
            *shape,
            Letter("a", a, "rows of a tile"),
            Letter("b", b, "columns of a tile"),
            Letter("E", efficiency, "efficiency of the tile"),
            Letter("u", units, "compute units"),
            Letter("f", fill, "depth at which a tile begins to pay"),
            Letter("R", rate, "sustained rate", "FLOP/s"),
            Letter("r", THIN_ROWS, "rows that each group costs besides"),
            *start,
        ),
    )
