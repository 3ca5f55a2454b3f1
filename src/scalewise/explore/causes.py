"""Cause of a loss between two sizes: the term that grew most, and what makes it grow.

    cause = find_cause(before, point)   # two neighbors of a curve
    cause.name, cause.driver        # "exposed all-gather (ring latency)", "ring latency"

A term says what the time is spent on. For data-parallel communication the time of one all-gather is
split into latency and transfer as well: more network bandwidth only shortens the second.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalewise.physics.collectives import PROTOCOLS, all_gather_seconds
from scalewise.step.groups import shard_group
from scalewise.step.tuning import layer_gather_bytes
from scalewise.strategy import parse_strategy
from scalewise.terms import TERMS

if TYPE_CHECKING:
    from scalewise.explore.points import Point
    from scalewise.step.estimate import Estimates

TIE = 1e-6
"""Relative difference below which two throughputs count as equal, as hsdp64 and fsdp at 64."""

FEWER = "fewer tokens per all-gather"
"""Why all-gathers cost more per token though they take no longer: micro-batches shrank."""

# Terms that data-parallel collectives cause, exposed or overlapped.
_GATHERED = ("dp_all_gather", "dp_grad_reduce", "contention")


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What costs most of the loss between two sizes."""

    term: str
    """Key of the term of the step."""
    name: str
    """The term in words, with its driver in parentheses."""
    share: float
    """Its fraction of all growth in accelerator-seconds per token, 0 to 1."""
    loss: float
    """Fraction of tokens/s per accelerator lost since the previous size, by all terms together."""
    driver: str = ""
    """What makes it grow, such as ring latency; empty if that is unknown."""

    @property
    def what(self) -> str:
        """The term in words, without its driver."""
        return self.name.removesuffix(f" ({self.driver})")


def find_cause(before: Point, point: Point) -> Cause | None:
    """Return the term that grew most in GPU-seconds per token.

    Per token and GPU, because this stays constant under perfect weak or strong scaling. Terms that
    shrank are not subtracted: fractions of the grown terms add up to 1.

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
    # GPUs over tokens per step; the step's own seconds cancel.
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
    what, driver = _words(term, before, point)
    name = f"{what} ({driver})" if driver else what
    return Cause(term=term, name=name, share=growth[term] / whole, loss=loss, driver=driver)


def gather_parts(many: Estimates, row: int) -> tuple[float, float] | None:
    """Return the time of one layer's all-gather, and its latency, seconds.

    The rest is the latency of the ring, and what its protocol gives up of the bandwidth to make
    that shorter: NCCL's LL has a fifth of the latency of Simple, at half of the rate.

    Args:
        many: Estimates.
        row: Which of them.

    Returns:
        Seconds of the all-gather, and those of them owed to latency; None where no ring
        all-gathers parameters.
    """
    case, strategy = many.case, many.strategies[row]
    if strategy.sharding != "zero3" or strategy.dp_shard * strategy.cp == 1:
        return None
    if many.cluster.algorithm in ("pat", "hierarchical"):
        return None
    wires, group = case.links, shard_group(case.split)
    params = case.layer_params / case.split.tp
    bytes_ = layer_gather_bytes(case, params) if case.has_frozen else 2.0 * params
    sizes = np.multiply.outer([1.0, 0.0], bytes_)
    simple = replace(wires, protocol=float(PROTOCOLS.index("simple")))
    used = np.asarray(all_gather_seconds(sizes, group, wires))
    full_rate = np.asarray(all_gather_seconds(sizes, group, simple))
    seconds = float(np.broadcast_to(used[0], (len(many),))[row])
    moving = float(np.broadcast_to(full_rate[0] - full_rate[1], (len(many),))[row])
    return seconds, max(seconds - moving, 0.0)


def _words(term: str, before: Point, point: Point) -> tuple[str, str]:
    """Return what grew, and what makes it grow if that is known."""
    known = TERMS[term].grows or TERMS[term].label
    if term not in _GATHERED:
        return known, ""
    driver = _driver(before, point)
    if term == "dp_grad_reduce":
        known = _reduction(point.strategy)
    elif term == "contention" and driver:
        known = "contention with all-gathers"
    elif term == "contention" and parse_strategy(point.strategy).dp_replicate > 1:
        known = "contention with the all-reduce between replicas"
    return known, driver


def _driver(before: Point, point: Point) -> str:
    """Return what makes all-gathers cost more per token: latency, bandwidth, or fewer tokens each.

    Tokens of a micro-batch share one all-gather of each layer; a smaller micro-batch has fewer.
    """
    if point.all_gather_seconds is None or point.all_gather_latency is None:
        return ""
    old, old_latency = before.all_gather_seconds or 0.0, before.all_gather_latency or 0.0
    sharing = _tokens_per_gather(point)
    grown = {
        "ring latency": (point.all_gather_latency - old_latency) / sharing,
        "network bandwidth": (
            point.all_gather_seconds - point.all_gather_latency - old + old_latency
        )
        / sharing,
        FEWER: old / sharing - old / _tokens_per_gather(before),
    }
    maximum = max(grown, key=grown.__getitem__)
    # Rounding of equal all-gathers is no growth.
    return maximum if grown[maximum] * sharing > TIE * point.all_gather_seconds else ""


def _tokens_per_gather(point: Point) -> float:
    """Return the tokens of one accelerator in one micro-batch."""
    tokens = point.tokens_per_second_per_accelerator * point.step_seconds
    return tokens / point.num_microbatches


def _reduction(spelling: str) -> str:
    """Return the collectives that reduce the gradients of a strategy."""
    strategy = parse_strategy(spelling)
    if strategy.sharding == "ddp":
        return "exposed gradient all-reduce"
    if strategy.dp_replicate > 1:
        return "exposed reduce-scatter and all-reduce between replicas"
    if strategy.sharding == "zero1":
        return "exposed reduce-scatter and all-gather"
    return "exposed reduce-scatter"
