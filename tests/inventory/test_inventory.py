"""Outputs of a machine's tools, and the cluster file that is made of them."""

import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.inventory.describe import cluster_toml, describe
from scalewise.inventory.network import read_ibstat, read_lspci, read_rdma_link
from scalewise.inventory.nvidia import read_gpus, read_topology
from scalewise.inventory.slurm import read_nodes, read_sinfo
from scalewise.inventory.sources import Source, from_files, kind_of


def gpus(name: str = "NVIDIA H100 80GB HBM3", count: int = 8, power: str = "700.00 W") -> str:
    head = "name, memory.total [MiB], power.limit [W], clocks.max.sm [MHz]\n"
    return head + count * f"{name}, 81559 MiB, {power}, 1980 MHz\n"


def topology(link: str = "NV18", count: int = 8, nics: int = 9, names: bool = True) -> str:
    """A matrix as newer drivers print it: the last NIC is for storage."""
    heads = [f"GPU{i}" for i in range(count)]
    heads += [f"NIC{i}" if names else f"mlx5_{i}" for i in range(nics)]
    lines = ["\t" + "\t".join([*heads, "CPU Affinity", "NUMA Affinity", "GPU NUMA ID"])]
    for row in range(count + nics):
        cells = [heads[row]]
        for column in range(count + nics):
            gpu, nic = min(row, column), max(row, column) - count
            word = link if max(row, column) < count else "SYS" if nic == count else "NODE"
            word = "PIX" if nic == gpu else word
            cells.append(" X " if row == column else word)
        lines.append("\t".join([*cells, "0-55,112-167", "0", "N/A"] if row < count else cells))
    legend = [f"  NIC{i}: mlx5_{i}" for i in range(nics)] if names else []
    return "\n".join([*lines, "", "Legend:", "", "  X    = Self", "", "NIC Legend:", "", *legend])


def adapter(device: str, rate: int = 400, state: str = "Active", layer: str = "InfiniBand") -> str:
    return (
        f"CA '{device}'\n\tCA type: MT4129\n\tNumber of ports: 1\n\tPort 1:\n\t\tState: {state}\n"
        f"\t\tPhysical state: LinkUp\n\t\tRate: {rate}\n\t\tLink layer: {layer}\n"
    )


def node(name: str, state: str) -> str:
    return (
        f"NodeName={name} Arch=x86_64 CoresPerSocket=56\n   Gres=gpu:h200:8(S:0-1)\n"
        f"   RealMemory=2063835 Sockets=2 Boards=1\n   State={state} ThreadsPerCore=2\n"
        "   CfgTRES=cpu=224,mem=2063835M,billing=224,gres/gpu=8,gres/gpu:h200=8\n\n"
    )


LSPCI = """\
00:00.0 Host bridge: Intel Corporation Device 09a2 (rev 20)
07:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
05:00.0 Bridge: NVIDIA Corporation GH100 [H100 NVSwitch] (rev a1)
18:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]
"""


def sources(**texts: str) -> list[Source]:
    return [Source(kind=kind, where=f"{kind}.txt", text=text) for kind, text in texts.items()]


def values(**texts: str) -> dict[str, str]:
    return {value.key: value.text for value in describe(sources(**texts)).values}


def test_gpus_with_units_and_without_values():
    found = read_gpus(gpus(power="[N/A]"))
    assert len(found.names) == 8
    assert found.memory_bytes == 81559 * 2**20
    assert (found.power_watts, found.clock_mhz) == (None, 1980.0)
    with pytest.raises(InputError, match="no column `name`"):
        read_gpus("index, uuid\n0, x\n")


@pytest.mark.parametrize("names", [True, False])
def test_topology(names):
    found = read_topology(topology(names=names))
    assert (found.gpus, found.domain) == (8, 8)
    assert set(found.nvlinks.values()) == {18}
    assert found.own_nics == tuple(f"mlx5_{i}" for i in range(8))


@pytest.mark.parametrize(
    "text", [node("a", "IDLE").replace("2063835 ", "9" * 400 + " "),
             node("a", "IDLE").replace("gpu=8", "gpu=" + "9" * 5000)]
)  # fmt: skip
def test_a_number_that_no_machine_has_is_refused(text):
    with pytest.raises(InputError, match="a number of more than 18 digits, 9999"):
        describe(sources(nodes=text), "dgx-h100")


def test_a_digit_that_is_no_number_is_not_read():
    (found,) = read_nodes(node("a", "IDLE").replace("Sockets=2", "Sockets=²"))
    assert (found.gpus, found.cores) == (8, None)


def test_a_topology_that_is_cut_is_refused():
    with pytest.raises(InputError, match="no row of GPU7"):
        read_topology("\n".join(topology().splitlines()[:8]))
    with pytest.raises(InputError, match="GPU0 has 3 of 17 connections"):
        read_topology("\tGPU0\tGPU1\n".replace("GPU1", "\t".join(
            [f"GPU{i}" for i in range(1, 8)] + [f"NIC{i}" for i in range(9)]
        )) + "GPU0\tX\tNV18\tNV18\n")  # fmt: skip


def test_ports_and_devices():
    ports = read_ibstat(adapter("mlx5_0") + adapter("mlx5_1", state="Down", layer="Ethernet"))
    assert [(p.device, p.gbps, p.layer, p.up) for p in ports] == [
        ("mlx5_0", 400.0, "InfiniBand", True), ("mlx5_1", 400.0, "Ethernet", False),
    ]  # fmt: skip
    links = read_rdma_link("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1\n")
    assert [(p.device, p.up, p.gbps) for p in links] == [("mlx5_0", True, None)]
    found = read_lspci(LSPCI)
    assert (found.cpu, found.switches, found.nics.total()) == ("intel", 1, 1)
    assert found.gpus == {"GH100 [H100 SXM5 80GB]": 1}


def test_slurm_counts_gpus_once_and_no_drained_node():
    nodes = read_nodes(node("a", "IDLE") + node("b", "MIXED+DRAIN") + node("c", "DOWN*"))
    assert [(n.gpus, n.kind, n.usable) for n in nodes] == [
        (8, "h200", True), (8, "h200", False), (8, "h200", False),
    ]  # fmt: skip
    assert (nodes[0].cores, nodes[0].memory_bytes) == (112, 2063835 * 2**20)
    line = "a[1-4] 4 gpu:h100:8(S:0-1)\n"
    sets = read_sinfo(f"NODELIST NODES GRES\n{line}{line}cpu[1-9] 9 (null)\n")
    assert [(s.nodes, s.gpus, s.kind) for s in sets] == [(4, 8, "h100")]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (topology(), "topology"), (gpus(), "gpus"), (adapter("mlx5_0"), "ibstat"),
        (LSPCI, "lspci"), (node("a", "IDLE"), "nodes"),
        ("link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1", "rdma"),
        ("NODELIST NODES GRES\na[1-4] 4 gpu:8", "sinfo"), ("hello\n", None),
    ],
)  # fmt: skip
def test_outputs_are_told_apart(text, kind):
    assert kind_of(text) == kind


def test_a_node_of_h100():
    ports = "".join(adapter(f"mlx5_{i}") for i in range(8))
    ports += adapter("mlx5_8", 100, layer="Ethernet")
    assert values(
        gpus=gpus(), topology=topology(), ibstat=ports, lspci=LSPCI,
        nodes=node("a", "IDLE") + node("b", "ALLOCATED") + node("c", "DRAIN"),
    ) == {
        "accelerator": '"h100-sxm-80gb"', "scale_up_domain": "8",
        "scale_up_bandwidth": '"450GB/s"', "accelerators": "16",
        "scale_out_bandwidth": '"400Gbit/s"', "fabric": '"infiniband"', "host": '"intel"',
        "host_cores": "112", "host_memory_bytes": '"2015GiB"',
        "source": '"read from gpus.txt, topology.txt, ibstat.txt, lspci.txt, nodes.txt"',
    }  # fmt: skip


def test_what_looks_odd_is_said():
    found = describe(sources(gpus=gpus(power="500.00 W"), topology=topology(link="NV12")))
    keys = {value.key: value.text for value in found.values}
    assert keys["power_cap_watts"] == '"500W"'
    assert keys["scale_up_bandwidth"] == '"300GB/s"'
    assert "links may be down" in found.notes[0]
    assert any(text.startswith("network rate (ibstat)") for text in found.unseen)


def test_no_nvlink_is_said():
    found = describe(sources(gpus=gpus(), topology=topology(link="SYS")))
    assert not found.has("scale_up_bandwidth")
    assert any("this machine shows none" in text for text in found.unseen)


def test_unknown_gpus_need_a_base():
    with pytest.raises(InputError, match="is not in the catalog"):
        describe(sources(gpus=gpus("NVIDIA X1")))
    with pytest.raises(InputError, match="no GPU was seen"):
        describe(sources(ibstat=adapter("mlx5_0")))
    found = describe(sources(ibstat=adapter("mlx5_0")), base="dgx-h100")
    assert "h100-sxm-80gb as in dgx-h100" in found.unseen[0]


def test_the_file_is_a_cluster(tmp_path):
    found = describe(sources(gpus=gpus(power="650.00 W"), topology=topology()))
    (tmp_path / "pod.toml").write_text(cluster_toml(found, changes=[("accelerators", "64")]))
    cluster = load_cluster(str(tmp_path / "pod.toml"))
    assert (cluster.accelerators, cluster.power_cap_watts) == (64, 650.0)
    assert cluster.scale_up_bandwidth == 450e9
    (tmp_path / "based.toml").write_text(cluster_toml(found, base="dgx-h200"))
    assert (
        load_cluster(str(tmp_path / "based.toml")).host_memory_bytes
        == load_cluster("dgx-h200").host_memory_bytes
    )


def test_files_of_no_tool_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text(gpus())
    assert [each.kind for each in from_files([str(tmp_path)])] == ["gpus"]
    (tmp_path / "b.txt").write_text("hello\n")
    with pytest.raises(InputError, match="of no known tool"):
        from_files([str(tmp_path)])


@pytest.mark.parametrize(
    ("state", "usable"),
    [
        ("IDLE", True), ("MIXED+PLANNED", True), ("IDLE+CLOUD+POWERED_DOWN", True),
        ("ALLOCATED+DRAIN", False), ("IDLE*", False), ("IDLE$", False), ("DOWN+CLOUD", False),
        ("MAINT", False),
    ],
)  # fmt: skip
def test_states_in_which_a_node_can_be_used(state, usable):
    assert read_nodes(node("a", state))[0].usable == usable


def test_nics_with_names_of_any_vendor():
    text = topology(names=False).replace("mlx5_", "bnxt_re")
    assert read_topology(text).own_nics == tuple(f"bnxt_re{i}" for i in range(8))
