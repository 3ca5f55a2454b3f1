"""Kernels of one layer and of the LM head on one rank: GEMMs, attention, memory-bound work.

    kernels = layer_kernels(case)
    kernels.gemm_forward, kernels.attention_backward

All times are seconds per tensor-parallel rank and micro-batch; nothing here communicates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scalewise.numeric import Array, Num, maximum, minimum, some, stacked, where
from scalewise.physics.compute import (
    attention_seconds,
    gemm_seconds,
)
from scalewise.physics.layer import (
    ATTENTION_BACKWARD,
    attention_flops,
    composed_elements,
    memory_bound_elements,
    quantized_elements,
    unfused_bytes,
)
from scalewise.physics.shapes import shape_factor
from scalewise.precision import TRANSPOSE_BYTES
from scalewise.step import expert_parallel, mlp_tiles, quantized_collectives, tuning
from scalewise.step.case import Case
from scalewise.step.context_parallel import imbalance
from scalewise.step.distinct import of_distinct_splits
from scalewise.step.expert_parallel import shared_gemms
from scalewise.step.latent_attention import PROJECTIONS, latent_gemms
from scalewise.step.recompute import repeated, skipped_last

if TYPE_CHECKING:
    pass


class Gemms(NamedTuple):
    """Seconds of every GEMM of a layer, and of the LM head."""

    qkv: Array
    out: Array
    up: Array
    down: Array
    qkv_dgrad: Array
    out_dgrad: Array
    up_dgrad: Array
    down_dgrad: Array
    qkv_wgrad: Array
    out_wgrad: Array
    up_wgrad: Array
    down_wgrad: Array
    head: Array
    head_dgrad: Array
    head_wgrad: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class Kernels:
    """Kernels of one layer and micro-batch, seconds."""

    gemm_forward: Num
    gemm_backward: Num
    attention_forward: Num
    attention_backward: Num
    memory_forward: Num
    """Norms, residuals, rotary, activation, casts."""
    memory_backward: Num
    experts_forward: Num
    """Grouped GEMMs of experts."""
    experts_backward: Num
    routing_forward: Num
    """Router, permutation and activation of experts."""
    routing_backward: Num
    gradient: Num
    """Flatten, cast and accumulate the layer's gradients."""
    recompute: Num
    """Forward work that backward repeats."""
    wgrad: Num
    """Weight gradients and their handling: what zero-bubble schedules defer."""
    head_forward: Num
    """LM head GEMM."""
    head_backward: Num
    loss: Num
    """Loss and softmax, bound by memory."""
    tuning: tuning.TuningKernels | None = None
    """What adapters and storage in 4 bits add; None where no step has a frozen model."""

    @property
    def forward(self) -> Num:
        """All forward kernels."""
        experts = self.experts_forward + self.routing_forward
        more = self.tuning
        if more is not None:
            experts = experts + (more.forward + more.dequantize)
        return self.gemm_forward + self.attention_forward + self.memory_forward + experts

    @property
    def backward(self) -> Num:
        """All backward kernels, recompute included."""
        backward = self.gemm_backward + self.attention_backward + self.memory_backward
        experts = self.experts_backward + self.routing_backward
        more = self.tuning
        if more is not None:
            experts = experts + (more.backward + more.dequantize)
        return backward + self.gradient + self.recompute + experts

    @property
    def head(self) -> Num:
        """LM head and loss."""
        return self.head_forward + self.head_backward + self.loss


@of_distinct_splits
def gemms(case: Case) -> Gemms:
    """Return the time of every GEMM of a layer and of the LM head, which has at least 16 bits.

    Input gradients are (tokens x columns) (columns x depth), weight gradients (columns x tokens)
    (tokens x depth). One pass, because many short calls cost more than the arithmetic.
    """
    rates = case.rates
    rows, columns, depths, operand = gemm_shapes(case)
    times = gemm_seconds(
        rows,
        columns,
        depths,
        rate=stacked(*(rates.gemm,) * 12, *(rates.gemm16,) * 3),
        units=rates.units,
        fill=rates.gemm_fill,
        memory_rate=rates.memory,
        element_bytes=operand,
    )
    if some(mlp_tiles.tiled(case)):
        times = times * mlp_tiles.tiles_of_products(case)
    return Gemms(*np.asarray(times * _measured(case, rows, columns, depths, operand)))


def _measured(case: Case, rows: Num, columns: Num, depths: Num, operand: Num) -> Num:
    """Return the factors of products that were timed on the device; they were 16-bit ones."""
    tables = case.rates.gemm_shapes
    # One device speaks for all strategies, except in a table of runs.
    known = {tables.flat[0]} if not any(tables.strides) else set(tables.ravel().tolist())
    factors: Num = 1.0
    for table in known - {()}:
        here = np.array([each == table for each in tables.ravel()]).reshape(tables.shape)
        factor = shape_factor(rows, columns, depths, table)
        factors = factors * where(here & (operand == 2.0), factor, 1.0)
    return factors


class Passes(NamedTuple):
    """GEMMs of a group of products: forward, input gradients, weight gradients, seconds."""

    forward: Num
    dgrad: Num
    wgrad: Num

    def times(self, factor: Num) -> Passes:
        """All of them, scaled."""
        return Passes(*(factor * each for each in self))

    def plus(self, other: Passes) -> Passes:
        """Sums."""
        return Passes(*(mine + others for mine, others in zip(self, other, strict=True)))


def mlp_passes(case: Case, t: Gemms) -> Passes:
    """Return the GEMMs of the MLP that every token passes: dense, or shared experts; mean."""
    dense = Passes(t.up + t.down, t.up_dgrad + t.down_dgrad, t.up_wgrad + t.down_wgrad)
    if not case.has_experts:
        return dense
    sparse = case.slowest_sparse
    mixed = dense.times(1.0 - sparse)
    if not some(case.sparse.shared_ffn):
        return mixed
    s = shared_gemms(case)
    shared = Passes(s.up + s.down, s.up_dgrad + s.down_dgrad, s.up_wgrad + s.down_wgrad)
    return mixed.plus(shared.times(where(case.sparse.shared_ffn > 0.0, sparse, 0.0)))


def qkv_passes(case: Case, t: Gemms) -> tuple[Passes, Num]:
    """Return the GEMMs that make queries, keys and values, and their up-projections (MLA)."""
    plain = Passes(t.qkv, t.qkv_dgrad, t.qkv_wgrad)
    latent = case.shape.latent
    if not some(latent):
        return plain, 0.0
    times = latent_gemms(case)
    sums = [
        times[place] + times[place + 1] + times[place + 2] + times[place + 3]
        for place in range(0, len(times), PROJECTIONS)
    ]
    mixed = [where(latent, one, other) for one, other in zip(sums, plain, strict=True)]
    return Passes(*mixed), where(latent, times.query_up + times.kv_up, 0.0)


def layer_kernels(case: Case) -> Kernels:
    """Return the kernels of one layer and of the head."""
    shape, split, habits = case.shape, case.split, case.habits
    t = gemms(case)
    qkv, up_projections = qkv_passes(case, t)
    mlp = mlp_passes(case, t)
    gemm_forward = qkv.forward + t.out + mlp.forward
    wgrad = tuning.trained_only(case, qkv.wgrad + t.out_wgrad + mlp.wgrad)
    gemm_backward = (qkv.dgrad + t.out_dgrad + mlp.dgrad) + wgrad
    attention_forward, attention_backward = attention(case)
    memory_forward, memory_backward = memory_bound(case)
    params, none = tuning.trained_layer(case, case.layer_params / split.tp), case.zeros
    adapters = tuning.layer_kernels(case)
    experts = expert_parallel.layer_kernels(case)
    if case.has_experts:
        wgrad = wgrad + experts.wgrad
        params = params + tuning.trained_only(case, case.expert_params_mean)
    if adapters is not None:
        wgrad = wgrad + adapters.wgrad
    gradient = habits.gradient_bytes * params / case.rates.memory
    recompute: Num = none
    if some(split.recompute):
        again = repeated(case)
        recompute = (
            again.gemm * (gemm_forward + experts.gemm_forward)
            - skipped_last(case) * t.down
            + again.memory * (memory_forward + experts.routing_forward)
            + again.attention * attention_forward
        )
        if adapters is not None:
            recompute = recompute + again.gemm * (adapters.forward + adapters.dequantize)
    if some(split.modules):
        parts = module_seconds(case, up_projections, experts.activation, t)
        if adapters is not None:
            parts["mlp"] = parts["mlp"] + tuning.mlp_again(case, adapters)
        recompute = recompute + sum(parts.values(), none)
    if some(mlp_tiles.tiled(case)):
        recompute = recompute + mlp_tiles.repeated_seconds(case, t)
    if quantized_collectives.quantizes(split):
        moved = quantized_collectives.kernels(case)
        memory_forward = memory_forward + moved.forward / case.rates.memory
        memory_backward = memory_backward + moved.backward / case.rates.memory
        gradient = gradient + moved.gradient / case.rates.memory
    logits = case.tokens * shape.vocab / split.tp
    heads = head_passes(case)
    return Kernels(
        gemm_forward=gemm_forward,
        gemm_backward=gemm_backward,
        attention_forward=attention_forward,
        attention_backward=attention_backward,
        memory_forward=memory_forward,
        memory_backward=memory_backward,
        experts_forward=experts.gemm_forward,
        experts_backward=experts.gemm_backward,
        routing_forward=experts.routing_forward,
        routing_backward=experts.routing_backward,
        gradient=gradient,
        recompute=recompute,
        wgrad=wgrad + gradient,
        head_forward=heads * t.head,
        head_backward=heads * (t.head_dgrad + tuning.trained_only(case, t.head_wgrad)),
        loss=(1.0 + shape.mtp) * habits.logit_bytes * logits / case.rates.memory,
        tuning=adapters,
    )


def head_passes(case: Case) -> Num:
    """Return how often the GEMMs of the head run: multi-token prediction adds a pass each.

        1 + k (1 + 2 h / V)

    with the projection of 2 h to h, which tp splits too (NVIDIA/Megatron-LM,
    megatron/core/transformer/multi_token_prediction.py), counted in passes.
    """
    shape = case.shape
    if not some(shape.mtp):
        return 1.0
    return 1.0 + shape.mtp * (1.0 + 2.0 * shape.hidden / shape.vocab)


def module_seconds(case: Case, up_projections: Num, activation: Num, t: Gemms) -> dict[str, Num]:
    """Return the forward work of modules that are recomputed besides whole blocks, seconds."""
    shape, split = case.shape, case.split
    left = 1.0 - split.recompute_blocks
    element = case.rates.activation_bytes
    norms = element * case.habits.memory_traffic / case.rates.memory * case.tokens
    # Each of two norms reads and writes the residual stream.
    parts = {
        "norm": norms * 4.0 * shape.hidden / split.sp,
        "latent": up_projections,
        "activation": activation,
        # Backward never needs the output of the last GEMM.
        "mlp": (1.0 - case.slowest_sparse)
        * where(
            mlp_tiles.tiled(case), 0.0, t.up + (1.0 - case.habits.recompute_skips_last) * t.down
        ),
    }
    return {
        module: where(split.recomputes(module), left * seconds, 0.0)
        for module, seconds in parts.items()
    }


def attention(case: Case) -> tuple[Num, Num]:
    """Return attention of one layer, forward and backward, seconds.

    An unfused kernel computes the full square and moves every score through memory.
    """
    shape, split, rates = case.shape, case.split, case.rates
    tokens = case.tokens
    width = shape.attention_width
    flops = attention_flops(tokens, shape.span, width, split.tp) * imbalance(case)
    if some(shape.latent):
        flops = flops / where(shape.latent, case.sparse.latent_attention, 1.0)
    # Ring steps work on one block of keys at a time.
    piece = where(split.cp_ring, shape.document / split.cp, shape.document)
    forward = attention_seconds(flops, rate=rates.attention_forward, seq_len=piece)
    backward = attention_seconds(
        ATTENTION_BACKWARD * flops, rate=rates.attention_backward, seq_len=piece
    )
    unfused = case.habits.unfused_attention
    if some(unfused):
        scores = unfused * tokens * shape.seq_len * shape.heads / split.tp
        read, written = unfused_bytes(rates.activation_bytes)
        forward = forward * (1.0 + unfused) + read * scores / rates.memory
        backward = backward * (1.0 + unfused) + written * scores / rates.memory
    return forward, backward


def memory_bound(case: Case) -> tuple[Num, Num]:
    """Return everything of one layer that streams through memory, forward and backward, seconds.

    Eager code adds passes for the norms, rotary embedding and activation of gated models.
    Quantizing to 8 bits or less adds `quantize_bytes` per GEMM input element; attention in 8 bits
    adds `attention_cast_bytes` per element of queries, keys and values.
    """
    s, split, rates = case.shape, case.split, case.rates
    tokens, tp = case.tokens, split.tp
    elements = memory_bound_elements(
        s.hidden, s.rotary, case.mlp, gated=s.gated, tp=tp, sp=split.sp
    )
    scale = rates.activation_bytes * case.habits.memory_traffic / rates.memory * tokens
    forward, backward = scale * elements[0], scale * elements[1]
    composed = case.habits.composed_kernels
    if some(composed):
        more = composed_elements(s.hidden, s.rotary, case.mlp, tp=tp, sp=split.sp)
        bare = rates.activation_bytes * composed * s.gated / rates.memory * tokens
        forward, backward = forward + bare * more[0], backward + bare * more[1]
    if some(rates.quantize_bytes):
        latents = s.query_rank + s.kv_rank
        inputs, gradients = quantized_elements(
            s.hidden, s.query, s.qkv, case.mlp, latents=latents, gated=s.gated, tp=tp
        )
        cast = rates.quantize_bytes / rates.memory
        forward = forward + cast * (tokens * inputs + quantized_weights(case))
        backward = backward + cast * tokens * gradients
    if some(rates.attention_cast_bytes):
        forward = forward + rates.attention_cast_bytes / rates.memory * tokens * s.qkv / tp
    return forward, backward


def quantized_weights(case: Case) -> Num:
    """Return the weights of a layer that a rank quantizes per micro-batch, elements.

        all: P      gathered in fp8: min(P, P / shards + t P / c)

    With c bytes to quantize an element and t to transpose it: a shard is quantized before it is
    all-gathered, and every rank transposes what arrives. Experts have shards of their own.
    """
    split = case.split
    dense, experts = case.layer_params / split.tp, case.expert_params_mean
    weights = dense + experts if case.has_experts else dense
    if not some(split.gathers_quantized):
        return weights
    sharded = dense / split.shards
    if case.has_experts:
        sharded = sharded + experts / split.expert_shards
    transposed = TRANSPOSE_BYTES / maximum(case.rates.quantize_bytes, 1.0) * weights
    return where(split.gathers_quantized, minimum(weights, sharded + transposed), weights)


def gemm_shapes(case: Case) -> tuple[Num, Num, Num, Num]:
    """Rows, columns and depths of all GEMMs, in the order of `Gemms`, and bytes per operand."""
    shape, split, rates = case.shape, case.split, case.rates
    tokens, tp = case.tokens, split.tp
    query, ffn, hidden = shape.query / tp, shape.ffn / tp, shape.hidden
    qkv, up = shape.qkv / tp, (1.0 + shape.gated) * ffn
    vocab = shape.vocab / tp
    columns, depths = (qkv, hidden, up, hidden), (hidden, query, hidden, ffn)
    part = mlp_tiles.tile_tokens(case) if some(mlp_tiles.tiled(case)) else tokens
    rows = (tokens, tokens, part, part)
    apart = maximum(rates.matmul_bytes, 2.0)
    return (
        stacked(*rows, *rows, *columns, tokens, tokens, vocab),
        stacked(*columns, *depths, *depths, vocab, hidden, hidden),
        stacked(*depths, *columns, *rows, hidden, vocab, tokens),
        stacked(*(rates.matmul_bytes,) * 12, *(apart,) * 3),
    )
