"""Changes that make an infeasible strategy fit.

    fixes(e, best)       # ("1.31 x the HBM capacity (105 GiB) ...", "fsdp8-mb1-acfull ...")

Memory first, then small changes of the strategy, then the best strategy on the same cluster. Each
is estimated with the same model, cluster, batch and software.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from scalewise.errors import InputError
from scalewise.offload import joined, offloads_of
from scalewise.recompute import recompute_words
from scalewise.step.estimate import CHOSEN_FIT, estimate
from scalewise.units import format_bytes

if TYPE_CHECKING:
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy


def fixes(e: Estimate, best: Estimate | None) -> tuple[str, ...]:
    """Return changes that make a strategy fit.

    Args:
        e: The estimate of a strategy that cannot run.
        best: The best strategy on the same cluster; None if nothing fits there.

    Returns:
        One sentence each, the smallest change first; at least one.
    """
    lines = []
    if e.infeasible is not None and e.infeasible.startswith("memory"):
        lines.append(
            f"{e.memory_low / e.memory_capacity:.2f} x the HBM capacity "
            f"({format_bytes(e.memory_low)}) may hold {e.strategy}; as predicted it needs "
            f"{format_bytes(e.memory_bytes)}"
        )
        for strategy, words in _changes(e.strategy):
            other = _tried(e, strategy)
            if other is not None:
                lines.append(f"{other.strategy} ({words}) fits: {_numbers(other)}")
    if best is None:
        lines.append("no strategy at all fits on this cluster with this batch")
    else:
        lines.append(f"{best.strategy} is the fastest that fits: {_numbers(best)}")
    return tuple(lines)


def _changes(s: Strategy) -> Iterator[tuple[Strategy, str]]:
    """Yield changes that save memory, each with its description."""
    if s.recompute == "none":
        yield s.with_(recompute="selective"), "selective recompute"
    for kind in ("1of4", "1of2", "full") if s.recompute in ("none", "selective") else ("full",):
        if s.recompute != kind:
            yield s.with_(recompute=kind), recompute_words(kind)
    if s.micro_batch > 1 and s.micro_batch % 2 == 0:
        yield s.with_(micro_batch=s.micro_batch // 2), "half the micro-batch"
    if s.recompute != "full" and s.micro_batch > 1:
        yield s.with_(recompute="full", micro_batch=1), "full recompute, micro-batch 1"
    away = offloads_of(s.offload)
    if "opt" not in away:
        yield s.with_(offload=joined(["opt", *away])), "optimizer state in host memory"
    if "param" not in away and s.sharding == "zero3":
        all_states = joined(["opt", "param", *away])
        yield s.with_(offload=all_states), "parameters and optimizer state in host memory"
    if "act" not in away:
        yield s.with_(offload=joined([*away, "act"])), "activations in host memory"
    if s.sharding != "zero3" and s.data_parallel > 1:
        sharded = s.with_(sharding="zero3", dp_replicate=1, dp_shard=s.data_parallel)
        yield sharded, "parameters sharded too"
    elif s.dp_replicate > 1:
        yield s.with_(dp_replicate=1, dp_shard=s.data_parallel), "sharded over all ranks"


def _tried(e: Estimate, strategy: Strategy) -> Estimate | None:
    """Return the estimate of another strategy, or None if it cannot run."""
    try:
        other = estimate(e.model, e.cluster, e.workload, strategy, stack=e.stack, fit=CHOSEN_FIT)
    except InputError:
        return None
    return other if other.feasible else None


def _numbers(e: Estimate) -> str:
    return (
        f"{e.tokens_per_second_per_accelerator:,.0f} tokens/s per accelerator, "
        f"{format_bytes(e.memory_bytes)}"
    )
