"""Collective cost model (NCCL tuner).

    place = placement(ranks=256.0, stride=1.0, domain=8.0)
    all_gather_seconds(405e6, place, links)

NCCL estimates every (algorithm, protocol) pair as latency + bytes / bandwidth and takes the
smallest. All-gather and reduce-scatter are rings there, so their latency grows with ranks, which
limits the scaling of fully sharded data parallelism. Constants are those of NVIDIA/nccl v2.30.7,
src/graph/tuning.cc (times in microseconds there, seconds here).

Pure functions on floats or arrays. A group is given by the number of its ranks per scale-up domain,
which determines the links it uses.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Array, Mask, Num, maximum, minimum, scalar, some, where
from scalewise.physics.links import Links, Placement, ll_ceiling, ring_bandwidth, wire_rate

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
# LL alone has a ceiling on its rate.
LL_ALONE = np.array([1.0, np.inf, np.inf])
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

# Trees pass a chunk on when all of it has arrived: 512 KiB at most, an eighth of a channel's part
# of a small message (NVIDIA/nccl, src/enqueue.cc and src/include/device.h), over 16 channels.
TREE_CHUNK, TREE_PIECES, CHANNELS = 512.0 * 1024.0, 8.0, 16.0

# Launch of a collective beyond the model: 0-2 us on DGX H100 to 28 us on some A100 hosts in
# nccl-tests, where the host waits for each; kernels queued by a training step see the low end.
CALL_SECONDS = 5e-6

PROTOCOLS = ("ll", "ll128", "simple")
ALGORITHMS = ("ring", "tree", "pat", "hierarchical")


def _by_protocol(values: Array, axes: int) -> Array:
    """Lay protocol constants along a leading axis before `axes` others."""
    return values.reshape((3,) + (1,) * axes)


def ring_hops_seconds(place: Placement, links: Links, rounds: Num, axes: int = 1) -> Array:
    """Return the latency of the steps of a ring by protocol (leading axis), seconds.

        rounds * ((ranks - domains) * intra + (domains - 1) * inter) * latency_factor

    with `intra` and `inter` of one hop inside a domain and over the network (NCCL tuning.cc).

    Args:
        place: The group.
        links: Its links.
        rounds: Passes around the ring: 1 for all-gather and reduce-scatter, 2 for all-reduce.
        axes: Axes of the messages, behind the protocol's.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> hops = ring_hops_seconds(placement(16.0, 1.0, 8.0), links, 1.0) * 1e6
    >>> [float(protocol[0].round(1)) for protocol in hops]      # LL, LL128, Simple
    [16.7, 30.6, 61.6]
    """
    inter = rounds * (place.domains - 1.0)
    intra = rounds * (place.ranks - 1.0) - inter
    overhead = where(place.domains > 1.0, links.net_overhead, 0.0)
    host = overhead * _by_protocol(NET_OVERHEAD, axes)
    intra_hop = maximum(_by_protocol(RING_INTRA, axes), host)
    inter_hop = _by_protocol(RING_INTER, axes) + links.hop_seconds * _by_protocol(NIC_TIMES, axes)
    result: Array = links.latency_factor * (intra * intra_hop + inter * inter_hop)
    return result


def call_latency(place: Placement, links: Links) -> Num:
    """Return the constant of one call: the launch, and the fabric's part if it is crossed.

        CALL_SECONDS + (call_seconds if domains > 1)

    Args:
        place: The group.
        links: Its links.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=20e-6)
    >>> [float(call_latency(placement(n, 1.0, 8.0), links)) for n in (8.0, 16.0)]
    [5e-06, 2.5e-05]
    """
    result: Num = CALL_SECONDS + where(place.domains > 1.0, links.call_seconds, 0.0)
    return result


def protocol_rate(
    bandwidth: Num, shares: Array, place: Placement, links: Links, axes: int
) -> Array:
    """Return the payload rate by protocol (leading axis), bytes/s: LL has a ceiling.

    Args:
        bandwidth: Of the links, bytes/s.
        shares: Payload per byte, by protocol.
        place: The group.
        links: Its links.
        axes: Axes of the messages, behind the protocol's.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> rates = protocol_rate(400e9, RING_SHARE, placement(512.0, 1.0, 8.0), links, 0)
    >>> [float(rate) / 1e9 for rate in rates]
    [20.4, 368.0, 400.0]
    """
    ceilings = _by_protocol(LL_ALONE, axes) * ll_ceiling(place, links)
    result: Array = minimum(bandwidth * _by_protocol(shares, axes), ceilings)
    return result


def _choose(times: Array, place: Placement, links: Links) -> Num:
    """Return NCCL's minimum over the protocols it may choose, or the requested one."""
    ll, ll128, simple = times
    able = (place.domains <= 1.0) | (links.ll128 > 0.0)
    best: Num = minimum(minimum(ll, simple), where(able, ll128, np.inf))
    if some(links.protocol >= 0.0):
        protocol = links.protocol
        forced = where(protocol == 0.0, ll, where(protocol == 1.0, ll128, simple))
        best = where(protocol < 0.0, best, forced)
    return best


def fill_seconds(bytes_: Num, depth: Num, bandwidth: Num) -> Num:
    """Return the time until the pipeline of a tree is full, seconds.

        2 * depth * min(512 KiB, bytes / (8 * 16)) / (bandwidth / 16)

    Every level holds a chunk before it passes it on, up and down, on each of 16 channels.

    Args:
        bytes_: Size of the reduced buffer, bytes.
        depth: Levels of the tree.
        bandwidth: Of the links, bytes/s.

    >>> round(1e6 * float(fill_seconds(1e9, 1.0, 400e9)), 1)        # 21 us per level and direction
    41.9
    """
    chunk = minimum(TREE_CHUNK, bytes_ / (TREE_PIECES * CHANNELS))
    result: Num = 2.0 * depth * chunk / (bandwidth / CHANNELS)
    return result


def _ring_seconds(bytes_: Num, place: Placement, links: Links, rounds: float) -> Num:
    """Time of a ring collective that moves `rounds` x (n - 1) / n of its bytes over each link."""
    axes = np.ndim(bytes_)
    bandwidth = protocol_rate(ring_bandwidth(place, links), RING_SHARE, place, links, axes)
    share = rounds * (place.ranks - 1.0) / place.ranks
    latency = _by_protocol(RING_BASE, axes) + call_latency(place, links)
    latency = latency + ring_hops_seconds(place, links, rounds, axes)
    moving: Num = bytes_ * share / bandwidth
    if some(links.ring_step_seconds):
        # Small pieces are bound by how many messages the fabric can take, not by its bytes.
        messages = rounds * (place.ranks - 1.0) * links.ring_step_seconds
        moving = maximum(moving, where(place.domains > 1.0, messages, 0.0))
    return _choose(np.asarray(latency + moving), place, links)


def all_gather_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Return the time of an all-gather of `bytes_` (the full buffer), seconds.

        min over protocols of
            base + call + hops + max(bytes * (n - 1) / n / rate, (n - 1) * step)

    with the rate of `protocol_rate`. LL128 is among the protocols inside one domain, and across
    domains where the fabric has it: NCCL asks for a NIC near its GPU, which virtual machines,
    EFA and TCP do not show. NCCL runs it as a ring. `algorithm` can ask for PAT (logarithmic), or
    for a hierarchical all-gather (a ring over domains on every rail at once, then one inside the
    domain).

    Args:
        bytes_: Size of the gathered buffer, bytes; several buffers of the same group may lie
            along a leading axis.
        place: The group.
        links: Its links.

    Returns:
        Seconds; 0 for a group of one.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> sizes = (8.0, 64.0, 512.0)                               # latency grows with ranks
    >>> [round(1e3 * float(all_gather_seconds(405e6, placement(n, 1.0, 8.0), links)), 3)
    ...  for n in sizes]
    [0.825, 1.298, 3.429]
    """
    if not some(place.ranks > 1.0):
        return 0.0 * bytes_
    time = _ring_seconds(bytes_, place, links, 1.0)
    if some(links.algorithm >= 2.0):
        time = where(links.algorithm == 2.0, _pat_seconds(bytes_, place, links), time)
        time = where(links.algorithm == 3.0, hierarchical_seconds(bytes_, place, links), time)
    result: Num = where(place.ranks > 1.0, time, 0.0)
    return result


def reduce_scatter_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Return the time of a reduce-scatter of `bytes_` (the full buffer), seconds.

        all_gather_seconds(scatter_factor * bytes)

    NCCL runs it as the same ring, the other way around.

    Args:
        bytes_: Size of the full buffer, bytes.
        place: The group.
        links: Its links.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> gloo = replace(links, scatter_factor=2.0)
    >>> place = placement(8.0, 1.0, 8.0)
    >>> float(reduce_scatter_seconds(4e6, place, gloo) - all_gather_seconds(8e6, place, links))
    0.0
    """
    return all_gather_seconds(links.scatter_factor * bytes_, place, links)


def _pat_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Parallel aggregated trees (arXiv 2506.20252): log2 network transfers."""
    rounds = np.floor(np.log2(place.domains))
    latency = PAT_BASE + call_latency(place, links) + PAT_PER_RANK * place.ranks
    latency = latency + rounds * (PAT_INTER + 2.0 * links.hop_seconds)
    share = (place.ranks - 1.0) / place.ranks
    result: Num = latency + bytes_ * share / (ring_bandwidth(place, links) * PAT_SHARE)
    return result


def hierarchical_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Return the time of a hierarchical all-gather of `bytes_`, seconds.

        ring(bytes / p over D ranks) + ring(bytes over p ranks)

    A ring over the D domains on each of p rails at once, then one inside the domain: latency grows
    with domains only.

    Args:
        bytes_: Size of the gathered buffer, bytes.
        place: The group.
        links: Its links.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> round(1e3 * float(hierarchical_seconds(405e6, placement(512.0, 1.0, 8.0), links)), 3)
    2.717
    """
    rails, inside = two_hops(place)
    across = _ring_seconds(bytes_ / place.per_domain, rails, links, 1.0)
    within = _ring_seconds(bytes_, inside, links, 1.0)
    across = where(place.domains > 1.0, across, 0.0)
    result: Num = across + where(place.per_domain > 1.0, within, 0.0)
    return result


def two_hops(place: Placement) -> tuple[Placement, Placement]:
    """Return the groups of two hops: one rank of every domain, and all ranks of one domain.

    >>> from scalewise.physics.links import placement
    >>> rails, inside = two_hops(placement(64.0, 1.0, 8.0))
    >>> float(rails.ranks), float(inside.ranks)
    (8.0, 8.0)
    """
    one = minimum(place.domains, 1.0)
    return (
        Placement(ranks=place.domains, per_domain=one, domains=place.domains),
        Placement(ranks=place.per_domain, per_domain=place.per_domain, domains=one),
    )


def all_reduce_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """Return the time of an all-reduce of `bytes_`, seconds.

        min(ring, tree, NVLS)

    The ring passes every byte around twice. The double binary tree (NCCL tuning.cc) has a latency
    of log2(domains) and fills its pipeline level by level, and NVLS reduces inside the switch.

    Args:
        bytes_: Size of the reduced buffer, bytes.
        place: The group.
        links: Its links.

    Returns:
        Seconds; 0 for a group of one.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0, nvls=0.0)
    >>> place = placement(512.0, 1.0, 8.0)
    >>> ring, tree = replace(links, algorithm=0.0), replace(links, algorithm=1.0)
    >>> [round(1e6 * float(all_reduce_seconds(1e6, place, each))) for each in (links, ring, tree)]
    [182, 1346, 182]
    """
    if not some(place.ranks > 1.0):
        return 0.0 * bytes_
    bytes_ = links.all_reduce_factor * bytes_
    ring = _ring_seconds(bytes_, place, links, 2.0)
    tree = _tree_seconds(bytes_, place, links)
    best: Num = minimum(ring, tree)
    if some(links.nvls):
        best = minimum(best, _nvls_seconds(bytes_, place, links))
    if some(links.algorithm >= 0.0):
        best = where(links.algorithm == 0.0, ring, best)
        best = where(links.algorithm == 1.0, tree, best)
    result: Num = where(place.ranks > 1.0, best, 0.0)
    return result


def _nvls_seconds(bytes_: Num, place: Placement, links: Links) -> Num:
    """NVLS inside a domain, and a tree between several; where the switches cannot, never."""
    depth = np.floor(np.log2(place.domains))
    hops = 2.0 * depth * (NVLS_TREE_INTER + 2.0 * links.hop_seconds)
    # A tree sends every byte up and down; on two domains each direction carries half.
    wire = wire_rate(place, links) * where(place.domains == 2.0, 1.0, 0.5)
    inside = NVLS_SHARE * links.scale_up
    rate = where(place.domains > 1.0, minimum(inside, wire), inside)
    time = NVLS_LATENCY + call_latency(place, links) + links.latency_factor * hops + bytes_ / rate
    time = time + fill_seconds(bytes_, depth, ring_bandwidth(place, links))
    able = (links.nvls > 0.0) & (place.per_domain > NVLS_RANKS)
    result: Num = where(able, time, np.inf)
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
    wire = where(place.domains == 2.0, 2.0, 1.0) * wire_rate(place, links)
    inside = where(place.per_domain > 1.0, links.scale_up, np.inf)
    bandwidth = where(place.domains > 1.0, minimum(inside, wire), inside)
    pattern = where(place.domains > 2.0, TREE_PATTERN, 1.0)
    bandwidth = minimum(bandwidth, 1e15) * pattern
    rate = protocol_rate(bandwidth, TREE_SHARE, place, links, axes)
    fill = fill_seconds(bytes_, depth, ring_bandwidth(place, links))
    return _choose(latency + fill + 2.0 * bytes_ / rate, place, links)


def p2p_seconds(bytes_: Num, links: Links, crosses: Mask) -> Num:
    """Return the time of one P2P send/recv, seconds.

        base + hop + bytes / (scale_out if crosses else scale_up)

    with base and hop of the protocol Simple (NCCL tuning.cc).

    Args:
        bytes_: Size of the message.
        links: Links of the sender.
        crosses: Whether sender and receiver are in different domains.

    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> [round(1e6 * float(p2p_seconds(50e6, links, across)), 1) for across in (False, True)]
    [127.9, 1027.4]
    """
    base = float(RING_BASE[2]) + CALL_SECONDS
    inside = base + float(RING_INTRA[2]) + bytes_ / links.scale_up
    hop = float(RING_INTER[2]) + 2.0 * links.hop_seconds
    across = base + links.call_seconds + hop + bytes_ / links.scale_out
    result: Num = where(crosses, across, inside)
    return result


SOURCE = "NCCL tuner (NVIDIA/nccl v2.30.7, src/graph/tuning.cc)"


def derive_ring(
    key: str, bytes_: float, place: Placement, links: Links, *, rounds: float = 1.0
) -> Derivation:
    """Return how the time of an all-gather, a reduce-scatter or a ring all-reduce comes about.

    Args:
        key: Which collective it is.
        bytes_: Size of the full buffer, bytes.
        place: The group, one row.
        links: Its links, one row.
        rounds: Passes around the ring: 2 for an all-reduce.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> place = placement(64.0, 1.0, 8.0)
    >>> ring = derive_ring("all-gather", 405e6, place, links)
    >>> ring.label, ring.value == float(all_gather_seconds(405e6, place, links))
    ('all-gather, protocol SIMPLE', True)
    """
    ranks, algorithm = scalar(place.ranks), scalar(links.algorithm)
    if ranks <= 1.0:
        return Derivation(key=key, label=f"{key}: a group of one", formula="0")
    if rounds == 1.0 and algorithm >= 2.0:
        seconds = scalar(all_gather_seconds(bytes_, place, links))
        name = ALGORITHMS[int(algorithm)]
        letter = Letter("t", seconds, f"{name} algorithm over {ranks:,.0f} ranks", "s")
        return Derivation(key=key, label=key, formula="t", letters=(letter,), source=SOURCE)
    one = replace(links, algorithm=0.0)
    times = [
        scalar(_ring_seconds(bytes_, place, replace(one, protocol=float(p)), rounds))
        for p in range(len(PROTOCOLS))
    ]
    forced = scalar(links.protocol)
    chosen = scalar(_ring_seconds(bytes_, place, one, rounds))
    used = int(forced) if forced >= 0.0 else times.index(chosen)
    hops = scalar(ring_hops_seconds(place, links, rounds)[used])
    per_domain, domains = scalar(place.per_domain), scalar(place.domains)
    step = scalar(links.ring_step_seconds) if domains > 1.0 else 0.0
    ceiling = scalar(ll_ceiling(place, links)) if used == 0 else 1e15
    others = ", ".join(
        f"{name.upper()} {seconds * 1e6:,.1f} us"
        for name, seconds in zip(PROTOCOLS, times, strict=True)
    )
    return Derivation(
        key=key,
        label=f"{key}, protocol {PROTOCOLS[used].upper()}",
        formula="t0 + tc + th + max(b * r * (p - 1) / p / min(f * w, l), r * (p - 1) * ts)",
        letters=(
            Letter("b", bytes_, "full buffer", "B"),
            Letter("p", ranks, "ranks of the ring"),
            Letter("r", rounds, "passes around the ring"),
            Letter("t0", float(RING_BASE[used]), "base latency", "s"),
            Letter(
                "tc", scalar(call_latency(place, links)), "launch, and call over the fabric", "s"
            ),
            Letter("th", hops, "latency of all hops", "s"),
            Letter("f", float(RING_SHARE[used]), "payload per byte of the protocol"),
            Letter("w", scalar(ring_bandwidth(place, links)), "bandwidth of the ring", "B/s"),
            Letter("l", ceiling, "ceiling of the protocol", "B/s"),
            Letter("ts", step, "minimum time of a ring step over the fabric", "s"),
        ),
        notes=(f"{per_domain:,.0f} ranks on each of {domains:,.0f} domains", others),
        source=SOURCE,
    )


def derive_all_reduce(key: str, bytes_: float, place: Placement, links: Links) -> Derivation:
    """Return how the time of an all-reduce comes about: the fastest of ring, tree and NVLS.

    Args:
        key: Which collective it is.
        bytes_: Size of the reduced buffer, bytes.
        place: The group, one row.
        links: Its links, one row.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> derive_all_reduce("gradients", 1e6, placement(512.0, 1.0, 8.0), links).letters[0].meaning
    'tree over 512 ranks on 64 domains'
    """
    seconds = scalar(all_reduce_seconds(bytes_, place, links))
    sent = scalar(links.all_reduce_factor) * bytes_
    by = {
        "ring": scalar(_ring_seconds(sent, place, links, 2.0)),
        "tree": scalar(_tree_seconds(sent, place, links)),
        "NVLS": scalar(_nvls_seconds(sent, place, links)),
    }
    used = min(by, key=lambda name: abs(by[name] - seconds))
    if used == "ring" or scalar(place.ranks) <= 1.0:
        return derive_ring(key, sent, place, links, rounds=2.0)
    return Derivation(
        key=key,
        label=key,
        formula="t",
        letters=(
            Letter(
                "t",
                seconds,
                f"{used} over {scalar(place.ranks):,.0f} ranks on {scalar(place.domains):,.0f} "
                "domains",
                "s",
            ),
        ),
        notes=(", ".join(f"{name} {s * 1e6:,.1f} us" for name, s in by.items() if s < np.inf),),
        source=SOURCE,
    )
