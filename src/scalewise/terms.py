"""Tables of the terms of a step and of the parts of memory: labels, kinds, colors.

    TERMS["contention"].label, TERMS["contention"].kind        # "contention", "communication"
    [term.key for term in TERMS.values() if term.avoidable]

Whatever lists, colors, groups or sums terms derives it from here, in Python and in the web UI. A
new term is one row here, one field of `step.terms.Terms`, and the file of its technique. This file
imports nothing else of scalewise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["compute", "communication", "waiting"]
Activity = Literal["compute", "memory", "communication", "waiting"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Term:
    """Properties of one term of a step, besides its seconds."""

    key: str
    """Name in `Terms`, JSON and tables of data."""
    label: str
    """Name in tables, figures and sentences."""
    kind: Kind
    """What the device does: compute, wait for communication, or wait for anything else."""
    activity: Activity
    """What it draws power for (`physics.power`)."""
    color: str
    """In every figure: a shade of the color of its kind."""
    group: str = ""
    """Communication group whose exposed time it is: a field of `CommTime`."""
    useful: bool = False
    """Whether it computes FLOPs of the model: its excess over the ideal is kernel inefficiency."""
    avoidable: bool = False
    """Whether another strategy or setting can remove it."""
    grows: str = ""
    """What makes it grow with the number of GPUs, as a noun phrase; the label if empty."""


COLORS: dict[Kind, str] = {
    "compute": "#0072B2",
    "communication": "#D55E00",
    "waiting": "#8A8A8A",
}
"""Okabe and Ito's blue and vermilion, and gray: distinct under every kind of color vision."""

_TERMS = (
    Term(
        key="gemm", label="GEMM", kind="compute", activity="compute", color="#06497A", useful=True,
        grows="smaller GEMMs",
    ),
    Term(
        key="attention", label="attention", kind="compute", activity="compute", color="#0072B2",
        useful=True, grows="smaller attention kernels",
    ),
    Term(
        key="experts", label="expert GEMM", kind="compute", activity="compute", color="#0B5F94",
        useful=True, grows="fewer tokens per expert",
    ),
    Term(
        key="routing", label="token routing", kind="compute", activity="memory", color="#5AA9D6",
    ),
    Term(
        key="adapters", label="adapters", kind="compute", activity="memory", color="#2E8CC4",
        useful=True,
    ),
    Term(
        key="dequantize", label="dequantization", kind="compute", activity="memory",
        color="#94C6E6",
    ),
    Term(
        key="memory_bound", label="memory-bound kernels", kind="compute", activity="memory",
        color="#3F97CC",
    ),
    Term(
        key="head", label="LM head and loss", kind="compute", activity="compute", color="#79B6DD",
        useful=True,
    ),
    Term(
        key="recompute", label="recompute", kind="compute", activity="compute", color="#A9D0EA",
        avoidable=True,
    ),
    Term(
        key="host", label="kernel launches", kind="waiting", activity="waiting", color="#979797",
        avoidable=True, grows="kernel launches: kernels too short for the host",
    ),
    Term(
        key="tensor_parallel", label="exposed TP", kind="communication", activity="communication",
        color="#7A3500", group="tensor_parallel", avoidable=True,
    ),
    Term(
        key="context_parallel", label="exposed CP", kind="communication", activity="communication",
        color="#A84A00", group="context_parallel", avoidable=True,
    ),
    Term(
        key="expert_parallel", label="exposed EP", kind="communication", activity="communication",
        color="#C05400", group="expert_parallel", avoidable=True,
        grows="all-to-all over more domains",
    ),
    Term(
        key="offload", label="exposed offload", kind="communication", activity="waiting",
        color="#FBE3CC", avoidable=True, grows="copies of offloaded states and activations",
    ),
    Term(
        key="optimizer", label="optimizer", kind="compute", activity="memory", color="#D3E7F5",
        grows="optimizer states spread over fewer ranks",
    ),
    Term(
        key="overhead", label="framework overhead", kind="waiting", activity="waiting",
        color="#CFCFCF", avoidable=True, grows="framework overhead, amortized over fewer tokens",
    ),
    Term(
        key="dp_all_gather", label="exposed all-gather", kind="communication",
        activity="communication", color="#D55E00", group="data_parallel", avoidable=True,
    ),
    # Compute that communication holds up: units wait while links and memory work.
    Term(
        key="contention", label="contention", kind="communication", activity="communication",
        color="#F1A76D", avoidable=True,
    ),
    Term(
        key="dp_grad_reduce", label="exposed reduce-scatter", kind="communication",
        activity="communication", color="#E8853C", group="data_parallel", avoidable=True,
    ),
    Term(
        key="pp_p2p", label="exposed P2P", kind="communication", activity="communication",
        color="#F7C79F", group="pipeline", avoidable=True,
    ),
    Term(
        key="bubble", label="pipeline bubble", kind="waiting", activity="waiting", color="#5E5E5E",
        avoidable=True,
    ),
    # Ranks that wait inside a collective spin: memory and links stay clocked.
    Term(
        key="straggler", label="stragglers", kind="waiting", activity="communication",
        color="#B5B5B5", grows="stragglers: waiting for the slowest domain",
    ),
)  # fmt: skip

TERMS: dict[str, Term] = {term.key: term for term in _TERMS}
"""All terms by key, in order."""

GROUPS: dict[str, str] = {
    "tensor_parallel": "tensor parallel",
    "context_parallel": "context parallel",
    "expert_parallel": "expert parallel",
    "data_parallel": "data parallel",
    "pipeline": "pipeline P2P",
}
"""Communication groups by key, with labels."""

EXPOSED: dict[str, tuple[str, ...]] = {
    group: tuple(term.key for term in _TERMS if term.group == group) for group in GROUPS
}
"""Terms that are the exposed communication of a group."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPart:
    """Properties of one part of peak memory, besides its bytes."""

    key: str
    """Name in `MemoryParts`, JSON and tables of data."""
    label: str
    """Name in tables, figures and sentences."""
    color: str
    """In every figure."""


_MEMORY = (
    MemoryPart(key="parameters", label="parameters", color="#8A8A8A"),
    MemoryPart(key="gradients", label="gradients", color="#C4C4C4"),
    MemoryPart(key="optimizer", label="optimizer", color="#D55E00"),
    MemoryPart(key="all_gather_buffers", label="all-gather buffers", color="#CC79A7"),
    MemoryPart(key="workspace", label="workspace", color="#56B4E9"),
    MemoryPart(key="logits", label="logits", color="#E69F00"),
    MemoryPart(key="activations", label="activations", color="#0072B2"),
    MemoryPart(key="fragmentation", label="fragmentation", color="#009E73"),
)

MEMORY_PARTS: dict[str, MemoryPart] = {part.key: part for part in _MEMORY}
"""All parts by key, in order."""
