"""Nodes of a Slurm cluster: `scontrol show node` and `sinfo -o "%N %D %G"`.

    read_nodes(text)[0]        # Node(name="gpu001", gpus=8, free=True, cores=112, ...)
    read_sinfo(text)           # (NodeSet(names="gpu[001-064]", nodes=64, gpus=8, kind="h100"),)

A node lists its GPUs once in all and once by type: they count once. A node that is drained, down or
in maintenance cannot be used, whatever else its state says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

NOT_USABLE = ("DRAIN", "DOWN", "FAIL", "MAINT", "NOT_RESPONDING", "UNKNOWN", "INVAL", "FUTURE")
"""Parts of a state in which no job can use a node."""

NOT_RESPONDING, MAINTENANCE = "*", "$"
"""Their short forms behind a state."""


@dataclass(frozen=True, kw_only=True)
class Node:
    """One node."""

    name: str
    gpus: int
    kind: str | None
    """Type of its GPUs, as Slurm names it."""
    usable: bool
    state: str
    cores: int | None
    memory_bytes: float | None


@dataclass(frozen=True, kw_only=True)
class NodeSet:
    """Nodes that are alike."""

    names: str
    nodes: int
    gpus: int
    """GPUs of one node."""
    kind: str | None


def read_nodes(text: str) -> tuple[Node, ...]:
    """Read all nodes of `scontrol show node`."""
    found = []
    for block in re.split(r"(?m)^(?=NodeName=)", text):
        if not block.startswith("NodeName="):
            continue
        fields = dict(re.findall(r"(\S+?)=(\S*)", block))
        gpus, kind = _gpus(fields.get("CfgTRES", ""), fields.get("Gres", ""))
        state = fields.get("State", "UNKNOWN")
        sockets, cores = fields.get("Sockets", ""), fields.get("CoresPerSocket", "")
        memory = fields.get("RealMemory", "")
        found.append(
            Node(
                name=fields["NodeName"],
                gpus=gpus,
                kind=kind,
                usable=not _stopped(state),
                state=state,
                cores=int(sockets) * int(cores)
                if sockets.isdecimal() and cores.isdecimal()
                else None,
                # RealMemory is in MiB.
                memory_bytes=int(memory) * 2.0**20
                if memory.isdecimal() and int(memory) > 1
                else None,
            )
        )
    return tuple(found)


def _stopped(state: str) -> bool:
    """Whether a state such as "MIXED+DRAIN" or "DOWN*" stops all jobs."""
    words = state.upper().split("+")
    return any(
        word.startswith(NOT_USABLE) or word.endswith((NOT_RESPONDING, MAINTENANCE))
        for word in words
    )


def _gpus(tres: str, gres: str) -> tuple[int, str | None]:
    """Count GPUs once; the total of a node stands beside its types."""
    total = re.search(r"gres/gpu=(\d+)", tres)
    typed = re.findall(r"gres/gpu:([^=,]+)=(\d+)", tres)
    if total or typed:
        count = int(total[1]) if total else sum(int(each) for _, each in typed)
        return count, typed[0][0] if len(typed) == 1 else None
    return _gres(gres)


def _gres(text: str) -> tuple[int, str | None]:
    """Read "gpu:h100:8(S:0-1)", "gpu:8", "gpu:a100:4,gpu:v100:2"."""
    found = re.findall(r"\bgpu(?::([A-Za-z][^:,(]*))?:(\d+)", text)
    kinds = {kind for kind, _ in found if kind}
    return sum(int(count) for _, count in found), kinds.pop() if len(kinds) == 1 else None


def read_sinfo(text: str) -> tuple[NodeSet, ...]:
    """Read `sinfo -o "%N %D %G"`; nodes of several partitions are listed once."""
    found: dict[str, NodeSet] = {}
    for line in text.splitlines():
        match = re.match(r"\s*(\S+)\s+(\d+)\s+(\S+)\s*$", line)
        if match is None:
            continue
        gpus, kind = _gres(match[3])
        if gpus:
            found[match[1]] = NodeSet(names=match[1], nodes=int(match[2]), gpus=gpus, kind=kind)
    return tuple(found.values())
