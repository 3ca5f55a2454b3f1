"""Kernel cost model: GEMMs, attention, overlap of device and host, clocks under a power cap.

    rate = peak * efficiency                       # FLOP/s, sustained in a training step
    gemm_seconds(4096, 12288, 4096, rate=rate, units=132, memory_rate=2.8e12)

Pure functions on floats or arrays; SI units. Efficiencies are calibrated (`catalog/calibrations`),
shapes are physics: tiles, waves, depth of K.
"""

from __future__ import annotations

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, maximum, minimum, where

# Output tiles of today's GEMM kernels, with their efficiency against the largest: smaller tiles
# reuse less of what they load. Shape from published GEMM sweeps (A100 fp16 cubes of 1k/2k/4k/8k
# reach 38/71/73/81 % of peak).
TILE_M = np.array([256.0, 128.0, 64.0])
TILE_N = np.array([128.0, 128.0, 64.0])
TILE_EFFICIENCY = np.array([1.0, 0.95, 0.5])
# FLOPs of one tile per element of K, as if all tiles were as efficient as the largest.
TILE_FLOPS = 2.0 * TILE_M * TILE_N / TILE_EFFICIENCY

# Pipeline fill of one tile along K, elements. Fitted on FSDP step times: 146 (x/: 1.7).
K_FILL = 128.0

# Ramp and drain of one kernel, seconds: small products in DeepGEMM and cuBLASLt tables fit best
# with 3 us (5 us doubles their error; harnesses that launch from Python flatten out at 4 to 8).
KERNEL_SECONDS = 3e-6

# K splits a library may choose when there are too few tiles (cuBLAS split-K / stream-K).
SPLIT_K_DEPTH = 2048.0
SPLIT_K_MAX = 4.0

# Tokens at which a fused attention kernel reaches half of its rate. Published FlashAttention
# tables (512 to 16k tokens) give about 390; step times give 515 x/÷ 1.4.
ATTENTION_HALF_SEQUENCE = 400.0

# Voltage under a power limit: constant up to this fraction of the clock that the full limit
# sustains, then rising, so that energy per cycle at the full limit is this many times larger.
# Both chosen on a grid so that the largest error of step times down to 0.75 of the limit is least,
# on 32 clock sweeps of pipeline stages on A100 SXM (catalog/runs/power_clock.csv: 4.2 %, clocks
# 4.7 %) and the 12 power-limit runs on A100 PCIe (`perseus-power` in catalog/runs/runs.csv: 3.9 %).
# Down to 0.58 of the limit the two boards differ by a quarter and the rule is in between (13 %).
CLOCK_KNEE = 0.82
CLOCK_ENERGY = 1.23
# Power over clock near the full limit: the slope of the rule there.
CLOCK_EXPONENT = (1.0 + (CLOCK_ENERGY - 1.0) * (2.0 - CLOCK_KNEE) / (1.0 - CLOCK_KNEE)) / (
    CLOCK_ENERGY
)


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
    """Return the time of C[m, n] = A[m, k] B[k, n], seconds.

        max(min over tiles a x b and splits s of
                ceil(ceil(m / a) * ceil(n / b) * s / units) * (k / s + fill)
                    * 2 * a * b / efficiency * units / rate,
            (bytes * (m * k + k * n) + max(bytes, 2) * m * n) / memory_rate) + KERNEL_SECONDS

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

    >>> chip = {"rate": 700e12, "units": 132.0, "memory_rate": 2.8e12}
    >>> times = [float(gemm_seconds(m, 4096.0, 4096.0, **chip)) for m in (64.0, 4096.0)]
    >>> [round(1e6 * seconds, 1) for seconds in times]        # the first is bound by memory
    [15.4, 211.8]
    """
    split = minimum(maximum(np.floor(k / SPLIT_K_DEPTH), 1.0), SPLIT_K_MAX)
    # Tile shapes along a leading axis, so that all are tried in one pass.
    shape = (len(TILE_M),) + (1,) * max(np.ndim(m), np.ndim(n), np.ndim(k))
    tile_m, tile_n = TILE_M.reshape(shape), TILE_N.reshape(shape)
    wave = TILE_FLOPS.reshape(shape) * units / rate
    tiles = np.ceil(m / tile_m) * np.ceil(n / tile_n)
    whole = np.ceil(tiles / units) * (k + fill)
    parts = np.ceil(tiles * split / units) * (k / split + fill)
    best = np.minimum.reduce(wave * minimum(whole, parts), axis=0)
    written = maximum(element_bytes, 2.0)
    traffic = (element_bytes * (m * k + k * n) + written * (m * n)) / memory_rate
    result: Num = maximum(best, traffic) + KERNEL_SECONDS
    return result


def attention_seconds(flops: Num, *, rate: Num, seq_len: Num) -> Num:
    """Return the time of a fused attention kernel, seconds.

        flops * (1 + ATTENTION_HALF_SEQUENCE / seq_len) / rate

    The form of the published FlashAttention tables (Dao, arXiv 2307.08691).

    Args:
        flops: Work of the kernel, causal FLOP.
        rate: FLOP/s it sustains on long sequences.
        seq_len: Tokens along which one kernel call runs; short ones leave the units idle.

    >>> attention_seconds(4e12, rate=400e12, seq_len=4000.0)
    0.011
    """
    result: Num = flops * (1.0 + ATTENTION_HALF_SEQUENCE / seq_len) / rate
    return result


def smooth_max(a: Num, b: Num, sharpness: float = 0.06) -> Num:
    """Return a maximum with a rounded corner, for two processes that overlap.

        (a + b + sqrt((a - b)^2 + sharpness a b)) / 2

    When the device and the host need the same time, neither overlaps the other perfectly; at
    a = b the result is 12% above (what a p-norm with p = 6 gives, fitted on eager step times).

    Args:
        a: One time.
        b: The other, in the same unit.
        sharpness: 0 for a plain maximum.

    >>> round(float(smooth_max(1.0, 1.0)), 3), round(float(smooth_max(1.0, 0.1)), 3)
    (1.122, 1.002)
    """
    apart = a - b
    result: Num = 0.5 * (a + b + np.sqrt(apart * apart + sharpness * a * b))
    return result


def clock_factor(cap_watts: Num, tdp_watts: Num, idle_watts: Num) -> Num:
    """Return the fraction of the sustained clock left under a power limit.

        f <= 1 with f * V2(f) / V2(1) = (cap - idle) / (tdp - idle)
        V2(f) = 1 + (CLOCK_ENERGY - 1) * max(f - CLOCK_KNEE, 0) / (1 - CLOCK_KNEE)

    Dynamic power goes as V^2 f. Near the full limit the voltage falls with the clock, so the first
    watts cost little speed; below the knee it is at its floor and speed falls like power.
    The efficiency sustained at the power of the calibration is part of it, so f is 1 there.

    Args:
        cap_watts: Power cap.
        tdp_watts: Power limit without one.
        idle_watts: Power with nothing running.

    >>> [round(float(clock_factor(cap, 700.0, 70.0)), 3) for cap in (700.0, 500.0, 350.0)]
    [1.0, 0.829, 0.547]
    """
    head = maximum(cap_watts - idle_watts, 1.0) / maximum(tdp_watts - idle_watts, 1.0)
    power = CLOCK_ENERGY * head
    # Above the knee: slope * f^2 + linear * f = power.
    slope = (CLOCK_ENERGY - 1.0) / (1.0 - CLOCK_KNEE)
    linear = 1.0 - slope * CLOCK_KNEE
    above = (np.sqrt(linear * linear + 4.0 * slope * power) - linear) / (2.0 * slope)
    result: Num = minimum(where(power <= CLOCK_KNEE, power, above), 1.0)
    return result


def derive_gemm(
    key: str,
    m: float,
    n: float,
    k: float,
    *,
    rate: float,
    units: float,
    memory_rate: float,
    element_bytes: float = 2.0,
    fill: float = K_FILL,
) -> Derivation:
    """Return how `gemm_seconds` of one product comes about: its tile, its waves, or its bytes.

    >>> chip = {"rate": 700e12, "units": 132.0, "memory_rate": 2.8e12}
    >>> derive_gemm("down", 64.0, 4096.0, 4096.0, **chip).label
    'GEMM down, bound by memory'
    """
    split = min(max(np.floor(k / SPLIT_K_DEPTH), 1.0), SPLIT_K_MAX)
    choices = []
    for a, b, efficiency in zip(TILE_M, TILE_N, TILE_EFFICIENCY, strict=True):
        wave = 2.0 * a * b / efficiency * units / rate
        tiles = np.ceil(m / a) * np.ceil(n / b)
        for s in {1.0, float(split)}:
            seconds = wave * np.ceil(tiles * s / units) * (k / s + fill)
            choices.append((float(seconds), float(a), float(b), float(efficiency), s))
    best, a, b, efficiency, s = min(choices)
    shape = (Letter("m", m, "rows"), Letter("n", n, "columns"), Letter("k", k, "depth"))
    start = Letter("t0", KERNEL_SECONDS, "start and end of a kernel", "s")
    traffic = (element_bytes * (m * k + k * n) + max(element_bytes, 2.0) * (m * n)) / memory_rate
    if traffic >= best:
        return Derivation(
            key=key,
            label=f"GEMM {key}, bound by memory",
            formula="(e * (m * k + k * n) + max(e, 2) * m * n) / B + t0",
            letters=(
                *shape,
                Letter("e", element_bytes, "bytes per operand element"),
                Letter("B", memory_rate, "memory bandwidth, sustained", "B/s"),
                start,
            ),
        )
    return Derivation(
        key=key,
        label=f"GEMM {key}",
        formula="2 * a * b / E * u / R * ceil(ceil(m / a) * ceil(n / b) * s / u) * (k / s + f)"
        " + t0",
        letters=(
            *shape,
            Letter("a", a, "rows of a tile"),
            Letter("b", b, "columns of a tile"),
            Letter("E", efficiency, "efficiency of the tile"),
            Letter("u", units, "compute units"),
            Letter("s", s, "parts of the depth (split-K)"),
            Letter("f", fill, "depth at which a tile begins to pay"),
            Letter("R", rate, "sustained rate", "FLOP/s"),
            start,
        ),
    )


def derive_smooth_max(key: str, label: str, device: float, host: float) -> Derivation:
    """Return how the slower of device and host comes about.

    >>> derive_smooth_max("f", "forward of a layer", 1.0, 1.0).value == float(smooth_max(1.0, 1.0))
    True
    """
    return Derivation(
        key=key,
        label=label,
        formula="0.5 * (d + h + sqrt((d - h) ** 2 + 0.06 * d * h))",
        letters=(
            Letter("d", device, "device: kernels and exposed communication", "s"),
            Letter("h", host, "host: launches", "s"),
        ),
        notes=("a maximum with a rounded corner: neither hides the other perfectly",),
    )
