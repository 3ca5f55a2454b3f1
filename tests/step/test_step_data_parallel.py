"""Data parallelism: what travels, what hides, by hand."""

import numpy as np
import pytest

from scalewise.physics.collectives import all_reduce_seconds, gather_seconds
from scalewise.step.data_parallel import block_traffic, hidden_behind, overlapped, step_load
from scalewise.step.groups import gradient_group, links, replica_group, shard_group
from toys import EDGE_PARAMS, LAYER_PARAMS, case_of, one, toy_cluster, toy_model, toy_stack


def gather(case, size, group=shard_group):
    return one(gather_seconds(np.array([float(size)]), group(case), links(case)))


def reduce(case, size, group):
    return one(all_reduce_seconds(np.array([float(size)]), group(case), links(case)))


@pytest.mark.parametrize(
    ("spelling", "communication", "expected"),
    [
        ("fsdp8", 0.0, 10.0),
        ("fsdp8", 4.0, 12.0),  # half of what hides slows the compute
        ("fsdp8", 10.0, 15.0),
        ("fsdp8", 14.0, 15.0),
        ("fsdp8", 30.0, 30.0),  # more communication than compute
        ("fsdp8-pf0", 4.0, 14.0),
        ("fsdp8-nodpoverlap", 4.0, 14.0),
        ("fsdp8-nodpoverlap", 30.0, 40.0),
    ],
)
def test_overlap(spelling, communication, expected):
    case = case_of(spelling)  # contention 0.5
    assert one(overlapped(case, np.array([10.0]), np.array([communication]))) == expected


def test_fully_sharded_traffic_of_a_layer():
    case = case_of("fsdp8")
    traffic = block_traffic(case)
    weights, gradients = gather(case, 2 * LAYER_PARAMS), gather(case, 4 * LAYER_PARAMS)
    assert one(traffic.gather) == pytest.approx(weights, rel=1e-12)
    assert one(traffic.reduce) == pytest.approx(gradients, rel=1e-12)
    assert one(traffic.forward) == pytest.approx(weights, rel=1e-12)
    assert one(traffic.backward) == pytest.approx(weights + gradients, rel=1e-12)


@pytest.mark.parametrize(("tied", "tables"), [(True, 1), (False, 2)])
def test_the_root_holds_what_no_layer_does(tied, tables):
    case = case_of("fsdp8", model=toy_model(tied=tied))
    traffic = block_traffic(case)
    weights, gradients = (
        gather(case, 2 * tables * EDGE_PARAMS),
        gather(case, 4 * tables * EDGE_PARAMS),
    )
    assert one(traffic.root_gather) == pytest.approx(weights, rel=1e-12)
    assert one(traffic.root_reduce) == pytest.approx(gradients, rel=1e-12)


def test_the_root_is_reduced_between_replicas_too():
    case = case_of("hsdp2x4")
    gradients = 4 * 2 * EDGE_PARAMS
    expected = gather(case, gradients) + reduce(case, gradients / 4, replica_group)
    assert one(block_traffic(case).root_reduce) == pytest.approx(expected, rel=1e-12)


def test_resharding_gathers_twice():
    traffic = block_traffic(case_of("fsdp8", "fsdp8-noreshard"))
    again, kept = np.asarray(traffic.backward)
    assert again - kept == pytest.approx(np.asarray(traffic.gather)[0], rel=1e-9)


def test_reduce_precision_halves_the_bytes():
    case = case_of("fsdp8-reducebf16")
    assert one(block_traffic(case).reduce) == pytest.approx(gather(case, 2 * LAYER_PARAMS))


def test_tensor_parallelism_splits_the_buffers():
    case = case_of("fsdp4-tp2")
    assert one(block_traffic(case).gather) == pytest.approx(gather(case, LAYER_PARAMS))


def test_hybrid_sharding_reduces_between_replicas():
    case = case_of("hsdp2x4")
    expected = gather(case, 4 * LAYER_PARAMS) + reduce(case, LAYER_PARAMS, replica_group)
    assert one(block_traffic(case).reduce) == pytest.approx(expected, rel=1e-12)


def test_reduction_once_per_step_is_spread_over_micro_steps():
    # 16 sequences on 2 ranks: 8 micro steps.
    every = block_traffic(case_of("fsdp2"))
    once = block_traffic(case_of("fsdp2", stack=toy_stack(reduce_every_micro_step=False)))
    assert one(once.reduce) == pytest.approx(one(every.reduce) / 8, rel=1e-12)
    assert one(once.gather) == one(every.gather)


@pytest.mark.parametrize("spelling", ["ddp8", "zero1x8"])
def test_others_move_nothing_in_a_micro_step(spelling):
    traffic = block_traffic(case_of(spelling))
    assert one(traffic.forward) == one(traffic.backward) == 0.0
    assert one(traffic.root_gather) == one(traffic.root_reduce) == 0.0


def test_zero2_reduces_but_never_gathers_in_a_micro_step():
    traffic = block_traffic(case_of("zero2x8"))
    assert one(traffic.gather) == one(traffic.forward) == 0.0
    assert one(traffic.backward) == one(traffic.reduce) > 0.0


def test_buckets_of_a_data_parallel_step():
    # 100 million gradients of 4 bytes: 16 buckets of 25 MB, each an all-reduce over 8 ranks.
    case = case_of("ddp8")
    load = 16 * reduce(case, 25e6, gradient_group)
    traffic = hidden_behind(case, step_load(case, np.array([100e6])), np.array([1e9]))
    assert one(traffic.load) == pytest.approx(load, rel=1e-12)
    # Half of it may hide, if there is a backward to hide behind.
    assert one(traffic.exposed) == pytest.approx(load / 2, rel=1e-12)
    short = hidden_behind(case, step_load(case, np.array([100e6])), np.array([load / 8]))
    assert one(short.exposed) == pytest.approx(load * 7 / 8, rel=1e-12)
    never = hidden_behind(
        case_of("ddp8-nodpoverlap"),
        step_load(case_of("ddp8-nodpoverlap"), np.array([100e6])),
        np.array([1e9]),
    )
    assert one(never.exposed) == one(never.load) == pytest.approx(load, rel=1e-12)


def test_buckets_may_grow_with_ranks():
    case = case_of("ddp8", stack=toy_stack(bucket_bytes_per_rank=12.5e6))
    traffic = hidden_behind(case, step_load(case, np.array([100e6])), np.array([0.0]))
    assert one(traffic.load) == pytest.approx(4 * reduce(case, 100e6, gradient_group), rel=1e-12)


def test_zero1_scatters_reduces_and_gathers():
    case = case_of("zero1x2x4")
    # 400 MB of gradients and 200 MB of weights, in buckets of 25 MB.
    load = 16 * (gather(case, 25e6) + reduce(case, 25e6 / 4, replica_group))
    load = load + 8 * gather(case, 25e6)
    traffic = hidden_behind(case, step_load(case, np.array([100e6])), np.array([1e9]))
    assert one(traffic.load) == pytest.approx(load, rel=1e-12)
    assert one(traffic.exposed) == pytest.approx(0.75 * load, rel=1e-12)


def test_fully_sharded_owes_nothing_at_the_end():
    traffic = hidden_behind(
        case_of("fsdp8"), step_load(case_of("fsdp8"), np.array([100e6])), np.array([0.0])
    )
    assert [one(traffic.load), one(traffic.exposed)] == [0.0, 0.0]


def test_a_group_inside_a_domain_does_not_touch_the_network():
    slow = toy_cluster(8, scale_out_bandwidth=1.0)
    inside = block_traffic(case_of("hsdp2x4", cluster=slow))
    assert one(inside.gather) < 1e-3
    across = block_traffic(case_of("fsdp8", cluster=slow))
    assert one(across.gather) > 1e6
