"""Hierarchical partitions: smaller groups, second hops, replicas that wait; by hand."""

import pytest

from scalewise.physics.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    hierarchical_seconds,
)
from scalewise.physics.links import placement
from scalewise.step.data_parallel import layer_traffic, overlapped_backward
from scalewise.step.gradient_buckets import once_per_step
from scalewise.step.groups import gradient_group, replica_group, shard_group
from scalewise.step.memory import peak_memory
from toys import (
    EDGE_PARAMS,
    LAYER_PARAMS,
    case_of,
    one,
    toy_cluster,
    toy_experts,
    toy_stack,
    toy_workload,
)

PARAMS = 4 * LAYER_PARAMS + 2 * EDGE_PARAMS


def part(spelling, name, **changes):
    return one(getattr(peak_memory(case_of(spelling, **changes)), name))


@pytest.mark.parametrize(("spelling", "ranks"), [("hpz4", 4), ("hpz2", 2), ("hpz8", 8)])
def test_backward_gathers_in_its_own_group(spelling, ranks):
    case = case_of(f"fsdp8-{spelling}")
    traffic, group = layer_traffic(case), placement(float(ranks), 1.0, 4.0)
    again = all_gather_seconds(2.0 * LAYER_PARAMS, group, case.links)
    assert one(traffic.backward_all_gather) == pytest.approx(one(again), rel=1e-12)
    assert one(traffic.all_gather) == one(layer_traffic(case_of("fsdp8")).all_gather)
    assert one(traffic.backward) == one(traffic.backward_all_gather) + one(traffic.reduce)


def test_groups_of_backward_lie_beside_tensor_parallelism():
    # Two ranks of a domain of four share a matrix: two of the group are in each domain.
    case = case_of("fsdp8-tp2-hpz4", cluster=toy_cluster(16))
    group = placement(4.0, 2.0, 4.0)
    assert (float(group.per_domain), float(group.domains)) == (2.0, 2.0)
    again = all_gather_seconds(LAYER_PARAMS, group, case.links)
    assert one(layer_traffic(case).backward_all_gather) == pytest.approx(one(again), rel=1e-12)


@pytest.mark.parametrize(
    ("spelling", "copies"),
    [("hpz4", 2 * PARAMS / 4), ("hpz2", 2 * PARAMS / 2), ("hpz8", 0.0), ("noreshard", 0.0)],
)
def test_a_copy_for_backward_has_sixteen_bits_over_its_group(spelling, copies):
    kept = part(f"fsdp8-{spelling}", "parameters") - part("fsdp8", "parameters")
    assert kept == pytest.approx(copies)


def test_a_copy_of_experts_is_shared_by_their_shards():
    # Experts on four ranks each, two shards: groups of four are all of them.
    model = toy_experts()
    for spelling, experts in (("fsdp8-ep4-hpz4", 0.0), ("fsdp8-hpz4", 2 * 4 * 50_331_648 / 4)):
        before = spelling.replace("-hpz4", "")
        more = part(spelling, "parameters", model=model) - part(before, "parameters", model=model)
        dense = 2 * (4 * 2_631_680 + 2 * EDGE_PARAMS) / 4
        assert more == pytest.approx(dense + experts)


def test_hierarchical_gathers_have_two_hops():
    case, plain = case_of("hsdp1x8-hiergather"), case_of("fsdp8")
    two = hierarchical_seconds(2.0 * LAYER_PARAMS, shard_group(case.split), case.links)
    traffic = layer_traffic(case)
    assert one(traffic.all_gather) == one(traffic.backward_all_gather) == pytest.approx(one(two))
    assert one(traffic.reduce) == one(layer_traffic(plain).reduce)
    # Two hops cost 2 x 7.6 MB over one NIC each and 3/4 of 30 MB inside, at 10 and 100 GB/s.
    assert one(two) == pytest.approx(30_412_800 / 4 / 2 / 10e9 + 0.75 * 30_412_800 / 100e9, rel=0.2)


@pytest.mark.parametrize("spelling", ["hsdp2x4", "hsdp4x2"])
def test_replicas_wait_for_the_last_micro_batch(spelling):
    # Shards in one domain: the all-reduce has links of its own; else it queues.
    work = toy_workload(global_batch=32)
    each, case = case_of(spelling, workload=work), case_of(f"{spelling}-synconce", workload=work)
    n = one(case.split.num_microbatches)
    assert n == 4.0
    gradients = 4.0 * LAYER_PARAMS / one(case.split.shards)
    across = one(all_reduce_seconds(gradients, replica_group(case.split), case.links))
    before, after = layer_traffic(each), layer_traffic(case)
    if spelling == "hsdp2x4":
        assert one(before.across) == pytest.approx(across)
        assert one(after.across) == pytest.approx(across / 4)
        assert one(after.reduce) == one(before.reduce)
        assert one(after.sync.last) == one(after.sync.others) == one(after.reduce)
    else:
        total = one(before.reduce) + one(before.across)
        waits = one(after.reduce) + one(after.across)
        assert total - waits == pytest.approx(0.75 * across, rel=1e-9)
    assert one(after.sync.others_across) == 0.0
    assert before.sync is None


def test_the_last_backward_has_what_replicas_send():
    work = toy_workload(global_batch=32)
    case = case_of("hsdp2x4-synconce", workload=work)
    traffic = layer_traffic(case)
    short = 0.0 * case.tokens + 1e-6
    exposed = one(overlapped_backward(case, short, traffic).mean.exposed)
    queue = one(traffic.backward_all_gather) + one(traffic.reduce)
    last = max(queue, one(traffic.sync.last_across))
    # Contention is 0.5 of the compute that overlaps.
    assert exposed == pytest.approx(0.75 * (queue - 1.5e-6) + 0.25 * (last - 1.5e-6), rel=1e-9)


def test_gradients_reduced_once_stay_unsharded():
    work = toy_workload(global_batch=32)
    each, once = (
        part(f"fsdp8-{word}", "all_gather_buffers", workload=work)
        for word in ("reduceeach", "reduceonce")
    )
    # Four layers instead of one in fp32, and what no layer holds.
    assert once - each == pytest.approx(4 * (3 * LAYER_PARAMS + 2 * EDGE_PARAMS))
    single = toy_workload(global_batch=8)
    assert part("fsdp8-reduceonce", "all_gather_buffers", workload=single) == each


@pytest.mark.parametrize(
    ("spelling", "each"),
    [("fsdp8", 1.0), ("fsdp8-reduceonce", 0.25), ("zero2x8-reduceonce", 0.25),
     ("zero2x8-reduceeach", 1.0), ("fsdp8-reduceeach", 1.0)],
)  # fmt: skip
def test_reductions_per_micro_batch(spelling, each):
    case = case_of(spelling, workload=toy_workload(global_batch=32))
    assert one(case.habits.reductions(case.split)) == each


@pytest.mark.parametrize("kind", ["ddp8", "zero1x8"])
def test_ddp_and_zero1_reduce_in_every_micro_batch_if_told_so(kind):
    # Once: C - min(o C, W); after every micro-batch n times that.
    work = toy_workload(global_batch=32)
    traffics = [
        once_per_step(case_of(spelled, workload=work), PARAMS, 1e-3, 1e-3)
        for spelled in (kind, f"{kind}-reduceeach", f"{kind}-reduceonce")
    ]
    once, each, stated = traffics
    assert one(each.reductions) == 4.0
    assert one(each.reduce) == one(once.reduce) == one(stated.reduce)
    gather = one(once.gather) - min(0.25 * one(once.gather), 1e-3)
    assert one(each.exposed) - gather == pytest.approx(4 * (one(once.exposed) - gather))
    assert one(each.seconds) - one(each.gather) == pytest.approx(4 * one(once.reduce))
    assert one(stated.exposed) == one(once.exposed)


@pytest.mark.parametrize(
    ("spelling", "reductions"),
    [("ddp4-pp2", 8.0), ("ddp4-pp2-reduceonce", 1.0), ("ddp8", 1.0), ("zero1x4-pp2", 1.0)],
)
def test_ddp_reduces_each_in_pipelines_of_some_software(spelling, reductions):
    stack = toy_stack(ddp_pipeline_reduces_each=True)
    case = case_of(spelling, stack=stack, workload=toy_workload(global_batch=32))
    assert one(case.habits.step_reductions(case.split)) == reductions


@pytest.mark.parametrize(
    ("token", "calls"), [("bucket1", 482.03125), ("bucket25", 19.28125), ("bucket500", 1.0)]
)
def test_buckets_are_as_large_as_stated(token, calls):
    # 126.4 M gradients at four bytes, in buckets of 1,048,576 bytes.
    case = case_of(f"ddp8-{token}")
    assert 4 * PARAMS / 2**20 == 482.03125
    piece = all_reduce_seconds(4 * PARAMS / calls, gradient_group(case.split), case.links)
    reduce = once_per_step(case, PARAMS, 0.0, 0.0).reduce
    assert one(reduce) == pytest.approx(calls * one(piece), rel=1e-9)
    # A stated size does not grow with ranks.
    stack = toy_stack(bucket_bytes_per_rank=1e9)
    assert one(case_of(f"ddp8-{token}", stack=stack).habits.bucket_bytes_per_rank) == 0.0
