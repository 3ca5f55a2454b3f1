"""Context parallelism: keys and values of other ranks, sent under attention.

Ring: cp - 1 sends of the local keys and values, each overlapped with one block of attention;
backward sends their gradients too. All-gather: the whole sequence's keys and values before
attention starts, and a reduce-scatter of their gradients after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, mask, maximum, scalar, some, where
from scalewise.physics.collectives import SOURCE, all_gather_seconds, derive_ring, p2p_seconds
from scalewise.step.case import Case
from scalewise.step.groups import context_group
from scalewise.step.recompute import repeated

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


def local_bytes(case: Case) -> Num:
    """Return keys and values of one rank, bytes."""
    return 2.0 * case.rates.activation_bytes * case.tokens * case.shape.key_value / case.split.tp


def hop_seconds(case: Case) -> Num:
    """Return one send of the local keys and values to the next rank of the ring, seconds."""
    crosses = mask(context_group(case.split).domains > 1.0)
    return p2p_seconds(local_bytes(case), case.links, crosses)


def gather_seconds(case: Case) -> Num:
    """Return one all-gather of all keys and values, seconds."""
    bytes_ = local_bytes(case) * case.split.cp
    # Also stands for the reduce-scatter of their gradients. Its `scatter_factor` is left out: the
    # golden estimates were taken so, and no measured run has context parallelism over Gloo.
    return all_gather_seconds(bytes_, context_group(case.split), case.links)


def imbalance(case: Case) -> Num:
    """Return attention of the slowest rank of a ring over the mean of all ranks.

        2 cp / (cp + 1)

    where the software splits a causal sequence in order: the last rank attends to all of it.
    """
    split = case.split
    uneven = split.cp_ring & ~case.habits.balanced_ring
    result: Num = where(uneven, 2.0 * split.cp / (split.cp + 1.0), 1.0)
    return result


def layer_seconds(case: Case, attention: Num, backward: Num) -> tuple[Num, Num, Num]:
    """Return (all, exposed forward, exposed backward) communication of one layer, seconds.

    Args:
        case: The step.
        attention: Attention forward of a layer, seconds.
        backward: Its backward, seconds.
    """
    split = case.split
    if not some(split.cp > 1.0):
        none = case.zeros
        return none, none, none
    hop, gather, hops = hop_seconds(case), gather_seconds(case), split.cp - 1.0
    ring_forward = hops * maximum(hop - attention / split.cp, 0.0)
    ring_backward = hops * maximum(2.0 * hop - backward / split.cp, 0.0)
    ring, again = split.cp_ring, repeated(case).attention
    everything = where(ring, hops * hop * (3.0 + again), gather * (3.0 + again))
    exposed_forward = where(ring, ring_forward, gather)
    exposed_backward = where(ring, ring_backward + again * ring_forward, gather * (2.0 + again))
    alone = split.cp == 1.0
    return (
        where(alone, 0.0, everything),
        where(alone, 0.0, exposed_forward),
        where(alone, 0.0, exposed_backward),
    )


def derive(o: Origin) -> Derivation:
    """Return how exposed context-parallel communication of a step comes about."""
    split, kernels = o.case.split, o.step.layer.kernels
    cp = Letter("cp", scalar(split.cp), "context-parallel degree")
    again = Letter(
        "r", scalar(repeated(o.case).attention), "fraction of attention that is recomputed"
    )
    bytes_ = scalar(local_bytes(o.case))
    if not split.cp_ring[0]:
        gather = derive_ring(
            "all-gather of keys and values", bytes_ * scalar(split.cp), context_group(split),
            o.case.links,
        )  # fmt: skip
        return Derivation(
            key="context_parallel",
            label="exposed CP",
            formula="n * L * (3 + r) * G",
            letters=(
                o.n, o.layers, again, Letter("G", gather.value, gather.label, "s", gather),
            ),
            source=SOURCE,
        )  # fmt: skip
    ring = "max(t - Af / cp, 0)"
    return Derivation(
        key="context_parallel",
        label="exposed CP",
        formula=f"n * L * (cp - 1) * ((1 + r) * {ring} + max(2 * t - Ab / cp, 0))",
        letters=(
            o.n,
            o.layers,
            cp,
            again,
            Letter(
                "t", scalar(hop_seconds(o.case)), f"one send of {bytes_ / 1e6:,.1f} MB of keys", "s"
            ),
            Letter("Af", scalar(kernels.attention_forward), "attention, forward", "s"),
            Letter("Ab", scalar(kernels.attention_backward), "attention, backward", "s"),
        ),
        source=SOURCE,
    )
