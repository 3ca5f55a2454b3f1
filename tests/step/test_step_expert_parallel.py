"""Experts of a layer, number by number."""

import numpy as np
import pytest

from scalewise.physics.collectives import all_gather_seconds
from scalewise.physics.links import placement
from scalewise.step import expert_parallel as ep
from scalewise.step.kernels import gemms as dense_gemms
from scalewise.step.kernels import layer_kernels, mlp_passes
from scalewise.step.layer import host, layer_times
from toys import one, sparse_case_of, terms_of, toy_experts, toy_stack, toy_workload


@pytest.mark.parametrize(
    ("spelling", "tokens", "copies", "local", "rows"),
    [
        # 1000 tokens to two experts each; rows of an expert are copies over local experts.
        ("fsdp8", 1000, 2000, 8, 250),
        ("fsdp8-ep4", 1000, 2000, 2, 1000),
        ("fsdp8-ep8", 1000, 2000, 1, 2000),
        # Two ranks split every expert and see the tokens of both.
        ("fsdp8-ep4-etp2", 1000, 4000, 2, 2000),
        # Sequence parallelism gives each of 4 ranks a quarter of the tokens.
        ("fsdp2-tp4-ep8", 250, 500, 1, 500),
        ("fsdp2-cp4-ep8", 250, 500, 1, 500),
    ],
)
def test_tokens_of_a_rank(spelling, tokens, copies, local, rows):
    case = sparse_case_of(spelling)
    assert one(ep.tokens(case)) == tokens
    assert one(ep.copies(case)) == copies
    assert one(ep.local_experts(case)) == local
    assert one(ep.copies(case) / ep.local_experts(case)) == rows


@pytest.mark.parametrize(
    ("routing", "load"), [({}, 1.0), ({"imbalance": 1.5}, 1.5), ({"capacity": 1.25}, 1.25)]
)
def test_the_busiest_rank_computes_more(routing, load):
    case = sparse_case_of("fsdp8-ep4", workload=toy_workload(**routing))
    assert one(ep.copies(case)) == 2000 * load
    assert one(ep.exchange_bytes(case)) == 2 * 1000 * 1024 * load


def test_grouped_gemms_of_a_layer():
    # Up: 2 experts of 1000 x 4096 x 1024, as in tests of physics: 3.1 waves.
    t = ep.grouped_gemms(sparse_case_of("fsdp8-ep4"))
    wave = 65.536e-9
    assert one(t.up) == pytest.approx(wave * 3.1 * 1152 + 3e-6)
    # Down: 2 x 4 x 8 = 64 tiles are one wave, and 0.64 of one times 40 / 1024.
    assert one(t.down) == pytest.approx(wave * 1.025 * (2048 + 128) + 3e-6)
    # Its dgrad: 256 tiles of 128 x 128 in 3.1 waves beat 128 of 256 x 128 in 2.05 of twice that.
    assert one(t.down_dgrad) == pytest.approx(32.768e-9 / 0.95 * 3.1 * 1152 + 3e-6)


def test_permutation_and_activation():
    case = sparse_case_of("fsdp8-ep4")
    permute, forward, backward, casts = (one(each) for each in ep.traffic_bytes(case))
    # Six passes of NCCL's dispatcher over 2000 rows of 1024 in 16 bits; gated: 3 and 5 of 2048.
    assert permute == 2 * 6 * 2000 * 1024
    assert forward == 2 * 3 * 2000 * 2048
    assert backward == 2 * 5 * 2000 * 2048
    # Inputs of both products; output gradients of down and of both halves of up.
    assert casts == 2000 * (1024 + 2048) + 2000 * (1024 + 2 * 2048)
    fused = sparse_case_of("fsdp8-ep4", stack=toy_stack(dispatcher="deepep"))
    assert one(ep.traffic_bytes(fused)[0]) == 2 * 4 * 2000 * 1024


def test_routing_of_a_layer():
    case = sparse_case_of("fsdp8-ep4")
    router = 6 * 1000 * 1024 * 8 / 100e12 + 4 * 20 * 8000 / 1e12 + 120e-6
    kernels = ep.layer_kernels(case)
    permute, forward, backward = 24.576e6, 24.576e6, 40.96e6
    # Twice the least traffic at 1 TB/s.
    assert one(kernels.routing_forward) == pytest.approx(
        2 * (permute + forward) / 1e12 + router / 3
    )
    assert one(kernels.routing_backward) == pytest.approx(
        2 * (permute + backward) / 1e12 + 2 * router / 3
    )
    assert one(kernels.activation) == pytest.approx(2 * forward / 1e12)


def test_the_exchange_inside_a_domain_and_across():
    # 2 copies of 2.048 MB: 3 in 4 leave the rank, at half of 100 GB/s; 20 us, 1 us per peer.
    inside = sparse_case_of("fsdp8-ep4")
    assert one(ep.exchange_seconds(inside)) == pytest.approx(24e-6 + 3.072e6 / 50e9)
    # 4 in 8 through a NIC of 10 GB/s, of which 0.8 is reached.
    across = sparse_case_of("fsdp8-ep8")
    assert one(ep.exchange_seconds(across)) == pytest.approx(68e-6 + 2.048e6 / 8e9)


def test_ranks_that_split_an_expert_stand_between():
    # Domains of 4, etp 2: two ranks of the expert group in each, 2 copies of 2.048 MB, 2 in 4 out.
    case = sparse_case_of("fsdp8-ep4-etp2")
    assert one(ep.exchange_seconds(case)) == pytest.approx(64e-6 + 2.048e6 / 8e9)
    # All-gather of 4000 rows of 2 kB between two neighbors.
    assert one(ep.slice_bytes(case)) == 2 * 4000 * 1024
    pair = placement(2.0, 1.0, 4.0)
    assert one(ep.slice_seconds(case)) == one(all_gather_seconds(8.192e6, pair, case.links))
    assert one(ep.layer_seconds(case)[0]) == 2 * one(
        ep.exchange_seconds(case) + ep.slice_seconds(case)
    )


@pytest.mark.parametrize("spelling", ["fsdp8", "ddp8-mb2", "fsdp2-tp4", "fsdp4-pp2"])
def test_no_all_to_all_without_expert_parallelism(spelling):
    case = sparse_case_of(spelling)
    own = layer_times(case)
    assert [one(x) for x in (own.ep_forward, own.ep_backward)] == [0.0, 0.0]
    assert terms_of(case)["expert_parallel"] == 0.0


def test_two_exchanges_forward_and_again_backward_and_under_recompute():
    seconds = 2 * (24e-6 + 3.072e6 / 50e9)
    for spelling, backward in (("", 1.0), ("-acfull", 2.0), ("-ac1of4", 1.25), ("-acattn", 1.0)):
        own = layer_times(sparse_case_of(f"fsdp8-ep4{spelling}"))
        assert one(own.ep_forward) == pytest.approx(seconds)
        assert one(own.ep_backward) == pytest.approx(backward * seconds)


@pytest.mark.parametrize(
    ("spelling", "fraction"),
    [("fsdp8-ep4", 0.4), ("fsdp8-ep4-noepoverlap", 1.0), ("fsdp8-ep4-mb2", 1.0)],
)
def test_another_micro_batch_overlaps_the_exchange(spelling, fraction):
    # 16 sequences on 8 ranks: two micro-batches of 1, or one of 2.
    case = sparse_case_of(spelling, constants={"ep_overlap": 0.6})
    own = layer_times(case)
    assert one(own.ep_fraction) == pytest.approx(fraction)
    assert one(own.ep_exposed_forward) == pytest.approx(fraction * one(own.ep_forward))


def test_no_more_is_overlapped_than_there_are_kernels():
    slow = {"ep_overlap": 1.0, "inside_efficiency": 1e-3}
    own = layer_times(sparse_case_of("fsdp8-ep4", constants=slow))
    kernels = one(own.kernels.forward)
    assert one(own.ep_exposed_forward) == pytest.approx(one(own.ep_forward) - 0.9 * kernels)


def test_dense_layers_have_no_experts():
    # One of four layers is dense and spread: three quarters of everything.
    whole = sparse_case_of("fsdp8-ep4")
    mixed = sparse_case_of("fsdp8-ep4", model=toy_experts({"layers": 3}))
    assert one(mixed.split.middle_sparse) == 0.75
    for name in ("gemm_forward", "gemm_backward", "routing_forward", "routing_backward", "wgrad"):
        before, after = (one(getattr(ep.layer_kernels(each), name)) for each in (whole, mixed))
        assert after == pytest.approx(0.75 * before)
    t = dense_gemms(mixed)
    assert one(mlp_passes(mixed, t).forward) == pytest.approx(0.25 * one(t.up + t.down))


def test_shared_experts_are_a_dense_mlp_that_tp_splits():
    case = sparse_case_of("fsdp2-tp4-ep4", model=toy_experts({"shared_experts": 2}))
    assert one(case.sparse.shared_ffn) == 2 * 2048
    rows, columns, depths = ep.shared_shapes(case)
    assert [float(each[0, 0]) for each in (rows, columns, depths)] == [1000, 2 * 1024, 1024]
    assert [float(each[1, 0]) for each in (rows, columns, depths)] == [1000, 1024, 1024]
    t = ep.shared_gemms(case)
    passes = mlp_passes(case, dense_gemms(case))
    assert one(passes.forward) == pytest.approx(one(t.up + t.down))


def test_gradients_of_all_local_experts_are_handled():
    # 2 of 8 experts and the rest of the layer, 4 bytes each at 1 TB/s.
    case = sparse_case_of("fsdp8-ep4")
    params = 2_631_680 + 2 * 6_291_456
    assert one(layer_kernels(case).gradient) == pytest.approx(4 * params / 1e12)


def test_launches():
    times = {"host_attention": 2e-3, "host_routing": 5e-3, "host_expert": 1e-4}
    case = sparse_case_of("fsdp8-ep4", constants=times)
    assert one(ep.host_seconds(case)) == pytest.approx(2e-3 + 5e-3 + 2 * 1e-4)
    forward, backward = host(case)
    assert one(forward + backward) == pytest.approx(7.2e-3)
    fp8 = sparse_case_of("fsdp8-ep4-fp8", constants=times)
    assert one(ep.host_seconds(fp8)) == pytest.approx(2e-3 * np.sqrt(1.5) + 5e-3 + 1.5 * 2e-4)
