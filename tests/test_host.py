"""Hosts of clusters: stated values, typical ones, and what is said of those."""

import pytest

from scalewise.catalog import load_cluster, names
from scalewise.errors import InputError
from scalewise.host import host_of


def test_a_dgx_h100_states_its_host():
    host = host_of(load_cluster("dgx-h100", accelerators=64))
    assert (host.accelerators, host.link, host.cores) == (8, 63e9, 112.0)
    assert (host.memory_bytes, host.memory_bandwidth) == (2e12, 614.4e9)
    assert host.assumed == ()
    assert len(host.assumed_nvme) == 2
    assert host.nvme_read == host.nvme_write == 16e9


def test_hosts_of_a_rack_have_four_gpus():
    host = host_of(load_cluster("gb200-nvl72"))
    assert (host.accelerators, host.link, host.cores) == (4, 225e9, 144.0)


def test_unknown_hosts_are_typical_of_the_link_and_say_so():
    host = host_of(load_cluster("h100-pcie-80gb", accelerators=1))
    assert host.memory_bytes is None
    assert host.accelerators == 1
    assert host.memory_bandwidth % 76.8e9 == 0.0
    assert len(host.assumed) == 3
    assert "host memory unknown" in host.assumed[-1]
    tpu = host_of(load_cluster("gcp-tpu-v5p"))
    assert tpu.link == 31.5e9
    assert tpu.accelerators == 4
    assert tpu.assumed[0] == "chips per host unknown: 4 assumed"
    assert tpu.assumed[1].startswith("host link of tpu-v5p unknown")


def test_gpus_behind_one_switch_share_its_link():
    cluster = load_cluster("dgx-h100").with_(host_link_accelerators=2)
    assert host_of(cluster).link == 31.5e9
    assert host_of(cluster.with_(accelerators=1)).link == 63e9


def test_a_change_of_the_link_leaves_the_memory_alone():
    plain = load_cluster("a100-pcie-80gb", accelerators=1)
    slow = plain.with_(host_link_bandwidth="12GB/s")
    assert host_of(slow).link == 12e9
    assert host_of(slow).memory_bandwidth == host_of(plain).memory_bandwidth


@pytest.mark.parametrize("field", ["host_memory_bytes", "host_cores", "nvme_read_bandwidth"])
def test_impossible_hosts_are_refused(field):
    with pytest.raises(InputError, match=field):
        load_cluster("dgx-h100").with_(**{field: 0})


def test_every_cluster_has_a_host():
    for name in names("clusters"):
        cluster = load_cluster(name)
        host = host_of(cluster)
        assert 1 <= host.accelerators <= cluster.accelerators
        assert 1e9 <= host.link <= 450e9, name
        # Between the memory of a notebook and more than any host has.
        assert 1e9 <= host.memory_bandwidth <= 3e12, name
        assert host.memory_bytes is None or 1e11 <= host.memory_bytes <= 1e13, name
