"""All-to-all of expert parallelism: bytes that leave a rank, and the time of one exchange.

    place = placement(ranks=64.0, stride=1.0, domain=8.0)
    sent = sent_bytes(117e6, 8.0, place, deduplicated=1.0)
    all_to_all_seconds(sent, place, links, inside_efficiency=0.84, network_efficiency=0.73)

Every token goes to the ranks that hold its experts and comes back: a dispatch and a combine in
forward, both again in backward. NCCL sends one copy per chosen expert. DeepEP and HybridEP send one
copy per rank inside a domain and one per domain over the network, which forwards it. Pure functions
on floats or arrays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Mask, Num, maximum, scalar, where
from scalewise.physics.links import Links, Placement, congestion_factor

# Start of an exchange, seconds: inside one domain and across domains. Dispatch of few tokens takes
# 77 to 194 us on 8 to 256 H800 in low-latency kernels, payload included (deepseek-ai/DeepEP,
# README); these are what is left at no payload.
INSIDE_SECONDS, ACROSS_SECONDS = 20e-6, 60e-6

# NCCL posts a send and a receive per peer, about 1 us each way (an assumption).
PEER_SECONDS = 1e-6


class Sent(NamedTuple):
    """Bytes that one rank sends in one exchange."""

    inside: Num
    """To ranks of its scale-up domain."""
    across: Num
    """Through its NIC."""


def distinct(places: Num, choices: Num) -> Num:
    """Return how many distinct places some random choices hit.

        n (1 - (1 - 1 / n)^k)

    Args:
        places: n: Ranks, or domains.
        choices: k: Experts per token.

    >>> [round(float(distinct(n, 8.0)), 2) for n in (1.0, 8.0, 64.0)]
    [1.0, 5.25, 7.58]
    """
    result: Num = places * (1.0 - np.power(1.0 - 1.0 / places, choices))
    return result


def sent_bytes(
    token_bytes: Num, choices: Num, place: Placement, *, deduplicated: Num | Mask
) -> Sent:
    """Return the bytes that one rank sends, balanced routing.

        per chosen expert:  inside = V k (p - 1) / ep      across = V k (ep - p) / ep
        deduplicated:       inside = V d(ep) (p - 1) / p   across = V d(D) (D - 1) / D

    with p members in each of D domains, and d(x) distinct places of k choices.

    Args:
        token_bytes: V: tokens of the rank, bytes.
        choices: k: experts per token.
        place: The expert-parallel group.
        deduplicated: 1 for one copy per rank and per domain (DeepEP, HybridEP), else 0 (NCCL).

    >>> from scalewise.physics.links import placement
    >>> place = placement(ranks=64.0, stride=1.0, domain=8.0)
    >>> [float(x.round(2)) for x in sent_bytes(1.0, 8.0, place, deduplicated=0.0)]
    [0.88, 7.0]
    >>> [float(x.round(2)) for x in sent_bytes(1.0, 8.0, place, deduplicated=1.0)]
    [6.63, 4.59]
    """
    ep, p, domains = place.ranks, place.per_domain, place.domains
    once = deduplicated > 0.0
    inside = where(once, distinct(ep, choices) * (p - 1.0) / p, choices * (p - 1.0) / ep)
    across = where(
        once,
        distinct(domains, choices) * (domains - 1.0) / domains,
        choices * (ep - p) / ep,
    )
    return Sent(token_bytes * inside, token_bytes * across)


def start_seconds(place: Placement, deduplicated: Num | Mask) -> Num:
    """Return the time before the first byte moves, seconds.

    >>> from scalewise.physics.links import placement
    >>> [1e6 * float(start_seconds(placement(n, 1.0, 8.0), 0.0)) for n in (16.0, 64.0)]
    [76.0, 124.0]
    """
    start = where(place.domains > 1.0, ACROSS_SECONDS, INSIDE_SECONDS)
    result: Num = start + where(deduplicated > 0.0, 0.0, PEER_SECONDS * place.ranks)
    return result


def all_to_all_seconds(
    sent: Sent,
    place: Placement,
    links: Links,
    *,
    inside_efficiency: Num,
    network_efficiency: Num,
    deduplicated: Num | Mask = 1.0,
) -> Num:
    """Return the time of one exchange, seconds; zero for a group of one.

        start + max(inside / (e W), across / (f N))

    Args:
        sent: Bytes of one rank.
        place: The expert-parallel group.
        links: Its links.
        inside_efficiency: e: Fraction of the scale-up bandwidth W that the dispatcher reaches.
        network_efficiency: f: Fraction of the rate N of one NIC.
        deduplicated: As in `sent_bytes`.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> place = placement(ranks=64.0, stride=1.0, domain=8.0)
    >>> sent = sent_bytes(58.7e6, 8.0, place, deduplicated=1.0)
    >>> kinds = {"inside_efficiency": 0.84, "network_efficiency": 0.73}
    >>> round(1e3 * float(all_to_all_seconds(sent, place, links, **kinds)), 2)
    7.45
    """
    inside = sent.inside / (inside_efficiency * links.scale_up)
    across = sent.across / (network_efficiency * nic_rate(place, links))
    seconds = start_seconds(place, deduplicated) + maximum(inside, across)
    result: Num = where(place.ranks > 1.0, seconds, 0.0)
    return result


def nic_rate(place: Placement, links: Links) -> Num:
    """Return the bytes/s of the network per member of a group.

        scale_out / (1 + congestion * log2(max(domains / flat, 1)))

    Every member talks through its own NIC, so the rates of several rails need not add up for one
    flow, as those of a ring have to.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> float(nic_rate(placement(64.0, 1.0, 8.0), links))
    50000000000.0
    """
    return links.scale_out / congestion_factor(place, links)


def derive_all_to_all(
    key: str,
    token_bytes: float,
    choices: float,
    place: Placement,
    links: Links,
    *,
    inside_efficiency: float,
    network_efficiency: float,
    deduplicated: float,
) -> Derivation:
    """Return how the time of one exchange comes about; arguments as above, one row.

    >>> from scalewise.physics.links import placement
    >>> links = Links(scale_up=450e9, scale_out=50e9, hop_seconds=0, call_seconds=0)
    >>> derive_all_to_all("dispatch", 1e6, 8.0, placement(1.0, 1.0, 8.0), links,
    ...     inside_efficiency=0.8, network_efficiency=0.7, deduplicated=1.0).formula
    '0'
    """
    ranks = scalar(place.ranks)
    if ranks <= 1.0:
        return Derivation(key=key, label=f"{key}: a group of one", formula="0")
    per_domain, domains = scalar(place.per_domain), scalar(place.domains)
    inside, across = "k * (p - 1) / ep", "k * (ep - p) / ep"
    if deduplicated > 0.0:
        inside = "ep * (1 - (1 - 1 / ep) ** k) * (p - 1) / p"
        across = "D * (1 - (1 - 1 / D) ** k) * (D - 1) / D"
    letters = [
        Letter("t0", scalar(start_seconds(place, deduplicated)), "start of an exchange", "s"),
        Letter("V", token_bytes, "tokens of one rank", "B"),
        Letter("k", choices, "experts per token"),
        Letter("p", per_domain, "ranks of the group in one domain"),
        Letter("ep", ranks, "ranks of the group"),
        Letter("D", domains, "domains of the group"),
        Letter("e", inside_efficiency, "fraction of scale-up bandwidth reached"),
        Letter("W", scalar(links.scale_up), "scale-up bandwidth", "B/s"),
        Letter("f", network_efficiency, "fraction of the NIC's rate reached"),
        Letter("N", scalar(nic_rate(place, links)), "rate of one NIC", "B/s"),
    ]
    formula = f"t0 + max(V * {inside} / (e * W), V * {across} / (f * N))"
    copies = "one copy per rank and domain" if deduplicated > 0.0 else "one copy per expert"
    used = [letter for letter in letters if letter.name != "D" or deduplicated > 0.0]
    used = [letter for letter in used if letter.name != "ep" or "ep" in formula]
    return Derivation(
        key=key,
        label=f"{key} of tokens, {copies}",
        formula=formula,
        letters=tuple(used),
        notes=(f"{per_domain:,.0f} ranks on each of {domains:,.0f} domains",),
    )
