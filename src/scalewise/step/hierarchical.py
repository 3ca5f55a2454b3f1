"""Hierarchical partitions: parameters that are all-gathered in smaller groups, or in two hops.

ZeRO++ hpZ (Wang et al., arXiv 2306.10209) and FSDP2 with `reshard_after_forward = 8` keep, after
forward, a second copy of the parameters, sharded over few ranks: the all-gather of backward stays
in their group. MiCS (Zhang et al., arXiv 2205.00119) all-gathers between domains on every rail at
once and then inside them, and lets replicas reduce gradients once per step.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalewise.derivation import Derivation
from scalewise.numeric import Array, Mask, Num, mask, minimum, scalar, some, where
from scalewise.physics.collectives import all_gather_seconds, derive_ring, hierarchical_seconds
from scalewise.physics.links import Placement, placement
from scalewise.physics.quantized import derive_hierarchical
from scalewise.step.case import Case, Split


@dataclass(frozen=True, kw_only=True, slots=True)
class Sync:
    """Reductions of a layer where replicas wait for the last micro-batch, seconds."""

    others: Num
    """Reduce-scatter, and what queues behind it, of every micro-batch but the last."""
    others_across: Num
    """All-reduce between replicas on links of its own, likewise."""
    last: Num
    """The same of the last micro-batch."""
    last_across: Num


def backward_ranks(split: Split, shards: Num) -> Array:
    """Ranks that all-gather parameters together before backward.

    Args:
        split: The strategy.
        shards: Ranks that share one copy.
    """
    return where(split.backward_shard > 0.0, minimum(split.backward_shard, shards), shards)


def backward_group(split: Split) -> Placement:
    """The group of the all-gather before backward: all shards, or those with a copy."""
    return placement(backward_ranks(split, split.shards), split.tp, split.domain)


def expert_backward_group(split: Split) -> Placement:
    """The same for experts."""
    ranks = backward_ranks(split, split.expert_shards)
    return placement(ranks, split.ep * split.etp, split.domain)


def gather_seconds(case: Case, bytes_: Num, place: Placement) -> Num:
    """Return the time of an all-gather of parameters, in one hop or in two, seconds.

    Args:
        case: The step.
        bytes_: Size of the gathered buffer; several along a leading axis.
        place: The group.
    """
    time = all_gather_seconds(bytes_, place, case.links)
    if some(case.split.hierarchical):
        two = hierarchical_seconds(bytes_, place, case.links)
        time = where(case.split.hierarchical & (place.ranks > 1.0), two, time)
    return time


def frees_parameters(case: Case) -> Mask:
    """Whether parameters are freed after forward and all-gathered again."""
    split = case.split
    frees = split.reshard_after_forward & ~case.habits.gathers_once(split)
    return mask(frees & split.fully_sharded)


def copy_bytes(case: Case, shards: Num) -> Num:
    """Return the bytes of the second copy per parameter of a rank, before it is sharded.

        w / h

    with w bytes per parameter that compute reads (of a frozen matrix: as it is stored), and h ranks
    that share the copy; 0 where that are all shards, which then are the copy.

    Args:
        case: The step.
        shards: Ranks that share one copy of what is sharded.
    """
    ranks = backward_ranks(case.split, shards)
    copied = frees_parameters(case) & (ranks < shards)
    weight = case.update.weight_bytes
    if case.has_frozen:
        weight = where(case.tuned.frozen > 0.0, case.tuned.matrix_bytes, weight)
    result: Num = where(copied, weight / ranks, 0.0)
    return result


def derive_gather(case: Case, key: str, bytes_: float, place: Placement) -> Derivation:
    """Return how the time of an all-gather of parameters comes about; one row."""
    if bool(scalar(case.split.hierarchical)) and scalar(place.ranks) > 1.0:
        return derive_hierarchical(key, bytes_, place, case.links)
    return derive_ring(key, bytes_, place, case.links)
