"""The number of ranks, and the machine that a program believes to be on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from scalewise.ask.resolve import inputs
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.ask.question import Question

MAX_RANKS = 65_536
"""Largest pretended world: meshes and groups have tables of all ranks."""


def world_of(question: Question) -> tuple[int, int, float]:
    """Return ranks, ranks per node, and bytes of memory of each.

    Args:
        question: Names the cluster and its size.

    Raises:
        InputError: If there are more ranks than a capture can hold.
    """
    cluster = inputs(msgspec.structs.replace(question, batch=None)).cluster
    ranks = cluster.accelerators
    if ranks > MAX_RANKS:
        raise InputError(
            f"--gpus {ranks:,}: a capture holds at most {MAX_RANKS:,} ranks",
            hint=f"--gpus {MAX_RANKS}",
            field="gpus",
        )
    return ranks, min(cluster.scale_up_domain, ranks), cluster.accelerator.memory_bytes
