"""Traces beside predictions: parts, process groups, late ranks, and causes that follow."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

import scalewise as sw
from scalewise.diagnosis.answer import infer
from scalewise.diagnosis.evidence import Evidence
from scalewise.diagnosis.measured import Measurement
from scalewise.diagnosis.parts import PARTS, seconds_by_part, shares
from scalewise.diagnosis.predict import predict
from scalewise.diagnosis.runs import Run
from scalewise.diagnosis.traces import lay_beside, measurement_of, part_of, with_waits
from scalewise.errors import InputError
from scalewise.simulation.trace import write_trace
from scalewise.trace.summary import TraceSummary

FSDP = {"model": "llama-3-8b", "on": "dgx-h100", "gpus": 32, "strategy": "fsdp32-mb1",
        "seq": 4096, "batch": 64}  # fmt: skip
PIPELINE = FSDP | {"strategy": "zero1x4-tp4-pp2-mb1", "stack": "megatron"}


def traced(folder: Path, words: dict, *sets: str) -> TraceSummary:
    """The trace of a simulated step on damaged hardware or with damaged software."""
    path = folder / "step.json.gz"
    write_trace(sw.timeline(**words, sets=list(sets)), path)
    return sw.read_trace(path)


def test_a_simulated_step_is_read_as_it_was_predicted(tmp_path):
    found = traced(tmp_path, FSDP)
    e = sw.estimate(**FSDP)
    beside = lay_beside(e, found)
    assert beside.step_seconds == pytest.approx(e.step_seconds, rel=0.02)
    assert sum(row.measured for row in beside.rows) == pytest.approx(beside.step_seconds)
    assert [row.part for row in beside.rows] == [
        "gemm", "attention", "kernels", "sharding", "waiting",
    ]  # fmt: skip
    for row in beside.rows:
        assert row.measured == pytest.approx(row.predicted, abs=0.02 * e.step_seconds)
    assert beside.findings == ()
    assert sw.diagnose(**FSDP, source=found).verdict == "normal"


@pytest.mark.parametrize(
    ("words", "change", "part", "cause"),
    [
        (FSDP, "cluster.scale_out_bandwidth=5GB/s", "exposed DP", "network"),
        (PIPELINE, "cluster.scale_out_bandwidth=2GB/s", "exposed DP", "tcp"),
        (PIPELINE, "cluster.scale_up_bandwidth=45GB/s", "exposed TP", "pcie"),
        (PIPELINE, "stack.attention_kernel=unfused", "attention", "unfused"),
        (PIPELINE, "stack.gemm=0.25", "GEMM", "hardware"),
    ],
)
def test_damage_is_named(tmp_path, words, change, part, cause):
    found = sw.diagnose(**words, source=traced(tmp_path, words, change))
    assert found.verdict == "slow"
    assert found.trace is not None
    assert found.trace.findings[0].startswith(part)
    assert cause in (found.best.key, found.groups[0].key)


def test_unexplained_time_is_not_on_the_list(tmp_path):
    found = sw.diagnose(**PIPELINE, source=traced(tmp_path, PIPELINE, "stack.memory_traffic=40"))
    assert found.trace.findings[0].startswith("other kernels")
    assert found.other > 0.9


@pytest.mark.parametrize(
    ("name", "size", "part"),
    [
        ("mesh_tp", 4, "tp"),
        ("TENSOR_MODEL_PARALLEL_GROUP", None, "tp"),
        ("PIPELINE_MODEL_PARALLEL_GROUP", 2, "pp"),
        ("DATA_PARALLEL_GROUP_WITH_CP", 4, "dp"),
        ("mesh_dp_shard", 4, "dp"),
        ("fsdp", 4, "dp"),
        ("pipeline send/recv", None, "pp"),
        ("mesh_cp", 4, None),
        ("7", 2, "pp"),
        ("7", 4, None),
        ("default_pg", 32, None),
    ],
)
def test_process_groups_by_name_or_size(name, size, part):
    assert part_of(name, size, sw.estimate(**PIPELINE)) == part


def test_the_only_group_has_any_name():
    assert part_of("default_pg", 32, sw.estimate(**FSDP)) == "dp"


def test_parts_add_up():
    e = sw.estimate(**PIPELINE, sets=["strategy.recompute=full"])
    parts = seconds_by_part(e.terms)
    assert parts.shape == (len(PARTS),)
    assert parts.sum() == pytest.approx(e.step_seconds)


def kernels(rank: int, calls: list[float], compute: float) -> dict:
    """A step of one of 4 ranks: a GEMM, then a reduce-scatter, for every call."""
    events, now = [], 0.0
    for seconds in calls:
        for name, length in (
            ("sm90_xmma_gemm_bf16", compute),
            ("ncclDevKernel_ReduceScatter", seconds),
        ):
            args = {} if "gemm" in name else {
                "Collective name": "_reduce_scatter_base", "Process Group Name": "0",
                "Process Group Description": "default_pg", "Group size": 4,
            }  # fmt: skip
            events.append({"ph": "X", "cat": "kernel", "name": name, "pid": 0, "tid": 7, "ts": now,
                           "dur": length, "args": args})  # fmt: skip
            now += length
    return {"distributedInfo": {"rank": rank, "world_size": 4}, "traceEvents": events}


def test_the_rank_that_comes_last_is_named(tmp_path):
    for rank in range(4):
        late = rank == 2
        trace = kernels(rank, [100.0] * 10 if late else [400.0] * 10, 900.0 if late else 600.0)
        (tmp_path / f"rank{rank}.json").write_text(json.dumps(trace))
    found = sw.read_trace(tmp_path)
    (row,) = found.waiting
    assert (row.rank, row.calls, row.last_pct, row.caused_pct) == (2, 10, 100.0, 100.0)
    assert row.waited_seconds == pytest.approx(0.75 * 10 * 300e-6)
    e = sw.estimate("llama-3-8b", "dgx-h100", gpus=4, strategy="fsdp4-mb1", batch=4)
    beside = lay_beside(e, found, e.step_seconds)
    assert beside.findings[0] == (
        "rank 2 joins 100% of 10 calls of default_pg last: ranks wait for it 22.5% of the time"
    )
    assert beside.profile["dp"] == pytest.approx(0.325)
    apart = with_waits(beside.profile, beside, whole=True)
    assert "dp" not in apart
    assert (apart["sharding"], apart["straggler"]) == pytest.approx((0.1, 0.225))


def test_a_trace_without_steps_needs_a_number(tmp_path):
    (tmp_path / "rank0.json").write_text(json.dumps(kernels(0, [100.0] * 4, 900.0)))
    with pytest.raises(InputError, match="the trace has no steps"):
        measurement_of(sw.read_trace(tmp_path))


@pytest.mark.skipif("SCALEWISE_TRACES" not in os.environ, reason="SCALEWISE_TRACES is not set")
def test_a_published_trace():
    folder = Path(os.environ["SCALEWISE_TRACES"])
    found = sw.read_trace(folder / "sampled_128gpu_rank0.json.gz")
    assert sum(found.kernels.values()) == pytest.approx(found.compute_seconds)
    assert found.kernels["gemm"] / found.compute_seconds == pytest.approx(0.323, abs=0.01)
    assert measurement_of(found).value == pytest.approx(0.6, abs=0.01)


def test_traces_on_cpus_are_compared_as_a_whole():
    found = sw.read_trace(Path(__file__).parent.parent / "data" / "trace")
    e = sw.estimate("llama-3-8b", "dgx-h100", gpus=2, strategy="fsdp2-mb1", batch=4)
    beside = lay_beside(e, found)
    assert set(beside.profile) == {"compute", "tp", "cp", "ep", "dp", "pp", "idle"}
    assert beside.profile["dp"] == pytest.approx(0.286, abs=1e-3)
    assert beside.step_seconds == pytest.approx(0.2188, abs=1e-3)


def test_waiting_for_a_late_rank_means_a_slow_node():
    e = sw.estimate(**FSDP)
    table = predict([e])
    point = table.points("slow_node")[6]
    rate = float(np.exp(table.log_rate[0, point]))
    number = Measurement(key="", value=rate, unit="tok/s", text="")
    run = Run(estimate=e, measurement=number, rate=rate)

    def odds(*names: str) -> float:
        profile = {name: float(shares(table.parts[0, point], name)) for name in names}
        return infer([run], Evidence(profile=profile)).odds("slow_node")

    kernels = ("gemm", "attention", "kernels", "idle")
    # One rank waits in its collectives: the network could be slow too.
    assert odds(*kernels, "dp") < 0.3
    assert odds(*kernels, "sharding", "straggler") > 0.9
