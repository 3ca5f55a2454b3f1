"""`--node` and `--network`: what people know of their nodes, as rates per accelerator."""

import msgspec
import pytest

from scalewise.ask.network import parse_network, shared
from scalewise.ask.question import Question
from scalewise.ask.resolve import Objects, inputs, resolve
from scalewise.catalog import load_cluster, load_fabric
from scalewise.errors import InputError
from scalewise.physics.links import Links, placement, wire_rate


def cluster(on="dgx-h100", **words):
    return inputs(Question(on=on, gpus=16, **words)).cluster


@pytest.mark.parametrize(
    ("word", "nics", "rate", "fabric", "measured"),
    [
        ("100GbE", 1, 12.5e9, "roce", False),
        ("25gbe", 1, 3.125e9, "roce", False),
        ("100 GbE tcp", 1, 12.5e9, "tcp", False),
        ("8x400G-ib", 8, 50e9, "infiniband", False),
        ("4x200G-roce", 4, 25e9, "roce", False),
        ("2 x 100Gbit/s-rdma", 2, 12.5e9, "unknown", False),
        ("8xNDR", 8, 50e9, "infiniband", False),
        ("hdr100", 1, 12.5e9, "infiniband", False),
        ("400G", 1, 50e9, None, False),
        # More than one NIC can have.
        ("3.2Tbit/s-efa", 8, 50e9, "efa", False),
        ("3.19GB/s-tcp", 1, 3.19e9, "tcp", True),
        ("efa", None, None, "efa", False),
        ("Ethernet", None, None, "roce", False),
        ("tcp", None, None, "tcp", False),
    ],
)
def test_words_of_a_network(word, nics, rate, fabric, measured):
    network = parse_network(word)
    assert (network.nics, network.fabric, network.measured) == (nics, fabric, measured)
    assert network.nic_rate == (None if rate is None else pytest.approx(rate))


@pytest.mark.parametrize(
    "word", ["pigeon", "100", "100GbE-pigeon", "0G", "0x100G", "x400G", "12GB", "-5G", "1.2.3G"]
)
def test_unknown_words_are_one_sentence_with_examples(word):
    with pytest.raises(InputError) as caught:
        cluster(network=word)
    assert str(caught.value) == f"--network {word}: not a network of a node"
    assert caught.value.hint.startswith("for example 100GbE, 25GbE-tcp, 8x400G-ib")
    assert caught.value.field == "network"


def test_the_rate_of_a_node_is_shared_by_its_accelerators():
    assert cluster(network="100GbE").scale_out_bandwidth == 12.5e9 / 8
    assert cluster(network="100GbE", node=4).scale_out_bandwidth == 12.5e9 / 4
    assert cluster(node=4).scale_out_bandwidth == 50e9


def test_what_a_cluster_has_changes_nothing():
    same, plain = cluster(network="8x400G-ib"), cluster()
    assert same.scale_out_bandwidth == plain.scale_out_bandwidth
    assert same.fabric.rail_scaling == pytest.approx(plain.fabric.rail_scaling)
    assert plain.fabric == msgspec.structs.replace(
        same.fabric, rail_scaling=plain.fabric.rail_scaling
    )
    assert same.network_watts == pytest.approx(plain.network_watts, rel=0.01)


@pytest.mark.parametrize("node", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("word", ["100GbE", "2x100GbE", "4x200G-ib"])
def test_a_network_per_node_stays_one_whatever_the_node_is(word, node):
    one = cluster(network=word, node=node)
    links = Links(
        scale_up=450e9,
        scale_out=one.scale_out_bandwidth * one.fabric.efficiency,
        hop_seconds=0.0,
        call_seconds=0.0,
        rail_scaling=one.fabric.rail_scaling,
    )
    network = parse_network(word)
    rails = min(network.nics, node) ** (load_fabric(network.fabric).rail_scaling - 1.0)
    expected = network.nics * network.nic_rate * one.fabric.efficiency * rails
    if node > 1:
        assert wire_rate(placement(64.0, 1.0, float(node)), links) == pytest.approx(expected)
    assert one.scale_out_bandwidth * node == pytest.approx(network.nics * network.nic_rate)


def test_one_nic_loses_nothing_and_one_each_what_was_fitted():
    fabric = load_fabric("infiniband")
    assert shared(fabric, 1, 8).rail_scaling == 1.0
    assert shared(fabric, 8, 8).rail_scaling == pytest.approx(fabric.rail_scaling)
    assert shared(fabric, 1, 1) == fabric


@pytest.mark.parametrize(
    ("word", "per_node"),
    [
        ("10GbE-tcp", 0.75e9),
        ("25GbE-tcp", 1.875e9),
        ("100GbE-tcp", 3.625e9),
        ("4x200G-tcp", 14.5e9),
        ("8x400G-tcp", 14.5e9),
        ("tcp", 14.5e9),
        ("3.19GB/s-tcp", 3.19e9),
    ],
)
def test_what_sockets_sustain(word, per_node):
    one = cluster(network=word)
    assert one.fabric.name == "tcp"
    assert one.scale_out_bandwidth * 8 * one.fabric.efficiency == pytest.approx(per_node)


def test_changes_are_said():
    found = inputs(Question(gpus=16, node=4, network="100GbE-tcp"))
    assert found.changes == (
        "--node 4 (was 8)",
        "--network 100GbE-tcp (sustains 3.62 GB/s per node of 4 over tcp)",
    )
    assert (found.cluster.nodes, found.question.node, found.question.network) == (
        4, 4, "100GbE-tcp",
    )  # fmt: skip


def test_the_filled_question_with_a_network_gives_the_same_answer():
    words = {"node": "4", "network": "2x100GbE", "strategy": "fsdp16-mb1", "gpus": 16}
    first = resolve(Question(model="llama-2-7b", on="dgx-a100", **words))
    assert resolve(first.question).estimate().terms == first.estimate().terms


def test_chips_without_a_network_get_one():
    assert cluster("rtx-4090", network="25GbE").scale_out_bandwidth == 3.125e9 / 8
    with pytest.raises(InputError, match="network rate of rtx-4090 is unknown") as caught:
        cluster("rtx-4090", network="tcp")
    assert caught.value.hint == "say it: 100GbE-tcp"
    with pytest.raises(InputError, match="network rate is unknown") as caught:
        cluster("rtx-4090")
    assert caught.value.hint.startswith("say --network 100GbE")


def test_objects_take_a_network_too():
    machine = load_cluster("dgx-h100", accelerators=64)
    found = inputs(Question(node=4, network="100GbE"), Objects(cluster=machine))
    assert (found.cluster.nodes, found.cluster.scale_out_bandwidth) == (16, 3.125e9)


def test_an_override_has_the_last_word():
    changed = cluster(network="100GbE", sets=("cluster.scale_out_bandwidth=1GB/s",))
    assert (changed.scale_out_bandwidth, changed.fabric.name) == (1e9, "roce")


@pytest.mark.parametrize("word", ["0", "-1", "none"])
def test_a_node_is_a_count(word):
    with pytest.raises(InputError) as caught:
        cluster(node=word)
    assert caught.value.field == "node"


def test_a_slower_network_is_never_faster():
    def step(word):
        asked = Question(model="llama-2-7b", gpus=32, strategy="fsdp32-mb1", network=word)
        return float(resolve(asked).estimate().step_seconds)

    times = [step(word) for word in ("8x400G-ib", "4x100GbE", "100GbE", "100GbE-tcp", "10GbE-tcp")]
    assert times == sorted(times)
    assert times[0] < times[2] < times[-1]


def test_two_devices_of_one_package_are_noted():
    note = "one mi250x is two devices to the software: mi250x-gcd counts those"
    assert inputs(Question(on="mi250x")).notes == (note,)
    assert inputs(Question(on="mi250x-gcd")).notes == ()


@pytest.mark.parametrize(
    ("word", "name"),
    [
        ("a10", "a10"), ("A10G", "a10g"), ("t4", "t4"), ("4090", "rtx-4090"),
        ("rtx 4090", "rtx-4090"), ("RTX 6000 Ada", "rtx-6000-ada"), ("h100 pcie", "h100-pcie-80gb"),
        ("h100 nvl", "h100-nvl-94gb"), ("l40", "l40"), ("p5e", "aws-p5e"), ("g5", "aws-g5"),
        ("a2-highgpu", "gcp-a2-high"), ("ND H100 v5", "azure-nd-h100-v5"),
        ("BM.GPU.A100-v2.8", "oci-a100"), ("8x 4090", "8x-rtx-4090"),
    ],
)  # fmt: skip
def test_hardware_in_a_word(word, name):
    assert inputs(Question(on=word)).cluster.name == name


def test_unknown_hardware_lists_the_nearest():
    with pytest.raises(InputError, match="unknown cluster or accelerator `a11`") as caught:
        cluster("a11")
    assert "`a10`" in caught.value.hint


def test_files_of_a_chip_and_of_a_cluster_are_hardware(tmp_path):
    chip, pod = tmp_path / "chip.toml", tmp_path / "pod.toml"
    chip.write_text(
        'vendor = "Toys"\narchitecture = "toy"\nkind = "gpu"\nmemory_bytes = "16GB"\n'
        'memory_bandwidth = "1TB/s"\nscale_up_name = "string"\nscale_up_domain = 4\n'
        'scale_up_bandwidth = "100GB/s"\n[peak_flops]\nbf16 = "100TFLOP/s"\n'
    )
    pod.write_text('accelerator = "chip.toml"\nscale_out_bandwidth = "100Gbit/s"\n')
    assert cluster(str(chip), network="2x100GbE").scale_out_bandwidth == 6.25e9
    assert cluster(str(pod)).scale_out_bandwidth == 12.5e9
    assert cluster(str(pod), node=2, network="40GbE-tcp").fabric.name == "tcp"
