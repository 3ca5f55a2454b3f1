"""Collectives against NCCL's own model: its table of latencies, its bandwidth shares."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalewise.physics.collectives import (
    ALGORITHMS,
    CALL_SECONDS,
    NVLS_LATENCY,
    NVLS_RANKS,
    NVLS_SHARE,
    PROTOCOLS,
    all_gather_seconds,
    all_reduce_seconds,
    fill_seconds,
    p2p_seconds,
)
from scalewise.physics.links import (
    FLAT_DOMAINS,
    Links,
    ll_ceilings,
    placement,
    ring_bandwidth,
    wire_rate,
)
from toys import one

MICRO = 1e-6
NO, YES = np.array([False]), np.array([True])


def links(**changes):
    """400 GB/s inside, 50 GB/s per NIC, nothing added to NCCL's constants, an Intel host."""
    plain = Links(
        scale_up=np.array([400e9]),
        scale_out=np.array([50e9]),
        hop_seconds=np.array([0.0]),
        call_seconds=np.array([0.0]),
        nvls=0.0,
    )
    return replace(plain, **changes)


def forced(algorithm=None, protocol=None, **changes):
    """Links that do not leave the choice to NCCL."""
    return links(
        algorithm=-1.0 if algorithm is None else float(ALGORITHMS.index(algorithm)),
        protocol=-1.0 if protocol is None else float(PROTOCOLS.index(protocol)),
        **changes,
    )


def group(ranks, stride=1, domain=8):
    return placement(np.array([float(ranks)]), float(stride), float(domain))


def micros(seconds):
    """Microseconds beyond the launch."""
    return (one(seconds) - CALL_SECONDS) / MICRO


# NCCL v2.30.7, latency by node count for 8 GPUs per node, before NIC latency, microseconds:
# ring LL on Intel and AMD hosts, ring Simple, tree LL, LL128 and Simple.
NCCL_TABLE = [
    (2, 40, 68, 132, 25, 48, 92),
    (8, 156, 268, 585, 45, 82, 148),
    (32, 622, 1070, 2400, 65, 116, 204),
    (128, 2484, 4276, 9657, 85, 150, 260),
    (512, 9934, 17102, 38688, 105, 184, 316),
]


@pytest.mark.parametrize(
    ("nodes", "ring_intel", "ring_amd", "ring_simple", "tree_ll", "tree_ll128", "tree_simple"),
    NCCL_TABLE,
)
def test_all_reduce_latencies_of_nccl(
    nodes, ring_intel, ring_amd, ring_simple, tree_ll, tree_ll128, tree_simple
):
    place = group(8 * nodes)

    def latency(algorithm, protocol, **changes):
        return micros(all_reduce_seconds(0.0, place, forced(algorithm, protocol, **changes)))

    # The table is rounded to whole microseconds.
    assert latency("ring", "ll") == pytest.approx(ring_intel, abs=0.51)
    assert latency("ring", "ll", net_overhead=2e-6) == pytest.approx(ring_amd, abs=0.51)
    assert latency("ring", "simple") == pytest.approx(ring_simple, abs=0.51)
    assert latency("tree", "ll") == pytest.approx(tree_ll, abs=0.51)
    assert latency("tree", "ll128") == pytest.approx(tree_ll128, abs=0.51)
    assert latency("tree", "simple") == pytest.approx(tree_simple, abs=0.51)


@pytest.mark.parametrize(
    ("ranks", "protocol", "expected"),
    [
        # base + 7 hops over NVLink; no host overhead inside a node
        (8, "ll", 6.6 + 7 * 0.6),
        (8, "ll128", 14.0 + 7 * 1.9),
        (8, "simple", 8.4 + 7 * 3.4),
        # 16 ranks on 2 nodes: 14 hops inside (at least 1 us of host work each), one between
        (16, "ll", 6.6 + 14 * 1.0 + 2.7),
        (16, "ll128", 14.0 + 14 * 1.9 + 4.0),
        (16, "simple", 8.4 + 14 * 3.4 + 14.0),
    ],
)
def test_gather_latency_is_one_pass_of_the_ring(ranks, protocol, expected):
    time = all_gather_seconds(0.0, group(ranks), forced(protocol=protocol))
    assert micros(time) == pytest.approx(expected, rel=1e-9)


def test_nic_latency_counts_per_hop_and_twice_for_simple():
    for protocol, times in (("ll", 1.0), ("ll128", 1.0), ("simple", 2.0)):
        without = all_gather_seconds(0.0, group(64), forced(protocol=protocol))
        with_nic = all_gather_seconds(0.0, group(64), forced(protocol=protocol, hop_seconds=5e-6))
        # 8 nodes: 7 hops of a ring cross the network.
        assert one(with_nic) - one(without) == pytest.approx(7 * 5e-6 * times, rel=1e-9)


def test_fabric_constant_counts_once_and_only_when_crossed():
    fabric = forced(protocol="ll", call_seconds=50e-6)
    plain = forced(protocol="ll")
    for time in (all_gather_seconds, all_reduce_seconds):
        crossing = one(time(0.0, group(16), fabric)) - one(time(0.0, group(16), plain))
        assert crossing == pytest.approx(50e-6, rel=1e-9)
        assert one(time(0.0, group(8), fabric)) == one(time(0.0, group(8), plain))


def test_latency_factor_scales_the_hops_but_not_the_base():
    time = all_gather_seconds(0.0, group(16), forced(protocol="simple", latency_factor=0.5))
    assert micros(time) == pytest.approx(8.4 + 0.5 * (14 * 3.4 + 14.0), rel=1e-9)


@pytest.mark.parametrize(("protocol", "share"), [("ll128", 0.92), ("simple", 1.0)])
@pytest.mark.parametrize(
    ("ranks", "stride", "rate"),
    [
        (8, 1, 400e9),  # one domain: the scale-up links
        (64, 1, 400e9),  # eight NICs of 50 GB/s match them
        (32, 2, 200e9),  # every second rank: four NICs per domain
        (8, 8, 50e9),  # one rank per domain: one NIC
        (8, 64, 50e9),
    ],
)
def test_ring_bandwidth_by_placement_and_protocol(ranks, stride, rate, protocol, share):
    place, wires = group(ranks, stride), forced(protocol=protocol)
    moved = 1e12 * (ranks - 1) / ranks
    time = one(all_gather_seconds(1e12, place, wires)) - one(all_gather_seconds(0.0, place, wires))
    assert time == pytest.approx(moved / (rate * share), rel=1e-9)
    # A ring all-reduce passes twice.
    wires = forced("ring", protocol)
    time = one(all_reduce_seconds(1e12, place, wires)) - one(all_reduce_seconds(0.0, place, wires))
    assert time == pytest.approx(2.0 * moved / (rate * share), rel=1e-9)


@pytest.mark.parametrize(
    ("ranks", "stride", "rate"),
    [
        (8, 1, 141e9),  # one domain: NCCL's ceiling of Hopper, below half of 400 GB/s
        (16, 1, 39e9),  # two domains of Intel hosts
        (64, 1, 20.4e9),  # more of them
        (2, 8, 25e9),  # half of one NIC is below the ceiling
    ],
)
def test_ll_has_a_ceiling(ranks, stride, rate):
    place, wires = group(ranks, stride), forced(protocol="ll")
    time = one(all_gather_seconds(1e12, place, wires)) - one(all_gather_seconds(0.0, place, wires))
    assert time == pytest.approx(1e12 * (ranks - 1) / ranks / rate, rel=1e-9)


def test_ceilings_of_ll_are_those_of_chip_and_host():
    assert ll_ceilings("volta", "intel") == {"ll_inside": 39e9, "ll_two": 39e9, "ll_across": 20.4e9}
    assert ll_ceilings("ampere", "amd") == {
        "ll_inside": 87.7e9,
        "ll_two": 22.5e9,
        "ll_across": 19e9,
    }
    assert ll_ceilings("cdna3", "unknown") == ll_ceilings("hopper", "arm")


@pytest.mark.parametrize(
    ("ranks", "simple", "ll128"),
    [(128, 1.8, 1.5), (512, 3.9, 2.5), (1024, 6.7, 3.8), (2048, 12.3, 6.4), (4096, 23.4, 11.6)],
)
def test_gather_of_a_7b_layer_on_h100_and_infiniband(ranks, simple, ll128):
    """405 MB, milliseconds: NCCL's constants by hand; LL, which has a ceiling, is never chosen."""
    h100 = Links(scale_up=360e9, scale_out=48e9, hop_seconds=2.9e-6, call_seconds=6.1e-6)
    place = placement(float(ranks), 1.0, 8.0)
    assert 1e3 * float(all_gather_seconds(405e6, place, h100)) == pytest.approx(simple, abs=0.051)
    near = replace(h100, ll128=1.0)
    assert 1e3 * float(all_gather_seconds(405e6, place, near)) == pytest.approx(ll128, abs=0.055)


def test_nccl_takes_the_fastest_protocol():
    for size in (1e2, 1e4, 1e6, 1e8, 1e10):
        ll, ll128, simple = (
            one(all_gather_seconds(size, group(64), forced(protocol=name))) for name in PROTOCOLS
        )
        assert one(all_gather_seconds(size, group(64), forced())) == min(ll, simple)
        near = forced(ll128=1.0)
        assert one(all_gather_seconds(size, group(64), near)) == min(ll, ll128, simple)
        inside = [
            one(all_gather_seconds(size, group(8), forced(protocol=name))) for name in PROTOCOLS
        ]
        assert one(all_gather_seconds(size, group(8), forced())) == min(inside)
    # LL wins small messages, Simple large ones.
    small = one(all_gather_seconds(1e2, group(64), forced()))
    assert small == one(all_gather_seconds(1e2, group(64), forced(protocol="ll")))
    large = one(all_gather_seconds(1e10, group(64), forced()))
    assert large == one(all_gather_seconds(1e10, group(64), forced(protocol="simple")))


def test_gather_latency_grows_with_ranks_and_tree_latency_with_their_logarithm():
    def gather(ranks):
        return micros(all_gather_seconds(0.0, group(ranks), forced()))

    def reduce(ranks):
        return micros(all_reduce_seconds(0.0, group(ranks), forced()))

    assert gather(4096) == pytest.approx(2.0 * gather(2048), rel=0.01)
    assert reduce(4096) - reduce(2048) == pytest.approx(10.0)  # one more level of 2 x 5 us


@pytest.mark.parametrize(
    ("ranks", "stride", "domain", "per_domain", "domains"),
    [
        (8, 1, 8, 8, 1),
        (16, 1, 8, 8, 2),
        (4, 1, 8, 4, 1),
        (64, 8, 8, 1, 64),
        (64, 2, 8, 4, 16),
        (64, 16, 8, 1, 64),
        (64, 3, 8, 2, 32),
        (1, 1, 8, 1, 1),
        (1, 512, 8, 1, 1),
        (96, 1, 72, 72, 2),
        (20, 1, 8, 8, 3),
    ],
)
def test_placement(ranks, stride, domain, per_domain, domains):
    place = group(ranks, stride, domain)
    assert (one(place.ranks), one(place.per_domain), one(place.domains)) == (
        ranks,
        per_domain,
        domains,
    )


def test_a_group_of_one_is_free():
    for time in (all_gather_seconds, all_reduce_seconds):
        assert one(time(1e9, group(1), forced(call_seconds=1.0))) == 0.0
    mixed = placement(np.array([1.0, 8.0]), 1.0, 8.0)
    times = np.asarray(all_gather_seconds(np.array([1e9, 1e9]), mixed, forced()))
    assert times[0] == 0.0
    assert times[1] > 1e9 * 7 / 8 / 400e9


def test_networks_slow_down_beyond_the_domains_they_join_without_loss():
    # 32 domains: one doubling beyond 16, five beyond the first.
    for flat, doublings in ((64.0, 0), (16.0, 1), (1.0, 5)):
        rate = one(wire_rate(group(256), links(congestion=0.1, flat_domains=flat)))
        assert rate == pytest.approx(400e9 / (1.0 + 0.1 * doublings))


def test_rails_add_up_with_their_exponent():
    assert one(wire_rate(group(64), links())) == pytest.approx(400e9)
    assert one(wire_rate(group(64), links(rail_scaling=0.5))) == pytest.approx(50e9 * math.sqrt(8))
    assert one(wire_rate(group(64), links(rail_scaling=0.0))) == pytest.approx(50e9)


def test_congestion_counts_per_doubling_beyond_the_flat_part():
    flat, wires = int(FLAT_DOMAINS), links(congestion=0.25)
    assert one(wire_rate(group(8 * flat), wires)) == pytest.approx(400e9)
    assert one(wire_rate(group(8 * 2 * flat), wires)) == pytest.approx(400e9 / 1.25)
    assert one(wire_rate(group(8 * 8 * flat), wires)) == pytest.approx(400e9 / 1.75)


def test_ring_bandwidth_of_a_lone_rank_is_finite():
    assert np.isfinite(one(ring_bandwidth(group(1), links())))


def test_pat_is_logarithmic_in_nodes_but_linear_in_ranks():
    # 64 ranks on 8 nodes: base 8, 3 rounds of 14 / 3.5, 2.8 per rank.
    latency = all_gather_seconds(0.0, group(64), forced("pat"))
    assert micros(latency) == pytest.approx(8.0 + 3 * 4.0 + 64 * 2.8, rel=1e-9)
    with_nic = all_gather_seconds(0.0, group(64), forced("pat", hop_seconds=5e-6))
    assert one(with_nic) - one(latency) == pytest.approx(3 * 2 * 5e-6, rel=1e-9)
    # 0.75 of the ring's bandwidth.
    time = one(all_gather_seconds(1e12, group(64), forced("pat"))) - one(latency)
    assert time == pytest.approx(1e12 * 63 / 64 / (0.75 * 400e9), rel=1e-9)


def test_hierarchical_gather_by_hand():
    # 64 ranks on 8 nodes, Simple. Across: a ring of 8 on every rail, each with an eighth of the
    # bytes. Inside: a ring of 8 with all of them.
    wires = forced("hierarchical", "simple")
    across = 8.4e-6 + CALL_SECONDS + 7 * 14e-6 + 1e9 / 8 * 7 / 8 / 50e9
    inside = 8.4e-6 + CALL_SECONDS + 7 * 3.4e-6 + 1e9 * 7 / 8 / 400e9
    assert one(all_gather_seconds(1e9, group(64), wires)) == pytest.approx(
        across + inside, rel=1e-9
    )
    # In one domain, and with one rank per domain, it is an ordinary ring.
    for ranks, stride in ((8, 1), (8, 8)):
        place = group(ranks, stride)
        ring = one(all_gather_seconds(1e9, place, forced("ring", "simple")))
        assert one(all_gather_seconds(1e9, place, wires)) == pytest.approx(ring, rel=1e-12)


def test_hierarchical_latency_does_not_grow_with_ranks_per_node():
    flat = one(all_gather_seconds(0.0, group(2048), forced("ring")))
    assert one(all_gather_seconds(0.0, group(2048), forced("hierarchical"))) < flat / 2


def test_tree_bandwidth():
    def seconds(ranks, protocol):
        place, wires = group(ranks), forced("tree", protocol)
        return one(all_reduce_seconds(1e12, place, wires)) - one(
            all_reduce_seconds(0.0, place, wires)
        )

    # bus x 0.92, x 0.85 for the plain tree pattern; algorithm bandwidth is half of that. The
    # pipeline fills over three levels, 21 us each, up and down.
    fill = 2 * 3 * 512 * 1024 / 25e9
    assert seconds(64, "simple") == pytest.approx(2e12 / (400e9 * 0.92 * 0.85) + fill, rel=1e-9)
    assert seconds(64, "ll") == pytest.approx(2e12 / 20.4e9 + fill, rel=1e-9)
    wide = 400e9 * 0.92 * 0.85 * 120 / 128
    assert seconds(64, "ll128") == pytest.approx(2e12 / wide + fill, rel=1e-9)


def test_trees_lose_ll128_across_domains_too():
    def tree(protocol=None, **changes):
        return one(all_reduce_seconds(16e6, group(64), forced("tree", protocol, **changes)))

    assert tree() == tree("simple") > tree(ll128=1.0) == tree("ll128")


def test_pipeline_of_a_tree_fills_with_chunks():
    # Small messages are cut into 8 pieces on each of 16 channels, large ones into 512 KiB.
    assert float(fill_seconds(1.28e6, 2.0, 400e9)) == pytest.approx(4 * 1e4 / 25e9, rel=1e-9)
    assert float(fill_seconds(1e9, 2.0, 400e9)) == pytest.approx(4 * 524288 / 25e9, rel=1e-9)
    assert float(fill_seconds(1e9, 0.0, 400e9)) == 0.0


def test_two_domains_show_twice_the_wire_rate():
    # Two domains of two ranks each (stride 4): 100 GB/s of wire per domain, 400 GB/s inside.
    wires = forced("tree", "simple")

    def rate(ranks):
        place = group(ranks, stride=4)
        time = one(all_reduce_seconds(1e12, place, wires))
        # Beyond 64 MiB the fill of the pipeline no longer grows.
        return 2e12 / (time - one(all_reduce_seconds(1e11, place, wires))) * 0.9

    assert rate(4) == pytest.approx(200e9 * 0.92, rel=1e-9)
    # Above two domains the tree pattern loses another 15 %.
    assert rate(8) == pytest.approx(100e9 * 0.92 * 0.85, rel=1e-9)


def test_all_reduce_takes_the_best_of_ring_and_tree():
    for nodes in (1, 2, 16, 128):
        for size in (1e3, 1e6, 1e9):
            place = group(8 * nodes)
            ring = one(all_reduce_seconds(size, place, forced("ring")))
            tree = one(all_reduce_seconds(size, place, forced("tree")))
            assert one(all_reduce_seconds(size, place, forced())) == min(ring, tree)
    # Trees win small messages over many nodes, rings large ones.
    small = one(all_reduce_seconds(1e3, group(1024), forced()))
    assert small == one(all_reduce_seconds(1e3, group(1024), forced("tree")))
    large = one(all_reduce_seconds(1e11, group(1024), forced()))
    assert large == one(all_reduce_seconds(1e11, group(1024), forced("ring")))


def test_in_switch_reduction_inside_one_domain():
    switch = links(nvls=1.0)
    # Small: ring LL on 8 ranks is faster than the switch (DGX H100: 13 to 17 us).
    assert micros(all_reduce_seconds(0.0, group(8), switch)) == pytest.approx(6.6 + 14 * 0.6)
    # Large: the switch, whose rate does not depend on the ranks.
    size = 1e10
    expected = NVLS_LATENCY + CALL_SECONDS + size / (400e9 * NVLS_SHARE)
    for ranks in (6, 8):
        time = one(all_reduce_seconds(size, group(ranks), switch))
        assert time == pytest.approx(expected, rel=1e-9)
    # Not with too few ranks, not without the switch, not when the ring is asked for.
    few, ring = group(int(NVLS_RANKS)), one(all_reduce_seconds(size, group(8), forced("ring")))
    assert one(all_reduce_seconds(size, few, switch)) == one(all_reduce_seconds(size, few, links()))
    assert one(all_reduce_seconds(size, group(8), links())) == ring > expected
    asked = replace(forced("ring"), nvls=1.0)
    assert one(all_reduce_seconds(size, group(8), asked)) == ring


def test_in_switch_reduction_of_eight_h100():
    # 480 GB/s of bus bandwidth where the ring reaches 371.
    h100 = links(nvls=1.0, scale_up=np.array([371e9]))
    seconds = one(all_reduce_seconds(1e11, group(8), h100))
    assert 1e11 * 2.0 * 7 / 8 / seconds == pytest.approx(480e9, rel=0.01)


@pytest.mark.parametrize(("nodes", "rate"), [(2, 400e9 * NVLS_SHARE), (8, 200e9), (64, 200e9)])
def test_in_switch_reduction_over_several_domains(nodes, rate):
    # Inside as before; between domains a tree, 20.9 us per network hop up and down. Every byte
    # goes up and down the wire, except on two domains, where each direction carries half.
    place, size = group(8 * nodes), 1e9
    switch = all_reduce_seconds(size, place, links(nvls=1.0))
    hops = 2 * math.log2(nodes) * 20.9e-6
    fill = 2 * math.log2(nodes) * 512 * 1024 / 25e9
    expected = NVLS_LATENCY + CALL_SECONDS + hops + fill + size / rate
    without = one(all_reduce_seconds(size, place, links()))
    assert one(switch) == pytest.approx(min(expected, without), rel=1e-9)
    assert expected < without


def test_the_fabric_takes_only_so_many_messages():
    # 63 steps of at least 10 us each, in place of the time of their bytes.
    plain, slow = forced(protocol="simple"), forced(protocol="simple", ring_step_seconds=10e-6)
    none = one(all_gather_seconds(0.0, group(64), plain))
    assert one(all_gather_seconds(0.0, group(64), slow)) - none == pytest.approx(630e-6, rel=1e-9)
    assert one(all_gather_seconds(1e6, group(64), slow)) - none == pytest.approx(630e-6, rel=1e-9)
    large = one(all_gather_seconds(1e9, group(64), plain))
    assert one(all_gather_seconds(1e9, group(64), slow)) == large
    # Inside a domain there is no fabric.
    inside = one(all_gather_seconds(0.0, group(8), plain))
    assert one(all_gather_seconds(0.0, group(8), slow)) == inside


def test_gathers_ignore_a_forced_tree():
    # There is no tree for them.
    assert one(all_gather_seconds(1e6, group(64), forced("tree"))) == one(
        all_gather_seconds(1e6, group(64), forced("ring"))
    )


def test_send():
    wires = links(hop_seconds=5e-6, call_seconds=50e-6)
    inside = one(p2p_seconds(400e6, wires, NO))
    assert micros(inside) == pytest.approx(8.4 + 3.4 + 1000.0, rel=1e-9)
    across = one(p2p_seconds(50e6, wires, YES))
    assert micros(across) == pytest.approx(8.4 + 14.0 + 50.0 + 2 * 5.0 + 1000.0, rel=1e-9)


# Properties.

sizes = st.floats(0.0, 1e13, allow_subnormal=False)
rates = st.floats(1e8, 1e13)
delays = st.floats(0.0, 1e-3, allow_subnormal=False)
RATES_AND_DELAYS = (
    "scale_up",
    "scale_out",
    "hop_seconds",
    "call_seconds",
    "net_overhead",
    "ring_step_seconds",
)


@st.composite
def any_links(draw):
    return Links(
        scale_up=np.array([draw(rates)]),
        scale_out=np.array([draw(rates)]),
        hop_seconds=np.array([draw(delays)]),
        call_seconds=np.array([draw(delays)]),
        net_overhead=draw(delays),
        ring_step_seconds=draw(delays),
        congestion=draw(st.floats(0.0, 1.0)),
        rail_scaling=draw(st.floats(0.0, 1.0)),
        latency_factor=draw(st.floats(0.1, 3.0)),
        protocol=draw(st.sampled_from((-1.0, 0.0, 1.0, 2.0))),
        algorithm=draw(st.sampled_from((-1.0, 0.0, 1.0, 2.0, 3.0))),
        nvls=draw(st.sampled_from((0.0, 1.0))),
    )


@st.composite
def any_group(draw):
    return group(
        draw(st.integers(1, 20_000)), draw(st.integers(1, 600)), draw(st.sampled_from((1, 8, 72)))
    )


def all_times(size, place, wires):
    return (
        one(all_gather_seconds(size, place, wires)),
        one(all_reduce_seconds(size, place, wires)),
        one(p2p_seconds(size, wires, NO)),
        one(p2p_seconds(size, wires, YES)),
    )


@given(sizes, any_group(), any_links())
def test_times_are_finite_and_not_negative(size, place, wires):
    for time in all_times(size, place, wires):
        assert 0.0 <= time < math.inf


@given(sizes, any_group(), any_links(), st.floats(1.0, 10.0), st.sampled_from(RATES_AND_DELAYS))
def test_better_links_never_hurt(size, place, wires, factor, field):
    better = factor if field.startswith("scale") else 1.0 / factor
    improved = replace(wires, **{field: getattr(wires, field) * better})
    before, after = all_times(size, place, wires), all_times(size, place, improved)
    assert all(b <= a * (1.0 + 1e-12) for a, b in zip(before, after, strict=True))


@given(sizes, any_group(), any_links(), st.floats(1.0, 10.0))
def test_more_bytes_never_take_less_time(size, place, wires, factor):
    before, after = all_times(size, place, wires), all_times(size * factor, place, wires)
    assert all(a <= b * (1.0 + 1e-12) for a, b in zip(before, after, strict=True))


@given(sizes, st.integers(1, 512), st.integers(2, 32), any_links())
def test_a_larger_gather_is_never_faster(size, ranks, factor, wires):
    small = one(all_gather_seconds(size, group(ranks), wires))
    assert small <= one(all_gather_seconds(size, group(ranks * factor), wires)) * (1.0 + 1e-12)
