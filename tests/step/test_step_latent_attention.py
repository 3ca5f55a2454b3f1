"""Latent attention: shapes of its products, what is kept, what is recomputed."""

import pytest

from scalewise.physics.compute import gemm_seconds
from scalewise.step.kernels import attention, layer_kernels, qkv_passes
from scalewise.step.kernels import gemms as dense_gemms
from scalewise.step.latent_attention import LatentGemms, latent_gemms, shapes
from scalewise.step.memory import activation_bytes
from toys import case_of, one, toy_latent, toy_model

CHIP = {"rate": 100e12, "units": 100.0, "memory_rate": 1e12}


def products(spelling, **changes):
    rows = [each[:, 0].tolist() for each in shapes(case_of(spelling, model=toy_latent(**changes)))]
    return dict(zip(LatentGemms._fields, zip(*rows, strict=True), strict=True))


def test_shapes():
    found = products("fsdp8")
    # Eight heads: queries of 96, keys without positions and values of 64 each.
    assert found["query_down"] == (1000, 256, 1024)
    assert found["kv_down"] == (1000, 128 + 32, 1024)
    assert found["query_up"] == (1000, 8 * 96, 256)
    assert found["kv_up"] == (1000, 8 * (64 + 64), 128)
    assert found["query_up_dgrad"] == (1000, 256, 8 * 96)
    assert found["kv_up_wgrad"] == (8 * (64 + 64), 128, 1000)


def test_tensor_parallelism_splits_heads_and_leaves_latents_whole():
    found = products("fsdp2-tp4")
    # Latents of a quarter of the tokens; a quarter of the heads of all tokens.
    assert found["query_down"] == (250, 256, 1024)
    assert found["kv_down"] == (250, 160, 1024)
    assert found["query_up"] == (1000, 2 * 96, 256)
    assert found["kv_up"] == (1000, 2 * 128, 128)


def test_without_a_latent_of_queries_they_come_from_the_residual_stream():
    case = case_of("fsdp8", model=toy_latent(query_rank=0))
    t = latent_gemms(case)
    assert (one(t.query_down), one(t.query_down_dgrad), one(t.query_down_wgrad)) == (0, 0, 0)
    assert one(t.query_up) == float(gemm_seconds(1000.0, 768.0, 1024.0, **CHIP))


def test_they_take_the_place_of_the_qkv_projection():
    case = case_of("fsdp8", model=toy_latent())
    t = latent_gemms(case)
    qkv, up = qkv_passes(case, dense_gemms(case))
    assert one(qkv.forward) == pytest.approx(one(t.query_down + t.kv_down + t.query_up + t.kv_up))
    assert one(up) == one(t.query_up + t.kv_up)
    dense = case_of("fsdp8")
    assert one(qkv_passes(dense, dense_gemms(dense))[0].forward) == one(dense_gemms(dense).qkv)


def test_parameters_of_a_layer():
    # 256 (1024 + 768) + 1024 (128 + 32) + 128 x 1024 + 512 x 1024; norms of 2 x 1024, 256 and 128.
    weights = 458_752 + 163_840 + 131_072 + 524_288
    model = toy_latent()
    assert model.attention_parameters == weights + 2048 + 384


def test_scores_and_values_have_widths_of_their_own():
    # 8 heads: 96 wide scores and 64 wide values, 500 keys: 2 x 1000 x 500 x 8 x 160 FLOP.
    case = case_of("fsdp8", model=toy_latent()).changed()
    rate = one(case.sparse.latent_attention)
    forward, _ = attention(case)
    assert one(forward) == pytest.approx(2 * 1000 * 500 * 8 * 160 * 1.4 / 100e12 / rate)


def test_what_a_layer_keeps():
    # Four hidden widths, queries and keys of 768, values and output of 512, both latents, MLP.
    stored, _ = activation_bytes(case_of("fsdp8", model=toy_latent()))
    kept = 4 * 1024 + 2 * 768 + 2 * 512 + 256 + 128 + 3 * 4096
    assert one(stored) == 2 * 1000 * kept


def test_recomputing_up_projections_keeps_latents_and_output():
    case = case_of("fsdp8-aclatent", model=toy_latent())
    stored, _ = activation_bytes(case)
    assert one(stored) == 2 * 1000 * (4 * 1024 + 512 + 256 + 128 + 3 * 4096)
    t = latent_gemms(case)
    assert one(layer_kernels(case).recompute) == one(t.query_up + t.kv_up)


def test_plain_attention_has_no_up_projections_to_recompute():
    assert one(layer_kernels(case_of("fsdp8-aclatent", model=toy_model())).recompute) == 0.0
