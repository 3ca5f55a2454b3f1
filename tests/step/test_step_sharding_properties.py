"""What must hold of variants of sharding for every model, cluster, workload and strategy."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from draws import points
from scalewise.step.data_parallel import layer_traffic

# Sums in another order differ in the last bits.
ROUNDING = 1e-9


def changed(point, only=lambda s: True, **fields):
    """Estimates of the point's strategies with some fields changed, where they can have them."""
    rows = [s.with_(**fields) for s in point.strategies if only(s)]
    return point.estimate(strategies=rows) if rows else None


def sharded(s):
    """Whether parameters are sharded over several ranks."""
    return s.sharding == "zero3" and s.dp_shard * s.cp > 1


def no_slower(after, before):
    """Whether every step of `after` takes at most the time of its counterpart."""
    return bool(np.all(after.step_seconds <= before.step_seconds * (1.0 + ROUNDING)))


def smaller(after, before):
    """Whether every step of `after` needs at most the memory of its counterpart."""
    return bool(np.all(after.memory_bytes <= before.memory_bytes * (1.0 + ROUNDING)))


@given(points())
def test_a_copy_over_all_shards_changes_nothing(point):
    rows = [s for s in point.strategies if sharded(s) and s.reshard_after_forward]
    if not rows:
        return
    before = point.estimate(strategies=rows)
    whole = [s.with_(backward_shard=s.dp_shard * s.cp) for s in rows]
    after = point.estimate(strategies=whole)
    assert np.array_equal(after.step_seconds, before.step_seconds)
    assert np.array_equal(after.memory_bytes, before.memory_bytes)


@given(points(), st.sampled_from((2, 3, 4, 8)))
def test_a_copy_costs_memory_and_gathers_no_slower(point, group):
    def fits(s):
        return sharded(s) and s.reshard_after_forward and s.dp_shard * s.cp % group == 0

    before, after = changed(point, fits), changed(point, fits, backward_shard=group)
    if before is None or after is None:
        return
    assert smaller(before, after)
    short, long = layer_traffic(after.case), layer_traffic(before.case)
    assert np.all(short.backward_all_gather <= long.backward_all_gather * (1.0 + ROUNDING))
    assert np.array_equal(short.all_gather, long.all_gather)


@given(points())
def test_quantized_all_gathers_are_no_longer(point):
    plain = {"gather_precision": None}
    before = changed(point, sharded, **plain)
    after = changed(point, sharded, gather_precision="int8")
    if before is None or after is None:
        return
    short, long = layer_traffic(after.case), layer_traffic(before.case)
    for name in ("all_gather", "backward_all_gather", "root_all_gather"):
        assert np.all(getattr(short, name) <= getattr(long, name) * (1.0 + ROUNDING))
    # Their kernels move bytes through memory, and their buffers take some.
    assert np.all(after.terms.memory_bound > before.terms.memory_bound)
    assert smaller(before, after)


@given(points())
def test_one_micro_batch_is_reduced_once_however_it_is_said(point):
    rows = [
        s.with_(micro_batch=point.workload.global_batch // s.data_parallel)
        for s in point.strategies
    ]
    each, once = (
        point.estimate(strategies=[s.with_(reduce_each=word) for s in rows])
        for word in (True, False)
    )
    assert np.allclose(each.step_seconds, once.step_seconds, rtol=1e-9)
    assert np.allclose(each.memory_bytes, once.memory_bytes, rtol=1e-9)


@given(points())
def test_reducing_once_is_no_slower_and_needs_no_less_memory(point):
    each, once = changed(point, reduce_each=True), changed(point, reduce_each=False)
    straight = [not s.schedule.startswith("zb") or s.pp == 1 for s in point.strategies]
    assert np.all((once.step_seconds <= each.step_seconds * (1.0 + ROUNDING))[np.array(straight)])
    assert smaller(each, once)
    assert np.all(once.comm_time.data_parallel <= each.comm_time.data_parallel * (1.0 + ROUNDING))


@given(points())
def test_replicas_that_wait_communicate_no_longer(point):
    def several(s):
        return s.sharding == "zero3"

    before, after = changed(point, several), changed(point, several, replica_sync="once")
    if before is None or after is None:
        return
    assert np.all(
        after.comm_time.data_parallel <= before.comm_time.data_parallel * (1.0 + ROUNDING)
    )
    assert np.array_equal(after.memory_bytes, before.memory_bytes)
    alone = np.asarray(before.case.split.num_microbatches == 1.0)
    assert np.allclose(after.step_seconds[alone], before.step_seconds[alone], rtol=1e-9)


@given(points(), st.sampled_from((1, 4, 25, 400)), st.sampled_from((1, 2, 16)))
def test_larger_buckets_are_no_slower_where_bytes_are_the_same(point, size, factor):
    def bucketed(s):
        return s.sharding in ("ddp", "zero1")

    # Of a ring: trees and NVLS fill their pipelines anew for every call.
    cluster = point.cluster.with_(algorithm="ring", protocol="simple")
    rows = [s for s in point.strategies if bucketed(s)]
    if not rows:
        return
    small, large = (
        point.estimate(strategies=[s.with_(bucket_mb=n) for s in rows], cluster=cluster)
        for n in (size, size * factor)
    )
    assert no_slower(large, small)


@given(points())
def test_terms_and_memory_of_variants_add_up(point):
    rows = [
        s.with_(
            gather_precision="int8", reduce_precision="int4", replica_sync="once",
            hierarchical_gather=True,
        )
        if s.sharding == "zero3" else s.with_(reduce_each=True, bucket_mb=7)
        for s in point.strategies
    ]  # fmt: skip
    many = point.estimate(strategies=rows)
    for row in range(len(many)):
        one = many[row]
        assert min(one.terms.values()) >= -ROUNDING * one.step_seconds
        assert min(one.memory.values()) >= 0.0
        assert sum(one.terms.values()) == one.step_seconds or np.isclose(
            sum(one.terms.values()), one.step_seconds, rtol=1e-12
        )
        exposed = one.terms["dp_all_gather"] + one.terms["dp_grad_reduce"]
        assert exposed <= one.comm_seconds["data_parallel"] * (1.0 + ROUNDING) + 1e-12
