"""Groups of a mesh: who sits in whose domain."""

import pytest

from scalewise.step import groups
from toys import case_of, one, toy_cluster


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
