import numpy as np
import pytest

from scalewise.step.estimate import estimate
from scalewise.step.explain import explain
from scalewise.step.flops import recompute_flops
from scalewise.step.kernels import layer_kernels
from scalewise.step.layer import host
from scalewise.step.memory import activation_bytes
from scalewise.step.recompute import block_input, op_bytes, repeated
from scalewise.strategy import parse_strategy
from toys import case_of, one, toy_cluster, toy_model, toy_stack, toy_workload

KINDS = ("fsdp8", "fsdp8-acattn", "fsdp8-acop", "fsdp8-ac1of4", "fsdp8-acfull")

# Widths 1024, 1024, 256 and 4096: (q + kv + f) / (2 q + 2 kv + 3 f).
OP = 5376 / 14848


def test_fractions_by_kind():
    again = repeated(case_of(*KINDS))
    assert np.asarray(again.gemm).tolist() == pytest.approx([0.0, 0.0, OP, 0.25, 1.0], rel=1e-15)
    assert np.asarray(again.memory).tolist() == [0.0, 0.0, 1.0, 0.25, 1.0]
    assert np.asarray(again.attention).tolist() == [0.0, 1.0, 0.0, 0.25, 1.0]
    assert np.asarray(again.blocks).tolist() == [0.0, 0.0, 0.0, 0.25, 1.0]
    assert np.asarray(again.launches).tolist() == [0.0, 0.0, 1.0, 0.25, 1.0]


@pytest.mark.parametrize(("selective", "same"), [("attention", "acattn"), ("op", "acop")])
def test_selective_is_what_the_software_means(selective, same):
    stack = toy_stack(selective=selective)
    own, named = (case_of(f"fsdp8-{word}", stack=stack) for word in ("acsel", same))
    assert repeated(own) == repeated(named)
    assert activation_bytes(own) == activation_bytes(named)


def test_a_policy_has_constants_of_the_software():
    stack = toy_stack(selective="policy", selective_share=0.25, selective_memory=0.125)
    case = case_of("fsdp8-acsel", stack=stack)
    assert [one(part) for part in repeated(case)] == [0.25, 0.25, 1.0, 0.0, 0.0]
    stored, whole = activation_bytes(case)
    assert one(stored) == 0.125 * one(whole)


def test_time_of_every_other_matmul():
    kernels = layer_kernels(case_of("fsdp8-acop"))
    expected = OP * one(kernels.gemm_forward) + one(kernels.memory_forward)
    assert one(kernels.recompute) == pytest.approx(expected, rel=1e-14)


def test_launches_are_repeated_by_block_and_by_operator():
    stack = toy_stack(host_layer_seconds=3e-3)
    _, backward = host(case_of(*KINDS, stack=stack))
    expected = [2e-3, 2e-3, 3e-3, 2.25e-3, 3e-3]
    assert np.asarray(backward).tolist() == pytest.approx(expected, rel=1e-14)


def test_what_is_kept():
    case = case_of(*KINDS)
    stored, whole = activation_bytes(case)
    full = one(activation_bytes(case_of("fsdp8"))[0])
    assert one(block_input(case_of("fsdp8"))) == 2 * 1000 * 1024
    # 2 h + 2 q + kv + f elements of 2 bytes for 1,000 tokens.
    kept = 2 * 1000 * (2 * 1024 + 2 * 1024 + 256 + 4096)
    assert one(op_bytes(case_of("fsdp8"), 0.0)) == kept
    expected = [full, full, kept, 0.75 * full + 0.25 * 2_048_000, 2_048_000]
    assert np.asarray(stored).tolist() == pytest.approx(expected, rel=1e-15)
    assert np.asarray(whole).tolist() == [full] * 5


def test_eager_copies_are_not_kept_by_every_other_matmul():
    eager = case_of("fsdp8-acop", stack=toy_stack(activation_factor=1.5))
    assert one(activation_bytes(eager)[0]) == one(op_bytes(eager, 0.0))


def test_inputs_stay_in_sixteen_bits_where_the_software_casts_again():
    whole = one(activation_bytes(case_of("fsdp8"))[0])
    cast, kept = (
        one(activation_bytes(case_of("fsdp8-fp8", stack=toy_stack(keeps_quantized=flag)))[0])
        for flag in (True, False)
    )
    assert kept == whole
    # Half of 2 h + q + f elements of 2 bytes.
    assert cast == whole - 1000 * (2 * 1024 + 1024 + 4096)


def test_flops_that_are_repeated():
    model = toy_model()
    parts = model.forward_flops_parts(1000)
    products = parts["qkv"] + parts["attention_out"] + parts["mlp"]
    down = 2.0 * model.hidden * model.ffn * model.layers
    full = products - down + parts["attention"]
    again = recompute_flops(case_of(*KINDS), model, 1000)
    expected = [0.0, parts["attention"], OP * products, full / 4, full]
    assert np.asarray(again).tolist() == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("spelling", ["acattn", "acop", "ac1of4", "ac3of7", "acsel", "acfull"])
@pytest.mark.parametrize("skips", [True, False])
def test_derivations_are_exact(spelling, skips):
    strategy = parse_strategy(f"fsdp4-tp2-mb2-{spelling}")
    e = estimate(
        toy_model(), toy_cluster(), toy_workload(), strategy,
        stack=toy_stack(recompute_skips_last=skips),
    )  # fmt: skip
    found = {derivation.key: derivation for derivation in explain(e)}
    assert found["recompute"].value == pytest.approx(e.terms["recompute"], rel=1e-9)
    assert found["activations"].value == pytest.approx(e.memory["activations"], rel=1e-9)
