"""All strategies for a model, a cluster and a batch, as products of small axes.

    for piece in pieces(model, cluster, workload, Limits(tp=(1, 2, 4, 8))):
        piece.shape, piece.tp, piece.schedule ...      # a `Strategies` whose columns broadcast

Strategies with equal pipeline stages and data-parallel ranks form a product of five axes: pipeline,
data parallelism, recompute, micro-batch size, and the split of a layer and its experts. A column
has length 1 along axes that it does not depend on. Everything derived from it is computed once per
value, and the product is never materialized. The global batch is fixed.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import msgspec
import numpy as np

from scalewise.errors import InputError, did_you_mean
from scalewise.explore.variants import check_words, with_variants
from scalewise.numeric import Array
from scalewise.offload import check_offload, offloads_of
from scalewise.strategies import FIELDS, WORDS, Strategies, encode
from scalewise.strategy import Strategy

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.workload import Workload

Axis: TypeAlias = list[dict[str, float]]
"""Values along one axis: the fields that each of them sets."""

AXES = ("pipeline", "data", "recompute", "micro", "layer")
"""In the order of the columns' axes: axes with few dependents first, so that NumPy's long inner
loops run over those with many."""

PIECE = 131072
"""Maximum number of rows of a piece: a column of 1 MiB stays in cache, and Python's cost per piece
(about 3 ms) is shared by many rows."""

SMALL = 3
"""Products of less than this part of a piece cost more in Python than in NumPy."""

LARGEST_MICRO_BATCH = 64
LARGEST_CHUNKS = 12


RECOMPUTE = ("none", "selective", "1of4", "1of2", "full")
"""Kinds of recompute that a search tries; "selective" is the one of the software."""

OFFLOAD = ("none", "opt", "opt+param", "act", "opt+act", "opt+param+act")
"""What a search offloads where it may offload anything ("all")."""


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Allowed values; None allows everything that divides."""

    tp: tuple[int, ...] | None = None
    """Tensor-parallel degrees."""
    pp: tuple[int, ...] | None = None
    """Pipeline stages."""
    cp: tuple[int, ...] | None = None
    """Context-parallel degrees."""
    micro_batch: tuple[int, ...] | None = None
    """Micro-batch sizes, sequences."""
    virtual_stages: tuple[int, ...] | None = None
    """Model chunks per pipeline stage."""
    ep: tuple[int, ...] | None = None
    """Expert-parallel degrees; None for all that divide the experts."""
    etp: tuple[int, ...] | None = None
    """Expert tensor-parallel degrees; None for 1 and the tensor-parallel degree."""
    mlp_tiles: tuple[int, ...] | None = None
    """Tiles of the sequence in which dense MLPs are computed; None for the whole at once."""
    sharding: tuple[str, ...] | None = None
    """Sharding: ddp, zero1, zero2, zero3."""
    variants: tuple[str, ...] | None = None
    """Variants of sharding that are tried besides: words of `sharding.VARIANTS`; None for none."""
    recompute: tuple[str, ...] | None = None
    """Kinds of recompute: none, selective, attention, op, full, or 1of4 for every fourth block;
    None for those of `RECOMPUTE`."""
    schedule: tuple[str, ...] | None = None
    """gpipe, 1f1b, interleaved, zbh1, zbv; None for all schedules of the software."""
    offload: tuple[str, ...] | None = None
    """Offloads: none, opt, opt+param, act and other words of `offload.OFFLOADS`; all for those of
    `OFFLOAD`, None for no offload."""
    overlap: tuple[bool, ...] = (True, False)
    """Whether communication may overlap compute: each kind is tried both ways."""
    no_effect: tuple[str, ...] = ()
    """Switches that change nothing in the software, which are not tried: `overlap_tp`, `overlap_dp`
    with ddp or zero1, such as "overlap_dp ddp", and `reshard_after_forward` in a pipeline."""
    tp_within_domain: bool = True
    """Whether tensor parallelism stays inside a scale-up domain: across domains it is never faster.
    """
    single_rank: bool = True
    """Whether meshes without data parallelism, which shard nothing, are tried."""

    def __post_init__(self) -> None:
        for field in ("tp", "pp", "cp", "micro_batch", "virtual_stages", "ep", "etp", "mlp_tiles"):
            values = getattr(self, field)
            if values is not None and (not values or any(v < 1 for v in values)):
                raise InputError(
                    f"{field} = {values} must be whole numbers of at least 1",
                    hint=f"for example {field} = 1,2,4",
                )
        for word in self.recompute or ():
            Strategy(recompute=word)
        for word in self.offloads or ():
            check_offload(word)
        for field in ("sharding", "schedule"):
            for word in getattr(self, field) or ():
                if word not in WORDS[field]:
                    known = [str(w) for w in WORDS[field]]
                    raise InputError(f"unknown {field} {word}", hint=did_you_mean(word, known))
        check_words(self.variants or ())
        if not self.overlap:
            raise InputError("overlap is empty", hint="give True, False or both")

    @property
    def offloads(self) -> tuple[str, ...] | None:
        """Offloads as fields of a strategy, "" for none; None where nothing is said."""
        if self.offload is None:
            return None
        words = [each for word in self.offload for each in (OFFLOAD if word == "all" else (word,))]
        return tuple(dict.fromkeys("" if word == "none" else word for word in words))


def divisors(number: int) -> list[int]:
    """Return all divisors, ascending."""
    small = [d for d in range(1, int(number**0.5) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})


def _allowed(values: Sequence[int], limit: tuple[int, ...] | None) -> list[int]:
    return [value for value in values if limit is None or value in limit]


def _pipeline_axis(model: Model, pp: int, limits: Limits) -> Axis:
    """Return schedules and virtual stages; only interleaved P2P sends can overlap."""
    allowed = WORDS["schedule"] if limits.schedule is None else limits.schedule
    fixed = {"pp": float(pp), "virtual_stages": 1.0, "overlap_pp": 1.0}
    if pp == 1:
        return [{**fixed, "schedule": encode("schedule", "1f1b")}]
    axis = [
        {**fixed, "schedule": encode("schedule", word)}
        for word in ("gpipe", "1f1b", "zbh1", "zbv")
        if word in allowed
        and (limits.virtual_stages is None or 1 in limits.virtual_stages)
        # ZB-V gives every stage two chunks.
        and (word != "zbv" or 2 * pp <= model.layers)
    ]
    if "interleaved" in allowed:
        for chunks in _allowed(range(2, LARGEST_CHUNKS + 1), limits.virtual_stages):
            if not equal_chunks(model.layers, pp * chunks, experts=model.moe is not None):
                continue
            place = {**fixed, "schedule": encode("schedule", "interleaved")}
            place["virtual_stages"] = float(chunks)
            axis += [{**place, "overlap_pp": float(on)} for on in limits.overlap]
    return axis


def equal_chunks(layers: int, chunks: int, *, experts: bool) -> bool:
    """Whether layers can be divided so: equal, or embedding and head each in place of a layer.

    Recipes of models with experts also leave a chunk short by three, such as 61 layers on 16 chunks
    of four (Megatron-LM, --pipeline-model-parallel-layout).
    """
    spare = (0, 2, 3) if experts else (0, 2)
    return any((layers + more) % chunks == 0 for more in spare)


def _switches(limits: Limits, name: str) -> list[float]:
    """Values of a switch of overlap: one where the other changes nothing."""
    return [float(on) for on in limits.overlap][: 1 if name in limits.no_effect else None]


def _data_axis(ranks: int, limits: Limits, *, pipelined: bool) -> Axis:
    """Return the options of data parallelism over so many ranks: sharding, prefetch, overlap."""
    allowed = limits.sharding or WORDS["sharding"]
    alone = {
        "sharding": 0.0, "dp_replicate": 1.0, "dp_shard": 1.0,
        "reshard_after_forward": 1.0, "prefetch": 1.0, "overlap_dp": 1.0,
    }  # fmt: skip
    if ranks == 1:
        return [alone] if limits.single_rank else []
    switches = [{"overlap_dp": float(on)} for on in limits.overlap]
    axis: Axis = []
    if "ddp" in allowed:
        axis += [
            {**alone, "dp_replicate": float(ranks), "overlap_dp": on}
            for on in _switches(limits, "overlap_dp ddp")
        ]
    for code, word in ((1.0, "zero1"), (2.0, "zero2")):
        if word in allowed:
            whole = {**alone, "sharding": code, "dp_shard": float(ranks)}
            axis += [{**whole, "overlap_dp": on} for on in _switches(limits, f"overlap_dp {word}")]
    if "zero3" in allowed:
        # Without prefetch nothing overlaps, but one block less is in memory.
        if True in limits.overlap:
            switches = [*switches, {"overlap_dp": 1.0, "prefetch": 0.0}]
        kept = (1.0,) if pipelined and "reshard_after_forward" in limits.no_effect else (1.0, 0.0)
        for shard in divisors(ranks)[1:]:
            mesh = {**alone, "sharding": 3.0, "dp_replicate": ranks / shard, "dp_shard": shard}
            axis += [
                {**mesh, "reshard_after_forward": keep, **on} for keep in kept for on in switches
            ]
    return axis


def _offloaded(axis: Axis, limits: Limits) -> Axis:
    """Return the options of data parallelism with each offload; parameters leave with FSDP only."""
    if limits.offloads is None:
        return axis
    return [
        {**one, "offload": encode("offload", words)}
        for words in limits.offloads
        for one in axis
        if one["sharding"] == 3.0 or "param" not in offloads_of(words)
    ]


def _micro_axis(workload: Workload, ranks: int, limits: Limits) -> Axis:
    """Return micro-batch sizes that divide the batch; 1 if none does, to be counted."""
    if workload.global_batch % ranks:
        return [{"micro_batch": 1.0}]
    fitting = [d for d in divisors(workload.global_batch // ranks) if d <= LARGEST_MICRO_BATCH]
    return [{"micro_batch": float(m)} for m in _allowed(fitting, limits.micro_batch)]


def _expert_splits(model: Model, limits: Limits, tp: int, stage: int) -> Axis:
    """Return how the ranks of a stage share experts: EP and expert TP degrees; none if dense."""
    moe = model.moe
    if moe is None or moe.experts == 1:
        return [{}]
    sliced = [etp for etp in divisors(math.gcd(moe.ffn, stage)) if etp in (limits.etp or (1, tp))]
    return [
        {"ep": float(ep), "etp": float(etp)}
        for etp in sliced
        for ep in _allowed(divisors(math.gcd(moe.experts, stage // etp)), limits.ep)
    ]


def _layer_axis(
    model: Model, cluster: Cluster, workload: Workload, limits: Limits, ranks: int, stage: int
) -> Axis:
    """Return how `ranks` GPUs split one layer: TP, CP and EP degrees, and their kinds.

    Experts are shared by all GPUs of a stage. With tensor parallelism they need sequence
    parallelism.
    """
    widest = cluster.scale_up_domain if limits.tp_within_domain else cluster.accelerators
    dense = model.moe is None
    switches = _switches(limits, "overlap_tp")
    axis: Axis = []
    for tp in _allowed(divisors(math.gcd(model.heads, ranks)), limits.tp):
        cp = ranks // tp
        if tp > widest or cp not in _allowed([cp], limits.cp):
            continue
        if cp > 1 and workload.seq_len % (2 * cp):
            continue
        experts = _expert_splits(model, limits, tp, stage)
        for split in (1.0,) if tp == 1 or not dense else (1.0, 0.0):
            for hide in (1.0,) if tp == 1 else switches:
                for method in (0.0,) if cp == 1 else (0.0, 1.0):
                    one = {
                        "tp": float(tp),
                        "cp": float(cp),
                        "sequence_parallel": split,
                        "overlap_tp": hide,
                        "cp_method": method,
                    }
                    axis += [{**one, **each} for each in experts]
    return axis


def products(
    model: Model, cluster: Cluster, workload: Workload, limits: Limits
) -> Iterator[list[dict[str, Axis]]]:
    """Yield the products of each number of data-parallel ranks, without a pipeline and with one."""
    count = cluster.accelerators
    recompute = [
        {"recompute": encode("recompute", word)} | ({"mlp_tiles": float(tiles)} if tiles else {})
        for word in limits.recompute or RECOMPUTE
        for tiles in limits.mlp_tiles or (0,)
    ]
    # Options of data parallelism may be others in a pipeline.
    sharded = limits.sharding is None or "zero3" in limits.sharding
    differ = sharded and "reshard_after_forward" in limits.no_effect
    apart = ((False,), (True,)) if differ else ((False, True),)
    for ranks in divisors(count):
        micro = _micro_axis(workload, ranks, limits)
        stages = [pp for pp in _allowed(divisors(count // ranks), limits.pp) if pp <= model.layers]
        for some in apart:
            data = _data_axis(ranks, limits, pipelined=True in some)
            if limits.variants:
                data = with_variants(data, limits.variants, cluster.scale_up_domain)
            data = _offloaded(data, limits)
            found = []
            for pp in stages:
                if (pp > 1) not in some:
                    continue
                inner = count // ranks // pp
                axes = {
                    "pipeline": _pipeline_axis(model, pp, limits),
                    "data": data,
                    "recompute": recompute,
                    "micro": micro,
                    "layer": _layer_axis(model, cluster, workload, limits, inner, count // pp),
                }
                if all(axes.values()):
                    found.append(axes)
            yield found


_DEFAULT = Strategy()
_SEARCHED = (
    "pp", "schedule", "virtual_stages", "overlap_pp", "sharding", "dp_replicate", "dp_shard",
    "reshard_after_forward", "prefetch", "overlap_dp", "recompute", "micro_batch", "tp", "cp",
    "sequence_parallel", "overlap_tp", "cp_method",
)  # fmt: skip
_FIXED = {
    name: np.full((1,) * len(AXES), encode(name, getattr(_DEFAULT, name)))
    for name in FIELDS
    if name not in _SEARCHED
}


def count(model: Model, cluster: Cluster, workload: Workload, limits: Limits) -> int:
    """Return the number of strategies."""
    return sum(map(_rows, products(model, cluster, workload, limits)))


def pieces(
    model: Model, cluster: Cluster, workload: Workload, limits: Limits, size: int = PIECE
) -> Iterator[Strategies]:
    """Yield the space in pieces of at most `size` rows."""
    for several in products(model, cluster, workload, limits):
        for axes in _joined(several, size):
            for part in _cut(axes, size):
                yield _laid_out(part)


def _rows(several: Sequence[dict[str, Axis]]) -> int:
    """Rows of products together."""
    return sum(math.prod(map(len, axes.values())) for axes in several)


def _joined(several: list[dict[str, Axis]], size: int) -> Iterator[dict[str, Axis]]:
    """Yield products with the same data parallelism: large ones alone, small ones together.

    Zero-bubble schedules go apart from the others: nothing of a layer depends on the schedule then,
    and what their split of backward needs is not computed for others.
    """
    halves = {encode("schedule", word) for word in ("zbh1", "zbv")}
    small: list[list[dict[str, Axis]]] = []
    for kind in (False, True):
        parts = [
            {**axes, "pipeline": chosen}
            for axes in several
            if (
                chosen := [
                    here for here in axes["pipeline"] if (here["schedule"] in halves) is kind
                ]
            )
        ]
        yield from (part for part in parts if _rows([part]) > size // SMALL)
        small.append([part for part in parts if _rows([part]) <= size // SMALL])
    if sum(map(_rows, small)) <= size // SMALL:
        small = [[*small[0], *small[1]]]
    for parts in small:
        if len(parts) == 1:
            yield parts[0]
        elif parts:
            # How a stage may split its layers depends on the stages, so that both share an axis.
            splits = [
                {**stages, **layer}
                for axes in parts
                for stages in axes["pipeline"]
                for layer in axes["layer"]
            ]
            yield {**parts[0], "pipeline": [{}], "layer": splits}


def _cut(axes: dict[str, Axis], size: int) -> Iterator[dict[str, Axis]]:
    """Halve the axis with the most shared work until the product is small enough."""
    if math.prod(map(len, axes.values())) <= size:
        yield axes
        return
    for name in ("data", "micro", "layer", "pipeline", "recompute"):
        middle = len(axes[name]) // 2
        if middle:
            for half in (axes[name][:middle], axes[name][middle:]):
                yield from _cut({**axes, name: half}, size)
            return


def _laid_out(axes: dict[str, Axis]) -> Strategies:
    """Return axes as columns, each along its own axis."""
    columns: dict[str, Array] = dict(_FIXED)
    for place, name in enumerate(AXES):
        shape = [1] * len(AXES)
        shape[place] = len(axes[name])
        for field in axes[name][0]:
            values = np.array([here[field] for here in axes[name]])
            # A constant column needs no axis.
            alike = bool((values == values[0]).all())
            columns[field] = values[:1].reshape([1] * len(AXES)) if alike else values.reshape(shape)
    return Strategies(columns)
