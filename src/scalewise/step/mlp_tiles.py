"""Tiled MLP: dense MLPs in tiles of the sequence, for very long sequences.

Forward computes the MLP of one tile of tokens at a time and keeps its input alone. Backward repeats
the forward of a tile before its gradients, so that one tile's intermediates exist at a time
(`TiledMLP` of Arctic Long Sequence Training, Bekman et al., arXiv 2506.13996, section 3.1; in
DeepSpeed, runtime/sequence_parallel/ulysses_sp.py). The forward of the MLP is repeated in whole,
last product included, besides what activation recompute repeats. Products of a tile have fewer
rows, which costs where tiles are short. Shared and routed experts are not tiled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.numeric import Mask, Num, mask, minimum, stacked, where
from scalewise.physics.layer import activation_traffic
from scalewise.step.case import Case

if TYPE_CHECKING:
    from scalewise.numeric import Array
    from scalewise.step.kernels import Gemms


def tiled(case: Case) -> Mask:
    """Whether the MLP is computed in tiles."""
    return mask(case.split.mlp_tiles > 1.0)


def tile_tokens(case: Case) -> Num:
    """Return the tokens of one tile."""
    return case.tokens / case.split.mlp_tiles


def tiles_of_products(case: Case) -> Array:
    """Return how often each product of `Gemms` runs per micro-batch."""
    tiles = case.split.mlp_tiles
    once = 0.0 * tiles + 1.0
    return stacked(*(once, once, tiles, tiles) * 3, *(once,) * 3)


def spared_elements(case: Case, sparse: Num) -> tuple[Num, Num]:
    """Return the elements per token that are not kept: all, and GEMM inputs among them.

        (2 + gated) f / tp        f / tp

    Args:
        case: The step.
        sparse: Fraction of the layers that have experts.
    """
    wide = where(tiled(case), (1.0 - sparse) * case.shape.ffn / case.split.tp, 0.0)
    return (2.0 + case.shape.gated) * wide, wide


def tile_bytes(case: Case) -> Num:
    """Return the intermediates of one tile on one rank, bytes; 0 without tiles.

    a e m / tiles (2 + gated) f / tp
    """
    shape, split = case.shape, case.split
    elements = (2.0 + shape.gated) * shape.ffn / split.tp
    element = case.habits.activation_factor * case.rates.activation_bytes
    return where(tiled(case), element * tile_tokens(case) * elements, 0.0)


def peak_bytes(case: Case, kept: Num, sparse: Num) -> Num:
    """Return the intermediates that exist at the peak: those of one tile of one dense MLP, bytes.

    Args:
        case: The step.
        kept: Layers times micro-batches in flight of the stage.
        sparse: Fraction of its layers that have experts.
    """
    return minimum(kept * (1.0 - sparse), 1.0) * tile_bytes(case)


def repeated_seconds(case: Case, t: Gemms) -> Num:
    """Return the forward of the MLP that backward repeats, mean over the layers, seconds."""
    shape, split, habits = case.shape, case.split, case.habits
    moved, composed = activation_traffic(shape.ffn, gated=shape.gated, tp=split.tp)
    passes = habits.memory_traffic * moved + habits.composed_kernels * composed
    streamed = case.rates.activation_bytes * case.tokens * passes / case.rates.memory
    again = (1.0 - case.slowest_sparse) * (t.up + t.down + streamed)
    return where(tiled(case), again, 0.0)
