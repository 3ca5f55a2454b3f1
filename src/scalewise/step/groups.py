"""Process groups of a mesh, and the scale-up domains they span.

    shard_group(case.split)          # Placement(ranks, per_domain, domains)

Ranks are laid out with tp innermost, then cp, dp_shard, dp_replicate, and pp outermost, as
Megatron-LM and PyTorch's device meshes do: tensor parallelism stays inside a scale-up domain as
long as it fits, and pipeline stages are farthest apart.
"""

from __future__ import annotations

import numpy as np

from scalewise.numeric import Mask
from scalewise.physics.links import Placement, placement
from scalewise.step.case import Split


def tensor_group(split: Split) -> Placement:
    """Ranks that split the matrices of a layer."""
    return placement(split.tp, 1.0, split.domain)


def context_group(split: Split) -> Placement:
    """Ranks that split a sequence."""
    return placement(split.cp, split.tp, split.domain)


def shard_group(split: Split) -> Placement:
    """Ranks among which parameters, gradients or optimizer state are sharded."""
    return placement(split.shards, split.tp, split.domain)


def replica_group(split: Split) -> Placement:
    """Ranks that hold the same shard."""
    return placement(split.dp_replicate, split.tp * split.cp * split.dp_shard, split.domain)


def gradient_group(split: Split) -> Placement:
    """All ranks that hold the same parameters and see different data."""
    return placement(split.dp_replicate * split.shards, split.tp, split.domain)


def stages_cross_domains(split: Split) -> Mask:
    """Whether neighboring pipeline stages are in different scale-up domains."""
    return np.asarray((split.gpus / split.pp >= split.domain) & (split.gpus > split.domain))
