import json
import os
import subprocess
import sys

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


def test_a_missing_user_catalog_is_reported(run):
    result = run("doctor", SCALEWISE_CATALOG="/nowhere")
    assert result.exit_code == 0
    assert "/nowhere (no such folder)" in result.stdout
