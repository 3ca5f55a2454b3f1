"""The verb: what it returns for one and for many, what it chooses, what it refuses."""

import json

import msgspec
import numpy as np
import pytest

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.model import Model, load_model
from scalewise.ranges import level_range
from scalewise.stack import load_stack
from scalewise.step.estimate import Estimates, estimate
from scalewise.step.feasibility import REASONS
from scalewise.step.result import Estimate
from scalewise.strategies import Strategies
from scalewise.strategy import parse_strategy
from scalewise.workload import Workload
from toys import toy_cluster, toy_model, toy_stack, toy_workload

STRATEGY = parse_strategy("fsdp8-mb2")


def toy(strategy=STRATEGY, **changes):
    fields = {"cluster": toy_cluster(), "workload": toy_workload(), "stack": toy_stack()} | changes
    return estimate(
        toy_model(), fields["cluster"], fields["workload"], strategy, stack=fields["stack"]
    )


def test_one_gives_an_estimate_and_many_give_estimates():
    assert isinstance(toy(), Estimate)
    for many in ([STRATEGY], (STRATEGY, STRATEGY), Strategies.of([STRATEGY])):
        result = toy(many)
        assert isinstance(result, Estimates)
        assert len(result) == len(many)
        assert result[0].step_seconds == toy().step_seconds


def test_rates_follow_from_the_step_time():
    one = toy()
    tokens = 16 * 1000
    assert one.num_microbatches == 1
    assert one.tokens_per_second == pytest.approx(tokens / one.step_seconds)
    assert one.tokens_per_second_per_accelerator == pytest.approx(one.tokens_per_second / 8)
    # An uncalibrated chip and a stack without runs of its own.
    assert (one.basis.calibrated, one.basis.knowledge) == (False, "family")
    low, high = level_range(one.basis)
    assert one.low == pytest.approx(one.tokens_per_second_per_accelerator * low)
    assert one.high == pytest.approx(one.tokens_per_second_per_accelerator * high)


def test_utilization_and_its_convention():
    for convention in ("causal", "palm", "megatron", "6n"):
        one = estimate(
            toy_model(),
            toy_cluster(),
            toy_workload(),
            STRATEGY,
            stack=toy_stack(),
            convention=convention,
        )
        flops = toy_model().training_flops(1000, convention)
        assert one.convention == convention
        assert one.tflops == pytest.approx(one.tokens_per_second_per_accelerator * flops / 1e12)
        assert one.mfu == pytest.approx(one.tflops / 100.0)
        assert one.hfu == one.mfu


def test_hardware_utilization_counts_what_is_repeated():
    full = toy(parse_strategy("fsdp8-mb2-acfull"))
    parts = toy_model().forward_flops_parts(1000)
    # Forward once more, without the head and the last product of each layer.
    repeated = parts["qkv"] + parts["attention_out"] + parts["mlp"] + parts["attention"]
    repeated -= 4 * 2.0 * 1024 * 4096
    extra = full.tokens_per_second_per_accelerator * repeated / 100e12
    assert full.hfu == pytest.approx(full.mfu + extra, rel=1e-12)
    selective = toy(parse_strategy("fsdp8-mb2-acsel"))
    extra = selective.tokens_per_second_per_accelerator * parts["attention"] / 100e12
    assert selective.hfu == pytest.approx(selective.mfu + extra, rel=1e-12)


def test_precision_of_the_strategy_goes_before_that_of_the_workload():
    eight = toy_workload(precision="fp8")
    assert toy().peak_flops == 100e12
    assert toy(workload=eight).peak_flops == 200e12
    assert toy(parse_strategy("fsdp8-mb2-fp8")).peak_flops == 200e12
    assert toy(parse_strategy("fsdp8-mb2-bf16"), workload=eight).peak_flops == 100e12


def test_money_and_energy():
    one = toy()
    rate = one.tokens_per_second_per_accelerator
    assert one.usd_per_hour == pytest.approx(8 * 3.6)
    assert one.usd_per_million_tokens == pytest.approx(0.001 / rate * 1e6)
    # The toy idles at 60 and may draw 300; host 100, network 20.
    assert 60.0 < one.watts_per_accelerator < 300.0
    pue = toy_cluster().pue
    assert one.facility_watts_per_accelerator == pytest.approx(
        (one.watts_per_accelerator + 120.0) * pue
    )
    assert one.joules_per_token == pytest.approx(one.facility_watts_per_accelerator / rate)
    assert one.tokens_per_joule == pytest.approx(1.0 / one.joules_per_token)


def test_what_is_not_known_is_none():
    chip = msgspec.structs.replace(toy_cluster().accelerator, tdp_watts=None, idle_watts=None)
    one = toy(cluster=toy_cluster(accelerator=chip, usd_per_hour=None))
    assert one.watts_per_accelerator is None
    assert one.facility_watts_per_accelerator is None
    assert one.joules_per_token is None
    assert one.tokens_per_joule is None
    assert one.usd_per_hour is None
    assert one.usd_per_million_tokens is None
    assert any("power" in warning for warning in one.warnings)


def test_a_power_cap_lowers_clocks_and_watts():
    capped = toy_cluster(power_cap_watts=180.0)
    slow, fast = toy(cluster=capped), toy()
    # Half of the range, below the knee: 1.23 x 0.5 of the clock, which attention feels in full.
    ratio = fast.terms["attention"] / slow.terms["attention"]
    assert ratio == pytest.approx(0.615, rel=1e-9)
    assert slow.terms["memory_bound"] == fast.terms["memory_bound"]
    assert slow.watts_per_accelerator < 180.0


def test_a_slowest_stage_with_few_flops_makes_no_gain_of_kernels():
    # Two layers and their launches take longer than one layer and a head that computes more.
    model = Model(
        name="d", layers=3, hidden=4096, heads=8, head_dim=64, ffn=8192, vocab=128000, gated=False
    )
    workload = Workload(seq_len=512, global_batch=8, tuning="lora0")
    strategy = parse_strategy("ddp1-pp2-mb1")
    e = estimate(model, load_cluster("dgx-h100", 2), workload, strategy, stack="pytorch")
    useful = sum(e.terms[name] for name in ("gemm", "attention", "head"))
    assert useful / e.step_seconds < e.mfu
    steps = e.waterfall()
    assert steps["kernel efficiency"] == 0.0
    losses = [value for name, value in steps.items() if name not in ("peak", "achieved")]
    assert sum(losses) == pytest.approx(e.mfu - 1.0)
    scale = (1.0 - e.mfu) / (1.0 - useful / e.step_seconds)
    assert steps["kernel launches"] == pytest.approx(-scale * e.terms["host"] / e.step_seconds)


def test_days_of_a_token_budget():
    assert toy().days is None
    one = toy(workload=toy_workload(tokens=1e9, goodput="off"))
    assert one.days == pytest.approx(1e9 / one.tokens_per_second / 86400.0)
    failing = toy(workload=toy_workload(tokens=1e9))
    assert failing.goodput.fraction < 1.0
    assert failing.days == pytest.approx(one.days / failing.goodput.fraction)


def test_an_oversubscribed_tier_slows_what_spans_it():
    def gather(**changes):
        return toy(cluster=toy_cluster(**changes)).comm_seconds["data_parallel"]

    within = gather(oversubscription=4.0, tier_size=8)
    beyond = gather(oversubscription=4.0, tier_size=4)
    assert within == gather()
    assert beyond > 2.0 * within


@pytest.mark.parametrize(
    ("cluster", "stack"),
    [("dgx-h100", "pytorch"), ("gcp-tpu-v5p", "maxtext-tpu"), ("aws-trn2", "neuronx")],
)
def test_a_default_stack_is_chosen_and_said(cluster, stack):
    model, workload = load_model("llama-2-7b"), Workload(seq_len=4096, global_batch=16)
    one = estimate(model, load_cluster(cluster, 8), workload, STRATEGY)
    assert one.stack == load_stack(stack)
    (default,) = one.defaults
    assert default.startswith(f"--stack {stack} (usual ")
    named = estimate(model, load_cluster(cluster, 8), workload, STRATEGY, stack=stack)
    assert named.defaults == ()
    assert named.step_seconds == one.step_seconds


def test_a_device_whose_software_has_no_runs_gets_the_nearest_with_a_wider_range():
    model, workload = load_model("llama-2-7b"), Workload(seq_len=4096, global_batch=16)
    gaudi = estimate(model, load_cluster("gaudi2", 8), workload, STRATEGY)
    assert gaudi.stack.stands_in
    assert gaudi.defaults == ("--stack neuronx (nearest one, no software of gaudi2 has runs)",)


def test_uncalibrated_chips_say_so():
    assert any("uncalibrated" in warning for warning in toy().warnings)
    assert "uncalibrated" in toy().provenance["kernel efficiency"]


def test_everything_is_ready_for_json():
    plain = toy().to_dict()
    read = json.loads(json.dumps(plain, allow_nan=False))
    assert read == plain
    assert plain["strategy"] == "fsdp8-mb2"
    assert plain["cluster"] == {"name": "toys", "accelerators": 8}
    assert plain["model"] == "toy"
    assert plain["workload"]["global_batch"] == 16
    assert plain["feasible"] is True
    assert plain["waterfall"]["achieved"] == plain["mfu"]


def test_a_precision_the_chip_lacks_is_refused():
    with pytest.raises(InputError, match="a100-sxm-80gb has no fp8 peak"):
        estimate(
            load_model("llama-2-7b"),
            load_cluster("dgx-a100", 8),
            toy_workload(precision="fp8"),
            STRATEGY,
        )


def test_unknown_names_are_refused():
    with pytest.raises(InputError):
        estimate(toy_model(), toy_cluster(), toy_workload(), STRATEGY, stack="megatrom")
    with pytest.raises(InputError, match="no strategy"):
        toy([])


def test_a_stack_of_another_kind_of_device_is_refused():
    with pytest.raises(InputError, match="maxtext-tpu"):
        estimate(
            load_model("llama-2-7b"),
            load_cluster("dgx-h100", 8),
            Workload(seq_len=4096, global_batch=16),
            STRATEGY,
            stack="maxtext-tpu",
        )


# A hundred thousand at once.


def test_a_hundred_thousand_strategies_at_once():
    accelerators = 2**13
    tp, pp, cp, replicate = (
        grid.ravel()
        for grid in np.meshgrid(
            [1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0, 8.0], [1.0, 2.0, 4.0], 2.0 ** np.arange(6)
        )
    )
    rows = 100_000

    def spread(values):
        return np.resize(np.asarray(values, dtype=float), rows)

    random = np.random.default_rng(0)
    tp, pp, cp, replicate = (spread(axis) for axis in (tp, pp, cp, replicate))
    many = Strategies.columns(
        tp=tp,
        pp=pp,
        cp=cp,
        dp_replicate=replicate,
        dp_shard=accelerators / (tp * pp * cp * replicate),
        sharding=random.integers(1, 4, rows),
        micro_batch=random.choice([1.0, 2.0, 4.0], rows),
        recompute=random.integers(0, 3, rows),
        reshard_after_forward=random.integers(0, 2, rows),
        prefetch=random.integers(0, 3, rows),
        overlap_dp=random.integers(0, 2, rows),
    )
    result = estimate(
        load_model("llama-3-70b"),
        load_cluster("dgx-h100", accelerators),
        Workload(seq_len=8192, global_batch=2**15),
        many,
        stack="megatron",
    )
    assert len(result) == rows
    columns = {
        **result.terms.parts(),
        **result.memory.parts(),
        "step": result.step_seconds,
        "tokens": result.tokens_per_second_per_accelerator,
        "mfu": result.mfu,
        "hfu": result.hfu,
        "watts": result.watts_per_accelerator,
        "memory": result.memory_bytes,
        "code": result.infeasible_code,
    }
    for name, column in columns.items():
        assert np.shape(column) == (rows,), name
        assert np.all(np.isfinite(column)), name
    assert np.all(result.step_seconds > 0.0)
    # Every mesh multiplies out and every batch divides: only memory can be in the way.
    answers = {REASONS[int(code)].split(":")[0] for code in set(result.infeasible_code.tolist())}
    assert answers == {"fits", "memory"}
    # A row among many is the row alone.
    for row in (0, 12_345, 99_999):
        alone = estimate(
            load_model("llama-3-70b"),
            load_cluster("dgx-h100", accelerators),
            Workload(seq_len=8192, global_batch=2**15),
            many[row],
            stack="megatron",
        )
        assert alone.to_dict() == result[row].to_dict()


def test_software_nobody_has_seen_gets_the_nearest_family_and_says_so():
    known = estimate(toy_model(), toy_cluster(), toy_workload(), STRATEGY, stack="pytorch")
    new = estimate(toy_model(), toy_cluster(), toy_workload(), STRATEGY, stack="nobodys-trainer")
    assert new.stack.name == "pytorch"
    assert new.step_seconds == known.step_seconds
    # What nobody has measured has a wider interval.
    assert new.low < known.low < known.high < new.high
    assert any("nobodys-trainer" in choice and "does not know" in choice for choice in new.defaults)
    # A framework that a stack speaks for gets that stack.
    nemo = estimate(toy_model(), toy_cluster(), toy_workload(), STRATEGY, stack="nemo")
    assert nemo.stack.name == "megatron"
    titan = estimate(toy_model(), toy_cluster(), toy_workload(), STRATEGY, stack="torchtitan")
    assert titan.stack.name == "pytorch"


def test_beyond_the_largest_run_the_interval_widens():
    model = load_model("llama-2-7b")

    def spread(count):
        cluster = load_cluster("dgx-h100", count)
        workload = Workload(seq_len=4096, global_batch=count)
        plan = parse_strategy(f"fsdp{count}")
        e = estimate(model, cluster, workload, plan, stack="llm-foundry")
        assert e.basis.beyond == max(np.log2(count / 512), 0.0)
        return e.high / e.low, e.warnings

    inside, quiet = spread(512)
    outside, warned = spread(2048)
    assert outside > 1.03 * inside
    assert not any("larger than any run" in warning for warning in quiet)
    assert any("larger than any run" in warning for warning in warned)
