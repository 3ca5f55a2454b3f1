"""Energy counters of devices, in joules; None where a device has none.

    counter = device_counter(0) or host_counter()
    before = counter.joules() if counter else None

Counters are read before and after the timed steps, so they add no overhead to them. NVIDIA: the
energy counter of NVML (Volta and newer). AMD: the energy accumulator of amdsmi. CPUs: RAPL, where
the kernel lets ordinary users read it. A missing counter is None, never zero.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

POWERCAP = Path("/sys/class/powercap")
"""Where Linux shows RAPL: https://docs.kernel.org/power/powercap/powercap.html."""

MICRO = 1e-6
MILLI = 1e-3


class Counter(NamedTuple):
    """Something that only counts up."""

    source: str
    """Whose counter: "nvml", "amdsmi" or "rapl"."""
    joules: Callable[[], float]
    """Energy since some moment in the past, joules."""


def device_counter(*, uuid: str | None = None, index: int | None = None) -> Counter | None:
    """The energy counter of a GPU; never that of another one.

    Args:
        uuid: UUID of an NVIDIA GPU, for NVML: its indexes count devices that CUDA hides, and in
            another order.
        index: Place of an AMD GPU among all that amdsmi knows.
    """
    counter = None if uuid is None else _nvml(uuid)
    return counter if counter is not None or index is None else _amdsmi(index)


def nvml_handle(uuid: str) -> tuple[Any, Any]:
    """Return the module of NVML and its handle of a GPU.

    Raises:
        Exception: If there is no library, no driver or no such device, in NVML's words.
    """
    nvml: Any = import_module("pynvml")
    nvml.nvmlInit()
    return nvml, nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}".encode())


def _nvml(uuid: str) -> Counter | None:
    try:
        nvml, handle = nvml_handle(uuid)
        nvml.nvmlDeviceGetTotalEnergyConsumption(handle)
    except Exception:
        # No library, no driver, no such device, no permission, or a device without the counter.
        return None
    if _is_divided(nvml, handle):
        return None
    return Counter("nvml", lambda: float(nvml.nvmlDeviceGetTotalEnergyConsumption(handle)) * MILLI)


def _is_divided(nvml: Any, handle: Any) -> bool:
    """Whether a GPU is in MIG mode: its counter then counts the instances of others as well."""
    try:
        return bool(nvml.nvmlDeviceGetMigMode(handle)[0])
    except Exception:
        # Most GPUs have no such mode.
        return False


def _amdsmi(index: int) -> Counter | None:
    try:
        smi: Any = import_module("amdsmi")
        smi.amdsmi_init()
        handle = smi.amdsmi_get_processor_handles()[index]

        def joules() -> float:
            said = smi.amdsmi_get_energy_count(handle)
            # The name of the key changed between releases; the resolution is in microjoules.
            count = said["energy_accumulator"] if "energy_accumulator" in said else said["power"]
            return float(count) * float(said["counter_resolution"]) * MICRO

        joules()
    except Exception:
        return None
    return Counter("amdsmi", joules)


def host_counter(root: Path = POWERCAP) -> Counter | None:
    """The sum of the RAPL counters of all CPU packages, or None where they cannot be read.

    Args:
        root: The powercap folder of sysfs.
    """
    packages = [_Package(zone) for zone in sorted(root.glob("intel-rapl:*"))
                if zone.name.count(":") == 1]  # fmt: skip
    packages = [package for package in packages if package.readable()]
    if not packages:
        return None
    return Counter("rapl", lambda: sum(package.joules() for package in packages))


class _Package:
    """One CPU package; its counter wraps around, which is put right here."""

    def __init__(self, zone: Path) -> None:
        self.file = zone / "energy_uj"
        self.range_file = zone / "max_energy_range_uj"
        self.last = 0
        self.wrapped = 0

    def readable(self) -> bool:
        """Whether it is a package, and the kernel shows its counter."""
        try:
            name = (self.file.parent / "name").read_text().strip()
            self.range = int(self.range_file.read_text())
            self.last = int(self.file.read_text())
        except (OSError, ValueError):
            return False
        return name.startswith("package")

    def joules(self) -> float:
        """Energy, counted on beyond the end of the counter."""
        now = int(self.file.read_text())
        if now < self.last:
            self.wrapped += self.range
        self.last = now
        return (self.wrapped + now) * MICRO
