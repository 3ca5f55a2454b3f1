"""NICs of a node: `ibstat`, `rdma link` and `lspci`.

read_ibstat(text)[0]       # Port(device="mlx5_0", gbps=400.0, layer="InfiniBand", up=True)
read_rdma_link(text)[0]    # Port(device="mlx5_0", gbps=None, layer=None, up=True)
read_lspci(text).nics      # {"MT2910 Family [ConnectX-7]": 9}
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Port:
    """One port of a NIC."""

    device: str
    gbps: float | None
    """Rate, Gbit/s."""
    layer: str | None
    """Link layer: "InfiniBand" or "Ethernet"."""
    up: bool


@dataclass(frozen=True, kw_only=True)
class Devices:
    """What hangs on the PCIe bus."""

    gpus: Counter[str] = field(default_factory=Counter)
    """NVIDIA devices by name."""
    nics: Counter[str] = field(default_factory=Counter)
    """Network controllers by name."""
    efa: int = 0
    """Elastic Fabric Adapters of AWS."""
    switches: int = 0
    """NVSwitches."""
    cpu: str | None = None
    """Vendor of the CPUs: "intel" or "amd"."""


def read_ibstat(text: str) -> tuple[Port, ...]:
    """Read the ports of all adapters."""
    ports: list[Port] = []
    device = ""
    found: dict[str, str] = {}

    def close() -> None:
        if device and "State" in found:
            rate = re.match(r"\d+(?:\.\d+)?", found.get("Rate", ""))
            ports.append(
                Port(
                    device=device,
                    gbps=float(rate[0]) if rate else None,
                    layer=found.get("Link layer"),
                    up=found["State"].lower() == "active",
                )
            )

    for line in text.splitlines():
        if match := re.match(r"CA '(\S+)'", line.strip()):
            close()
            device, found = match[1], {}
        elif re.match(r"Port \d+:", line.strip()):
            close()
            found = {}
        elif ":" in line:
            key, _, value = line.strip().partition(":")
            found[key.strip()] = value.strip()
    close()
    return tuple(ports)


def read_rdma_link(text: str) -> tuple[Port, ...]:
    """Read the lines of `rdma link`; they have no rate."""
    found = re.findall(r"^(?:\d+/\d+: |link )(\S+?)/\d+:? .*?state (\S+)", text, re.MULTILINE)
    return tuple(
        Port(device=device, gbps=None, layer=None, up=state.upper() == "ACTIVE")
        for device, state in found
    )


def read_lspci(text: str) -> Devices:
    """Read the devices that matter: GPUs, NICs, NVSwitches, and the vendor of the CPUs."""
    gpus: Counter[str] = Counter()
    nics: Counter[str] = Counter()
    efa = switches = 0
    cpu: str | None = None
    for line in text.splitlines():
        match = re.match(r"(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d (.*?): (.*)", line)
        if match is None:
            continue
        kind, name = match[1], re.sub(r" \(rev \w+\)$", "", match[2])
        if "Elastic Fabric Adapter" in name:
            efa += 1
        elif "NVSwitch" in name:
            switches += 1
        elif name.startswith("NVIDIA") and re.match(r"3D|VGA|Display", kind):
            gpus[name.removeprefix("NVIDIA Corporation ")] += 1
        elif re.match(r"Infiniband|Ethernet|Network", kind):
            nics[name] += 1
        elif kind == "Host bridge" and cpu is None:
            vendors = {"Intel": "intel", "Advanced Micro Devices": "amd"}
            cpu = next((short for long, short in vendors.items() if name.startswith(long)), None)
    return Devices(gpus=gpus, nics=nics, efa=efa, switches=switches, cpu=cpu)
