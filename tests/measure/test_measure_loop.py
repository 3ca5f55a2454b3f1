"""The loop in small: time kernels and collectives, train on one device, predict two, measure them.

Numbers are those of a tiny model on a machine that may be busy, so the bounds are wide; the
benchmark `close_the_loop.py` has the real ones.
"""

import sys
from pathlib import Path

import msgspec
import pytest

from scalewise.errors import InputError
from scalewise.evidence.compare import compare
from scalewise.evidence.machine import MachineFit
from scalewise.evidence.machine_files import write_machine
from scalewise.evidence.machine_rows import gather
from scalewise.measure.collective_plan import CollectivePlan
from scalewise.measure.kernel_plan import plan_kernels
from scalewise.measure.records import read_records
from scalewise.model import load_model
from scalewise.strategy import parse_strategy

pytest.importorskip("torch")
pytest.importorskip("scipy")

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
import close_the_loop as loop

SEQUENCE = 128


def test_the_loop_closes(tmp_path, monkeypatch):
    plan = plan_kernels(load_model("tiny"), parse_strategy("mb1"), sequence=SEQUENCE, dtype="fp32")
    plan = msgspec.structs.replace(plan, iters=5, budget=0.1)
    loop.sweep("kernel", plan, tmp_path, "cpu")
    sizes = [2**16, 2**19, 2**22]
    ops = ["all_gather", "all_reduce"]
    loop.sweep("collective", CollectivePlan(ops=ops, sizes=sizes, group_sizes=[2], iters=5),
               tmp_path, "cpu")  # fmt: skip
    alone = loop.job_of("tiny", "ddp1-mb1", sequence=SEQUENCE, steps=6, trace=False)
    loop.train_beside_itself(alone, tmp_path, "cpu", 1)
    both = loop.job_of("tiny", "ddp2-mb1", sequence=SEQUENCE, steps=6, trace=True)
    loop.train(both, tmp_path, "cpu", 1)
    records = read_records(tmp_path).records
    assert sorted(record.kind for record in records) == [
        "collective", "kernel", "train", "train", "train",
    ]  # fmt: skip
    data = gather(records)
    assert len(data.steps) == 1, "two launches of the job on one device are one job"
    assert len(data.steps[0].launches) == 2
    try:
        fit = MachineFit("here").fit(data)
    except InputError as error:
        pytest.skip(f"the machine is too busy to be measured: {error}")
    write_machine(fit, tmp_path / "catalog")
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path / "catalog"))
    done = compare(records, loop.load_cluster("here"), least_ranks=2)
    (row,) = done.rows
    assert row.strategy == "ddp2-mb1"
    # How near they are is for benchmarks/close_the_loop.py, on a calm machine.
    assert row.predicted > 0.0
    assert row.measured > 0.0
    assert row.terms["compute"][0] is not None, "it was traced"
    assert row.low < row.predicted < row.high
