"""Quantized collectives: bytes and times, by hand."""

import pytest

from scalewise.physics.links import Links, placement
from scalewise.physics.quantized import (
    INT4,
    INT8,
    gather_traffic,
    reduce_traffic,
    two_hop_reduce_seconds,
    wire_bytes,
)

LINKS = Links(scale_up=400e9, scale_out=50e9, hop_seconds=1e-6, call_seconds=20e-6)


def test_zero_plus_plus_moves_a_quarter_between_nodes():
    # Of 3 M in 16 bits (two all-gathers, one reduction) 0.75 M is left: arXiv 2306.10209, table 1.
    model = 1e9
    forward, backward, gradients = wire_bytes(model, INT8), 0.0, wire_bytes(model, INT4)
    assert (forward + backward + gradients) / (2.0 * model) == pytest.approx(0.75, rel=2e-3)


def test_no_quantized_element_is_wider_than_sixteen_bits():
    for elements in (1.0, 4096.0, 1e9):
        assert wire_bytes(elements, INT4) < wire_bytes(elements, INT8) < 2.0 * elements


@pytest.mark.parametrize(
    ("ranks", "stride", "seconds"),
    [
        (1.0, 1.0, 0.0),
        # Base 8.4 + call 5 + hop 3.4 + 7 peers, then 7/8 of 0.501 GB at 400 GB/s.
        (8.0, 1.0, 23.8e-6 + 0.875 * 0.5009765625e9 / 400e9),
        # One rank per domain: base 8.4 + call 5 + 20 + hop 14 + 2 + 7 peers, at 50 GB/s.
        (8.0, 8.0, 56.4e-6 + 0.875 * 0.5009765625e9 / 50e9),
        # Both, the second with an eighth of the bytes.
        (64.0, 1.0, 80.2e-6 + 0.875 * 0.5009765625e9 / 400e9 + 0.875 * 0.5009765625e9 / 8 / 50e9),
    ],
)
def test_two_hops(ranks, stride, seconds):
    place = placement(ranks, stride, 8.0)
    found = float(two_hop_reduce_seconds(1e9, place, LINKS))
    assert found == pytest.approx(seconds, rel=1e-9)


def test_every_rank_sends_through_its_own_nic():
    # Twice the domains: the same bytes per NIC but for (D - 1) / D, and eight more peers.
    few, many = (
        float(two_hop_reduce_seconds(1e9, placement(ranks, 1.0, 8.0), LINKS))
        for ranks in (64.0, 128.0)
    )
    more = 0.5009765625e9 / 8 / 50e9 * (15 / 16 - 7 / 8) + 8e-6
    assert many - few == pytest.approx(more, rel=1e-9)


def test_bytes_through_memory():
    assert gather_traffic(1000.0, 10.0) == 3300.0
    assert float(reduce_traffic(1000.0, placement(16.0, 1.0, 8.0))) == 3000.0 + 625.0 + 125.0
    assert float(reduce_traffic(1000.0, placement(16.0, 8.0, 8.0))) == 3000.0 + 5000.0 + 125.0
