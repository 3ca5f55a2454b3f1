"""Columns of a `Case` from model, cluster, workload, strategies, software and chip.

    case = lay_out(model, cluster, workload, strategies, stack, chip)

Meshes and batches are not checked here: `feasibility` does, because an impossible strategy among
many is an answer, not an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.chip import UNCALIBRATED
from scalewise.errors import InputError
from scalewise.numeric import Array, Mask, squeeze_constant_axes, stacked
from scalewise.physics.collectives import ALGORITHMS, PROTOCOLS
from scalewise.physics.compute import clock_factor
from scalewise.physics.links import ll_ceilings
from scalewise.step.case import Case, Habits
from scalewise.step.recompute import FULL, SELECTIVE
from scalewise.step.stages import stage_layers
from scalewise.strategies import WORDS, encode, recompute_fraction

if TYPE_CHECKING:
    from scalewise.chip import Calibration
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.stack import Stack
    from scalewise.strategies import Strategies
    from scalewise.workload import Workload

NET_OVERHEAD = {"intel": 1e-6, "amd": 2e-6, "arm": 1e-6, "unknown": 1e-6}
"""Host work of NCCL per network step by CPU vendor, seconds (NVIDIA/nccl, src/graph/tuning.cc)."""

PRECISIONS = {
    "fp8": ("fp8", 1.0, 1.0),
    "mxfp8": ("fp8", 1.0, 2.0),
    "nvfp4": ("fp4", 0.5, 2.0),
}
"""Family of the chip's efficiency, bytes per operand, quantized copies of an input; 16-bit types
are ("bf16", 2, 0)."""

_SWITCHES = (
    "recompute_skips_last", "keeps_quantized", "reduce_every_micro_step",
    "zero2_every_micro_step", "pipeline_gathers_once", "balanced_ring", "keeps_sp_all_gather",
)  # fmt: skip
_CONSTANTS = tuple(
    each.name for each in fields(Habits) if each.name not in (*_SWITCHES, "unfused_attention")
)


def lay_out(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategies: Strategies,
    stack: Stack,
    chip: Calibration,
) -> Case:
    """Return one step for each of many strategies.

    Args:
        model: Model.
        cluster: On what.
        workload: Sequence, batch and precision.
        strategies: Parallelizations.
        stack: Constants of the software.
        chip: Constants of the architecture.
    """
    fixed = {
        **_shape(model, workload.seq_len),
        "attention_width": model.heads * max(model.head_dim, chip.head_lanes),
        "global_batch": workload.global_batch,
        **_machine(cluster, chip),
        **{name: getattr(stack, name) for name in _CONSTANTS},
    }
    switches = {name: getattr(stack, name) for name in _SWITCHES}
    switches["unfused_attention"] = stack.attention_kernel == "unfused"
    columns: dict[str, Any] = {
        **_same(np.array([*fixed.values()], dtype=float), fixed, strategies.shape),
        **_same(np.array([*switches.values()]), switches, strategies.shape),
        **_split(model, workload, strategies, stack),
        **_rates(cluster, workload, strategies, stack, chip),
    }
    timed = np.empty(1, dtype=object)
    timed[0] = chip.gemm_shapes
    columns |= _same(timed, ("gemm_shapes",), strategies.shape)
    stated = strategies.reduce_precision
    columns["reduce_bytes"] = np.where(
        stated == 0.0, columns["reduce_bytes"], np.where(stated == 1.0, 4.0, 2.0)
    )
    return Case.of_columns(columns)


def _same(
    values: Array | Mask, names: Iterable[str], shape: tuple[int, ...]
) -> dict[str, Array | Mask]:
    """What is the same for all strategies: one number seen along the rows, never copied.

    Of length 1 along every axis of a product.
    """
    laid: Any = values.reshape(-1, *(1,) * len(shape))
    if len(shape) == 1 and shape[0] > 1:
        laid = np.broadcast_to(laid, (len(laid), *shape))
    return dict(zip(names, laid, strict=True))


@lru_cache(maxsize=256)
def _shape(model: Model, seq_len: int) -> dict[str, float]:
    """Shapes and parameter counts; counted once per model, because counting is not free."""
    return {
        "layers": model.layers,
        "hidden": model.hidden,
        "query": model.heads * model.head_dim,
        "key_value": model.kv_heads * model.head_dim,
        "heads": model.heads,
        "ffn": model.ffn,
        "gated": float(model.gated),
        "vocab": model.vocab,
        "span": model.attention_span(seq_len),
        "layer_params": model.layer_parameters,
        "embedding_params": model.embedding_parameters,
        "head_params": model.head_parameters,
        "seq_len": seq_len,
    }


def _split(
    model: Model, workload: Workload, strategies: Strategies, stack: Stack
) -> dict[str, Array | Mask]:
    """Degrees, switches, and the layers of the first, a middle and the last stage."""
    s = strategies
    first, middle, last, fit = _stages(model, s, stack)
    ranks = s.micro_batch * s.dp_replicate * s.dp_shard
    degrees = (
        "dp_replicate", "dp_shard", "sharding", "prefetch", "tp", "cp", "pp", "schedule",
        "micro_batch",
    )  # fmt: skip
    switches = ("reshard_after_forward", "overlap_dp", "overlap_tp", "overlap_pp")
    return {
        **{name: getattr(s, name) for name in degrees},
        **{name: getattr(s, name) > 0.0 for name in switches},
        "sequence_parallel": (s.sequence_parallel > 0.0) & (s.tp > 1.0),
        "cp_ring": s.cp_method == encode("cp_method", "ring"),
        "chunks": s.virtual_stages,
        **_recompute(s.recompute, stack),
        # The same for all ways to replicate and shard over as many ranks.
        "num_microbatches": squeeze_constant_axes(
            np.maximum(np.floor(workload.global_batch / ranks), 1.0)
        ),
        "first_layers": first,
        "middle_layers": middle,
        "last_layers": last,
        "stages_fit": fit > 0.0,
        "experts_fit": (s.ep <= 1.0) | (model.moe is not None),
    }


def _recompute(codes: Array, stack: Stack) -> dict[str, Array]:
    """Kind of recompute, with "selective" as the software means it, and its fraction of blocks."""
    blocks = recompute_fraction(codes)
    own = "selective" if stack.selective == "policy" else stack.selective
    kind = np.where(codes == SELECTIVE, encode("recompute", own), codes)
    return {"recompute": np.where(blocks > 0.0, FULL, kind), "recompute_blocks": blocks}


def _stages(
    model: Model, strategies: Strategies, stack: Stack
) -> tuple[Array, Array, Array, Array]:
    """Stage sizes and whether they exist, computed once for every distinct (pp, first, last)."""
    s = strategies
    laid = stacked(s.pp, s.first_stage_layers, s.last_stage_layers)
    keys = laid.reshape(3, -1)
    if keys.shape[1] == 1:
        distinct, place = keys, np.zeros(1, dtype=int)
    elif np.any(keys[1:]):
        distinct, place = np.unique(keys, axis=1, return_inverse=True)
    else:
        # Nearly always: `unique` of a plain array is much faster.
        _, index, place = np.unique(keys[0], return_index=True, return_inverse=True)
        distinct = keys[:, index]
    sizes = np.ones((4, distinct.shape[1]))
    for column, (pp, first, last) in enumerate(distinct.T.astype(int).tolist()):
        try:
            sizes[:3, column] = stage_layers(
                model, pp, rule=stack.partition, first=first or None, last=last or None
            )
        except InputError:
            # `feasibility` says so; any positive size will do here.
            sizes[3, column] = 0.0
    first_layers, middle, last_layers, fit = sizes[:, np.ravel(place)].reshape(4, *laid.shape[1:])
    return first_layers, middle, last_layers, fit


def _machine(cluster: Cluster, chip: Calibration) -> dict[str, float | bool]:
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


def _rates(
    cluster: Cluster, workload: Workload, strategies: Strategies, stack: Stack, chip: Calibration
) -> dict[str, Array]:
    """Peaks and sustained rates, for every distinct precision."""
    names = (
        "peak", "gemm", "gemm16", "matmul_bytes", "quantized_copies", "attention_forward",
        "attention_backward",
    )  # fmt: skip
    columns = {name: np.empty(strategies.precision.shape) for name in names}
    kernel = stack.attention_kernel
    forward, backward = chip.attention.get(kernel, UNCALIBRATED.attention[kernel])
    accelerator, left = cluster.accelerator, clock(cluster, chip)
    codes = strategies.precision
    for code in codes.ravel() if codes.size == 1 else np.unique(codes):
        precision = str(WORDS["precision"][int(code)] or workload.precision)
        family, operand, copies = PRECISIONS.get(precision, ("bf16", 2.0, 0.0))
        wide = "fp16" if precision == "fp16" or "bf16" not in accelerator.peak_flops else "bf16"
        peak, peak16 = accelerator.peak(precision), accelerator.peak(wide)
        gemm = chip.gemm.get(family, UNCALIBRATED.gemm[family])
        if stack.until and stack.until <= chip.early_until:
            gemm *= chip.early_gemm.get(family, 1.0)
        values = (
            peak,
            left * peak * gemm * stack.gemm,
            left * peak16 * chip.gemm["bf16"] * stack.gemm,
            operand,
            copies,
            left * peak16 * forward * stack.attention_forward,
            left * peak16 * backward * stack.attention_backward,
        )
        rows = strategies.precision == code
        for name, value in zip(names, values, strict=True):
            columns[name][rows] = value
    return columns


def _index(name: str, names: tuple[str, ...]) -> float:
    """Place in `names`, or -1 for "auto"."""
    return -1.0 if name == "auto" else float(names.index(name))
