"""Quantized collectives of ZeRO++: bytes on the wire, bytes through memory, and two-hop reductions.

    wire_bytes(params, INT8)                        # qwZ: an all-gather of weights in int8
    two_hop_reduce_seconds(elements, place, links)  # qgZ: a reduction of gradients in int4

Weights are quantized block by block before an all-gather, and dequantized where they arrive. A ring
would quantize gradients again at every hop, so they are reduced in two all-to-alls instead: among
the ranks of a domain, then between domains, each rank with its peers (Wang et al., arXiv
2306.10209). Pure functions on floats or arrays.
"""

from __future__ import annotations

from dataclasses import replace

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, scalar, where
from scalewise.physics.all_to_all import PEER_SECONDS, nic_rate
from scalewise.physics.collectives import (
    CALL_SECONDS,
    RING_BASE,
    RING_INTER,
    RING_INTRA,
    derive_ring,
    two_hops,
)
from scalewise.physics.links import Links, Placement

INT8, INT4 = 1.0, 0.5
"""Bytes of a quantized weight (qwZ) and of a quantized gradient (qgZ)."""

BLOCK = 4096.0
"""Elements with one scale: deepspeed.ops.op_builder.quantizer, class CUDAQuantizer, "the optimal
size is 4k"."""

SCALE = 4.0
"""Bytes of a scale: 32 bits (deepspeed/csrc/quantization)."""

GATHER_TRAFFIC = 3.0
"""Bytes through memory to quantize a 16-bit weight, and again to dequantize it: read 2 and write 1,
read 1 and write 2."""

REDUCE_TRAFFIC, LOCAL_TRAFFIC, OWN_TRAFFIC = 3.0, 5.0, 2.0
"""Bytes through memory per gradient of a reduction in two hops (all_to_all_quant_reduce in
deepspeed/runtime/comm/coalesced_collectives.py). Every element: quantize in the order of the
exchange (read 2, write 1/2), read what arrives (1/2). Every element that a rank keeps after the
first hop: write it quantized (1/2), read what arrives (1/2), write and read it in 16 bits (4).
Every element of the shard: write the sum (2)."""

SOURCE = "ZeRO++ (arXiv 2306.10209); kernels of deepspeed/csrc/quantization"


def wire_bytes(elements: Num, width: float) -> Num:
    """Return the bytes of quantized elements with their scales.

    Args:
        elements: How many.
        width: Bytes of one of them.

    >>> wire_bytes(4096.0, INT8), wire_bytes(4096.0, INT4)
    (4100.0, 2052.0)
    """
    return elements * (width + SCALE / BLOCK)


def gather_traffic(elements: Num, shards: Num) -> Num:
    """Return the bytes through memory of one quantized all-gather.

        3 e / s + 3 e

    The shard is quantized before it is sent, and all of it dequantized where it arrives.

    Args:
        elements: e: Gathered weights.
        shards: s: Ranks of the group.

    >>> gather_traffic(800.0, 8.0)
    2700.0
    """
    return GATHER_TRAFFIC * elements / shards + GATHER_TRAFFIC * elements


def reduce_traffic(elements: Num, place: Placement) -> Num:
    """Return the bytes through memory of one reduction in two hops.

        3 e + 5 e / p + 2 e / n

    Args:
        elements: e: Gradients before they are reduced.
        place: The group: n ranks, p of them in one domain.

    >>> from scalewise.physics.links import placement
    >>> float(reduce_traffic(64.0, placement(64.0, 1.0, 8.0)))
    234.0
    """
    kept = LOCAL_TRAFFIC / place.per_domain + OWN_TRAFFIC / place.ranks
    return elements * (REDUCE_TRAFFIC + kept)


def two_hop_reduce_seconds(elements: Num, place: Placement, links: Links) -> Num:
    """Return the time of a reduction of int4 gradients in two hops, seconds.

        t1 + u (p - 1) + b (p - 1) / p / W  +  t2 + u (D - 1) + b / p (D - 1) / D / N

    An all-to-all among the p ranks of a domain, at the rate W of its links; then one among D
    domains, in which every rank sends what it has reduced through its own NIC, at the rate N. Each
    peer costs u to address.

    Args:
        elements: Gradients before they are reduced; several buffers along a leading axis.
        place: The group.
        links: Its links.

    Returns:
        Seconds; 0 for a group of one.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> place = placement(64.0, 1.0, 8.0)
    >>> round(1e3 * float(two_hop_reduce_seconds(405e6, place, links)), 3)
    0.897
    """
    sent = wire_bytes(elements, INT4)
    inside, across = _starts(place, links)
    peers, domains = place.per_domain - 1.0, place.domains - 1.0
    first = inside + sent * peers / place.per_domain / links.scale_up
    left = sent / place.per_domain
    second = across + left * domains / place.domains / nic_rate(place, links)
    none = 0.0 * sent
    result: Num = where(peers > 0.0, first, none) + where(domains > 0.0, second, none)
    return result


def _starts(place: Placement, links: Links) -> tuple[Num, Num]:
    """Time before the bytes of each hop move, seconds: NCCL's protocol Simple, and its peers."""
    base = float(RING_BASE[2]) + CALL_SECONDS
    hop = float(RING_INTER[2]) + 2.0 * links.hop_seconds + links.call_seconds
    inside = base + float(RING_INTRA[2]) + PEER_SECONDS * (place.per_domain - 1.0)
    return inside, base + hop + PEER_SECONDS * (place.domains - 1.0)


def derive_two_hops(key: str, elements: float, place: Placement, links: Links) -> Derivation:
    """Return how the time of a reduction in two hops comes about; arguments as above, one row.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> place = placement(64.0, 1.0, 8.0)
    >>> found = derive_two_hops("reduce", 405e6, place, links)
    >>> found.value == float(two_hop_reduce_seconds(405e6, place, links))
    True
    """
    ranks, domains = scalar(place.per_domain), scalar(place.domains)
    inside, across = (scalar(each) for each in _starts(place, links))
    parts: list[str] = []
    letters = [
        Letter("b", scalar(wire_bytes(elements, INT4)), "gradients in int4, with scales", "B"),
        Letter("p", ranks, "ranks of the group in one domain"),
    ]
    if ranks > 1.0:
        parts.append("t1 + b * (p - 1) / p / W")
        letters += [
            Letter("t1", inside, "start inside a domain, and its peers", "s"),
            Letter("W", scalar(links.scale_up), "scale-up bandwidth", "B/s"),
        ]
    if domains > 1.0:
        parts.append("t2 + b / p * (D - 1) / D / N")
        letters += [
            Letter("t2", across, "start between domains, and its peers", "s"),
            Letter("D", domains, "domains of the group"),
            Letter("N", scalar(nic_rate(place, links)), "rate of one NIC", "B/s"),
        ]
    label = f"{key} in two hops, int4"
    if not parts:
        return Derivation(key=key, label=f"{key}: a group of one", formula="0")
    return Derivation(
        key=key, label=label, formula=" + ".join(parts), letters=tuple(letters), source=SOURCE
    )


def derive_hierarchical(key: str, bytes_: float, place: Placement, links: Links) -> Derivation:
    """Return how the time of a hierarchical all-gather comes about; one row.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> place = placement(64.0, 1.0, 8.0)
    >>> from scalewise.physics.collectives import hierarchical_seconds
    >>> found = derive_hierarchical("all-gather", 405e6, place, links)
    >>> found.value == float(hierarchical_seconds(405e6, place, links))
    True
    """
    rails, inside = two_hops(place)
    links = replace(links, algorithm=-1.0)
    across = derive_ring(f"{key} on one rail", bytes_ / scalar(place.per_domain), rails, links)
    within = derive_ring(f"{key} inside a domain", bytes_, inside, links)
    return Derivation(
        key=key,
        label=f"{key}, hierarchical",
        formula="a + w",
        letters=(
            Letter("a", across.value, across.label, "s", across),
            Letter("w", within.value, within.label, "s", within),
        ),
        source="MiCS (Zhang et al., arXiv 2205.00119)",
    )
