"""Peak memory of the worst rank, by part.

    parts = peak_memory(case)
    parts.total, parts.activations

Three stages can be the worst: the first (most micro-batches in flight, embedding), a middle one
(most layers), the last (logits, LM head). Sizes in bytes; bytes per parameter and per token are in
`physics.memory`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from scalewise.numeric import Mask, Num, mask, maximum, minimum, some, stacked, where
from scalewise.physics import memory as physics
from scalewise.physics import pipeline
from scalewise.step import expert_parallel, mlp_tiles, offload, tuning
from scalewise.step.breakdown import Breakdown
from scalewise.step.case import Case
from scalewise.step.hierarchical import copy_bytes
from scalewise.step.quantized_collectives import buffer_bytes, gathered_bytes, quantizes
from scalewise.step.recompute import kept_bytes
from scalewise.step.sequences import of_longest


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


def activation_bytes(case: Case, sparse: Num | None = None) -> tuple[Num, Num]:
    """Return what one layer keeps per micro-batch: (as the strategy recomputes, in full), bytes.

    Args:
        case: The step.
        sparse: Fraction of the layers that have experts; by default that of the slowest stage.
    """
    s, split, habits = case.shape, case.split, case.habits
    tokens, kept = case.tokens, s.attention_kept
    sparse = split.middle_sparse if sparse is None else sparse
    elements, inputs = physics.activation_elements(
        s.hidden, s.query, kept, case.mlp_of(sparse), gated=s.gated, tp=split.tp, sp=split.sp
    )
    if case.has_experts:
        more = expert_elements(case)
        elements, inputs = elements + sparse * more[0], inputs + sparse * more[1]
    if case.has_frozen:
        elements = elements - tuning.kept_elements(case, sparse)
        # The input of the out projection stays, because attention needs its output.
        inputs = where(case.tuned.frozen > 0.0, s.query / split.tp, inputs)
    if some(split.modules):
        elements = elements - module_elements(case, sparse)
    if some(mlp_tiles.tiled(case)):
        spared_elements, spared_inputs = mlp_tiles.spared_elements(case, sparse)
        elements = elements - spared_elements
        # Frozen, `inputs` is the attention output alone.
        inputs = inputs - where(case.tuned.frozen > 0.0, 0.0, spared_inputs)
    elements = habits.activation_factor * elements
    if some(habits.keeps_sp_all_gather):
        # They stay only without a pipeline (published peaks of TP 2 to 32 agree).
        stay = ~split.pipelined & (split.sp > 1.0)
        elements = elements + where(habits.keeps_sp_all_gather & stay, 2.0 * s.hidden, 0.0)
    # Quantized inputs of the four GEMMs may be kept as such.
    kept_as = case.rates.matmul_bytes + case.rates.scale_bytes
    element = case.rates.activation_bytes
    spared = habits.keeps_quantized * (1.0 - kept_as / element)
    whole = element * tokens * (elements - spared * inputs)
    scores: Num = case.zeros
    if some(habits.unfused_attention):
        # Scores before and after softmax, and the mask of dropout; or softmax in fp32 and a copy.
        stored = where(habits.upcast_scores, 4.0 + element, 2.0 * element + 1.0)
        scores = stored * habits.unfused_attention * tokens * s.heads * s.seq_len / split.tp
        whole = whole + scores
    return kept_bytes(case, whole, scores, sparse), whole


def expert_elements(case: Case) -> tuple[Num, Num]:
    """Return what experts keep per token of the layer: all elements, and GEMM inputs among them.

        k (h + (2 + gated) f / etp) / sp      k (h + f / etp) / sp

    with k copies of a token on the busiest rank. Frozen experts need none of their GEMM inputs.
    """
    shape, ffn = case.shape, case.sparse.expert_ffn / case.split.etp
    copies = expert_parallel.copies(case) / case.tokens
    elements = copies * (shape.hidden + (2.0 + shape.gated) * ffn)
    inputs = copies * (shape.hidden + ffn)
    if case.has_frozen:
        elements = elements - case.tuned.frozen * inputs
    return elements, inputs


def module_elements(case: Case, sparse: Num) -> Num:
    """Return the elements per token that recomputed modules spare."""
    s, split = case.shape, case.split
    parts: dict[str, Num] = {
        "norm": 2.0 * s.hidden / split.sp,
        # Queries, keys and values come from the latents again.
        "latent": where(s.latent, s.attention_kept - s.query - s.query_rank - s.kv_rank, 0.0)
        / split.tp,
        "activation": sparse
        * expert_parallel.copies(case)
        / case.tokens
        * case.sparse.expert_ffn
        / split.etp,
        "mlp": where(mlp_tiles.tiled(case), 0.0, (1.0 - sparse) * (2.0 + s.gated) * s.ffn)
        / split.tp,
    }
    if case.has_frozen:
        parts = tuning.frozen_modules(case, parts, sparse)
    spared: Num = case.zeros
    for module, elements in parts.items():
        spared = spared + where(split.recomputes(module), elements, 0.0)
    return spared


def in_flight(case: Case, stage: Num) -> Num:
    """Return the micro-batches whose activations a stage (0 = first) holds; GPipe: all of them."""
    split = case.split
    n = split.num_microbatches
    held = pipeline.in_flight(stage, split.pp, split.chunks, n)
    result: Num = where(split.gpipe, n, held)
    return result


def gradient_stage(case: Case) -> Num:
    """Return the ZeRO stage that gradients are kept at: ZeRO-2 keeps all of them until it reduces.

    Where it reduces once per step, gradients of several micro-batches add up unsharded.
    """
    split = case.split
    waits = ~case.habits.reduces_each(split) & (split.num_microbatches > 1.0)
    result: Num = where((split.sharding == 2.0) & waits, 1.0, split.sharding)
    return result


def stage_parts(
    case: Case, sparse: Num, layers: Num, flight: Num, edge: Num, logits: Num
) -> MemoryParts:
    """Return the parts of one stage.

    Args:
        case: The step.
        sparse: Fraction of its layers that have experts.
        layers: Layers of the stage.
        flight: Micro-batches in flight.
        edge: Parameters outside of layers.
        logits: Bytes of logits.
    """
    split, habits = case.split, case.habits
    own = case.params_of_layer(sparse)
    params = (layers * own + edge) / split.tp
    stored, whole = activation_bytes(case, sparse)
    kept: Num = offload.resident_layers(case, layers * flight)
    # While one layer is recomputed it is there in full.
    one, rest = minimum(kept, 1.0), maximum(kept - 1.0, 0.0)
    activations = where(split.recompute > 0.0, rest * stored + one * whole, kept * stored)
    if some(mlp_tiles.tiled(case)):
        activations = activations + mlp_tiles.peak_bytes(case, kept, sparse)
    block = own / split.tp
    if case.has_experts:
        block = block + sparse * case.expert_params_of_layer
    whole_stage = habits.gathers_once(split)
    frees = split.reshard_after_forward & ~whole_stage
    frees = frees & habits.limits_all_gathers
    ahead = where(frees, minimum(1.0 + split.prefetch, layers), layers)
    # Gradients that are reduced once stay unsharded until then.
    grown = where(habits.keeps_gradients(split), layers, 1.0)
    buffers = (gathered_bytes(case) * ahead + habits.reduce_bytes * grown) * block
    if not habits.limits_all_gathers.all():
        buffers = buffers + where(habits.limits_all_gathers, 0.0, ahead * block * staged(case))
    if some(split.reduce_stated):
        waits = habits.keeps_gradients(split) & (split.reduce_stated == 1.0)
        buffers = buffers + where(waits, habits.reduce_bytes * edge / split.tp, 0.0)
    if quantizes(split):
        buffers = buffers + buffer_bytes(case) * block
    if case.has_frozen:
        buffers = where(
            case.tuned.frozen > 0.0, frozen_buffers(case, sparse, ahead, grown), buffers
        )
    buffers = where(split.fully_sharded, buffers, 0.0)
    states = state_bytes(case, split.shards)
    updated = tuning.trained_params(case, layers, params)
    kept_states: list[Num] = [each * updated for each in states]
    if case.has_frozen:
        kept_states[0] = kept_states[0] + frozen_bytes(case, own, layers, edge)
    if case.has_experts:
        experts = layers * sparse * case.expert_params_of_layer
        more = state_bytes(case, split.expert_shards)
        if case.has_frozen:
            more = tuple(tuning.trained_only(case, each) for each in more)  # type: ignore[assignment]
            more = (more[0] + frozen_expert_bytes(case), *more[1:])
        kept_states = [one + each * experts for one, each in zip(kept_states, more, strict=True)]
    parameters, gradients, optimizer = kept_states
    if some(split.backward_shard):
        parameters = parameters + copy_bytes(case, split.shards) * params
        if case.has_experts:
            parameters = parameters + copy_bytes(case, split.expert_shards) * experts
    # Embedding and head may have another optimizer.
    apart = case.update.other_bytes - case.update.moment_bytes
    if some(apart):
        none = case.zeros
        optimizer = optimizer + physics.optimizer_bytes(
            split.sharding, split.shards, apart, none
        ) * tuning.trained_only(case, edge / split.tp)
    if some(split.offload):
        local: Num = params / where(split.shards_optimizer, split.shards, 1.0)
        if case.has_experts:
            ranks = where(split.shards_optimizer, split.expert_shards, 1.0)
            local = local + layers * sparse * case.expert_params_of_layer / ranks
        parameters, gradients, optimizer = offload.device_states(
            case, sparse, local, (parameters, gradients, optimizer)
        )
    workspace = habits.workspace_bytes
    if case.has_frozen:
        workspace = workspace + tuning.dequantize_buffer(case)
    if some(grows := grows_in_backward(case)):
        last = minimum(activations, one * where(split.recompute > 0.0, whole, stored))
        later = grows & (gradients > activations - last + logits)
        gradients = where(grows & ~later, 0.0, gradients)
        activations = where(later, last, activations)
        logits = where(later, 0.0, logits)
    held = MemoryParts(
        parameters=parameters,
        gradients=gradients,
        optimizer=optimizer,
        all_gather_buffers=buffers,
        workspace=workspace,
        logits=logits,
        activations=activations,
        fragmentation=0.0,
    )
    return MemoryParts(**{**held.parts(), "fragmentation": habits.fragmentation * held.total})


def staged(case: Case) -> Num:
    """Return the bytes per parameter of shards on their way into an all-gather.

    (w + c) / s

    A 16-bit shard w, and the copy c of one that is offloaded. They are freed with what they were
    gathered into, so that they add up over all layers where nothing limits all-gathers.
    """
    split = case.split
    copied = where(split.offloads("param"), case.host.fetched, 0.0)
    shard: Num = (case.update.weight_bytes + copied) / split.shards
    return shard


def grows_in_backward(case: Case) -> Mask:
    """Whether gradients appear as backward frees activations, and are gone after the update.

    Then no moment has all of both: activations and logits are there when forward ends, gradients
    and one layer of activations when backward ends. Both change in proportion in between, so one of
    the two is the worst. Later micro-batches find gradients of earlier ones. Buckets of DDP stay,
    and FSDP reduces on a stream of its own, whose blocks PyTorch's allocator keeps apart: what is
    reserved there adds up (published peaks of torchtitan and torchao agree).
    """
    split = case.split
    ranks = split.shards * split.dp_replicate * split.tp * split.pp
    once = split.num_microbatches == 1.0
    return mask(case.habits.frees_gradients & once & (ranks == 1.0))


def frozen_bytes(case: Case, own: Num, layers: Num, edge: Num) -> Num:
    """Return the bytes of the frozen parameters of a rank but experts.

        (L b p + 2 e) / tp / shards

    Without master copy, gradients or optimizer state; embedding, LM head and norms in 16 bits.

    Args:
        case: The step.
        own: Parameters of a layer but experts.
        layers: Layers of the rank.
        edge: Parameters outside of layers.
    """
    split, t = case.split, case.tuned
    whole = (layers * t.base_bytes * own + 2.0 * edge) / split.tp
    held: Num = t.frozen * where(split.fully_sharded, whole / split.shards, whole)
    return held


def frozen_expert_bytes(case: Case) -> Num:
    """Return the bytes per parameter of frozen experts: 16 bits, sharded by FSDP."""
    split = case.split
    held: Num = case.tuned.frozen * where(split.fully_sharded, 2.0 / split.expert_shards, 2.0)
    return held


def frozen_buffers(case: Case, sparse: Num, ahead: Num, grown: Num) -> Num:
    """Return all-gathered parameters in flight, as stored, and gradients of adapters, bytes.

    Args:
        case: The step.
        sparse: Fraction of the layers that have experts.
        ahead: Layers that are all-gathered at once.
        grown: Layers whose gradients are in flight.
    """
    own = case.params_of_layer(sparse) / case.split.tp
    gathered = tuning.layer_gather_bytes(case, own)
    if case.has_experts:
        gathered = gathered + case.split.gather_bytes * sparse * case.expert_params_of_layer
    return gathered * ahead + case.habits.reduce_bytes * grown * tuning.adapter_params(case)


def state_bytes(case: Case, shards: Num) -> tuple[Num, Num, Num]:
    """Return the bytes per parameter of a rank: weights, gradients, optimizer state.

    Args:
        case: The step.
        shards: Ranks that share one copy of what is sharded.
    """
    zero, update = case.split.sharding, case.update
    stored = update.stored_gradient
    kept = where(stored > 0.0, stored, case.habits.gradient_memory)
    reduced = where(stored > 0.0, stored, physics.REDUCED)
    return (
        physics.parameter_bytes(zero, shards, update.weight_bytes, update.master_bytes),
        physics.gradient_bytes(gradient_stage(case), shards, kept, reduced),
        physics.optimizer_bytes(zero, shards, update.moment_bytes, update.master_bytes),
    )


def peak_memory(case: Case) -> MemoryParts:
    """Return the peak memory of the worst rank, by part."""
    return worst_rank(stage_memory(case))


def worst_rank(stages: MemoryParts) -> MemoryParts:
    """Choose the stage that needs most, the first of equals."""
    total = np.asarray(stages.total)
    which = np.argmax(total, axis=0)
    places: Any = () if total.ndim == 1 else [np.arange(which.size)]
    if total.ndim > 2:
        places = np.ogrid[tuple(map(slice, which.shape))]

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
    case = of_longest(case)
    return stage_parts(case, stage_sparse(case), *stage_inputs(case))


def stage_sparse(case: Case) -> Num:
    """Return the fraction of layers with experts by stage, in the order of `stage_inputs`."""
    split = case.split
    if not case.has_experts or not some(split.pipelined):
        return split.middle_sparse
    return stacked(split.first_sparse, split.last_sparse, split.middle_sparse)


def logit_bytes(case: Case) -> Num:
    """Return the logits of one micro-batch and their gradient, bytes."""
    logits = (1.0 + case.shape.mtp) * case.tokens * case.shape.vocab
    return case.habits.logit_memory * logits / case.split.tp


def stage_inputs(case: Case) -> tuple[Num, Num, Num, Num]:
    """Return layers, micro-batches in flight, parameters outside of layers and logits by stage."""
    shape, split = case.shape, case.split
    logits = logit_bytes(case)
    both = shape.edge_params
    if not some(split.pipelined):
        return split.first_layers[None], in_flight(case, 0.0), both, logits
    none = case.zeros
    alone = ~split.pipelined
    place = stacked(none, split.pp - 1.0, minimum(1.0, split.pp - 1.0))
    layers = stacked(split.first_layers, split.last_layers, split.middle_layers)
    edge = stacked(
        where(alone, both, shape.embedding_params), where(alone, both, shape.last_params), none
    )
    # GPipe runs all forward passes, head and loss included, before it frees the first logits.
    kept = where(split.gpipe, split.num_microbatches, 1.0) * logits
    held = stacked(where(alone, logits, 0.0), kept, none)
    return layers, in_flight(case, place), edge, held
