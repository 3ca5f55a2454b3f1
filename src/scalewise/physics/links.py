"""Placement of a group of ranks on scale-up domains, and the bandwidth of its links.

    place = placement(ranks=256.0, stride=1.0, domain=8.0)
    place.per_domain, place.domains               # 8 members on each of 32 scale-up domains
    ring_bandwidth(place, links)

How many members share a scale-up domain decides which links a group uses. Pure functions on floats
or arrays; bytes/s and seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Num, maximum, minimum, where

# Domains that the network joins without loss. FSDP of MPT-13B at micro-batch 2, which is bound
# by its gathers, runs at 4,792 / 4,767 / 4,811 / 4,800 tokens/s per H100 on 1 / 2 / 4 / 8 nodes;
# MPT-7B loses 1.6 % up to 16 nodes and then 3.4 and 4.4 % per doubling.
# The onset lies between 8 and 16; 16 was chosen with these same rows in view.
FLAT_DOMAINS = 16.0

# NCCL's ceiling of the protocol LL (llMaxBws in NVIDIA/nccl, src/graph/tuning.cc), bytes/s: by
# architecture inside one domain, by CPU vendor on two domains and on more.
LL_INSIDE = {
    "volta": 39e9, "ampere": 87.7e9, "ada": 87.7e9, "hopper": 141e9, "blackwell": 282e9,
}  # fmt: skip
LL_ACROSS = {"intel": (39e9, 20.4e9), "amd": (22.5e9, 19e9)}


@dataclass(frozen=True, kw_only=True, slots=True)
class Placement:
    """Where the ranks of a group sit."""

    ranks: Num
    """Members of the group."""

    per_domain: Num
    """Members that share one scale-up domain."""

    domains: Num
    """Scale-up domains the group spans."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Links:
    """What carries the bytes of a group, after efficiencies."""

    scale_up: Num
    """Bytes/s one way that a ring sustains inside a domain."""

    scale_out: Num
    """Bytes/s one way per accelerator that its NIC sustains."""

    hop_seconds: Num
    """Latency the fabric adds to every network hop of the model, seconds."""

    call_seconds: Num
    """What the fabric adds once to every collective that crosses it, seconds."""

    ring_step_seconds: Num = 0.0
    """Least time of a ring step that crosses the fabric: its rate of messages, seconds."""

    net_overhead: Num = 1e-6
    """Host work per ring step when several domains are involved, seconds."""

    congestion: Num = 0.0
    """Share by which the network gets slower per doubling of domains beyond `flat_domains`."""

    flat_domains: Num = FLAT_DOMAINS
    """Domains that the network joins without loss."""

    rail_scaling: Num = 1.0
    """Exponent with which the rates of several NICs in one domain add up for one group."""

    latency_factor: Num = 1.0
    """Calibrated factor on the hop latencies of the model."""

    ll_inside: Num = LL_INSIDE["hopper"]
    """Most that the protocol LL moves inside one domain, bytes/s."""

    ll_two: Num = LL_ACROSS["intel"][0]
    """Most that LL moves over two domains, bytes/s."""

    ll_across: Num = LL_ACROSS["intel"][1]
    """Most that LL moves over more domains, bytes/s."""

    ll128: Num = 0.0
    """1 where NCCL may choose LL128 across domains; inside one domain it always may."""

    protocol: Num = -1.0
    """Index into PROTOCOLS, or -1 for NCCL's choice."""

    algorithm: Num = -1.0
    """Index into ALGORITHMS, or -1 for NCCL's choice."""

    nvls: Num = 1.0
    """1 where the scale-up switch can reduce (NVLS)."""

    scatter_factor: Num = 1.0
    """Bytes that a reduce-scatter moves over those of a ring (Gloo's is an all-reduce: 2)."""

    all_reduce_factor: Num = 1.0
    """The same for an all-reduce, where it is faster or slower than two passes of a ring."""


def placement(ranks: Num, stride: Num, domain: Num) -> Placement:
    """Return where a group sits whose neighbors are `stride` ranks apart.

        per_domain = min(max(floor(domain / stride), 1), ranks)
        domains = ceil(ranks / per_domain)

    Args:
        ranks: Members of the group.
        stride: Ranks from one member to the next: 1 for the innermost axis of the mesh.
        domain: Ranks of one scale-up domain.

    >>> place = placement(256.0, stride=2.0, domain=8.0)
    >>> float(place.per_domain), float(place.domains)
    (4.0, 64.0)
    """
    per_domain = minimum(maximum(np.floor(domain / stride), 1.0), ranks)
    return Placement(ranks=ranks, per_domain=per_domain, domains=np.ceil(ranks / per_domain))


def ll_ceilings(architecture: str, host: str) -> dict[str, float]:
    """Return the ceilings of the protocol LL as fields of `Links`, bytes/s.

    Architectures that NCCL does not list have that of Hopper, other CPUs that of Intel.

    Args:
        architecture: Generation of the chip.
        host: CPU vendor.

    >>> ll_ceilings("ampere", "amd")
    {'ll_inside': 87700000000.0, 'll_two': 22500000000.0, 'll_across': 19000000000.0}
    """
    two, across = LL_ACROSS.get(host, LL_ACROSS["intel"])
    inside = LL_INSIDE.get(architecture, LL_INSIDE["hopper"])
    return {"ll_inside": inside, "ll_two": two, "ll_across": across}


def ll_ceiling(place: Placement, links: Links) -> Num:
    """Return the most that the protocol LL moves for a group, bytes/s.

    Args:
        place: The group.
        links: Its links.

    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> [float(ll_ceiling(placement(n, 1.0, 8.0), links)) / 1e9 for n in (8.0, 16.0, 32.0)]
    [141.0, 39.0, 20.4]
    """
    several = where(place.domains > 2.0, links.ll_across, links.ll_two)
    result: Num = where(place.domains > 1.0, several, links.ll_inside)
    return result


def wire_rate(place: Placement, links: Links) -> Num:
    """Return the bytes/s that the network gives all members of one domain together.

        scale_out * per_domain ** rail_scaling / (1 + congestion * log2(max(domains / flat, 1)))

    Groups that span more domains than hang on one leaf meet more switches and each other's
    flows: published routing studies lose 30% and more to collisions (Meta, SIGCOMM 2024).

    Args:
        place: The group.
        links: Its links.

    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0, congestion=0.1)
    >>> round(float(wire_rate(placement(512.0, 1.0, 8.0), links)) / 1e9, 1)    # two doublings
    333.3
    """
    rails = np.power(place.per_domain, links.rail_scaling)
    result: Num = links.scale_out * rails / congestion_factor(place, links)
    return result


def congestion_factor(place: Placement, links: Links) -> Num:
    """Return how much slower the network is for a group that spans many domains.

        1 + congestion * log2(max(domains / flat, 1))

    Args:
        place: The group.
        links: Its links.

    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0, congestion=0.1)
    >>> float(congestion_factor(placement(512.0, 1.0, 8.0), links))
    1.2
    """
    return 1.0 + links.congestion * np.log2(maximum(place.domains / links.flat_domains, 1.0))


def ring_bandwidth(place: Placement, links: Links) -> Num:
    """Return the bytes/s of a ring: the slower of the links it must cross.

        min(scale_up if per_domain > 1, wire_rate if domains > 1)

    A ring over several domains enters and leaves each one through the NICs of all its members
    there, so eight members with 50 GB/s each match NVLink.

    Args:
        place: The group.
        links: Its links.

    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> [float(ring_bandwidth(placement(n, 1.0, 8.0), links)) / 1e9 for n in (8.0, 16.0)]
    [450.0, 400.0]
    """
    across = wire_rate(place, links)
    inside = where(place.per_domain > 1.0, links.scale_up, np.inf)
    several = where(place.domains > 1.0, minimum(inside, across), inside)
    result: Num = minimum(several, 1e15)
    return result
