"""GEMMs in tf32 and fp32: 32 bits in memory, in messages, in attention and in the LM head."""

import msgspec
import numpy as np
import pytest
from hypothesis import assume, given

from draws import points
from scalewise.catalog import load_cluster
from scalewise.chip import load_chip
from scalewise.errors import InputError
from scalewise.model import load_model
from scalewise.precision import RECIPES
from scalewise.step import context_parallel, expert_parallel, p2p, tensor_parallel
from scalewise.step.data_parallel import layer_traffic
from scalewise.step.estimate import estimate
from scalewise.step.gradient_buckets import updated_bytes
from scalewise.step.kernels import gemm_shapes
from scalewise.step.memory import activation_bytes, peak_memory, state_bytes
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload
from toys import case_of, one, sparse_case_of, terms_of, toy_cluster, toy_stack, toy_workload

ROUNDING = 1e-9


def wide_cluster(**changes):
    """The toys with 50 TFLOP/s of tf32 and 10 of fp32."""
    cluster = toy_cluster(**changes)
    peaks = {"bf16": 100e12, "fp8": 200e12, "tf32": 50e12, "fp32": 10e12}
    return cluster.with_(accelerator=cluster.accelerator.with_(peak_flops=peaks))


def wide(*spellings, **toys):
    """Lay out strategies on them."""
    return case_of(*spellings, cluster=wide_cluster(), **toys)


def test_rates_of_32_bits():
    rates = wide("fsdp8", "fsdp8-tf32", "fsdp8-fp32").rates
    assert rates.peak.tolist() == [100e12, 50e12, 10e12]
    # The fractions of 16 bits; attention backward of the toys reaches half.
    assert rates.gemm.tolist() == rates.gemm16.tolist() == [100e12, 50e12, 10e12]
    assert rates.attention_forward.tolist() == [100e12, 50e12, 10e12]
    assert rates.attention_backward.tolist() == [50e12, 25e12, 5e12]
    assert rates.matmul_bytes.tolist() == rates.activation_bytes.tolist() == [2.0, 4.0, 4.0]
    assert rates.quantize_bytes.tolist() == [0.0, 0.0, 0.0]
    operands = np.asarray(gemm_shapes(wide("fsdp8-tf32"))[3])
    assert np.all(operands == 4.0)


def test_the_strategy_and_the_workload_say_the_same():
    stated = wide("fsdp8-tf32")
    asked = wide("fsdp8", workload=toy_workload(precision="tf32"))
    alone = wide("fsdp8", workload=toy_workload(precision="tf32", weights="fp32"))
    assert terms_of(stated) == terms_of(asked) == terms_of(alone)
    assert one(peak_memory(stated).total) == one(peak_memory(alone).total)


def test_messages_of_activations_are_twice_as_large():
    for size, spelling, bytes_ in (
        (tensor_parallel.message_bytes, "fsdp4-tp2", 4 * 1000 * 1024),
        (p2p.message_bytes, "fsdp4-pp2", 4 * 1000 * 1024),
        # Keys and values of 256 columns each.
        (context_parallel.local_bytes, "fsdp4-cp2", 2 * 4 * 500 * 256),
    ):
        assert one(size(wide(f"{spelling}-tf32"))) == bytes_
        assert one(size(wide(spelling))) == bytes_ / 2
    case = sparse_case_of("fsdp8-ep4-tf32", cluster=wide_cluster())
    assert one(expert_parallel.exchange_bytes(case)) == 4 * 1000 * 1024


def test_parameters_have_one_copy_of_32_bits():
    case = wide("fsdp8-tf32")
    # A shard of weights, of gradients and of two moments.
    assert [one(each) for each in state_bytes(case, case.split.shards)] == [0.5, 0.5, 1.0]
    assert one(case.split.gather_bytes) == 4.0
    assert one(case.habits.reduce_bytes) == 4.0
    assert one(wide("fsdp8-tf32-reducebf16").habits.reduce_bytes) == 2.0
    replicas = wide("ddp8-tf32")
    assert [one(each) for each in state_bytes(replicas, 1.0)] == [4.0, 4.0, 8.0]
    # Layers, embedding and head alike: ZeRO-1 gathers 4 bytes of each.
    assert one(updated_bytes(wide("zero1x8-tf32"), np.array([100.0]), np.array([10.0]))) == 400.0
    gathers = one(layer_traffic(case).all_gather), one(layer_traffic(wide("fsdp8")).all_gather)
    assert 1.9 < gathers[0] / gathers[1] < 2.0


def test_activations_have_32_bits():
    for spelling in ("fsdp8", "fsdp4-tp2", "fsdp8-acfull", "fsdp8-acop", "fsdp8-tilemlp4"):
        half, full = wide(spelling), wide(f"{spelling}-tf32")
        assert one(activation_bytes(full)[0]) == 2.0 * one(activation_bytes(half)[0])
        assert one(peak_memory(full).activations) == 2.0 * one(peak_memory(half).activations)
        # The loss works in 32 bits in any case.
        assert one(peak_memory(full).logits) == one(peak_memory(half).logits)


def test_unfused_scores_have_32_bits():
    stack = toy_stack(attention_kernel="unfused")
    plain = wide("fsdp8-tf32")
    scores = wide("fsdp8-tf32", stack=stack)
    # Two of 4 bytes and a mask of one, for 8 heads of 1000 x 1000.
    more = one(activation_bytes(scores)[0]) - one(activation_bytes(plain)[0])
    assert more == 9 * 8 * 1000 * 1000


def test_activations_kept_quantized_are_kept_as_they_are():
    stack = toy_stack(keeps_quantized=True)
    case, plain = wide("fsdp8-tf32", stack=stack), wide("fsdp8-tf32")
    assert one(activation_bytes(case)[0]) == one(activation_bytes(plain)[0])


def test_memory_bound_kernels_move_twice_as_much():
    half, full = wide("fsdp8"), wide("fsdp8-tf32")
    # 4 bytes per parameter to handle gradients stay.
    gradients = 2 * 4 * 4.0 * 15_206_400 / 1e12
    before, after = (terms_of(case)["memory_bound"] - gradients for case in (half, full))
    assert after == pytest.approx(2.0 * before)


@pytest.mark.parametrize(
    ("spelling", "fields", "message"),
    [
        ("fsdp8-tf32", {"weights": "bf16"}, "weights = bf16: GEMMs in tf32 and fp32 read 32-bit"),
        ("fsdp8-tf32-fp8attn", {}, "attention_precision = fp8 needs GEMMs of 16 bits or less"),
    ],
)
def test_mixtures_are_refused(spelling, fields, message):
    with pytest.raises(InputError, match=message):
        wide(spelling, workload=toy_workload(**fields))


def test_weights_of_16_bits_are_refused():
    with pytest.raises(InputError, match="weights = bf16: GEMMs in fp32 read 32-bit weights"):
        Workload(seq_len=1000, global_batch=8, precision="fp32", weights="bf16")


def test_a_chip_without_a_peak_is_refused():
    with pytest.raises(InputError, match="precision tf32 is not supported: toy has no tf32 peak"):
        case_of("fsdp8-tf32")


def test_no_run_is_behind_the_fractions():
    chip = load_chip("hopper")
    assert chip.knows("bf16")
    assert not chip.knows("tf32")
    of = load_model("llama-2-7b"), load_cluster("dgx-h100", accelerators=8)
    strategy = parse_strategy("fsdp8-mb1")

    def asked(precision):
        work = Workload(seq_len=4096, global_batch=8, precision=precision)
        return estimate(*of, work, strategy, stack="pytorch")

    half, full = asked("bf16"), asked("tf32")
    assert full.peak_flops == 494.5e12
    assert any("no published run is in tf32" in text for text in full.warnings)
    work = Workload(seq_len=4096, global_batch=8)
    stated = estimate(*of, work, parse_strategy("fsdp8-mb1-tf32"), stack="pytorch")
    assert (stated.warnings, stated.interval) == (full.warnings, full.interval)
    assert not any("no published run is in" in text for text in half.warnings)
    assert full.high / full.low > half.high / half.low


@given(points(kinds=("dense", "experts")))
def test_tf32_is_never_faster_than_bf16_nor_smaller(point):
    assume("tf32" in point.cluster.accelerator.peak_flops)
    plain = [
        s.with_(precision=None, attention_precision=None, gather_precision=None)
        for s in point.strategies
    ]

    def of(precision):
        work = msgspec.structs.replace(point.workload, precision=precision, weights="fp32")
        return point.estimate(workload=work, strategies=plain)

    half, full = of("bf16"), of("tf32")
    assert np.all(full.step_seconds >= half.step_seconds * (1.0 - ROUNDING))
    assert np.all(full.memory_bytes >= half.memory_bytes * (1.0 - ROUNDING))
    if RECIPES["fp32"].peak in point.cluster.accelerator.peak_flops:
        assert np.all(of("fp32").step_seconds >= full.step_seconds * (1.0 - ROUNDING))
