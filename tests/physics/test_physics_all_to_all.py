"""All-to-all of experts: bytes by hand, and DeepEP's published kernels."""

import csv
from pathlib import Path

import numpy as np
import pytest

import scalewise
from scalewise.physics.all_to_all import (
    Sent,
    all_to_all_seconds,
    derive_all_to_all,
    distinct,
    nic_rate,
    sent_bytes,
    start_seconds,
)
from scalewise.physics.links import Links, placement

RUNS = Path(scalewise.__file__).parent / "catalog" / "runs"
LINKS = Links(scale_up=100e9, scale_out=10e9, hop_seconds=0.0, call_seconds=0.0)


def test_distinct_places_by_counting():
    # Two choices of two places: the same place half of the time.
    assert distinct(2.0, 2.0) == 1.5
    # Three choices of two: 1 place in 2 of 8 outcomes, 2 in the other 6.
    assert distinct(2.0, 3.0) == (2 * 1 + 6 * 2) / 8
    assert distinct(1.0, 8.0) == 1.0
    assert distinct(np.array([4.0]), 1.0)[0] == 1.0


def test_one_copy_per_expert_stays_in_the_domain_or_leaves_it():
    # 8 ranks in 2 domains of 4: of 2 copies, 3 in 8 go to neighbors, 4 in 8 leave.
    place = placement(8.0, 1.0, 4.0)
    assert sent_bytes(1e6, 2.0, place, deduplicated=0.0) == (0.75e6, 1e6)


def test_one_copy_per_rank_and_domain():
    # Two copies reach 8 (1 - (7/8)^2) = 1.875 ranks, 3 in 4 of them through links; 1.5 of 2
    # domains, half of them not its own.
    place = placement(8.0, 1.0, 4.0)
    inside, across = sent_bytes(1e6, 2.0, place, deduplicated=1.0)
    assert float(inside) == pytest.approx(1.875e6 * 3 / 4)
    assert float(across) == pytest.approx(0.75e6)


@pytest.mark.parametrize("choices", [1.0, 2.0, 8.0])
@pytest.mark.parametrize("ranks", [2.0, 8.0, 64.0])
def test_deduplication_never_sends_more_over_the_network(ranks, choices):
    place = placement(ranks, 1.0, 4.0)
    once, each = (sent_bytes(1.0, choices, place, deduplicated=d).across for d in (1.0, 0.0))
    assert once <= each * (1.0 + 1e-12)


def test_the_slower_of_links_and_network_after_the_start():
    place = placement(8.0, 1.0, 4.0)
    kinds = {"inside_efficiency": 0.5, "network_efficiency": 0.8, "deduplicated": 0.0}
    # 10 GB/s per rank over the network at 0.8; 60 us and 1 us for each of 8 peers.
    assert float(nic_rate(place, LINKS)) == 10e9
    seconds = all_to_all_seconds(Sent(1e6, 1.6e6), place, LINKS, **kinds)
    assert float(seconds) == pytest.approx(68e-6 + 200e-6)
    seconds = all_to_all_seconds(Sent(50e6, 1.6e6), place, LINKS, **kinds)
    assert float(seconds) == pytest.approx(68e-6 + 1e-3)


def test_a_group_of_one_sends_nothing():
    place = placement(1.0, 1.0, 4.0)
    assert sent_bytes(1e6, 2.0, place, deduplicated=0.0) == (0.0, 0.0)
    kinds = {"inside_efficiency": 0.5, "network_efficiency": 0.8}
    assert all_to_all_seconds(Sent(1e6, 1e6), place, LINKS, **kinds) == 0.0


@pytest.mark.parametrize("deduplicated", [0.0, 1.0])
@pytest.mark.parametrize(("ranks", "stride"), [(2.0, 1.0), (4.0, 1.0), (16.0, 1.0), (8.0, 8.0)])
def test_the_derivation_gives_the_time(ranks, stride, deduplicated):
    place = placement(ranks, stride, 4.0)
    kinds = {"inside_efficiency": 0.4, "network_efficiency": 0.7, "deduplicated": deduplicated}
    sent = sent_bytes(3e6, 2.0, place, deduplicated=deduplicated)
    seconds = all_to_all_seconds(sent, place, LINKS, **kinds)
    derived = derive_all_to_all("x", 3e6, 2.0, place, LINKS, **kinds)
    assert derived.value == pytest.approx(float(seconds), rel=1e-12)


def published(kind):
    """Rows of DeepEP v1 on H800."""
    path = RUNS / "collectives.csv"
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["op"] == "all_to_all"]
    return [row for row in rows if row["algorithm"].startswith(f"DeepEP {kind}")]


# An H800 has 200 GB/s of NVLink one way and a NIC of 50 GB/s.
H800 = Links(scale_up=200e9, scale_out=50e9, hop_seconds=0.0, call_seconds=0.0)


def token_bytes(row, tokens):
    """Dispatch in 8 bits or combine in 16."""
    return tokens * 7168 * (1.0 if "dispatch" in row["algorithm"] else 2.0)


def test_times_of_low_latency_kernels():
    # They send every copy through the NIC, of which RDMA sustains 0.9.
    errors = []
    for row in published("low-latency"):
        if int(row["nodes"]) > 1:
            place = placement(float(row["accelerators"]), 1.0, 8.0)
            sent = sent_bytes(token_bytes(row, 128), 8.0, place, deduplicated=0.0)
            every = Sent(0.0, sent.inside + sent.across)
            kinds = {"inside_efficiency": 1.0, "network_efficiency": 0.9}
            seconds = float(all_to_all_seconds(every, place, H800, **kinds))
            errors.append(seconds / (1e-6 * float(row["time_us"])) - 1.0)
    assert len(errors) == 10
    assert np.median(np.abs(errors)) < 0.14
    assert np.max(np.abs(errors)) < 0.25


def test_bandwidth_of_normal_kernels():
    # Published bytes count tokens that stay in their own domain too, and gating allows a token at
    # most four domains (deepseek-ai/DeepEP, tests/test_internode.py, tests/test_intranode.py).
    errors = []
    for row in published("normal"):
        ranks, nodes = float(row["accelerators"]), float(row["nodes"])
        place, bytes_ = placement(ranks, 1.0, 8.0), token_bytes(row, 4096)
        reached = float(distinct(min(nodes, 4.0), 8.0))
        inside = float(sent_bytes(bytes_, 8.0, place, deduplicated=1.0).inside)
        sent = Sent(inside, bytes_ * reached * (nodes - 1.0) / nodes)
        kinds = {"inside_efficiency": 0.8, "network_efficiency": 0.73}
        seconds = float(all_to_all_seconds(sent, place, H800, **kinds))
        counted = bytes_ * (reached if nodes > 1 else float(distinct(ranks, 8.0)) * 7 / 8)
        errors.append(counted / seconds / 1e9 / float(row["busbw_gb_per_s"]) - 1.0)
    assert len(errors) == 8
    assert np.median(np.abs(errors)) < 0.1, errors
    # Two nodes: forwarding inside the domain costs more than its bytes.
    assert np.max(np.abs(errors)) < 0.35, errors


def test_starts():
    assert float(start_seconds(placement(8.0, 1.0, 8.0), 1.0)) == 20e-6
    assert float(start_seconds(placement(8.0, 1.0, 8.0), 0.0)) == pytest.approx(28e-6)
    assert float(start_seconds(placement(16.0, 1.0, 8.0), 1.0)) == 60e-6
