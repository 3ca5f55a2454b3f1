"""Kernels of experts: numbers by hand, and DeepGEMM's published grouped products."""

import csv
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import scalewise
from scalewise.physics.experts import derive_grouped_gemm, grouped_gemm_seconds, router_seconds

RUNS = Path(scalewise.__file__).parent / "catalog" / "runs"
CHIP = {"rate": 100e12, "units": 100.0, "memory_rate": 1e12}


def test_tiles_of_all_groups_share_waves():
    # 2 x 4 x 32 = 256 tiles of 256 x 128 on 100 units: 3 waves. Each group costs 40 rows besides,
    # 40 / 1024 of 2.56 waves. A wave takes 2 x 256 x 128 x 100 / 1e14 s per element of K.
    seconds = grouped_gemm_seconds(2.0, 1000.0, 4096.0, 1024.0, **CHIP)
    assert float(seconds) == pytest.approx(65.536e-9 * 3.1 * (1024 + 128) + 3e-6)


def test_thin_groups_are_bound_by_their_weights():
    # 8 x (16 x 1024 + 1024 x 4096) elements of 2 bytes, and 8 x 16 x 4096 results of 2.
    fast = CHIP | {"rate": 1e15}
    seconds = grouped_gemm_seconds(8.0, 16.0, 4096.0, 1024.0, **fast, launches=2.0)
    assert float(seconds) == pytest.approx(68.419584e-6 + 6e-6)


def test_narrow_operands_have_a_longer_fill():
    wide, narrow = (
        float(grouped_gemm_seconds(8.0, 4096.0, 4096.0, 1024.0, **CHIP, element_bytes=each))
        for each in (2.0, 1.0)
    )
    assert (narrow - 3e-6) / (wide - 3e-6) == pytest.approx((1024 + 450) / (1024 + 128))


sizes = st.sampled_from((1.0, 7.0, 16.0, 100.0, 128.0, 129.0, 1000.0, 5000.0))


@given(sizes, sizes, sizes, sizes, st.floats(1.0, 8.0), st.integers(0, 3))
def test_more_work_never_takes_less_time(groups, m, n, k, factor, which):
    small, large = [groups, m, n, k], [groups, m, n, k]
    large[which] *= factor
    before, after = (grouped_gemm_seconds(*each, **CHIP) for each in (small, large))
    assert float(after) >= float(before) * (1.0 - 1e-12)


@given(sizes, sizes, sizes, sizes, st.sampled_from((1.0, 2.0)))
def test_the_derivation_gives_the_time(groups, m, n, k, element_bytes):
    kinds = CHIP | {"element_bytes": element_bytes, "launches": 3.0}
    derived = derive_grouped_gemm("x", groups, m, n, k, **kinds)
    seconds = grouped_gemm_seconds(groups, m, n, k, **kinds)
    assert derived.value == pytest.approx(float(seconds), rel=1e-12)


def test_one_group_is_at_least_as_slow_as_the_same_work_in_one_product():
    from scalewise.physics.compute import gemm_seconds

    for m in (64.0, 256.0, 4096.0):
        one = gemm_seconds(m, 4096.0, 4096.0, **CHIP)
        assert float(grouped_gemm_seconds(1.0, m, 4096.0, 4096.0, **CHIP)) >= float(one)


def test_router():
    # 1000 tokens, 1024 wide, 8 experts: 49.152 MFLOP, 20 passes of 4 bytes over 8000 scores.
    seconds = router_seconds(1000.0, 1024.0, 8.0, rate=100e12, memory_rate=1e12)
    assert float(seconds) == pytest.approx(0.49152e-6 + 0.64e-6 + 120e-6)


def test_grouped_products_of_deepgemm():
    path = RUNS / "kernels.csv"
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["kernel"] == "grouped_gemm_deepgemm"]
    errors = []
    for row in rows:
        groups, m, n, k = (float(row[name]) for name in ("batch", "m", "n", "k"))
        # H800: 132 SMs; 0.72 of the peak was chosen with these rows in view.
        seconds = grouped_gemm_seconds(
            groups, m, n, k, rate=0.72 * 1979e12, units=132.0, memory_rate=0.9 * 3.35e12,
            element_bytes=1.0,
        )  # fmt: skip
        measured = 2.0 * groups * m * n * k / (1e12 * float(row["tflops"]))
        errors.append(float(seconds) / measured - 1.0)
    assert len(errors) == 10
    assert np.median(np.abs(errors)) < 0.05, errors
    assert np.max(np.abs(errors)) < 0.15, errors
