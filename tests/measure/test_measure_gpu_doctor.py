"""The checks of `doctor --gpu`, run on CPUs where CPUs have what they check."""

import json
import subprocess

import msgspec
import pytest

pytest.importorskip("torch", reason="needs the extra `measure`")

from measure_jobs import record
from scalewise.errors import ScalewiseError
from scalewise.measure import gpu_doctor, gpu_probes
from scalewise.measure.gpu_doctor import CHECKS, Devices, examine_gpus
from scalewise.measure.power import Counter


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """One check of each kind: a probe, a sweep over two ranks, training."""
    names = ("memory", "events", "all_to_all", "train on one")
    checks = examine_gpus("cpu", tmp_path_factory.mktemp("doctor"), names)
    return {check.name: check for check in checks}


def test_checks_run_for_real(outcomes):
    said = {name: (check.status, check.problem) for name, check in outcomes.items()}
    assert said == {
        "devices": ("passed", None), "events": ("not applicable", None),
        "memory": ("passed", None), "train on one": ("passed", None),
        "all_to_all": ("passed", None),
    }  # fmt: skip
    assert outcomes["all_to_all"].measured["busbw_gb_per_s"] > 0.0
    assert outcomes["memory"].measured["peak_bytes"] == pytest.approx(2**28, rel=0.25)


@pytest.mark.parametrize(
    ("third", "problem"),
    [(9.0938, None), (9.0640, r"losses of fsdp2-mb2 differ by 0\.3% from one")],
)
def test_losses_of_two_devices_are_those_of_one(tmp_path, monkeypatch, third, problem):
    """The third loss of `tiny` is 9.0640 where gradients are half as large as they should be."""
    results = record().results | {"losses": [9.0574, 9.0740, third, 9.1021]}
    seen = msgspec.structs.replace(record(), results=results)
    monkeypatch.setattr(gpu_doctor.LocalLauncher, "run", lambda *a: None)
    monkeypatch.setattr(gpu_doctor, "_record", lambda spec: seen)
    known = [9.0574, 9.0740, 9.0937, 9.1021]
    devices = Devices(device="cpu", folder=tmp_path, count=2, losses=known)
    if problem is None:
        assert CHECKS["train fsdp"](devices)["loss_difference"] < 2e-5
        return
    with pytest.raises(gpu_doctor.WrongNumbersError, match=problem):
        CHECKS["train fsdp"](devices)


def test_without_gpus_nothing_is_run(tmp_path):
    first, *rest = examine_gpus("cuda", tmp_path)
    assert (first.status, first.problem) == (
        "failed", "there is no GPU that PyTorch can use here")  # fmt: skip
    assert {check.status for check in rest} == {"not run"}
    assert len(rest) == len(CHECKS) - 1 == 23


def test_a_probe_that_crashes_or_hangs_is_a_sentence(tmp_path, monkeypatch):
    devices = Devices(device="cpu", folder=tmp_path, count=1)

    def crashed(*args, **options):
        return subprocess.CompletedProcess(args, -11, "", "Fatal Python error: Segmentation fault")

    def hung(command, *, timeout, **options):
        raise subprocess.TimeoutExpired(command, timeout)

    monkeypatch.setattr(gpu_doctor.subprocess, "run", crashed)
    with pytest.raises(ScalewiseError, match="ended with code -11: Fatal Python error: Segm"):
        CHECKS["memory"](devices)
    monkeypatch.setattr(gpu_doctor.subprocess, "run", hung)
    with pytest.raises(ScalewiseError, match="did not end within 75 s"):
        CHECKS["memory"](devices)


def test_checks_end_with_the_time_for_all(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_doctor, "_probe", lambda *a: {"count": 2, "accelerator": None})
    monkeypatch.setattr(gpu_doctor, "TOTAL_SECONDS", 0.0)
    monkeypatch.setitem(gpu_doctor.CHECKS, "devices", _two_devices)
    monkeypatch.setattr(gpu_doctor.time, "monotonic", iter(range(100)).__next__)
    checks = list(examine_gpus("cpu", tmp_path, ("memory",)))
    assert [check.status for check in checks] == ["not run", "not run"]


def _two_devices(devices):
    devices.count = 2
    return {"count": 2}


@pytest.mark.parametrize(
    ("tflops", "problem"),
    [
        (700.0, None),
        (1500.0, "1500 TFLOP/s in bf16 exceed the peak of 989"),
        (100.0, "100 TFLOP/s in bf16 are far from the peak of 989"),
    ],
)
def test_rates_are_compared_with_the_peak(tmp_path, monkeypatch, tflops, problem):
    class Swept:
        results = {"rows": [{"tflops": tflops}]}  # noqa: RUF012

    monkeypatch.setattr(gpu_doctor, "_sweep", lambda *a: Swept)
    devices = Devices(device="cuda", folder=tmp_path, count=1, accelerator="h100-sxm-80gb")
    if problem is None:
        assert CHECKS["gemm bf16"](devices)["peak_tflops"] == pytest.approx(989.4, rel=1e-3)
        return
    with pytest.raises(gpu_doctor.WrongNumbersError, match=problem):
        CHECKS["gemm bf16"](devices)


@pytest.mark.parametrize(
    ("factor", "problem"),
    [(1.0, None), (1e-3, "the counter says 1 J, power over time 1200 J")],
)
def test_energy_is_compared_with_power(factor, problem):
    """300 W for 4 s; a counter in another unit is off by a thousand."""
    now = iter(range(100))
    spent = [0.0]
    counter = Counter("nvml", lambda: factor * spent[0])

    def work():
        spent[0] += 300.0

    seen = gpu_probes.compared_energy(counter, lambda: 300.0, work, 4.0, lambda: float(next(now)))
    assert seen.problem == problem
    assert seen.measured["power_joules"] == 1200.0


@pytest.mark.parametrize(("device", "passed"), [(0.0999, True), (0.05, False), (0.2, False)])
def test_events_are_compared_with_the_host(device, passed):
    assert (gpu_probes.compared_times(0.1, device).problem is None) == passed


def test_a_probe_reports_its_own_errors():
    said = json.loads(gpu_probes.main("memory", "nowhere"))
    assert said["problem"].startswith("RuntimeError: ")
