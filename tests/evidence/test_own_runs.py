"""Runs of the user's own: tables, level, interval, and what is kept of them."""

import math
from pathlib import Path

import pytest

from machine_records import job, train_record
from scalewise.catalog import load_cluster
from scalewise.diagnosis.own import read_own
from scalewise.errors import InputError
from scalewise.evidence.own_runs import fit_own, joined, remembered, write_own
from scalewise.records.files import append
from scalewise.stack import load_stack
from scalewise.step.estimate import estimate

HEAD = "model,on,gpus,strategy,seq,batch,"
ROWS = (
    "llama-3-8b,dgx-h100,8,fsdp8-mb1,8192,8",
    "llama-3-8b,dgx-h100,32,fsdp32-mb1,8192,32",
    "llama-2-7b,dgx-h100,32,fsdp32-mb2,4096,64",
)


def table(folder: Path, column: str, values: list[str], rows=ROWS) -> Path:
    path = folder / "runs.csv"
    lines = [f"{row},{value}" for row, value in zip(rows, values, strict=True)]
    path.write_text("\n".join([HEAD + column, *lines]) + "\n")
    return path


def at_level(folder: Path, level: float) -> Path:
    """A table of runs that are `level` times as fast as predicted."""
    runs = read_own(table(folder, "tokens_s", ["1", "1", "1"]))
    stack = load_stack("pytorch")
    rates = [level * run.estimate(stack).tokens_per_second_per_accelerator for run in runs]
    return table(folder, "tokens_s", [f"{rate:.6f}" for rate in rates])


def test_units_of_the_short_table(tmp_path):
    (by_time, *_) = read_own(table(tmp_path, "step_s", ["1.024", "1", "1"]))
    assert by_time.rate == pytest.approx(8 * 8192 / 1.024 / 8)
    (by_mfu, *_) = read_own(table(tmp_path, "mfu", ["41%", "0.4", "0.4"]))
    flops = by_mfu.model.training_flops(8192, "causal")
    assert by_mfu.rate == pytest.approx(0.41 * 989.4e12 / flops, rel=1e-3)
    assert by_mfu.label == "llama-3-8b fsdp8-mb1 on 8x dgx-h100, 8 x 8,192"


@pytest.mark.parametrize("level", [0.85, 1.1])
def test_the_level_moves_to_the_runs(tmp_path, level):
    fit = fit_own("mine", read_own(at_level(tmp_path, level)), load_stack("pytorch"))
    assert fit.errors == pytest.approx([math.log(level)] * 3, abs=1e-4)
    # The prior holds a part of the shift back.
    shift = fit.errors[0] - fit.left[0]
    assert 0.9 * abs(math.log(level)) < abs(shift) < abs(math.log(level))
    assert (fit.speed < 1.0) == (level < 1.0)
    assert fit.stack.own_runs == 3
    assert fit.stack.fitted_on.startswith("own runs: llama-3-8b fsdp8-mb1 on 8x dgx-h100")


def test_more_runs_narrow_the_interval(tmp_path):
    runs = read_own(at_level(tmp_path, 0.9))
    one, three = fit_own("mine", runs[:1]), fit_own("mine", runs)
    assert one.before[1] > one.after[1] > three.after[1] > 1.03


def test_runs_are_kept_and_added(tmp_path, monkeypatch):
    runs = read_own(at_level(tmp_path, 0.9))
    base = load_stack("pytorch")
    write_own(fit_own("mine", runs[:2], base), tmp_path)
    old, start = remembered("mine", tmp_path)
    assert start == base
    assert [run.label for run in old] == [run.label for run in runs[:2]]
    both = joined(old, runs)
    assert len(both) == 3
    fit = fit_own("mine", both, start)
    write_own(fit, tmp_path)
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    stack = load_stack("mine")
    assert stack.own_runs == 3
    e = estimate(runs[0].model, load_cluster("dgx-h100", 8), runs[0].workload, runs[0].strategy,
                 stack=stack)  # fmt: skip
    assert math.log(runs[0].rate / e.tokens_per_second_per_accelerator) == pytest.approx(
        fit.left[0], abs=1e-3
    )
    assert e.high / e.low < 1.15


def test_a_fault_is_no_level(tmp_path):
    with pytest.raises(InputError, match="a fault, not a level") as error:
        fit_own("mine", read_own(at_level(tmp_path, 0.3)))
    assert "diagnose" in (error.value.hint or "")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("llama-3-8b,dgx-h100,16,fsdp8-mb1,8192,8,1", "line 2"),
        ("llama-9,dgx-h100,8,fsdp8-mb1,8192,8,1", "llama-9"),
        ("llama-3-8b,dgx-h100,8,fsdp8-mb1,8192,8,-3", "tokens_s = '-3'"),
        ("llama-3-8b,dgx-h100,8,fsdp8-mb1,8192,8,", "no throughput is stated"),
    ],
)
def test_rows_that_cannot_be(tmp_path, row, said):
    (tmp_path / "runs.csv").write_text(f"{HEAD}tokens_s\n{row}\n")
    with pytest.raises(InputError, match=said):
        read_own(tmp_path / "runs.csv")


def test_records_are_runs(tmp_path):
    append(tmp_path / "train.jsonl", train_record(job("tiny", "fsdp2-mb1", 2), 0.5, number=1))
    append(tmp_path / "train.jsonl", train_record(job("tiny", "ddp2-mb1", 2), 0.4, number=2))
    first, second = read_own(tmp_path, {"on": "dgx-h100"})
    assert (str(first.strategy), first.cluster.accelerators) == ("fsdp2-mb1", 2)
    tokens = first.workload.tokens_per_step / 2
    assert first.rate == pytest.approx(tokens / 0.5)
    assert second.rate == pytest.approx(tokens / 0.4)
    with pytest.raises(InputError, match="a cpu is no accelerator"):
        read_own(tmp_path)
