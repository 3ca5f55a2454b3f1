"""From nouns to a case: which number ends up where."""

import msgspec
import pytest

from scalewise.catalog import load_cluster
from scalewise.chip import load_chip
from scalewise.cluster import Fabric
from scalewise.errors import InputError
from scalewise.stack import load_stack
from scalewise.step.hardware import clock
from scalewise.step.layout import lay_out
from scalewise.strategies import Strategies
from scalewise.strategy import SCHEDULES, parse_strategy
from toys import case_of, one, toy_chip, toy_cluster, toy_model, toy_stack, toy_workload


def test_shapes_of_the_model():
    case = case_of("fsdp8")
    assert one(case.shape.query) == 1024.0
    assert one(case.shape.key_value) == 256.0
    assert one(case.shape.span) == 500.0
    assert one(case.layer_params) == 15_206_400.0
    assert one(case.shape.embedding_params) == one(case.shape.head_params) == 32_768_000.0
    assert one(case_of("fsdp8", model=toy_model(tied=True)).shape.head_params) == 0.0


def test_rates_by_precision():
    case = case_of("fsdp8", "fsdp8-fp8", stack=toy_stack(gemm=0.5, attention_backward=0.5))
    assert case.rates.peak.tolist() == [100e12, 200e12]
    assert case.rates.gemm.tolist() == [50e12, 100e12]
    assert case.rates.gemm16.tolist() == [50e12, 50e12]
    assert case.rates.matmul_bytes.tolist() == [2.0, 1.0]
    # Attention stays in 16 bits: the chip does 1.0 forward and 0.5 backward, the stack half of it.
    assert case.rates.attention_forward.tolist() == [100e12, 100e12]
    assert case.rates.attention_backward.tolist() == [25e12, 25e12]


def test_rates_by_scales():
    # Row-wise and blockwise GEMMs reach 0.95 of those with one scale per tensor.
    case = case_of("fsdp8-fp8", "fsdp8-fp8row", "fsdp8-fp8block")
    assert case.rates.peak.tolist() == [200e12, 200e12, 200e12]
    assert case.rates.gemm.tolist() == [200e12, 190e12, 190e12]
    assert case.rates.matmul_bytes.tolist() == [1.0, 1.0, 1.0]
    assert case.rates.quantize_bytes.tolist() == [4.0, 6.0, 4.0625]
    assert case.rates.scale_bytes.tolist() == [0.0, 0.0, 0.03125]
    assert case.rates.quantizing.tolist() == [1.5, 2.0, 1.5]
    # Tensor cores with 4-bit types scale blocks themselves.
    plain = toy_cluster().accelerator
    newer = plain.with_(peak_flops=plain.peak_flops | {"fp4": 400e12})
    case = case_of("fsdp8-fp8row", "fsdp8-fp8block", cluster=toy_cluster(accelerator=newer))
    assert case.rates.gemm.tolist() == [190e12, 200e12]


def test_attention_in_eight_bits():
    case = case_of("fsdp8", "fsdp8-fp8attn", "fsdp8-fp8-fp8attn", stack=toy_stack(scan_bytes=2.0))
    assert case.rates.attention_forward.tolist() == [100e12, 180e12, 180e12]
    assert case.rates.attention_backward.tolist() == [50e12, 50e12, 50e12]
    assert case.rates.attention_cast_bytes.tolist() == [0.0, 5.0, 5.0]
    old = toy_cluster(accelerator=toy_cluster().accelerator.with_(peak_flops={"bf16": 100e12}))
    with pytest.raises(InputError, match="precision fp8 is not supported: toy has no fp8 peak"):
        case_of("fsdp8-fp8attn", cluster=old)


def test_gathers_in_eight_bits():
    words = ("fsdp8-fp8", "fsdp8-fp8-gatherfp8", "fsdp8-fp8row-gatherfp8", "zero1x8-gatherfp8")
    case = case_of(*words)
    assert case.split.gather_bytes.tolist() == [2.0, 1.0, 2.0, 2.0]
    assert case.split.gather_fits.tolist() == [True, True, False, False]
    # The precision of the workload counts where the strategy has none.
    case = case_of("fsdp8-gatherfp8", workload=toy_workload(precision="fp8block"))
    assert one(case.split.gather_bytes) == 1.0


def test_links_after_efficiencies():
    fabric = Fabric(name="tin", hop_seconds=1e-6, call_seconds=2e-6, efficiency=0.5)
    cluster = toy_cluster(16, fabric=fabric, oversubscription=4.0, tier_size=8, host="amd")
    case = case_of("fsdp16", cluster=cluster)
    assert one(case.links.scale_up) == 100e9
    assert one(case.links.scale_out) == 10e9 * 0.5 / 4.0
    assert one(case.links.hop_seconds) == 1e-6
    assert one(case.links.call_seconds) == 2e-6
    assert one(case.split.domains) == 4.0
    # NCCL's host overhead per ring step: 2 us on AMD, 1 us on Intel.
    assert one(case.links.net_overhead) == 2e-6
    assert one(case_of("fsdp8", cluster=toy_cluster(host="intel")).links.net_overhead) == 1e-6


@pytest.mark.parametrize(("cap", "share"), [(None, 1.0), (300.0, 1.0), (180.0, 0.615)])
def test_clock_under_a_power_cap(cap, share):
    assert clock(toy_cluster(power_cap_watts=cap), toy_chip()) == pytest.approx(share, rel=1e-12)


def test_clock_without_published_power():
    chip = msgspec.structs.replace(toy_cluster().accelerator, tdp_watts=None, idle_watts=None)
    assert clock(toy_cluster(accelerator=chip), toy_chip()) == 1.0


def test_early_kernels_of_an_architecture():
    chip = load_chip("blackwell")
    assert (chip.early_until, chip.early_gemm) == ("2025-07", {"fp8": 0.85})
    rates = {}
    for name in ("megatron", "megatron-2025"):
        case = lay_out(
            toy_model(),
            load_cluster("gb200", 8),
            toy_workload(),
            Strategies.of([parse_strategy(text) for text in ("fsdp8", "fsdp8-fp8", "fsdp8-nvfp4")]),
            load_stack(name),
            chip,
        )
        rates[name] = case.rates.gemm
    assert rates["megatron-2025"] / rates["megatron"] == pytest.approx([1.0, 0.85, 1.0])


@pytest.mark.parametrize(
    ("on", "cap", "share"),
    [
        ("h100-sxm-80gb", None, 1.0),
        ("h200-sxm-141gb", None, 1.0),
        ("h100-sxm-96gb-500w", None, 0.8481),
        ("h100-pcie-80gb", None, 0.8045),
        ("h20-sxm-96gb", None, 1.0),
        ("a100-pcie-80gb", None, 0.8686),
        ("a100-sxm-64gb-custom", None, 0.9795),
        ("gb200", None, 1.0),
        ("b200-sxm-180gb", None, 1.0),
        ("b200-sxm-180gb", 700.0, 0.8010),
        ("mi300x", None, 1.0),
    ],
)
def test_clock_of_parts_against_the_power_of_their_calibration(on, cap, share):
    cluster = load_cluster(on).with_(power_cap_watts=cap)
    chip = load_chip(cluster.accelerator.architecture)
    assert clock(cluster, chip) == pytest.approx(share, abs=1e-4)


def test_strategy_columns():
    case = case_of(
        "fsdp8", "fsdp4-tp2", "fsdp4-tp2-nosp", "fsdp2-pp4-v2", "fsdp2-pp4-zbh1", "fsdp2-pp4-gpipe",
        "fsdp4-cp2ag", "fsdp8-reducebf16",
        model=toy_model(layers=16),
    )  # fmt: skip
    # Sequence parallelism needs something to split.
    assert case.split.sequence_parallel.tolist() == [0, 1, 0, 0, 0, 0, 0, 0]
    schedules = [SCHEDULES[int(code)] for code in case.split.schedule]
    assert schedules == [
        "1f1b", "1f1b", "1f1b", "interleaved", "zbh1", "gpipe", "1f1b", "1f1b",
    ]  # fmt: skip
    assert case.split.chunks.tolist() == [1, 1, 1, 2, 1, 1, 1, 1]
    assert case.split.cp_ring.tolist() == [1, 1, 1, 1, 1, 1, 0, 1]
    assert case.habits.reduce_bytes.tolist() == [4, 4, 4, 4, 4, 4, 4, 2]
    assert case.split.num_microbatches.tolist() == [2, 4, 4, 8, 8, 8, 4, 2]
    assert case.split.middle_layers.tolist() == [16, 16, 16, 4, 4, 4, 16, 16]


@pytest.mark.parametrize(
    ("family", "precision", "reduced"),
    [("megatron", "fp16", 2), ("megatron", "bf16", 4), ("pytorch", "fp16", 4)],
)
def test_fp16_gradients_of_megatron_stay_16_bits_on_the_wire(family, precision, reduced):
    chip = toy_cluster().accelerator
    chip = msgspec.structs.replace(chip, peak_flops={"bf16": 1e14, "fp16": 1e14})
    toys = {
        "cluster": toy_cluster(accelerator=chip),
        "workload": toy_workload(precision=precision),
        "stack": toy_stack(family=family),
    }
    assert case_of("zero1x8", **toys).habits.reduce_bytes.tolist() == [reduced]
    stated = case_of("zero1x8-reducefp32", **toys)
    assert stated.habits.reduce_bytes.tolist() == [4]


def test_a_batch_that_is_too_small_is_one_micro_batch():
    case = case_of("fsdp8-mb8", workload=toy_workload(global_batch=16))
    assert one(case.split.num_microbatches) == 1.0


def test_stage_sizes_do_not_depend_on_the_neighbors():
    alone = case_of("pp2", cluster=toy_cluster(2))
    for other in ("first131072", "first131072-last5", "pp4194304", "pp2-first131072"):
        beside = case_of(other, "pp2", cluster=toy_cluster(2))
        for name in ("first_layers", "middle_layers", "last_layers"):
            assert getattr(beside.split, name)[1] == one(getattr(alone.split, name))
