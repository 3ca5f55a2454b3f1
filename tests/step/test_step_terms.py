"""Terms of a step: a step put together by hand, and what may not jump."""

import dataclasses

import numpy as np
import pytest

from scalewise.physics.compute import smooth_max
from scalewise.step.data_parallel import block_traffic, hidden_behind, step_load
from scalewise.step.estimate import estimate
from scalewise.step.layers import head_compute, layer_compute
from scalewise.step.pipeline import message_seconds
from scalewise.step.terms import Terms, communication_load, step_terms
from scalewise.step.work import work
from scalewise.strategy import parse_strategy
from toys import (
    EDGE_PARAMS,
    LAYER_PARAMS,
    case_of,
    one,
    toy_cluster,
    toy_model,
    toy_stack,
    toy_workload,
)

PARAMS = 4 * LAYER_PARAMS + 2 * EDGE_PARAMS


def terms_of(case):
    return {name: one(value) for name, value in step_terms(case, work(case))[0].parts().items()}


def seconds(spelling, **toys):
    fields = {
        "model": toy_model(),
        "cluster": toy_cluster(),
        "workload": toy_workload(),
        "stack": toy_stack(),
    } | toys
    stack = fields.pop("stack")
    return estimate(**fields, strategy=parse_strategy(spelling), stack=stack).step_seconds


def test_one_accelerator_computes_and_nothing_else():
    # 16 micro steps of four layers; the stack's host is infinitely fast.
    case = case_of("ddp1", cluster=toy_cluster(1))
    layer = layer_compute(case)
    head_gemm, loss = head_compute(case)
    terms = terms_of(case)
    expected = dict.fromkeys(terms, 0.0) | {
        "gemm": 64 * one(layer.gemm_forward + layer.gemm_backward),
        "attention": 64 * one(layer.attention_forward + layer.attention_backward),
        "memory_bound": 64 * one(layer.memory_forward + layer.memory_backward + layer.gradient),
        "head": 16 * one(head_gemm + loss),
        "optimizer": 30.0 * PARAMS / 1e12,
        "overhead": 0.01,
    }
    assert terms == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_parts_are_the_fields_in_order():
    case = case_of("fsdp8")
    terms, seconds = step_terms(case, work(case))
    assert one(seconds) == one(terms.total)
    names = [field.name for field in dataclasses.fields(Terms)]
    assert list(terms.parts()) == names
    assert names[0] == "gemm"
    assert names[-1] == "straggler"


def test_optimizer_works_on_what_a_rank_owns():
    for spelling, share in (("ddp8", 1), ("zero1x8", 8), ("fsdp8", 8), ("hsdp2x4", 4)):
        terms = terms_of(case_of(spelling))
        assert terms["optimizer"] == pytest.approx(30.0 * PARAMS / share / 1e12, rel=1e-12)


def test_recompute_is_a_term_of_its_own():
    case = case_of("ddp1-acfull", cluster=toy_cluster(1))
    again = 64 * one(layer_compute(case).recompute)
    terms, plain = terms_of(case), terms_of(case_of("ddp1", cluster=toy_cluster(1)))
    assert terms["recompute"] == pytest.approx(again, rel=1e-12)
    assert {name: terms[name] for name in ("gemm", "attention", "memory_bound", "head")} == {
        name: plain[name] for name in ("gemm", "attention", "memory_bound", "head")
    }


def test_a_slow_host_is_waited_for():
    # 30 ms per layer, a third of it forward, against a device that needs far less.
    stack = toy_stack(host_layer_seconds=0.03)
    case = case_of("ddp1", cluster=toy_cluster(1), stack=stack)
    layer = layer_compute(case)
    forward, backward = one(layer.forward), one(layer.backward)
    wait = smooth_max(forward, 0.01) - forward + smooth_max(backward, 0.02) - backward
    assert terms_of(case)["host"] == pytest.approx(64 * wait, rel=1e-9)
    # Full recompute launches forward again.
    case = case_of("ddp1-acfull", cluster=toy_cluster(1), stack=stack)
    backward = one(layer.backward) + one(layer_compute(case).recompute)
    wait = smooth_max(forward, 0.01) - forward + smooth_max(backward, 0.03) - backward
    assert terms_of(case)["host"] == pytest.approx(64 * wait, rel=1e-9)


def test_scale_has_its_own_terms():
    # Eight domains of four: three doublings.
    stack = toy_stack(straggler=0.01)
    case = case_of(
        "ddp32", cluster=toy_cluster(32), workload=toy_workload(global_batch=32), stack=stack
    )
    terms = terms_of(case)
    assert terms["overhead"] == pytest.approx(0.01, rel=1e-12)
    rest = sum(terms.values()) - terms["straggler"]
    assert terms["straggler"] == pytest.approx(0.03 * rest, rel=1e-9)


def test_hidden_gathers_slow_the_compute_down():
    # Fast network: all but the first gather and the last reduction hide, and cost half of
    # their time as contention (2 micro steps of four layers).
    cluster = toy_cluster(8, scale_out_bandwidth=1e12, scale_up_bandwidth=1e12)
    case = case_of("fsdp8", cluster=cluster)
    traffic, terms = block_traffic(case), terms_of(case)
    gather, reduce = one(traffic.gather), one(traffic.reduce)
    root_gather, root_reduce = one(traffic.root_gather), one(traffic.root_reduce)
    assert terms["data_parallel_gather"] == pytest.approx(2 * (gather + root_gather), rel=1e-9)
    assert terms["data_parallel_reduce"] == pytest.approx(2 * (reduce + root_reduce), rel=1e-9)
    beside = one(traffic.forward) + one(traffic.backward)
    assert terms["contention"] == pytest.approx(2 * 3 * 0.5 * beside, rel=1e-9)


def test_slow_gathers_set_the_pace():
    # A network of 1 MB/s: three of four layers take exactly as long as their communication, of
    # which compute, slowed by half, hides its own share (2 micro steps).
    case = case_of("fsdp8", cluster=toy_cluster(8, scale_out_bandwidth=1e6))
    traffic, terms, layer = block_traffic(case), terms_of(case), layer_compute(case)
    compute = 2 * 3 * one(layer.forward + layer.backward)
    ends = one(traffic.gather + traffic.reduce + traffic.root_gather + traffic.root_reduce)
    total = 2 * 3 * one(traffic.forward + traffic.backward) + 2 * ends
    exposed = terms["data_parallel_gather"] + terms["data_parallel_reduce"]
    assert exposed + terms["contention"] + compute == pytest.approx(total, rel=1e-12)
    assert terms["contention"] == pytest.approx(0.5 * compute, rel=1e-6)


@pytest.mark.parametrize("spelling", ["fsdp8-nodpoverlap", "fsdp8-pf0", "hsdp2x4-nodpoverlap"])
def test_without_overlap_everything_is_exposed(spelling):
    case = case_of(spelling)
    done = work(case)
    (terms, _), load = step_terms(case, done), communication_load(case, done)
    exposed = one(terms.data_parallel_gather) + one(terms.data_parallel_reduce)
    assert exposed == pytest.approx(one(load.data_parallel), rel=1e-9)
    assert one(terms.contention) == pytest.approx(0.0, abs=1e-12)


def test_the_last_reduction_hides_behind_the_last_micro_step():
    case = case_of("ddp8")
    layer = layer_compute(case)
    # Gradients are there when backward is: forward hides none of them.
    window = 4 * one(layer.backward)
    traffic = hidden_behind(case, step_load(case, np.array([float(PARAMS)])), np.array([window]))
    done = work(case)
    (terms, _), load = step_terms(case, done), communication_load(case, done)
    assert one(terms.data_parallel_reduce) == pytest.approx(one(traffic.exposed), rel=1e-9)
    assert one(load.data_parallel) == pytest.approx(one(traffic.load), rel=1e-12)
    assert one(terms.data_parallel_gather) == 0.0


def test_the_slowest_stage_sets_the_pace():
    # 16 layers on 4 stages, 8 micro steps, data parallel 2 inside a domain.
    model = toy_model(layers=16)
    case = case_of("ddp2-pp4", model=model)
    layer = layer_compute(case)
    head_gemm, loss = head_compute(case)
    block, head = one(layer.forward) + one(layer.backward), one(head_gemm + loss)
    terms = terms_of(case)
    # The last stage has the head on top of its four layers.
    assert terms["head"] == pytest.approx(8 * head, rel=1e-12)
    # The others' twelve layers, and four of the six messages down and up: two are its own.
    message = one(message_seconds(case))
    assert terms["pipeline_send"] == pytest.approx(8 * 2 * message, rel=1e-9)
    messages = 4 * message
    assert messages > 0.0
    assert terms["bubble"] == pytest.approx(12 * block + messages, rel=1e-9)
    busy = sum(terms[name] for name in ("gemm", "attention", "memory_bound", "head"))
    assert busy == pytest.approx(8 * (4 * block + head), rel=1e-9)


def test_a_full_first_stage_sets_the_pace():
    model = toy_model(layers=16)
    terms = terms_of(case_of("ddp2-pp4-first13", model=model))
    even = terms_of(case_of("ddp2-pp4", model=model))
    assert terms["gemm"] == pytest.approx(13 / 4 * even["gemm"], rel=1e-9)
    assert terms["head"] == 0.0
    assert seconds("ddp2-pp4-first13", model=model) > seconds("ddp2-pp4", model=model)


@pytest.mark.parametrize("spelling", ["fsdp2-pp4", "fsdp2-pp4-acfull", "ddp2-pp4", "zero2x2-pp4"])
def test_a_last_stage_without_layers_is_only_the_head(spelling):
    # A head as heavy as 20 layers, filled by FLOPs: the last stage gets no layer.
    model, stack = toy_model(layers=8, vocab=300_000), toy_stack(partition="flops")
    case = case_of(spelling, model=model, stack=stack)
    assert one(case.last_layers) == 0.0
    terms = terms_of(case)
    assert terms["gemm"] == 0.0
    assert terms["head"] > 0.0
    assert min(terms.values()) >= 0.0


def test_faster_chips_never_hurt_when_the_slowest_stage_changes():
    # Seven layers as 4 + 3: the last stage is the slowest until the head, which is bound by
    # FLOPs, gets shorter than a layer, which is partly bound by memory.
    model = toy_model(layers=7, vocab=24_000)
    cluster = toy_cluster(16, scale_out_bandwidth=1e8)
    chip, stack = cluster.accelerator, toy_stack(logit_bytes=0.0)
    times, on_last = [], []
    for factor in np.geomspace(0.1, 10.0, 81):
        faster = cluster.with_(accelerator=chip.with_(peak_flops={"bf16": 100e12 * factor}))
        result = estimate(model, faster, toy_workload(), parse_strategy("ddp8-pp2"), stack=stack)
        times.append(result.step_seconds)
        on_last.append(result.terms["head"] > 0.0)
    assert on_last[0]
    assert not on_last[-1]
    assert np.all(np.diff(times) <= 0.0)


def test_compute_hides_one_communication_at_a_time():
    # So slow a network that the reduction outlasts backward: nothing is left for the gather of
    # the parameters to hide behind, and more compute cannot help.
    model, cluster = toy_model(layers=16), toy_cluster(8, scale_out_bandwidth=1e8)
    plain = seconds("zero2x8", model=model, cluster=cluster)
    assert plain <= seconds("zero2x8-acfull", model=model, cluster=cluster)
