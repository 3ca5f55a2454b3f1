"""How long kernels take: matrix products, attention, memory-bound work, host launches.

    rate = peak * efficiency                       # FLOP/s, sustained in a training step
    gemm_seconds(4096, 12288, 4096, rate=rate, units=132, memory_rate=2.8e12)

Pure functions on floats or arrays; SI units. Efficiencies are calibrated (`catalog/calibrations`),
shapes are physics: tiles, waves, depth of K.
"""

from __future__ import annotations

import numpy as np

from scalewise.numeric import Num

# Output tiles of today's GEMM kernels, with their efficiency against the largest: smaller tiles
# reuse less of what they load. Shape from published GEMM sweeps (A100 fp16 cubes of 1k/2k/4k/8k
# reach 38/71/73/81 % of peak).
TILE_M = np.array([256.0, 128.0, 64.0])
TILE_N = np.array([128.0, 128.0, 64.0])
TILE_EFFICIENCY = np.array([1.0, 0.95, 0.5])

# Pipeline fill of one tile along K, elements. Fitted on FSDP step times: 146 (x/: 1.7).
K_FILL = 128.0

# Ramp and drain of one kernel, seconds: small products in DeepGEMM and cuBLASLt tables fit best
# with 3 us (5 us doubles their error; harnesses that launch from Python flatten out at 4 to 8).
KERNEL_SECONDS = 3e-6

# K splits a library may choose when there are too few tiles (cuBLAS split-K / stream-K).
SPLIT_K_DEPTH = 2048.0
SPLIT_K_MOST = 4.0

# Tokens at which a fused attention kernel reaches half of its rate. Published FlashAttention
# tables (512 to 16k tokens) give about 390; step times give 515 x/÷ 1.4.
ATTENTION_HALF_SEQUENCE = 400.0


def gemm_seconds(
    m: Num,
    n: Num,
    k: Num,
    *,
    rate: Num,
    units: Num,
    memory_rate: Num,
    element_bytes: Num = 2.0,
    fill: Num = K_FILL,
) -> Num:
    """Return the time of C[m, n] = A[m, k] B[k, n].

    The product is cut into tiles, the tiles run in waves over the compute units, and the last wave
    may be nearly empty: that is what makes small products inefficient. The best of three tile
    shapes, with or without splitting K, is taken, as a library's heuristic would.

    Args:
        m: Rows of the result.
        n: Columns of the result.
        k: Depth of the product.
        rate: FLOP/s sustained on large products.
        units: Compute units (SMs) that work in parallel; 1 where waves do not exist (TPU).
        memory_rate: Bytes/s that memory sustains.
        element_bytes: Bytes per operand element.
        fill: Pipeline fill of one tile along K, elements.

    Returns:
        Seconds; never below the time to move operands and result through memory once.
    """
    split = np.minimum(np.maximum(np.floor(k / SPLIT_K_DEPTH), 1.0), SPLIT_K_MOST)
    # Tile shapes along a leading axis, so that all are tried in one pass.
    shape = (len(TILE_M),) + (1,) * max(np.ndim(m), np.ndim(n), np.ndim(k))
    tile_m, tile_n = TILE_M.reshape(shape), TILE_N.reshape(shape)
    wave = 2.0 * tile_m * tile_n / TILE_EFFICIENCY.reshape(shape) * units / rate
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n)
    whole = np.ceil(tiles / units) * (k + fill)
    parts = np.ceil(tiles * split / units) * (k / split + fill)
    best = np.minimum.reduce(wave * np.minimum(whole, parts), axis=0)
    traffic = (element_bytes * (m * k + k * n) + 2.0 * (m * n)) / memory_rate
    result: Num = np.maximum(best, traffic) + KERNEL_SECONDS
    return result


def attention_seconds(flops: Num, *, rate: Num, sequence: Num) -> Num:
    """Return the time of a fused attention kernel.

    Args:
        flops: Work of the kernel, causal FLOP.
        rate: FLOP/s it sustains on long sequences.
        sequence: Tokens along which one kernel call runs; short ones leave the units idle.
    """
    result: Num = flops * (1.0 + ATTENTION_HALF_SEQUENCE / sequence) / rate
    return result


def smooth_max(a: Num, b: Num, sharpness: float = 0.06) -> Num:
    """Return a maximum that rounds its corner, for two processes that hide each other.

    When the device and the host need the same time, neither hides perfectly behind the other; at
    a = b the result is 12 % above (what a p-norm with p = 6 gives, fitted on eager step times).
    """
    result: Num = 0.5 * (a + b + np.sqrt((a - b) * (a - b) + sharpness * a * b))
    return result


def clock_factor(cap_watts: Num, tdp_watts: Num, idle_watts: Num) -> Num:
    """Return the share of sustained clock left under a power cap.

    Dynamic power goes as V^2 f, and V falls with f over the range where capping works, so power
    grows with about the cube of the clock near the top and less below. The exponent 2.5 is an
    assumption: no published sweep of clocks under a cap was at hand.
    The sustained efficiency at the full TDP is part of the calibration, so the factor is 1 there.
    """
    head = np.maximum(cap_watts - idle_watts, 1.0) / np.maximum(tdp_watts - idle_watts, 1.0)
    result: Num = np.minimum(np.power(head, 1.0 / 2.5), 1.0)
    return result
