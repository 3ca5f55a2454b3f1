"""Columns of a `Case` from model, cluster, workload, strategies, software and chip.

    case = lay_out(model, cluster, workload, strategies, stack, chip)

Meshes and batches are not checked here: `feasibility` does, because an impossible strategy among
many is an answer, not an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from scalewise.errors import InputError
from scalewise.experts import GRAPH_ATTENTION, Experts, load_experts
from scalewise.lengths import read_lengths
from scalewise.loss import LOSSES
from scalewise.numeric import (
    Array,
    Mask,
    maximum,
    minimum,
    some,
    squeeze_constant_axes,
    stacked,
    where,
)
from scalewise.optimizer import STORED, load_optimizer
from scalewise.physics.memory import MASTER, MOMENTS, REDUCED
from scalewise.physics.optimizer import (
    newton_schulz_flops,
    shampoo_elements,
    shampoo_flops,
    update_bytes,
)
from scalewise.physics.quantized import INT8, wire_bytes
from scalewise.sharding import MIB
from scalewise.step.case import Case, Habits
from scalewise.step.hardware import host_columns, machine_columns, rate_columns
from scalewise.step.parts import Sparse
from scalewise.step.recompute import FULL, SELECTIVE
from scalewise.step.sequences import bucketed_columns, document_columns
from scalewise.step.stages import stage_layers
from scalewise.step.tuned import tuned_columns
from scalewise.step.wide import wide_columns
from scalewise.strategies import encode, recompute_fraction
from scalewise.tuning import adapted_matrices

if TYPE_CHECKING:
    from scalewise.chip import Calibration
    from scalewise.cluster import Cluster
    from scalewise.lengths import Lengths
    from scalewise.model import Model
    from scalewise.optimizer import Optimizer
    from scalewise.stack import Stack
    from scalewise.strategies import Strategies
    from scalewise.workload import Workload

_SWITCHES = (
    "recompute_skips_last", "keeps_quantized", "reduce_every_micro_step",
    "zero2_every_micro_step", "pipeline_gathers_once", "gathers_ends_again", "balanced_ring",
    "keeps_sp_all_gather",
    "composed_kernels", "frees_gradients", "limits_all_gathers", "upcast_scores",
)  # fmt: skip
_CONSTANTS = tuple(
    each.name for each in fields(Habits) if each.name not in (*_SWITCHES, "unfused_attention")
)
_SPARSE = tuple(
    each.name for each in fields(Sparse) if each.name not in ("deduplicated", "fused_experts")
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
    model = without_choice(model)
    # Files may change under the same name.
    lengths = None if workload.lengths is None else read_lengths(workload.lengths)
    files = load_optimizer(workload.optimizer), lengths
    numbers, switches = _fixed(model, cluster, workload, stack, chip, files)
    columns: dict[str, Any] = {
        **_same(*numbers, strategies.shape),
        **_same(*switches, strategies.shape),
        **_split(model, workload, strategies, stack),
        **rate_columns(cluster, workload, strategies, stack, chip),
    }
    columns |= bucketed_columns(model, workload, columns)
    timed = np.empty((), dtype=object)
    timed[()] = chip.gemm_shapes
    columns["gemm_shapes"] = _along(timed, strategies.shape)
    stated = strategies.reduce_precision
    # Megatron-LM and DeepSpeed accumulate in fp32 for bf16 alone; fp16 gradients stay as they are.
    half = stack.family == "megatron" and workload.precision == "fp16"
    usual = minimum(columns["reduce_bytes"], 2.0) if half else columns["reduce_bytes"]
    if (gradient := STORED[workload.weights].gradient) is not None:
        usual = 0.0 * usual + gradient
    columns["reduce_bytes"] = where(stated == 0.0, usual, where(stated == 1.0, 4.0, 2.0))
    gathers, fits = strategies.gather_precision == 1.0, columns.pop("gathers") > 0.0
    columns["gather_fits"] = ~gathers | fits
    columns["gather_bytes"] = where(gathers & fits, 1.0, STORED[workload.weights].weight)
    if some(wide := columns["activation_bytes"] > 2.0):
        alone = msgspec.structs.replace(workload, weights="fp32")
        columns |= wide_columns(workload, columns, wide, stated, update_columns(model, alone))
    if some(columns["gather_int8"]):
        packed = float(wire_bytes(1.0, INT8))
        columns["gather_bytes"] = where(columns["gather_int8"], packed, columns["gather_bytes"])
    if some(size := strategies.bucket_mb):
        for name, bytes_ in (("bucket_bytes", MIB * size), ("bucket_bytes_per_rank", 0.0)):
            columns[name] = where(size > 0.0, bytes_, columns[name])
    return Case.of_columns(columns)


_Fixed: TypeAlias = tuple[NDArray[Any], tuple[str, ...]]


@lru_cache(maxsize=256)
def _fixed(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    stack: Stack,
    chip: Calibration,
    _files: tuple[Optimizer, Lengths | None],
) -> tuple[_Fixed, _Fixed]:
    """Numbers and switches that no strategy changes, with their names; built once."""
    numbers = {
        **_shape(model, workload.seq_len),
        **document_columns(model, workload, unfused=stack.attention_kernel == "unfused"),
        "attention_width": _attention_width(model, chip),
        "global_batch": workload.global_batch,
        **update_columns(model, workload),
        **tuned_columns(model, workload),
        **sparse_columns(model, workload, stack),
        **machine_columns(cluster, chip),
        **host_columns(cluster, workload, stack),
        **{name: getattr(stack, name) for name in _CONSTANTS},
        **_loss(workload, stack),
    }
    switches = {name: getattr(stack, name) for name in _SWITCHES}
    switches["unfused_attention"] = stack.attention_kernel == "unfused"
    switches["deduplicated"] = stack.dispatcher != "nccl"
    switches["fused_experts"] = stack.fused_experts
    values = np.array([*numbers.values()], dtype=float), np.array([*switches.values()])
    for each in values:
        each.flags.writeable = False
    return (values[0], tuple(numbers)), (values[1], tuple(switches))


def _same(
    values: Array | Mask, names: Iterable[str], shape: tuple[int, ...]
) -> dict[str, Array | Mask]:
    """Columns that are the same for all strategies."""
    return dict(zip(names, _along(values, shape), strict=True))


def _along(values: NDArray[Any], shape: tuple[int, ...]) -> Any:
    """Values seen along the rows behind their own axes, never copied.

    Of length 1 along every axis of a product; as they are for one strategy of shape ().
    """
    laid = values.reshape(values.shape + (1,) * len(shape))
    if len(shape) == 1 and shape[0] > 1:
        return np.broadcast_to(laid, (*values.shape, *shape))
    return laid


@lru_cache(maxsize=256)
def _shape(model: Model, seq_len: int) -> dict[str, float]:
    """Shapes and parameter counts; counted once per model, because counting is not free."""
    mla = model.mla
    widths: dict[str, float] = {
        "query": model.context_width,
        "key_value": (model.key_width + model.value_width) / 2.0,
        "qkv": model.query_width + model.key_width + model.value_width,
        "rotary": 2.0 * (model.query_width + model.key_width),
        "attention_kept": 2.0 * (model.query_width + model.key_width),
        "query_rank": 0.0,
        "kv_rank": 0.0,
        "rope": 0.0,
        "query_up": 0.0,
    }
    if mla is not None:
        widths |= {
            "qkv": model.query_width + model.heads * (mla.nope_dim + mla.value_dim),
            # Heads are split, rotated and joined: each pass reads and writes queries and keys.
            "rotary": 6.0 * model.query_width,
            "attention_kept": 2.0 * (model.query_width + model.context_width)
            + mla.query_rank
            + mla.kv_rank,
            "query_rank": mla.query_rank,
            "kv_rank": mla.kv_rank,
            "rope": mla.rope_dim,
            "query_up": model.query_width,
        }
    return {
        "layers": model.layers + model.mtp_layers,
        "mtp": model.mtp_layers,
        "hidden": model.hidden,
        **widths,
        "heads": model.heads,
        "ffn": model.ffn,
        "gated": float(model.gated),
        "vocab": model.vocab,
        "span": model.attention_span(seq_len),
        "dense_params": model.attention_parameters + model.dense_mlp_parameters,
        "embedding_params": model.embedding_parameters,
        "head_params": model.head_parameters,
        "mtp_params": model.mtp_parameters - model.mtp_layers * _mtp_layer_parameters(model),
        "seq_len": seq_len,
        "longest": seq_len,
        "document": seq_len,
    }


def _mtp_layer_parameters(model: Model) -> int:
    """Parameters of the layer of one multi-token-prediction module."""
    mlp = model.dense_mlp_parameters
    if model.moe is not None:
        mlp = model.router_parameters + model.shared_expert_parameters
        mlp += model.expert_parameters_per_layer
    return model.attention_parameters + mlp


def without_choice(model: Model) -> Model:
    """The model, dense where its layers have one expert each: nothing is routed then."""
    moe = model.moe
    if moe is None or moe.experts > 1 or moe.shared_experts or model.dense_layers:
        return model
    return msgspec.structs.replace(model, moe=None, ffn=moe.ffn)


def _attention_width(model: Model, chip: Calibration) -> float:
    """Width of both attention products over all heads, mean, as the matrix unit works on them."""
    lanes = chip.head_lanes
    return model.heads * (max(model.query_key_dim, lanes) + max(model.value_dim, lanes)) / 2.0


def sparse_columns(
    model: Model, workload: Workload, stack: Stack, constants: Experts | None = None
) -> dict[str, float]:
    """Shapes of experts, routing, and what the software makes of them; zero for dense models.

    Args:
        model: Model.
        workload: Routing.
        stack: Features of the software.
        constants: What they are worth; by default those of the stack.
    """
    known = constants or load_experts(stack.experts)
    moe = model.moe
    if moe is None:
        columns = dict.fromkeys(_SPARSE, 0.0)
        return columns | {"latent_attention": known.latent_attention}
    fused = known.fused_traffic if stack.fused_experts else 1.0
    static = known.static_host if workload.capacity is not None else 1.0
    graphs = stack.cuda_graphs
    routing = {"none": 1.0, "full": 0.0}.get(graphs, known.graph_routing)
    one_kernel = stack.fused_experts or graphs == "full"
    slower = 1.0 / stack.host_speed
    return {
        "experts": moe.experts,
        "per_token": moe.experts_per_token,
        "expert_ffn": moe.ffn,
        "shared_ffn": moe.shared_experts * moe.shared_ffn,
        "expert_params": model.expert_parameters_per_layer,
        "more_params": model.shared_expert_parameters
        + model.router_parameters
        - model.dense_mlp_parameters,
        "load": workload.capacity or workload.imbalance,
        "inside_efficiency": known.inside(stack.dispatcher),
        "network_efficiency": known.network,
        "grouped_gemm": known.grouped_gemm,
        "routing_traffic": fused * known.routing_traffic,
        "activation_traffic": known.biased_activation
        if moe.bias and not stack.fused_experts
        else 1.0,
        "expert_casts": fused,
        "host_attention": slower * known.host_attention_seconds * GRAPH_ATTENTION[graphs],
        "host_routing": slower * known.host_routing_seconds * routing * static,
        "host_expert": 0.0 if one_kernel else slower * known.host_expert_seconds * static,
        "ep_overlap": known.overlap if stack.overlaps_all_to_all else 0.0,
        "latent_attention": known.latent_attention,
    }


def _loss(workload: Workload, stack: Stack) -> dict[str, float]:
    """What the loss keeps and moves per logit."""
    kind = LOSSES[workload.loss or stack.loss]
    # Constants of a stack are those of its own loss.
    kept = kind.memory / LOSSES[stack.loss].memory
    return {
        "logit_memory": stack.logit_memory * kept,
        "logit_bytes": min(stack.logit_bytes, kind.most_bytes),
    }


def update_columns(model: Model, workload: Workload) -> dict[str, float]:
    """Bytes and products of the optimizer, and how parameters are stored."""
    optimizer, stored = load_optimizer(workload.optimizer), STORED[workload.weights]
    moments, gradient = optimizer.moment_bytes, stored.gradient
    other = moments if optimizer.other_bytes is None else optimizer.other_bytes
    layer, expert = _matrices(model, workload)
    if optimizer.matmuls == "shampoo":
        kept = sum(float(shampoo_elements(m, n)) for m, n in layer)
        moments += 4.0 * kept / max(sum(m * n for m, n in layer), 1.0)
    count = {"newton-schulz": newton_schulz_flops, "shampoo": shampoo_flops}.get(optimizer.matmuls)
    moved = update_bytes(moments, stored.master, gradient=gradient or REDUCED, weight=stored.weight)
    experts = model.moe.experts if model.moe else 0
    return {
        # Paged states leave the device when it is full.
        "moment_bytes": 0.0 if optimizer.paged else moments,
        "other_bytes": 0.0 if optimizer.paged else other,
        "host_moments": moments,
        "weight_bytes": stored.weight,
        "master_bytes": stored.master,
        "stored_gradient": gradient or 0.0,
        "traffic": float(moved) / float(update_bytes(MOMENTS, MASTER)),
        "layer_flops": sum(float(count(m, n)) for m, n in layer) if count else 0.0,
        "expert_flops": experts * sum(float(count(m, n)) for m, n in expert) if count else 0.0,
    }


def _matrices(
    model: Model, workload: Workload
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Matrices of a layer (mean kind) that are trained, and of one routed expert."""
    tuning, hidden = workload.tuned, float(model.hidden)
    if tuning.frozen:
        sides = adapted_matrices(model, tuning)
        return [(side, float(tuning.rank)) for pair in sides for side in pair], []
    attention = [
        (hidden, float(width))
        for width in (model.query_width, model.key_width, model.value_width, model.context_width)
    ]
    moe = model.moe
    width = moe.shared_experts * moe.shared_ffn if moe else model.ffn
    mlp = [(hidden, float(width))] * model.mlp_matrices if width else []
    expert = [(hidden, float(moe.ffn))] * model.mlp_matrices if moe else []
    return [*attention, *mlp], expert


def _split(
    model: Model, workload: Workload, strategies: Strategies, stack: Stack
) -> dict[str, Array | Mask]:
    """Degrees, switches, and the layers of the first, a middle and the last stage."""
    s = strategies
    first, middle, last, fit = _stages(model, s, stack)
    sparse = _sparse_layers(model, s.pp, first)
    ranks = s.micro_batch * s.dp_replicate * s.dp_shard
    degrees = (
        "dp_replicate", "dp_shard", "sharding", "prefetch", "tp", "cp", "pp", "schedule",
        "micro_batch", "ep", "etp", "mlp_tiles", "backward_shard",
    )  # fmt: skip
    switches = ("reshard_after_forward", "overlap_dp", "overlap_tp", "overlap_pp", "overlap_ep")
    # The same for all ways to replicate and shard over as many ranks.
    microbatches = squeeze_constant_axes(maximum(np.floor(workload.global_batch / ranks), 1.0))
    stated = s.reduce_each
    if stack.ddp_pipeline_reduces_each:
        each = (stated == 0.0) & (s.sharding == 0.0) & (s.pp > 1.0)
        stated = where(each, 2.0, stated)
    if some(stated):
        # One micro-batch is reduced once, however it is said.
        stated = where(microbatches > 1.0, stated, 0.0)
    return {
        **{name: getattr(s, name) for name in degrees},
        **{name: getattr(s, name) > 0.0 for name in switches},
        "sequence_parallel": (s.sequence_parallel > 0.0) & (s.tp > 1.0),
        "cp_ring": s.cp_method == encode("cp_method", "ring"),
        "chunks": s.virtual_stages,
        **_recompute(s.recompute, stack),
        "num_microbatches": microbatches,
        "first_layers": first,
        "middle_layers": middle,
        "last_layers": last,
        "stages_fit": fit > 0.0,
        "first_sparse": sparse[0],
        "middle_sparse": sparse[1],
        "last_sparse": sparse[1],
        "modules": s.recompute_modules,
        "gather_int8": s.gather_precision == 2.0,
        "reduce_int4": s.reduce_precision == 3.0,
        "hierarchical": s.hierarchical_gather > 0.0,
        "sync_once": s.replica_sync == 1.0,
        "reduce_stated": stated,
        "offload": s.offload,
    }


def _sparse_layers(model: Model, pp: Array, first: Array) -> tuple[Array, Array]:
    """Fraction of layers with experts on the first stage, and on the others.

    Dense layers come first (DeepSeek), so the first stage has more of them, or are spread evenly.
    """
    moe = model.moe
    if moe is None:
        none = np.zeros_like(pp)
        return none, none
    layers = model.layers + model.mtp_layers
    count = moe.layers + model.mtp_layers
    even = np.full_like(first, count / layers)
    if moe.dense == "alternating" or count == layers:
        return even, even
    early = minimum(first, model.dense_layers)
    on_first = 1.0 - early / maximum(first, 1.0)
    others = minimum(count / maximum(layers - early, 1.0), 1.0)
    staged = pp > 1.0
    return where(staged, on_first, even), where(staged, others, even)


def _recompute(codes: Array, stack: Stack) -> dict[str, Array]:
    """Kind of recompute, with "selective" as the software means it, and its fraction of blocks."""
    blocks = recompute_fraction(codes)
    own = "selective" if stack.selective == "policy" else stack.selective
    kind = where(codes == SELECTIVE, encode("recompute", own), codes)
    return {"recompute": where(blocks > 0.0, FULL, kind), "recompute_blocks": blocks}


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
    # A layer for each multi-token-prediction module, behind the last.
    sizes[2] += model.mtp_layers
    if model.mtp_layers:
        sizes[:2, distinct[0] == 1.0] += model.mtp_layers
    first_layers, middle, last_layers, fit = sizes[:, np.ravel(place)].reshape(4, *laid.shape[1:])
    return first_layers, middle, last_layers, fit
