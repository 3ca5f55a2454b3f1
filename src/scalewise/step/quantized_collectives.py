"""Quantized collectives of sharded parameters and gradients (ZeRO++ qwZ, qgZ).

Parameters are quantized to int8 before an all-gather and dequantized where they arrive: compute
reads 16 bits, so that GEMMs stay as they are. Gradients are quantized to int4 and reduced in two
hops. Their kernels are bound by memory, and count for every all-gather and every reduction of a
layer (Wang et al., arXiv 2306.10209).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, scalar, some, where
from scalewise.physics.collectives import derive_ring
from scalewise.physics.links import Placement
from scalewise.physics.quantized import (
    GATHER_TRAFFIC,
    INT4,
    INT8,
    LOCAL_TRAFFIC,
    OWN_TRAFFIC,
    REDUCE_TRAFFIC,
    SOURCE,
    derive_two_hops,
    gather_traffic,
    reduce_traffic,
    two_hop_reduce_seconds,
    wire_bytes,
)
from scalewise.step.case import Case, Split
from scalewise.step.groups import expert_shard_group, shard_group
from scalewise.step.hierarchical import backward_ranks, frees_parameters

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


@dataclass(frozen=True, kw_only=True, slots=True)
class QuantizeKernels:
    """Quantizing and dequantizing of one layer and micro-batch, bytes through memory."""

    forward: Num
    """Parameters before forward, mean over micro-batches where they are gathered once."""
    backward: Num
    """Parameters that were freed, before backward."""
    gradient: Num
    """Gradients, mean over micro-batches where they are reduced once."""


def quantizes(split: Split) -> bool:
    """Whether any strategy has quantized collectives."""
    return some(split.gather_int8) or some(split.reduce_int4)


def kernels(case: Case) -> QuantizeKernels:
    """Return what quantized collectives of one layer move through memory, bytes."""
    split, habits = case.split, case.habits
    kinds: list[tuple[Num, Num, Placement]] = [
        (case.layer_params / split.tp, split.shards, shard_group(split))
    ]
    if case.has_experts:
        kinds.append((case.expert_params_mean, split.expert_shards, expert_shard_group(split)))
    forward = backward = gradient = case.zeros
    for params, shards, place in kinds:
        again = backward_ranks(split, shards)
        moved = where(shards > 1.0, gather_traffic(params, shards), 0.0)
        forward = forward + habits.gathers(split) * moved
        moved = where(again > 1.0, gather_traffic(params, again), 0.0)
        backward = backward + where(frees_parameters(case), moved, 0.0)
        moved = where(shards > 1.0, reduce_traffic(params, place), 0.0)
        gradient = gradient + habits.reductions(split) * moved
    return QuantizeKernels(
        forward=where(split.gather_int8, forward, 0.0),
        backward=where(split.gather_int8, backward, 0.0),
        gradient=where(split.reduce_int4, gradient, 0.0),
    )


def reduce_seconds(case: Case, elements: Num, place: Placement, scatter: Num) -> Num:
    """Return the time of a reduction of gradients to their shards, seconds.

    Args:
        case: The step.
        elements: Gradients before they are reduced; several buffers along a leading axis.
        place: The group.
        scatter: The same in a reduce-scatter, which is kept where nothing is quantized.
    """
    if not some(case.split.reduce_int4):
        return scatter
    two = two_hop_reduce_seconds(elements, place, case.links)
    result: Num = where(case.split.reduce_int4, two, scatter)
    return result


def buffer_bytes(case: Case) -> Num:
    """Return the bytes of quantized buffers per parameter of the layer in flight.

    Parameters as they arrive in int8; gradients in int4 as they leave and as they arrive.
    """
    split = case.split
    gathered = where(split.gather_int8, wire_bytes(1.0, INT8), 0.0)
    result: Num = gathered + where(split.reduce_int4, 2.0 * wire_bytes(1.0, INT4), 0.0)
    return result


def gathered_bytes(case: Case) -> Num:
    """Return the bytes per all-gathered parameter that stay until compute has read them."""
    split = case.split
    result: Num = where(split.gather_int8, case.update.weight_bytes, split.gather_bytes)
    return result


def derive_reduce(case: Case, elements: float, place: Placement) -> Derivation:
    """Return how the time of a reduction of gradients to their shards comes about; one row."""
    if bool(scalar(case.split.reduce_int4)):
        return derive_two_hops("reduction", elements, place, case.links)
    bytes_ = scalar(case.links.scatter_factor) * scalar(case.habits.reduce_bytes) * elements
    return derive_ring("reduce-scatter", bytes_, place, case.links)


def derive_kernels(o: Origin) -> Letter:
    """Return what quantizing of one layer moves through memory, as a letter; one row."""
    case, found = o.case, kernels(o.case)
    split, habits = case.split, case.habits
    label = "bytes to quantize and dequantize parameters and gradients of a layer"
    letters = (
        Letter("Qf", scalar(found.forward), "parameters before forward", "B"),
        Letter("Qb", scalar(found.backward), "parameters before backward", "B"),
        Letter("Qg", scalar(found.gradient), "gradients", "B"),
    )
    inner = Derivation(
        key="Q", label=label, formula="Qf + Qb + Qg", letters=letters, unit="B", source=SOURCE
    )
    if not case.has_experts:
        params, place = case.layer_params / split.tp, shard_group(split)
        again = backward_ranks(split, split.shards)
        parts: list[str] = []
        used = [Letter("P", scalar(params), "parameters of a layer on one rank")]
        if scalar(found.forward) or scalar(found.backward):
            used.append(Letter("w", GATHER_TRAFFIC, "bytes to quantize or dequantize a weight"))
        if scalar(found.forward):
            parts.append("g * w * (P / s + P)")
            used.append(Letter("g", scalar(habits.gathers(split)), "all-gathers per micro-batch"))
            used.append(Letter("s", scalar(split.shards), "ranks that shard parameters"))
        if scalar(found.backward):
            parts.append("w * (P / k + P)")
            used.append(Letter("k", scalar(again), "ranks of the all-gather of backward"))
        if scalar(found.gradient):
            parts.append("r * P * (a + e / p + o / n)")
            used += [
                Letter("r", scalar(habits.reductions(split)), "reductions per micro-batch"),
                Letter("a", REDUCE_TRAFFIC, "bytes per gradient"),
                Letter("e", LOCAL_TRAFFIC, "bytes per gradient that a rank keeps after a hop"),
                Letter("p", scalar(place.per_domain), "ranks of the group in one domain"),
                Letter("o", OWN_TRAFFIC, "bytes per gradient of the shard"),
                Letter("n", scalar(place.ranks), "ranks of the group"),
            ]
        if parts:
            inner = Derivation(
                key="Q", label=label, formula=" + ".join(parts), letters=tuple(used), unit="B",
                source=SOURCE,
            )  # fmt: skip
    return Letter("Q", inner.value, label, "B", inner)
