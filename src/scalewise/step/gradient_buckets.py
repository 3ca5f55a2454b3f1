"""Gradient buckets: what DDP and ZeRO-1/2 send once per step, and its overlap.

Gradients travel in buckets, partly overlapped with the last backward (ZeRO-2 reduces them layer by
layer, see `data_parallel`). ZeRO-1 and 2 all-gather the parameters after the update, which only
some software overlaps with the next forward.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, every, scalar, some, stacked
from scalewise.physics.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    derive_all_reduce,
    derive_ring,
)
from scalewise.physics.overlap import exposed_once
from scalewise.step.case import Case
from scalewise.step.groups import gradient_group, replica_group, shard_group

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTraffic:
    """Data-parallel communication paid once per step, seconds."""

    reduce: Num
    """Reductions of gradients (DDP, ZeRO-1)."""
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

    @property
    def seconds(self) -> Num:
        """All of it, overlapped or not."""
        return self.reduce + self.gather

    @property
    def exposed(self) -> Num:
        """What outlasts compute."""
        reduce = exposed_once(self.reduce, self.reduce_fraction, self.reduce_window)
        return reduce + exposed_once(self.gather, self.gather_fraction, self.gather_window)


def bucket_bytes(case: Case) -> Num:
    """Return the size of one gradient bucket, bytes; each is a call of its own."""
    split, habits = case.split, case.habits
    ranks = split.dp_replicate * split.shards
    result: Num = np.maximum(habits.bucket_bytes, habits.bucket_bytes_per_rank * ranks)
    return result


def step_seconds(case: Case, params: Num) -> tuple[Num, Num]:
    """Return what travels once per step, overlapped or not: (reductions, all-gather), seconds.

    Gradients are reduced in buckets; ZeRO-1 and 2 all-gather the parameters after the update.

    Args:
        case: The step.
        params: Parameters of a rank, before data parallelism shards them.
    """
    split, links = case.split, case.links
    none = case.zeros
    if every(split.fully_sharded):
        return none, none
    bucket, gradient = bucket_bytes(case), case.habits.reduce_bytes * params
    calls = np.maximum(gradient / bucket, 1.0)
    piece = gradient / calls
    reduce: Num = none
    update: Num = none
    if some(split.ddp):
        whole = calls * all_reduce_seconds(piece, gradient_group(split), links)
        reduce = np.where(split.ddp, whole, reduce)
    if some(split.shards_optimizer):
        weights = np.maximum(2.0 * params / bucket, 1.0)
        sizes = stacked(links.scatter_factor * piece, 2.0 * params / weights)
        scatter, gather = np.asarray(all_gather_seconds(sizes, shard_group(split), links))
        across = all_reduce_seconds(piece / split.shards, replica_group(split), links)
        reduce = np.where(split.sharding == 1.0, calls * (scatter + across), reduce)
        update = np.where(split.shards_optimizer & ~split.fully_sharded, weights * gather, update)
    return reduce, update


def once_per_step(case: Case, params: Num, backward: Num, forward: Num) -> StepTraffic:
    """Return what travels once per step, and the compute that it may overlap, seconds.

    Args:
        case: The step.
        params: Parameters of a rank, before data parallelism shards them.
        backward: Compute that reductions of gradients can overlap, seconds.
        forward: Compute that the all-gather of updated parameters can overlap, seconds.
    """
    split, habits = case.split, case.habits
    reduce, gather = step_seconds(case, params)
    fraction = np.where(split.ddp, habits.dp_overlap, habits.shard_overlap)
    return StepTraffic(
        reduce=reduce,
        gather=gather,
        reduce_fraction=np.where(split.overlap_dp, fraction, 0.0),
        gather_fraction=np.where(split.overlap_dp, habits.update_gather_overlap, 0.0),
        reduce_window=backward,
        gather_window=forward,
    )


def derive_once(o: Origin) -> tuple[str, tuple[Letter, ...]]:
    """Return formula and letters of what travels once per step."""
    split, links, once = o.case.split, o.case.links, o.step.once
    gradient = scalar(o.case.habits.reduce_bytes * o.step.params)
    bucket = scalar(bucket_bytes(o.case))
    calls = max(gradient / bucket, 1.0)
    piece = gradient / calls
    count = Letter("k", calls, f"buckets of {piece / 1e6:,.1f} MB")
    formulas: list[str] = []
    letters: list[Letter] = []
    inner: tuple[Letter, ...]
    if split.sharding[0] < 2.0:
        if split.ddp[0]:
            reduce = derive_all_reduce("all-reduce", piece, gradient_group(split), links)
            inner = (count, Letter("Ar", reduce.value, "all-reduce of a bucket", "s", reduce))
            formula = "k * Ar"
        else:
            scatter = derive_ring(
                "reduce-scatter", scalar(links.scatter_factor) * piece, shard_group(split), links
            )
            across = derive_all_reduce(
                "all-reduce", piece / scalar(split.shards), replica_group(split), links
            )
            inner = (
                count,
                Letter("Rs", scatter.value, "reduce-scatter of a bucket", "s", scatter),
                Letter("Ar", across.value, "all-reduce between replicas", "s", across),
            )
            formula = "k * (Rs + Ar)"
        label = "reductions of gradients, once per step"
        whole = Derivation(key="C", label=label, formula=formula, letters=inner)
        formulas.append("C - min(o * C, W)")
        letters += [
            Letter("C", whole.value, label, "s", whole),
            Letter("o", scalar(once.reduce_fraction), "fraction that may overlap"),
            Letter("W", scalar(once.reduce_window), "backward it may overlap with", "s"),
        ]
    if split.shards_optimizer[0]:
        weights = 2.0 * scalar(o.step.params)
        parts = max(weights / bucket, 1.0)
        gather = derive_ring("all-gather", weights / parts, shard_group(split), links)
        label = "all-gather of updated parameters"
        whole = Derivation(
            key="U",
            label=label,
            formula="j * Ag",
            letters=(
                Letter("j", parts, "buckets of updated parameters"),
                Letter("Ag", gather.value, "all-gather of a bucket", "s", gather),
            ),
        )
        formulas.append("U - min(u * U, V)")
        letters += [
            Letter("U", whole.value, label, "s", whole),
            Letter("u", scalar(once.gather_fraction), "fraction of it that may overlap"),
            Letter("V", scalar(once.gather_window), "forward it may overlap with", "s"),
        ]
    return " + ".join(formulas), tuple(letters)
