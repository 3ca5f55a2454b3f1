"""Pretend nodes on one machine: network namespaces joined by links of a limited rate.

    links = ShapedLinks(ranks_per_node=2, bandwidth=12.5e6)
    with pretend_nodes(links, ranks=4) as nodes:     # two namespaces, each with a link to a switch
        nodes[1].command, nodes[1].address           # ["ip", "netns", "exec", ...], "10.213.7.2"

Ranks of a node reach each other over its loopback device, ranks of two nodes over links whose rate
a token bucket limits in both directions (tc-tbf(8)). Needs Linux, root, `ip` and `tc` (iproute2).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from scalewise.errors import ScalewiseError
from scalewise.records.links import ShapedLinks

PREFIX = "scalewise-"
"""What names of our namespaces begin with; the process that made them and a number follow."""

SUBNET = "10.213.7"
"""First three bytes of the addresses of nodes, inside their namespaces only."""

MAX_NODES = 64
"""Limit of the nodes of a launch."""

BURST_BYTES = 256 * 1024
"""Bytes that the bucket lets through at once: above a segment of 64 KiB, far below a message."""

LATENCY = "200ms"
"""Time that a packet may wait in the bucket before it is dropped: more than a full TCP window."""

INTERFACE = "uplink"
"""Name of a node's link in its namespace."""


@dataclass(frozen=True, kw_only=True)
class PretendNode:
    """One namespace."""

    name: str
    """Its name."""
    address: str
    """Its address on the link."""

    @property
    def command(self) -> list[str]:
        """Words that run what follows them inside the namespace."""
        return ["ip", "netns", "exec", self.name]


def can_shape() -> bool:
    """Return whether this machine and user can make namespaces and limit rates."""
    return (
        sys.platform == "linux"
        and os.geteuid() == 0
        and all(shutil.which(name) for name in ("ip", "tc"))
    )


@contextmanager
def pretend_nodes(links: ShapedLinks, ranks: int) -> Iterator[list[PretendNode]]:
    """Make the namespaces of a launch, joined by a switch in one more; remove them afterwards.

    What a killed run left behind goes first. The network of the machine itself is not touched.

    Raises:
        ScalewiseError: If the system refuses.
    """
    if not can_shape():
        raise ScalewiseError(
            "links between pretend nodes need Linux, root, ip and tc",
            hint="run as root with iproute2 installed",
        )
    count = links.nodes(ranks)
    if count > MAX_NODES:
        raise ScalewiseError(f"{count} pretend nodes are more than {MAX_NODES}")
    _remove_left_behind()
    own = f"{PREFIX}{os.getpid()}"
    switch = f"{own}-switch"
    nodes = [PretendNode(name=f"{own}-{i}", address=f"{SUBNET}.{i + 1}") for i in range(count)]
    try:
        _call("ip", "netns", "add", switch)
        _call("ip", "-n", switch, "link", "add", "name", "bridge", "type", "bridge")
        _call("ip", "-n", switch, "link", "set", "dev", "bridge", "up")
        for number, node in enumerate(nodes):
            _join(node, switch, f"port{number}", links)
        yield nodes
    finally:
        for name in (*(node.name for node in nodes), switch):
            _remove(name)


def _join(node: PretendNode, switch: str, port: str, links: ShapedLinks) -> None:
    """Make a node, and its link to a port of the switch."""
    _call("ip", "netns", "add", node.name)
    _call("ip", "-n", switch, "link", "add", port, "type", "veth", "peer", "name", INTERFACE,
          "netns", node.name)  # fmt: skip
    _call("ip", "-n", switch, "link", "set", "dev", port, "master", "bridge", "up")
    _call("ip", "-n", node.name, "addr", "add", f"{node.address}/24", "dev", INTERFACE)
    for name in (INTERFACE, "lo"):
        _call("ip", "-n", node.name, "link", "set", "dev", name, "up")
    # A bucket holds what leaves: the node's end sends, the switch's end sends to the node.
    ends = ((node.name, INTERFACE), (switch, port)) if links.bandwidth else ()
    for inside, device in ends:
        _call("ip", "netns", "exec", inside, "tc", "qdisc", "add", "dev", device, "root", "tbf",
              "rate", f"{links.node_bits:.0f}bit", "burst", str(BURST_BYTES),
              "latency", LATENCY)  # fmt: skip


def _call(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ScalewiseError(f"`{' '.join(words)}` failed: {done.stderr.strip() or 'no reason'}")


def _remove(name: str) -> None:
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _remove_left_behind() -> None:
    """Remove the namespaces of processes that are gone."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=False)
    for name in (line.split()[0] for line in listed.stdout.splitlines() if line):
        process = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and process.isdigit() and not Path("/proc", process).exists():
            _remove(name)
