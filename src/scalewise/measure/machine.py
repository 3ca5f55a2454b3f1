"""Where was it measured? Devices, versions, and whether anybody else was using the machine.

    environment(device="cpu", accelerator=None, ranks=2).cpu      # "AMD EPYC 7B13"
    idle_warnings()                # () or ("the machine was not idle: ...",)

A measurement on a busy machine says little, so the load is looked at before the first process
starts, and what was seen goes into the record.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any

import msgspec

from scalewise._version import __version__
from scalewise.measure.job import Device

BUSY_SHARE = 0.10
"""Share of the cores that may be busy on a machine that counts as idle."""

LOOK_SECONDS = 0.5
"""How long to watch."""

LIBRARIES = ("torch", "numpy", "nvidia-ml-py", "triton")

# What drivers call devices -> the catalog's name. NVIDIA and AMD: the product names that
# nvidia-smi and rocm-smi print, as PyTorch repeats them.
DEVICES = {
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "V100-SXM2-32GB": "v100-sxm-32gb",
    "H100 80GB HBM3": "h100-sxm-80gb",
    "H100 PCIe": "h100-pcie-80gb",
    "NVIDIA H200": "h200-sxm-141gb",
    "NVIDIA B200": "b200-sxm-180gb",
    "NVIDIA GB200": "gb200",
    "NVIDIA L40S": "l40s",
    "GeForce RTX 4090": "rtx-4090",
    "Instinct MI300X": "mi300x",
    "Instinct MI325X": "mi325x",
}


class Environment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The machine and the software of one launch."""

    device: Device
    """"cuda" (NVIDIA or ROCm) or "cpu"."""
    device_name: str
    """What the driver, or the kernel, calls it."""
    accelerator: str | None = None
    """Its name in the catalog, which has the peaks; None where it is not known."""
    backend: str
    """Of the collectives: "nccl" or "gloo"."""
    ranks: int
    """Processes, one per device."""
    ranks_per_node: int
    """Of them on one machine."""
    threads: int | None = None
    """Threads of one rank, on CPUs."""
    host: str
    """Name of the machine of rank 0."""
    nodes: list[str] = []
    """Names of all machines in the order of their ranks, under Slurm; empty elsewhere."""
    platform: str
    """Operating system."""
    cpu: str
    """Processor."""
    cores: int
    """Cores that this process may use."""
    memory_bytes: int | None = None
    """Of the host, bytes."""
    python: str
    """Version."""
    scalewise: str
    """Version."""
    versions: dict[str, str]
    """Of the libraries that matter; those not installed are left out."""


def environment(
    *,
    device: Device,
    device_name: str,
    accelerator: str | None,
    backend: str,
    ranks: int,
    ranks_per_node: int,
    threads: int | None,
    versions: dict[str, str],
    nodes: Sequence[str] = (),
) -> Environment:
    """Describe this machine.

    Args:
        device: Kind of device.
        device_name: As the driver calls it; "" for CPUs.
        accelerator: Its catalog name, where the user gave one.
        backend: Of the collectives.
        ranks: Processes in all.
        ranks_per_node: Processes here.
        threads: Of one rank, on CPUs.
        versions: Of what only a rank knows: CUDA, NCCL.
        nodes: Names of all machines, where Slurm gave them.
    """
    return Environment(
        device=device,
        device_name=device_name or cpu_name(),
        accelerator=accelerator or accelerator_of(device_name),
        backend=backend,
        ranks=ranks,
        ranks_per_node=ranks_per_node,
        threads=threads,
        host=platform.node(),
        nodes=list(nodes),
        platform=platform.platform(),
        cpu=cpu_name(),
        cores=cores(),
        memory_bytes=memory_bytes(),
        python=platform.python_version(),
        scalewise=__version__,
        versions=_versions() | versions,
    )


def accelerator_of(device_name: str) -> str | None:
    """The catalog's name for what a driver calls a device; None where nobody knows."""
    for part, name in DEVICES.items():
        if part in device_name:
            return name
    return None


def cores() -> int:
    """Cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def cpu_name(file: Path = Path("/proc/cpuinfo")) -> str:
    """The processor's own name."""
    try:
        for line in file.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def memory_bytes() -> int | None:
    """Memory of this machine, bytes; None where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def idle_warnings(proc: Path = Path("/proc"), *, seconds: float = LOOK_SECONDS) -> tuple[str, ...]:
    """Say so where somebody else is using the cores or the GPUs.

    Args:
        proc: Where Linux tells about processes.
        seconds: How long to watch.

    Returns:
        One sentence for each thing that is busy; one if it cannot be found out.
    """
    before = _cpu_times(proc)
    time.sleep(seconds)
    after = _cpu_times(proc)
    said: list[str] = []
    if before is None or after is None or after[1] <= before[1]:
        said.append("whether the machine was idle could not be found out")
    else:
        share = (after[0] - before[0]) / (after[1] - before[1])
        if share > BUSY_SHARE:
            load = (proc / "loadavg").read_text().split()[0]
            said.append(
                f"the machine was not idle: {share:.0%} of its cores were busy before the start "
                f"(load average {load})"
            )
    said.extend(_busy_gpus())
    return tuple(said)


def _cpu_times(proc: Path) -> tuple[float, float] | None:
    """Busy and total time of all cores so far, in ticks."""
    try:
        first = (proc / "stat").read_text().split("\n", 1)[0].split()
        ticks = [float(word) for word in first[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    if len(ticks) < 5:
        return None
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)


def _busy_gpus() -> list[str]:
    """GPUs on which something runs, by NVML; nothing where there is no NVML."""
    if util.find_spec("pynvml") is None:
        return []
    said: list[str] = []
    try:
        from importlib import import_module

        nvml: Any = import_module("pynvml")
        nvml.nvmlInit()
        for index in range(nvml.nvmlDeviceGetCount()):
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            share = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0
            if share > BUSY_SHARE:
                said.append(f"GPU {index} was not idle: {share:.0%} busy before the start")
    except Exception:
        # No driver, or a device that does not tell.
        return said
    return said
