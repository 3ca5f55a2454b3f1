"""Which strategy is good here, at once? A few thousand well-formed ones, priced in one call.

    good = solve(model, cluster, workload, stack)
    good.estimate, good.tried           # an Estimate that fits, or the nearest that does not

A page that answers while a slider moves cannot try every strategy (`explore.search` does, and the
page's search view shows it). What people run is a small part of the space: degrees that are powers
of two, shards over all ranks or over groups of whole domains. It is laid out as columns and goes
through the same lines as everything else, so what is found is a full estimate; a test holds what
is lost against the complete search.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.errors import InputError
from scalewise.explore.search import effort, objective
from scalewise.explore.space import divisors
from scalewise.step.estimate import NEAR_TIE, estimate
from scalewise.step.feasibility import REASONS, feasibility
from scalewise.strategies import FIELDS, Strategies, encode
from scalewise.strategy import Strategy

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Convention, Model
    from scalewise.numeric import Array
    from scalewise.stack import Stack
    from scalewise.step.result import Estimate
    from scalewise.workload import Workload

MICRO_BATCHES = (1, 2, 4, 8)
LONG_SEQUENCE = 16384
"""Tokens from which context parallelism is tried in every degree, not only in pairs."""
MOST_STAGES, MOST_GROUPS = 16, 8
"""Pipeline degrees and sharding groups tried of one size: sizes with many divisors have more."""
MOST_TIES = 24
"""Near-ties among which the simplest is looked for."""


_DEFAULT = Strategy()


@dataclass(frozen=True, kw_only=True)
class Solved:
    """The strategy that was chosen."""

    estimate: Estimate
    """Of the chosen strategy; where nothing fits, of the one that needs least memory."""
    tried: int
    """Strategies that were priced."""


def solve(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    stack: Stack,
    *,
    by: str = "time",
    convention: Convention = "causal",
) -> Solved:
    """Choose a good strategy.

    Args:
        model: What is trained.
        cluster: On what.
        workload: Sequence and batch, which are not changed.
        stack: Software.
        by: What to make small, as in `search`.
        convention: How FLOPs are counted.

    Raises:
        InputError: If no strategy at all suits the size and the batch.
    """
    space = _space(
        model.layers,
        model.heads,
        cluster.accelerators,
        cluster.scale_up_domain,
        workload.global_batch,
        workload.sequence,
        chunks="interleaved" in stack.schedules,
    )
    if space is None:
        raise InputError(
            f"no strategy suits {cluster.accelerators:,} accelerators and a batch of "
            f"{workload.global_batch:,} sequences",
            hint="choose a batch that more data-parallel ranks divide, or fewer accelerators",
        )
    kind: dict[str, Any] = {"stack": stack, "convention": convention}
    many = estimate(model, cluster, workload, space, **kind)

    def flat(column: Array) -> Array:
        return np.broadcast_to(column, space.shape).ravel()

    memory = flat(many.memory_bytes)
    codes = flat(feasibility(many.case, many.memory_bytes))
    values = np.where(codes == 0.0, flat(objective(many, by)), np.inf)
    least = float(values.min())
    if np.isfinite(least):
        near = np.flatnonzero(values <= (1.0 + NEAR_TIE) * least)
        near = near[np.argsort(values[near], kind="stable")][:MOST_TIES]
        chosen = min((space[int(row)] for row in near), key=effort)
    else:
        full = codes == float(len(REASONS) - 1)
        needs = np.where(full if full.any() else codes >= 0.0, memory, np.inf)
        chosen = space[int(np.argmin(needs))]
    return Solved(
        estimate=estimate(model, cluster, workload, chosen, **kind),
        tried=int(np.count_nonzero((codes == 0.0) | (codes == float(len(REASONS) - 1)))),
    )


@lru_cache(maxsize=256)
def _space(
    layers: int,
    heads: int,
    count: int,
    domain: int,
    batch: int,
    sequence: int,
    *,
    chunks: bool,
) -> Strategies | None:
    """Lay out what is tried: layouts, times what is recomputed, times micro batches.

    Columns have length 1 along what they do not depend on, as in `explore.space`: the products of
    matrices, which cost most, are then not priced again for every kind of recompute. A micro batch
    that does not reach the batch is left to be refused.
    """
    rows: list[tuple[float, ...]] = []
    contexts = [1, 2] if sequence < LONG_SEQUENCE else [1, 2, 4, 8, 16]
    for tp in (1, 2, 4, 8, 16):
        if tp > domain or heads % tp or count % tp:
            continue
        for cp in contexts:
            # Short sequences are split only where pipelines have run out of batch.
            most = 1 if cp > 1 and sequence < LONG_SEQUENCE else None
            for pp in [d for d in divisors(count // tp) if d <= min(layers, 64)][:MOST_STAGES]:
                inner = tp * cp * pp
                ranks = count // inner
                if count % inner or batch % ranks or (cp > 1 and sequence % (2 * cp)):
                    continue
                rows += [
                    (tp, cp, pp, *pipeline, *data)
                    for pipeline in _pipelines(layers, pp, chunks=chunks)
                    for data in _data(ranks, inner, domain, pp)[:most]
                ]
    if not rows:
        return None
    names = (
        "tp", "cp", "pp", "schedule", "virtual_stages", "sharding", "dp_replicate", "dp_shard",
        "reshard",
    )  # fmt: skip
    columns: dict[str, Array] = {
        name: np.full((1, 1, 1), encode(name, getattr(_DEFAULT, name))) for name in FIELDS
    }
    laid: Array = np.array(rows, dtype=float).T
    columns |= {name: laid[place][:, None, None] for place, name in enumerate(names)}
    columns["recompute"] = np.array([0.0, 1.0, 2.0]).reshape(1, 3, 1)
    columns["micro_batch"] = np.array(MICRO_BATCHES, dtype=float).reshape(1, 1, -1)
    return Strategies(columns)


def _pipelines(layers: int, pp: int, *, chunks: bool) -> list[tuple[float, float]]:
    """Schedules of a pipeline: plain, and interleaved with the fewest and most chunks."""
    plain = encode("schedule", "1f1b")
    if pp == 1:
        return [(plain, 1.0)]
    fitting = [v for v in range(2, 13) if layers % (pp * v) == 0 or (layers + 2) % (pp * v) == 0]
    if not chunks or not fitting:
        return [(plain, 1.0)]
    inter = encode("schedule", "interleaved")
    picked = sorted({fitting[0], fitting[len(fitting) // 2], fitting[-1]})
    return [(plain, 1.0), *((inter, float(v)) for v in picked)]


def _data(ranks: int, inner: int, domain: int, pp: int) -> list[tuple[float, float, float, float]]:
    """(sharding, replicas, shards, reshard) of so many data-parallel ranks."""
    if ranks == 1:
        return [(0.0, 1.0, 1.0, 1.0)]
    found = [(1.0, 1.0, float(ranks), 1.0)]
    groups = {ranks}
    group = max(domain // inner, 2)
    while group < ranks and len(groups) < MOST_GROUPS:
        if ranks % group == 0:
            groups.add(group)
        group *= 2
    for shard in sorted(groups):
        # Gathers are repeated for every micro batch of a pipeline: keeping parameters is the rule.
        for keep in (1.0, 0.0) if pp == 1 else (0.0,):
            found.append((3.0, ranks / shard, float(shard), keep))
    return found
