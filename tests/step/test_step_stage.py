"""The slowest stage: which it is, and what it makes of a step."""

import numpy as np
import pytest

from scalewise.step.estimate import estimate
from scalewise.step.kernels import layer_kernels
from scalewise.step.p2p import message_seconds
from scalewise.strategy import parse_strategy
from toys import case_of, one, seconds, terms_of, toy_cluster, toy_model, toy_stack, toy_workload


def test_the_slowest_stage_sets_the_pace():
    # 16 layers on 4 stages, 8 micro-batches, data parallel 2 inside a domain.
    model = toy_model(layers=16)
    case = case_of("ddp2-pp4", model=model)
    kernels = layer_kernels(case)
    block, head = one(kernels.forward) + one(kernels.backward), one(kernels.head)
    terms = terms_of(case)
    # The last stage has the head on top of its four layers.
    assert terms["head"] == pytest.approx(8 * head, rel=1e-12)
    # The others' twelve layers, and four of the six messages down and up: two are its own.
    message = one(message_seconds(case))
    assert terms["pp_p2p"] == pytest.approx(8 * 2 * message, rel=1e-9)
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
    assert one(case.split.last_layers) == 0.0
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
