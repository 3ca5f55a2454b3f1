import sys
from types import SimpleNamespace

import pytest

from scalewise.measure import machine
from scalewise.measure.machine import cpu_name, environment, idle_warnings


@pytest.fixture
def proc(tmp_path, monkeypatch):
    """A /proc whose counters move while somebody watches."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(machine.util, "find_spec", lambda name: None)

    def moving(busy, idle):
        (tmp_path / "loadavg").write_text("1.50 1.00 0.50 1/100 1\n")
        (tmp_path / "stat").write_text("cpu  100 0 100 800 0 0 0 0 0 0\ncpu0 1 2 3\n")

        def sleep(seconds):
            (tmp_path / "stat").write_text(f"cpu  {100 + busy} 0 100 {800 + idle} 0 0 0 0 0 0\n")

        monkeypatch.setattr(machine.time, "sleep", sleep)
        return tmp_path

    return moving


def test_an_idle_machine_needs_no_warning(proc):
    assert idle_warnings(proc(busy=5, idle=95)) == ()


def test_a_busy_machine_is_told_with_numbers(proc):
    assert idle_warnings(proc(busy=40, idle=60)) == (
        "the machine was not idle: 40% of its cores were busy before the start (load average 1.50)",
    )


def test_what_cannot_be_found_out_is_said(tmp_path, proc):
    assert idle_warnings(tmp_path / "nowhere", seconds=0.0)[0].endswith("is unknown")


def test_a_busy_gpu_is_told_beside_one_that_does_not_report(proc, monkeypatch):
    def rates(index):
        if index == 0:
            raise RuntimeError("Not Supported")
        return SimpleNamespace(gpu=[0, 97][index])

    nvml = SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=rates,
    )
    folder = proc(busy=0, idle=100)
    monkeypatch.setattr(machine.util, "find_spec", lambda name: name)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert idle_warnings(folder) == ("GPU 1 was not idle: 97% busy before the start",)


def test_environment_says_where_and_with_what(tmp_path):
    (tmp_path / "cpuinfo").write_text("processor : 0\nmodel name\t: Chip 9000\n")
    assert cpu_name(tmp_path / "cpuinfo") == "Chip 9000"
    found = environment(
        device="cpu", device_name="", accelerator="l40s", backend="gloo", ranks=2,
        ranks_per_node=2, threads=1, versions={"nccl": "2.1"},
    )  # fmt: skip
    assert found.device_name == found.cpu
    assert (found.accelerator, found.versions["nccl"]) == ("l40s", "2.1")
    assert "numpy" in found.versions
