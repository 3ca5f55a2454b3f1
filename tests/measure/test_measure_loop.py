"""The loop in small: time kernels and collectives, train on one device, predict two, measure them.

How near predictions come is for the benchmark `close_the_loop.py`, on an idle machine. Here every
timing is replaced by that of a machine whose constants are known, because those of a busy machine
contradict each other, and a calibration refuses them then.
"""

import sys
from pathlib import Path

import msgspec
import pytest

from machine_records import BESIDE, timed_collective, timed_kernel
from scalewise.evidence.compare import compare
from scalewise.evidence.machine import MachineFit
from scalewise.evidence.machine_files import write_machine
from scalewise.evidence.machine_rows import gather
from scalewise.measure.collective_plan import CollectivePlan
from scalewise.measure.kernel_plan import plan_kernels
from scalewise.model import load_model
from scalewise.records.files import read_records
from scalewise.strategy import parse_strategy

pytest.importorskip("torch")
pytest.importorskip("scipy")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import close_the_loop as loop

SEQ_LEN = 128


def retimed(record, step_seconds=0.0):
    """The record as the machine with known constants would have left it."""
    results = dict(record.results)
    if record.kind == "train":
        results["step_seconds"] = [step_seconds] * len(results["step_seconds"])
    elif record.kind == "kernel":
        results["rows"] = [timed_kernel(row) for row in results["rows"]]
    else:
        results["rows"] = [timed_collective(row) for row in results["rows"]]
        results["beside"] = BESIDE
    return msgspec.structs.replace(record, results=results)


def test_the_loop_closes(tmp_path, monkeypatch):
    plan = plan_kernels(load_model("tiny"), parse_strategy("mb1"), seq_len=SEQ_LEN, dtype="fp32")
    plan = msgspec.structs.replace(plan, iters=5, budget=0.1)
    loop.sweep("kernel", plan, tmp_path, "cpu")
    sizes = [2**16, 2**19, 2**22]
    ops = ["all_gather", "all_reduce"]
    loop.sweep("collective", CollectivePlan(ops=ops, sizes=sizes, group_sizes=[2], iters=5),
               tmp_path, "cpu")  # fmt: skip
    alone = loop.job_of("tiny", "ddp1-mb1", seq_len=SEQ_LEN, steps=6, trace=False)
    loop.train_beside_itself(alone, tmp_path, "cpu", 1)
    both = loop.job_of("tiny", "ddp2-mb1", seq_len=SEQ_LEN, steps=6, trace=True)
    loop.train(both, tmp_path, "cpu", 1)
    records = read_records(tmp_path).records
    assert sorted(record.kind for record in records) == [
        "collective", "kernel", "train", "train", "train",
    ]  # fmt: skip
    timings = [row["time_us"] for r in records for row in r.results.get("rows", [])]
    assert min(timings) > 0.0
    sweeps = [retimed(record) for record in records if record.kind != "train"]
    (seconds,) = MachineFit("kernels").fit(gather(sweeps)).predict([alone])
    steps = [retimed(record, 1.25 * seconds) for record in records if record.kind == "train"]
    records = [*sweeps, *steps]
    data = gather(records)
    assert len(data.steps) == 1, "two launches of the job on one device are one job"
    assert len(data.steps[0].launches) == 2
    write_machine(MachineFit("here").fit(data), tmp_path / "catalog")
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path / "catalog"))
    done = compare(records, loop.load_cluster("here"), min_ranks=2)
    (row,) = done.rows
    assert row.strategy == "ddp2-mb1"
    assert row.measured == pytest.approx(1.25 * seconds)
    assert row.low < row.predicted < row.high
    assert row.terms["compute"][0] is not None, "it was traced"
