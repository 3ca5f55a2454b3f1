"""What does growing lose its returns to? The term that grew most, and what makes it grow.

    cause = find_cause(before, point)           # two neighbours of a curve
    cause.name                                  # "ring latency of the exposed parameter gather"

A term says what the time is spent on; for data-parallel traffic the time of one gather is split
into latency and transfer as well, because more network bandwidth only helps against the second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalewise.physics.collectives import PROTOCOLS, gather_seconds
from scalewise.step.groups import links, shard_group
from scalewise.step.terms import TERM_NAMES
from scalewise.strategy import parse_strategy

if TYPE_CHECKING:
    from scalewise.explore.points import Point
    from scalewise.step.estimate import Estimates

TIE = 1e-6
"""Relative difference below which two throughputs count as equal, as hsdp64 and fsdp at 64 do."""

# What it means that a term grows per token and accelerator, where its bare name does not say it.
_GROWN = {
    "gemm": "matrix products that are smaller or split further",
    "attention": "attention that is smaller or split further",
    "host": "kernel launches: kernels too small for the host",
    "overhead": "step overhead, shared by fewer tokens",
    "optimizer": "optimizer, which less sharding spreads over fewer ranks",
    "straggler": "stragglers: waiting for the slowest domain",
}

FEWER = "each for fewer tokens"
"""Why gathers weigh more though they take no longer: micro batches have shrunk."""

# Terms that data-parallel collectives cause, exposed or beside compute.
_GATHERED = ("data_parallel_gather", "data_parallel_reduce", "contention")


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What most of the loss between two sizes is spent on."""

    term: str
    """Key of the term of the step."""
    name: str
    """The term in words, with what makes it grow."""
    share: float
    """Its part of all growth in accelerator-seconds per token, 0 to 1."""
    loss: float
    """Share of tokens/s per accelerator lost since the previous size, by all terms together."""


def find_cause(before: Point, point: Point) -> Cause | None:
    """Name the term that grew most in accelerator-seconds per token.

    Per token and accelerator, because that is what stays the same when scaling is perfect, be it
    weak or strong. Terms that shrank do not count against the ones that grew: parts add up to 1.

    Args:
        before: The smaller size.
        point: The larger one.

    Returns:
        The cause, or None if nothing was lost.
    """
    loss = 1.0 - (
        point.tokens_per_second_per_accelerator / before.tokens_per_second_per_accelerator
    )
    if loss <= TIE:
        return None
    # Accelerators over tokens per step; the step's own seconds cancel.
    old = 1.0 / (before.tokens_per_second_per_accelerator * before.step_seconds)
    new = 1.0 / (point.tokens_per_second_per_accelerator * point.step_seconds)
    growth = {
        name: max(seconds * new - before.terms.get(name, 0.0) * old, 0.0)
        for name, seconds in point.terms.items()
    }
    whole = sum(growth.values())
    if not whole:
        return None
    term = max(growth, key=growth.__getitem__)
    return Cause(term=term, name=_words(term, before, point), share=growth[term] / whole, loss=loss)


def gather_parts(many: Estimates, row: int) -> tuple[float, float] | None:
    """Split the gather of one layer's parameters into moving its bytes and the rest.

    The rest is the latency of the ring, and what its protocol gives up of the bandwidth to make
    that shorter: NCCL's LL has a fifth of the latency of Simple, at half of the rate.

    Args:
        many: Estimates.
        row: Which of them.

    Returns:
        Seconds of the gather, and what of them is owed to latency; None where nothing is
        gathered by a ring.
    """
    case, strategy = many.case, many.strategies[row]
    if strategy.sharding != "zero3" or strategy.dp_shard * strategy.cp == 1:
        return None
    if many.cluster.algorithm in ("pat", "hierarchical"):
        return None
    wires, group = links(case), shard_group(case)
    sizes = np.multiply.outer([1.0, 0.0], 2.0 * case.layer_params / case.tp)
    simple = replace(wires, protocol=float(PROTOCOLS.index("simple")))
    used = np.asarray(gather_seconds(sizes, group, wires))
    full_rate = np.asarray(gather_seconds(sizes, group, simple))
    seconds = float(np.broadcast_to(used[0], (len(many),))[row])
    moving = float(np.broadcast_to(full_rate[0] - full_rate[1], (len(many),))[row])
    return seconds, max(seconds - moving, 0.0)


def _words(term: str, before: Point, point: Point) -> str:
    """Say what grew, and why if that is known."""
    known = _GROWN.get(term, TERM_NAMES.get(term, term))
    if term not in _GATHERED:
        return known
    driver = _driver(before, point)
    if term == "contention":
        if driver is None:
            replicated = parse_strategy(point.strategy).dp_replicate > 1
            return "contention with the all-reduce between replicas" if replicated else known
        known = "contention with parameter gathers"
        return f"{known}, {driver if driver == FEWER else 'slowed by ' + driver}"
    if term == "data_parallel_reduce":
        known = _reduction(point.strategy)
    if driver is None:
        return known
    return f"{known}, {driver}" if driver == FEWER else f"{driver} of the {known}"


def _driver(before: Point, point: Point) -> str | None:
    """What makes gathers cost more per token: their latency, their transfer, or fewer tokens each.

    Tokens of a micro step share one gather of each layer; a smaller micro batch has fewer.
    """
    if point.gather_seconds is None or point.gather_latency is None:
        return None
    old, old_latency = before.gather_seconds or 0.0, before.gather_latency or 0.0
    sharing = _tokens_per_gather(point)
    grown = {
        "ring latency": (point.gather_latency - old_latency) / sharing,
        "network bandwidth": (point.gather_seconds - point.gather_latency - old + old_latency)
        / sharing,
        FEWER: old / sharing - old / _tokens_per_gather(before),
    }
    most = max(grown, key=grown.__getitem__)
    # Rounding of equal gathers is no growth.
    return most if grown[most] * sharing > TIE * point.gather_seconds else None


def _tokens_per_gather(point: Point) -> float:
    """Tokens of one accelerator in one micro step."""
    tokens = point.tokens_per_second_per_accelerator * point.step_seconds
    return tokens / point.micro_steps


def _reduction(spelling: str) -> str:
    """What reduces the gradients of a strategy."""
    strategy = parse_strategy(spelling)
    if strategy.sharding == "ddp":
        return "exposed gradient all-reduce"
    if strategy.dp_replicate > 1:
        return "exposed reduce-scatter and all-reduce between replicas"
    if strategy.sharding == "zero1":
        return "exposed reduce-scatter and parameter gather"
    return "exposed reduce-scatter"
