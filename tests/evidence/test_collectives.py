"""Published nccl-tests timings against the physics, and what a fit may conclude from them."""

import msgspec
import numpy as np
import pytest

from scalewise.errors import InputError
from scalewise.evidence.collectives import (
    PARAMETERS,
    SMALL,
    Collective,
    CollectivesFit,
    predict_collectives,
    read_collectives,
)
from scalewise.evidence.robust import group_errors, shared_weights


@pytest.fixture(scope="module")
def shipped():
    return read_collectives()


@pytest.fixture(scope="module")
def fitted(shipped):
    return CollectivesFit().fit(shipped[0])


def row(**changes):
    """One all-reduce over two nodes of eight with stated NICs of 50 GB/s."""
    plain = Collective(
        name="made",
        op="all_reduce",
        accelerator="a100-sxm-80gb",
        architecture="ampere",
        ranks=16,
        nodes=2,
        fabric="efa",
        scale_up=300e9,
        nic_rate=50e9,
        nic_stated=True,
        size=1e9,
        seconds=1.0,
    )
    return msgspec.structs.replace(plain, **changes)


def timed(rows, constants):
    """The same rows, measured in a world where these constants hold."""
    seconds = predict_collectives(rows, constants)
    return [
        msgspec.structs.replace(r, seconds=float(t)) for r, t in zip(rows, seconds, strict=True)
    ]


WORLD = {
    ("chip", "ampere", "link_efficiency"): 0.7,
    ("fabric", "efa", "hop_seconds"): 30e-6,
    ("fabric", "efa", "call_seconds"): 90e-6,
    ("fabric", "efa", "efficiency"): 0.85,
}


def sweep(nodes=(1, 2, 4, 8), ops=("all_gather", "all_reduce"), nic_rate=25e9):
    """Sizes from 1 KiB to 4 GiB on several node counts."""
    return [
        row(op=op, ranks=8 * n, nodes=n, nic_rate=nic_rate, size=float(2**power), source=f"{op}{n}")
        for op in ops
        for n in nodes
        for power in range(10, 33)
    ]


def by_name(rows, name):
    return next(r for r in rows if r.name == name)


def test_every_row_of_the_shipped_table_is_read_or_accounted_for(shipped):
    rows, skipped = shipped
    assert len(rows) == 537
    assert skipped == {
        "operation not modeled or not certain": 208,
        "part of a node without a switch": 22,
        "no time": 13,
        "unknown link rate": 5,
    }
    assert len(rows) + sum(skipped.values()) == 785


def test_a_row_says_what_the_table_says(shipped):
    tcpxo = by_name(shipped[0], "c0063")
    assert (tcpxo.op, tcpxo.architecture, tcpxo.ranks, tcpxo.nodes) == (
        "all_reduce",
        "hopper",
        16,
        2,
    )
    assert (tcpxo.per_domain, tcpxo.fabric, tcpxo.nic_rate) == (8, "tcpxo", 25e9)
    assert (tcpxo.size, tcpxo.seconds) == (8589934592.0, pytest.approx(47535e-6))
    ring = by_name(shipped[0], "c0413")
    assert (ring.algorithm, ring.nodes, ring.nic_rate, ring.nic_stated) == ("ring", 5, 25e9, True)
    assert by_name(shipped[0], "c0064").algorithm == "sharp"
    # H20 is not in the catalog; its NVLinks are those of H100.
    assert by_name(shipped[0], "c0432").scale_up == 450e9


def test_eight_h100_reduce_16_gib_at_480_gb_per_second_of_bus(shipped):
    large = by_name(shipped[0], "c0032")
    assert 2 * 7 / 8 * large.size / large.seconds == pytest.approx(479.9e9, rel=1e-3)
    constants = {("chip", "hopper", "link_efficiency"): 0.81}
    seconds = predict_collectives([large], constants)[0]
    assert 2 * 7 / 8 * large.size / seconds == pytest.approx(480e9, rel=0.05)


def test_gathers_stay_at_the_rate_of_the_ring(shipped):
    gather, scatter = by_name(shipped[0], "c0319"), by_name(shipped[0], "c0320")
    constants = {("chip", "hopper", "link_efficiency"): 0.81}
    bus = 7 / 8 * gather.size / predict_collectives([gather, scatter], constants)
    assert bus == pytest.approx([364.5e9, 364.5e9], rel=0.01)
    assert 7 / 8 * gather.size / gather.seconds == pytest.approx(361.4e9, rel=0.01)


def test_a_forced_ring_is_priced_as_a_ring():
    ring, free = row(algorithm="ring", size=64.0), row(size=64.0)
    # 15 us in a tree against 28 steps of 1 us at least.
    assert predict_collectives([ring])[0] > predict_collectives([free])[0] + 10e-6


def test_constants_reach_the_rows_that_own_them():
    gather = row(op="all_gather", nic_rate=10e9, size=8e9)
    slow = predict_collectives([gather], {("fabric", "efa", "efficiency"): 0.5})[0]
    # 15/16 of 8 GB over 8 NICs of 5 GB/s.
    assert slow == pytest.approx(7.5 / 40, rel=0.01)
    other = predict_collectives([gather], {("fabric", "roce", "efficiency"): 0.5})[0]
    assert other == pytest.approx(slow / 2, rel=0.01)
    late = predict_collectives([row(size=8.0)], {("fabric", "efa", "call_seconds"): 1e-3})[0]
    assert late == pytest.approx(1e-3 + predict_collectives([row(size=8.0)])[0])
    send = row(op="sendrecv", ranks=2, nodes=2, size=1e9)
    assert predict_collectives([send])[0] == pytest.approx(1e9 / 50e9, rel=0.01)


def test_a_fabric_without_low_latency_protocols_is_slower():
    small = row(size=1024.0)
    simple = predict_collectives([small], protocols={"efa": "simple"})[0]
    assert simple > 2.0 * predict_collectives([small])[0]


def test_who_can_tell_the_efficiency_of_a_wire():
    assert not row().knows_wire, "the tree on two nodes goes around the NICs"
    assert row(algorithm="ring").knows_wire
    assert row(op="all_gather").knows_wire
    assert row(nodes=4, ranks=32).knows_wire
    assert not row(nodes=4, ranks=32, nic_stated=False).knows_wire
    assert not row(nodes=1, ranks=8).knows_wire
    assert not row(nodes=8, ranks=64, algorithm="sharp").knows_wire


def test_rows_that_wait_for_an_unknown_wire_do_not_teach():
    assert not row(size=1e9).teaches
    assert row(size=1e6).teaches, "latency is still there to learn"
    assert row(size=1e9, algorithm="ring").teaches
    assert not row(nodes=1, ranks=8, size=1e8).teaches
    assert row(nodes=1, ranks=8, size=1e9).teaches
    assert not row(nodes=1, ranks=8, size=1e9, op="sendrecv").teaches


def test_a_fit_finds_the_constants_that_made_the_rows():
    fit = CollectivesFit().fit(timed(sweep(), WORLD))
    for key, value in WORLD.items():
        assert fit.values_[key] == pytest.approx(value, rel=0.02), key
        assert fit.identified_[key], key
    assert fit.on_bounds_ == []
    assert np.median(np.abs(fit.residuals_)) < 0.01
    assert fit.before_["all"].median > 0.2
    assert fit.after_["all"].median < 0.01


def test_hiccups_do_not_move_a_fit():
    rows = timed(sweep(), WORLD)
    for i in range(0, len(rows), 9):
        rows[i] = msgspec.structs.replace(rows[i], seconds=20 * rows[i].seconds)
    fit = CollectivesFit().fit(rows)
    for key, value in WORLD.items():
        assert fit.values_[key] == pytest.approx(value, rel=0.15), key


def test_a_constant_that_nothing_explains_ends_at_its_limit():
    fast = {("chip", "ampere", "link_efficiency"): 1.5}
    fit = CollectivesFit().fit(timed(sweep(nodes=(1,)), fast))
    assert fit.on_bounds_ == [("chip", "ampere", "link_efficiency")]


def test_two_node_all_reduce_cannot_teach_the_efficiency_of_the_wire():
    world = WORLD | {("fabric", "efa", "efficiency"): 0.5}
    rows = timed(sweep(nodes=(2,), ops=("all_reduce",), nic_rate=1e9), world)
    fit = CollectivesFit().fit(rows)
    prior = PARAMETERS["efficiency"].prior
    assert fit.values_["fabric", "efa", "efficiency"] == pytest.approx(prior, rel=1e-3)
    assert not fit.identified_["fabric", "efa", "efficiency"]
    assert {r.size < SMALL for r in fit.rows_} == {True}
    # The same world seen by gathers, which have to cross the wire.
    seen = CollectivesFit().fit(timed(sweep(ops=("all_gather",), nic_rate=1e9), world))
    assert seen.values_["fabric", "efa", "efficiency"] < 0.6


def test_one_depth_gives_the_sum_of_latencies_only():
    fit = CollectivesFit().fit(timed(sweep(nodes=(2,), ops=("all_reduce",)), WORLD))
    total = fit.values_["fabric", "efa", "call_seconds"]
    total += 2 * fit.values_["fabric", "efa", "hop_seconds"]
    assert total == pytest.approx(150e-6, rel=0.05)
    assert not fit.identified_["fabric", "efa", "hop_seconds"]
    assert not fit.identified_["fabric", "efa", "call_seconds"]


def test_published_links_reach_three_quarters_and_more(fitted):
    values = fitted.values_
    assert values["chip", "ampere", "link_efficiency"] == pytest.approx(0.77, abs=0.03)
    assert values["chip", "hopper", "link_efficiency"] == pytest.approx(0.81, abs=0.02)
    assert values["chip", "blackwell", "link_efficiency"] == pytest.approx(0.75, abs=0.03)
    for name in ("ampere", "hopper", "blackwell"):
        assert fitted.identified_["chip", name, "link_efficiency"]
        assert fitted.spread_["chip", name, "link_efficiency"] < 1.05


def test_published_fabrics_differ_in_latency(fitted):
    def added(fabric):
        """What two nodes pay beyond NCCL's model, seconds."""
        hop = fitted.values_["fabric", fabric, "hop_seconds"]
        return fitted.values_["fabric", fabric, "call_seconds"] + 2 * hop

    assert added("infiniband") < 25e-6
    assert added("roce") < 40e-6
    assert added("tcpxo") == pytest.approx(95e-6, rel=0.3)
    assert added("efa") == pytest.approx(140e-6, rel=0.3)
    # Nobody published more than two nodes of TCPXO.
    prior = PARAMETERS["efficiency"].prior
    assert fitted.values_["fabric", "tcpxo", "efficiency"] == pytest.approx(prior, rel=1e-3)


def test_the_fit_explains_what_nccl_alone_does_not(fitted, shipped):
    before, after = fitted.before_, fitted.after_
    assert before["all"].rows == after["all"].rows == 537
    assert after["all"].median < 0.7 * before["all"].median
    assert after["all"].large < 0.06
    assert before["ampere 2 nodes efa"].small > 1.0
    assert after["ampere 2 nodes efa"].small < 0.2
    assert before["blackwell 4 nodes efa"].small > 1.5
    # Hosts that hold NCCL to Simple: LL would be faster at these sizes.
    assert after["blackwell 4 nodes efa"].small < 0.5
    simple = CollectivesFit(protocols={"efa": "simple"}).fit(shipped[0])
    assert simple.after_["blackwell 4 nodes efa"].small < 0.1
    assert before["hopper 2 nodes tcpxo"].small > 1.0
    assert after["hopper 2 nodes tcpxo"].small < 0.1
    assert fitted.predict(shipped[0][:3]) == pytest.approx(
        predict_collectives(shipped[0][:3], fitted.values_)
    )


def test_errors_are_summarized_by_group_and_size():
    off = np.array([0.1, -0.3, 0.5, -0.2])
    size = np.array([1.0, 5.0, 100.0, 100.0])
    result = group_errors(off, ["a", "a", "a", "b"], size, (2.0, 50.0))
    assert list(result) == ["all", "a", "b"]
    a = result["a"]
    assert (a.rows, a.median, a.small, a.large) == (3, 0.3, 0.1, 0.5)
    assert result["b"].small is None
    assert result["all"].median == pytest.approx(0.25)


def test_the_rows_of_a_sweep_share_its_weight():
    weight = shared_weights(["a"] * 16 + ["b"])
    assert weight[0] == pytest.approx(0.5)
    assert (weight[:16] ** 2).sum() == pytest.approx(4.0)
    assert weight[16] == 1.0


def test_bad_tables_are_told_not_crashed_on(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        read_collectives(tmp_path / "absent.csv")
    table = tmp_path / "mine.csv"
    head = "op,accelerator,accelerators,nodes,message_bytes,time_us\n"
    table.write_text(
        head
        + "all_reduce,h100-sxm-80gb,8,1,1024,17\n"
        + "all_reduce,h100-sxm-80gb,eight,1,1024,17\n"
        + "all_reduce,h100-sxm-80gb,8,1,,17\n"
        + "all_reduce,h100-sxm-80gb,1,1,1024,17\n"
        + "broadcast,h100-sxm-80gb,8,1,1024,17\n"
    )
    rows, skipped = read_collectives(table)
    assert len(rows) == 1
    assert skipped == {
        "a number cannot be read": 1,
        "no size": 1,
        "nothing to time": 1,
        "operation not modeled or not certain": 1,
    }
    with pytest.raises(InputError, match="1 timings are too few"):
        CollectivesFit().fit([row(size=1e6)])
