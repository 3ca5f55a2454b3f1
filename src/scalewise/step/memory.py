"""Peak memory of the worst rank, by part.

    parts = peak_memory(case)
    parts.total, parts.activations

Three stages can be the worst: the first (most micro-batches in flight, embedding), a middle one
(most layers), the last (logits, LM head). Sizes in bytes; bytes per parameter and per token are in
`physics.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Num, some, stacked
from scalewise.physics import memory as physics
from scalewise.physics import pipeline
from scalewise.step.breakdown import Breakdown
from scalewise.step.case import Case
from scalewise.step.recompute import kept_bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryParts(Breakdown):
    """Bytes on the worst rank; they add up to `total`.

    First what sharding decides alone, so that a space of strategies adds it up once for all
    schedules, then what a micro-batch leaves behind.
    """

    parameters: Num
    """Weights as stored between steps (sharded where the strategy shards them)."""
    gradients: Num
    optimizer: Num
    """Master weights and moments."""
    all_gather_buffers: Num
    """Unsharded parameters and gradients of the layers in flight (FSDP)."""
    workspace: Num
    """Context, communication buffers, library workspaces."""
    logits: Num
    """Output of the LM head and its gradient."""
    activations: Num
    """Kept from forward for backward, all micro-batches in flight."""
    fragmentation: Num
    """Memory that the allocator cannot use."""


def activation_bytes(case: Case) -> tuple[Num, Num]:
    """Return what one layer keeps per micro-batch: (as the strategy recomputes, in full), bytes."""
    s, split, habits = case.shape, case.split, case.habits
    tokens = case.tokens
    elements, inputs = physics.activation_elements(
        s.hidden, s.query, s.key_value, s.ffn, gated=s.gated, tp=split.tp, sp=split.sp
    )
    elements = habits.activation_factor * elements
    if some(habits.keeps_sp_all_gather):
        # They stay only without a pipeline (published peaks of TP 2 to 32 agree).
        stay = ~split.pipelined & (split.sp > 1.0)
        elements = elements + np.where(habits.keeps_sp_all_gather & stay, 2.0 * s.hidden, 0.0)
    # Quantized inputs of the four GEMMs may be kept as such.
    spared = habits.keeps_quantized * (1.0 - 0.5 * case.rates.matmul_bytes)
    whole = 2.0 * tokens * (elements - spared * inputs)
    scores: Num = case.zeros
    if some(habits.unfused_attention):
        scores = 5.0 * habits.unfused_attention * tokens * s.heads * s.seq_len / split.tp
        whole = whole + scores
    return kept_bytes(case, whole, scores), whole


def in_flight(case: Case, stage: Num) -> Num:
    """Return the micro-batches whose activations a stage (0 = first) holds; GPipe: all of them."""
    split = case.split
    n = split.num_microbatches
    held = pipeline.in_flight(stage, split.pp, split.chunks, n)
    result: Num = np.where(split.gpipe, n, held)
    return result


def gradient_stage(case: Case) -> Num:
    """Return the ZeRO stage that gradients are kept at: ZeRO-2 keeps all of them until it reduces.

    Where it reduces once per step, gradients of several micro-batches add up unsharded.
    """
    split = case.split
    waits = ~case.habits.reduces_each(split) & (split.num_microbatches > 1.0)
    result: Num = np.where((split.sharding == 2.0) & waits, 1.0, split.sharding)
    return result


def stage_parts(
    case: Case, per_layer: tuple[Num, Num], layers: Num, flight: Num, edge: Num, logits: Num
) -> MemoryParts:
    """Return the parts of one stage.

    Args:
        case: The step.
        per_layer: What one layer keeps per micro-batch, as `activation_bytes` says.
        layers: Layers of the stage.
        flight: Micro-batches in flight.
        edge: Parameters outside of layers.
        logits: Bytes of logits.
    """
    split, habits = case.split, case.habits
    params = (layers * case.shape.layer_params + edge) / split.tp
    stored, whole = per_layer
    kept = layers * flight
    # While one layer is recomputed it is there in full.
    one, rest = np.minimum(kept, 1.0), np.maximum(kept - 1.0, 0.0)
    activations = np.where(split.recompute > 0.0, rest * stored + one * whole, kept * stored)
    block = case.shape.layer_params / split.tp
    whole_stage = habits.gathers_once(split)
    frees = split.reshard_after_forward & ~whole_stage
    ahead = np.where(frees, np.minimum(1.0 + split.prefetch, layers), layers)
    # Gradients that are reduced once stay unsharded until then.
    grown = np.where(whole_stage, layers, 1.0)
    buffers = (2.0 * ahead + habits.reduce_bytes * grown) * block
    buffers = np.where(split.fully_sharded, buffers, 0.0)
    zero, shards = split.sharding, split.shards
    held = MemoryParts(
        parameters=physics.parameter_bytes(zero, shards) * params,
        gradients=physics.gradient_bytes(gradient_stage(case), shards, habits.gradient_memory)
        * params,
        optimizer=physics.optimizer_bytes(zero, shards) * params,
        all_gather_buffers=buffers,
        workspace=habits.workspace_bytes,
        logits=logits,
        activations=activations,
        fragmentation=0.0,
    )
    return MemoryParts(**{**held.parts(), "fragmentation": habits.fragmentation * held.total})


def peak_memory(case: Case) -> MemoryParts:
    """Return the peak memory of the worst rank, by part."""
    return worst_rank(stage_memory(case))


def worst_rank(stages: MemoryParts) -> MemoryParts:
    """Choose the stage that needs most, the first of equals."""
    total = np.asarray(stages.total)
    which = np.argmax(total, axis=0)
    places = np.ogrid[tuple(map(slice, which.shape))] if total.ndim > 2 else [np.arange(which.size)]

    def chosen(value: Num) -> Num:
        if np.ndim(value) < total.ndim:
            return value  # The same on all stages.
        if len(total) == 1:
            alone: Num = np.asarray(value)[0]
            return alone
        laid = value if np.shape(value) == total.shape else np.broadcast_to(value, total.shape)
        picked: Num = np.asarray(laid)[which, *places]
        return picked

    return MemoryParts(**{name: chosen(value) for name, value in stages.parts().items()})


def stage_memory(case: Case) -> MemoryParts:
    """Return the parts of every stage that can be the worst, along a leading axis.

    The first, the last and a middle one, in the order of preference among equals; the only one
    where no strategy has a pipeline.
    """
    stored = activation_bytes(case)
    stages = stage_inputs(case)
    return stage_parts(case, stored, *stages)


def logit_bytes(case: Case) -> Num:
    """Return the logits of one micro-batch and their gradient, bytes."""
    tokens = case.tokens
    return case.habits.logit_memory * tokens * case.shape.vocab / case.split.tp


def stage_inputs(case: Case) -> tuple[Num, Num, Num, Num]:
    """Return layers, micro-batches in flight, parameters outside of layers and logits by stage."""
    shape, split = case.shape, case.split
    logits = logit_bytes(case)
    both = shape.embedding_params + shape.head_params
    if not some(split.pipelined):
        return split.first_layers[None], in_flight(case, 0.0), both, logits
    none = case.zeros
    alone = ~split.pipelined
    place = stacked(none, split.pp - 1.0, np.minimum(1.0, split.pp - 1.0))
    layers = stacked(split.first_layers, split.last_layers, split.middle_layers)
    edge = stacked(
        np.where(alone, both, shape.embedding_params), np.where(alone, both, shape.tied_copy), none
    )
    # GPipe runs all forward passes, head and loss included, before it frees the first logits.
    kept = np.where(split.gpipe, split.num_microbatches, 1.0) * logits
    held = stacked(np.where(alone, logits, 0.0), kept, none)
    return layers, in_flight(case, place), edge, held
