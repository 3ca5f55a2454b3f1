"""Terms of a step: a step put together by hand."""

import dataclasses

import pytest

from scalewise.step.compose import compose
from scalewise.step.kernels import layer_kernels
from scalewise.step.terms import Terms, step_terms
from toys import (
    EDGE_PARAMS,
    LAYER_PARAMS,
    case_of,
    one,
    terms_of,
    toy_cluster,
    toy_stack,
    toy_workload,
)

PARAMS = 4 * LAYER_PARAMS + 2 * EDGE_PARAMS


def test_one_accelerator_computes_and_nothing_else():
    # 16 micro-batches of four layers; the stack's host is infinitely fast.
    case = case_of("ddp1", cluster=toy_cluster(1))
    kernels = layer_kernels(case)
    terms = terms_of(case)
    expected = dict.fromkeys(terms, 0.0) | {
        "gemm": 64 * one(kernels.gemm_forward + kernels.gemm_backward),
        "attention": 64 * one(kernels.attention_forward + kernels.attention_backward),
        "memory_bound": 64
        * one(kernels.memory_forward + kernels.memory_backward + kernels.gradient),
        "head": 16 * one(kernels.head),
        "optimizer": 30.0 * PARAMS / 1e12,
        "overhead": 0.01,
    }
    assert terms == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_parts_are_the_fields_in_order():
    case = case_of("fsdp8")
    terms, seconds = step_terms(case, compose(case))
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
    repeated = 64 * one(layer_kernels(case).recompute)
    terms, plain = terms_of(case), terms_of(case_of("ddp1", cluster=toy_cluster(1)))
    assert terms["recompute"] == pytest.approx(repeated, rel=1e-12)
    assert {name: terms[name] for name in ("gemm", "attention", "memory_bound", "head")} == {
        name: plain[name] for name in ("gemm", "attention", "memory_bound", "head")
    }


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
