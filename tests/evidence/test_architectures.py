"""Priors of architectures, from the files of their accelerators."""

import pytest

from scalewise.catalog import load_accelerator, names
from scalewise.evidence.architectures import gemm_prior


@pytest.mark.parametrize(
    ("architecture", "prior"),
    [
        ("ampere", 0.869 * 0.87),
        ("hopper", 0.803 * 0.87),
        ("blackwell", 0.786 * 0.87),
        ("cdna3", 0.604 * 0.87),
        ("cdna4", 0.680 * 0.87),
        ("gaudi2", 0.969 * 0.87),
        ("gaudi3", 0.741 * 0.87),
        ("tpu-v3", 0.75),
        ("tpu-7x", 0.75),
        ("volta", 0.6),
        ("unknown", 0.6),
    ],
)
def test_priors_by_architecture(architecture, prior):
    assert gemm_prior(architecture, 0.6) == pytest.approx(prior, rel=1e-12)


def test_accelerators_of_an_architecture_agree():
    stated = {}
    for name in names("accelerators"):
        chip = load_accelerator(name)
        if chip.gemm_prior is not None:
            stated.setdefault(chip.architecture, set()).add(chip.gemm_prior)
    assert all(len(values) == 1 for values in stated.values())
    assert len(stated) == 14


@pytest.mark.parametrize(
    ("name", "fraction"),
    [("h100-sxm-80gb", 18 * 20.6 / 450), ("b200-sxm-180gb", 18 * 40.1 / 900)],
)
def test_links_in_nccls_topology_search(name, fraction):
    chip = load_accelerator(name)
    assert chip.nccl_bandwidth / chip.scale_up_bandwidth == pytest.approx(fraction, rel=1e-12)
