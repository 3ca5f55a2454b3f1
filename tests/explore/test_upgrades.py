"""Every change of a cluster: what it changes, what it leaves, and why it may change nothing."""

import pytest

from scalewise.catalog import load_cluster
from scalewise.explore.upgrades import larger_domain, upgrades
from scalewise.stack import load_stack
from toys import toy_cluster, toy_stack


def by_name(cluster, stack=None, factor=2.0):
    software = stack or toy_stack(host_layer_seconds=1e-3, pipeline_host_seconds=2e-4)
    return {u.name: u for u in upgrades(cluster, software, factor=factor)}, software


def applied(name, cluster, factor=None, **options):
    found, stack = by_name(cluster, **options)
    return found[name].change(cluster, stack, factor or found[name].factor)


NAMES = [
    "peak FLOP/s", "HBM bandwidth", "HBM capacity", "scale-up bandwidth", "scale-up domain",
    "scale-out bandwidth", "scale-out latency", "library hop latency", "host launch speed",
    "ring collectives", "tree all-reduce", "PAT gathers", "hierarchical gathers", "power cap",
    "larger TDP",
]  # fmt: skip


def test_everything_is_there():
    found, _ = by_name(toy_cluster())
    assert list(found) == NAMES
    assert not any(upgrade.unused for upgrade in found.values())


def test_each_changes_its_own_number():
    cluster = toy_cluster()
    assert applied("peak FLOP/s", cluster)[0].accelerator.peak_flops == {
        "bf16": 200e12,
        "fp8": 400e12,
    }
    assert applied("HBM bandwidth", cluster)[0].accelerator.memory_bandwidth == 2e12
    assert applied("HBM capacity", cluster)[0].accelerator.memory_bytes == 32e9
    assert applied("scale-up bandwidth", cluster)[0].scale_up_bandwidth == 200e9
    assert applied("scale-out bandwidth", cluster)[0].scale_out_bandwidth == 20e9
    assert applied("scale-up domain", cluster)[0].scale_up_domain == 8
    assert applied("tree all-reduce", cluster)[0].algorithm == "tree"
    stack = applied("host launch speed", cluster)[1]
    assert (stack.host_layer_seconds, stack.pipeline_host_seconds) == (5e-4, 1e-4)


def test_latency_of_the_network_and_of_the_library_are_two_things():
    cluster = load_cluster("dgx-h100", 64)
    network = applied("scale-out latency", cluster)[0].fabric
    library = applied("library hop latency", cluster)[0].fabric
    fabric = cluster.fabric
    assert network.hop_seconds == fabric.hop_seconds / 2
    assert network.call_seconds == fabric.call_seconds / 2
    # Halving both would divide the network's part by four.
    assert network.latency_factor == fabric.latency_factor
    assert library.latency_factor == fabric.latency_factor / 2
    assert library.hop_seconds == fabric.hop_seconds


@pytest.mark.parametrize(
    ("accelerators", "domain", "factor", "size"),
    [
        (2048, 8, 2.0, 16),
        (24, 8, 2.0, 24),
        (16, 8, 4.0, 16),
        (48, 8, 3.0, 24),
        (40, 8, 1.5, 40),
        # Domains that are not full today need not be tomorrow.
        (2048, 72, 2.0, 144),
        (100, 72, 2.0, 100),
    ],
)
def test_larger_domains_still_fill_the_cluster(accelerators, domain, factor, size):
    assert larger_domain(accelerators, domain, factor) == size


def test_one_domain_has_no_network():
    found, _ = by_name(toy_cluster(4))
    for name in ("scale-up domain", "scale-out bandwidth", "scale-out latency"):
        assert found[name].unused == "all 4 GPUs share one scale-up domain"
    assert found["scale-up bandwidth"].unused == ""
    lonely, _ = by_name(toy_cluster(1))
    assert lonely["scale-up bandwidth"].unused == "a single GPU has no communication"


def test_tpus_have_neither_nccl_nor_published_power():
    found, _ = by_name(load_cluster("gcp-tpu-v5p", 64), load_stack("maxtext-tpu"))
    assert found["PAT gathers"].unused == "these algorithms are NCCL's; this is a tpu"
    assert found["power cap"].unused == "the power of tpu-v5p is not published"
    assert "larger TDP" not in found


def test_a_stack_that_never_waits_for_the_host():
    found, _ = by_name(toy_cluster(), toy_stack())
    assert found["host launch speed"].unused == "stack toy never waits for the host"


def test_power_below_and_above_the_tdp():
    cluster = toy_cluster()
    assert applied("power cap", cluster)[0].power_cap_watts == pytest.approx(210.0)
    larger = applied("larger TDP", cluster)[0]
    assert (larger.tdp, larger.idle, larger.power_cap_watts) == (375.0, 60.0, None)
    # 315 of 240 W above idle, to the power of 1 / CLOCK_EXPONENT.
    assert larger.accelerator.peak_flops["bf16"] == pytest.approx(114.268e12, rel=1e-5)


def test_a_cap_can_be_lifted():
    cluster = toy_cluster(power_cap_watts=200.0)
    found, _ = by_name(cluster)
    assert "larger TDP" not in found
    assert found["power cap lifted"].to == "300 W, the TDP"
    assert applied("power cap lifted", cluster)[0].power_cap_watts is None
    assert applied("power cap", cluster)[0].power_cap_watts == pytest.approx(140.0)


def test_a_cap_stays_above_idle():
    cluster = toy_cluster(power_cap_watts=90.0)
    # 0.7 x 90 is 63 W; a tenth of the range above the idle 60 W is 84 W.
    assert applied("power cap", cluster)[0].power_cap_watts == pytest.approx(84.0)
    assert "power cap" not in by_name(toy_cluster(power_cap_watts=84.0))[0]


def test_another_algorithm_than_today():
    found, _ = by_name(toy_cluster(algorithm="pat"))
    assert "PAT gathers" not in found
    assert "automatic algorithms" in found
    assert [u.name for u in found.values() if u.means == "build"] == [
        "library hop latency",
        "hierarchical gathers",
    ]
