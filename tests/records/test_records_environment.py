"""Accelerators of the catalog, by the names that drivers report."""

import pytest

from scalewise.catalog import load_accelerator, names
from scalewise.records.environment import accelerator_of

REPORTED = {
    "NVIDIA A100-SXM4-40GB": "a100-sxm-40gb",
    "NVIDIA A100-SXM4-80GB": "a100-sxm-80gb",
    "Tesla V100-SXM2-32GB": "v100-sxm-32gb",
    "NVIDIA H100 80GB HBM3": "h100-sxm-80gb",
    "NVIDIA H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA H20": "h20-sxm-96gb",
    "NVIDIA H800": "h800-sxm-80gb",
    "NVIDIA A100-SXM-64GB": "a100-sxm-64gb-custom",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "NVIDIA A100X": None,
    "NVIDIA A10": "a10",
    "NVIDIA A10G": "a10g",
    "NVIDIA L4": "l4",
    "NVIDIA L40": "l40",
    "NVIDIA GH200 480GB": "gh200-96gb",
    "Intel(R) Data Center GPU Max 1550": "pvc-max1550-tile",
    "NVIDIA B200": "b200-sxm-180gb",
    "NVIDIA GB200": "gb200",
    "NVIDIA L40S": "l40s",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "AMD Instinct MI300X": "mi300x",
    "AMD Instinct MI325X": "mi325x",
    "AMD EPYC 7B13": None,
    "": None,
}


@pytest.mark.parametrize(("reported", "name"), REPORTED.items())
def test_drivers_names_are_understood(reported, name):
    assert accelerator_of(reported) == name


def test_no_two_accelerators_share_a_name_of_a_driver():
    parts = [part for name in names("accelerators") for part in load_accelerator(name).device_names]
    assert len(parts) == len(set(parts)) == 35


def test_a_chip_of_ones_own_is_found_by_its_name(tmp_path, monkeypatch):
    (tmp_path / "accelerators").mkdir()
    (tmp_path / "accelerators" / "mine.toml").write_text(
        'vendor = "me"\narchitecture = "mine"\nkind = "gpu"\ndevice_names = ["H100 80GB HBM3 X"]\n'
        'memory_bytes = "1GiB"\nmemory_bandwidth = "1GB/s"\nscale_up_name = "none"\n'
        'scale_up_domain = 1\npeak_flops = {bf16 = "1TFLOP/s"}\n'
    )
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    assert accelerator_of("NVIDIA H100 80GB HBM3 X") == "mine"
    assert accelerator_of("NVIDIA H100 80GB HBM3") == "h100-sxm-80gb"
