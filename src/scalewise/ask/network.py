"""The network of one node in a word: `--network 100GbE`, `8x400G-ib`, `tcp`.

    network = parse_network("8x400G-ib")        # eight NICs of 50 GB/s, infiniband
    network.changes(load_cluster("dgx-h100"))   # {"scale_out_bandwidth": 50e9, "fabric": ...}

People know the NICs of their nodes; a `Cluster` has a rate per accelerator. A rate per node stays
one: with half of the accelerators in a node, each has twice as much of it.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec

from scalewise.catalog import load_fabric
from scalewise.cluster import Cluster, Fabric
from scalewise.errors import InputError
from scalewise.units import format_rate, parse

EXAMPLES = "100GbE, 25GbE-tcp, 8x400G-ib, 4x200G-roce, 3.2GB/s-tcp, efa, tcp"

FABRICS = {
    "ib": "infiniband", "infiniband": "infiniband",
    "roce": "roce", "rocev2": "roce",
    "ethernet": "roce", "eth": "roce", "gbe": "roce",
    "rdma": "unknown",
    "efa": "efa", "slingshot": "slingshot", "tcpx": "tcpxo", "tcpxo": "tcpxo",
    "tcp": "tcp", "socket": "tcp", "sockets": "tcp",
}  # fmt: skip
"""Fabric of the catalog by word. Ethernet is read as RDMA (RoCE): sockets are named."""

INFINIBAND = {
    "fdr": 56.0, "edr": 100.0, "hdr100": 100.0, "hdr": 200.0, "ndr200": 200.0, "ndr": 400.0,
    "xdr": 800.0,
}  # fmt: skip
"""Gbit/s of one port by the name of its generation (InfiniBand Trade Association, roadmap)."""

LARGEST_NIC = 400e9 / 8
"""Rate of one NIC where only the rate of a node is said, bytes/s: a node with more has several."""

TCP_NODE = 14.5e9
"""Most that sockets carry out of one node, bytes/s. All-reduces of two A3 High nodes with four
NICs, without GPUDirect (h0211 to h0215 in catalog/runs/collectives.csv), move 20 GB/s if NCCL ran a
ring and 10.6 GB/s if it ran a tree, which is not stated: the geometric mean."""

TCP_NIC = TCP_NODE / 4.0
"""The same over one NIC: those nodes have four."""

_WORD = re.compile(
    r"(?:(?P<nics>[1-9]\d*)\s*x\s*)?(?P<rate>[\d.]+\s*[a-z/]+|[fehnx]dr\d*)(?:[\s_-]+(?P<fabric>\w+))?",
    flags=re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Network:
    """The NICs of one node and what they speak."""

    nics: int | None
    """NICs of one node; None if not said."""
    nic_rate: float | None
    """Rate of one NIC, one way, bytes/s; None keeps that of the cluster."""
    fabric: str | None
    """Fabric in the catalog; None keeps that of the cluster."""
    measured: bool = False
    """Whether the rate is what arrives, as nccl-tests print it, and not that of the NIC."""

    def changes(self, cluster: Cluster) -> dict[str, Any]:
        """Return the fields of a cluster that the network changes.

            scale_out_bandwidth = nics * nic_rate / scale_up_domain

        Args:
            cluster: Where it is put; its domain is the node.

        Raises:
            InputError: If the rate of the cluster is to be kept, and not known.
        """
        node, chip = cluster.scale_up_domain, cluster.accelerator
        unknown = chip.scale_out_bandwidth is None
        if not self.nic_rate and unknown and cluster.scale_out_bandwidth == chip.scale_up_bandwidth:
            message = f"--network {self.fabric}: the network rate of {cluster.name} is unknown"
            raise InputError(message, hint=f"say it: 100GbE-{self.fabric}", field="network")
        fabric = cluster.fabric if self.fabric is None else load_fabric(self.fabric)
        nics = self.nics or node
        rate = self.nic_rate or cluster.scale_out_bandwidth * node / nics
        bandwidth = nics * rate / node
        if self.measured:
            # Of all NICs together, and what arrives.
            whole = msgspec.structs.replace(fabric, efficiency=1.0, rail_scaling=1.0)
            return {"scale_out_bandwidth": bandwidth, "fabric": whole}
        if fabric.name == "tcp":
            most = min(nics * TCP_NIC, TCP_NODE) / fabric.efficiency
            bandwidth = min(bandwidth, most / node)
        return {"scale_out_bandwidth": bandwidth, "fabric": shared(fabric, nics, node)}


def shared(fabric: Fabric, nics: int, node: int) -> Fabric:
    """Return a fabric whose rails are the NICs of a node, and not its accelerators.

        node ** (x - 1) = nics ** (rail_scaling - 1)

    What several NICs lose when they serve one group follows from their number: one NIC that all
    accelerators share loses nothing, one for each loses what was fitted.

    Args:
        fabric: As it is with one NIC per accelerator.
        nics: NICs of one node.
        node: Accelerators of one node.

    >>> [round(shared(load_fabric("roce"), nics, 8).rail_scaling, 3) for nics in (1, 4, 8, 16)]
    [1.0, 0.891, 0.837, 0.837]
    """
    if node == 1:
        return fabric
    part = math.log(min(nics, node)) / math.log(node)
    return msgspec.structs.replace(fabric, rail_scaling=1.0 - part * (1.0 - fabric.rail_scaling))


def parse_network(text: str) -> Network:
    """Read the network of a node: NICs, rate and fabric, or one of the last two.

    Args:
        text: Such as "8x400G-ib". A rate in bits is that of a NIC; in bytes, that of nccl-tests.

    Raises:
        InputError: If a word is not understood.

    >>> parse_network("2x100GbE-tcp")
    Network(nics=2, nic_rate=12500000000.0, fabric='tcp', measured=False)
    >>> parse_network("efa").nic_rate is None
    True
    """
    word = text.strip()
    if word.lower() in FABRICS:
        return Network(nics=None, nic_rate=None, fabric=FABRICS[word.lower()])
    match = _WORD.fullmatch(word)
    if match is None:
        raise _unknown(text)
    fabric = (match["fabric"] or "").lower()
    if fabric and fabric not in FABRICS:
        raise _unknown(text)
    total, implied, measured = _rate(match["rate"], text)
    if not total > 0.0:
        raise _unknown(text)
    nics = int(match["nics"] or 0) or math.ceil(total / LARGEST_NIC)
    rate = total if match["nics"] else total / nics
    return Network(
        nics=nics, nic_rate=rate, fabric=FABRICS[fabric] if fabric else implied, measured=measured
    )


def _rate(rate: str, text: str) -> tuple[float, str | None, bool]:
    """The rate in bytes/s, the fabric it implies, and whether it was measured."""
    low = rate.lower().replace(" ", "")
    if low in INFINIBAND:
        return INFINIBAND[low] * 1e9 / 8, "infiniband", False
    short = re.fullmatch(r"([\d.]+)([gt])(be?|)", low)
    try:
        if short and not rate.endswith("B"):
            implied = "roce" if short[3] else None
            return parse(f"{short[1]}{short[2]}bit/s", "bytes_per_second"), implied, False
        return parse(rate, "bytes_per_second"), None, "B" in rate
    except InputError:
        raise _unknown(text) from None


def _unknown(text: str) -> InputError:
    return InputError(
        f"--network {text[:40]}: not a network of a node", hint=f"for example {EXAMPLES}",
        field="network",
    )  # fmt: skip


def said(text: str, cluster: Cluster) -> str:
    """Return the change as a phrase: what the word was taken for.

    >>> from scalewise.catalog import load_cluster
    >>> cluster = load_cluster("dgx-a100")
    >>> changed = cluster.with_(**parse_network("100GbE").changes(cluster))
    >>> said("100GbE", changed)
    '--network 100GbE (sustains 11.9 GB/s per node of 8 over roce)'
    """
    node, fabric = cluster.scale_up_domain, cluster.fabric
    arrives = cluster.scale_out_bandwidth * node**fabric.rail_scaling * fabric.efficiency
    return (
        f"--network {text} (sustains {format_rate(arrives)} per node of {node} over {fabric.name})"
    )
