"""Derivations of the parts of peak memory, on the worst stage.

for derivation in derive_memory(e.origin):
    derivation.key, derivation.value           # equals e.memory[derivation.key]
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import scalar
from scalewise.physics import memory as physics
from scalewise.step.memory import activation_bytes, gradient_stage, stage_inputs, stage_memory
from scalewise.step.recompute import block_input

if TYPE_CHECKING:
    from scalewise.step.origin import Origin

ADAM = "mixed-precision AdamW (Rajbhandari et al., arXiv 1910.02054)"
KORTHIKANTI = "Korthikanti et al., arXiv 2205.05198, with fused attention"


def derive_memory(o: Origin) -> list[Derivation]:
    """Return how every part of the peak that is not zero comes about, in order."""
    totals = np.asarray(stage_memory(o.case).total)
    place = int(np.argmax(totals, axis=0).reshape(-1)[0])

    def at(values: object) -> float:
        laid = np.broadcast_to(np.asarray(values), totals.shape)
        return float(laid[place].reshape(-1)[0])

    layers, flight, edge, logits = (at(each) for each in stage_inputs(o.case))
    names = ("the first stage", "the last stage", "a middle stage")
    stage = names[place] if len(totals) > 1 else "the model"
    parts = [
        *_states(o, layers, edge, stage),
        _buffers(o, layers),
        _constant(o),
        _logits(o, logits),
        _activations(o, layers, flight, stage),
    ]
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


def _part(key: str, formula: str, letters: tuple[Letter, ...], source: str) -> Derivation:
    label = f"memory: {key.replace('_', ' ')}"
    return Derivation(
        key=key, label=label, formula=formula, letters=letters, unit="B", source=source
    )


def _states(o: Origin, layers: float, edge: float, stage: str) -> list[Derivation]:
    """Parameters, gradients and optimizer state."""
    split = o.case.split
    zero, shards = split.sharding, split.shards
    params = Derivation(
        key="params",
        label=f"parameters of one rank of {stage}, before data parallelism shards them",
        formula="(L * p + e) / tp",
        letters=(
            Letter("L", layers, f"layers of {stage}"),
            Letter("p", scalar(o.case.shape.layer_params), "parameters of a layer"),
            Letter("e", edge, "embedding and LM head there"),
            Letter("tp", scalar(split.tp), "tensor-parallel degree"),
        ),
        unit="",
    )
    held = Letter("P", params.value, params.label, "", params)
    kept = o.case.habits.gradient_memory
    bytes_ = {
        "parameters": physics.parameter_bytes(zero, shards),
        "gradients": physics.gradient_bytes(gradient_stage(o.case), shards, kept),
        "optimizer": physics.optimizer_bytes(zero, shards),
    }
    note = f"bytes per parameter, ZeRO stage {scalar(zero):.0f} over {scalar(shards):,.0f} ranks"
    return [
        _part(key, "b * P", (Letter("b", scalar(each), note), held), ADAM)
        for key, each in bytes_.items()
    ]


def _buffers(o: Origin, layers: float) -> Derivation:
    """Parameters and gradients of the layers in flight."""
    split, habits = o.case.split, o.case.habits
    if not split.fully_sharded[0]:
        return _part("all_gather_buffers", "0", (), "")
    ahead, grown = layers, 1.0
    if habits.gathers_once(split)[0]:
        grown = layers
    elif split.reshard_after_forward[0]:
        ahead = min(1.0 + scalar(split.prefetch), layers)
    return _part(
        "all_gather_buffers",
        "(2 * k + g * q) * P",
        (
            Letter("k", ahead, "layers gathered at once"),
            Letter("g", scalar(habits.reduce_bytes), "bytes per gradient in flight"),
            Letter("q", grown, "layers whose gradients are in flight"),
            Letter("P", scalar(o.case.shape.layer_params / split.tp), "parameters of a layer"),
        ),
        "FSDP: what is gathered and not yet freed",
    )


def _constant(o: Origin) -> Derivation:
    value = scalar(o.case.habits.workspace_bytes)
    letter = Letter("M", value, "context, NCCL buffers, library workspaces", "B")
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
            Letter("V", scalar(shape.vocab), "rows of the embedding"),
            Letter("tp", scalar(split.tp), "tensor-parallel degree"),
        ),
        f"stack {o.stack.name}",
    )


def _activations(o: Origin, layers: float, flight: float, stage: str) -> Derivation:
    stored, whole = (scalar(each) for each in activation_bytes(o.case))
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
    letters = (
        Letter("L", layers, f"layers of {stage}"),
        Letter("f", flight, "micro-batches in flight"),
        kept,
    )
    if not o.case.split.recompute[0]:
        return _part("activations", "L * f * K", letters, KORTHIKANTI)
    return _part(
        "activations",
        "max(L * f - 1, 0) * K + min(L * f, 1) * W",
        (*letters, Letter("W", whole, "the layer that is being recomputed, in full", "B")),
        KORTHIKANTI,
    )
