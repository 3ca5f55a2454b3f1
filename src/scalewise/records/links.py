"""Links between pretend nodes, as a launch gets them and its record keeps them.

links = ShapedLinks(ranks_per_node=2, bandwidth=6.25e6)
links.text                                       # "2 ranks per node, 100 Mbit/s between nodes"
"""

from __future__ import annotations

import msgspec

from scalewise.cluster import Cluster


class ShapedLinks(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Links between pretend nodes."""

    ranks_per_node: int
    """Ranks of a node."""
    bandwidth: float
    """Bandwidth of each rank in one direction, bytes/s: its part of the link of its node. 0 for
    links without a limit."""

    @property
    def text(self) -> str:
        """The links in a few words."""
        ranks = f"{self.ranks_per_node} rank{'s' * (self.ranks_per_node > 1)} per node"
        return (
            f"{ranks}, {self.node_bits / 1e6:g} Mbit/s between nodes" if self.bandwidth else ranks
        )

    @property
    def node_bits(self) -> float:
        """Rate of the link of a node in one direction, bit/s."""
        return 8.0 * self.bandwidth * self.ranks_per_node

    def nodes(self, ranks: int) -> int:
        """Return the nodes that so many ranks take."""
        return -(-ranks // self.ranks_per_node)

    def of(self, cluster: Cluster) -> Cluster:
        """Return a cluster with these links; one whose links are as slow is unchanged."""
        if not self.bandwidth or cluster.scale_out_bandwidth <= self.bandwidth:
            return cluster
        return cluster.with_(
            scale_up_domain=self.ranks_per_node, scale_out_bandwidth=self.bandwidth
        )
