"""Process groups of a mesh, and the scale-up domains they span.

    shard_group(case.split)          # Placement(ranks, per_domain, domains)

Ranks are laid out with tp innermost, then cp, dp_shard, dp_replicate, and pp outermost, as
Megatron-LM and PyTorch's device meshes do: tensor parallelism stays inside a scale-up domain as
long as it fits, and pipeline stages are farthest apart. Experts have a second mesh over the ranks
of a stage: etp innermost, then ep, then the ranks that hold the same experts.
"""

from __future__ import annotations

from scalewise.numeric import Mask, mask
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


def expert_group(split: Split) -> Placement:
    """Ranks that share the experts of a layer."""
    return placement(split.ep, split.etp, split.domain)


def expert_tensor_group(split: Split) -> Placement:
    """Ranks that split every expert."""
    return placement(split.etp, 1.0, split.domain)


def expert_shard_group(split: Split) -> Placement:
    """Ranks among which parameters, gradients or optimizer state of experts are sharded."""
    return placement(split.expert_shards, split.ep * split.etp, split.domain)


def expert_replica_group(split: Split) -> Placement:
    """Ranks that hold the same shard of experts."""
    stride = split.ep * split.etp * split.expert_shards
    return placement(split.expert_ranks / split.expert_shards, stride, split.domain)


def expert_gradient_group(split: Split) -> Placement:
    """All ranks that hold the same experts and see different tokens."""
    return placement(split.expert_ranks, split.ep * split.etp, split.domain)


def stages_cross_domains(split: Split) -> Mask:
    """Whether neighboring pipeline stages are in different scale-up domains."""
    return mask((split.gpus / split.pp >= split.domain) & (split.gpus > split.domain))
