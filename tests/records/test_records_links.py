import pytest

from scalewise.catalog import load_cluster
from scalewise.records.links import ShapedLinks


def test_links_in_words():
    assert ShapedLinks(ranks_per_node=2, bandwidth=6.25e6).text == (
        "2 ranks per node, 100 Mbit/s between nodes"
    )
    assert ShapedLinks(ranks_per_node=1, bandwidth=0.0).text == "1 rank per node"


@pytest.mark.parametrize(("ranks", "nodes"), [(1, 1), (2, 1), (3, 2), (4, 2)])
def test_nodes_of_ranks(ranks, nodes):
    assert ShapedLinks(ranks_per_node=2, bandwidth=1e6).nodes(ranks) == nodes


def test_a_cluster_gets_slower_links_and_keeps_those_that_are_as_slow():
    cluster = load_cluster("dgx-h100", accelerators=64)
    slow = ShapedLinks(ranks_per_node=2, bandwidth=1.25e7).of(cluster)
    assert (slow.scale_up_domain, slow.scale_out_bandwidth) == (2, 1.25e7)
    assert ShapedLinks(ranks_per_node=1, bandwidth=1.25e7).of(slow) is slow
    assert ShapedLinks(ranks_per_node=1, bandwidth=0.0).of(cluster) is cluster
