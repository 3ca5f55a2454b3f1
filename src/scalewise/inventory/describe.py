"""A cluster file from what the tools of a machine say, with the evidence beside every value.

    found = describe(from_files(["topo.txt", "gpus.csv", "ibstat.txt"]))
    found.values[0].key, found.values[0].text, found.values[0].evidence
    found.unseen                       # what could not be seen, one sentence each
    cluster_toml(found, base=None)     # the file

Only what was seen is written: everything else comes from the base, or is typical of the accelerator
and listed with every estimate.
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from scalewise.catalog import load_accelerator, load_cluster
from scalewise.cluster import Accelerator
from scalewise.errors import InputError
from scalewise.evidence.files import toml_value
from scalewise.inventory.network import Devices, Port, read_ibstat, read_lspci, read_rdma_link
from scalewise.inventory.nvidia import Gpus, Topology, read_gpus, read_topology
from scalewise.inventory.slurm import Node, NodeSet, read_nodes, read_sinfo
from scalewise.inventory.sources import Source
from scalewise.records.environment import accelerator_of
from scalewise.units import format_percent

NVLINK = {"volta": 25e9, "ampere": 25e9, "hopper": 25e9, "blackwell": 50e9}
"""Bandwidth of one NVLink by architecture, one way, bytes/s (NVIDIA datasheets: 300 GB/s over 12
links of A100, 450 over 18 of H100, 900 over 18 of B200)."""

MAX_DIGITS = 18
"""Limit of a number in the output of a tool: beyond, it is damaged."""

LEAST_CAP = 0.02
"""Fraction of the TDP by which a power limit must be lower to be a cap."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One line of the file."""

    key: str
    """Field of a cluster."""
    text: str
    """Value as TOML."""
    evidence: str
    """What said so."""


@dataclass(kw_only=True)
class Described:
    """A cluster as far as it was seen."""

    values: list[Value] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    """What could not be seen, and what is assumed instead, one sentence each."""
    notes: list[str] = field(default_factory=list)
    """What looks odd."""

    def add(self, key: str, text: str, evidence: str) -> None:
        """Add a line."""
        self.values.append(Value(key=key, text=text, evidence=evidence))

    def has(self, key: str) -> bool:
        """Whether a field was seen."""
        return any(value.key == key for value in self.values)


@dataclass(kw_only=True)
class _Seen:
    """Everything that was read."""

    gpus: tuple[Gpus, str] | None = None
    topology: tuple[Topology, str] | None = None
    ports: tuple[tuple[Port, ...], str] | None = None
    bus: tuple[Devices, str] | None = None
    nodes: tuple[tuple[Node, ...], str] | None = None
    sets: tuple[tuple[NodeSet, ...], str] | None = None


def describe(sources: Sequence[Source], base: str | None = None) -> Described:
    """Return what was seen of a cluster.

    Args:
        sources: Output of tools.
        base: Cluster that has what was not seen.

    Raises:
        InputError: If an output cannot be read, or no accelerator was seen and there is no base.
    """
    seen = _Seen()
    for each in sources:
        if (long := re.search(rf"\d{{{MAX_DIGITS + 1}}}", each.text)) is not None:
            raise InputError(
                f"{each.where}: a number of more than {MAX_DIGITS} digits, {long[0][:12]}...",
                hint="write the output of the tool anew",
            )
        if each.kind == "gpus":
            seen.gpus = read_gpus(each.text), each.where
        elif each.kind == "topology":
            seen.topology = read_topology(each.text), each.where
        elif each.kind == "ibstat":
            seen.ports = read_ibstat(each.text), each.where
        elif each.kind == "rdma" and seen.ports is None:
            seen.ports = read_rdma_link(each.text), each.where
        elif each.kind == "lspci":
            seen.bus = read_lspci(each.text), each.where
        elif each.kind == "nodes":
            seen.nodes = read_nodes(each.text), each.where
        elif each.kind == "sinfo":
            seen.sets = read_sinfo(each.text), each.where
    found = Described()
    chip = _accelerator(found, seen, base)
    per_node = _domain(found, seen, chip)
    _size(found, seen, per_node)
    _network(found, seen, per_node)
    _host(found, seen)
    _power(found, seen, chip)
    if sources:
        read = ", ".join(dict.fromkeys(each.where for each in sources))
        found.add("source", toml_value(f"read from {read}"), "all that was read")
    return found


def _accelerator(found: Described, seen: _Seen, base: str | None) -> Accelerator:
    """The GPU by the name its driver reports."""
    if seen.gpus is not None:
        gpus, where = seen.gpus
        names = Counter(gpus.names)
        device = names.most_common(1)[0][0]
        if len(names) > 1:
            found.notes.append(f"the node has different GPUs, the first kind is taken: {names}")
        name = accelerator_of(device)
        if name is None and base is None:
            raise InputError(
                f"{device} ({where}) is not in the catalog",
                hint="write an accelerator file for it (docs: Add a chip), or name a --base",
            )
        if name is not None:
            found.add("accelerator", f'"{name}"', f'{where}: "{device}"')
            return load_accelerator(name)
    if base is None:
        raise InputError(
            "no GPU was seen, so the accelerator is unknown",
            hint="add the output of nvidia-smi --query-gpu, or --base dgx-h100",
        )
    chip = load_cluster(base).accelerator
    found.unseen.append(f"accelerator (nvidia-smi --query-gpu): {chip.name} as in {base}")
    return chip


def _domain(found: Described, seen: _Seen, chip: Accelerator) -> int | None:
    """NVLink domain and its bandwidth; return the GPUs of a node."""
    count = len(seen.gpus[0].names) if seen.gpus is not None else None
    if seen.topology is None:
        found.unseen.append("NVLink domain (nvidia-smi topo -m): typical of the accelerator")
        return count
    topology, where = seen.topology
    if count is not None and count != topology.gpus:
        found.notes.append(f"{count} GPUs are listed, {topology.gpus} are in the topology")
    links = topology.nvlinks
    if not links:
        kinds = ", ".join(sorted(set(topology.links.values())))
        if topology.gpus > 1:
            found.add("scale_up_domain", str(topology.gpus), f"{where}: {kinds} between GPUs")
            rate = chip.scale_up_bandwidth
            if rate is not None and chip.scale_up_name.startswith("NVLink"):
                found.unseen.append(
                    f"rate of PCIe between GPUs: write scale_up_bandwidth, {chip.name} has NVLink "
                    "and this machine shows none"
                )
        return topology.gpus
    domain = topology.domain
    each = min(links.values())
    found.add("scale_up_domain", str(domain), f"{where}: NV{each} between {domain} GPUs")
    if domain < topology.gpus:
        found.notes.append(
            f"NVLink joins {domain} of {topology.gpus} GPUs of a node; between the others the "
            "network rate is taken"
        )
    rate = each * NVLINK.get(chip.architecture, 25e9)
    found.add(
        "scale_up_bandwidth", f'"{rate / 1e9:g}GB/s"',
        f"{where}: NV{each}, {NVLINK.get(chip.architecture, 25e9) / 1e9:g} GB/s each",
    )  # fmt: skip
    usual = chip.scale_up_bandwidth
    if usual is not None and rate < 0.95 * usual:
        found.notes.append(
            f"NV{each} is {format_percent(rate / usual, decimals=0)} of the NVLink bandwidth of "
            f"{chip.name}: links may be down"
        )
    return topology.gpus


def _size(found: Described, seen: _Seen, per_node: int | None) -> None:
    """Number of GPUs: those of usable nodes in Slurm."""
    if seen.nodes is not None:
        nodes, where = seen.nodes
        with_gpus = [node for node in nodes if node.gpus]
        usable = [node for node in with_gpus if node.usable]
        total = sum(node.gpus for node in usable)
        left = len(with_gpus) - len(usable)
        if total:
            text = f"{where}: {len(usable)} nodes with GPUs"
            if left:
                states = sorted({node.state for node in with_gpus if not node.usable})
                text += f", {left} more not usable ({', '.join(states)})"
            found.add("accelerators", str(total), text)
            kinds = {(node.gpus, node.kind) for node in usable}
            if len(kinds) > 1:
                found.notes.append(f"nodes differ in their GPUs: {len(kinds)} kinds")
            return
        found.notes.append(f"{where}: no usable node has GPUs")
    elif seen.sets is not None and seen.sets[0]:
        sets, where = seen.sets
        total = sum(each.nodes * each.gpus for each in sets)
        found.add("accelerators", str(total), f"{where}: {sum(s.nodes for s in sets)} nodes")
        found.notes.append("sinfo does not say which nodes are drained: scontrol show node does")
        return
    if per_node is not None:
        found.add("accelerators", str(per_node), "one node")
    found.unseen.append("number of nodes (scontrol show node): one node; --gpus says more")


def _network(found: Described, seen: _Seen, per_node: int | None) -> None:
    """Network rate per GPU and its kind."""
    if seen.bus is not None and seen.bus[0].efa:
        found.add("fabric", '"efa"', f"{seen.bus[1]}: {seen.bus[0].efa} EFA devices")
        found.unseen.append("rate of EFA: write scale_out_bandwidth, such as 400Gbit/s per GPU")
        return
    if seen.ports is None:
        found.unseen.append("network rate (ibstat): typical of the accelerator")
        return
    ports, where = seen.ports
    up = [port for port in ports if port.up]
    down = [port.device for port in ports if not port.up]
    own = seen.topology[0].own_nics if seen.topology is not None else ()
    chosen = [port for port in up if port.device in own] or up
    if own and (broken := [device for device in down if device in own]):
        found.notes.append(f"NICs of GPUs that are not active: {', '.join(broken)}")
    rates = [port.gbps for port in chosen if port.gbps]
    if not rates:
        found.unseen.append("network rate (ibstat has it, rdma link does not)")
    elif per_node is None:
        found.unseen.append("GPUs of a node (nvidia-smi): the network rate per GPU is unknown")
    else:
        best = max(rates)
        same = [rate for rate in rates if rate == best]
        which = "below PCIe switches of GPUs" if own else "of the highest rate"
        found.add(
            "scale_out_bandwidth", f'"{len(same) * best / per_node:g}Gbit/s"',
            f"{where}: {len(same)} ports of {best:g} Gbit/s {which}, {per_node} GPUs",
        )  # fmt: skip
    layers = {port.layer for port in chosen if port.layer}
    if layers == {"InfiniBand"}:
        found.add("fabric", '"infiniband"', f"{where}: link layer InfiniBand")
    elif layers == {"Ethernet"}:
        found.add("fabric", '"roce"', f"{where}: link layer Ethernet, RDMA devices")
    else:
        found.unseen.append("kind of the network (ibstat: Link layer)")
    found.unseen.append("oversubscription of the fabric: 1; add oversubscription and tier_size")


def _host(found: Described, seen: _Seen) -> None:
    """Vendor of the CPUs, cores and memory of a host."""
    if seen.bus is not None and seen.bus[0].cpu is not None:
        found.add("host", f'"{seen.bus[0].cpu}"', f"{seen.bus[1]}: host bridge")
    else:
        found.unseen.append("vendor of the CPUs (lspci)")
    nodes = [node for node in seen.nodes[0] if node.gpus and node.usable] if seen.nodes else []
    cores = [node.cores for node in nodes if node.cores]
    memory = [node.memory_bytes for node in nodes if node.memory_bytes]
    where = seen.nodes[1] if seen.nodes else ""
    if cores:
        found.add("host_cores", str(min(cores)), f"{where}: Sockets x CoresPerSocket")
    if memory:
        found.add("host_memory_bytes", f'"{min(memory) / 2**30:.0f}GiB"', f"{where}: RealMemory")


def _power(found: Described, seen: _Seen, chip: Accelerator) -> None:
    """Power limit, where it is below the TDP."""
    if seen.gpus is None:
        return
    gpus, where = seen.gpus
    if gpus.differ:
        found.notes.append("GPUs differ in memory or power limit: the lowest is taken")
    if gpus.power_watts is None:
        found.unseen.append("power limit (nvidia-smi power.limit): TDP")
    elif chip.tdp_watts is not None and gpus.power_watts < (1.0 - LEAST_CAP) * chip.tdp_watts:
        found.add("power_cap_watts", f'"{gpus.power_watts:g}W"',
                  f"{where}: power.limit, TDP is {chip.tdp_watts:g} W")  # fmt: skip
    memory = gpus.memory_bytes
    if memory is not None and memory < 0.95 * chip.memory_bytes:
        found.notes.append(
            f"GPUs have {memory / 2**30:.1f} GiB, {chip.name} has {chip.memory_bytes / 2**30:.1f}: "
            "another part, or a slice (MIG)"
        )


def cluster_toml(
    found: Described, *, base: str | None = None, changes: Sequence[tuple[str, str]] = ()
) -> str:
    """Return the cluster as a file.

    Args:
        found: What was seen.
        base: Cluster that has everything else.
        changes: Key and value of lines that the user gave: they stand for what was seen.
    """
    stated = dict(changes)
    blocks = []
    if base is not None:
        blocks.append(f'# Everything that is not here is as there.\nbase = "{base}"')
    for value in found.values:
        if value.key not in stated:
            comment = textwrap.fill(value.evidence, 98, initial_indent="# ", subsequent_indent="# ")
            blocks.append(f"{comment}\n{value.key} = {value.text}")
    blocks += [f"# Stated.\n{key} = {text}" for key, text in stated.items()]
    unseen = [textwrap.fill(each, 98, initial_indent="# Not seen: ", subsequent_indent="#   ")
              for each in found.unseen]  # fmt: skip
    return "\n\n".join([*blocks, *(["\n".join(unseen)] if unseen else [])]) + "\n"
