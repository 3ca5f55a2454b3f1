import sys
from types import SimpleNamespace

import pytest

from scalewise.measure.power import device_counter, host_counter


def zone(root, name, *, label, joules, maximum=65_000_000_000):
    folder = root / name
    folder.mkdir()
    (folder / "name").write_text(f"{label}\n")
    (folder / "energy_uj").write_text(f"{int(joules * 1e6)}\n")
    (folder / "max_energy_range_uj").write_text(f"{maximum}\n")
    return folder


def test_packages_are_summed_and_their_parts_left_out(tmp_path):
    first = zone(tmp_path, "intel-rapl:0", label="package-0", joules=10.0)
    zone(tmp_path, "intel-rapl:1", label="package-1", joules=5.0)
    zone(tmp_path, "intel-rapl:0:0", label="core", joules=7.0)
    zone(tmp_path, "intel-rapl:2", label="psys", joules=100.0)
    counter = host_counter(tmp_path)
    assert (counter.source, counter.joules()) == ("rapl", 15.0)
    (first / "energy_uj").write_text("12000000\n")
    assert counter.joules() == 17.0


def test_a_counter_that_wraps_counts_on(tmp_path):
    package = zone(tmp_path, "intel-rapl:0", label="package-0", joules=60.0, maximum=65_000_000)
    counter = host_counter(tmp_path)
    before = counter.joules()
    (package / "energy_uj").write_text("2000000\n")
    assert counter.joules() - before == pytest.approx(7.0)


def test_no_counter_is_none_and_not_zero(tmp_path):
    assert host_counter(tmp_path) is None
    package = zone(tmp_path, "intel-rapl:0", label="package-0", joules=1.0)
    (package / "energy_uj").unlink()
    assert host_counter(tmp_path) is None


def fake_nvml(**changes):
    asked = []

    def by_uuid(uuid):
        asked.append(uuid)
        return "gpu"

    fields = {
        "asked": asked,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByUUID": by_uuid,
        "nvmlDeviceGetTotalEnergyConsumption": lambda handle: 2500,
    }
    return SimpleNamespace(**(fields | changes))


def test_nvml_counts_millijoules_of_the_named_device(monkeypatch):
    nvml = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    counter = device_counter(uuid="abc")
    assert (counter.source, counter.joules(), nvml.asked) == ("nvml", 2.5, [b"GPU-abc"])


def test_a_device_without_the_counter_is_none(monkeypatch):
    def refuse(handle):
        raise RuntimeError("Not Supported")

    monkeypatch.setitem(
        sys.modules, "pynvml", fake_nvml(nvmlDeviceGetTotalEnergyConsumption=refuse)
    )
    assert device_counter(uuid="abc") is None


def test_nvml_is_not_asked_by_an_index_that_names_another_device(monkeypatch):
    nvml = fake_nvml()
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    assert device_counter(index=0) is None
    assert nvml.asked == []


@pytest.mark.parametrize(("mode", "source"), [([1, 1], None), ([0, 1], "nvml")])
def test_a_gpu_in_mig_mode_has_no_counter_of_its_own(monkeypatch, mode, source):
    nvml = fake_nvml(nvmlDeviceGetMigMode=lambda handle: mode)
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    counter = device_counter(uuid="abc")
    assert (counter and counter.source) == source


@pytest.mark.parametrize("key", ["energy_accumulator", "power"])
def test_amd_counts_in_its_own_resolution(monkeypatch, key):
    smi = SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_get_processor_handles=lambda: ["a", "b"],
        amdsmi_get_energy_count=lambda handle: {key: 1_000_000, "counter_resolution": 15.3},
    )
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    counter = device_counter(index=1)
    assert counter.source == "amdsmi"
    assert counter.joules() == pytest.approx(15.3)
