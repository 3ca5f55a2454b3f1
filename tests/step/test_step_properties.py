"""What must hold for every model, cluster, workload and strategy, whatever the constants.

Each example prices several strategies at once, so a few examples cover many; `draws` makes them.
"""

import math
from functools import reduce as fold
from operator import add

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import any_strategy, catalog_cluster, clusters, models, points, wild
from scalewise.errors import ScalewiseError
from scalewise.model import load_model
from scalewise.step.case import Case
from scalewise.step.compose import compose
from scalewise.step.data_parallel import layer_traffic
from scalewise.step.estimate import estimate
from scalewise.step.terms import comm_time, step_terms
from scalewise.strategies import Strategies
from scalewise.strategy import Strategy
from scalewise.terms import EXPOSED
from scalewise.workload import Workload

# Sums in another order differ in the last bits.
ROUNDING = 1e-9


def faster(after, before):
    """Whether every step of `after` takes at most the time of its counterpart."""
    return bool(np.all(after.step_seconds <= before.step_seconds * (1.0 + ROUNDING)))


def numbers_of(value):
    """All numbers inside nested dicts and lists."""
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers_of(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers_of(item)]
    return [value] if isinstance(value, float) else []


def assert_bounded(exposed, moved):
    """Exposed communication is a part of all communication."""
    assert np.all(exposed <= moved * (1.0 + ROUNDING) + 1e-12)


# Sums and signs.


@given(points())
def test_terms_add_up_exactly_and_none_is_negative(point):
    many = point.estimate()
    for row in range(len(many)):
        one = many[row]
        assert fold(add, one.terms.values()) == one.step_seconds == many.step_seconds[row]
        assert all(math.isfinite(value) for value in one.terms.values())
        assert min(one.terms.values()) >= -ROUNDING * one.step_seconds
        assert one.step_seconds > 0.0
        assert min(one.comm_seconds.values()) >= 0.0


@given(points())
def test_memory_parts_add_up_exactly_and_none_is_negative(point):
    many = point.estimate()
    for row in range(len(many)):
        one = many[row]
        assert fold(add, one.memory.values()) == one.memory_bytes == many.memory_bytes[row]
        assert min(one.memory.values()) >= 0.0
        assert one.memory_low <= one.memory_bytes <= one.memory_high < math.inf


@given(points())
def test_every_number_of_a_result_is_finite(point):
    many = point.estimate()
    for row in range(len(many)):
        one = many[row]
        assert all(math.isfinite(number) for number in numbers_of(one.to_dict()))
        assert one.tokens_per_second > 0.0
        assert one.low <= one.tokens_per_second_per_accelerator <= one.high
        assert 0.0 < one.mfu <= one.hfu
        assert 0.0 <= one.exposed_fraction <= 1.0 + ROUNDING


@given(points())
def test_waterfall_leads_from_peak_to_achieved(point):
    many = point.estimate()
    for row in range(len(many)):
        one = many[row]
        steps = one.waterfall()
        achieved = steps.pop("achieved")
        assert next(iter(steps)) == "peak"
        assert steps["peak"] == 1.0
        assert sum(steps.values()) == pytest.approx(achieved, abs=1e-12)
        assert achieved == one.mfu


@given(points())
def test_no_loss_of_the_waterfall_is_a_gain(point):
    # Kernels cannot be faster than the peak, nor can the slowest stage have less than its share.
    many = point.estimate()
    for row in range(len(many)):
        losses = many[row].waterfall()
        for name in ("peak", "achieved"):
            losses.pop(name)
        assert max(losses.values()) <= ROUNDING


@given(points())
def test_power_lies_between_idle_and_cap(point):
    many = point.estimate()
    watts = many.watts_per_accelerator
    if watts is None:
        assert point.cluster.tdp is None
        assert many.joules_per_token is None
        return
    assert np.all(watts >= point.cluster.idle)
    assert np.all(watts <= point.cluster.power_limit)
    assert np.all(many.facility_watts_per_accelerator >= watts)


@given(points())
def test_exposed_communication_is_part_of_all_communication(point):
    many = point.estimate()
    terms = many.terms.parts()
    for group, names in EXPOSED.items():
        exposed = fold(add, (np.asarray(terms[name]) for name in names))
        assert_bounded(exposed, np.asarray(getattr(many.comm_time, group)))


# Better hardware.

LINKS = ("scale_up_bandwidth", "scale_out_bandwidth")
FABRIC = ("hop_seconds", "call_seconds", "ring_step_seconds", "latency_factor", "congestion")
factors = st.floats(1.0, 16.0)


@pytest.mark.parametrize("field", LINKS)
@given(point=points(), factor=factors)
def test_faster_links_never_hurt(field, point, factor):
    better = point.cluster.with_(**{field: getattr(point.cluster, field) * factor})
    assert faster(point.estimate(cluster=better), point.estimate())


@pytest.mark.parametrize("field", FABRIC)
@given(point=points(), factor=factors)
def test_lower_latency_never_hurts(field, point, factor):
    fabric = point.cluster.fabric
    better = msgspec.structs.replace(fabric, **{field: getattr(fabric, field) / factor})
    assert faster(point.estimate(cluster=point.cluster.with_(fabric=better)), point.estimate())


@given(point=points(), factor=factors)
def test_a_better_fabric_never_hurts(point, factor):
    fabric = point.cluster.fabric
    share = 1.0 - (1.0 - fabric.efficiency) / factor
    better = msgspec.structs.replace(fabric, efficiency=share)
    assert faster(point.estimate(cluster=point.cluster.with_(fabric=better)), point.estimate())


@given(point=points(), factor=factors)
def test_more_flops_never_hurt(point, factor):
    chip = point.cluster.accelerator
    peaks = {dtype: peak * factor for dtype, peak in chip.peak_flops.items()}
    better = point.cluster.with_(accelerator=chip.with_(peak_flops=peaks))
    assert faster(point.estimate(cluster=better), point.estimate())


@given(point=points(), factor=factors)
def test_more_memory_bandwidth_never_hurts(point, factor):
    chip = point.cluster.accelerator
    wider = chip.with_(memory_bandwidth=chip.memory_bandwidth * factor)
    assert faster(point.estimate(cluster=point.cluster.with_(accelerator=wider)), point.estimate())


@given(point=points(), factor=factors)
def test_what_fits_keeps_fitting_with_more_memory(point, factor):
    chip = point.cluster.accelerator
    before = point.estimate()
    larger = chip.with_(memory_bytes=chip.memory_bytes * factor)
    after = point.estimate(cluster=point.cluster.with_(accelerator=larger))
    assert np.all(after.feasible[before.feasible])
    assert np.array_equal(after.step_seconds, before.step_seconds)


@given(points())
def test_a_lower_power_cap_is_never_faster_nor_hungrier(point):
    cluster = point.cluster
    if cluster.tdp is None:
        return
    free, capped = (
        cluster.with_(power_cap_watts=None),
        cluster.with_(power_cap_watts=cluster.idle + 0.5 * (cluster.tdp - cluster.idle)),
    )
    before, after = point.estimate(cluster=free), point.estimate(cluster=capped)
    assert faster(before, after)
    assert np.all(after.watts_per_accelerator < before.watts_per_accelerator)


# Other strategies.


def changed(point, **fields):
    return point.estimate(strategies=[s.with_(**fields) for s in point.strategies])


@pytest.mark.parametrize("field", ["overlap_dp", "overlap_tp", "overlap_pp"])
@given(point=points())
def test_switching_an_overlap_off_never_helps(field, point):
    assert faster(changed(point, **{field: True}), changed(point, **{field: False}))


@given(points())
def test_prefetching_never_hurts(point):
    assert faster(changed(point, prefetch=1), changed(point, prefetch=0))


@given(points())
def test_recompute_trades_time_for_memory(point):
    none, *others = (
        changed(point, recompute=word)
        for word in ("none", "selective", "attention", "op", "1of4", "1of2", "full")
    )
    quarter, half, full = others[-3:]
    assert faster(none, quarter)
    assert faster(quarter, half)
    assert faster(half, full)
    for less in others:
        assert faster(none, less)
        assert np.all(less.memory_bytes <= none.memory_bytes * (1.0 + ROUNDING))
        assert np.all(less.hfu >= less.mfu)


@given(points())
def test_keeping_parameters_costs_memory_and_no_time(point):
    freed, kept = (
        changed(point, reshard_after_forward=True),
        changed(point, reshard_after_forward=False),
    )
    assert faster(kept, freed)
    assert np.all(kept.memory_bytes >= freed.memory_bytes * (1.0 - ROUNDING))


@given(points())
def test_narrower_gradients_never_hurt(point):
    assert faster(changed(point, reduce_precision="bf16"), changed(point, reduce_precision="fp32"))


@given(points())
def test_sharding_more_never_raises_what_is_sharded(point):
    # What zero1, zero2 and zero3 add, one after the other, on the same ranks.
    base = [s.with_(sharding="zero1") for s in point.strategies]
    held = []
    for sharding in ("zero1", "zero2", "zero3"):
        many = point.estimate(strategies=[s.with_(sharding=sharding) for s in base])
        memory = many.memory
        held.append(memory.parameters + memory.gradients + memory.optimizer)
        assert np.all(np.asarray(held[-1]) > 0.0)
    assert np.all(held[1] <= held[0] * (1.0 + ROUNDING))


@given(points(), st.sampled_from((2, 4, 8)))
def test_hybrid_sharding_gathers_no_slower_than_full_sharding(point, replicas):
    # The same shards in `replicas` copies, against one group over all of them.
    cluster = point.cluster.with_(accelerators=point.cluster.accelerators * replicas)
    wide = [
        s.with_(sharding="zero3", dp_replicate=1, dp_shard=s.data_parallel * replicas)
        for s in point.strategies
    ]
    hybrid = [
        s.with_(sharding="zero3", dp_replicate=replicas, dp_shard=s.data_parallel)
        for s in point.strategies
    ]
    # A tier crossed by the whole cluster slows both down alike.
    full = layer_traffic(point.estimate(cluster=cluster, strategies=wide).case)
    split = layer_traffic(point.estimate(cluster=cluster, strategies=hybrid).case)
    assert np.all(split.all_gather <= full.all_gather * (1.0 + ROUNDING))


@given(points(), st.sampled_from((2, 3, 16)))
def test_more_replicas_leave_the_compute_of_a_rank_alone(point, factor):
    # Layers that divide evenly: which stage is the slowest does not depend on communication.
    stack = msgspec.structs.replace(point.stack, partition="even")
    small = [
        s.with_(first_stage_layers=None, last_stage_layers=None, sharding="ddp",
                dp_replicate=s.data_parallel, dp_shard=1)
        for s in point.strategies
        if point.model.layers % s.pp == 0
    ]  # fmt: skip
    if not small:
        return
    large = [s.with_(dp_replicate=s.dp_replicate * factor) for s in small]
    workload = msgspec.structs.replace(
        point.workload, global_batch=point.workload.global_batch * factor
    )
    # Within one tier the links stay the same, too.
    cluster = point.cluster.with_(oversubscription=1.0, tier_size=None)
    grown = cluster.with_(accelerators=cluster.accelerators * factor)
    before = point.estimate(strategies=small, stack=stack, cluster=cluster)
    after = point.estimate(strategies=large, stack=stack, cluster=grown, workload=workload)
    for name in ("gemm", "attention", "memory_bound", "head", "recompute"):
        assert np.array_equal(getattr(before.terms, name), getattr(after.terms, name))
    assert np.array_equal(before.case.split.num_microbatches, after.case.split.num_microbatches)


@given(points(), st.sampled_from((2, 3, 8)))
def test_a_larger_batch_takes_longer_but_not_per_token(point, factor):
    # More micro-batches of the same size: the once-per-step costs are spread further.
    workload = msgspec.structs.replace(
        point.workload, global_batch=point.workload.global_batch * factor
    )
    before, after = point.estimate(), point.estimate(workload=workload)
    assert np.all(after.step_seconds > before.step_seconds)
    assert np.all(after.tokens_per_second >= before.tokens_per_second * (1.0 - ROUNDING))


# One and many.


@settings(max_examples=12)
@given(points(minimum=10, maximum=50))
def test_one_and_many_agree_to_the_last_bit(point):
    many = point.estimate()
    assert len(many) == len(point.strategies)
    for row, strategy in enumerate(point.strategies):
        one = point.estimate(strategies=strategy)
        assert one.to_dict() == many[row].to_dict()


@settings(max_examples=10)
@given(points(minimum=2, maximum=12), points(minimum=1, maximum=6))
def test_cases_can_stand_behind_each_other(first, second):
    parts = [first.estimate(), second.estimate()]
    joined = Case.join([part.case for part in parts])
    assert len(joined) == sum(len(part) for part in parts)
    step = compose(joined)
    (terms, _), moved = step_terms(joined, step), comm_time(joined, step)
    for name, value in terms.parts().items():
        alone = np.concatenate([np.asarray(getattr(part.terms, name)) for part in parts])
        assert np.array_equal(np.asarray(value), alone)
    for name in EXPOSED:
        alone = np.concatenate([np.asarray(getattr(part.comm_time, name)) for part in parts])
        assert np.array_equal(np.asarray(getattr(moved, name)), alone)


@settings(max_examples=10)
@given(points(minimum=2, maximum=20), st.randoms())
def test_the_order_of_strategies_does_not_matter(point, random):
    order = list(range(len(point.strategies)))
    random.shuffle(order)
    shuffled = point.estimate(strategies=[point.strategies[row] for row in order])
    assert np.array_equal(shuffled.step_seconds, point.estimate().step_seconds[order])


@settings(max_examples=10)
@given(points(maximum=8))
def test_columns_and_objects_agree(point):
    fields = Strategy.__struct_fields__
    columns = Strategies.columns(
        **{field: [getattr(s, field) for s in point.strategies] for field in fields}
    )
    assert list(columns) == point.strategies
    assert np.array_equal(
        point.estimate(strategies=columns).step_seconds, point.estimate().step_seconds
    )


# Any input.


@given(models(), clusters(), st.lists(any_strategy(), min_size=1, max_size=8))
def test_strategies_that_do_not_fit_are_answers(model, cluster, strategies):
    # Degrees of up to four million, on whatever cluster.
    plain = [s.with_(precision=None) for s in strategies]
    many = estimate(model, cluster, Workload(seq_len=4096, global_batch=64), plain)
    for part in (*many.terms.parts().values(), *many.memory.parts().values()):
        assert np.all(np.isfinite(part))
    for row, strategy in enumerate(plain):
        if strategy.accelerators != cluster.accelerators:
            assert many[row].infeasible.startswith("mesh")


@given(st.dictionaries(st.sampled_from(Strategy.__struct_fields__), wild(), max_size=3), wild())
def test_wild_inputs_end_in_our_own_errors(fields, seq_len):
    try:
        strategy = Strategy(**fields)
        workload = Workload(seq_len=seq_len, global_batch=8)
        result = estimate(
            load_model("llama-2-7b"), catalog_cluster("dgx-h100"), workload, [strategy]
        )
    except ScalewiseError:
        return
    assert np.all(np.isfinite(result.step_seconds))
    assert np.all(result.step_seconds > 0.0)


def test_extreme_but_legal_sizes_stay_finite():
    cluster = catalog_cluster("dgx-h100").with_(accelerators=2**22)
    workload = Workload(seq_len=2**27, global_batch=2**27)
    strategies = [
        Strategy(dp_shard=2**22, micro_batch=32),
        Strategy(sharding="ddp", dp_replicate=2**22),
        Strategy(dp_replicate=2**11, dp_shard=2**11),
        Strategy(cp=2**22, micro_batch=2**22),
    ]
    many = estimate(load_model("llama-2-7b"), cluster, workload, strategies)
    for part in (*many.terms.parts().values(), *many.memory.parts().values()):
        assert np.all(np.isfinite(part))
    assert np.all(many.tokens_per_second > 0.0)
