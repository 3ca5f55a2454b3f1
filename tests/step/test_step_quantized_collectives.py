"""Quantized collectives: bytes on the wire, kernels and buffers, by hand."""

import pytest

from scalewise.physics.collectives import all_gather_seconds
from scalewise.physics.quantized import two_hop_reduce_seconds
from scalewise.step.data_parallel import expert_traffic, layer_traffic
from scalewise.step.groups import expert_shard_group, shard_group
from scalewise.step.kernels import layer_kernels
from scalewise.step.memory import peak_memory
from scalewise.step.quantized_collectives import kernels, quantizes
from toys import EDGE_PARAMS, LAYER_PARAMS, case_of, one, toy_experts, toy_workload

PACKED = 1.0 + 4.0 / 4096.0
"""Bytes of an int8 weight with its part of a scale."""


def test_weights_and_edges_are_gathered_in_int8():
    case, traffic = case_of("fsdp8-qwz"), layer_traffic(case_of("fsdp8-qwz"))
    assert one(case.split.gather_bytes) == one(case.root_gather_bytes) == PACKED
    group = shard_group(case.split)
    layer = all_gather_seconds(PACKED * LAYER_PARAMS, group, case.links)
    root = all_gather_seconds(PACKED * 2 * EDGE_PARAMS, group, case.links)
    assert one(traffic.all_gather) == pytest.approx(one(layer), rel=1e-12)
    assert one(traffic.root_all_gather) == pytest.approx(one(root), rel=1e-12)
    # Compute reads 16 bits: GEMM inputs are cast as before.
    assert not one(case.split.gathers_quantized)


def test_int8_goes_with_every_precision():
    for precision in ("bf16", "fp8", "fp8row", "mxfp8"):
        assert one(case_of(f"fsdp8-{precision}-qwz").split.gather_fits)


def test_gradients_are_reduced_in_two_hops():
    case, plain = case_of("fsdp8-qgz"), case_of("fsdp8-reducebf16")
    group = shard_group(case.split)
    layer = two_hop_reduce_seconds(LAYER_PARAMS, group, case.links)
    root = two_hop_reduce_seconds(2 * EDGE_PARAMS, group, case.links)
    traffic, before = layer_traffic(case), layer_traffic(plain)
    assert one(traffic.reduce) == pytest.approx(one(layer), rel=1e-12)
    assert one(traffic.root_reduce) == pytest.approx(one(root), rel=1e-12)
    assert one(traffic.reduce) < one(before.reduce)
    assert one(traffic.all_gather) == one(before.all_gather)
    # 7.6 MB of int4: 3/4 inside at 100 GB/s, then a quarter of it, half of which at 10 GB/s.
    sent = LAYER_PARAMS * (0.5 + 4.0 / 4096.0)
    wire = 0.75 * sent / 100e9 + sent / 4 / 2 / 10e9
    assert one(layer) - wire == pytest.approx(52e-6, rel=0.2)


def test_kernels_read_and_write_what_is_quantized():
    # 3 / 8 + 3 bytes per weight, before forward and before backward.
    gathered = (3 / 8 + 3) * LAYER_PARAMS
    found = kernels(case_of("fsdp8-qwz"))
    assert (one(found.forward), one(found.backward), one(found.gradient)) == (gathered, gathered, 0)
    assert one(kernels(case_of("fsdp8-qwz-noreshard")).backward) == 0.0
    # In backward groups of four quantize larger shards.
    assert one(kernels(case_of("fsdp8-qwz-hpz4")).backward) == (3 / 4 + 3) * LAYER_PARAMS
    # Four ranks in a domain: 3 + 5 / 4 + 2 / 8 bytes per gradient.
    assert one(kernels(case_of("fsdp8-qgz")).gradient) == 4.5 * LAYER_PARAMS
    once = case_of("fsdp8-qgz-reduceonce", workload=toy_workload(global_batch=32))
    assert one(kernels(once).gradient) == 4.5 * LAYER_PARAMS / 4


def test_kernels_are_bound_by_memory_and_never_recomputed():
    before, after = (
        layer_kernels(case_of(spelled)) for spelled in ("fsdp8-acfull", "fsdp8-acfull-qwz-qgz")
    )
    more = 3.375 * LAYER_PARAMS / 1e12
    assert one(after.memory_forward) - one(before.memory_forward) == pytest.approx(more)
    assert one(after.memory_backward) - one(before.memory_backward) == pytest.approx(more)
    assert one(after.gradient) - one(before.gradient) == pytest.approx(4.5 * LAYER_PARAMS / 1e12)
    assert one(after.recompute) == one(before.recompute)
    assert not quantizes(case_of("fsdp8").split)


def test_experts_are_quantized_over_their_own_shards():
    model = toy_experts()
    case = case_of("fsdp8-ep4-qwz-qgz", model=model)
    of_rank, group = 8 * 6_291_456 / 4, expert_shard_group(case.split)
    found = expert_traffic(case)
    gather = all_gather_seconds(PACKED * of_rank, group, case.links)
    reduce = two_hop_reduce_seconds(of_rank, group, case.links)
    assert one(found.gather) == pytest.approx(one(gather), rel=1e-12)
    assert one(found.reduce) == pytest.approx(one(reduce), rel=1e-12)
    # Two shards, one in each domain.
    dense = one(case.layer_params)
    expected = (3 / 8 + 3) * dense + (3 / 2 + 3) * of_rank
    assert one(kernels(case).forward) == pytest.approx(expected)
    assert one(kernels(case).gradient) == pytest.approx(4.5 * dense + (3 + 5 + 1) * of_rank)


def test_buffers_hold_what_arrives_and_what_compute_reads():
    def buffers(spelled):
        return one(peak_memory(case_of(spelled)).all_gather_buffers) / LAYER_PARAMS

    assert buffers("fsdp8") == 2 * 2 + 4
    assert buffers("fsdp8-qwz") == pytest.approx(2 * 2 + 4 + PACKED)
    # Local gradients have 16 bits, and leave and arrive in int4.
    assert buffers("fsdp8-qgz") == pytest.approx(2 * 2 + 2 + 2 * (0.5 + 4 / 4096))
