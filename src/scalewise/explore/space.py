"""Every strategy there is for a model, a cluster and a batch, as arrays in pieces.

    for piece in pieces(model, cluster, workload, Limits(tp=(1, 2, 4, 8))):
        piece.tp, piece.pp ...                  # a `Strategies` of at most some thousand rows

The space is a product of small axes per mesh (tp x pp x cp); only meshes that multiply to the
accelerators are laid out, and nothing is ever held in memory but one piece. The global batch is
the user's: no strategy changes it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from scalewise.errors import InputError, did_you_mean
from scalewise.numeric import Array, Index
from scalewise.strategies import FIELDS, WORDS, Strategies, encode
from scalewise.strategy import Strategy

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.workload import Workload

Part: TypeAlias = tuple[dict[str, Array], dict[str, Index]]
"""Columns of some rows of one mesh, and their groups."""

PIECE = 16384
"""Rows of a piece: what keeps its temporaries inside the caches."""

LARGEST_MICRO_BATCH = 64
LARGEST_CHUNKS = 12


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the user allows; None means everything that divides."""

    tp: tuple[int, ...] | None = None
    """Tensor-parallel degrees."""
    pp: tuple[int, ...] | None = None
    """Pipeline stages."""
    cp: tuple[int, ...] | None = None
    """Context-parallel degrees."""
    micro_batch: tuple[int, ...] | None = None
    """Sequences per micro step."""
    virtual_stages: tuple[int, ...] | None = None
    """Model chunks per pipeline stage."""
    sharding: tuple[str, ...] | None = None
    """What data parallelism shards: ddp, zero1, zero2, zero3."""
    recompute: tuple[str, ...] | None = None
    """none, selective, full."""
    schedule: tuple[str, ...] | None = None
    """gpipe, 1f1b, interleaved, zbh1, zbv."""
    tp_within_domain: bool = True
    """Keep tensor parallelism inside a scale-up domain: across, it has never paid."""

    def __post_init__(self) -> None:
        for field in ("tp", "pp", "cp", "micro_batch", "virtual_stages"):
            values = getattr(self, field)
            if values is not None and (not values or any(v < 1 for v in values)):
                raise InputError(
                    f"{field} = {values} must be whole numbers of at least 1",
                    hint=f"for example {field} = 1,2,4",
                )
        for field in ("sharding", "recompute", "schedule"):
            for word in getattr(self, field) or ():
                if word not in WORDS[field]:
                    known = [str(w) for w in WORDS[field]]
                    raise InputError(
                        f"{field} = {word!r} is not known", hint=did_you_mean(word, known)
                    )


def divisors(number: int) -> list[int]:
    """All divisors in order."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _allowed(values: Sequence[int], limit: tuple[int, ...] | None) -> list[int]:
    return [value for value in values if limit is None or value in limit]


def meshes(
    model: Model, cluster: Cluster, workload: Workload, limits: Limits
) -> Iterator[tuple[int, int, int]]:
    """(tp, pp, cp) whose product divides the accelerators, in order."""
    count = cluster.accelerators
    widest = cluster.scale_up_domain if limits.tp_within_domain else count
    for tp in _allowed(divisors(model.heads), limits.tp):
        if count % tp or tp > widest:
            continue
        for pp in _allowed(divisors(count // tp), limits.pp):
            if pp > model.layers:
                break
            for cp in _allowed(divisors(count // tp // pp), limits.cp):
                if workload.sequence % (2 * cp) == 0 or cp == 1:
                    yield tp, pp, cp


def _data_parallel_axis(ranks: int, limits: Limits) -> list[tuple[float, float, float, float]]:
    """(sharding, replicas, shards, reshard) for so many data-parallel ranks."""
    allowed = limits.sharding or WORDS["sharding"]
    axis = []
    if "ddp" in allowed or ranks == 1:
        axis.append((0.0, float(ranks), 1.0, 1.0))
    for code, word in ((1.0, "zero1"), (2.0, "zero2")):
        if word in allowed and ranks > 1:
            axis.append((code, 1.0, float(ranks), 1.0))
    if "zero3" in allowed:
        for shard in divisors(ranks)[1:]:
            axis += [(3.0, ranks / shard, float(shard), keep) for keep in (1.0, 0.0)]
    return axis


def _pipeline_axis(model: Model, pp: int, limits: Limits) -> list[tuple[float, float]]:
    """(schedule, virtual stages) for so many stages."""
    allowed = limits.schedule or WORDS["schedule"]
    if pp == 1:
        return [(encode("schedule", "1f1b"), 1.0)]
    axis = [
        (encode("schedule", word), 1.0)
        for word in ("gpipe", "1f1b", "zbh1", "zbv")
        if word in allowed and (limits.virtual_stages is None or 1 in limits.virtual_stages)
    ]
    if "interleaved" in allowed:
        for chunks in _allowed(range(2, LARGEST_CHUNKS + 1), limits.virtual_stages):
            # Equal chunks, or embedding and head in the place of a layer each.
            if 0 in (model.layers % (pp * chunks), (model.layers + 2) % (pp * chunks)):
                axis.append((encode("schedule", "interleaved"), float(chunks)))
    return axis


def _micro_batch_axis(workload: Workload, ranks: int, limits: Limits) -> list[int]:
    """Micro batches that reach the global batch exactly; 1 where none does, to be counted."""
    if workload.global_batch % ranks:
        return [1]
    fitting = [d for d in divisors(workload.global_batch // ranks) if d <= LARGEST_MICRO_BATCH]
    return _allowed(fitting, limits.micro_batch)


def _mesh_columns(
    model: Model, cluster: Cluster, workload: Workload, limits: Limits, mesh: tuple[int, int, int]
) -> Part | None:
    """All strategies of one mesh: the product of its axes laid flat, and who shares what.

    The kernels of a layer depend on the mesh, the micro batch, recompute and how sequences are
    split; data-parallel traffic on the mesh, the sharding and (over how many micro steps) the
    micro batch. So the groups are known from the places along the axes.
    """
    tp, pp, cp = mesh
    ranks = cluster.accelerators // (tp * pp * cp)
    axes = {
        "data": np.array(_data_parallel_axis(ranks, limits)),
        "pipeline": np.array(_pipeline_axis(model, pp, limits)),
        "micro": np.array(_micro_batch_axis(workload, ranks, limits), dtype=float),
        "recompute": np.array(
            [encode("recompute", w) for w in limits.recompute or WORDS["recompute"]]
        ),
        "sequence": np.array([1.0] if tp == 1 else [1.0, 0.0]),
        "context": np.array([0.0] if cp == 1 else [0.0, 1.0]),
    }
    sizes = tuple(len(axis) for axis in axes.values())
    if 0 in sizes:
        return None
    places = dict(zip(axes, np.unravel_index(np.arange(int(np.prod(sizes))), sizes), strict=True))
    data = axes["data"][places["data"]].T
    pipeline = axes["pipeline"][places["pipeline"]].T
    length = len(places["data"])
    inner = ("micro", "recompute", "sequence", "context")
    groups = {
        "layer": _numbered([places[name] for name in inner], [len(axes[name]) for name in inner]),
        "data": _numbered([places["data"], places["micro"]], [sizes[0], sizes[2]]),
    }
    columns = {
        "sharding": data[0],
        "dp_replicate": data[1],
        "dp_shard": data[2],
        "reshard": data[3],
        "tp": np.full(length, float(tp)),
        "pp": np.full(length, float(pp)),
        "cp": np.full(length, float(cp)),
        "schedule": pipeline[0],
        "virtual_stages": pipeline[1],
        "micro_batch": axes["micro"][places["micro"]],
        "recompute": axes["recompute"][places["recompute"]],
        "sequence_parallel": axes["sequence"][places["sequence"]],
        "cp_method": axes["context"][places["context"]],
    }
    return columns, groups


def _numbered(places: list[Index], sizes: list[int]) -> Index:
    """One number for places along several axes."""
    return np.asarray(np.ravel_multi_index(tuple(places), tuple(sizes)))


_DEFAULT = Strategy()
_SEARCHED = (
    "sharding", "dp_replicate", "dp_shard", "reshard", "tp", "pp", "cp", "schedule",
    "virtual_stages", "micro_batch", "recompute", "sequence_parallel", "cp_method",
)  # fmt: skip
_FIXED = {n: encode(n, getattr(_DEFAULT, n)) for n in FIELDS if n not in _SEARCHED}


def pieces(
    model: Model, cluster: Cluster, workload: Workload, limits: Limits, size: int = PIECE
) -> Iterator[Strategies]:
    """Walk through the space in pieces of about `size` rows."""
    waiting: list[Part] = []
    held = 0
    for mesh in meshes(model, cluster, workload, limits):
        laid = _mesh_columns(model, cluster, workload, limits, mesh)
        if laid is None:
            continue
        columns, groups = laid
        for start in range(0, len(columns["tp"]), size):
            cut = slice(start, start + size)
            part = {name: column[cut] for name, column in columns.items()}
            waiting.append((part, {name: group[cut] for name, group in groups.items()}))
            held += len(part["tp"])
            if held >= size:
                yield _joined(waiting)
                waiting, held = [], 0
    if waiting:
        yield _joined(waiting)


def _joined(parts: list[Part]) -> Strategies:
    """Parts behind each other as one piece; groups of different meshes stay apart."""
    length = sum(len(part["tp"]) for part, _ in parts)
    # What is not searched is one number, seen along the rows.
    columns = {name: np.broadcast_to(code, (length,)) for name, code in _FIXED.items()}
    columns |= {name: np.concatenate([part[name] for part, _ in parts]) for name in _SEARCHED}
    groups: dict[str, Index] = {}
    for name in ("layer", "data"):
        offset, numbers = 0, []
        for _, group in parts:
            numbers.append(group[name] + offset)
            offset += int(group[name].max()) + 1
        groups[name] = np.concatenate(numbers)
    return Strategies(columns, groups=groups)
