"""Gradient buckets: what DDP and ZeRO-1/2 send once per step, and its overlap.

Gradients travel in buckets, partly overlapped with the last backward, or with every backward where
each micro-batch reduces its own (ZeRO-2 reduces them layer by layer, see `data_parallel`). ZeRO-1
and 2 all-gather the parameters after the update, which only some software overlaps with the next
forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, every, mask, maximum, scalar, some, stacked, where
from scalewise.physics.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    derive_all_reduce,
    derive_ring,
)
from scalewise.physics.links import Placement
from scalewise.physics.overlap import exposed_once
from scalewise.step.case import Case, Split
from scalewise.step.groups import (
    expert_gradient_group,
    expert_replica_group,
    expert_shard_group,
    gradient_group,
    replica_group,
    shard_group,
)

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTraffic:
    """Data-parallel communication that is not of a layer, seconds."""

    reduce: Num
    """Reductions of all gradients (DDP, ZeRO-1)."""
    gather: Num
    """All-gather of updated parameters (ZeRO-1/2)."""
    reduce_fraction: Num
    """Fraction of the reductions that may overlap the last backward."""
    gather_fraction: Num
    """Fraction of the all-gather that may overlap the next forward."""
    reduce_window: Num
    """Backward compute that the reductions may overlap with."""
    gather_window: Num
    """Forward compute that the all-gather may overlap with."""
    reductions: Num = 1.0
    """Reductions per step: one, or one per micro-batch, each beside the backward of its own."""

    @property
    def seconds(self) -> Num:
        """All of it, overlapped or not."""
        return self.reductions * self.reduce + self.gather

    @property
    def exposed(self) -> Num:
        """What outlasts compute."""
        reduce = exposed_once(self.reduce, self.reduce_fraction, self.reduce_window)
        return self.reductions * reduce + exposed_once(
            self.gather, self.gather_fraction, self.gather_window
        )


def bucket_bytes(case: Case, ranks: Num) -> Num:
    """Return the size of one gradient bucket, bytes; each is a call of its own."""
    habits = case.habits
    result: Num = maximum(habits.bucket_bytes, habits.bucket_bytes_per_rank * ranks)
    return result


@dataclass(frozen=True, kw_only=True, slots=True)
class Groups:
    """Ranks that reduce gradients of one kind of parameters together."""

    gradients: Placement
    """All of them."""
    shards: Placement
    """Those that share one copy of the optimizer state."""
    replicas: Placement
    """Those that hold the same shard."""


def groups(split: Split) -> Groups:
    """Return the groups of all parameters but experts."""
    return Groups(
        gradients=gradient_group(split), shards=shard_group(split), replicas=replica_group(split)
    )


def expert_groups(split: Split) -> Groups:
    """Return the groups of experts."""
    return Groups(
        gradients=expert_gradient_group(split),
        shards=expert_shard_group(split),
        replicas=expert_replica_group(split),
    )


def step_seconds(case: Case, params: Num, experts: Num = 0.0, roots: Num = 0.0) -> tuple[Num, Num]:
    """Return what travels once per step, overlapped or not: (reductions, all-gather), seconds.

    Gradients are reduced in buckets; ZeRO-1 and 2 all-gather the parameters after the update.

    Args:
        case: The step.
        params: Parameters of a rank but experts, before data parallelism shards them.
        experts: Parameters of its experts.
        roots: Those of its parameters that no layer holds: they stay in 16 bits.
    """
    none = case.zeros
    if every(case.split.fully_sharded):
        return none, none
    reduce, update = _of_groups(case, params, groups(case.split), roots)
    if case.has_frozen:
        calls = where(mask(params > 0.0), 1.0, 0.0)
        reduce, update = calls * reduce, calls * update
    if case.has_experts:
        # Where there are none no call is made.
        calls = where(mask(experts > 0.0), 1.0, 0.0)
        also = _of_groups(case, experts, expert_groups(case.split))
        reduce, update = reduce + calls * also[0], update + calls * also[1]
    return reduce, update


def updated_bytes(case: Case, params: Num, roots: Num = 0.0) -> Num:
    """Return the bytes of updated parameters that ZeRO-1 and 2 all-gather.

    Args:
        case: The step.
        params: Parameters of a rank, before data parallelism shards them.
        roots: Those that no layer holds: they stay in 16 bits.
    """
    apart = case.rates.activation_bytes
    return apart * params - (apart - case.split.gather_bytes) * (params - roots)


def _of_groups(case: Case, params: Num, of: Groups, roots: Num = 0.0) -> tuple[Num, Num]:
    """What one kind of parameters sends once per step: (reductions, all-gather), seconds."""
    split, links = case.split, case.links
    none = case.zeros
    bucket = bucket_bytes(case, of.gradients.ranks)
    gradient = case.habits.reduce_bytes * params
    calls = maximum(gradient / bucket, 1.0)
    piece = gradient / calls
    reduce: Num = none
    update: Num = none
    if some(split.ddp):
        whole = calls * all_reduce_seconds(piece, of.gradients, links)
        reduce = where(split.ddp, whole, reduce)
    if some(split.shards_optimizer):
        bytes_ = updated_bytes(case, params, roots)
        weights = maximum(bytes_ / bucket, 1.0)
        sizes = stacked(links.scatter_factor * piece, bytes_ / weights)
        scatter, gather = np.asarray(all_gather_seconds(sizes, of.shards, links))
        across = all_reduce_seconds(piece / of.shards.ranks, of.replicas, links)
        reduce = where(split.sharding == 1.0, calls * (scatter + across), reduce)
        update = where(split.shards_optimizer & ~split.fully_sharded, weights * gather, update)
    return reduce, update


def once_per_step(
    case: Case, params: Num, backward: Num, forward: Num, *, experts: Num = 0.0, roots: Num = 0.0
) -> StepTraffic:
    """Return what travels once per step, and the compute that it may overlap, seconds.

    Args:
        case: The step.
        params: Parameters of a rank but experts, before data parallelism shards them.
        backward: Compute that reductions of gradients can overlap, seconds.
        forward: Compute that the all-gather of updated parameters can overlap, seconds.
        experts: Parameters of its experts.
        roots: Those of its parameters that no layer holds.
    """
    split, habits = case.split, case.habits
    reduce, gather = step_seconds(case, params, experts, roots)
    fraction = where(split.ddp, habits.dp_overlap, habits.shard_overlap)
    return StepTraffic(
        reduce=reduce,
        gather=gather,
        reduce_fraction=where(split.overlap_dp, fraction, 0.0),
        gather_fraction=where(split.overlap_dp, habits.update_gather_overlap, 0.0),
        reduce_window=backward,
        gather_window=forward,
        reductions=habits.step_reductions(split) if some(split.reduce_stated) else 1.0,
    )


def derive_once(o: Origin) -> tuple[str, tuple[Letter, ...]]:
    """Return formula and letters of what travels once per step."""
    split, once = o.case.split, o.step.once
    kinds = [("d", "all but experts", scalar(o.step.params), groups(split))]
    if o.case.has_experts and not scalar(o.case.tuned.frozen):
        kinds.append(("e", "experts", scalar(o.step.expert_params), expert_groups(split)))
    formulas: list[str] = []
    letters: list[Letter] = []
    if split.sharding[0] < 2.0:
        label = "reductions of gradients, once per step"
        whole = _sum(label, [(*kind[:2], _derive_reduce(o, *kind[2:])) for kind in kinds])
        often = scalar(once.reductions)
        formulas.append("C - min(o * C, W)" if often == 1.0 else "a * (C - min(o * C, W))")
        letters += [] if often == 1.0 else [Letter("a", often, "reductions per step")]
        letters += [
            Letter("C", whole.value, label, "s", whole),
            Letter("o", scalar(once.reduce_fraction), "fraction that may overlap"),
            Letter("W", scalar(once.reduce_window), "backward it may overlap with", "s"),
        ]
    if split.shards_optimizer[0]:
        label = "all-gather of updated parameters"
        stay = [scalar(o.step.root_params), 0.0]
        parts = zip(kinds, stay, strict=False)
        whole = _sum(label, [(*k[:2], _derive_update(o, *k[2:], roots)) for k, roots in parts])
        formulas.append("U - min(u * U, V)")
        letters += [
            Letter("U", whole.value, label, "s", whole),
            Letter("u", scalar(once.gather_fraction), "fraction of it that may overlap"),
            Letter("V", scalar(once.gather_window), "forward it may overlap with", "s"),
        ]
    return " + ".join(formulas), tuple(letters)


def _sum(label: str, parts: list[tuple[str, str, Derivation]]) -> Derivation:
    """One derivation, or the sum of those of several kinds of parameters."""
    if len(parts) == 1:
        return parts[0][2]
    letters = tuple(Letter(name, each.value, what, "s", each) for name, what, each in parts)
    formula = " + ".join(name for name, _, _ in parts)
    return Derivation(key="sum", label=label, formula=formula, letters=letters)


def _derive_reduce(o: Origin, params: float, of: Groups) -> Derivation:
    """How the reductions of one kind of parameters come about."""
    links, gradient = o.case.links, scalar(o.case.habits.reduce_bytes) * params
    calls = max(gradient / scalar(bucket_bytes(o.case, of.gradients.ranks)), 1.0)
    piece = gradient / calls
    count = Letter("k", calls, f"buckets of {piece / 1e6:,.1f} MB")
    if o.case.split.ddp[0]:
        reduce = derive_all_reduce("all-reduce", piece, of.gradients, links)
        return Derivation(
            key="C",
            label="reductions of gradients",
            formula="k * Ar",
            letters=(count, Letter("Ar", reduce.value, "all-reduce of a bucket", "s", reduce)),
        )
    scatter = derive_ring("reduce-scatter", scalar(links.scatter_factor) * piece, of.shards, links)
    across = derive_all_reduce("all-reduce", piece / scalar(of.shards.ranks), of.replicas, links)
    return Derivation(
        key="C",
        label="reductions of gradients",
        formula="k * (Rs + Ar)",
        letters=(
            count,
            Letter("Rs", scatter.value, "reduce-scatter of a bucket", "s", scatter),
            Letter("Ar", across.value, "all-reduce between replicas", "s", across),
        ),
    )


def _derive_update(o: Origin, params: float, of: Groups, roots: float) -> Derivation:
    """How the all-gather of updated parameters of one kind comes about."""
    weights = scalar(updated_bytes(o.case, params, roots))
    parts = max(weights / scalar(bucket_bytes(o.case, of.gradients.ranks)), 1.0)
    gather = derive_ring("all-gather", weights / parts, of.shards, o.case.links)
    return Derivation(
        key="U",
        label="all-gather of updated parameters",
        formula="j * Ag",
        letters=(
            Letter("j", parts, "buckets of updated parameters"),
            Letter("Ag", gather.value, "all-gather of a bucket", "s", gather),
        ),
    )
