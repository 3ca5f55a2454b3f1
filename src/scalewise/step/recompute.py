"""Activation recompute: what backward repeats of forward, and what is kept instead.

    again = repeated(case)
    again.gemm, again.attention          # fractions of a layer's forward, mean over the layers
    kept_bytes(case, whole, core)        # of one layer and micro-batch

One description for time, FLOPs, communication and memory. Whole blocks repeat everything and keep
their input. Attention alone repeats the attention core (Korthikanti et al., arXiv 2205.05198). "op"
repeats every second matmul and all memory-bound kernels, and keeps the outputs of the other matmuls
and of attention (pytorch/torchtitan, models/llama3/infra/parallelize.py). A selective policy of XLA
repeats and keeps fractions that the software stack states.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scalewise.numeric import Num, some
from scalewise.physics import memory as physics
from scalewise.step.case import Case
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
        policy = np.where(kind == SELECTIVE, habits.selective_share, 0.0)
        op = kind == OP
        gemm = blocks + policy
        if some(op):
            s = case.shape
            half = physics.op_fraction(s.query, s.key_value, s.ffn, gated=s.gated)
            gemm = gemm + np.where(op, half, 0.0)
        memory = blocks + policy + op
        attention = blocks + ((kind == SELECTIVE) | (kind == ATTENTION))
        launches = blocks + op
    return Repeated(gemm, memory, attention, blocks, launches)


def kept_bytes(case: Case, whole: Num, core: Num) -> Num:
    """Return what one layer keeps per micro-batch, mean over the layers, bytes.

    Args:
        case: The step.
        whole: All activations of a layer.
        core: Those of them that the attention core alone needs: scores, where they are stored.
    """
    split = case.split
    kind, blocks = split.recompute, split.recompute_blocks
    if not some(kind):
        return whole
    kept = (1.0 - blocks) * whole + blocks * block_input(case)
    if some(kind == ATTENTION):
        kept = np.where(kind == ATTENTION, whole - core, kept)
    if some(kind == SELECTIVE):
        kept = np.where(kind == SELECTIVE, case.habits.selective_memory * (whole - core), kept)
    if some(kind == OP):
        kept = np.where(kind == OP, np.minimum(op_bytes(case), whole), kept)
    return kept


def block_input(case: Case) -> Num:
    """Return the input of a layer for one micro-batch, bytes."""
    return 2.0 * case.tokens * case.shape.hidden / case.split.sp


def op_bytes(case: Case) -> Num:
    """Return what "op" recompute keeps of a layer and micro-batch, bytes."""
    s, split = case.shape, case.split
    kept = physics.op_elements(
        s.hidden, s.query, s.key_value, s.ffn, gated=s.gated, tp=split.tp, sp=split.sp
    )
    return 2.0 * case.tokens * kept
