"""GPUs of a node: `nvidia-smi --query-gpu ... --format=csv` and `nvidia-smi topo -m`.

    read_gpus(text)            # Gpus(names=("NVIDIA H100 80GB HBM3", ...), memory_bytes=..., ...)
    read_topology(text)        # Topology(links={(0, 1): "NV18", ...}, nics={"mlx5_0": {...}})

The matrix has a row per GPU and NIC and a column per GPU and NIC: NV18 is 18 NVLinks; PIX and PXB
stay below PCIe switches, PHB and NODE pass a CPU, SYS crosses to the other one.
"""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass

from scalewise.errors import InputError

QUERY = "name,memory.total,power.limit,clocks.max.sm"
"""Columns that are asked for."""

NEAR = ("PIX", "PXB")
"""Connections that stay below PCIe switches: such a NIC belongs to its GPUs."""

_NVLINKS = re.compile(r"NV(\d+)")
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
_NO_VALUE = ("[n/a]", "[not supported]", "n/a", "")


@dataclass(frozen=True, kw_only=True)
class Gpus:
    """GPUs of one node."""

    names: tuple[str, ...]
    memory_bytes: float | None
    """Of one GPU."""
    power_watts: float | None
    """Power limit of one GPU; the lowest where they differ."""
    clock_mhz: float | None
    """Highest SM clock."""
    differ: bool
    """Whether the GPUs have different power limits or memory."""


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Connections of one node."""

    gpus: int
    links: dict[tuple[int, int], str]
    """Connection of every pair of GPUs."""
    nics: dict[str, tuple[str, ...]]
    """Connection to every GPU by NIC."""

    @property
    def nvlinks(self) -> dict[tuple[int, int], int]:
        """Number of NVLinks of every pair of GPUs that has some."""
        found = {pair: _NVLINKS.fullmatch(word) for pair, word in self.links.items()}
        return {pair: int(match[1]) for pair, match in found.items() if match is not None}

    @property
    def domain(self) -> int:
        """GPUs that NVLink joins all with all: of the largest such set from GPU 0 on."""
        known = self.nvlinks
        members = [0]
        for gpu in range(1, self.gpus):
            if all((min(gpu, m), max(gpu, m)) in known for m in members):
                members.append(gpu)
        return len(members)

    @property
    def own_nics(self) -> tuple[str, ...]:
        """NICs below a PCIe switch of a GPU: those that collectives use."""
        return tuple(name for name, to in self.nics.items() if any(word in NEAR for word in to))


def read_gpus(text: str) -> Gpus:
    """Read the table of GPUs.

    Raises:
        InputError: If it has no column of names.
    """
    rows = [[cell.strip() for cell in row] for row in csv.reader(text.strip().splitlines())]
    heads = [re.sub(r"\s*\[.*\]", "", cell) for cell in rows[0]] if rows else []
    if "name" not in heads:
        raise InputError(
            "the table of GPUs has no column `name`",
            hint=f"nvidia-smi --query-gpu={QUERY} --format=csv",
        )
    table = [dict(zip(heads, row, strict=False)) for row in rows[1:] if any(row)]
    if not table:
        raise InputError("the table of GPUs has no row", hint="run it on a node with GPUs")
    memory = [_number(row.get("memory.total")) for row in table]
    power = [_number(row.get("power.limit")) for row in table]
    clocks = [value for row in table if (value := _number(row.get("clocks.max.sm"))) is not None]
    known = [each for each in power if each is not None]
    sizes = [each for each in memory if each is not None]
    return Gpus(
        names=tuple(row["name"] for row in table),
        memory_bytes=min(sizes) * 2**20 if sizes else None,
        power_watts=min(known) if known else None,
        clock_mhz=max(clocks) if clocks else None,
        differ=len(set(memory)) > 1 or len(set(power)) > 1,
    )


def _number(cell: str | None) -> float | None:
    """Read "700.00 W", "81559 MiB", "1980 MHz"; None where the driver has no value."""
    word = (cell or "").strip()
    if word.lower() in _NO_VALUE:
        return None
    match = re.match(r"\d+(?:\.\d+)?", word)
    return float(match[0]) if match else None


def read_topology(text: str) -> Topology:
    """Read the matrix of connections.

    Raises:
        InputError: If it has no GPUs, or a row does not fit the head.
    """
    lines = [_COLORS.sub("", line).rstrip() for line in text.splitlines()]
    start = next((place for place, line in enumerate(lines) if re.match(r"\s+GPU0\b", line)), None)
    if start is None:
        raise InputError(
            "no matrix of GPUs in the topology", hint="the output of `nvidia-smi topo -m`"
        )
    heads = re.split(r"\t+|\s{2,}", lines[start].strip())
    # Older drivers print NICs by name; columns of affinities end the matrix.
    ends = [place for place, head in enumerate(heads) if "Affinity" in head]
    columns = heads[: ends[0]] if ends else heads
    gpus = [head for head in columns if re.fullmatch(r"GPU\d+", head)]
    rows: dict[str, list[str]] = {}
    for line in lines[start + 1 :]:
        cells = line.split()
        if not cells or cells[0] not in columns:
            if rows and not cells:
                break
            continue
        if len(cells) <= len(columns):
            raise InputError(
                f"{cells[0]} has {len(cells) - 1} of {len(columns)} connections",
                hint="the whole output of `nvidia-smi topo -m`",
            )
        rows[cells[0]] = cells[1 : 1 + len(columns)]
    missing = [name for name in gpus if name not in rows]
    if missing:
        raise InputError(f"the topology has no row of {missing[0]}", hint="copy all of it")
    pairs = re.findall(r"^\s*(NIC\d+)\s*:\s*(\S+)", "\n".join(lines), re.MULTILINE)
    legend = {str(short): str(name) for short, name in pairs}
    links = {
        (i, j): rows[gpus[i]][columns.index(gpus[j])]
        for i in range(len(gpus))
        for j in range(i + 1, len(gpus))
    }
    nics = {
        legend.get(name, name): tuple(rows[gpu][place] for gpu in gpus)
        for place, name in enumerate(columns)
        if name not in gpus
    }
    return Topology(gpus=len(gpus), links=links, nics=nics)
