"""Experts: grouped GEMMs, routing, and the all-to-all that moves tokens to their experts.

The experts of a stage have a mesh of their own over its ranks: `etp` ranks split an expert, `ep`
groups share the experts of a layer, the rest are replicas (parallel folding, NVIDIA/Megatron-LM,
megatron/core/transformer/moe). Tokens of sequence-parallel ranks are distinct, so a rank routes
tokens / tp. Each layer dispatches and combines in forward and again in backward.

All times are seconds per rank and micro-batch, mean over the layers of the slowest stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Array, Num, maximum, scalar, some, stacked, where
from scalewise.physics.all_to_all import all_to_all_seconds, derive_all_to_all, sent_bytes
from scalewise.physics.collectives import SOURCE, all_gather_seconds, derive_ring
from scalewise.physics.compute import gemm_seconds
from scalewise.physics.experts import (
    FUSED_PERMUTE_PASSES,
    PERMUTE_PASSES,
    derive_grouped_gemm,
    grouped_gemm_seconds,
    router_seconds,
)
from scalewise.step import tuning
from scalewise.step.case import Case
from scalewise.step.distinct import of_distinct_splits
from scalewise.step.groups import expert_group, expert_tensor_group

if TYPE_CHECKING:
    from scalewise.step.origin import Origin

BESIDE = 0.9
"""Fraction of a layer's kernels that the all-to-all of another micro-batch can overlap with: its
own dispatch has to be launched in between. An assumption."""

ROUTER_FORWARD = 1.0 / 3.0
"""Fraction of the router that belongs to forward: one GEMM of three."""


class GroupedGemms(NamedTuple):
    """Seconds of every grouped GEMM of a layer with experts."""

    up: Array
    down: Array
    up_dgrad: Array
    down_dgrad: Array
    up_wgrad: Array
    down_wgrad: Array


@dataclass(frozen=True, kw_only=True, slots=True)
class ExpertKernels:
    """Kernels of the expert half of a layer, seconds."""

    gemm_forward: Num
    """Grouped GEMMs."""
    gemm_backward: Num
    wgrad: Num
    """The part of it that is weight gradients."""
    routing_forward: Num
    """Router, permutation, activation and casts of tokens."""
    routing_backward: Num
    activation: Num
    """The activation in forward: what the module "activation" recomputes."""


def tokens(case: Case) -> Num:
    """Return the tokens that one rank routes per micro-batch."""
    return case.tokens / case.split.sp


def copies(case: Case) -> Num:
    """Return the tokens that the busiest rank computes in its experts, copies counted."""
    sparse = case.sparse
    return tokens(case) * sparse.per_token * case.split.etp * sparse.load


def local_experts(case: Case) -> Num:
    """Return the experts of one layer on one rank."""
    return case.sparse.experts / case.split.ep


def _shapes(case: Case) -> tuple[Num, Num, Num]:
    """Rows, columns and depths of the products of one expert, in the order of `GroupedGemms`."""
    shape, sparse = case.shape, case.sparse
    rows, hidden = copies(case) / maximum(local_experts(case), 1e-9), shape.hidden
    ffn = sparse.expert_ffn / case.split.etp
    up = (1.0 + shape.gated) * ffn
    return (
        stacked(rows, rows, rows, rows, up, hidden),
        stacked(up, hidden, hidden, ffn, hidden, ffn),
        stacked(hidden, ffn, up, hidden, rows, rows),
    )


def _launches(case: Case) -> Num:
    """Kernels that the experts of a rank are divided into: one, or streams of four."""
    several = maximum(local_experts(case) / 4.0, 1.0)
    return where(case.sparse.fused_experts, 1.0, several)


@of_distinct_splits
def grouped_gemms(case: Case) -> GroupedGemms:
    """Return the time of every grouped GEMM of a layer with experts."""
    rates = case.rates
    times = grouped_gemm_seconds(
        np.asarray(local_experts(case)),
        *_shapes(case),
        rate=rates.gemm * maximum(case.sparse.grouped_gemm, 1e-9),
        units=rates.units,
        memory_rate=rates.memory,
        element_bytes=rates.matmul_bytes,
        fill=rates.gemm_fill,
        launches=_launches(case),
    )
    return GroupedGemms(*np.asarray(times))


def shared_shapes(case: Case) -> tuple[Num, Num, Num]:
    """Rows, columns and depths of the shared experts' products, in the order of `GroupedGemms`."""
    shape, tp, rows = case.shape, case.split.tp, case.tokens
    hidden, ffn = shape.hidden, case.sparse.shared_ffn / tp
    up = (1.0 + shape.gated) * ffn
    return (
        stacked(rows, rows, rows, rows, up, hidden),
        stacked(up, hidden, hidden, ffn, hidden, ffn),
        stacked(hidden, ffn, up, hidden, rows, rows),
    )


@of_distinct_splits
def shared_gemms(case: Case) -> GroupedGemms:
    """Return the time of every GEMM of the shared experts of a layer, which tp splits."""
    rates = case.rates
    times = gemm_seconds(
        *shared_shapes(case),
        rate=rates.gemm,
        units=rates.units,
        memory_rate=rates.memory,
        element_bytes=rates.matmul_bytes,
        fill=rates.gemm_fill,
    )
    return GroupedGemms(*np.asarray(times))


def traffic_bytes(case: Case) -> tuple[Num, Num, Num, Num]:
    """Return what a layer with experts moves: permutation, activation forward and backward, casts.

    Bytes; permutation is the same in both directions. Casts are elements of both directions.
    """
    shape, sparse, split = case.shape, case.sparse, case.split
    rows, gated, ffn = copies(case), shape.gated, sparse.expert_ffn / split.etp
    passes = where(sparse.deduplicated, FUSED_PERMUTE_PASSES, PERMUTE_PASSES)
    element = case.rates.activation_bytes
    permute = element * passes * rows * shape.hidden
    wide = element * sparse.activation_traffic * rows * ffn
    return permute, (2.0 + gated) * wide, (3.0 + 2.0 * gated) * wide, cast_elements(case)[1]


def cast_elements(case: Case) -> tuple[Num, Num]:
    """Return the elements of tokens quantized for the experts of a layer: forward, and in all."""
    shape, ffn = case.shape, case.sparse.expert_ffn / case.split.etp
    rows = copies(case)
    forward = rows * (shape.hidden + ffn)
    return forward, forward + rows * (shape.hidden + (1.0 + shape.gated) * ffn)


def layer_kernels(case: Case) -> ExpertKernels:
    """Return the kernels of the expert half of a layer, mean over the layers; none if dense."""
    if not case.has_experts:
        none = case.zeros
        return ExpertKernels(
            gemm_forward=none, gemm_backward=none, wgrad=none, routing_forward=none,
            routing_backward=none, activation=none,
        )  # fmt: skip
    sparse, rates, shape = case.sparse, case.rates, case.shape
    share = case.slowest_sparse
    t = grouped_gemms(case)
    wgrad = tuning.trained_only(case, t.up_wgrad + t.down_wgrad)
    permute, activation, activation_backward, _ = traffic_bytes(case)
    scale = sparse.routing_traffic / rates.memory
    router = router_seconds(
        tokens(case), shape.hidden, sparse.experts, rate=rates.gemm16, memory_rate=rates.memory
    )
    forward = scale * (permute + activation) + ROUTER_FORWARD * router
    backward = scale * (permute + activation_backward) + router_backward(case) * router
    if some(rates.quantize_bytes):
        cast = rates.quantize_bytes * sparse.expert_casts / rates.memory
        first, both = cast_elements(case)
        forward, backward = forward + cast * first, backward + cast * (both - first)
    return ExpertKernels(
        gemm_forward=share * (t.up + t.down),
        gemm_backward=share * (t.up_dgrad + t.down_dgrad + wgrad),
        wgrad=share * wgrad,
        routing_forward=share * forward,
        routing_backward=share * backward,
        activation=share * scale * activation,
    )


def router_backward(case: Case) -> Num:
    """Return the fraction of the router that belongs to backward: a frozen one has no wgrad."""
    if not case.has_frozen:
        return 1.0 - ROUTER_FORWARD
    return (1.0 - ROUTER_FORWARD) * (1.0 - 0.5 * case.tuned.frozen)


def exchange_seconds(case: Case) -> Num:
    """Return one all-to-all of a layer's tokens, seconds."""
    sparse, split = case.sparse, case.split
    place = expert_group(split)
    sent = sent_bytes(
        exchange_bytes(case), sparse.per_token, place, deduplicated=sparse.deduplicated
    )
    return all_to_all_seconds(
        sent,
        place,
        case.links,
        inside_efficiency=maximum(sparse.inside_efficiency, 1e-9),
        network_efficiency=maximum(sparse.network_efficiency, 1e-9),
        deduplicated=sparse.deduplicated,
    )


def exchange_bytes(case: Case) -> Num:
    """Return the tokens of the busiest rank, bytes."""
    return case.rates.activation_bytes * tokens(case) * case.shape.hidden * case.sparse.load


def slice_seconds(case: Case) -> Num:
    """Return one all-gather (or reduce-scatter) of tokens among ranks that split an expert."""
    if not some(case.split.etp > 1.0):
        return case.zeros
    return all_gather_seconds(slice_bytes(case), expert_tensor_group(case.split), case.links)


def slice_bytes(case: Case) -> Num:
    """Return the tokens of an expert tensor-parallel group, bytes."""
    return case.rates.activation_bytes * copies(case) * case.shape.hidden


def layer_seconds(case: Case) -> tuple[Num, Num]:
    """Return communication of one layer, forward and backward, seconds (overlapped or not)."""
    none = case.zeros
    if not case.has_experts or not some((case.split.ep > 1.0) | (case.split.etp > 1.0)):
        return none, none
    once = 2.0 * (exchange_seconds(case) + slice_seconds(case))
    forward = case.slowest_sparse * once
    return forward, (1.0 + case.split.recompute_blocks) * forward


def exposed_fraction(case: Case) -> Num:
    """Return the fraction of it that stays on the critical path in any case.

    Another micro-batch overlaps the rest, so there has to be one.
    """
    split = case.split
    overlaps = split.overlap_ep & (split.num_microbatches > 1.0)
    result: Num = where(overlaps, 1.0 - case.sparse.ep_overlap, 1.0)
    return result


def host_seconds(case: Case) -> Num:
    """Return the launches of one layer with experts, forward and backward, seconds.

        a sqrt(q) + r + e q n

    with q launches relative to 16 bits and n local experts: attention, routing, experts.
    """
    sparse, q = case.sparse, case.rates.quantizing
    each = sparse.host_expert * q * local_experts(case)
    return sparse.host_attention * np.sqrt(q) + sparse.host_routing + each


def _share(o: Origin) -> Letter:
    share = scalar(o.case.slowest_sparse)
    return Letter("w", share, "fraction of the layers that have experts")


def _grouped(o: Origin, name: str, label: str, names: tuple[str, ...]) -> Letter:
    """A sum of grouped GEMMs as a letter."""
    case, rates = o.case, o.case.rates
    rows, columns, depths = (np.asarray(each) for each in _shapes(case))
    letters = []
    for each in names:
        place = GroupedGemms._fields.index(each)
        product = derive_grouped_gemm(
            each,
            scalar(local_experts(case)),
            scalar(rows[place]),
            scalar(columns[place]),
            scalar(depths[place]),
            rate=scalar(rates.gemm * case.sparse.grouped_gemm),
            units=scalar(rates.units),
            memory_rate=scalar(rates.memory),
            element_bytes=scalar(rates.matmul_bytes),
            fill=scalar(rates.gemm_fill),
            launches=scalar(_launches(case)),
        )
        letters.append(Letter(each, product.value, product.label, "s", product))
    total = Derivation(key=name, label=label, formula=" + ".join(names), letters=tuple(letters))
    return Letter(name, total.value, label, "s", total)


def derive_experts(o: Origin) -> Derivation:
    """Return how the GEMMs of experts of a step come about."""
    names = GroupedGemms._fields
    # Frozen experts have no wgrads.
    end = 4 if scalar(o.case.tuned.frozen) else 6
    return Derivation(
        key="experts",
        label="expert GEMM",
        formula="n * L * w * (Gf + Gb)",
        letters=(
            o.n,
            o.layers,
            _share(o),
            _grouped(o, "Gf", "grouped GEMMs of a layer, forward", names[:2]),
            _grouped(o, "Gb", "grouped GEMMs of a layer, backward", names[2:end]),
        ),
        source=f"grouped GEMM over single ones: experts {o.stack.experts}; {o.kernels}",
    )


def derive_routing(o: Origin) -> Derivation:
    """Return how router, permutation and activation of experts of a step come about."""
    case = o.case
    permute, forward, backward, casts = (scalar(each) for each in traffic_bytes(case))
    router = router_seconds(
        scalar(tokens(case)),
        scalar(case.shape.hidden),
        scalar(case.sparse.experts),
        rate=scalar(case.rates.gemm16),
        memory_rate=scalar(case.rates.memory),
    )
    letters: tuple[Letter, ...] = (
        o.n,
        o.layers,
        _share(o),
        Letter("x", scalar(case.sparse.routing_traffic), "traffic over the minimum"),
        Letter("P", permute, "bytes to permute and unpermute tokens", "B"),
        Letter("A", forward + backward, "bytes of the activation", "B"),
        o.memory,
        Letter(
            "R",
            scalar((ROUTER_FORWARD + router_backward(case)) * router),
            "router, forward and backward",
            "s",
        ),
    )
    formula = "n * L * w * (x * (2 * P + A) / B + R)"
    cast = case.rates.quantize_bytes * case.sparse.expert_casts
    if scalar(cast):
        formula = "n * L * w * ((x * (2 * P + A) + c * Q) / B + R)"
        letters = (
            *letters,
            Letter("c", scalar(cast), "bytes to quantize an element, all copies"),
            Letter("Q", casts, "elements of tokens that are quantized"),
        )
    return Derivation(
        key="routing",
        label="token routing",
        formula=formula,
        letters=letters,
        source=f"x: experts {o.stack.experts}",
    )


def derive(o: Origin) -> Derivation:
    """Return how exposed communication of experts of a step comes about."""
    case, layer = o.case, o.step.layer
    split, sparse = case.split, case.sparse
    exchange = derive_all_to_all(
        "all-to-all",
        scalar(exchange_bytes(case)),
        scalar(sparse.per_token),
        expert_group(split),
        case.links,
        inside_efficiency=scalar(sparse.inside_efficiency),
        network_efficiency=scalar(sparse.network_efficiency),
        deduplicated=scalar(sparse.deduplicated),
    )
    calls: tuple[Letter, ...] = (Letter("X", exchange.value, "one all-to-all", "s", exchange),)
    inner = "w * 2 * X"
    if scalar(split.etp) > 1.0:
        ring = derive_ring(
            "all-gather", scalar(slice_bytes(case)), expert_tensor_group(split), case.links
        )
        calls = (*calls, Letter("Ag", ring.value, "one all-gather among etp ranks", "s", ring))
        inner = "w * 2 * (X + Ag)"
    forward = Derivation(
        key="Cf",
        label="dispatch and combine of a layer, forward",
        formula=inner,
        letters=(_share(o), *calls),
    )
    backward = Derivation(
        key="Cb",
        label="dispatch and combine of a layer, backward",
        formula="(1 + r) * Cf",
        letters=(
            Letter("r", scalar(split.recompute_blocks), "fraction of blocks recomputed"),
            Letter("Cf", forward.value, forward.label, "s", forward),
        ),
    )
    return Derivation(
        key="expert_parallel",
        label="exposed EP",
        formula="n * L * (max(u * Cf, Cf - Kf) + max(u * Cb, Cb - Kb))",
        letters=(
            o.n,
            o.layers,
            Letter("u", scalar(layer.ep_fraction), "fraction that is never overlapped"),
            Letter("Cf", forward.value, forward.label, "s", forward),
            Letter("Kf", BESIDE * scalar(layer.kernels.forward), "kernels it can overlap", "s"),
            Letter("Cb", backward.value, backward.label, "s", backward),
            Letter("Kb", BESIDE * scalar(layer.kernels.backward), "kernels it can overlap", "s"),
        ),
        source=f"efficiencies, u: experts {o.stack.experts}; {SOURCE}",
    )
