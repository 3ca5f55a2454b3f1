"""The machine of a measurement: devices, versions, and other load on it.

    environment(device="cpu", accelerator=None, ranks=2).cpu      # "AMD EPYC 7B13"
    idle_warnings()                # () or ("the machine was not idle: ...",)

Other load spoils a measurement, so it is checked before the first process starts and goes into the
record as a warning.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from importlib import metadata, util
from pathlib import Path
from typing import Any

from scalewise._version import __version__
from scalewise.records.environment import Environment, accelerator_of
from scalewise.records.job import Device
from scalewise.records.links import ShapedLinks

BUSY_FRACTION = 0.10
"""Fraction of the cores that may be busy on a machine that counts as idle."""

LOOK_SECONDS = 0.5
"""How long to watch."""

LIBRARIES = ("torch", "numpy", "nvidia-ml-py", "triton")


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
    links: ShapedLinks | None = None,
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
        links: Limited links between pretend nodes, if any.
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
        links=links,
        platform=platform.platform(),
        cpu=cpu_name(),
        cores=cores(),
        memory_bytes=memory_bytes(),
        python=platform.python_version(),
        scalewise=__version__,
        versions=_versions() | versions,
    )


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
    """Memory of this machine, bytes; None if the system does not report it."""
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
    """Return warnings about other load on the cores or the GPUs.

    Args:
        proc: Folder of the process information of Linux.
        seconds: How long to watch.

    Returns:
        One sentence for each busy resource; one if the load is unknown.
    """
    before = _cpu_times(proc)
    time.sleep(seconds)
    after = _cpu_times(proc)
    said: list[str] = []
    if before is None or after is None or after[1] <= before[1]:
        said.append("the load of the machine is unknown")
    else:
        share = (after[0] - before[0]) / (after[1] - before[1])
        if share > BUSY_FRACTION:
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
        count = nvml.nvmlDeviceGetCount()
    except Exception:
        # No driver.
        return said
    for index in range(count):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
            share = nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0
        except Exception:
            # A device in MIG mode does not report its load, but the next one may.
            continue
        if share > BUSY_FRACTION:
            said.append(f"GPU {index} was not idle: {share:.0%} busy before the start")
    return said
