"""Derivations of the parts of peak memory, on the worst stage.

for derivation in derive_memory(e.origin):
    derivation.key, derivation.value           # equals e.memory[derivation.key]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import scalar
from scalewise.physics import memory as physics
from scalewise.physics.offload import RESIDENT_LAYERS
from scalewise.step import derive_offload, mlp_tiles, tuning
from scalewise.step.hierarchical import copy_bytes
from scalewise.step.memory import (
    activation_bytes,
    frozen_expert_bytes,
    grows_in_backward,
    stage_inputs,
    stage_memory,
    stage_sparse,
    staged,
    state_bytes,
)
from scalewise.step.quantized_collectives import buffer_bytes, gathered_bytes
from scalewise.step.recompute import block_input
from scalewise.step.sequences import of_longest

if TYPE_CHECKING:
    from scalewise.step.origin import Origin

ADAM = "mixed-precision AdamW (Rajbhandari et al., arXiv 1910.02054)"
KORTHIKANTI = "Korthikanti et al., arXiv 2205.05198, with fused attention"


def derive_memory(o: Origin) -> list[Derivation]:
    """Return how every part of the peak that is not zero comes about, in order."""
    o = replace(o, case=of_longest(o.case))
    totals = np.asarray(stage_memory(o.case).total)
    place = int(np.argmax(totals, axis=0).reshape(-1)[0])

    def at(values: object) -> float:
        laid = np.broadcast_to(np.asarray(values), totals.shape)
        return float(laid[place].reshape(-1)[0])

    layers, flight, edge, logits = (at(each) for each in stage_inputs(o.case))
    sparse = at(stage_sparse(o.case))
    names = ("the first stage", "the last stage", "a middle stage")
    stage = names[place] if len(totals) > 1 else "the model"
    states = _states(o, layers, edge, sparse, stage)
    if scalar(o.case.split.offload):
        states = derive_offload.device_states(o, states, layers, edge, sparse)
    parts = [
        *states,
        _buffers(o, layers, sparse, edge),
        _constant(o),
        _logits(o, logits),
        _activations(o, layers, flight, sparse, stage),
    ]
    if grows_in_backward(o.case)[0]:
        parts = _at_worst_moment(o, parts, sparse)
    shown = [part for part in parts if part.value]
    lost = scalar(o.case.habits.fragmentation)
    if lost:
        letters = [Letter("x", lost, "fraction the allocator cannot use")]
        letters += [Letter(part.key, part.value, part.label, "B") for part in shown]
        total = " + ".join(part.key for part in shown)
        shown.append(
            _part("fragmentation", f"x * ({total})", tuple(letters), f"stack {o.stack.name}")
        )
    return shown


def _at_worst_moment(o: Origin, parts: list[Derivation], sparse: float) -> list[Derivation]:
    """Leave out what is not there when forward ends, or when backward does."""
    found = {part.key: part for part in parts}
    stored, whole = (scalar(each) for each in activation_bytes(o.case, np.full(1, sparse)))
    activations = found["activations"]
    last = min(activations.value, whole if o.case.split.recompute[0] else stored)
    if found["gradients"].value <= activations.value - last + found["logits"].value:
        gone = replace(found["gradients"], formula="0", letters=(), source="not yet: forward ends")
        found["gradients"] = gone
    else:
        why = "those of the first layer: backward ends"
        letters = (Letter("W", last, "activations of the layer in backward", "B"),)
        found["activations"] = replace(activations, formula="W", letters=letters, source=why)
        found["logits"] = replace(found["logits"], formula="0", letters=(), source=why)
    return list(found.values())


def _part(key: str, formula: str, letters: tuple[Letter, ...], source: str) -> Derivation:
    label = f"memory: {key.replace('_', ' ')}"
    return Derivation(
        key=key, label=label, formula=formula, letters=letters, unit="B", source=source
    )


def _held(o: Origin, layers: float, edge: float, sparse: float, stage: str) -> tuple[Letter, ...]:
    """Letters of the parameters of one rank."""
    return (
        Letter("L", layers, f"layers of {stage}"),
        Letter("p", scalar(o.case.params_of_layer(sparse)), "parameters of a layer, mean"),
        Letter("e", edge, "embedding and LM head there"),
        Letter("tp", scalar(o.case.split.tp), "tensor-parallel degree"),
    )


def _frozen_states(
    o: Origin, layers: float, edge: float, sparse: float, stage: str
) -> list[Derivation]:
    """The frozen parameters, and parameters, gradients and optimizer state of adapters."""
    case, split = o.case, o.case.split
    shards = scalar(split.shards) if split.fully_sharded[0] else 1.0
    params = Derivation(
        key="params",
        label=f"adapters of one rank of {stage}, before data parallelism shards them",
        formula="L * a",
        letters=(
            Letter("L", layers, f"layers of {stage}"),
            Letter("a", scalar(tuning.adapter_params(case)), "parameters of a layer's adapters"),
        ),
        unit="",
    )
    held = Letter("P", params.value, params.label, "", params)
    zero = scalar(split.sharding)
    note = f"bytes per parameter, ZeRO stage {zero:.0f} over {scalar(split.shards):,.0f} ranks"
    first, *rest = (Letter("b", scalar(each), note) for each in state_bytes(case, split.shards))
    formula = "b * P + (L * q * p + 2 * e) / tp / s"
    letters: tuple[Letter, ...] = (
        first,
        held,
        *_held(o, layers, edge, sparse, stage),
        Letter("q", scalar(case.tuned.base_bytes), "bytes per frozen parameter of a layer"),
        Letter("s", shards, "ranks that shard frozen parameters"),
    )
    if case.has_experts:
        formula += " + g * X"
        experts = scalar(case.expert_params_of_layer) * layers * sparse
        bytes_ = scalar(frozen_expert_bytes(case))
        letters = (
            *letters,
            Letter("g", bytes_, "bytes per frozen parameter of experts"),
            Letter("X", experts, f"parameters of experts of one rank of {stage}"),
        )
    return [
        _part("parameters", formula, letters, "LoRA, arXiv 2106.09685; QLoRA, arXiv 2305.14314"),
        *(
            _part(key, "b * P", (letter, held), ADAM)
            for key, letter in zip(("gradients", "optimizer"), rest, strict=True)
        ),
    ]


def _states(o: Origin, layers: float, edge: float, sparse: float, stage: str) -> list[Derivation]:
    """Parameters, gradients and optimizer state."""
    split = o.case.split
    zero, shards = split.sharding, split.shards
    if scalar(o.case.tuned.frozen):
        return _frozen_states(o, layers, edge, sparse, stage)
    params = Derivation(
        key="params",
        label=f"parameters of one rank of {stage}, before data parallelism shards them",
        formula="(L * p + e) / tp",
        letters=_held(o, layers, edge, sparse, stage),
        unit="",
    )
    held = Letter("P", params.value, params.label, "", params)
    keys = ("parameters", "gradients", "optimizer")
    note = f"bytes per parameter, ZeRO stage {scalar(zero):.0f} over {scalar(shards):,.0f} ranks"
    letters = [(Letter("b", scalar(each), note), held) for each in state_bytes(o.case, shards)]
    formula = "b * P"
    if o.case.has_experts:
        formula = "b * P + q * X"
        experts = scalar(o.case.expert_params_of_layer) * layers * sparse
        ranks = split.expert_shards
        note = f"bytes per expert parameter, over {scalar(ranks):,.0f} ranks"
        more = state_bytes(o.case, ranks)
        last = Letter("X", experts, f"parameters of experts of one rank of {stage}")
        letters = [
            (*each, Letter("q", scalar(bytes_), note), last)  # type: ignore[misc]
            for each, bytes_ in zip(letters, more, strict=True)
        ]
    parts = [_part(key, formula, each, ADAM) for key, each in zip(keys, letters, strict=True)]
    if scalar(split.backward_shard):
        parts[0] = _with_copy(o, parts[0])
    apart = o.case.update.other_bytes - o.case.update.moment_bytes
    if scalar(apart):
        bytes_ = physics.optimizer_bytes(zero, shards, apart, 0.0)
        more_letters = (
            Letter("a", scalar(bytes_), "bytes that embedding and LM head have besides"),
            Letter("E", edge / scalar(split.tp), "their parameters on one rank"),
        )
        held_letters = (*letters[-1], *more_letters)
        parts[-1] = _part(keys[-1], f"{formula} + a * E", held_letters, ADAM)
    return parts


def _with_copy(o: Origin, parameters: Derivation) -> Derivation:
    """Parameters with the second copy that backward all-gathers in smaller groups."""
    case, formula = o.case, f"{parameters.formula} + d * P"
    label = "bytes per parameter of the copy for backward"
    letters = [*parameters.letters, Letter("d", scalar(copy_bytes(case, case.split.shards)), label)]
    if case.has_experts:
        formula += " + f * X"
        copied = scalar(copy_bytes(case, case.split.expert_shards))
        letters.append(Letter("f", copied, f"{label}, experts"))
    return _part("parameters", formula, tuple(letters), ADAM)


def _block_params(o: Origin, sparse: float) -> float:
    """Parameters of a layer on one rank, with its experts, mean."""
    block = scalar(o.case.params_of_layer(sparse)) / scalar(o.case.split.tp)
    if o.case.has_experts:
        block += sparse * scalar(o.case.expert_params_of_layer)
    return block


def _buffers(o: Origin, layers: float, sparse: float, edge: float) -> Derivation:
    """Parameters and gradients of the layers in flight."""
    split, habits = o.case.split, o.case.habits
    if not split.fully_sharded[0]:
        return _part("all_gather_buffers", "0", (), "")
    ahead, grown = layers, layers if habits.keeps_gradients(split)[0] else 1.0
    limited = bool(habits.limits_all_gathers[0])
    if split.reshard_after_forward[0] and not habits.gathers_once(split)[0] and limited:
        ahead = min(1.0 + scalar(split.prefetch), layers)
    if scalar(o.case.tuned.frozen):
        return _frozen_buffers(o, sparse, ahead, grown)
    formula = "(w * k + g * q) * P"
    letters = [
        Letter("w", scalar(gathered_bytes(o.case)), "bytes per gathered parameter"),
        Letter("k", ahead, "layers gathered at once"),
        Letter("g", scalar(habits.reduce_bytes), "bytes per gradient in flight"),
        Letter("q", grown, "layers whose gradients are in flight"),
        Letter("P", _block_params(o, sparse), "parameters of a layer, with its experts"),
    ]
    if habits.keeps_gradients(split)[0] and scalar(split.reduce_stated) == 1.0:
        formula += " + g * E"
        label = "parameters of embedding and LM head on one rank"
        letters.append(Letter("E", edge / scalar(split.tp), label))
    if not limited:
        formula += " + d * k * P"
        label = "bytes per parameter of shards on their way into an all-gather"
        letters.append(Letter("d", scalar(staged(o.case)), label))
    if packed := scalar(buffer_bytes(o.case)):
        formula += " + z * P"
        letters.append(Letter("z", packed, "bytes per quantized parameter and gradient"))
    return _part(
        "all_gather_buffers",
        formula,
        tuple(letters),
        "FSDP: what is gathered and not yet freed",
    )


def _frozen_buffers(o: Origin, sparse: float, ahead: float, grown: float) -> Derivation:
    """Parameters of the layers in flight as they are stored, and gradients of adapters."""
    case = o.case
    own = scalar(case.params_of_layer(sparse)) / scalar(case.split.tp)
    gathered = scalar(tuning.layer_gather_bytes(case, np.full(1, own)))
    if case.has_experts:
        gathered += scalar(case.split.gather_bytes) * sparse * scalar(case.expert_params_of_layer)
    return _part(
        "all_gather_buffers",
        "W * k + g * q * P",
        (
            Letter("W", gathered, "bytes of a layer as it is gathered, with its adapters", "B"),
            Letter("k", ahead, "layers gathered at once"),
            Letter("g", scalar(case.habits.reduce_bytes), "bytes per gradient in flight"),
            Letter("q", grown, "layers whose gradients are in flight"),
            Letter("P", scalar(tuning.adapter_params(case)), "parameters of a layer's adapters"),
        ),
        "FSDP: what is gathered and not yet freed",
    )


def _constant(o: Origin) -> Derivation:
    value = scalar(o.case.habits.workspace_bytes)
    letter = Letter("M", value, "context, NCCL buffers, library workspaces", "B")
    if scalar(o.case.tuned.quantized):
        largest = scalar(o.case.tuned.largest_matrix) / scalar(o.case.split.tp)
        matrix = Letter("w", largest, "elements of the largest matrix, in 16 bits at a time")
        return _part("workspace", "M + 2 * w", (letter, matrix), f"stack {o.stack.name}")
    return _part("workspace", "M", (letter,), f"stack {o.stack.name}")


def _logits(o: Origin, held: float) -> Derivation:
    if not held:
        return _part("logits", "0", (), "")
    split, shape = o.case.split, o.case.shape
    times = scalar(split.num_microbatches) if split.gpipe[0] else 1.0
    return _part(
        "logits",
        "a * z * m * V / tp",
        (
            Letter("a", times, "micro-batches whose logits are kept"),
            Letter("z", scalar(o.case.habits.logit_memory), "bytes per logit at the peak"),
            o.tokens,
            Letter("V", (1.0 + scalar(shape.mtp)) * scalar(shape.vocab), "logits per token"),
            Letter("tp", scalar(split.tp), "tensor-parallel degree"),
        ),
        f"stack {o.stack.name}",
    )


def _activations(o: Origin, layers: float, flight: float, sparse: float, stage: str) -> Derivation:
    stored, whole = (scalar(each) for each in activation_bytes(o.case, np.full(1, sparse)))
    mean = "kept per layer and micro-batch"
    kept = Letter("K", stored, mean, "B")
    blocks = scalar(o.case.split.recompute_blocks)
    if 0.0 < blocks < 1.0:
        inner = Derivation(
            key="K",
            label=f"{mean}, mean over the layers",
            formula="(1 - r) * W + r * I",
            letters=(
                Letter("r", blocks, "fraction of blocks that are recomputed"),
                Letter("W", whole, "all activations of a layer", "B"),
                Letter("I", scalar(block_input(o.case)), "its input", "B"),
            ),
            unit="B",
        )
        kept = Letter("K", inner.value, mean, "B", inner)
    letters: tuple[Letter, ...] = (
        Letter("L", layers, f"layers of {stage}"),
        Letter("f", flight, "micro-batches in flight"),
        kept,
    )
    more, count, source = "", "L * f", KORTHIKANTI
    if bool(o.case.split.offloads("act")[0]):
        few = Letter("r", RESIDENT_LAYERS, "layers that stay on the device")
        count, letters, source = "min(L * f, r)", (*letters, few), f"{KORTHIKANTI}; offloaded"
    if tile := scalar(mlp_tiles.tile_bytes(o.case)) * (sparse < 1.0):
        more = f" + min({count} * d, 1) * Q"
        letters = (
            *letters,
            Letter("d", 1.0 - sparse, "fraction of layers with a dense MLP"),
            Letter("Q", tile, "intermediates of one tile of an MLP", "B"),
        )
    if not o.case.split.recompute[0]:
        return _part("activations", f"{count} * K{more}", letters, source)
    return _part(
        "activations",
        f"max({count} - 1, 0) * K + min({count}, 1) * W{more}",
        (*letters, Letter("W", whole, "the layer that is being recomputed, in full", "B")),
        source,
    )
