"""Groups of a mesh: who sits in whose domain."""

import pytest

from scalewise.step import groups
from toys import case_of, one, sparse_case_of, toy_cluster, toy_experts


def shape(place):
    return one(place.ranks), one(place.per_domain), one(place.domains)


def test_groups_of_a_mesh():
    # 256 accelerators in domains of 4: tp 2, cp 2, 8 shards, 2 replicas, 4 stages.
    case = case_of("hsdp2x8-tp2-cp2-pp4", cluster=toy_cluster(256))
    assert shape(groups.tensor_group(case.split)) == (2, 2, 1)
    assert shape(groups.context_group(case.split)) == (2, 2, 1)
    # Context-parallel ranks shard too: 16 ranks, 2 apart.
    assert one(case.split.shards) == 16
    assert shape(groups.shard_group(case.split)) == (16, 2, 8)
    assert shape(groups.replica_group(case.split)) == (2, 1, 2)
    assert shape(groups.gradient_group(case.split)) == (32, 2, 16)


def test_tensor_parallelism_wider_than_a_domain():
    case = case_of("fsdp4-tp8", cluster=toy_cluster(32))
    assert shape(groups.tensor_group(case.split)) == (8, 4, 2)
    assert shape(groups.shard_group(case.split)) == (4, 1, 4)


@pytest.mark.parametrize(
    ("spelling", "accelerators", "crosses"),
    [
        ("pp4", 4, 0.0),  # all stages in one domain
        ("fsdp1-tp2-pp2", 4, 0.0),
        ("fsdp4-pp2", 8, 1.0),  # a stage fills a domain
        ("fsdp16-pp4", 64, 1.0),
    ],
)
def test_stages_cross_domains(spelling, accelerators, crosses):
    case = case_of(spelling, cluster=toy_cluster(accelerators))
    assert one(groups.stages_cross_domains(case.split)) == crosses


@pytest.mark.parametrize(
    ("spelling", "expert", "slices", "shards", "replicas", "gradients"),
    [
        # 64 ranks in domains of 4. Eight ranks share the experts, eight hold the same ones.
        ("fsdp64-ep8", (8, 4, 2), (1, 1, 1), (8, 1, 8), (1, 1, 1), (8, 1, 8)),
        # Two ranks split every expert: two groups of experts in a domain.
        ("fsdp64-ep8-etp2", (8, 2, 4), (2, 2, 1), (4, 1, 4), (1, 1, 1), (4, 1, 4)),
        # Two replicas of 32 shards: experts have 4 shards, and the same replicas.
        ("hsdp2x32-ep8", (8, 4, 2), (1, 1, 1), (4, 1, 4), (2, 1, 2), (8, 1, 8)),
        # Experts go over tensor- and context-parallel ranks too.
        ("fsdp16-tp2-cp2-ep4", (4, 4, 1), (1, 1, 1), (16, 1, 16), (1, 1, 1), (16, 1, 16)),
        # More ranks share the experts than shard the rest: each replica of them is alone.
        ("zero1x16x4-ep8", (8, 4, 2), (1, 1, 1), (1, 1, 1), (8, 1, 8), (8, 1, 8)),
        ("ddp32-pp2-ep2", (2, 2, 1), (1, 1, 1), (1, 1, 1), (16, 2, 8), (16, 2, 8)),
    ],
)
def test_groups_of_experts(spelling, expert, slices, shards, replicas, gradients):
    split = sparse_case_of(spelling, cluster=toy_cluster(64)).split
    assert shape(groups.expert_group(split)) == expert
    assert shape(groups.expert_tensor_group(split)) == slices
    assert shape(groups.expert_shard_group(split)) == shards
    assert shape(groups.expert_replica_group(split)) == replicas
    assert shape(groups.expert_gradient_group(split)) == gradients


@pytest.mark.parametrize(
    "spelling",
    ["fsdp64-ep8", "hsdp2x32-ep4-etp2", "zero1x8-tp4-pp2-ep8", "ddp16-cp4-ep2", "fsdp32-pp2-ep8"],
)
def test_every_expert_is_somewhere(spelling):
    # Shares of a layer on the ranks of a stage, over the ranks that hold the same ones.
    case = sparse_case_of(spelling, cluster=toy_cluster(64))
    ranks = 64 / one(case.split.pp)
    model = toy_experts()
    held = ranks * one(case.expert_params_of_layer) / one(case.split.expert_ranks)
    assert held == model.expert_parameters_per_layer == 8 * 6_291_456
