import pytest

from measure_jobs import MOE, SMALL, job, record
from scalewise.evidence.measured import columns, run_rows, runs_of, write_csv
from scalewise.evidence.runs import read_runs
from scalewise.records.job import inputs_of
from scalewise.records.metrics import Spread, by_job, peak_of, quantile, recomputed_flops, summarize

# 3 x (2 x (qkv 4 x 8192 + out 4 x 4096 + mlp 4 x 24576 + head 16384) + attention 2 x 4 x 128 x 16)
FLOPS = 3 * (2 * (32_768 + 16_384 + 98_304 + 16_384) + 16_384)


def test_quantiles_are_interpolated():
    assert quantile([1.0, 2.0, 4.0], 0.5) == 2.0
    assert quantile([1.0, 2.0, 4.0, 8.0], 0.5) == 3.0
    assert Spread.of([5.0]) == Spread(median=5.0, p5=5.0, p95=5.0)
    spread = Spread.of([float(i) for i in range(101)])
    assert (spread.p5, spread.median, spread.p95) == (5.0, 50.0, 95.0)


def test_flops_of_the_small_model_by_hand():
    assert SMALL.training_flops(32, "causal") == FLOPS == 1_032_192


def test_warm_up_is_dropped_and_said():
    summary = summarize([record()])
    assert (summary.steps, summary.dropped, summary.launches) == (3, 1, 1)
    assert summary.step_seconds.median == 0.2
    # 8 sequences of 32 tokens in 0.2 s, on two devices.
    assert summary.tokens_per_second == pytest.approx(1280.0)
    assert summary.tokens_per_second_per_device == pytest.approx(640.0)
    assert summary.tflops_per_device == pytest.approx(640.0 * FLOPS / 1e12)
    # H100 SXM: 989.4 or 989.5 TFLOP/s in bf16, as the catalog says.
    assert summary.mfu == pytest.approx(640.0 * FLOPS / peak_of("h100-sxm-80gb", "bf16"))
    assert summary.hfu == summary.mfu
    assert (summary.loss_first, summary.loss_last) == (5.5, 5.2)


def test_launches_are_pooled_and_kept_apart():
    first = record(launch=1, seconds=(9.0, 0.1, 0.1, 0.1), warnings=["a"])
    second = record(launch=2, seconds=(9.0, 0.3, 0.3, 0.3), warnings=["a", "b"])
    (group,) = by_job([first, second])
    summary = summarize(group)
    assert summary.launch_medians == [0.1, 0.3]
    assert summary.step_seconds.median == pytest.approx(0.2)
    assert (summary.steps, summary.dropped) == (6, 2)
    assert summary.warnings == ["a", "b"]


def test_jobs_and_machines_are_not_mixed():
    records = [record("ddp2-mb4"), record("fsdp2-mb4"), record(environment={"host": "there"})]
    assert [len(group) for group in by_job(records)] == [1, 1, 1]
    assert by_job([record(kind="collectives")]) == []


def test_a_cpu_has_no_peak_and_so_no_utilization():
    cpu = {"device": "cpu", "device_name": "Chip", "accelerator": None}
    summary = summarize([record(environment=cpu)])
    assert (summary.mfu, summary.hfu) == (None, None)
    assert summary.tflops_per_device > 0.0


def test_energy_is_absent_unless_every_launch_counted_it():
    counted = {"energy_joules": 700.0, "energy_seconds": 0.7, "energy_source": "nvml"}
    summary = summarize([record(results=counted)])
    assert summary.watts_per_device == pytest.approx(500.0)
    # 700 J for three steps of 256 tokens.
    assert summary.joules_per_token == pytest.approx(700.0 / 768.0)
    mixed = summarize([record(launch=1, results=counted), record(launch=2)])
    assert (mixed.watts_per_device, mixed.joules_per_token) == (None, None)


def test_recompute_counts_for_the_hardware_alone():
    # Attention: 16384. Full: all products of a layer but the down projection, 2 x 4 x 8192.
    assert recomputed_flops(SMALL, 32, "none") == 0.0
    assert recomputed_flops(SMALL, 32, "selective") == 16_384
    full = 2 * (32_768 + 16_384 + 98_304) + 16_384 - 65_536
    assert recomputed_flops(SMALL, 32, "full") == full
    assert recomputed_flops(SMALL, 32, "1of2") == full / 2
    assert recomputed_flops(SMALL, 32, "attention") == 16_384
    # Four layers of attention; one MLP; three routers, pairs of experts and shared experts. Not
    # repeated: the down projections of the MLP and of the shared experts.
    parts = 2 * 4 * 12_288 + 16_384 + 2 * 24_576 + 3 * 2 * (512 + 2 * 6_144 + 6_144)
    assert recomputed_flops(MOE, 32, "full") == parts - 2 * 8_192 - 3 * 2 * 2_048
    summary = summarize([record("fsdp2-mb4-acfull")])
    assert summary.hfu / summary.mfu == pytest.approx((FLOPS + full) / FLOPS)


def test_experts_are_in_summary_and_row():
    inputs = inputs_of(job("fsdp4-ep2-mb2", model=MOE, routing="topk"))
    launches = [
        record(inputs=inputs, launch=i, results={"ep_imbalance": 1.0 + 0.25 * i}) for i in (1, 2)
    ]
    summary = summarize(launches)
    assert (summary.routing, summary.ep_imbalance) == ("topk", 1.375)
    assert summarize([record()]).routing is None
    (row,) = run_rows(launches)
    assert (row["experts"], row["experts_per_token"], row["moe_ffn_hidden"]) == ("8", "2", "32")
    assert (row["shared_experts"], row["moe_layers"], row["ep"]) == ("1", "3", "2")
    (run,) = runs_of(launches)
    assert run.model([]).moe == MOE.moe
    assert "experts" not in run_rows([record()])[0]


def test_communication_comes_from_the_trace():
    traced = {"trace": {"communication_seconds": 0.05, "exposed_seconds": 0.0, "steps": 3}}
    summary = summarize([record(results=traced)])
    assert (summary.communication_seconds, summary.exposed_seconds) == (0.05, 0.0)
    assert summarize([record()]).exposed_seconds is None


def test_rows_have_the_columns_of_the_shipped_table():
    (row,) = run_rows([record("hsdp2x2-tp2-mb1-acsel")])
    assert set(row) <= set(columns())
    wanted = {
        "accelerator": "h100-sxm-80gb", "accelerators": "8", "layers": "4", "seq_len": "32",
        "dp_replicate": "2", "dp_shard": "2", "sharding": "zero3", "tp": "2", "micro_batch": "1",
        "grad_accum": "2", "recompute": "selective", "precision": "bf16", "memory_gb": "2.0",
        "gated_mlp": "true", "tied_embeddings": "false", "step_seconds": "0.2",
        "tflops_basis": "model-causal",
    }  # fmt: skip
    assert {name: row[name] for name in wanted} == wanted
    assert "watts_per_accelerator" not in row


def test_rows_are_runs_that_can_be_planned(tmp_path):
    records = [record("ddp2-mb4"), record("fsdp2-mb4")]
    first, second = runs_of(records)
    assert second.tokens_per_second == pytest.approx(640.0)
    plan = second.plan()
    assert (plan.strategy.sharding, plan.strategy.dp_shard, plan.workload.global_batch) == (
        "zero3", 2, 8,
    )  # fmt: skip
    assert plan.model.parameters == SMALL.parameters
    write_csv(records, tmp_path / "mine.csv")
    again = read_runs(tmp_path / "mine.csv")
    assert [run.row for run in again] == [first.row, second.row]


def test_memory_of_a_process_is_not_memory_of_a_device():
    (row,) = run_rows([record(results={"memory_basis": "rss"})])
    assert "memory_gb" not in row
