"""Activation recompute: what backward repeats of forward, and what is kept instead.

    again = repeated(case)
    again.gemm, again.attention          # fractions of a layer's forward, mean over the layers
    kept_bytes(case, whole, core, sparse)      # of one layer and micro-batch

One description for time, FLOPs, communication and memory. Whole blocks repeat everything and keep
their input. Attention alone repeats the attention core (Korthikanti et al., arXiv 2205.05198). "op"
repeats every second matmul and all memory-bound kernels, and keeps the outputs of the other matmuls
and of attention (pytorch/torchtitan, models/llama3/infra/parallelize.py). A selective policy of XLA
repeats and keeps fractions that the software stack states.
"""

from __future__ import annotations

from typing import NamedTuple

from scalewise.numeric import Num, minimum, some, where
from scalewise.physics import memory as physics
from scalewise.step.case import Case
from scalewise.step.expert_parallel import copies
from scalewise.strategies import encode

SELECTIVE, FULL, ATTENTION, OP = (
    encode("recompute", word) for word in ("selective", "full", "attention", "op")
)
"""Codes of the kinds in `Split.recompute`."""


class Repeated(NamedTuple):
    """Fractions of a layer's forward that backward repeats, mean over the layers."""

    gemm: Num
    memory: Num
    """Memory-bound kernels."""
    attention: Num
    blocks: Num
    """Layers that are repeated in full, with their collectives."""
    launches: Num
    """Kernel launches: "op" dispatches every operator again, those with kept outputs too."""


def repeated(case: Case) -> Repeated:
    """Return what the strategies repeat; kinds are looked at only where one of them is used."""
    split, habits = case.split, case.habits
    blocks = split.recompute_blocks
    gemm = memory = attention = launches = blocks
    kind = split.recompute
    if some((kind != 0.0) & (kind != FULL)):
        policy = where(kind == SELECTIVE, habits.selective_share, 0.0)
        op = kind == OP
        gemm = blocks + policy
        if some(op):
            s = case.shape
            half = physics.op_fraction(s.query, s.key_value, case.mlp, gated=s.gated)
            if some(split.mlp_tiles > 1.0):
                # Tiles repeat the MLP on their own.
                all_ = 2.0 * (s.query + s.key_value) + (2.0 + s.gated) * case.mlp
                half = half - where(
                    split.mlp_tiles > 1.0, s.gated * (1.0 - case.slowest_sparse) * s.ffn / all_, 0.0
                )
            gemm = gemm + where(op, half, 0.0)
        memory = blocks + policy + op
        attention = blocks + ((kind == SELECTIVE) | (kind == ATTENTION))
        launches = blocks + op
    return Repeated(gemm, memory, attention, blocks, launches)


def skipped_last(case: Case) -> Num:
    """Return the fraction of layers whose last product is not repeated with its block.

    Backward never needs its output. Tiles of an MLP run as a whole.
    """
    split = case.split
    dense = 1.0 - case.slowest_sparse if case.has_experts else 1.0
    skipped = split.recompute_blocks * case.habits.recompute_skips_last * dense
    if some(split.mlp_tiles > 1.0):
        skipped = where(split.mlp_tiles > 1.0, 0.0, skipped)
    return skipped


def kept_bytes(case: Case, whole: Num, core: Num, sparse: Num) -> Num:
    """Return what one layer keeps per micro-batch, mean over the layers, bytes.

    Args:
        case: The step.
        whole: All activations of a layer.
        core: Those of them that the attention core alone needs: scores, where they are stored.
        sparse: Fraction of the layers that have experts.
    """
    split = case.split
    kind, blocks = split.recompute, split.recompute_blocks
    if not some(kind):
        return whole
    kept = (1.0 - blocks) * whole + blocks * block_input(case)
    if some(kind == ATTENTION):
        kept = where(kind == ATTENTION, whole - core, kept)
    if some(kind == SELECTIVE):
        kept = where(kind == SELECTIVE, case.habits.selective_memory * (whole - core), kept)
    if some(kind == OP):
        kept = where(kind == OP, minimum(op_bytes(case, sparse), whole), kept)
    return kept


def block_input(case: Case) -> Num:
    """Return the input of a layer for one micro-batch, bytes."""
    return case.rates.activation_bytes * case.tokens * case.shape.hidden / case.split.sp


def op_bytes(case: Case, sparse: Num) -> Num:
    """Return what "op" recompute keeps of a layer and micro-batch, bytes.

    Tokens that experts received are kept, because the all-to-all is not repeated, and one of both
    halves of their gated product.
    """
    s, split = case.shape, case.split
    kept = physics.op_elements(
        s.hidden, s.query, s.key_value, case.mlp_of(sparse), gated=s.gated, tp=split.tp, sp=split.sp
    )
    if some(split.mlp_tiles > 1.0):
        inside = (1.0 - sparse) * s.ffn / split.tp
        kept = kept - where(split.mlp_tiles > 1.0, inside, 0.0)
    elements = case.tokens * kept
    if case.has_experts:
        wide = s.hidden + case.sparse.expert_ffn / split.etp
        elements = elements + sparse * copies(case) * wide
    return case.rates.activation_bytes * elements
