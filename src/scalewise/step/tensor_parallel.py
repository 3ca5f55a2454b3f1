"""Tensor parallelism: collectives of a layer, and how much of them is exposed.

With sequence parallelism a layer all-gathers before and reduce-scatters after attention and MLP:
4 collectives forward, 4 backward, and 2 more all-gathers in backward for the weight gradients,
unless the all-gathered inputs are kept. Without it: 2 all-reduces forward and 2 backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, every, scalar, some, where
from scalewise.physics.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    derive_all_reduce,
    derive_ring,
    reduce_scatter_seconds,
)
from scalewise.step import tuning
from scalewise.step.case import Case, Habits, Split
from scalewise.step.groups import tensor_group

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


def message_bytes(case: Case) -> Num:
    """Return the activations of a micro-batch that one collective moves, bytes."""
    return case.rates.activation_bytes * case.tokens * case.shape.hidden


def collective_seconds(case: Case) -> tuple[Num, Num, Num]:
    """Return one all-gather, reduce-scatter and all-reduce of a layer's activations, seconds."""
    split, links = case.split, case.links
    buffer, group = message_bytes(case), tensor_group(split)
    none = case.zeros
    gather: Num = none
    scatter: Num = none
    if some(split.sequence_parallel):
        gather = all_gather_seconds(buffer, group, links)
        plain = every(links.scatter_factor == 1.0)
        scatter = gather if plain else reduce_scatter_seconds(buffer, group, links)
    reduce: Num = none
    if not every(split.sequence_parallel):
        reduce = all_reduce_seconds(buffer, group, links)
    return gather, scatter, reduce


def layer_seconds(case: Case) -> tuple[Num, Num]:
    """Return communication of one layer, forward and backward, seconds (overlapped or not)."""
    split = case.split
    if not some(split.tp > 1.0):
        none = case.zeros
        return none, none
    gather, scatter, reduce = collective_seconds(case)
    both = 2.0 * gather + 2.0 * scatter
    forward = where(split.sequence_parallel, both, 2.0 * reduce)
    # What gradients of weights need.
    again = 2.0 * tuning.column_inputs(case) * gather
    inputs = where(case.habits.keeps_sp_all_gather, 0.0, again)
    backward = where(split.sequence_parallel, both + inputs, 2.0 * reduce)
    if case.has_experts:
        forward, backward = halves(case) * forward, halves(case) * backward
    return forward, backward + split.recompute_blocks * forward


def halves(case: Case) -> Num:
    """Return the fraction of a layer's two halves that tensor parallelism splits.

    Experts take the tokens of each rank as they are; only their shared experts are split.
    """
    alone: Num = where(case.sparse.shared_ffn > 0.0, 0.0, 1.0)
    return 1.0 - 0.5 * case.slowest_sparse * alone


def exposed_fraction(split: Split, habits: Habits) -> Num:
    """Return the fraction of it that stays on the critical path in any case."""
    result: Num = where(split.overlap_tp, 1.0 - habits.tp_overlap, 1.0)
    return result


def derive(o: Origin) -> Derivation:
    """Return how exposed tensor-parallel communication of a step comes about."""
    split, links, layer = o.case.split, o.case.links, o.step.layer
    bytes_, group = scalar(message_bytes(o.case)), tensor_group(split)
    blocks = scalar(split.recompute_blocks)
    repeats = "" if not blocks else " + Cf" if blocks == 1.0 else " + r * Cf"
    calls: tuple[Letter, ...]
    if split.sequence_parallel[0]:
        gather = derive_ring("all-gather", bytes_, group, links)
        scatter = derive_ring("reduce-scatter", scalar(links.scatter_factor) * bytes_, group, links)
        calls = (
            Letter("Ag", gather.value, "one all-gather", "s", gather),
            Letter("Rs", scatter.value, "one reduce-scatter", "s", scatter),
        )
        kept = bool(o.case.habits.keeps_sp_all_gather[0])
        count = 2.0 if kept else 2.0 + 2.0 * scalar(tuning.column_inputs(o.case))
        formulas = "2 * Ag + 2 * Rs", f"{count:g} * Ag + 2 * Rs{repeats}"
    else:
        reduce = derive_all_reduce("all-reduce", bytes_, group, links)
        calls = (Letter("Ar", reduce.value, "one all-reduce", "s", reduce),)
        formulas = "2 * Ar", f"2 * Ar{repeats}"
    forward_formula, backward_formula = formulas
    if o.case.has_experts:
        calls = (*calls, Letter("w", scalar(halves(o.case)), "fraction of halves that are split"))
        forward_formula = f"w * ({forward_formula})"
        own, tail = backward_formula.removesuffix(repeats), repeats
        backward_formula = f"w * ({own}){tail}"
    forward = Derivation(
        key="Cf", label="collectives of a layer, forward", formula=forward_formula, letters=calls
    )
    all_forward = Letter("Cf", forward.value, forward.label, "s", forward)
    backward = Derivation(
        key="Cb",
        label="collectives of a layer, backward",
        formula=backward_formula,
        letters=(
            *calls,
            *((all_forward,) if blocks else ()),
            *((Letter("r", blocks, "fraction of blocks recomputed"),) if 0 < blocks < 1 else ()),
        ),
    )
    return Derivation(
        key="tensor_parallel",
        label="exposed TP",
        formula="n * L * (max(u * Cf, Cf - Kf) + max(u * Cb, Cb - Kb))",
        letters=(
            o.n,
            o.layers,
            Letter("u", scalar(layer.tp_fraction), "fraction that is never overlapped"),
            all_forward,
            Letter("Kf", scalar(layer.free_forward), "kernels it can overlap with, forward", "s"),
            Letter("Cb", backward.value, backward.label, "s", backward),
            Letter("Kb", scalar(layer.free_backward), "kernels it can overlap with, backward", "s"),
        ),
        source=f"u: {o.software}; collectives: fabric {o.cluster.fabric.name}",
    )
