import json
import os
import subprocess
import sys

import pytest

from scalewise.cli import doctor


def test_doctor_tells_versions_extras_and_catalog(run):
    result = run("doctor")
    assert result.exit_code == 0
    assert result.stderr == ""
    for name in ("scalewise     0.1.0", "numpy", "msgspec", "click", "rich", "nvidia-smi"):
        assert name in result.stdout


def test_json_has_the_same(run):
    data = json.loads(run("doctor", "--json").stdout)
    assert set(data) == {
        "scalewise", "python", "executable", "platform", "cpus", "memory_bytes", "core", "extras",
        "devices", "diagnose", "catalog", "user_catalog",
    }  # fmt: skip
    assert set(data["extras"]) == {"plotly", "scipy", "polars", "torch", "starlette"}
    assert all(data["core"].values())
    assert data["catalog"]["models"] >= 50
    assert data["user_catalog"] is None


def test_nothing_optional_is_imported():
    code = (
        "import sys\nfrom scalewise.cli.doctor import examine\nexamine()\n"
        "print([m for m in ('torch', 'plotly', 'scipy', 'polars', 'numpy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def fake(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_devices_come_from_the_vendors_tool(run, tmp_path):
    fake(tmp_path / "nvidia-smi", "echo 'NVIDIA H100, 81559 MiB, 550.54'")
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    assert "NVIDIA H100, 81559 MiB, 550.54" in run("doctor", PATH=path).stdout


def test_a_tool_that_fails_or_hangs_is_reported(run, tmp_path, monkeypatch):
    fake(tmp_path / "nvidia-smi", "echo 'no driver' >&2; exit 9")
    fake(tmp_path / "rocm-smi", "exec sleep 30")
    monkeypatch.setattr(doctor, "TIMEOUT_SECONDS", 0.2)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    result = run("doctor", PATH=path)
    assert result.exit_code == 0
    assert "exit code 9: no driver" in result.stdout
    assert "timed out after 0.2 s" in result.stdout


def test_gpu_checks_say_that_there_is_no_gpu(run, monkeypatch):
    torch = pytest.importorskip("torch", reason="needs the extra `measure`")
    assert not torch.cuda.is_available()
    answers = {"measured": {"count": 0}, "problem": "there is no GPU that PyTorch can use here"}

    def probed(command, **options):
        said = json.dumps({**answers, "applies": True})
        return subprocess.CompletedProcess(command, 0, said, "")

    monkeypatch.setattr("scalewise.measure.gpu_doctor.subprocess.run", probed)
    result = run("doctor", "--gpu")
    assert result.exit_code == 1
    first = "there is no GPU that PyTorch can use here: 23 checks are not run"
    assert result.stdout.splitlines()[0] == first
    assert "send:" not in result.stdout
    found = json.loads(run("doctor", "--gpu", "--json").stdout)
    assert found["failed"] == ["devices"]
    assert [check["status"] for check in found["checks"]] == ["failed"] + 23 * ["not run"]


def test_a_failed_gpu_check_says_what_to_send(run, monkeypatch):
    pytest.importorskip("torch", reason="needs the extra `measure`")
    from scalewise.measure.gpu_doctor import Check

    checks = [
        Check(name="devices", status="passed", measured={"count": 2}),
        Check(name="energy", status="failed", measured={"counter_joules": 1.2, "counter": "nvml"},
              problem="the counter says 1 J, power over time 1200 J"),
        Check(name="train cp", status="not applicable"),
    ]  # fmt: skip
    monkeypatch.setattr("scalewise.measure.gpu_doctor.examine_gpus", lambda *a: iter(checks))
    result = run("doctor", "--gpu", "--device", "cpu", "--only", "energy,train cp")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert lines[0] == "1 passed, 1 failed, 1 not applicable"
    assert "counter joules 1.2 J" in result.stdout
    assert "the counter says 1 J" in " ".join(result.stdout.split())
    assert "send: the output of `scalewise doctor --gpu --json`, and" in result.stdout
    checks.pop(1)
    assert run("doctor", "--gpu").exit_code == 0


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--gpu", "--only", "energi"], "--only energi: unknown check"),
        (["--only", "energy"], "--only energy needs --gpu"),
        (["--device", "cpu"], "--device cpu needs --gpu"),
    ],
)
def test_wrong_gpu_flags_are_named(run, args, said):
    result = run("doctor", *args)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_missing_user_catalog_is_reported(run):
    result = run("doctor", SCALEWISE_CATALOG="/nowhere")
    assert result.exit_code == 0
    assert "/nowhere (no such folder)" in result.stdout
