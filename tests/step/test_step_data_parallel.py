"""Data parallelism: what travels, what overlaps, by hand."""

from dataclasses import replace

import numpy as np
import pytest

from scalewise.model import Moe
from scalewise.physics.collectives import all_gather_seconds, all_reduce_seconds
from scalewise.step.data_parallel import (
    beside_backward,
    expert_traffic,
    exposed_last_all_reduce,
    exposed_last_reduce,
    last_reduce_overlaps,
    layer_traffic,
    overlapped,
    overlapped_backward,
)
from scalewise.step.groups import expert_shard_group, replica_group, shard_group
from toys import EDGE_PARAMS, LAYER_PARAMS, case_of, one, toy_cluster, toy_model, toy_stack


def gather(case, size, group=shard_group):
    return one(all_gather_seconds(np.array([float(size)]), group(case.split), case.links))


def reduce(case, size, group):
    return one(all_reduce_seconds(np.array([float(size)]), group(case.split), case.links))


@pytest.mark.parametrize(
    ("spelling", "communication", "expected", "exposed"),
    [
        ("fsdp8", 0.0, 10.0, 0.0),
        ("fsdp8", 4.0, 12.0, 0.0),  # half of what overlaps slows the compute
        ("fsdp8", 10.0, 15.0, 0.0),
        ("fsdp8", 14.0, 15.0, 0.0),
        ("fsdp8", 30.0, 30.0, 15.0),  # more communication than compute
        ("fsdp8-pf0", 4.0, 14.0, 4.0),
        ("fsdp8-nodpoverlap", 4.0, 14.0, 4.0),
        ("fsdp8-nodpoverlap", 30.0, 40.0, 30.0),
    ],
)
def test_overlap(spelling, communication, expected, exposed):
    case = case_of(spelling)  # contention 0.5
    ten, gather = np.array([10.0]), np.array([1.0])
    slowed, shown = overlapped(case, ten, np.array([communication]), gather)
    assert one(ten + slowed + shown) == expected
    assert one(shown) == pytest.approx(exposed)


@pytest.mark.parametrize(
    ("spelling", "expected"), [("fsdp8-pf0", 12.0), ("fsdp8-pf0-nodpoverlap", 14.0)]
)
def test_reductions_need_no_prefetch_where_backward_gathers_nothing(spelling, expected):
    ten, four, none = np.array([10.0]), np.array([4.0]), np.array([0.0])
    slowed, exposed = overlapped(case_of(spelling), ten, four, none)
    assert one(ten + slowed + exposed) == expected


def test_only_the_ends_of_a_pipeline_hold_embedding_or_head():
    # Untied: 32.8 M parameters on either end; learned positions make the first end larger.
    alone, staged = layer_traffic(case_of("fsdp8")), case_of("fsdp2-pp4")
    assert one(alone.first_all_gather) == one(alone.first_reduce) == 0.0
    assert one(alone.root_all_gather) == pytest.approx(gather(case_of("fsdp8"), 4 * EDGE_PARAMS))
    ends = layer_traffic(staged)
    assert one(ends.root_all_gather) == pytest.approx(gather(staged, 2 * EDGE_PARAMS))
    assert one(ends.first_all_gather) == one(ends.root_all_gather)
    assert one(ends.first_reduce) == one(ends.root_reduce)


def test_a_v_shaped_pipeline_has_both_ends_on_one_stage():
    case = case_of("fsdp2-pp2-zbv")
    traffic = layer_traffic(case)
    assert one(traffic.root_all_gather) == pytest.approx(gather(case, 4 * EDGE_PARAMS))
    assert one(traffic.first_all_gather) == 0.0


@pytest.mark.parametrize(
    ("spelling", "follows"),
    [
        ("zero2x8", True),  # no all-gather waits behind the last reduction
        ("zero2x8-nodpoverlap", False),
        ("fsdp8", False),
        ("fsdp4-pp2", False),
        ("fsdp4-pp2-gpipe", True),  # backward follows backward
        ("zero1x8", False),
    ],
)
def test_the_last_reduction_may_overlap_the_next_micro_batch(spelling, follows):
    case = case_of(spelling)
    assert bool(last_reduce_overlaps(case, layer_traffic(case))[0]) is follows


def test_gradients_reduced_once_overlap_only_the_last_backward():
    # 8 micro-batches; a reduction of 4 s each spread over them is 32 s beside one backward of 10 s.
    stack = toy_stack(zero2_every_micro_step=False)
    case, ten = case_of("zero2x2", stack=stack), np.array([10.0])
    n = one(case.split.num_microbatches)
    traffic = replace(layer_traffic(case), reduce=ten * 0.4, backward=ten * 0.4)
    found = overlapped_backward(case, ten, traffic).mean
    block = ten + found.slowed + found.exposed
    assert one(found.exposed) == pytest.approx((4.0 * n - 15.0) / n)  # contention 0.5
    assert one(block) == pytest.approx(((n - 1.0) * 10.0 + 4.0 * n) / n)


def test_an_overlapped_tail_is_exposed_once_per_step():
    case = case_of("zero2x2")  # 8 micro-batches, contention 0.5
    traffic = layer_traffic(case)
    reduce, root = one(traffic.reduce), one(traffic.root_reduce)
    long = np.array([100.0])
    four, roots, head = np.array([4.0]), np.array([root]), np.array([0.0])
    layer, edge, slowed = exposed_last_reduce(case, traffic, four, long, long, roots, head)
    n = one(case.split.num_microbatches)
    assert one(layer) == pytest.approx(reduce / n)
    assert one(edge) == pytest.approx(root / n)
    assert one(slowed) == pytest.approx((1.0 - 1.0 / n) * 0.5 * (reduce + root))


def test_busy_links_leave_no_room_for_the_root():
    # GPipe has no forward between its backward passes to overlap the root: 70 s of it beside
    # a head of 5 s, but for the last micro-batch, which overlaps nothing.
    case = case_of("zero2x2-pp4-gpipe", model=toy_model(layers=16))
    traffic = replace(layer_traffic(case), reduce=np.array([100.0]))
    four, ten, roots = np.array([4.0]), np.array([10.0]), np.array([70.0])
    _, edge, _ = exposed_last_reduce(case, traffic, four, ten, ten, roots, np.array([5.0]))
    n = one(case.split.num_microbatches)
    assert one(edge) == pytest.approx(70.0 / n + (1.0 - 1.0 / n) * 65.0)


@pytest.mark.parametrize(
    ("reduce", "root", "exposed"),
    [
        # Forward 10 s, backward 10 s and 5 s of contention; four layers. All but two reductions
        # hold up backward; forward overlaps the two.
        (20.0, 5.0, 2 * 5.0),
        # 400 s of reductions and 70 s of the root behind 100 s of passes and 5 s of the head.
        (100.0, 70.0, 400.0 + 70.0 - 100.0 - 5.0),
    ],
)
def test_reductions_trail_into_the_next_forward(reduce, root, exposed):
    case = case_of("zero2x2")
    traffic = replace(layer_traffic(case), reduce=np.array([reduce]))
    four, ten, roots = np.array([4.0]), np.array([10.0]), np.array([root])
    layer, edge, _ = exposed_last_reduce(case, traffic, four, ten, ten, roots, np.array([5.0]))
    n = one(case.split.num_microbatches)
    last = reduce + 3 * (reduce - 15.0)
    assert one(layer) == pytest.approx(last / n + (1.0 - 1.0 / n) * exposed)
    assert one(edge) == pytest.approx(root / n)


def test_a_pass_leaves_its_last_reductions_behind():
    # Backward 10 s, all-gathers 4 s, reductions 8 s; contention 0.5.
    case, ten = case_of("fsdp2-pp4", model=toy_model(layers=16)), np.array([10.0])
    gathers = ten * 0.4
    traffic = replace(
        layer_traffic(case), all_gather=gathers, backward_all_gather=gathers, reduce=ten * 0.8
    )
    found = overlapped_backward(case, ten, traffic)
    assert one(found.inner) == one(found.near) == one(found.early) == pytest.approx(15.0)
    # Longer than backward: the last two wait for all-gathers alone.
    found = overlapped_backward(case, ten, replace(traffic, reduce=ten * 1.8))
    assert one(found.inner) == pytest.approx(22.0)
    assert one(found.near) == pytest.approx(15.0)
    case = case_of("fsdp2-pp4-nodpoverlap", model=toy_model(layers=16))
    found = overlapped_backward(case, ten, traffic)
    assert one(found.inner) == one(found.near) == pytest.approx(22.0)


def test_micro_batches_before_the_last_reduce_nothing_where_gradients_are_reduced_once():
    stack = toy_stack(reduce_every_micro_step=False)
    case, ten = case_of("fsdp2-pp4", model=toy_model(layers=16), stack=stack), np.array([10.0])
    gathers, n = ten * 0.4, one(case.split.num_microbatches)
    traffic = replace(
        layer_traffic(case), all_gather=gathers, backward_all_gather=gathers, reduce=ten * 1.8 / n
    )
    found = overlapped_backward(case, ten, traffic)
    # All-gathers of 4 s, and of the last micro-batch reductions of 18 s; contention 0.5.
    assert one(found.early) == pytest.approx(12.0)
    assert one(found.inner) == pytest.approx(22.0)


def test_fully_sharded_traffic_of_a_layer():
    case = case_of("fsdp8")
    traffic = layer_traffic(case)
    weights, gradients = gather(case, 2 * LAYER_PARAMS), gather(case, 4 * LAYER_PARAMS)
    assert one(traffic.all_gather) == pytest.approx(weights, rel=1e-12)
    assert one(traffic.reduce) == pytest.approx(gradients, rel=1e-12)
    assert one(traffic.backward_all_gather) == pytest.approx(weights, rel=1e-12)
    assert one(traffic.backward) == pytest.approx(weights + gradients, rel=1e-12)


@pytest.mark.parametrize(("tied", "tables"), [(True, 1), (False, 2)])
def test_the_root_holds_what_no_layer_does(tied, tables):
    case = case_of("fsdp8", model=toy_model(tied=tied))
    traffic = layer_traffic(case)
    weights, gradients = (
        gather(case, 2 * tables * EDGE_PARAMS),
        gather(case, 4 * tables * EDGE_PARAMS),
    )
    assert one(traffic.root_all_gather) == pytest.approx(weights, rel=1e-12)
    assert one(traffic.root_reduce) == pytest.approx(gradients, rel=1e-12)


def test_the_root_is_reduced_between_replicas_too():
    case = case_of("hsdp2x4")
    gradients = 4 * 2 * EDGE_PARAMS
    expected = gather(case, gradients) + reduce(case, gradients / 4, replica_group)
    assert one(layer_traffic(case).root_reduce) == pytest.approx(expected, rel=1e-12)


def test_resharding_gathers_twice():
    traffic = layer_traffic(case_of("fsdp8", "fsdp8-noreshard"))
    freed, kept = np.asarray(traffic.backward)
    assert freed - kept == pytest.approx(np.asarray(traffic.all_gather)[0], rel=1e-9)


def test_reduce_precision_halves_the_bytes():
    case = case_of("fsdp8-reducebf16")
    assert one(layer_traffic(case).reduce) == pytest.approx(gather(case, 2 * LAYER_PARAMS))


def test_gathers_in_eight_bits_have_half_of_the_bytes():
    case = case_of("fsdp8-fp8-gatherfp8")
    traffic, whole = layer_traffic(case), layer_traffic(case_of("fsdp8-fp8"))
    assert one(traffic.all_gather) == pytest.approx(gather(case, LAYER_PARAMS), rel=1e-12)
    # Embedding and head stay in 16 bits, gradients in 32.
    assert one(traffic.root_all_gather) == one(whole.root_all_gather)
    assert one(traffic.reduce) == one(whole.reduce)


def test_experts_are_gathered_in_eight_bits_too():
    # Eight experts of 3 x 1024 x 512 on two ranks each: four of them, over four shards.
    model = toy_model(moe=Moe(experts=8, experts_per_token=2, ffn=512, layers=4))
    of_rank = 4 * 3 * 1024 * 512
    for spelling, size in (("fsdp8-ep2-fp8", 2), ("fsdp8-ep2-fp8-gatherfp8", 1)):
        case = case_of(spelling, model=model)
        experts, others = one(expert_traffic(case).gather), size * one(case.layer_params)
        assert experts == pytest.approx(gather(case, size * of_rank, expert_shard_group), rel=1e-12)
        both = one(layer_traffic(case).all_gather)
        assert both == pytest.approx(experts + gather(case, others), rel=1e-12)


def test_tensor_parallelism_splits_the_buffers():
    case = case_of("fsdp4-tp2")
    assert one(layer_traffic(case).all_gather) == pytest.approx(gather(case, LAYER_PARAMS))


def test_hybrid_sharding_reduces_between_replicas():
    # Shards on one domain, replicas across: the all-reduce has links of its own.
    case = case_of("hsdp2x4")
    traffic = layer_traffic(case)
    scatter, across = gather(case, 4 * LAYER_PARAMS), reduce(case, LAYER_PARAMS, replica_group)
    assert one(traffic.reduce) == pytest.approx(scatter, rel=1e-12)
    assert one(traffic.across) == pytest.approx(across, rel=1e-12)
    # Shards across domains as well: both queue for the same NICs.
    wide = case_of("hsdp2x8", cluster=toy_cluster(16))
    traffic = layer_traffic(wide)
    parts = gather(wide, 4 * LAYER_PARAMS) + reduce(wide, LAYER_PARAMS / 2, replica_group)
    assert one(traffic.reduce) == pytest.approx(parts, rel=1e-12)
    assert one(traffic.across) == 0.0


@pytest.mark.parametrize(
    ("spelling", "again", "reduce", "across", "slowed", "exposed"),
    [
        ("hsdp2x4", 2.0, 3.0, 4.0, 3.5, 0.0),  # 0.5 x (3 + max(2, 4))
        ("hsdp2x4", 2.0, 3.0, 20.0, 5.0, 5.0),  # 20 between replicas, beside 10 + 5
        ("hsdp2x4", 9.0, 9.0, 4.0, 5.0, 3.0),  # 18 inside the sharding group
        ("fsdp8-pf0", 6.0, 4.0, 0.0, 2.0, 6.0),  # the all-gather alone is exposed
        ("fsdp8-pf0", 6.0, 17.0, 0.0, 5.0, 8.0),
        ("hsdp2x4-nodpoverlap", 2.0, 3.0, 4.0, 0.0, 9.0),
    ],
)
def test_backward_beside_three_collectives(spelling, again, reduce, across, slowed, exposed):
    ten = np.array([10.0])  # contention 0.5
    found = beside_backward(case_of(spelling), ten, again, reduce, across)
    assert (one(found.slowed), one(found.exposed)) == (slowed, exposed)


def test_the_last_all_reduce_between_replicas_is_exposed_once():
    case = case_of("hsdp2x4")  # 2 micro-batches
    traffic = layer_traffic(case)
    tail = one(exposed_last_all_reduce(case, traffic))
    assert tail == pytest.approx(one(traffic.across) / 2, rel=1e-12)
    alone = case_of("hsdp2x4-nodpoverlap")
    assert one(exposed_last_all_reduce(alone, layer_traffic(alone))) == one(traffic.across)


def test_pipelines_of_pytorch_gather_and_reduce_once():
    each = case_of("fsdp2-pp4")
    once = case_of("fsdp2-pp4", stack=toy_stack(pipeline_gathers_once=True))
    n = one(once.split.num_microbatches)
    many, few = layer_traffic(each), layer_traffic(once)
    assert one(few.all_gather) == pytest.approx(one(many.all_gather) / n, rel=1e-12)
    assert one(few.reduce) == pytest.approx(one(many.reduce) / n, rel=1e-12)
    assert one(few.root_all_gather) == pytest.approx(one(many.root_all_gather) / n, rel=1e-12)
    assert one(few.backward_all_gather) == 0.0 < one(many.backward_all_gather)
    # Without a pipeline nothing changes.
    alone = case_of("fsdp8", stack=toy_stack(pipeline_gathers_once=True))
    assert one(layer_traffic(alone).all_gather) == one(layer_traffic(case_of("fsdp8")).all_gather)


def test_reduction_once_per_step_is_spread_over_micro_batches():
    # 16 sequences on 2 ranks: 8 micro-batches.
    every = layer_traffic(case_of("fsdp2"))
    once = layer_traffic(case_of("fsdp2", stack=toy_stack(reduce_every_micro_step=False)))
    assert one(once.reduce) == pytest.approx(one(every.reduce) / 8, rel=1e-12)
    assert one(once.all_gather) == one(every.all_gather)


@pytest.mark.parametrize("spelling", ["ddp8", "zero1x8"])
def test_others_move_nothing_in_a_micro_batch(spelling):
    traffic = layer_traffic(case_of(spelling))
    assert one(traffic.all_gather) == one(traffic.backward) == 0.0
    assert one(traffic.root_all_gather) == one(traffic.root_reduce) == 0.0


def test_zero2_reduces_but_never_gathers_in_a_micro_batch():
    traffic = layer_traffic(case_of("zero2x8"))
    assert one(traffic.all_gather) == one(traffic.backward_all_gather) == 0.0
    assert one(traffic.backward) == one(traffic.reduce) > 0.0


def test_a_group_inside_a_domain_does_not_touch_the_network():
    slow = toy_cluster(8, scale_out_bandwidth=1.0)
    inside = layer_traffic(case_of("hsdp2x4", cluster=slow))
    assert one(inside.all_gather) < 1e-3
    across = layer_traffic(case_of("fsdp8", cluster=slow))
    assert one(across.all_gather) > 1e6


@pytest.mark.parametrize(
    ("spelling", "repeated"),
    [("fsdp8", True), ("fsdp8-noreshard", False), ("fsdp4-pp2-ga4", False), ("ddp8", False)],
)
def test_pytorch_gathers_the_ends_of_a_model_twice(spelling, repeated):
    # The last layer and the embedding, where parameters are freed after forward.
    once = case_of(spelling, stack=toy_stack(gathers_ends_again=False))
    twice = case_of(spelling, stack=toy_stack(gathers_ends_again=True))
    more = one(layer_traffic(twice).root_all_gather) - one(layer_traffic(once).root_all_gather)
    expected = gather(twice, 2 * LAYER_PARAMS) + gather(twice, 2 * EDGE_PARAMS)
    assert more == pytest.approx(expected if repeated else 0.0)
    assert one(layer_traffic(twice).backward_all_gather) == pytest.approx(
        one(layer_traffic(once).backward_all_gather)
    )
