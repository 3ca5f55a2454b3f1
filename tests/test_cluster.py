"""Clusters: what the nouns derive, change and refuse."""

import math

import msgspec
import pytest

from scalewise.cluster import Accelerator, Cluster, Fabric
from scalewise.errors import InputError


def chip(**changes):
    fields = {
        "name": "toy",
        "vendor": "Toys",
        "architecture": "toy",
        "kind": "gpu",
        "peak_flops": {"bf16": 100e12, "fp8": 200e12},
        "memory_bytes": 16e9,
        "memory_bandwidth": 1e12,
        "scale_up_name": "string",
        "scale_up_domain": 4,
        "scale_up_bandwidth": 100e9,
        "scale_out_bandwidth": 10e9,
        "tdp_watts": 300.0,
    }
    return Accelerator(**(fields | changes))


def fabric(**changes):
    return Fabric(
        **({"name": "tin", "hop_seconds": 1e-6, "call_seconds": 0.0, "efficiency": 0.9} | changes)
    )


def cluster(**changes):
    fields = {
        "name": "toys",
        "accelerator": chip(),
        "accelerators": 16,
        "scale_up_domain": 4,
        "scale_up_bandwidth": 100e9,
        "scale_out_bandwidth": 10e9,
        "fabric": fabric(),
        "host_watts": 100.0,
        "network_watts": 20.0,
    }
    return Cluster(**(fields | changes))


@pytest.mark.parametrize(
    ("precision", "expected"),
    [("bf16", 100e12), ("BF16", 100e12), ("fp8", 200e12), ("mxfp8", 200e12)],
)
def test_peak(precision, expected):
    assert chip().peak(precision) == expected


def test_peak_of_four_bits():
    assert chip(peak_flops={"fp4": 4e14}).peak("nvfp4") == 4e14


@pytest.mark.parametrize(
    ("peaks", "precision", "message", "hint"),
    [
        (
            {"fp16": 1e12},
            "bf16",
            "precision bf16 is not supported: toy has no bf16 peak",
            "use fp16",
        ),
        (
            {"bf16": 1e12},
            "fp16",
            "precision fp16 is not supported: toy has no fp16 peak",
            "use bf16",
        ),
        (
            {"bf16": 1e12},
            "mxfp8",
            "precision mxfp8 is not supported: toy has no fp8 peak",
            "it has bf16",
        ),
        (
            {},
            "bf16",
            "precision bf16 is not supported: toy has no bf16 peak",
            "it has no published peaks",
        ),
        ({"bf16": 1e12}, "bf61", "unknown precision bf61", "did you mean `bf16`"),
    ],
)
def test_peak_refuses(peaks, precision, message, hint):
    with pytest.raises(InputError) as caught:
        chip(peak_flops=peaks).peak(precision)
    assert str(caught.value) == message
    assert caught.value.hint is not None
    assert caught.value.hint.startswith(hint)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"memory_bytes": 0}, "accelerator `toy`: memory_bytes = 0 must be above 0"),
        ({"memory_bandwidth": math.nan}, "memory_bandwidth = nan must be a finite number"),
        ({"scale_up_domain": 2.5}, "scale_up_domain = 2.5 must be a whole number"),
        ({"peak_flops": {"bf16": -1}}, "peak_flops.bf16 = -1 must be above 0"),
        ({"peak_flops": {"int8": 1e12}}, "unknown dtype int8 in peak_flops"),
        ({"idle_watts": 300.0}, "idle_watts = 300 must be below tdp_watts = 300"),
        ({"usd_per_hour": -1.0}, "usd_per_hour = -1 must be at least 0"),
    ],
)
def test_accelerator_refuses(changes, message):
    with pytest.raises(InputError) as caught:
        chip(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"efficiency": 1.1}, "efficiency = 1.1 must be at most 1"),
        ({"efficiency": 0.0}, "efficiency = 0 must be above 0"),
        ({"hop_seconds": -1e-6}, "hop_seconds = -1e-06 must be at least 0"),
    ],
)
def test_fabric_refuses(changes, message):
    with pytest.raises(InputError) as caught:
        fabric(**changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(("count", "nodes"), [(1, 1), (4, 1), (5, 2), (16, 4)])
def test_nodes(count, nodes):
    assert cluster(accelerators=count).nodes == nodes


def test_power_of_an_accelerator():
    plain = cluster()
    assert (plain.tdp, plain.power_limit) == (300, 300)
    assert plain.idle == pytest.approx(42)
    assert plain.assumed == [
        "idle power of toy not published: 14% of TDP assumed (seven measured GPUs: 10 to 17%)"
    ]
    capped = cluster(accelerator=chip(idle_watts=30.0), power_cap_watts=200.0)
    assert (capped.idle, capped.power_limit) == (30, 200)
    assert capped.assumed == []


def test_unknown_power_stays_unknown():
    dark = cluster(accelerator=chip(tdp_watts=None), assumptions=("something else",))
    assert (dark.tdp, dark.idle, dark.power_limit) == (None, None, None)
    assert dark.assumed == ["something else", "power of toy not published: no energy estimate"]


def test_oversubscription_beyond_one_tier():
    thin = cluster(oversubscription=4.0, tier_size=8)
    assert thin.scale_out_within(8) == 10e9
    assert thin.scale_out_within(9) == 2.5e9
    assert cluster().scale_out_within(10**6) == 10e9


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accelerators": 0}, "cluster `toys`: accelerators = 0 must be at least 1"),
        ({"accelerators": 8.5}, "accelerators = 8.5 must be a whole number"),
        ({"accelerators": True}, "must be a finite number"),
        ({"scale_out_bandwidth": 0.0}, "scale_out_bandwidth = 0 must be above 0"),
        ({"oversubscription": 0.5}, "oversubscription = 0.5 must be at least 1"),
        ({"oversubscription": 2.0}, "oversubscription = 2 needs a tier_size"),
        ({"pue": 0.9}, "pue = 0.9 must be at least 1"),
        ({"pue": 1e308}, "pue = 1e+308 must be at most 100"),
        ({"scale_up_domain": 10**300}, "scale_up_domain = 1e+300 must be at most 4.29497e+09"),
        ({"usd_per_hour": 1e300}, "usd_per_hour = 1e+300 must be at most 1e+09"),
        ({"power_cap_watts": 301.0}, "power_cap_watts = 301 must be at most 300"),
        ({"power_cap_watts": 42.0}, "power_cap_watts = 42 must be above 42"),
        ({"host": "sparc"}, "unknown host sparc"),
        ({"accelerator": "h100"}, "accelerator = 'h100' must be of type Accelerator"),
    ],
)
def test_cluster_refuses(changes, message):
    with pytest.raises(InputError) as caught:
        cluster(**changes)
    assert message in str(caught.value)


def test_with_reads_units_and_leaves_the_original():
    before = cluster()
    after = before.with_(
        accelerators="2k", scale_out_bandwidth="400Gbit/s", power_cap_watts="0.2kW"
    )
    assert (after.accelerators, after.scale_out_bandwidth, after.power_cap_watts) == (
        2000,
        50e9,
        200,
    )
    assert (before.accelerators, before.scale_out_bandwidth) == (16, 10e9)
    assert before.accelerator.with_(memory_bandwidth="2TB/s").memory_bandwidth == 2e12


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"scale_out": 1}, "unknown field scale_out of Cluster"),
        ({"accelerators": 0}, "accelerators = 0 must be at least 1"),
        ({"scale_out_bandwidth": "400GB"}, "`400GB` is not a value in bytes per second"),
        ({"pue": 0.5}, "pue = 0.5 must be at least 1"),
    ],
)
def test_with_refuses(changes, message):
    with pytest.raises(InputError) as caught:
        cluster().with_(**changes)
    assert message in str(caught.value)


def test_equal_clusters_hash_alike():
    assert hash(cluster()) == hash(cluster())
    assert cluster() != cluster(accelerators=32)


def test_a_cluster_survives_json():
    one = cluster(assumptions=("a",))
    assert msgspec.json.decode(msgspec.json.encode(one), type=Cluster) == one
