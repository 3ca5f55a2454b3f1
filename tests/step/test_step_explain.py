"""Derivations: every formula evaluates to the number that it explains."""

import ast
import math
import random
from functools import lru_cache
from typing import get_args

import msgspec
import pytest
from golden_estimates import drawn, inputs, read
from hypothesis import given, settings

from draws import points
from report_cases import CASES, priced
from scalewise.catalog import load_cluster
from scalewise.chip import load_chip
from scalewise.derivation import _CALLS
from scalewise.experts import DISPATCHERS
from scalewise.model import Convention, load_model
from scalewise.stack import load_stack
from scalewise.step.compose import compose
from scalewise.step.derive_memory import derive_memory
from scalewise.step.estimate import estimate
from scalewise.step.explain import TERM_DERIVATIONS, explain
from scalewise.step.layout import lay_out
from scalewise.step.memory import peak_memory
from scalewise.step.origin import Origin
from scalewise.step.terms import step_terms
from scalewise.strategies import Strategies
from scalewise.strategy import parse_strategy
from scalewise.terms import TERMS
from scalewise.workload import Workload
from sharding_draws import varied
from toys import one

REL = 1e-9


def assert_close(derivation, expected, *, least=0.0):
    """The formula gives the number, up to a part of what it is a part of."""
    value = derivation.value
    assert math.isclose(value, expected, rel_tol=REL, abs_tol=least), (
        derivation.key, value, expected, derivation.formula, derivation.letters,
    )  # fmt: skip


@lru_cache(maxsize=4096)
def words(formula):
    """Names in a formula, without those of functions."""
    tree = ast.walk(ast.parse(formula))
    return {node.id for node in tree if isinstance(node, ast.Name)} - set(_CALLS)


def assert_nested(derivation):
    """Every letter is used, and has the value of its derivation if it has one."""
    assert {letter.name for letter in derivation.letters} == words(derivation.formula)
    for letter in derivation.letters:
        if letter.because is not None:
            assert_close(letter.because, letter.value)
            assert_nested(letter.because)


def is_term(derivation):
    return derivation.key in TERMS and derivation.unit == "s"


def is_memory(derivation, memory):
    return derivation.key in memory and derivation.unit == "B"


def assert_explained(e):
    """Every derivation evaluates to what it names, and nothing that counts has none."""
    plain = e.to_dict() | {
        "parameters": e.model.parameters,
        "training_flops": e.many.training_flops,
        "gemm_rate": one(e.origin.case.rates.gemm),
        "goodput": None if e.goodput is None else e.goodput.fraction,
    }
    terms, memory = set(), set()
    for derivation in explain(e):
        if is_term(derivation):
            terms.add(derivation.key)
            assert_close(derivation, e.terms[derivation.key], least=1e-12 * e.step_seconds)
        elif is_memory(derivation, e.memory):
            memory.add(derivation.key)
            assert_close(derivation, e.memory[derivation.key])
        else:
            assert_close(derivation, plain[derivation.key])
        assert_nested(derivation)
    assert terms == {key for key, seconds in e.terms.items() if seconds}
    assert memory == {key for key, bytes_ in e.memory.items() if bytes_}


@pytest.mark.parametrize("name", CASES)
def test_every_derivation_gives_its_number(name):
    assert_explained(priced(name))


@pytest.mark.parametrize(
    ("spelling", "words"),
    [
        ("fsdp8-mb2-tilemlp8", {}),
        ("fsdp4-tp2-tilemlp3-acfull", {}),
        ("zero1x4-pp2-tilemlp2-ac1of2", {"precision": "tf32"}),
        ("fsdp8-tilemlp2-acop", {"precision": "fp32"}),
        ("fsdp8-tf32-acattn", {"optimizer": "muon"}),
        ("zero2x4-tp2-tf32", {}),
        ("ddp8-fp32", {"weights": "fp32"}),
        ("fsdp4-cp2-mb2", {"lengths": "100..3000"}),
        ("fsdp8-mb2", {"lengths": "600", "batching": "padded"}),
        ("fsdp8-mb2", {"lengths": "100..3000", "batching": "bucketed"}),
        ("zero1x4-pp2-gpipe", {"lengths": "100..3000", "batching": "bucketed"}),
    ],
)
@pytest.mark.parametrize("stack", ["pytorch", "megatron-2021"])
def test_documents_tiles_and_32_bits_are_explained(spelling, words, stack):
    workload = Workload(seq_len=4096, global_batch=16, **words)
    of = load_model("llama-2-7b"), load_cluster("dgx-h100", accelerators=8), workload
    for convention in ("causal", "palm"):
        asked = parse_strategy(spelling)
        assert_explained(estimate(*of, asked, stack=load_stack(stack), convention=convention))


@pytest.mark.parametrize(
    "goodput",
    [
        None, "off", "async", "rate=0", "spares=4,async,stragglers=2%",
        "restart=5min,checkpoint=20s,interval=30min,planned=0", "async,checkpoint=2h",
    ],
)  # fmt: skip
@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_runs_are_explained(goodput, optimizer):
    work = Workload(
        seq_len=4096, global_batch=128, tokens=2e12, goodput=goodput, optimizer=optimizer
    )
    of = load_model("llama-2-7b"), load_cluster("dgx-h100", accelerators=64), work
    e = estimate(*of, parse_strategy("fsdp64-mb2"))
    assert_explained(e)
    keys = [each.key for each in explain(e)][-4:]
    expected = ["goodput", "days", "run_usd", "run_joules"]
    assert keys[1 if goodput == "off" else 0 :] == expected[1 if goodput == "off" else 0 :]


@settings(max_examples=40)
@given(points(offload=True))
def test_every_derivation_of_any_point_gives_its_number(point):
    many = point.estimate()
    for row in range(len(many)):
        assert_explained(many[row])


TUNED = """
name = "tuned"
calibrated = true
gemm_fill = 300.0
memory_efficiency = 0.71
link_efficiency = 0.63
fitted_on = "a machine of one's own"

[gemm]
bf16 = 0.57
fp8 = 0.49
fp4 = 0.31

[attention]
flash1 = [0.21, 0.17]
flash2 = [0.33, 0.29]
cudnn = [0.44, 0.31]
splash = [0.37, 0.28]
unfused = [0.15, 0.11]
"""


@pytest.fixture
def tuned(tmp_path, monkeypatch):
    """A chip whose kernels were calibrated, in a catalog of the user's own."""
    folder = tmp_path / "calibrations"
    folder.mkdir()
    (folder / "tuned.toml").write_text(TUNED)
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    return "tuned"


def test_every_derivation_of_2000_strategies_gives_its_number(tuned):
    # Every schedule, sharding, context ring and collective, on catalog chips and on a tuned one.
    conventions = get_args(Convention)
    for place, row in enumerate(read()):
        model, cluster, workload, strategy, stack = inputs(row)
        convention = "causal"
        if place % 2:
            chip = cluster.accelerator.with_(architecture=tuned)
            cluster = cluster.with_(accelerator=chip)
            convention = conventions[place // 2 % len(conventions)]
        # As a table of one row it is its own origin.
        e = estimate(model, cluster, workload, [strategy], stack=stack, convention=convention)[0]
        if place % 2:
            assert one(e.origin.case.rates.gemm_fill) == 300.0
        assert_explained(e)


def drawn_offload(rng, strategy, workload):
    """Nothing, or whatever can be offloaded."""
    matmuls = workload.optimizer in ("muon", "shampoo")
    kinds = ["", "", "act"] + ["opt", "opt+act", "opt+nvme", "opt+act+nvme"] * (not matmuls)
    if strategy.sharding == "zero3" and not matmuls:
        kinds += ["opt+param", "opt+param+act", "opt+param+nvme"] * 2
    return rng.choice(kinds)


def test_every_derivation_of_models_with_experts_gives_its_number(tuned):
    # 2,000 more: every dispatcher, CUDA graph and fusion, balanced or not.
    rng = random.Random(5)
    seen = set()
    for place, (_, e) in enumerate(drawn(2000, seed=5, experts=True)):
        stack = msgspec.structs.replace(
            e.stack,
            dispatcher=rng.choice(DISPATCHERS),
            cuda_graphs=rng.choice(("none", "router", "attention", "full")),
            overlaps_all_to_all=rng.random() < 0.5,
            fused_experts=rng.random() < 0.5,
        )
        workload = msgspec.structs.replace(
            e.workload,
            optimizer=rng.choice(("adamw", "adamw-8bit", "muon", "shampoo")),
            weights=rng.choice(("mixed", "bf16", "fp32")),
            loss=rng.choice((None, "chunked", "fused")),
        )
        chip = e.cluster.accelerator
        if place % 2:
            chip = chip.with_(architecture=tuned)
        strategy = e.strategy.with_(offload=drawn_offload(rng, e.strategy, workload))
        cluster = e.cluster.with_(accelerator=chip)
        e = estimate(e.model, cluster, workload, [strategy], stack=stack)[0]
        assert_explained(e)
        seen |= {key for key, seconds in e.terms.items() if seconds}
    # Those of frozen models are in test_step_tuning.
    assert seen == set(TERMS) - {"adapters", "dequantize"}


def test_every_derivation_of_variants_of_sharding_gives_its_number():
    rng = random.Random(11)
    seen = set()
    for experts in (False, True):
        for _, before in drawn(400, seed=11, experts=experts):
            strategy = varied(rng, before.strategy, experts=before.model.moe is not None)
            seen |= set(str(strategy).split("-"))
            stack = msgspec.structs.replace(
                before.stack,
                reduce_every_micro_step=rng.random() < 0.5,
                pipeline_gathers_once=rng.random() < 0.5,
            )
            of = before.model, before.cluster, before.workload
            e = estimate(*of, [strategy], stack=stack)[0]
            assert_explained(e)
    words = {"hpz8", "qwz", "qgz", "synconce", "hiergather", "reduceeach", "reduceonce", "bucket25"}
    assert words <= seen


def test_every_term_has_a_derivation_under_its_key():
    assert list(TERM_DERIVATIONS) == list(TERMS)


def origin_of(chip, spelled="fsdp4-tp4-pp8-zbh1-mb1-acfull"):
    """One step on a chip that no catalog has."""
    strategy = parse_strategy(spelled)
    model, cluster = load_model("llama-3-70b"), load_cluster("dgx-h100", strategy.accelerators)
    workload, stack = Workload(seq_len=8192, global_batch=64), load_stack("megatron")
    case = lay_out(model, cluster, workload, Strategies.of([strategy]), stack, chip)
    return Origin(
        model=model, cluster=cluster, stack=stack, chip=chip, case=case, step=compose(case)
    )


@pytest.mark.parametrize("spelled", ["fsdp4-tp4-pp8-zbh1-mb1-acfull", "fsdp64-mb1", "ddp8-tp8-mb1"])
def test_derivations_read_the_fill_of_the_chip(spelled):
    chip = load_chip("hopper")
    assert chip.gemm_fill != 300.0
    usual = origin_of(chip, spelled)
    slow = origin_of(msgspec.structs.replace(chip, gemm_fill=300.0), spelled)
    terms, seconds = step_terms(slow.case, slow.step)
    for key, value in terms.parts().items():
        if one(value):
            derivation = TERM_DERIVATIONS[key](slow)
            assert derivation.key == key
            assert_close(derivation, one(value), least=1e-12 * one(seconds))
            assert_nested(derivation)
    gemm = TERM_DERIVATIONS["gemm"]
    assert gemm(slow).value > 1.01 * gemm(usual).value
    memory = {name: one(part) for name, part in peak_memory(slow.case).parts().items()}
    for derivation in derive_memory(slow):
        assert_close(derivation, memory[derivation.key])
        assert_nested(derivation)
