"""Columns of a `Case` from cluster, chip and precision: counts, links, hosts, rates.

machine_columns(cluster, chip)["scale_up"], clock(cluster, chip)
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from scalewise.chip import UNCALIBRATED
from scalewise.errors import InputError
from scalewise.host import host_of
from scalewise.numeric import Array
from scalewise.optimizer import STORED
from scalewise.physics.collectives import ALGORITHMS, PROTOCOLS
from scalewise.physics.compute import clock_factor
from scalewise.physics.links import ll_ceilings
from scalewise.physics.offload import cpu_update_rate, link_rate
from scalewise.precision import (
    ATTENTION_CAST_BYTES,
    ATTENTION_RATE,
    RECIPES,
    WIDE_ATTENTION,
    quantize_bytes,
)
from scalewise.strategies import WORDS

if TYPE_CHECKING:
    from scalewise.chip import Calibration
    from scalewise.cluster import Cluster
    from scalewise.stack import Stack
    from scalewise.strategies import Strategies
    from scalewise.workload import Workload

NET_OVERHEAD = {"intel": 1e-6, "amd": 2e-6, "arm": 1e-6, "unknown": 1e-6}
"""Host work of NCCL per network step by CPU vendor, seconds (NVIDIA/nccl, src/graph/tuning.cc)."""


def machine_columns(cluster: Cluster, chip: Calibration) -> dict[str, float | bool]:
    """Counts, links and rates that do not depend on the strategy."""
    accelerator, fabric = cluster.accelerator, cluster.fabric
    network = cluster.scale_out_within(cluster.accelerators)
    return {
        "gpus": float(cluster.accelerators),
        "domain": float(cluster.scale_up_domain),
        "domains": float(cluster.nodes),
        "units": float(accelerator.compute_units or 1),
        "gemm_fill": chip.gemm_fill,
        "memory_bytes": accelerator.memory_bytes,
        "memory": accelerator.memory_bandwidth * chip.memory_efficiency,
        "scale_up": cluster.scale_up_bandwidth * chip.link_efficiency,
        "scale_out": network * fabric.efficiency,
        "hop_seconds": fabric.hop_seconds,
        "call_seconds": fabric.call_seconds,
        "ring_step_seconds": fabric.ring_step_seconds,
        "net_overhead": NET_OVERHEAD[cluster.host],
        "congestion": fabric.congestion,
        "flat_domains": fabric.flat_domains,
        "rail_scaling": fabric.rail_scaling,
        "latency_factor": fabric.latency_factor,
        **ll_ceilings(accelerator.architecture, cluster.host),
        "ll128": float(fabric.ll128),
        "protocol": _index(cluster.protocol, PROTOCOLS),
        "algorithm": _index(cluster.algorithm, ALGORITHMS),
        "scatter_factor": fabric.scatter_factor,
        "all_reduce_factor": fabric.all_reduce_factor,
        "nvls": float(accelerator.nvls),
    }


def host_columns(cluster: Cluster, workload: Workload, stack: Stack) -> dict[str, float]:
    """Ranks, rates and memory of a host, and the bytes of offloaded parameters.

    PyTorch copies what it stores and casts on the device (FSDPParam.all_gather_inputs); DeepSpeed
    keeps 16-bit copies (offload_param). A frozen model is copied as it is stored.
    """
    host, stored = host_of(cluster), STORED[workload.weights]
    ranks = float(host.accelerators)
    kept = (stored.master or stored.weight) if stack.family == "pytorch" else stored.weight
    update = float(cpu_update_rate(host.memory_bandwidth, host.cores))
    if stack.cpu_update_rate:
        update = min(update, ranks * stack.cpu_update_rate)
    return {
        "host_ranks": ranks,
        "host_link": float(link_rate(host.link, host.memory_bandwidth, ranks)),
        "host_update": update,
        "host_bytes": np.inf if host.memory_bytes is None else host.memory_bytes,
        "nvme_read": host.nvme_read,
        "nvme_write": host.nvme_write,
        "fetched": workload.tuned.base_bytes if workload.tuned.frozen else kept,
    }


def clock(cluster: Cluster, chip: Calibration) -> float:
    """Fraction of the calibration's clock that the power limit of the accelerator leaves.

    A part with less power per FLOP/s of peak than the one of the calibration runs the same die
    slower, and a cap lowers the clock from there: parts are binned for their own limit.
    """
    limit, tdp, idle = cluster.power_limit, cluster.tdp, cluster.idle
    if limit is None or tdp is None or idle is None:
        return 1.0
    part, peaks = 1.0, cluster.accelerator.peak_flops
    peak = peaks.get("bf16", peaks.get("fp16"))
    if chip.fitted_watts and chip.fitted_peak and peak:
        part = float(clock_factor(tdp * chip.fitted_peak / peak, chip.fitted_watts, 0.0))
    return part * float(clock_factor(limit, tdp, idle))


def rate_columns(
    cluster: Cluster, workload: Workload, strategies: Strategies, stack: Stack, chip: Calibration
) -> dict[str, Array]:
    """Peaks and sustained rates, for every distinct precision of GEMMs and attention."""
    names = (
        "peak", "gemm", "gemm16", "matmul_bytes", "scale_bytes", "quantize_bytes", "quantizing",
        "attention_forward", "attention_backward", "attention_cast_bytes", "gathers",
        "activation_bytes",
    )  # fmt: skip
    kinds = len(WORDS["precision"])
    codes = strategies.precision + kinds * strategies.attention_precision
    if codes.size == 1:
        distinct, place = codes.reshape(1), np.zeros(codes.shape, dtype=int)
    else:
        distinct, place = np.unique(codes, return_inverse=True)
    pairs = [divmod(int(code), kinds) for code in distinct]
    words = [(str(WORDS["precision"][code] or workload.precision), eight) for eight, code in pairs]
    table = np.array([_rates_of(*word, cluster, stack, chip) for word in words])
    return dict(zip(names, table.T[:, place.reshape(codes.shape)], strict=True))


@lru_cache(maxsize=256)
def _rates_of(
    precision: str, eight: int, cluster: Cluster, stack: Stack, chip: Calibration
) -> tuple[float, ...]:
    """Peaks and sustained rates of one precision, with attention in 8 bits or 16."""
    recipe = RECIPES[precision]
    kernel: str = stack.attention_kernel
    if recipe.wide:
        kernel = WIDE_ATTENTION.get(kernel, kernel)
    forward, backward = chip.attention.get(kernel, UNCALIBRATED.attention[kernel])
    accelerator, left = cluster.accelerator, clock(cluster, chip)
    family = "bf16" if recipe.wide and recipe.family not in chip.gemm else recipe.family
    half = "fp16" if precision == "fp16" or "bf16" not in accelerator.peak_flops else "bf16"
    peak = accelerator.peak(precision)
    peak16 = peak if recipe.wide else accelerator.peak(half)
    gemm = chip.gemm.get(family, UNCALIBRATED.gemm[family])
    if stack.until and stack.until <= chip.early_until:
        gemm *= chip.early_gemm.get(family, 1.0)
    gemm *= recipe.rate_on(accelerator.peak_flops)
    if eight:
        if recipe.wide:
            raise InputError(
                f"attention_precision = fp8 needs GEMMs of 16 bits or less, not {precision}",
                hint="drop the fp8attn token",
            )
        accelerator.peak("fp8")
        forward *= ATTENTION_RATE
    return (
        peak,
        left * peak * gemm * stack.gemm,
        left * peak16 * (gemm if recipe.wide else chip.gemm["bf16"]) * stack.gemm,
        recipe.operand_bytes,
        recipe.scale_bytes,
        quantize_bytes(recipe, stack.cast_bytes, stack.scan_bytes),
        recipe.launches,
        left * peak16 * forward * stack.attention_forward,
        left * peak16 * backward * stack.attention_backward,
        ATTENTION_CAST_BYTES + stack.scan_bytes if eight else 0.0,
        float(recipe.gathers),
        recipe.activation_bytes,
    )


def peak_fractions(
    cluster: Cluster, precision: str, stack: Stack, chip: Calibration
) -> dict[str, float]:
    """Return the sustained rate over the dense peak, for each rate that a stack has a factor of."""
    rates, peaks = _rates_of(precision, 0, cluster, stack, chip), cluster.accelerator.peak_flops
    peak, gemm, _, *_, forward, backward, _, _, _ = rates
    peak16 = peaks.get("bf16", peaks.get("fp16", peak))
    return {
        "gemm": gemm / peak,
        "attention_forward": forward / peak16,
        "attention_backward": backward / peak16,
    }


def _index(name: str, names: tuple[str, ...]) -> float:
    """Place in `names`, or -1 for "auto"."""
    return -1.0 if name == "auto" else float(names.index(name))
