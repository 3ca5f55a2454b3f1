"""What a step keeps in memory, by named part, on the fullest rank.

    parts = peak_memory(case)
    parts.total, parts.activations

Three stages can be the fullest: the first (most micro batches in flight, embedding), a middle one
(most layers), the last (logits, output head). Each is priced, the largest is returned. Sizes in
bytes; mixed-precision AdamW (Rajbhandari et al., arXiv 1910.02054): 2 bytes of weights, 12 of
master weights and moments, gradients as the stack keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Num, stacked
from scalewise.step.breakdown import Breakdown
from scalewise.step.case import Case
from scalewise.step.groups import shards
from scalewise.step.layers import tokens_per_rank


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryParts(Breakdown):
    """Bytes on the fullest rank; they add up to `total`.

    First what sharding decides alone, so that a space of strategies adds it up once for all
    schedules, then what a micro batch leaves behind.
    """

    parameters: Num
    """Weights as stored between steps (sharded where the strategy shards them)."""
    gradients: Num
    optimizer: Num
    """Master weights and moments."""
    gather_buffers: Num
    """Unsharded parameters and gradients of the blocks in flight (FSDP)."""
    workspace: Num
    """Context, communication buffers, library workspaces."""
    logits: Num
    """Output of the head and its gradient."""
    activations: Num
    """Kept from forward for backward, all micro batches in flight."""
    fragmentation: Num
    """What the allocator cannot use."""


def activation_bytes(case: Case) -> tuple[Num, Num]:
    """Return bytes that one layer keeps per micro batch: (as the strategy recomputes, in full).

    The least that backward needs in 16 bits (Korthikanti et al., arXiv 2205.05198, with fused
    attention): inputs of two norms and of qkv and up projections (4 h, split by sequence
    parallelism), queries, keys, values and attention output, inputs and output of the activation.
    """
    tokens = tokens_per_rank(case)
    split = np.where(case.sequence_parallel > 0.0, case.tp, 1.0)
    wide = case.hidden / split
    # Gathered inputs stay only without a pipeline and inside a domain (published peaks agree).
    stay = (case.pp == 1.0) & (split > 1.0) & (case.tp <= case.domain)
    kept = case.gathers_kept * np.where(stay, 1.0, 0.0)
    narrow = (2.0 * case.query + 2.0 * case.key_value + (2.0 + case.gated) * case.ffn) / case.tp
    elements = case.activation_factor * (4.0 * wide + narrow) + 2.0 * kept * case.hidden
    # Quantised inputs of the four products are kept as such.
    inputs = 2.0 * wide + (case.query + case.ffn) / case.tp
    elements = elements - (1.0 - 0.5 * case.matmul_bytes) * inputs
    scores = 5.0 * case.unfused_attention * case.heads * case.sequence / case.tp
    whole = tokens * (2.0 * elements + np.where(case.recompute == 0.0, scores, 0.0))
    selective = whole * case.selective_memory
    full = 2.0 * tokens * wide
    stored = np.where(
        case.recompute == 2.0, full, np.where(case.recompute == 1.0, selective, whole)
    )
    return stored, whole


def in_flight(case: Case, stage: Num) -> Num:
    """Micro batches whose activations stage `stage` (0 = first) holds at its peak.

    1F1B: as many as stages behind it. Interleaved: (pp - 1) / chunks more on the first. GPipe:
    all of them.
    """
    warm = case.pp - stage
    warm = warm + np.where(case.chunks > 1.0, (case.pp - 1.0 - stage) / case.chunks, 0.0)
    result: Num = np.where(
        case.schedule == 0.0, case.micro_steps, np.minimum(case.micro_steps, warm)
    )
    return result


def _stage(
    case: Case, per_layer: tuple[Num, Num], layers: Num, flight: Num, edge: Num, logits: Num
) -> MemoryParts:
    """Price one stage: `layers` layers, `flight` micro batches, `edge` parameters beside them."""
    split = shards(case)
    params = (layers * case.layer_params + edge) / case.tp
    full = case.sharding == 3.0
    stored, whole = per_layer
    kept = layers * flight
    # While one layer is recomputed it is there in full.
    one, rest = np.minimum(kept, 1.0), np.maximum(kept - 1.0, 0.0)
    activations = np.where(case.recompute > 0.0, rest * stored + one * whole, kept * stored)
    block = case.layer_params / case.tp
    ahead = np.where(case.reshard > 0.0, np.minimum(1.0 + case.prefetch, layers), layers)
    buffers = np.where(full, (2.0 * ahead + case.reduce_bytes) * block, 0.0)
    parameters = np.where(full, 4.0 * params / split, 2.0 * params)
    scattered = case.sharding >= 2.0
    gradients = np.where(scattered, 4.0 * params / split, case.gradient_memory * params)
    states = np.where(full, 8.0, 12.0) * params
    optimizer = np.where(case.sharding >= 1.0, states / split, states)
    held = MemoryParts(
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        gather_buffers=buffers,
        workspace=case.workspace_bytes,
        logits=logits,
        activations=activations,
        fragmentation=0.0,
    )
    return MemoryParts(**{**held.parts(), "fragmentation": case.fragmentation * held.total})


def peak_memory(case: Case) -> MemoryParts:
    """Return the parts of the fullest rank's peak."""
    return fullest(stage_memory(case))


def fullest(stages: MemoryParts) -> MemoryParts:
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
    """Return the parts of every stage that can be the fullest, along a leading axis.

    The first, the last and a middle one, in the order of preference among equals; the only one
    where no strategy has a pipeline.
    """
    tokens = tokens_per_rank(case)
    logits = case.logit_memory * tokens * case.vocab / case.tp
    both = case.embedding_params + case.head_params
    alone = case.pp == 1.0
    stored = activation_bytes(case)
    if alone.all():
        flight = in_flight(case, 0.0)
        return _stage(case, stored, case.first_layers[None], flight, both, logits)
    # A tied head lives on the last stage as a second copy of the embedding.
    none = np.zeros_like(case.layers)
    stage = stacked(none, case.pp - 1.0, np.minimum(1.0, case.pp - 1.0))
    layers = stacked(case.first_layers, case.last_layers, case.middle_layers)
    head = np.where(case.head_params > 0.0, case.head_params, case.embedding_params)
    here = np.where(alone, both, case.embedding_params)
    edge = stacked(here, np.where(alone, both, head), none)
    # GPipe runs all forward passes, head and loss included, before it frees the first logits.
    kept = np.where((case.schedule == 0.0) & (case.pp > 1.0), case.micro_steps, 1.0) * logits
    held = stacked(np.where(alone, logits, 0.0), kept, none)
    return _stage(case, stored, layers, in_flight(case, stage), edge, held)
