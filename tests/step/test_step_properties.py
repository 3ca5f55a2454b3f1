"""What must hold for every model, cluster, workload and strategy, whatever the constants.

Each example prices several strategies at once, so a few examples cover many; `draws` makes them.
"""

import itertools
import math
from functools import reduce as fold
from operator import add

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from draws import any_strategy, catalog_cluster, clusters, models, points, wild
from scalewise.errors import ScalewiseError
from scalewise.model import Moe, load_model
from scalewise.offload import joined, offloads_of
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


@given(points(offload=True))
def test_terms_add_up_exactly_and_none_is_negative(point):
    many = point.estimate()
    for row in range(len(many)):
        one = many[row]
        assert fold(add, one.terms.values()) == one.step_seconds == many.step_seconds[row]
        assert all(math.isfinite(value) for value in one.terms.values())
        assert min(one.terms.values()) >= -ROUNDING * one.step_seconds
        assert one.step_seconds > 0.0
        assert min(one.comm_seconds.values()) >= 0.0


@given(points(offload=True))
def test_memory_parts_add_up_exactly_and_none_is_negative(point):
    many = point.estimate()
    for row in range(len(many)):
        one = many[row]
        assert fold(add, one.memory.values()) == one.memory_bytes == many.memory_bytes[row]
        assert min(one.memory.values()) >= 0.0
        assert one.memory_low <= one.memory_bytes <= one.memory_high < math.inf


@given(points(offload=True))
def test_every_number_of_a_result_is_finite(point):
    many = point.estimate()
    for row in range(len(many)):
        one = many[row]
        assert all(math.isfinite(number) for number in numbers_of(one.to_dict()))
        assert one.tokens_per_second > 0.0
        assert one.low <= one.tokens_per_second_per_accelerator <= one.high
        assert 0.0 < one.mfu <= one.hfu
        assert 0.0 <= one.exposed_fraction <= 1.0 + ROUNDING


@given(points(offload=True))
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


@given(points(offload=True))
def test_no_loss_of_the_waterfall_is_a_gain(point):
    # Kernels cannot be faster than the peak, nor can the slowest stage have less than its share.
    many = point.estimate()
    for row in range(len(many)):
        losses = many[row].waterfall()
        for name in ("peak", "achieved"):
            losses.pop(name)
        assert max(losses.values()) <= ROUNDING


@given(points(offload=True))
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


@given(points(offload=True))
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


@pytest.mark.parametrize("field", ["overlap_dp", "overlap_tp", "overlap_pp", "overlap_ep"])
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
def test_narrower_parameters_never_hurt(point):
    assume("fp8" in point.cluster.accelerator.peak_flops)
    narrow = changed(point, precision="fp8", gather_precision="fp8")
    wide = changed(point, precision="fp8", gather_precision=None)
    assert faster(narrow, wide)
    assert np.all(narrow.memory_bytes <= wide.memory_bytes * (1.0 + ROUNDING))


@given(points())
def test_blocks_cost_no_more_than_rows(point):
    # The same rate; fewer bytes and launches.
    assume("fp8" in point.cluster.accelerator.peak_flops)
    plain = {"attention_precision": None, "gather_precision": None}
    blocks, rows, whole = (
        changed(point, precision=word, **plain) for word in ("fp8block", "fp8row", "fp8")
    )
    assert faster(blocks, rows)
    assert faster(whole, rows)


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


# Offload.

STATES = {"opt": "", "opt+nvme": "opt", "opt+param": "opt", "opt+param+nvme": "opt+nvme"}
"""Offloads of states, and what each offloads more than."""


@given(points(), st.sampled_from(sorted(STATES)), st.booleans())
def test_offloading_states_never_speeds_up_and_never_needs_more_memory(point, more, act):
    less, words = STATES[more], ["act"] if act else []
    sharding = {"sharding": "zero3"} if "param" in more else {}
    before, after = (
        changed(point, offload=joined([*offloads_of(each), *words]), **sharding)
        for each in (less, more)
    )
    # Parameters that are copied before each all-gather are not copied after the update.
    assert faster(changed(point, offload="", **sharding), after)
    assert np.all(after.memory_bytes <= before.memory_bytes * (1.0 + ROUNDING))
    moved = after.host_memory_bytes >= before.host_memory_bytes * (1.0 - ROUNDING)
    assert np.all(moved | ("nvme" in more))


@given(points())
def test_offloading_activations_never_speeds_up_and_never_needs_more_memory(point):
    before, after = changed(point, offload=""), changed(point, offload="act")
    assert faster(before, after)
    assert np.all(after.memory_bytes <= before.memory_bytes * (1.0 + ROUNDING))
    assert not np.any(before.terms.offload)
    assert np.all(before.host_memory_bytes == 0.0)


@pytest.mark.parametrize(
    "field",
    ["host_link_bandwidth", "host_memory_bandwidth", "host_cores", "nvme_read_bandwidth",
     "nvme_write_bandwidth"],
)  # fmt: skip
@given(point=points(offload=True), factor=st.integers(1, 16))
def test_a_better_host_never_hurts(field, point, factor):
    given_ = {"host_link_bandwidth": 2e10, "host_memory_bandwidth": 3e11, "host_cores": 64,
              "nvme_read_bandwidth": 1e10, "nvme_write_bandwidth": 1e10}  # fmt: skip
    plain = point.cluster.with_(**given_)
    better = plain.with_(**{field: given_[field] * factor})
    assert faster(point.estimate(cluster=better), point.estimate(cluster=plain))


# Experts.

mixtures = points(kinds=("experts",))


@given(points(kinds=("dense",)), st.booleans())
def test_one_expert_is_the_dense_model_of_its_width(point, stated):
    # A router of one expert chooses nothing, so that it costs nothing.
    moe = Moe(
        experts=1, experts_per_token=1, ffn=point.model.ffn, layers=point.model.layers * stated
    )
    single = msgspec.structs.replace(point.model, moe=moe, ffn=0, mlp_bias=False)
    dense = msgspec.structs.replace(point.model, mlp_bias=False)
    one, other = point.estimate(model=single), point.estimate(model=dense)
    assert np.array_equal(one.step_seconds, other.step_seconds)
    assert np.array_equal(one.memory_bytes, other.memory_bytes)


@given(mixtures)
def test_without_expert_parallelism_nothing_is_exchanged(point):
    alone = changed(point, ep=1, etp=1)
    assert not np.any(alone.terms.expert_parallel)
    assert not np.any(alone.comm_time.expert_parallel)
    # A first stage of dense layers alone may be the slowest one.
    sparse = np.asarray(alone.case.slowest_sparse) > 0.0
    assert np.all((np.asarray(alone.terms.experts) > 0.0) == sparse)


def balanced(point, **routing):
    fields = {"imbalance": 1.0, "capacity": None} | routing
    return point.estimate(workload=msgspec.structs.replace(point.workload, **fields))


@given(mixtures, st.floats(1.0, 8.0), st.floats(1.0, 4.0))
def test_balanced_routing_is_the_fastest(point, imbalance, factor):
    best = balanced(point)
    worse, worst = (
        balanced(point, imbalance=imbalance),
        balanced(point, imbalance=factor * imbalance),
    )
    assert faster(best, worse)
    assert faster(worse, worst)
    assert np.all(best.memory_bytes <= worse.memory_bytes * (1.0 + ROUNDING))


@given(mixtures, st.floats(0.1, 8.0), st.floats(1.0, 4.0))
def test_less_capacity_never_takes_longer(point, capacity, factor):
    assert faster(balanced(point, capacity=capacity), balanced(point, capacity=factor * capacity))


@given(mixtures)
def test_a_better_stack_for_experts_never_hurts(point):
    plain = msgspec.structs.replace(
        point.stack, cuda_graphs="none", overlaps_all_to_all=False, fused_experts=False
    )
    before = point.estimate(stack=plain)
    for field, value in (
        ("cuda_graphs", "router"), ("cuda_graphs", "attention"), ("cuda_graphs", "full"),
        ("overlaps_all_to_all", True), ("fused_experts", True),
    ):  # fmt: skip
        better = msgspec.structs.replace(plain, **{field: value})
        assert faster(point.estimate(stack=better), before)


@given(mixtures)
def test_experts_of_all_ranks_are_those_of_the_model(point):
    many = point.estimate()
    case, split = many.case, many.case.split
    for row, strategy in enumerate(point.strategies):
        stage = strategy.accelerators // strategy.pp
        copies = float(split.expert_ranks[row])
        assert copies == stage / (strategy.ep * strategy.etp)
        held = stage / copies * float(np.asarray(case.expert_params_of_layer)[row])
        assert held == pytest.approx(point.model.expert_parameters_per_layer)


@pytest.mark.parametrize("module", ["norm", "latent", "activation", "mlp"])
@given(point=mixtures)
def test_recomputing_a_module_trades_time_for_memory(module, point):
    without, with_ = (changed(point, recompute_modules=words, offload="") for words in ("", module))
    assert faster(without, with_)
    assert np.all(with_.memory_bytes <= without.memory_bytes * (1.0 + ROUNDING))


@given(mixtures)
def test_less_optimizer_state_needs_neither_more_memory_nor_more_time(point):
    def of(**changes):
        return point.estimate(workload=msgspec.structs.replace(point.workload, **changes))

    chain = [of(optimizer=name) for name in ("adamw", "adamw-bf16", "adamw-8bit", "sgd")]
    chain.append(of(optimizer="sgd", weights="bf16"))
    for more, less in itertools.pairwise(chain):
        assert faster(less, more)
        assert np.all(less.memory_bytes <= more.memory_bytes * (1.0 + ROUNDING))
    paged, kept = of(optimizer="paged-adamw-8bit"), of(optimizer="adamw-8bit")
    assert np.array_equal(paged.step_seconds, kept.step_seconds)
    assert np.all(paged.memory_bytes <= kept.memory_bytes)


@given(mixtures)
def test_smaller_losses_need_neither_more_memory_nor_more_time(point):
    chain = [
        point.estimate(workload=msgspec.structs.replace(point.workload, loss=loss))
        for loss in ("full", "chunked", "fused")
    ]
    for more, less in itertools.pairwise(chain):
        assert faster(less, more)
        assert np.all(less.memory_bytes <= more.memory_bytes * (1.0 + ROUNDING))


# One and many.


@settings(max_examples=12)
@given(points(minimum=10, maximum=50, offload=True))
def test_one_and_many_agree_to_the_last_bit(point):
    many = point.estimate()
    assert len(many) == len(point.strategies)
    for row, strategy in enumerate(point.strategies):
        one = point.estimate(strategies=strategy)
        assert one.to_dict() == many[row].to_dict()


@settings(max_examples=10)
@given(points(minimum=2, maximum=12, offload=True), points(minimum=1, maximum=6))
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
@given(points(minimum=2, maximum=20, offload=True), st.randoms())
def test_the_order_of_strategies_does_not_matter(point, random):
    order = list(range(len(point.strategies)))
    random.shuffle(order)
    shuffled = point.estimate(strategies=[point.strategies[row] for row in order])
    assert np.array_equal(shuffled.step_seconds, point.estimate().step_seconds[order])


@settings(max_examples=10)
@given(points(maximum=8, offload=True))
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
    plain = [s.with_(precision=None, attention_precision=None) for s in strategies]
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
