"""Which ranks talk to which: the groups of a mesh and the links they use.

Ranks are laid out with tp innermost, then cp, dp_shard, dp_replicate, and pp outermost, as
Megatron and PyTorch's device meshes do; so tensor parallelism stays inside a scale-up domain as
long as it fits, and pipeline stages are farthest apart.
"""

from __future__ import annotations

import numpy as np

from scalewise.numeric import Array
from scalewise.physics.collectives import Links, Placement, placement
from scalewise.step.case import Case


def links(case: Case) -> Links:
    """The links of every group of the case."""
    return Links(
        scale_up=case.scale_up,
        scale_out=case.scale_out,
        hop_seconds=case.hop_seconds,
        call_seconds=case.call_seconds,
        step_seconds=case.ring_step_seconds,
        net_overhead=case.net_overhead,
        congestion=case.congestion,
        rail_scaling=case.rail_scaling,
        latency_factor=case.latency_factor,
        protocol=case.protocol,
        algorithm=case.algorithm,
        in_switch=case.in_switch,
    )


def tensor_group(case: Case) -> Placement:
    """Ranks that share one layer's matrices."""
    return placement(case.tp, 1.0, case.domain)


def context_group(case: Case) -> Placement:
    """Ranks that share one sequence."""
    return placement(case.cp, case.tp, case.domain)


def shards(case: Case) -> Array:
    """Ranks that share one copy of what is sharded: context-parallel ranks shard too."""
    return case.dp_shard * case.cp


def shard_group(case: Case) -> Placement:
    """Ranks among which parameters, gradients or optimizer state are sharded."""
    return placement(shards(case), case.tp, case.domain)


def replica_group(case: Case) -> Placement:
    """Ranks that hold the same shard."""
    return placement(case.dp_replicate, case.tp * case.cp * case.dp_shard, case.domain)


def gradient_group(case: Case) -> Placement:
    """All ranks that hold the same parameters and see different data."""
    return placement(case.dp_replicate * shards(case), case.tp, case.domain)


def stages_cross_domains(case: Case) -> Array:
    """1 where neighbouring pipeline stages sit in different scale-up domains."""
    return np.where(case.accelerators / case.pp >= case.domain, 1.0, 0.0) * (
        case.accelerators > case.domain
    )
