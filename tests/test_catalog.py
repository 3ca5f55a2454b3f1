"""The catalog: every shipped file loads, names are found, wrong files are explained."""

import math
import os
import re
import subprocess
import sys

import msgspec
import pytest

from scalewise import catalog
from scalewise.catalog import (
    load,
    load_accelerator,
    load_cluster,
    load_fabric,
    names,
    typical_cluster,
)
from scalewise.chip import load_chip
from scalewise.errors import InputError
from scalewise.fields import replace
from scalewise.stack import load_stack

CHIP = """
vendor = "Toys"
architecture = "toy"
kind = "gpu"
memory_bytes = "16GB"
memory_bandwidth = "1TB/s"
scale_up_name = "string"
scale_up_domain = 4
scale_up_bandwidth = "100GB/s"
aliases = ["Bear"]
[peak_flops]
bf16 = "100TFLOP/s"
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A catalog folder of the user's own, with a function that writes into it."""
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))

    def write(kind, name, text):
        folder = tmp_path / kind
        folder.mkdir(exist_ok=True)
        path = folder / f"{name}.toml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize("name", names("accelerators"))
def test_every_accelerator_loads(name):
    chip = load_accelerator(name)
    assert chip.name == name
    assert chip.source
    # Dense peaks lie between a T4 in fp32 and the next few generations; a wrong prefix does not.
    assert all(8e12 < peak < 20e15 for peak in chip.peak_flops.values())
    assert 15 * 2**30 <= chip.memory_bytes < 300 * 2**30
    assert 300e9 <= chip.memory_bandwidth < 10e12
    assert chip.scale_up_bandwidth is not None
    assert 15e9 <= chip.scale_up_bandwidth <= 900e9
    if chip.scale_out_bandwidth is not None:
        assert chip.scale_out_bandwidth < chip.scale_up_bandwidth


@pytest.mark.parametrize("name", names("fabrics"))
def test_every_fabric_loads(name):
    fabric = load_fabric(name)
    assert fabric.source
    assert fabric.hop_seconds < 100e-6


@pytest.mark.parametrize("name", names("clusters"))
def test_every_cluster_loads(name):
    # A box has as many accelerators as its name says, and no network of its own.
    box = re.match(r"(\d+)x-", name)
    network = {"scale_out_bandwidth": 1e9} if box else {}
    cluster = load_cluster(name, 1024, **network)
    assert (cluster.name, cluster.accelerators) == (name, 1024)
    assert cluster.source
    assert cluster.scale_out_bandwidth < cluster.scale_up_bandwidth
    node = int(box[1]) if box else cluster.accelerator.scale_up_domain
    assert cluster.scale_up_domain == node
    assert 1 <= load_cluster(name).accelerators <= 256


def test_files_are_ascii_and_aliases_belong_to_one_file():
    for kind in ("accelerators", "clusters", "fabrics"):
        seen = {}
        for path in sorted((catalog.PACKAGE / kind).glob("*.toml")):
            path.read_bytes().decode("ascii")
            for alias in [path.stem, *catalog._read(path).get("aliases", [])]:
                assert seen.setdefault(alias, path.name) == path.name
                assert catalog.find(kind, alias) == path


def test_h100_in_numbers():
    chip = load_accelerator("h100-sxm-80gb")
    assert chip.peak_flops == {
        "fp32": 67e12,
        "tf32": 494.5e12,
        "bf16": 989e12,
        "fp16": 989e12,
        "fp8": 1979e12,
    }
    assert chip.memory_bytes == 81559 * 2**20
    assert chip.memory_bandwidth == 3.35e12
    assert (chip.scale_up_bandwidth, chip.scale_out_bandwidth) == (450e9, 50e9)
    assert (chip.tdp_watts, chip.idle_watts) == (700, 70)
    assert (chip.compute_units, chip.boost_hz) == (132, 1.83e9)
    assert (chip.usd_per_hour_low, chip.usd_per_hour, chip.usd_per_hour_high) == (1.99, 2.95, 5)
    assert (chip.vendor, chip.architecture, chip.kind) == ("NVIDIA", "hopper", "gpu")


def test_dgx_h100_in_numbers():
    cluster = load_cluster("dgx-h100", 2048)
    assert (cluster.accelerators, cluster.scale_up_domain, cluster.nodes) == (2048, 8, 256)
    assert (cluster.scale_up_bandwidth, cluster.scale_out_bandwidth) == (450e9, 50e9)
    assert (cluster.fabric.hop_seconds, cluster.fabric.efficiency) == (2.9e-6, 0.96)
    assert (cluster.host, cluster.host_watts, cluster.network_watts) == ("intel", 340, 116)
    assert (cluster.pue, cluster.usd_per_hour) == (1.15, 2.95)
    assert (cluster.power_limit, cluster.idle) == (700, 70)
    assert cluster.assumed == []


@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("aws-p4d", 6.25e9),
        ("p5", 50e9),
        ("p5e", 50e9),
        ("g4dn", 1.5625e9),
        ("g5.48xlarge", 1.5625e9),
        ("g6", 1.5625e9),
        ("g6e", 6.25e9),
        ("a2-highgpu-8g", 1.5625e9),
        ("a2-ultragpu", 1.5625e9),
        ("a3-highgpu", 12.5e9),
        ("gcp-a3-mega", 25e9),
        ("a3-ultragpu", 50e9),
        ("Standard_ND96isr_H100_v5", 50e9),
        ("NDMA100v4", 25e9),
        ("BM.GPU4.8", 25e9),
        ("BM.GPU.A100-v2.8", 25e9),
        ("BM.GPU.H100.8", 50e9),
        ("BM.GPU.H200.8", 50e9),
        ("gcp-tpu-v5p", 6.25e9),
    ],
)
def test_network_rate_per_accelerator(name, rate):
    assert load_cluster(name).scale_out_bandwidth == rate


@pytest.mark.parametrize("name", ["v100", "t4"])
def test_chips_before_ampere_have_no_bf16(name):
    with pytest.raises(InputError) as caught:
        load_accelerator(name).peak("bf16")
    assert caught.value.hint == "use fp16"


def test_an_mi250x_is_two_devices():
    package, device = load_accelerator("mi250x"), load_accelerator("mi250x-gcd")
    assert package.memory_bytes == 2 * device.memory_bytes == 128 * 2**30
    assert package.peak("bf16") == 2 * device.peak("bf16")
    assert package.scale_up_bandwidth == 2 * device.scale_up_bandwidth
    assert package.scale_up_domain * 2 == device.scale_up_domain


@pytest.mark.parametrize(
    ("name", "count", "rate"),
    [
        ("8x4090", 8, 15e9),
        ("8x-rtx-4090-p2p", 8, 31e9),
        ("rtx-3090", 8, 15e9),
        ("4x-a100-pcie", 4, 31e9),
        ("4x-a100-pcie-no-p2p", 4, 15e9),
    ],
)
def test_without_peer_to_peer_bytes_go_through_the_host(name, count, rate):
    box = load_cluster(name)
    assert (box.accelerators, box.scale_up_bandwidth) == (count, rate)


def test_fields_of_a_cluster_may_be_given():
    cluster = load_cluster("dgx-h100", 16, scale_up_domain=4, scale_out_bandwidth=25e9)
    assert (cluster.nodes, cluster.scale_out_bandwidth) == (4, 25e9)
    # The file's 116 W are those of another network.
    assert cluster.network_watts == pytest.approx(116.4 / 2, rel=1e-3)
    assert load_cluster("dgx-h100", 16, scale_up_domain=4).network_watts == 116
    assert load_cluster("rtx-4090", 16, scale_out_bandwidth=1e9).nodes == 2


@pytest.mark.parametrize("name", names("accelerators"))
def test_every_accelerator_has_a_16_bit_peak_and_every_gpu_its_units(name):
    chip = load_accelerator(name)
    assert {"bf16", "fp16"} & chip.peak_flops.keys()
    assert chip.kind != "gpu" or chip.compute_units


@pytest.mark.parametrize(
    ("name", "units", "peak"),
    [
        ("gb200", 148, 2.5e15),
        ("b300", 148, 2.25e15),
        ("h100-pcie", 114, 756e12),
        ("a100-64gb", 124, 358e12),
        ("h20", 78, 148e12),
        ("a10g", 80, 70e12),
        ("a10", 72, 125e12),
        ("l4", 58, 121e12),
        ("l40", 142, 181e12),
        ("rtx 6000 ada", 142, 364.2e12),
        ("5090", 170, 209.5e12),
        ("h100 nvl", 132, 835.5e12),
        ("mi210", 104, 181e12),
        ("mi250x-gcd", 110, 191.5e12),
        ("mi350x", 256, 2.3069e15),
        ("pvc-max1550-tile", 56, 298e12),
    ],
)
def test_units_and_peaks(name, units, peak):
    chip = load_accelerator(name)
    assert (chip.compute_units, chip.peak("bf16")) == (units, peak)


@pytest.mark.parametrize("name", ["H100", "h100", " H100 SXM 80GB ", "h100_sxm_80gb"])
def test_names_in_any_spelling(name):
    assert load_accelerator(name).name == "h100-sxm-80gb"


def test_an_accelerator_makes_a_default_cluster():
    cluster = load_cluster("a100", 64)
    assert (cluster.name, cluster.nodes, cluster.fabric.name) == ("a100-sxm-80gb", 8, "unknown")
    assert "typical figures of the accelerator a100-sxm-80gb" in cluster.notes
    assert cluster.host_watts == pytest.approx(0.42 * 400)
    assert cluster.network_watts == pytest.approx(58.2, rel=1e-3)
    assert cluster.usd_per_hour == pytest.approx((0.8 * 3) ** 0.5)
    assert len(cluster.assumed) == 3
    assert load_cluster("tpu-v5e").fabric.name == "dcn"
    assert load_cluster("a100").accelerators == 8


def test_a_default_cluster_without_network():
    alone = load_cluster("rtx-4090", 8)
    assert any("one domain only" in sentence for sentence in alone.assumed)
    with pytest.raises(InputError) as caught:
        load_cluster("rtx-4090", 16)
    assert str(caught.value) == (
        "16 x rtx-4090 span several scale-up domains of 8, but the network rate is unknown"
    )
    given = typical_cluster(
        load_accelerator("rtx-4090"), accelerators=16, scale_out_bandwidth=12.5e9
    )
    assert given.nodes == 2


def test_a_price_range_is_not_needed_where_a_price_is_given():
    assert load_cluster("aws-p4de").usd_per_hour == 3.4309
    assert load_cluster("gb200-nvl72").usd_per_hour is None


def test_a_size_must_be_whole():
    np = pytest.importorskip("numpy")
    assert load_cluster("dgx-h100", np.int64(16)).nodes == 2
    for wrong in (8.5, 0, "8"):
        with pytest.raises(InputError):
            load_cluster("dgx-h100", wrong)


def test_unknown_names_are_explained():
    with pytest.raises(InputError) as caught:
        load_accelerator("h100-sxm-80gbb")
    assert str(caught.value) == "unknown accelerator h100-sxm-80gbb"
    assert "`h100-sxm-80gb`" in caught.value.hint
    with pytest.raises(InputError) as caught:
        load_cluster("dgx-h10")
    assert str(caught.value) == "unknown cluster or accelerator dgx-h10"
    assert "`dgx-h100`" in caught.value.hint
    with pytest.raises(InputError, match=r"nowhere\.toml: no such file"):
        load_cluster("nowhere.toml")
    with pytest.raises(InputError) as caught:
        names("acelerators")
    assert "`accelerators`" in caught.value.hint


def test_own_folder_comes_first(own):
    own("accelerators", "toy", CHIP)
    own("accelerators", "h100-sxm-80gb", CHIP)
    assert load_accelerator("bear").memory_bytes == 16e9
    assert load_accelerator("h100-sxm-80gb").vendor == "Toys"
    assert "toy" in names("accelerators")
    assert "h200-sxm-141gb" in names("accelerators")
    own(
        "clusters",
        "playroom",
        'accelerator = "toy"\naccelerators = "1k"\nfabric = "roce"\n'
        'scale_out_bandwidth = "100Gbit/s"\n',
    )
    room = load_cluster("playroom")
    assert (room.nodes, room.scale_out_bandwidth, room.fabric.name) == (250, 12.5e9, "roce")


def test_a_changed_file_is_read_again(own):
    path = own("accelerators", "toy", CHIP)
    assert load_accelerator("toy").memory_bytes == 16e9
    path.write_text(CHIP.replace("16GB", "32GB"))
    os.utime(path, ns=(1, 1))
    assert load_accelerator("toy").memory_bytes == 32e9


def test_paths(tmp_path):
    (tmp_path / "toy.toml").write_text(CHIP)
    (tmp_path / "room.toml").write_text(
        'accelerator = "toy.toml"\nscale_out_bandwidth = "100Gbit/s"\n'
    )
    assert load_accelerator(str(tmp_path / "toy.toml")).name == "toy"
    room = load_cluster(str(tmp_path / "room.toml"), 8)
    assert (room.name, room.accelerator.name, room.fabric.name) == ("room", "toy", "unknown")


def test_the_file_of_an_accelerator_is_a_cluster_too(tmp_path):
    path = tmp_path / "toy.toml"
    path.write_text(CHIP)
    chip = load_cluster(str(path))
    assert (chip.name, chip.accelerators, chip.scale_up_bandwidth) == ("toy", 4, 100e9)
    assert "typical figures of the accelerator toy" in chip.notes
    path.write_text(CHIP + "fp8 = 'fast'\n")
    with pytest.raises(InputError, match=r"toy\.toml: peak_flops\.fp8: "):
        load_cluster(str(path))


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (CHIP.replace("memory_bytes", "memory_byte"), "unknown key `memory_byte`", "memory_bytes"),
        (CHIP.replace("16GB", "16GB/s"), "memory_bytes: `16GB/s` is not a size in bytes", "80GiB"),
        (
            CHIP.replace("100TFLOP/s", "fast"),
            "peak_flops.bf16: `fast` is not a value",
            "989TFLOP/s",
        ),
        (CHIP.replace("= 4", '= "four"'), "Expected `int`, got `str` - at `scale_up_domain`", None),
        (CHIP.replace('vendor = "Toys"', ""), "missing required field `vendor`", None),
        (CHIP.replace("= 4", "= 0"), "scale_up_domain = 0 must be at least 1", None),
        ("vendor = \n", "is not valid TOML: Invalid value (at line 1, column 10)", None),
    ],
)
def test_wrong_files_are_explained(own, text, message, hint):
    path = own("accelerators", "toy", text)
    with pytest.raises(InputError) as caught:
        load_accelerator("toy")
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)
    assert hint is None or hint in caught.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('fabric = "roce"\n', "missing key `accelerator`"),
        ('accelerator = "h1000"\n', "unknown accelerator h1000"),
        ("accelerator = 5\n", "must be names or paths, not 5"),
        (
            'accelerator = "h100"\npower_cap_watts = "900W"\n',
            "power_cap_watts = 900 must be at most 700",
        ),
        ('accelerator = "h100"\nhost = "sparc"\n', "at `host`"),
    ],
)
def test_wrong_cluster_files_are_explained(own, text, message):
    own("clusters", "room", text)
    with pytest.raises(InputError) as caught:
        load_cluster("room")
    assert message in str(caught.value)


def test_any_struct_can_be_loaded(own):
    class Recipe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
        name: str
        layers: int
        budget: float

    own("recipes", "cake", 'aliases = ["torte"]\nlayers = 3\nbudget = "2k"\n')
    assert load("recipes", "torte", Recipe, {"budget": "tokens"}) == Recipe(
        name="cake", layers=3, budget=2000
    )


def test_loading_needs_no_heavy_library():
    script = (
        "import sys; from scalewise.catalog import load_cluster; load_cluster('dgx-h100');"
        "sys.exit(sorted({'numpy', 'rich', 'click', 'torch'} & set(sys.modules)).__len__())"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_cluster_on_a_base(tmp_path, monkeypatch):
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    folder = tmp_path / "clusters"
    folder.mkdir()
    (folder / "pod.toml").write_text('base = "dgx-h100"\nscale_out_bandwidth = "200Gbit/s"\n')
    (folder / "next.toml").write_text('base = "pod"\naccelerator = "h200"\npue = 1.3\n')
    usual, pod, after = (load_cluster(name, 16) for name in ("dgx-h100", "pod", "next"))
    assert (pod.name, pod.scale_out_bandwidth) == ("pod", 25e9)
    assert pod.network_watts == pytest.approx(usual.network_watts / 2, rel=0.01)
    assert pod.host_memory_bytes == usual.host_memory_bytes
    assert (after.accelerator.name, after.pue, after.scale_out_bandwidth) == (
        "h200-sxm-141gb", 1.3, 25e9,
    )  # fmt: skip


def test_bases_in_a_circle_are_refused(tmp_path):
    for name, base in (("a", "b"), ("b", "a")):
        (tmp_path / f"{name}.toml").write_text(f'base = "{base}.toml"\n')
    with pytest.raises(InputError, match="leads back to this file"):
        load_cluster(str(tmp_path / "a.toml"))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ("scale_out_bandwidth = {a = 1}", "scale_out_bandwidth is a table"),
        ("accelerators = {a = 1}", "accelerators is a table"),
    ],
)
def test_a_table_instead_of_a_quantity_is_named(tmp_path, lines, sentence):
    path = tmp_path / "mine.toml"
    path.write_text(f'accelerator = "h100-sxm-80gb"\n{lines}\n')
    with pytest.raises(InputError, match=sentence):
        load_cluster(str(path))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        ('shares = ["gemm"]', "shares needs a list of constants and the name of a base"),
        ('shares = 1\nbase = "pytorch"', "shares needs a list"),
        ('shares = ["nothing"]\nbase = "pytorch"', "shares has 'nothing', which pytorch has not"),
    ],
)
def test_what_a_stack_shares_is_in_its_base(tmp_path, lines, sentence):
    folder = tmp_path / "stacks"
    folder.mkdir()
    (folder / "mine.toml").write_text(f'family = "pytorch"\n{lines}\n')
    with pytest.raises(InputError, match=sentence):
        load_stack(str(folder / "mine.toml"))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"link_efficiency": math.inf}, "link_efficiency = inf"),
        ({"memory_efficiency": -0.1}, "memory_efficiency = -0.1"),
        ({"gemm": {"bf16": math.nan}}, "gemm.bf16 = nan"),
        ({"attention": {"flash2": (0.4, math.inf)}}, "attention.flash2 = inf"),
    ],
)
def test_a_calibration_has_numbers(change, named):
    with pytest.raises(InputError, match=f"calibration hopper: {named} must be finite"):
        replace(load_chip("hopper"), **change)
