"""Host time of wrappers: the decoders of a sweep, and CPU time of two real ranks."""

import msgspec
import pytest
from click.testing import CliRunner

from scalewise.cli.main import cli
from scalewise.measure import launch
from scalewise.measure.host_plan import HostPlan, cases_of
from scalewise.measure.launch import LocalLauncher, environment_for
from scalewise.measure.sweeps import SweepSpec
from scalewise.records.files import new_id, read_records


def test_a_sweep_separates_layers_steps_and_copies():
    cases = cases_of(HostPlan())
    assert [(c.technique, c.wide, c.job.model.layers, c.job.ranks) for c in cases] == [
        ("plain", False, 2, 1), ("plain", False, 6, 1),
        ("fsdp", False, 2, 2), ("fsdp", False, 6, 2),
        ("tp", False, 2, 2), ("tp", False, 6, 2),
        ("plain", True, 2, 1), ("plain", True, 6, 1),
        ("fsdp", True, 2, 2), ("fsdp", True, 6, 2),
    ]  # fmt: skip
    narrow, wide = cases[0].job.model.layer_parameters, cases[-1].job.model.layer_parameters
    # 64 x (64 + 2 x 32) + 64 x 64 + 3 x 64 x 128 and two norms; the wide one is 80 times as large.
    assert narrow == 36_992
    assert wide == 2_950_144


def test_wrappers_take_cpu_time_on_two_ranks(tmp_path):
    pytest.importorskip("torch")
    plan = HostPlan(layers=(1, 3), wide=(64, 128), iters=3, warmup=1)
    spec = SweepSpec(
        what="host", plan=msgspec.to_builtins(plan), processes=2, id=new_id(),
        records=str(tmp_path / "host.jsonl"), device="cpu", threads=1,
    )  # fmt: skip
    assert environment_for(spec)["OMP_NUM_THREADS"] == "1"
    LocalLauncher(timeout=300.0, logs=tmp_path / "logs").run(spec)
    (record,) = read_records(tmp_path, kind="host").records
    times = {
        (row["technique"], row["wide"], row["layers"]): row["time_us"]
        for row in record.results["rows"]
    }
    assert len(times) == 10
    # DTensor dispatches every operation of a layer: several times the CPU time of a plain one,
    # whatever else runs on the machine.
    assert times["tp", False, 3] > 2.0 * times["plain", False, 3]
    assert times["fsdp", False, 3] > times["plain", False, 3]


def test_gpus_are_refused(monkeypatch):
    monkeypatch.setattr(launch, "choose_device", lambda asked: (asked or "cuda", 8))
    result = CliRunner(env={"COLUMNS": "120"}).invoke(cli, ["measure", "host"])
    assert result.exit_code == 2
    assert "host time of wrappers is measured on CPUs" in result.output
    assert "leave it out" in result.output
