"""Kernels of a layer and of the LM head: shapes, FLOPs and bytes by hand."""

import numpy as np
import pytest

from scalewise.physics.compute import attention_seconds, gemm_seconds
from scalewise.step.kernels import attention, gemms, layer_kernels, memory_bound
from toys import LAYER_PARAMS, case_of, one, toy_model, toy_stack


def gemm_sum(shapes, rate=100e12, element_bytes=2.0):
    """Time of GEMMs on the toy."""
    return sum(
        float(
            gemm_seconds(
                *map(float, shape),
                rate=rate,
                units=100.0,
                memory_rate=1e12,
                element_bytes=element_bytes,
            )
        )
        for shape in shapes
    )


def test_gemms_of_a_layer():
    # qkv, out, up (gated: both matrices at once), down; 1000 tokens.
    forward = [(1000, 1536, 1024), (1000, 1024, 1024), (1000, 8192, 1024), (1000, 1024, 4096)]
    inputs = [(m, k, n) for m, n, k in forward]
    weights = [(n, k, m) for m, n, k in forward]
    kernels = layer_kernels(case_of("fsdp8-mb1"))
    assert one(kernels.gemm_forward) == pytest.approx(gemm_sum(forward), rel=1e-12)
    assert one(kernels.gemm_backward) == pytest.approx(gemm_sum(inputs + weights), rel=1e-12)


def test_gemms_under_tensor_parallelism_and_eight_bits():
    # tp splits columns of qkv and up, and the depth of out and down.
    forward = [(1000, 768, 1024), (1000, 1024, 512), (1000, 4096, 1024), (1000, 1024, 2048)]
    kernels = layer_kernels(case_of("fsdp4-tp2-mb1-fp8"))
    expected = gemm_sum(forward, rate=200e12, element_bytes=1.0)
    assert one(kernels.gemm_forward) == pytest.approx(expected, rel=1e-12)


def test_attention_counts_causal_flops():
    # 4 x tokens x 500 keys x 1024; backward 2.5 x, at half the rate on this chip.
    case = case_of("fsdp8-mb1")
    forward, backward = attention(case)
    flops = 4.0 * 1000 * 500 * 1024
    assert one(forward) == pytest.approx(
        attention_seconds(flops, rate=100e12, seq_len=1000.0), rel=1e-12
    )
    assert one(backward) == pytest.approx(one(forward) * 2.5 * 2.0, rel=1e-12)


def test_ring_context_parallelism_works_on_shorter_pieces():
    case = case_of("fsdp4-cp2", "fsdp4-cp2ag")
    forward, _ = attention(case)
    flops = 4.0 * 500 * 500 * 1024
    for row, piece in enumerate((500.0, 1000.0)):
        expected = attention_seconds(flops, rate=100e12, seq_len=piece)
        assert np.asarray(forward)[row] == pytest.approx(expected, rel=1e-12)


def test_unfused_attention_computes_the_square_and_moves_the_scores():
    fused = case_of("fsdp8-mb1")
    unfused = case_of("fsdp8-mb1", stack=toy_stack(attention_kernel="unfused"))
    scores = 1000 * 1000 * 8
    for before, after, moved in zip(
        attention(fused), attention(unfused), (11.0, 17.0), strict=True
    ):
        assert one(after) == pytest.approx(2.0 * one(before) + moved * scores / 1e12, rel=1e-12)


def test_bytes_through_memory():
    # Elements per token: norms and residuals 10 h, rotary 2 (q + kv), activation 3 ffn;
    # backward 12 h, the same, 5 ffn. Two bytes each at 1 TB/s.
    case = case_of("fsdp8-mb1")
    forward, backward = memory_bound(case)
    rotary = 2 * (1024 + 256)
    assert one(forward) == pytest.approx(2 * 1000 * (10_240 + rotary + 12_288) / 1e12, rel=1e-12)
    assert one(backward) == pytest.approx(2 * 1000 * (12_288 + rotary + 20_480) / 1e12, rel=1e-12)


def test_sequence_parallelism_splits_what_tensor_parallelism_leaves():
    case = case_of("fsdp4-tp2", "fsdp4-tp2-nosp")
    forward, _ = memory_bound(case)
    split, whole = np.asarray(forward)
    assert whole - split == pytest.approx(2 * 1000 * 5120 / 1e12, rel=1e-9)


def test_eager_kernels_of_gated_models_pass_over_memory_again():
    spelled = "fsdp4-tp2"
    plain = memory_bound(case_of(spelled))
    eager = memory_bound(case_of(spelled, stack=toy_stack(composed_kernels=True)))
    # Two RMS norms split by sequence parallelism, rotary and SwiGLU split by TP; 1000 tokens.
    more = (32 * 512 + 6 * 640 + 2 * 2048, 86 * 512 + 6 * 640 + 4 * 2048)
    for before, after, elements in zip(plain, eager, more, strict=True):
        assert one(after) - one(before) == pytest.approx(2 * 1000 * elements / 1e12, rel=1e-9)
    gelu = toy_model(gated=False)
    stacks = (toy_stack(composed_kernels=eager) for eager in (False, True))
    times = [memory_bound(case_of(spelled, model=gelu, stack=stack)) for stack in stacks]
    assert one(times[0][0]) == one(times[1][0])


def test_quantizing_costs_traffic():
    case = case_of("fsdp8-mb1", "fsdp8-mb1-fp8")
    forward, backward = (np.asarray(part) for part in memory_bound(case))
    # 4 bytes per GEMM input: 2 h + q + ffn per token, and the weights; backward the gradients.
    inputs = 1000 * (2 * 1024 + 1024 + 4096) + LAYER_PARAMS
    assert forward[1] - forward[0] == pytest.approx(4 * inputs / 1e12, rel=1e-9)
    gradients = 1000 * (1536 + 8192 + 2 * 1024)
    assert backward[1] - backward[0] == pytest.approx(4 * gradients / 1e12, rel=1e-9)


def test_attention_in_eight_bits_casts_what_it_reads():
    forward, backward = (
        np.asarray(part) for part in memory_bound(case_of("fsdp8", "fsdp8-fp8attn"))
    )
    # 3 bytes per element of queries, keys and values.
    assert forward[1] - forward[0] == pytest.approx(3 * 1000 * 1536 / 1e12, rel=1e-9)
    assert backward[1] == backward[0]
    kernels = layer_kernels(case_of("fsdp8", "fsdp8-fp8attn"))
    before, after = np.asarray(kernels.attention_forward)
    assert after == pytest.approx(before / 1.8, rel=1e-12)


def test_gathered_weights_are_quantized_by_shards():
    words = ("fsdp8-fp8", "fsdp8-fp8-gatherfp8", "zero1x8-fp8-gatherfp8", "ddp8-fp8-gatherfp8")
    forward, _ = (np.asarray(part) for part in memory_bound(case_of(*words)))
    # 4 bytes for each of an eighth of the weights, 2 to transpose each of all.
    spared = (4 - 4 / 8 - 2) * LAYER_PARAMS / 1e12
    assert (forward[0] - forward[1:]).tolist() == pytest.approx([spared, spared, 0.0], rel=1e-9)
    # Two shards: as many bytes as before.
    pair, alone = (one(memory_bound(case_of(w))[0]) for w in ("fsdp2-tp4-fp8-gatherfp8",
                                                              "fsdp2-tp4-fp8"))  # fmt: skip
    assert pair == pytest.approx(alone, rel=1e-12)


def test_gradient_handling():
    kernels = layer_kernels(case_of("fsdp4-tp2"))
    assert one(kernels.gradient) == pytest.approx(4.0 * LAYER_PARAMS / 2 / 1e12, rel=1e-12)


def test_what_is_recomputed():
    case = case_of("fsdp8", "fsdp8-acattn", "fsdp8-acfull", "fsdp8-ac1of4")
    kernels = layer_kernels(case)
    down = gemm_sum([(1000, 1024, 4096)])
    attention_forward = np.asarray(kernels.attention_forward)[0]
    forward = np.asarray(kernels.forward)[0]
    expected = [0.0, attention_forward, forward - down, (forward - down) / 4]
    assert np.asarray(kernels.recompute).tolist() == pytest.approx(expected, rel=1e-12)
    whole = layer_kernels(case_of("fsdp8-acfull", stack=toy_stack(recompute_skips_last=False)))
    assert one(whole.recompute) == pytest.approx(forward, rel=1e-12)
    # A policy that also drops some GEMMs repeats them.
    partly = layer_kernels(
        case_of("fsdp8-acsel", stack=toy_stack(selective_share=0.25, selective="policy"))
    )
    expected_partly = attention_forward + 0.25 * (forward - attention_forward)
    assert one(partly.recompute) == pytest.approx(expected_partly, rel=1e-12)


def test_head_stays_in_sixteen_bits():
    shapes = [(1000, 32_000, 1024), (1000, 1024, 32_000), (32_000, 1024, 1000)]
    for spelling in ("fsdp8", "fsdp8-fp8"):
        kernels = layer_kernels(case_of(spelling))
        gemm = kernels.head_forward + kernels.head_backward
        assert one(gemm) == pytest.approx(gemm_sum(shapes), rel=1e-12)
        assert one(kernels.loss) == pytest.approx(10.0 * 1000 * 32_000 / 1e12, rel=1e-12)


def test_a_gated_layer_has_a_wider_up_projection():
    case = case_of("fsdp8").changed(gated=np.array([0.0]))
    forward = [(1000, 1536, 1024), (1000, 1024, 1024), (1000, 4096, 1024), (1000, 1024, 4096)]
    assert one(layer_kernels(case).gemm_forward) == pytest.approx(gemm_sum(forward), rel=1e-12)


def test_gemms_by_name():
    # dgrad of (tokens x columns x depth) is (tokens x depth x columns), wgrad (columns x depth x
    # tokens).
    times = gemms(case_of("fsdp8-mb1"))
    for name, (m, n, k) in {
        "qkv": (1000, 1536, 1024), "out": (1000, 1024, 1024),
        "up": (1000, 8192, 1024), "down": (1000, 1024, 4096), "head": (1000, 32_000, 1024),
    }.items():  # fmt: skip
        assert one(getattr(times, name)) == pytest.approx(gemm_sum([(m, n, k)]), rel=1e-12)
        dgrad, wgrad = getattr(times, f"{name}_dgrad"), getattr(times, f"{name}_wgrad")
        assert one(dgrad) == pytest.approx(gemm_sum([(m, k, n)]), rel=1e-12)
        assert one(wgrad) == pytest.approx(gemm_sum([(n, k, m)]), rel=1e-12)


def test_sums_of_kernels():
    kernels = layer_kernels(case_of("fsdp8-acfull"))
    forward = kernels.gemm_forward + kernels.attention_forward + kernels.memory_forward
    assert one(kernels.forward) == one(forward)
    backward = kernels.gemm_backward + kernels.attention_backward + kernels.memory_backward
    # Recompute is a part of backward.
    expected = one(backward) + one(kernels.gradient) + one(kernels.recompute)
    assert one(kernels.backward) == pytest.approx(expected, rel=1e-12)
    assert one(kernels.recompute) > 0.0
    head = one(kernels.head_forward) + one(kernels.head_backward) + one(kernels.loss)
    assert one(kernels.head) == pytest.approx(head, rel=1e-12)
