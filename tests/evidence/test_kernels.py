"""Published kernel timings against the physics, and the shares of peak they imply."""

import msgspec
import numpy as np
import pytest

from scalewise.errors import InputError
from scalewise.evidence.kernels import KernelsFit, predict_gemm, predict_kernels, read_kernels


@pytest.fixture(scope="module")
def shipped():
    return read_kernels()


@pytest.fixture(scope="module")
def fitted(shipped):
    return KernelsFit().fit(shipped[0])


def by_name(rows, name):
    return next(r for r in rows if r.name == name)


def test_every_row_of_the_shipped_table_is_read_or_accounted_for(shipped):
    rows, skipped = shipped
    assert len(rows) == 279
    assert skipped == {
        "kernel not modeled": 61,
        "attention without causality, direction or heads, or not in 16 bits": 9,
        "no shape or no rate": 1,
    }
    assert len(rows) + sum(skipped.values()) == 350


def test_rows_say_what_the_table_says(shipped):
    cube = by_name(shipped[0], "k0021")
    assert (cube.architecture, cube.precision, cube.m, cube.units) == (
        "ampere",
        "bf16",
        16384.0,
        108,
    )
    assert cube.work / cube.seconds == pytest.approx(256.5e12)
    # 32 x 16 heads of 128 over 512 tokens, causal: 2 b h s^2 d FLOP forward, 2.5 x that backward.
    short = by_name(shipped[0], "k0231")
    assert short.work == pytest.approx(3.5 * 2 * 32 * 16 * 512**2 * 128)
    assert (short.kernel, short.direction, short.causal, short.head) == (
        "flash2",
        "fwd+bwd",
        True,
        128,
    )
    # The same die as H100.
    assert by_name(shipped[0], "k0086").peak == 1979e12


def test_large_products_run_at_the_share_that_is_given(shipped):
    cube = by_name(shipped[0], "k0021")
    seconds = predict_gemm([cube], 0.82)[0]
    assert cube.work / seconds == pytest.approx(256.5e12, rel=0.02)
    half = predict_gemm([cube], 0.41)[0]
    assert half == pytest.approx(2 * seconds, rel=0.01)
    # fp8 operands of a thin product: 64 rows are bound by reading 117 MB of weights.
    thin = by_name(shipped[0], "k0073")
    assert predict_gemm([thin], 0.7)[0] == pytest.approx(thin.seconds, rel=0.1)


def test_attention_loses_most_on_short_sequences(shipped):
    # cuDNN causal forward on H100: 315 TFLOP/s at 512 tokens, 539 at 16k.
    short, long = by_name(shipped[0], "k0279"), by_name(shipped[0], "k0284")
    constants = {("chip", "hopper", "attention.cudnn.forward"): 0.57}
    seconds = predict_kernels([short, long], constants)
    assert short.work / seconds[0] == pytest.approx(315e12, rel=0.02)
    assert long.work / seconds[1] == pytest.approx(539e12, rel=0.03)


def test_forward_and_backward_add_up(shipped):
    both = by_name(shipped[0], "k0236")
    constants = {
        ("chip", "hopper", "attention.flash2.forward"): 0.4,
        ("chip", "hopper", "attention.flash2.backward_ratio"): 0.5,
    }
    ramp = 1 + 400 / 16384
    flops = both.work / 3.5
    expected = ramp * (flops / (0.4 * 989e12) + 2.5 * flops / (0.2 * 989e12))
    assert predict_kernels([both], constants)[0] == pytest.approx(expected)


def test_stream_is_a_share_of_the_datasheet(shipped):
    triad = by_name(shipped[0], "k0046")
    constants = {("chip", "hopper", "memory_efficiency"): 2970 / 3350}
    assert predict_kernels([triad], constants)[0] == pytest.approx(triad.seconds)


def test_a_fit_finds_the_shares_that_made_the_rows(shipped):
    world = {
        ("chip", "ampere", "gemm.bf16"): 0.9,
        ("chip", "ampere", "memory_efficiency"): 0.75,
        ("chip", "hopper", "gemm.bf16"): 0.55,
        ("chip", "hopper", "gemm.fp8"): 0.8,
        ("chip", "hopper", "attention.flash2.forward"): 0.5,
        ("chip", "hopper", "attention.cudnn.forward"): 0.7,
    }
    seconds = predict_kernels(shipped[0], world)
    rows = [
        msgspec.structs.replace(r, seconds=float(t))
        for r, t in zip(shipped[0], seconds, strict=True)
    ]
    fit = KernelsFit().fit(rows)
    for key, value in world.items():
        assert fit.values_[key] == pytest.approx(value, rel=0.04), key
        assert fit.identified_[key], key
    assert np.median(np.abs(fit.residuals_)) < 0.02


def test_published_products(fitted):
    values = fitted.values_
    assert values["chip", "ampere", "gemm.bf16"] == pytest.approx(0.79, abs=0.03)
    assert values["chip", "hopper", "gemm.bf16"] == pytest.approx(0.77, abs=0.04)
    assert values["chip", "hopper", "gemm.fp8"] == pytest.approx(0.695, abs=0.02)
    # No ordinary product beats the best shape that a search found.
    for key in (("chip", "ampere", "gemm.bf16"), ("chip", "hopper", "gemm.fp8")):
        assert values[key] < fitted.upper_[key]
    assert fitted.upper_["chip", "cdna4", "gemm.bf16"] == pytest.approx(0.64, abs=0.02)
    assert ("chip", "cdna4", "gemm.bf16") not in values


def test_published_attention(fitted):
    assert fitted.attention_["hopper", "flash2"] == pytest.approx((0.353, 0.312), abs=0.01)
    assert fitted.attention_["hopper", "cudnn"] == pytest.approx((0.575, 0.545), abs=0.015)
    assert fitted.attention_["ampere", "flash2"] == pytest.approx((0.64, 0.58), abs=0.03)
    # Both directions were only timed together on A100: their ratio is the prior's.
    assert not fitted.identified_["chip", "ampere", "attention.flash2.backward_ratio"]


def test_causal_rows_are_preferred_and_the_exception_is_named(fitted):
    assert fitted.non_causal_ == [("chip", "hopper", "attention.cudnn.backward_ratio")]
    attention = [r for r in fitted.rows_ if r.kind == "attention"]
    assert {r.head for r in attention} == {128}
    assert {(r.kernel, r.direction) for r in attention if not r.causal} == {("cudnn", "bwd")}


def test_published_memory(fitted):
    assert fitted.values_["chip", "ampere", "memory_efficiency"] == pytest.approx(0.84, abs=0.02)
    assert fitted.values_["chip", "hopper", "memory_efficiency"] == pytest.approx(0.87, abs=0.02)


def test_errors_by_group(fitted):
    before, after = fitted.before_, fitted.after_
    assert before["all"].rows == 279
    assert after["all"].median < 0.7 * before["all"].median
    for group in (
        "ampere flash2 fwd+bwd causal 128",
        "hopper cudnn fwd causal 128",
        "hopper flash2 fwd causal 128",
        "hopper flash2 fwd+bwd causal 128",
        "hopper gemm fp8 (cuBLASLt CUDA 12.6)",
    ):
        assert after[group].median < 0.04, group


def test_bad_tables_are_told_not_crashed_on(tmp_path, shipped):
    with pytest.raises(InputError, match="cannot be read"):
        read_kernels(tmp_path / "absent.csv")
    table = tmp_path / "mine.csv"
    table.write_text(
        "accelerator,kernel,dtype,m,n,k,tflops\n"
        "h100-sxm-80gb,gemm,bf16,4096,4096,4096,700\n"
        "h100-sxm-80gb,gemm,bf16,4096,4096,wide,700\n"
        "h100-sxm-80gb,gemm,fp3,4096,4096,4096,700\n"
        "h100-sxm-80gb,softmax,bf16,4096,4096,4096,700\n"
    )
    rows, skipped = read_kernels(table)
    assert [r.seconds for r in rows] == [pytest.approx(2 * 4096**3 / 700e12)]
    assert skipped == {
        "a number cannot be read": 1,
        "unknown precision": 1,
        "kernel not modeled": 1,
    }
    searches = [r for r in shipped[0] if r.kind == "search"]
    with pytest.raises(InputError, match="no kernel timing"):
        KernelsFit().fit(searches)
