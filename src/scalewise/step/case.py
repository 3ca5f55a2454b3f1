"""Every number one step needs, flat: the bridge from nouns to physics.

    case = Case.of(model, cluster, workload, strategies, stack, chip)
    many = Case.join([case, ...])              # several models or clusters behind each other

Formulas in `step` read a `Case` and nothing else, so one estimate (fields of length 1) and a
million (long fields) run through the same lines, and a calibration can vary any constant.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from scalewise.chip import UNCALIBRATED
from scalewise.errors import InputError
from scalewise.numeric import Array, Index, lean, stacked
from scalewise.physics.collectives import ALGORITHMS, PROTOCOLS
from scalewise.physics.compute import clock_factor
from scalewise.step.stages import stage_layers
from scalewise.strategies import WORDS, encode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scalewise.chip import Calibration
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.stack import Stack
    from scalewise.strategies import Strategies
    from scalewise.workload import Workload

NET_OVERHEAD = {"intel": 1e-6, "amd": 2e-6, "arm": 1e-6, "unknown": 1e-6}


@dataclass(kw_only=True, slots=True)
class Case:
    """One or many steps. Booleans are 0 or 1; SI units; docstrings name what is not obvious."""

    # The model.
    layers: Array
    hidden: Array
    query: Array
    """Width of all query heads."""
    key_value: Array
    """Width of all key (or value) heads."""
    heads: Array
    ffn: Array
    gated: Array
    vocab: Array
    span: Array
    """Keys a query attends to, mean over tokens and layers."""
    layer_params: Array
    embedding_params: Array
    """Input embedding and learned positions."""
    head_params: Array
    """Output projection that is stored of its own (0 when tied)."""

    # The workload.
    sequence: Array
    global_batch: Array

    # The strategy.
    dp_replicate: Array
    dp_shard: Array
    sharding: Array
    """ZeRO stage, 0 to 3."""
    reshard: Array
    prefetch: Array
    tp: Array
    sequence_parallel: Array
    cp: Array
    cp_ring: Array
    pp: Array
    chunks: Array
    """Virtual stages per pipeline stage."""
    schedule: Array
    """0 GPipe, 1 1F1B or interleaved, 2 ZB-H1, 3 ZB-V."""
    micro_batch: Array
    micro_steps: Array
    recompute: Array
    """0 none, 1 selective, 2 full."""
    overlap_dp: Array
    overlap_tp: Array
    overlap_pp: Array
    first_layers: Array
    middle_layers: Array
    last_layers: Array
    stages_fit: Array
    """0 where the layers cannot be split into such stages."""
    software_fits: Array
    """0 where the strategy says eager or compiled and the stack is the other."""
    experts_fit: Array
    """0 where experts are to be split and the model has none."""

    # The cluster.
    accelerators: Array
    domain: Array
    domains: Array
    rate: Array
    """FLOP/s that block GEMMs sustain, at the workload's precision."""
    rate16: Array
    """FLOP/s that 16-bit GEMMs sustain (head)."""
    peak: Array
    """Datasheet FLOP/s at the workload's precision."""
    matmul_bytes: Array
    """Bytes per GEMM operand element."""
    quantised_copies: Array
    """Copies of a GEMM input that quantising makes: 1 per-tensor, 2 for MX (rows and columns)."""
    units: Array
    memory_bytes: Array
    memory_rate: Array
    scale_up: Array
    scale_out: Array
    hop_seconds: Array
    call_seconds: Array
    net_overhead: Array
    ring_step_seconds: Array
    congestion: Array
    rail_scaling: Array
    latency_factor: Array
    protocol: Array
    algorithm: Array
    in_switch: Array
    scatter_factor: Array
    all_reduce_factor: Array
    gemm_fill: Array

    # The software stack.
    attention_forward_rate: Array
    attention_backward_rate: Array
    unfused_attention: Array
    memory_traffic: Array
    host_layer_seconds: Array
    contention: Array
    tp_overlap: Array
    dp_overlap: Array
    shard_overlap: Array
    gradient_bytes: Array
    logit_bytes: Array
    optimizer_bytes: Array
    step_seconds: Array
    selective_share: Array
    recompute_skips_last: Array
    reduce_every_micro_step: Array
    reduce_bytes: Array
    bucket_bytes: Array
    bucket_bytes_per_rank: Array
    cast_bytes: Array
    pipeline_host_seconds: Array
    straggler: Array
    gathers_kept: Array
    gradient_memory: Array
    activation_factor: Array
    selective_memory: Array
    logit_memory: Array
    workspace_bytes: Array
    fragmentation: Array

    def __len__(self) -> int:
        return len(self.layers)

    @classmethod
    def of(
        cls,
        model: Model,
        cluster: Cluster,
        workload: Workload,
        strategies: Strategies,
        stack: Stack,
        chip: Calibration,
    ) -> Case:
        """Lay out one step for each of many strategies.

        Meshes and batches are not checked here: `feasibility` does, because an impossible
        strategy among many is an answer, not an error.

        Args:
            model: What is trained.
            cluster: On what.
            workload: Sequence, batch and precision.
            strategies: How it is split.
            stack: Constants of the software.
            chip: Constants of the architecture.
        """
        fixed = {
            **_model_shapes(model, workload.sequence),
            "global_batch": workload.global_batch,
            **_cluster_numbers(cluster, stack, chip),
            **{name: getattr(stack, name) for name in _STACK_FIELDS},
        }
        # What is the same for all strategies is not copied: one number, seen along the rows, or
        # of length 1 along every axis of a product.
        values = np.array([*fixed.values()], dtype=float)
        axes = len(strategies.shape)
        shape = strategies.shape if axes == 1 else (1,) * axes
        block = np.broadcast_to(values.reshape(-1, *(1,) * axes), (len(values), *shape))
        columns = dict(zip(fixed, block, strict=True))
        columns |= _strategy_numbers(model, workload, strategies, stack)
        columns |= _precision_numbers(cluster, workload, strategies, stack, chip)
        stated = strategies.reduce_precision
        columns["reduce_bytes"] = np.where(
            stated == 0.0, columns["reduce_bytes"], np.where(stated == 1.0, 4.0, 2.0)
        )
        return cls(**columns)

    @classmethod
    def join(cls, cases: Sequence[Case]) -> Case:
        """Lay cases behind each other."""
        return cls(
            **{
                name: np.concatenate([getattr(case, name) for case in cases])
                for name in cls.columns()
            }
        )

    @classmethod
    def columns(cls) -> tuple[str, ...]:
        """The names of all columns."""
        return tuple(field.name for field in fields(cls))

    def take(self, rows: Index) -> Case:
        """The rows of some places."""
        return Case(**{name: getattr(self, name)[rows] for name in _COLUMNS})

    def changed(self, **columns: Array) -> Case:
        """Return a copy with some columns exchanged."""
        kept = {name: getattr(self, name) for name in _COLUMNS}
        return Case(**{**kept, **columns})


_COLUMNS = Case.columns()

_STACK_FIELDS = (
    "memory_traffic", "host_layer_seconds", "contention", "tp_overlap", "dp_overlap",
    "shard_overlap", "gradient_bytes", "logit_bytes", "optimizer_bytes", "step_seconds",
    "selective_share", "recompute_skips_last", "reduce_every_micro_step", "reduce_bytes",
    "bucket_bytes", "bucket_bytes_per_rank", "cast_bytes", "pipeline_host_seconds", "straggler",
    "gathers_kept", "gradient_memory", "activation_factor", "selective_memory", "logit_memory",
    "workspace_bytes", "fragmentation",
)  # fmt: skip


@lru_cache(maxsize=256)
def _model_shapes(model: Model, sequence: int) -> dict[str, float]:
    """Shapes and parameter counts; counted once per model, because counting is not free."""
    return {
        "layers": model.layers,
        "hidden": model.hidden,
        "query": model.heads * model.head_dim,
        "key_value": model.kv_heads * model.head_dim,
        "heads": model.heads,
        "ffn": model.ffn,
        "gated": model.gated,
        "vocab": model.vocab,
        "span": model.attention_span(sequence),
        "layer_params": model.layer_parameters,
        "embedding_params": model.embedding_parameters,
        "head_params": model.head_parameters,
        "sequence": sequence,
    }


def _strategy_numbers(
    model: Model, workload: Workload, strategies: Strategies, stack: Stack
) -> dict[str, Array]:
    """Degrees, switches, and the layers of the first, a middle and the last stage."""
    s = strategies
    first, middle, last, fit = _stage_columns(model, s, stack)
    ranks = s.micro_batch * s.dp_replicate * s.dp_shard
    same = (
        "dp_replicate", "dp_shard", "sharding", "reshard", "prefetch", "tp", "cp", "pp",
        "micro_batch", "recompute", "overlap_dp", "overlap_tp", "overlap_pp",
    )  # fmt: skip
    return {
        **{name: getattr(s, name) for name in same},
        "sequence_parallel": s.sequence_parallel * (s.tp > 1.0),
        "cp_ring": 1.0 - s.cp_method,
        "chunks": s.virtual_stages,
        # Interleaving is 1F1B with chunks: 0 GPipe, 1 1F1B, 2 ZB-H1, 3 ZB-V.
        "schedule": np.where(s.schedule >= 2.0, s.schedule - 1.0, s.schedule),
        # The same for all ways to replicate and shard over as many ranks.
        "micro_steps": lean(np.maximum(np.floor(workload.global_batch / ranks), 1.0)),
        "first_layers": first,
        "middle_layers": middle,
        "last_layers": last,
        "stages_fit": fit,
        "software_fits": np.where(
            s.compiled == 0.0, 1.0, (s.compiled == encode("compiled", stack.compiled)) * 1.0
        ),
        "experts_fit": np.where((s.ep > 1.0) & (model.moe is None), 0.0, 1.0),
    }


def _stage_columns(
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


def _cluster_numbers(cluster: Cluster, stack: Stack, chip: Calibration) -> dict[str, float]:
    """Links and rates that do not depend on the strategy."""
    accelerator = cluster.accelerator
    network = cluster.scale_out_within(cluster.accelerators)
    return {
        "accelerators": cluster.accelerators,
        "domain": cluster.scale_up_domain,
        "domains": cluster.nodes,
        "units": accelerator.compute_units or 1,
        "memory_bytes": accelerator.memory_bytes,
        "memory_rate": accelerator.memory_bandwidth * chip.memory_efficiency,
        "scale_up": cluster.scale_up_bandwidth * chip.link_efficiency,
        "scale_out": network * cluster.fabric.efficiency,
        "hop_seconds": cluster.fabric.hop_seconds,
        "call_seconds": cluster.fabric.call_seconds,
        "net_overhead": NET_OVERHEAD[cluster.host],
        "ring_step_seconds": cluster.fabric.ring_step_seconds,
        "congestion": cluster.fabric.congestion,
        "rail_scaling": cluster.fabric.rail_scaling,
        "latency_factor": cluster.fabric.latency_factor,
        "protocol": _index(cluster.protocol, PROTOCOLS),
        "algorithm": _index(cluster.algorithm, ALGORITHMS),
        "scatter_factor": cluster.fabric.scatter_factor,
        "all_reduce_factor": cluster.fabric.all_reduce_factor,
        "gemm_fill": chip.gemm_fill,
        "in_switch": accelerator.architecture in ("hopper", "blackwell"),
        "unfused_attention": stack.attention_kernel == "unfused",
    }


def clock(cluster: Cluster) -> float:
    """Share of the sustained clock that the power cap leaves."""
    if cluster.power_cap_watts is None or cluster.tdp is None or cluster.idle is None:
        return 1.0
    return float(clock_factor(cluster.power_cap_watts, cluster.tdp, cluster.idle))


def _precision_numbers(
    cluster: Cluster, workload: Workload, strategies: Strategies, stack: Stack, chip: Calibration
) -> dict[str, Array]:
    """Peaks and sustained rates, for every distinct precision."""
    names = ("peak", "rate", "rate16", "matmul_bytes", "quantised_copies",
             "attention_forward_rate",             "attention_backward_rate")  # fmt: skip
    columns = {name: np.empty(strategies.precision.shape) for name in names}
    kernel = stack.attention_kernel
    forward, backward = chip.attention.get(kernel, UNCALIBRATED.attention[kernel])
    accelerator, pace = cluster.accelerator, clock(cluster)
    codes = strategies.precision
    for code in codes.ravel() if codes.size == 1 else np.unique(codes):
        precision = WORDS["precision"][int(code)] or workload.precision
        family = {"fp8": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}.get(str(precision), "bf16")
        wide = "fp16" if precision == "fp16" or "bf16" not in accelerator.peak_flops else "bf16"
        peak, peak16 = accelerator.peak(str(precision)), accelerator.peak(wide)
        gemm = chip.gemm.get(family, UNCALIBRATED.gemm[family])
        values = (
            peak,
            pace * peak * gemm * stack.gemm,
            pace * peak16 * chip.gemm["bf16"] * stack.gemm,
            {"bf16": 2.0, "fp8": 1.0, "fp4": 0.5}[family],
            {"fp8": 1.0, "mxfp8": 2.0, "nvfp4": 2.0}.get(str(precision), 0.0),
            pace * peak16 * forward * stack.attention_forward,
            pace * peak16 * backward * stack.attention_backward,
        )
        rows = strategies.precision == code
        for name, value in zip(names, values, strict=True):
            columns[name][rows] = value
    return columns


def _index(name: str, names: tuple[str, ...]) -> float:
    """Place in `names`, or -1 for "auto"."""
    return -1.0 if name == "auto" else float(names.index(name))
