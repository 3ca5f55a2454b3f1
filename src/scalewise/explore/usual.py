"""The best of the usual strategies: a few thousand well-formed ones, estimated in one call.

    choice = usual(model, cluster, workload)
    choice.estimate, choice.evaluated          # fits with the demanded chance, or comes nearest

Whoever names no strategy gets this one: the command line, the web UI, studies and Python. It cannot
be `explore.search`, because a page that answers while a slider moves has milliseconds. What people
run is a small part of the space: degrees that are powers of two, shards over all ranks or over
groups of whole domains. A test holds what is lost against the complete search. Choices are kept:
every view of the web UI asks for the same one, and a token budget does not change it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.chip import load_chip
from scalewise.errors import InputError
from scalewise.explore.objectives import effort, objective
from scalewise.explore.space import divisors, equal_chunks
from scalewise.lengths import is_lengths_file
from scalewise.numeric import keep_freed_memory
from scalewise.optimizer import load_optimizer
from scalewise.ranges import tie_width
from scalewise.software import Software, choose_stack
from scalewise.step.estimate import CHOSEN_FIT, Estimates, estimate
from scalewise.step.feasibility import OUT_OF_MEMORY
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
LONG_SEQ_LEN = 16384
"""Tokens from which context parallelism is tried in every degree, not only in 2 and 4."""
MAX_STAGES, MAX_GROUPS = 16, 8
"""Pipeline degrees and sharding groups tried of one size: sizes with many divisors have more."""
MAX_TIES = 24
"""Ties among which the simplest is looked for."""
MAX_KEPT = 1024
"""Choices that are kept, the latest ones; each takes about a kB."""

_DEFAULT = Strategy()


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The strategy that was chosen."""

    strategy: Strategy
    """The best one; where nothing fits, the one that needs least memory."""
    software: Software
    """What runs it."""
    feasible: bool
    """Whether it can run."""
    evaluated: int
    """Strategies that were estimated."""
    asked: dict[str, Any]
    """Arguments of its estimate."""

    @cached_property
    def estimate(self) -> Estimate:
        """Its estimate."""
        found: Estimate = estimate(strategy=self.strategy, **self.asked)
        return found


def usual(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    stack: Stack | str | None = None,
    *,
    by: str = "time",
    convention: Convention = "causal",
    fit: float = CHOSEN_FIT,
) -> Choice:
    """Return the best of the usual strategies.

    Args:
        model: What is trained.
        cluster: On what.
        workload: Sequence and batch, which are not changed.
        stack: Software; where none is named, every strategy is estimated with its usual one.
        by: Objective, as in `search`.
        convention: How FLOPs are counted.
        fit: Chance to fit into memory that is demanded.

    Raises:
        InputError: If no strategy at all suits the size and the batch.
    """
    asked: dict[str, Any] = {
        "model": model, "cluster": cluster, "workload": workload, "stack": stack,
        "convention": convention, "fit": fit,
    }  # fmt: skip
    software = [
        choose_stack(stack, cluster, fully_sharded=sharded, frozen=workload.tuned.frozen)
        for sharded in (False, True)
    ]
    # Nothing that is minimized depends on the length of the run.
    step = msgspec.structs.replace(workload, tokens=None, goodput=None, critical_batch=None)
    depends = msgspec.msgpack.encode(
        (model, cluster, step, load_optimizer(workload.optimizer),
         load_chip(cluster.accelerator.architecture), [each.stack for each in software],
         by, convention, fit, tie_width())
    )  # fmt: skip
    # All of it takes 8 kB.
    key = blake2b(depends, digest_size=16).digest()
    found = _kept.get(key)
    if found is None:
        found = _choose(asked | {"workload": step}, software, by)
        if workload.lengths is None or not is_lengths_file(workload.lengths):
            _kept[key] = found
            if len(_kept) > MAX_KEPT:
                _kept.pop(next(iter(_kept)), None)
    family, strategy, feasible, evaluated = found
    return Choice(
        strategy=strategy, software=software[family], feasible=feasible, evaluated=evaluated,
        asked=asked,
    )  # fmt: skip


_kept: dict[bytes, tuple[int, Strategy, bool, int]] = {}
"""Family of software, strategy, whether it can run, and how many were estimated."""


def _choose(
    asked: dict[str, Any], software: list[Software], by: str
) -> tuple[int, Strategy, bool, int]:
    """Estimate the usual strategies and take the best; the answer is as in `_kept`."""
    model, cluster, workload = asked["model"], asked["cluster"], asked["workload"]
    keep_freed_memory()
    tried: list[tuple[int, Strategies, Estimates]] = []
    for family, each in enumerate(software):
        space = _space(
            model.layers,
            model.heads,
            model.moe.experts if model.moe else 1,
            cluster.accelerators,
            cluster.scale_up_domain,
            workload.global_batch,
            workload.seq_len,
            chunks="interleaved" in each.stack.schedules,
            pipelines="1f1b" in each.stack.schedules,
            sharded=bool(family),
        )
        if space is not None:
            many = estimate(strategy=space, **asked | {"stack": each.stack})
            tried.append((family, space, many))
    if not tried:
        raise InputError(
            f"no strategy suits {cluster.accelerators:,} GPUs and a batch of "
            f"{workload.global_batch:,} sequences",
            hint="choose a batch that more data-parallel ranks divide, or fewer GPUs",
            field="batch",
        )
    place, row = _best(tried, by)
    family, space, _ = tried[place]
    codes = [_flat(many.infeasible_code, space) for _, space, many in tried]
    evaluated = sum(int(np.count_nonzero((c == 0.0) | (c == OUT_OF_MEMORY))) for c in codes)
    return family, space[row], bool(codes[place][row] == 0.0), evaluated


def _flat(column: Array, space: Strategies) -> Array:
    return np.broadcast_to(column, space.shape).ravel()


def _best(tried: list[tuple[int, Strategies, Estimates]], by: str) -> tuple[int, int]:
    """Place of the family and of the row that is best, the simplest of ties."""
    sizes = np.cumsum([0, *(len(space) for _, space, _ in tried)])
    codes = np.concatenate([_flat(many.infeasible_code, space) for _, space, many in tried])
    values = np.concatenate([_flat(objective(many, by), space) for _, space, many in tried])
    values = np.where(codes == 0.0, values, np.inf)

    def found(row: int) -> tuple[int, int]:
        place = int(np.searchsorted(sizes, row, side="right")) - 1
        return place, row - int(sizes[place])

    minimum = float(values.min())
    if np.isfinite(minimum):
        near = np.flatnonzero(values <= (1.0 + tie_width()) * minimum)
        near = near[np.argsort(values[near], kind="stable")][:MAX_TIES]
        rows = [found(int(row)) for row in near]
        return min(rows, key=lambda each: effort(tried[each[0]][1][each[1]]))
    memory = np.concatenate([_flat(many.memory_bytes, space) for _, space, many in tried])
    full = codes == OUT_OF_MEMORY
    needs = np.where(full if full.any() else codes >= 0.0, memory, np.inf)
    return found(int(np.argmin(needs)))


@lru_cache(maxsize=256)
def _space(
    layers: int,
    heads: int,
    experts: int,
    count: int,
    domain: int,
    batch: int,
    seq_len: int,
    *,
    chunks: bool,
    pipelines: bool,
    sharded: bool,
) -> Strategies | None:
    """Lay out what is tried: layouts, times what is recomputed, times micro-batches.

    Columns have length 1 along what they do not depend on, as in `explore.space`: GEMMs, which cost
    most, are then not priced again for every kind of recompute. A micro-batch that does not reach
    the batch is left to be refused.
    """
    rows: list[tuple[float, ...]] = []
    contexts = [1, 2, 4] if seq_len < LONG_SEQ_LEN else [1, 2, 4, 8, 16]
    for tp in (1, 2, 4, 8, 16):
        if tp > domain or heads % tp or count % tp:
            continue
        for cp in contexts:
            # Short sequences are split only where pipelines have run out of batch.
            most = 1 if cp > 1 and seq_len < LONG_SEQ_LEN else None
            stages = [d for d in divisors(count // tp) if d <= min(layers, 64)]
            for pp in stages[:MAX_STAGES] if pipelines else [1]:
                inner = tp * cp * pp
                ranks = count // inner
                if count % inner or batch % ranks or (cp > 1 and seq_len % (2 * cp)):
                    continue
                rows += [
                    (tp, cp, pp, *pipeline, *data, ep)
                    for pipeline in _pipelines(layers, pp, chunks=chunks, experts=experts > 1)
                    for data in _data(ranks, inner, domain, pp)[:most]
                    if (data[0] == 3.0) is sharded
                    for ep in _experts(experts, count // pp, domain)
                ]
    if not rows:
        return None
    names = (
        "tp", "cp", "pp", "schedule", "virtual_stages", "sharding", "dp_replicate", "dp_shard",
        "reshard_after_forward", "ep",
    )  # fmt: skip
    columns: dict[str, Array] = {
        name: np.full((1, 1, 1), encode(name, getattr(_DEFAULT, name))) for name in FIELDS
    }
    laid: Array = np.array(rows, dtype=float).T
    columns |= {name: laid[place][:, None, None] for place, name in enumerate(names)}
    columns["recompute"] = np.array([0.0, 1.0, 2.0]).reshape(1, 3, 1)
    columns["micro_batch"] = np.array(MICRO_BATCHES, dtype=float).reshape(1, 1, -1)
    return Strategies(columns)


def _experts(experts: int, stage: int, domain: int) -> list[int]:
    """Expert-parallel degrees of a stage of so many ranks: none, all, a domain or several nodes."""
    wanted = {1, domain, experts, min(stage, 8), *(2**power for power in range(4, 9))}
    return [ep for ep in sorted(wanted) if experts % ep == 0 and stage % ep == 0]


def _pipelines(layers: int, pp: int, *, chunks: bool, experts: bool) -> list[tuple[float, float]]:
    """Schedules of a pipeline: plain, and interleaved with the fewest and most chunks."""
    plain = encode("schedule", "1f1b")
    if pp == 1:
        return [(plain, 1.0)]
    fitting = [v for v in range(2, 13) if equal_chunks(layers, pp * v, experts=experts)]
    if not chunks or not fitting:
        return [(plain, 1.0)]
    inter = encode("schedule", "interleaved")
    picked = sorted({fitting[0], fitting[len(fitting) // 2], fitting[-1]})
    return [(plain, 1.0), *((inter, float(v)) for v in picked)]


def _data(ranks: int, inner: int, domain: int, pp: int) -> list[tuple[float, float, float, float]]:
    """(sharding, replicas, shards, reshard after forward) of so many data-parallel ranks."""
    if ranks == 1:
        return [(0.0, 1.0, 1.0, 1.0)]
    found = [(1.0, 1.0, float(ranks), 1.0)]
    groups = {ranks}
    group = max(domain // inner, 2)
    while group < ranks and len(groups) < MAX_GROUPS:
        if ranks % group == 0:
            groups.add(group)
        group *= 2
    for shard in sorted(groups):
        # All-gathers repeat for every micro-batch of a pipeline: keeping parameters is the rule.
        for keep in (1.0, 0.0) if pp == 1 else (0.0,):
            found.append((3.0, ranks / shard, float(shard), keep))
    return found
