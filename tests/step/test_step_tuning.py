"""Fine-tuning: frozen models, adapters, models in 4 bits."""

import itertools
import random

import msgspec
import numpy as np
import pytest
from golden_estimates import inputs, read
from hypothesis import given, settings

from draws import tuned_points
from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.model import Model, load_model
from scalewise.step.case import Case
from scalewise.step.compose import compose
from scalewise.step.estimate import estimate
from scalewise.step.layer import layer_times
from scalewise.step.terms import step_terms
from scalewise.step.tuning import adapter_params
from scalewise.strategy import parse_strategy
from scalewise.units import GIB
from scalewise.workload import Workload
from step.test_step_explain import assert_explained

ROUNDING = 1e-9
STATES = ("parameters", "gradients", "optimizer")


def tuned(
    word, spelled="ddp1-mb1", *, model="llama-2-7b", on="dgx-a100", seq=4096, stack="megatron-lm",
    **more,
):  # fmt: skip
    strategy = parse_strategy(spelled)
    cluster = load_cluster(on, strategy.accelerators)
    workload = Workload(seq_len=seq, global_batch=8 * strategy.accelerators, tuning=word, **more)
    return estimate(load_model(model), cluster, workload, strategy, stack=stack)


def with_tuning(point, word, **more):
    return point.estimate(workload=msgspec.structs.replace(point.workload, tuning=word, **more))


# Software.


@pytest.mark.parametrize("spelled", ["ddp8-mb1", "zero1x8-mb1", "fsdp8-mb1"])
def test_adapters_are_trained_with_pytorch(spelled):
    e = tuned("lora16", spelled, stack=None)
    assert e.stack.name == "pytorch"
    assert e.defaults == ("--stack pytorch (usual for adapters)",)


# Numbers.


def test_a_frozen_model_has_neither_gradients_nor_optimizer_state():
    full, lora = tuned("full"), tuned("lora16")
    # 6,738,415,616 parameters of 2 bytes; 39,976,960 of adapters with 2, 6 and 12 bytes.
    assert lora.trained_parameters == 39_976_960
    assert full.trained_parameters == 6_738_415_616
    assert lora.memory["parameters"] == pytest.approx(2 * (6_738_415_616 - 4096 + 39_976_960))
    assert lora.memory["optimizer"] == pytest.approx(12 * 39_976_960)
    assert lora.memory["gradients"] / full.memory["gradients"] == pytest.approx(0.0059327, 1e-4)


def test_a_model_in_4_bits_is_as_large_as_published():
    # 6,476,005,376 matrix elements in 4.127 bits, the rest in 16.
    base = tuned("qlora0").memory["parameters"]
    stored = 6_476_005_376 * 4.126953125 / 8 + 2 * (6_738_415_616 - 4096 - 6_476_005_376)
    assert base == pytest.approx(stored)
    assert base / GIB == pytest.approx(3.6, abs=0.01)
    # One matrix of 4096 x 11008 in 16 bits at a time.
    buffer = tuned("qlora0").memory["workspace"] - tuned("lora0").memory["workspace"]
    assert buffer == 2 * 4096 * 11008


def test_backward_of_a_frozen_layer_has_no_weight_gradients():
    full, frozen = tuned("full"), tuned("lora0")
    gemms = full.step_seconds and full.terms["gemm"]
    # Two products of three, and about two thirds of their time.
    assert frozen.terms["gemm"] / gemms == pytest.approx(2 / 3, abs=0.01)
    assert frozen.terms["head"] < full.terms["head"]
    assert frozen.terms["attention"] == full.terms["attention"]
    assert frozen.terms["optimizer"] == 0.0
    assert frozen.terms["adapters"] == 0.0


def test_flops_of_a_frozen_model():
    # 4 per matrix parameter, head included; adapters 6; attention 3 x 1.07 GFLOP as ever.
    e = tuned("lora16")
    attention = 3 * 2 * 2 * 4096 * 2048 * 32
    flops = 4 * 6_607_077_376 + 6 * 39_976_960 + attention
    assert e.many.training_flops == pytest.approx(flops)
    rate = e.tokens_per_second_per_accelerator
    assert e.mfu == pytest.approx(rate * flops / 312e12)
    again = tuned("lora16", "ddp1-mb1-acfull")
    # Forward once more, but for the last matrix.
    down = 2 * 32 * 4096 * 11008
    more = 2 * (6_476_005_376 + 39_976_960) + attention / 3
    ratio = again.tokens_per_second_per_accelerator / 312e12
    assert again.hfu - again.mfu in (
        pytest.approx(ratio * more), pytest.approx(ratio * (more - down))
    )  # fmt: skip


def case_of(word, spelled, model="llama-2-7b"):
    e = tuned(word, spelled, model=model)
    return e.origin.case


@pytest.mark.parametrize(
    ("word", "spelled", "count"),
    [
        ("lora8-qv", "ddp1-mb1", 131_072),
        ("lora16", "ddp1-mb1", 1_249_280),
        ("lora16-attn", "ddp1-mb1", 524_288),
        # B of query, key, value, gate and up is split, A of out and down.
        ("lora16", "ddp1-tp4-mb1", 16 * (7 * 4096 + (4 * 4096 + 3 * 11008) / 4)),
    ],
)
def test_parameters_of_the_adapters_of_a_layer(word, spelled, count):
    assert float(np.ravel(adapter_params(case_of(word, spelled)))[0]) == count


def test_dequantization_of_a_layer():
    # 202,375,168 elements of 2.516 bytes at 90.4% of 2,039 GB/s, twice, and 42 starts of kernels.
    e = tuned("qlora16")
    rate = float(np.ravel(e.origin.case.rates.memory)[0])
    layer = 202_375_168 * (4.126953125 / 8 + 2) / rate + 21 * 3e-6
    assert e.terms["dequantize"] == pytest.approx(8 * 32 * 2 * layer)


def test_launches_of_adapters_are_counted():
    # 132 kernels of a layer; adapters have 4 forward and 8 backward, frozen matrices 22 less.
    launches = {
        word: [float(np.ravel(each)[0]) for each in _host(case_of(word, "ddp1-mb1"))]
        for word in ("full", "lora0", "lora16", "qlora16")
    }
    forward, backward = launches["full"]
    each = (forward + backward) / 132
    assert launches["lora0"] == pytest.approx([forward, backward - 22 * each])
    assert launches["lora16"] == pytest.approx([forward + 28 * each, backward + 34 * each])
    assert launches["qlora16"] == pytest.approx([forward + 49 * each, backward + 55 * each])


def _host(case):
    layer = layer_times(case)
    return layer.host_forward, layer.host_backward


def test_fsdp_gathers_the_frozen_model_as_it_is_stored_and_reduces_adapters():
    gathered = {}
    for word in ("full", "lora16", "qlora16"):
        e = tuned(word, "fsdp64-mb1", on="dgx-h100")
        traffic = e.many.step.traffic
        gathered[word] = [float(np.ravel(x)[0]) for x in (traffic.all_gather, traffic.reduce)]
    assert gathered["lora16"][0] == pytest.approx(gathered["full"][0], rel=0.02)
    assert gathered["qlora16"][0] < 0.5 * gathered["lora16"][0]
    assert 0.0 < gathered["lora16"][1] < 0.2 * gathered["full"][1]
    frozen = tuned("lora0", "fsdp64-mb1", on="dgx-h100")
    assert frozen.terms["dp_grad_reduce"] == 0.0


def test_tensor_parallelism_gathers_inputs_again_for_weight_gradients_alone():
    times = {
        word: tuned(word, "ddp1-tp8-mb1", on="dgx-h100").comm_seconds["tensor_parallel"]
        for word in ("full", "lora0", "lora16-attn", "lora16")
    }
    assert times["lora16"] == times["full"]
    assert times["lora0"] / times["full"] == pytest.approx(0.8)
    assert times["lora16-attn"] / times["full"] == pytest.approx(0.9)


# Refusals.


@pytest.mark.parametrize(
    ("model", "word", "message", "hint"),
    [
        ("deepseek-v3", "lora16", "--tuning lora16 on deepseek-v3: latent attention is not "
         "supported", "use full"),
        ("mixtral-8x7b", "lora16", "--tuning lora16 on mixtral-8x7b: adapters of routed experts "
         "are not supported", "use lora16-attn, or -qv"),
        ("mixtral-8x7b", "qlora8-qv", "--tuning qlora8-qv on mixtral-8x7b: routed experts in 4 "
         "bits are not supported", "use lora8-attn"),
    ],
)  # fmt: skip
def test_what_is_not_modeled_is_refused(model, word, message, hint):
    with pytest.raises(InputError) as error:
        tuned(word, "fsdp64-mb1", model=model, on="dgx-h100")
    assert str(error.value) == message
    assert error.value.hint == hint


def test_a_model_in_4_bits_computes_in_16():
    e = tuned("qlora16", "fsdp8-mb1-fp8", on="dgx-h100")
    assert e.infeasible == "tuning: a frozen model computes in 16 bits, with its MLPs whole"
    assert tuned("lora16", "fsdp8-mb1-fp8", on="dgx-h100").feasible


def test_tiles_of_a_frozen_mlp_keep_their_input_alone():
    # Of a layer of 4,096 tokens: 4 h and query, key, value, output; less h of each frozen input
    # that is needed for weight gradients alone, but that of the tiles, and 16-bit elements.
    e = tuned("lora0", "ddp1-mb1-tilemlp4")
    factor = float(e.origin.case.habits.activation_factor[0])
    kept = 2 * 4096 * (4 + 4 - 1) * 4096
    one_tile = 2 * 1024 * 3 * 11008
    assert e.memory["activations"] == pytest.approx(factor * (32 * kept + one_tile))


def test_tiles_of_a_frozen_wide_mlp_with_one_head_leave_no_negative_memory():
    # Four ranks of an MI250X have 1,024 of 4,096 tokens each; one head of 128 has 4 x 128 elements.
    model = Model(
        name="wide", layers=15, hidden=4096, heads=1, head_dim=128, ffn=16174, vocab=32000,
        gated=False,
    )  # fmt: skip
    spelled = "ddp1-nosp-cp4ag-mb1-ac1of4-tilemlp8-bf16-notpoverlap-noppoverlap"
    strategy = parse_strategy(spelled).with_(schedule="zbv")
    workload = Workload(seq_len=4096, global_batch=8, tuning="lora0")
    cluster = load_cluster("frontier", 4)
    e = estimate(model, cluster, workload, strategy, stack="pytorch")
    factor = float(e.origin.case.habits.activation_factor[0])
    # Of 4 h and the inside of the MLP the input of the frozen qkv projections and the tiles go.
    whole = factor * 2 * 1024 * (3 * 4096 + 4 * 128)
    block, tile = 2 * 1024 * 4096, factor * 2 * 128 * 2 * 16174
    stored = 0.75 * whole + 0.25 * block
    assert e.memory["activations"] == pytest.approx(14 * stored + whole + tile)


def test_graphs_that_capture_launches_leave_no_negative_wait():
    e = tuned("lora8-attn", "zero1x8-mb1", model="mixtral-8x7b", stack="megatron-bridge")
    assert e.terms["host"] >= 0.0
    layer = layer_times(e.origin.case)
    assert 0.0 < float(np.ravel(layer.host_backward)[0]) < float(np.ravel(layer.device_backward)[0])


# Properties.


@given(tuned_points())
def test_terms_and_memory_add_up_and_none_is_negative(point):
    many = point.estimate()
    for row in range(len(many)):
        e = many[row]
        assert sum(e.terms.values()) == pytest.approx(e.step_seconds, rel=1e-12)
        assert min(e.terms.values()) >= -ROUNDING * e.step_seconds
        assert min(e.memory.values()) >= 0.0
        assert min(e.comm_seconds.values()) >= 0.0
        assert 0.0 < e.mfu <= e.hfu
        losses = e.waterfall()
        assert max(v for k, v in losses.items() if k not in ("peak", "achieved")) <= ROUNDING


@given(tuned_points(words=("lora0",)))
def test_rank_0_is_a_frozen_forward_and_backward(point):
    frozen, full = point.estimate(), with_tuning(point, "full")
    assert not np.any(frozen.terms.adapters)
    assert not np.any(frozen.terms.dequantize)
    assert not np.any(frozen.terms.optimizer)
    assert np.all(np.abs(frozen.terms.dp_grad_reduce) <= ROUNDING * frozen.step_seconds)
    # The closed forms of a bubble are approximations that may grow where wgrads are missing.
    plain = np.broadcast_to(frozen.case.split.pp == 1.0, frozen.strategies.shape)
    assert np.all((frozen.step_seconds <= full.step_seconds * (1.0 + ROUNDING))[plain])
    # Quantized inputs of GEMMs and tiles of MLPs are refused with a frozen model.
    case = frozen.case
    sound = (case.rates.matmul_bytes >= 2.0) & (case.split.mlp_tiles == 1.0)
    less = frozen.memory_bytes <= full.memory_bytes * (1.0 + ROUNDING)
    assert np.all(less[np.broadcast_to(sound, less.shape)])
    # The targets of adapters without width do not matter.
    for word in ("lora0-attn", "lora0-qv"):
        other = with_tuning(point, word)
        assert np.array_equal(other.step_seconds, frozen.step_seconds)
        assert np.array_equal(other.memory_bytes, frozen.memory_bytes)


@given(tuned_points(words=("lora0",)))
def test_less_state_never_needs_more_memory(point):
    words = ("lora32-attn", "lora8-attn", "lora8-qv", "lora4-qv", "lora0")
    held = [with_tuning(point, word).memory for word in words]
    for more, less in itertools.pairwise(held):
        for part in (*STATES, "activations", "all_gather_buffers"):
            big, small = np.asarray(getattr(more, part)), np.asarray(getattr(less, part))
            assert np.all(small <= big * (1.0 + ROUNDING)), part
        assert np.all(less.total <= more.total * (1.0 + ROUNDING))


@given(tuned_points(kinds=("dense",)))
def test_storage_in_4_bits_saves_memory_and_costs_time(point):
    rank = point.workload.tuned.rank
    lora, qlora = with_tuning(point, f"lora{rank}"), with_tuning(point, f"qlora{rank}")
    # The last stage of a pipeline may have the LM head alone, which stays in 16 bits.
    saved = np.asarray(lora.memory.parameters) - np.asarray(qlora.memory.parameters)
    assert np.all(saved >= 0.0)
    assert np.all(saved[np.asarray(lora.case.split.pp) == 1.0] > 0.0)
    buffer = 2.0 * np.asarray(qlora.case.tuned.largest_matrix) / qlora.case.split.tp
    lost = 1.0 + point.stack.fragmentation
    assert np.all(qlora.memory_bytes <= (lora.memory_bytes + lost * buffer) * (1.0 + ROUNDING))
    one, other = qlora.step.layer.kernels, lora.step.layer.kernels
    for name in ("gemm_forward", "gemm_backward", "memory_backward", "wgrad", "head_backward"):
        assert np.array_equal(getattr(one, name), getattr(other, name))
    assert np.all(np.asarray(one.forward) > np.asarray(other.forward))
    assert np.all(np.asarray(qlora.terms.dequantize) > 0.0)


@given(tuned_points(kinds=("dense",), words=("lora4", "qlora4")))
def test_wider_adapters_never_cost_less(point):
    kind = point.workload.tuned.kind
    chain = [with_tuning(point, f"{kind}{rank}") for rank in (0, 4, 64)]
    for less, more in itertools.pairwise(chain):
        assert np.all(less.memory_bytes <= more.memory_bytes * (1.0 + ROUNDING))
        assert np.all(
            np.asarray(less.terms.adapters) <= np.asarray(more.terms.adapters) * (1.0 + ROUNDING)
        )


@settings(max_examples=15)
@given(tuned_points())
def test_one_and_many_agree(point):
    many = point.estimate()
    for row, strategy in enumerate(point.strategies[:3]):
        one = point.estimate(strategies=[strategy])
        assert one[0].to_dict() == many[row].to_dict()


@settings(max_examples=30)
@given(tuned_points())
def test_every_derivation_gives_its_number(point):
    many = point.estimate()
    for row in range(len(many)):
        assert_explained(many[row])


def test_every_derivation_of_400_strategies_gives_its_number():
    rng, seen = random.Random(11), set()
    for row in read()[:2000:5]:
        model, cluster, before, strategy, stack = inputs(row)
        kind, rank = rng.choice(("lora", "qlora")), rng.choice((0, 8, 16, 64))
        suffix = rng.choice(("", "-attn", "-qv"))
        if (strategy.precision or before.precision) not in ("bf16", "fp16"):
            kind = "lora"
        workload = msgspec.structs.replace(
            before,
            tuning=f"{kind}{rank}{suffix}",
            optimizer=rng.choice(("adamw", "adamw-8bit", "muon", "shampoo")),
            weights=rng.choice(("mixed", "bf16", "fp32")),
        )
        e = estimate(model, cluster, workload, strategy, stack=stack)
        assert_explained(e)
        seen |= {key for key, seconds in e.terms.items() if seconds}
    assert {"adapters", "dequantize", "recompute", "dp_grad_reduce", "bubble"} <= seen


def test_frozen_and_trained_steps_can_stand_behind_each_other():
    cases, seconds = [], []
    model, cluster = load_model("llama-2-7b"), load_cluster("dgx-h100", 32)
    for word in ("full", "lora16", "qlora8-qv", "lora0"):
        workload = Workload(seq_len=4096, global_batch=256, tuning=word)
        many = estimate(model, cluster, workload, [parse_strategy("fsdp8-tp2-pp2-mb1")])
        cases.append(many.case)
        seconds.append(float(many.step_seconds[0]))
    joined = Case.join(cases)
    _, together = step_terms(joined, compose(joined))
    assert together == pytest.approx(seconds, rel=1e-12)


# Published runs, which no constant has seen.

QWEN = {
    "7b": Model(
        name="qwen-7b", layers=32, hidden=4096, heads=32, ffn=11008, vocab=151936,
        attention_bias=True,
    ),
    "14b": Model(
        name="qwen-14b", layers=40, hidden=5120, heads=40, ffn=13696, vocab=152064,
        attention_bias=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("size", "seq_len", "seconds", "gigabytes"),
    [
        ("7b", 1024, 2.8, 21.5), ("7b", 2048, 5.2, 23.8), ("7b", 4096, 10.1, 29.7),
        ("7b", 8192, 21.3, 36.6), ("14b", 1024, 4.4, 35.3), ("14b", 2048, 8.4, 37.4),
        ("14b", 4096, 17.0, 42.5), ("14b", 8192, 36.0, 55.2),
    ],
)  # fmt: skip
def test_published_steps_of_lora(size, seq_len, seconds, gigabytes):
    # QwenLM/Qwen, README: one A100 SXM, rank 64 on all linear layers, one sequence and 8 gradient
    # accumulation steps, gradient checkpointing.
    workload = Workload(seq_len=seq_len, global_batch=8, tuning="lora64")
    strategy, cluster = parse_strategy("ddp1-mb1-acfull"), load_cluster("a100-sxm-80gb", 1)
    e = estimate(QWEN[size], cluster, workload, strategy, stack="pytorch")
    assert e.step_seconds == pytest.approx(seconds, rel=0.12)
    assert e.memory_bytes / 1e9 == pytest.approx(gigabytes, rel=0.08)
