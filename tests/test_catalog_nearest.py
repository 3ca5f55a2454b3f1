"""The nearest known accelerator of a name that the catalog lacks."""

import csv

import pytest

from scalewise.catalog import PACKAGE, knows
from scalewise.catalog.nearest import nearest_accelerator


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("h100-sxm-94gb", "h100-sxm-80gb"),
        ("h100-nvl-96gb", "h100-nvl-94gb"),
        ("h100-pcie-96gb", "h100-pcie-80gb"),
        ("NVIDIA A100 PCIe 96GB", "a100-pcie-80gb"),
        ("a100", "a100-sxm-80gb"),
        ("gh200-144gb", "gh200-96gb"),
        ("a800-pcie-80gb", "a800-sxm-80gb"),
        ("rtx-4080", "rtx-4090"),
        ("mi308x", "mi300x"),
        ("tpu-v6p", "tpu-v5p"),
    ],
)
def test_the_family_decides_before_form_and_memory(name, nearest):
    chip, note = nearest_accelerator(name)
    assert chip.name == nearest
    known = f"accelerator {name} is not in the catalog: {nearest} assumed"
    assert note == ("" if knows("accelerators", name) else known)


def test_every_accelerator_of_the_shipped_runs_is_known():
    with (PACKAGE / "runs" / "runs.csv").open(encoding="utf-8") as file:
        used = {row["accelerator"] for row in csv.DictReader(file)}
    assert [name for name in sorted(used) if not knows("accelerators", name)] == []
