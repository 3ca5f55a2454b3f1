"""Parts of a step as a profiler separates them, predicted from the terms.

    parts = seconds_by_part(terms)           # {"gemm": 0.41, "attention": 0.06, "dp": 0.02, ...}
    shares(parts_array, "exposed")           # sum of the parts that a profile calls so

A profiler sees kernels by kind, collectives by process group, and gaps. Waiting for another stage
is a receive that takes long, waiting for a slow rank is a collective that takes long.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scalewise.numeric import Array, Num
from scalewise.terms import EXPOSED

PARTS = (
    "gemm", "attention", "kernels", "tp", "cp", "ep", "dp", "pp", "bubble", "straggler", "idle",
)  # fmt: skip
"""Finest parts of a step; they add up to it."""

PROFILE: dict[str, tuple[str, ...]] = {
    "compute": ("gemm", "attention", "kernels"),
    "exposed": ("tp", "cp", "ep", "dp", "pp", "bubble", "straggler"),
    "idle": ("idle",),
    "gemm": ("gemm",),
    "attention": ("attention",),
    "kernels": ("kernels",),
    "tp": ("tp",),
    "cp": ("cp",),
    "ep": ("ep",),
    "dp": ("dp", "straggler"),
    "pp": ("pp", "bubble"),
    "p2p": ("pp",),
    "sharding": ("dp",),
    "straggler": ("straggler",),
    "waiting": ("bubble", "straggler", "idle"),
}
"""Parts by what a profile calls them. The last four are for traces that tell waiting apart: those
of several ranks, and simulated steps, in which ranks that wait do nothing."""

COARSE = ("compute", "exposed", "idle")
"""What `--profile` takes."""

DETAILED = ("gemm", "attention", "kernels", "tp", "cp", "ep", "dp", "pp", "idle")
"""What a trace of a GPU has."""

PER_NODE = (
    "gemm", "attention", "kernels", "tp", "cp", "ep", "sharding", "straggler", "pp", "idle",
)  # fmt: skip
"""What traces of one rank per node have: the rank that others wait for is among them."""

LABELS = {
    "compute": "compute kernels",
    "exposed": "exposed communication",
    "idle": "idle",
    "gemm": "GEMM",
    "attention": "attention",
    "kernels": "other kernels",
    "tp": "exposed TP",
    "cp": "exposed CP",
    "ep": "exposed EP",
    "dp": "exposed DP, slow ranks",
    "pp": "exposed P2P, bubble",
    "p2p": "exposed P2P",
    "sharding": "exposed DP",
    "straggler": "slow ranks",
    "waiting": "idle, bubble, slow ranks",
}

GROUPS = {
    "tensor_parallel": "tp", "context_parallel": "cp", "expert_parallel": "ep",
    "data_parallel": "dp", "pipeline": "pp",
}  # fmt: skip
"""Part by communication group of `terms`."""

_OF_TERM = {
    "gemm": "gemm", "experts": "gemm", "adapters": "gemm", "head": "gemm",
    "attention": "attention", "memory_bound": "kernels", "routing": "kernels",
    "dequantize": "kernels", "optimizer": "kernels", "bubble": "bubble", "straggler": "straggler",
    **{term: GROUPS[group] for group, terms in EXPOSED.items() for term in terms},
}  # fmt: skip
"""Part of each term. The head is a GEMM with a short loss; offload and what is left is idle."""

SPREAD = ("recompute", "contention")
"""Terms that are spread over the kernels: forward again, and kernels that run slower."""

PLACE = {name: place for place, name in enumerate(PARTS)}

EXPOSED_PLACES = tuple(PLACE[name] for name in PROFILE["exposed"])


def seconds_by_part(terms: Mapping[str, Num]) -> Array:
    """Return the seconds of a step by part, along a last axis that adds up to the step.

    Args:
        terms: Seconds by term.

    >>> seconds_by_part({"gemm": 0.6, "attention": 0.2, "recompute": 0.2}).round(2).tolist()[:3]
    [0.75, 0.25, 0.0]
    """
    first = np.asarray(next(iter(terms.values())), dtype=float)
    found = np.zeros((*first.shape, len(PARTS)))
    for name, seconds in terms.items():
        if name not in SPREAD:
            found[..., PLACE[_OF_TERM.get(name, "idle")]] += seconds
    kernels = [PLACE[name] for name in PROFILE["compute"]]
    total = found[..., kernels].sum(axis=-1, keepdims=True)
    more = sum((np.asarray(terms[name]) for name in SPREAD if name in terms), np.zeros_like(first))
    share = np.divide(found[..., kernels], total, out=np.zeros_like(found[..., kernels]),
                      where=total > 0.0)  # fmt: skip
    found[..., kernels] += more[..., None] * share
    return found


def shares(parts: Array, name: str) -> Array:
    """Return what a profile calls a part, from the finest parts along the last axis."""
    return np.asarray(parts[..., [PLACE[part] for part in PROFILE[name]]].sum(axis=-1))
