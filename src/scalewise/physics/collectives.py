"""How long collectives take, by the cost model inside NCCL's own tuner.

    place = placement(ranks=256.0, stride=1.0, domain=8.0)
    gather_seconds(405e6, place, links)

NCCL estimates every (algorithm, protocol) pair as latency + bytes / bandwidth and takes the
smallest. All-gather and reduce-scatter are rings there, so their latency grows with ranks; that
is what makes returns diminish under fully sharded data parallelism. Constants restate
NVIDIA/nccl v2.30.7, src/graph/tuning.cc (times in microseconds there, seconds here).

Pure functions on floats or arrays; a group is given by how many of its ranks share a scale-up
domain, because that decides which links it uses.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Array, Num

# Rows: LL, LL128, Simple. NCCL tuning.cc, ring: base latency, hop over NVLink, hop over network.
RING_BASE = np.array([6.6, 14.0, 8.4]) * 1e-6
RING_INTRA = np.array([0.6, 1.9, 3.4]) * 1e-6
RING_INTER = np.array([2.7, 4.0, 14.0]) * 1e-6
# Tree (all-reduce only).
TREE_BASE = np.array([6.8, 14.0, 8.4]) * 1e-6
TREE_INTRA = np.array([0.6, 1.25, 4.0]) * 1e-6
TREE_INTER = np.array([5.0, 8.5, 14.0]) * 1e-6
# Host overhead of a ring step once the network is involved, x 3 for Simple (1 us Intel, 2 us AMD).
NET_OVERHEAD = np.array([1.0, 1.0, 3.0])
# The NIC latency counts twice for Simple, because of the flush.
NIC_TIMES = np.array([1.0, 1.0, 2.0])
# Share of bus bandwidth: LL carries flags in half of its bytes, LL128 in 8 of 128.
RING_SHARE = np.array([0.5, 0.92, 1.0])
TREE_SHARE = np.array([0.92 / 3.8, 0.92 * 120.0 / 128.0, 0.92])
# The plain tree pattern loses another 15 % above two domains (5 nodes: 150 GB/s bus measured);
# on two domains payload over NIC rate is 0.83 to 0.95 in four published systems.
TREE_PATTERN = 0.85
# PAT (NCCL >= 2.23): log2 transfers, but 2.8 us of local work per rank remain in the model.
PAT_BASE, PAT_INTER, PAT_PER_RANK, PAT_SHARE = 8e-6, 14e-6 / 3.5, 2.8e-6, 0.75
# NVLS: in-switch reduction. Its rate hardly depends on ranks: bytes / (0.74 x ring rate) fits 5 to
# 8 ranks on Hopper and Blackwell (480 GB/s bus on 8 H100 against 371 of the ring; NCCL's own table
# is 25 % too fast), and 50 us of latency, twice NCCL's constant, halves the error on one node.
NVLS_LATENCY, NVLS_SHARE, NVLS_RANKS = 50e-6, 0.74, 4.0
# NVLSTree: NVLS inside, a tree between domains (NCCL: 20.9 us per network hop).
NVLS_TREE_INTER = 20.9e-6

# Launch of a collective beyond the model: 0-2 us on DGX H100 to 28 us on some A100 hosts in
# nccl-tests, where the host waits for each; kernels queued by a training step see the low end.
CALL_SECONDS = 5e-6

# Domains that the network joins without loss. FSDP of MPT-13B at micro batch 2, which is bound
# by its gathers, runs at 4,792 / 4,767 / 4,811 / 4,800 tokens/s per H100 on 1 / 2 / 4 / 8 nodes;
# MPT-7B loses 1.6 % up to 16 nodes and then 3.4 and 4.4 % per doubling.
# The onset lies between 8 and 16; 16 was chosen with these same rows in view.
FLAT_DOMAINS = 16.0

PROTOCOLS = ("ll", "ll128", "simple")
ALGORITHMS = ("ring", "tree", "pat", "hierarchical")


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

    step_seconds: Num = 0.0
    """Least time of a ring step that crosses the fabric: its rate of messages, seconds."""

    net_overhead: Num = 1e-6
    """Host work per ring step when several domains are involved, seconds."""

    congestion: Num = 0.0
    """Share by which the network gets slower per doubling of domains beyond FLAT_DOMAINS."""

    rail_scaling: Num = 1.0
    """Exponent with which the rates of several NICs in one domain add up for one group."""

    latency_factor: Num = 1.0
    """Calibrated factor on the hop latencies of the model."""

    protocol: Num = -1.0
    """Index into PROTOCOLS, or -1 for NCCL's choice."""

    algorithm: Num = -1.0
    """Index into ALGORITHMS, or -1 for NCCL's choice."""

    in_switch: Num = 1.0
    """1 where the scale-up switch can reduce (NVLS)."""


def placement(ranks: Num, stride: Num, domain: Num) -> Placement:
    """Place a group whose neighbours are `stride` ranks apart into domains of `domain` ranks."""
    per_domain = np.minimum(np.maximum(np.floor(domain / stride), 1.0), ranks)
    return Placement(ranks=ranks, per_domain=per_domain, domains=np.ceil(ranks / per_domain))


def _by_protocol(values: Array, axes: int) -> Array:
    """Lay protocol constants along a leading axis before `axes` others."""
    return values.reshape((3,) + (1,) * axes)


def wire_rate(place: Placement, links: Links) -> Num:
    """Return the bytes/s that the network gives all members of one domain together.

    Groups that span more domains than hang on one leaf meet more switches and each other's
    flows: published routing studies lose 30 % and more to collisions (Meta, SIGCOMM 2024).
    """
    slower = 1.0 + links.congestion * np.log2(np.maximum(place.domains / FLAT_DOMAINS, 1.0))
    return links.scale_out * np.power(place.per_domain, links.rail_scaling) / slower


def ring_bandwidth(place: Placement, links: Links) -> Num:
    """Return the bytes/s of a ring: the slower of the links it must cross.

    A ring over several domains enters and leaves each one through the NICs of all its members
    there, so eight members with 50 GB/s each match NVLink.
    """
    across = wire_rate(place, links)
    inside = np.where(place.per_domain > 1.0, links.scale_up, np.inf)
    several = np.where(place.domains > 1.0, np.minimum(inside, across), inside)
    result: Num = np.minimum(several, 1e15)
    return result


def ring_hops_seconds(place: Placement, links: Links, rounds: Num, axes: int = 1) -> Array:
    """Return the latency of the steps of a ring by protocol (leading axis).

    Args:
        place: The group.
        links: Its links.
        rounds: Passes around the ring: 1 for all-gather and reduce-scatter, 2 for all-reduce.
        axes: Axes of the messages, behind the protocol's.
    """
    inter = rounds * (place.domains - 1.0)
    intra = rounds * (place.ranks - 1.0) - inter
    overhead = np.where(place.domains > 1.0, links.net_overhead, 0.0)
    host = overhead * _by_protocol(NET_OVERHEAD, axes)
    intra_hop = np.maximum(_by_protocol(RING_INTRA, axes), host)
    inter_hop = _by_protocol(RING_INTER, axes) + links.hop_seconds * _by_protocol(NIC_TIMES, axes)
    result: Array = links.latency_factor * (intra * intra_hop + inter * inter_hop)
    return result


def call_latency(place: Placement, links: Links) -> Num:
    """Return the constant of one call: the launch, and the fabric's share if it is crossed."""
    result: Num = CALL_SECONDS + np.where(place.domains > 1.0, links.call_seconds, 0.0)
    return result


def _choose(times: Array, protocol: Num) -> Num:
    """Take NCCL's minimum over protocols, or the one that was asked for."""
    forced = np.where(protocol == 0.0, times[0], np.where(protocol == 1.0, times[1], times[2]))
    result: Num = np.where(protocol < 0.0, np.minimum.reduce(times, axis=0), forced)
    return result


def _ring_seconds(bytes_: Num, place: Placement, links: Links, rounds: float) -> Num:
    """Time of a ring collective that moves `rounds` x (n-1)/n of its bytes over each link."""
    axes = np.ndim(bytes_)
    bandwidth = ring_bandwidth(place, links) * _by_protocol(RING_SHARE, axes)
    share = rounds * (place.ranks - 1.0) / place.ranks
    latency = _by_protocol(RING_BASE, axes) + call_latency(place, links)
    latency = latency + ring_hops_seconds(place, links, rounds, axes)
    # Small pieces are bound by how many messages the fabric can take, not by its bytes.
    messages = np.where(place.domains > 1.0, rounds * (place.ranks - 1.0) * links.step_seconds, 0.0)
    return _choose(latency + np.maximum(bytes_ * share / bandwidth, messages), links.protocol)


def gather_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Return the time of an all-gather or reduce-scatter of `bytes_` (the full buffer).

    NCCL runs both as rings. `algorithm` can ask for PAT (logarithmic), or for a hierarchical
    gather (a ring over domains on every rail at once, then one inside the domain).

    Args:
        bytes_: Size of the gathered buffer, bytes; several buffers of the same group may lie
            along a leading axis.
        place: The group.
        links: Its links.

    Returns:
        Seconds; 0 for a group of one.
    """
    if not np.any(place.ranks > 1.0):
        return 0.0 * bytes_
    time = _ring_seconds(bytes_, place, links, 1.0)
    if np.any(np.asarray(links.algorithm) >= 2.0):
        time = np.where(links.algorithm == 2.0, _pat_seconds(bytes_, place, links), time)
        time = np.where(links.algorithm == 3.0, _hierarchical_seconds(bytes_, place, links), time)
    result: Num = np.where(place.ranks > 1.0, time, 0.0)
    return result


def _pat_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Parallel aggregated trees (arXiv 2506.20252): log2 network transfers."""
    rounds = np.floor(np.log2(place.domains))
    latency = PAT_BASE + call_latency(place, links) + PAT_PER_RANK * place.ranks
    latency = latency + rounds * (PAT_INTER + 2.0 * links.hop_seconds)
    share = (place.ranks - 1.0) / place.ranks
    result: Num = latency + bytes_ * share / (ring_bandwidth(place, links) * PAT_SHARE)
    return result


def _hierarchical_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """A ring per rail between domains, then a ring inside: latency grows with domains only."""
    one = np.minimum(place.domains, 1.0)
    rails = Placement(ranks=place.domains, per_domain=one, domains=place.domains)
    inside = Placement(ranks=place.per_domain, per_domain=place.per_domain, domains=one)
    across = _ring_seconds(bytes_ / place.per_domain, rails, links, 1.0)
    within = _ring_seconds(bytes_, inside, links, 1.0)
    across = np.where(place.domains > 1.0, across, 0.0)
    result: Num = across + np.where(place.per_domain > 1.0, within, 0.0)
    return result


def all_reduce_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Return the time of an all-reduce of `bytes_`: the best of ring, tree and in-switch.

    Args:
        bytes_: Size of the reduced buffer, bytes.
        place: The group.
        links: Its links.

    Returns:
        Seconds; 0 for a group of one.
    """
    if not np.any(place.ranks > 1.0):
        return 0.0 * bytes_
    ring = _ring_seconds(bytes_, place, links, 2.0)
    tree = _tree_seconds(bytes_, place, links)
    switch = _in_switch_seconds(bytes_, place, links)
    best = np.minimum(np.minimum(ring, tree), switch)
    best = np.where(links.algorithm == 0.0, ring, best)
    best = np.where(links.algorithm == 1.0, tree, best)
    result: Num = np.where(place.ranks > 1.0, best, 0.0)
    return result


def _in_switch_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """NVLS inside a domain, and a tree between several; where the switches cannot, never."""
    depth = np.floor(np.log2(place.domains))
    hops = 2.0 * depth * (NVLS_TREE_INTER + 2.0 * links.hop_seconds)
    # A tree sends every byte up and down; on two domains each direction carries half.
    wire = wire_rate(place, links) * np.where(place.domains == 2.0, 1.0, 0.5)
    inside = NVLS_SHARE * links.scale_up
    rate = np.where(place.domains > 1.0, np.minimum(inside, wire), inside)
    time = NVLS_LATENCY + call_latency(place, links) + links.latency_factor * hops + bytes_ / rate
    able = (links.in_switch > 0.0) & (place.per_domain > NVLS_RANKS)
    result: Num = np.where(able, time, np.inf)
    return result


def _tree_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Double binary tree over domains, chains inside: latency grows with log2 of the domains."""
    axes = np.ndim(bytes_)
    depth = np.floor(np.log2(place.domains))
    inter_hop = _by_protocol(TREE_INTER, axes) + links.hop_seconds * _by_protocol(NIC_TIMES, axes)
    hops = 2.0 * ((place.per_domain - 1.0) * _by_protocol(TREE_INTRA, axes) + depth * inter_hop)
    latency = _by_protocol(TREE_BASE, axes) + call_latency(place, links)
    latency = latency + links.latency_factor * hops
    # On exactly two domains half of the traffic stays on the scale-up links.
    wire = np.where(place.domains == 2.0, 2.0, 1.0) * wire_rate(place, links)
    inside = np.where(place.per_domain > 1.0, links.scale_up, np.inf)
    bandwidth = np.where(place.domains > 1.0, np.minimum(inside, wire), inside)
    pattern = np.where(place.domains > 2.0, TREE_PATTERN, 1.0)
    bandwidth = np.minimum(bandwidth, 1e15) * pattern * _by_protocol(TREE_SHARE, axes)
    return _choose(latency + 2.0 * bytes_ / bandwidth, links.protocol)


def send_seconds(bytes_: Num, links: Links, crosses: Num) -> Num:
    """Return the time of one point-to-point message.

    Args:
        bytes_: Size of the message.
        links: Links of the sender.
        crosses: 1 where sender and receiver are in different domains.
    """
    base = float(RING_BASE[2]) + CALL_SECONDS
    inside = base + float(RING_INTRA[2]) + bytes_ / links.scale_up
    hop = float(RING_INTER[2]) + 2.0 * links.hop_seconds
    across = base + links.call_seconds + hop + bytes_ / links.scale_out
    result: Num = np.where(crosses > 0.0, across, inside)
    return result
