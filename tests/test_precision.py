"""Precisions: casts, scales, rates and gathers, against counts by hand and published kernels."""

import csv
import re
from pathlib import Path

import msgspec
import numpy as np
import pytest

import scalewise
from scalewise.cluster import DTYPES
from scalewise.evidence.kernels import SHIPPED, predict_gemm, read_kernels
from scalewise.precision import (
    ATTENTION_RATE,
    BLOCKWISE_RATE,
    PRECISIONS,
    RECIPES,
    quantize_bytes,
)


def test_every_precision_has_a_recipe():
    assert tuple(RECIPES) == PRECISIONS
    assert {recipe.peak for recipe in RECIPES.values()} <= set(DTYPES)
    assert {word: recipe.family for word, recipe in RECIPES.items()} == {
        "bf16": "bf16", "fp16": "bf16", "fp8": "fp8", "fp8row": "fp8", "fp8block": "fp8",
        "mxfp8": "fp8", "nvfp4": "fp4", "tf32": "tf32", "fp32": "fp32",
    }  # fmt: skip
    assert [word for word, recipe in RECIPES.items() if recipe.gathers] == ["fp8", "fp8block"]


def test_lists_of_precisions_agree():
    files = ("ui/static/controls.js", "ask/question.py", "study/files.py", "strategy.py")
    package = Path(scalewise.__file__).parent
    for name in files:
        text = (package / name).read_text(encoding="utf-8")
        found = re.search(r"\bbf16\W+fp16\W[^.\]]*?fp32", text)
        assert found, name
        words = re.findall(r"\b(?:bf16|fp16|\w*fp8\w*|nvfp4|tf32|fp32)\b", found[0])
        assert tuple(words) == PRECISIONS, name


# Transformer Engine reads 2 bytes and writes 1 along rows and 1 along columns; torchao's compiled
# code reads 2 for the largest value, then reads 2 and writes 1 for rows and for columns.
@pytest.mark.parametrize(
    ("word", "fused", "torchao"),
    [
        ("bf16", 0.0, 0.0),
        ("fp8", 4.0, 8.0),
        # No scan, but rows and columns have scales of their own: read twice.
        ("fp8row", 6.0, 8.0),
        # No scan; two scales of 4 bytes per 128 elements are written.
        ("fp8block", 4.0625, 6.0625),
        ("mxfp8", 8.0, 16.0),
    ],
)
def test_bytes_of_a_cast(word, fused, torchao):
    assert quantize_bytes(RECIPES[word], 4.0, 0.0) == fused
    assert quantize_bytes(RECIPES[word], 8.0, 2.0) == torchao


def shares(products):
    """Share of peak of each product under the law of estimates, by bisection."""
    low, high = np.full(len(products), 0.05), np.full(len(products), 2.0)
    measured = np.array([row.seconds for row in products])
    for _ in range(60):
        middle = (low + high) / 2
        slow = predict_gemm(products, middle) > measured
        low, high = np.where(slow, middle, low), np.where(slow, high, middle)
    return low


def cells():
    with SHIPPED.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_blockwise_products_against_scales_per_tensor():
    rows = [row for row in read_kernels()[0] if row.precision == "fp8"]
    deep = [row for row in rows if row.kernel == "gemm_deepgemm" and row.m >= 4096 and row.k > 1500]
    for cell in cells():
        if cell["kernel"] == "grouped_gemm_deepgemm" and float(cell["m"]) >= 4096:
            m, n, k = float(cell["m"]) * float(cell["batch"]), float(cell["n"]), float(cell["k"])
            seconds = 2.0 * m * n * k / (float(cell["tflops"]) * 1e12)
            deep.append(msgspec.structs.replace(deep[0], m=m, n=n, k=k, seconds=seconds))
    plain = [row for row in rows if "cuBLASLt" in row.software and min(row.m, row.n, row.k) >= 4096]
    assert (len(deep), len(plain)) == (9, 10)
    blockwise, per_tensor = np.median(shares(deep)), np.median(shares(plain))
    assert [blockwise, per_tensor] == pytest.approx([0.659, 0.693], abs=0.001)
    assert blockwise / per_tensor == pytest.approx(BLOCKWISE_RATE, abs=0.005)


def test_attention_in_eight_bits_against_sixteen():
    rows = [
        cell for cell in cells()
        if cell["kernel"] == "cudnn_attention" and cell["head_dim"] == "256"
        and cell["direction"] == "fwd" and cell["causal"] != "true"
    ]  # fmt: skip
    eight, sixteen = (
        {cell["seq_len"]: float(cell["tflops"]) for cell in rows if (cell["dtype"] == "fp8") is is8}
        for is8 in (True, False)
    )
    ratios = [eight[length] / sixteen[length] for length in sixteen]
    assert len(ratios) == 6
    assert [min(ratios), max(ratios)] == pytest.approx([1.46, 1.96], abs=0.005)
    assert np.median(ratios) == pytest.approx(ATTENTION_RATE, abs=0.005)
