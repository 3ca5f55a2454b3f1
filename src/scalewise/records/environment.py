"""The machine and the software of one launch, as a record keeps them.

record.environment.accelerator                  # "h100-sxm-80gb"
accelerator_of("NVIDIA H100 80GB HBM3")         # the same, from the name the driver reports
"""

from __future__ import annotations

import re

import msgspec

from scalewise.catalog import load_accelerator, names
from scalewise.records.job import Device
from scalewise.records.links import ShapedLinks


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
    links: ShapedLinks | None = None
    """Limited links between pretend nodes on one machine; None where nothing was limited."""
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


def accelerator_of(device_name: str) -> str | None:
    """Return the accelerator of the catalog that a driver reports; None if it has no such one.

    Args:
        device_name: As nvidia-smi, rocm-smi and PyTorch print it.
    """
    if not device_name:
        return None
    found = {
        part: name
        for name in names("accelerators")
        for part in load_accelerator(name).device_names
        # A whole word: "NVIDIA A10" is not a part of "NVIDIA A100X".
        if re.search(rf"{re.escape(part)}\b", device_name)
    }
    return found[max(found, key=len)] if found else None
