"""Every number one step needs, in five parts: the input of all formulas in `step`.

    case = lay_out(model, cluster, workload, strategies, stack, chip)      # step.layout
    case.shape.hidden, case.split.tp, case.rates.gemm, case.links.scale_out, case.habits.contention
    many = Case.join([case, ...])                  # several models or clusters behind each other
    case.changed(contention=case.habits.contention / 2.0)

All fields are arrays: of length 1 for one strategy, long for many, or with one axis per knob of a
space of strategies and length 1 along axes they do not depend on. So one estimate and a million
run through the same lines, and a calibration can vary any constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from scalewise.numeric import Array, Index, Mask, lazy, squeeze_constant_axes
from scalewise.physics.links import Links
from scalewise.strategies import encode

P = TypeVar("P", bound="Part")

_GPIPE, _ZBH1, _ZBV = (encode("schedule", word) for word in ("gpipe", "zbh1", "zbv"))


class Part:
    """Base of the parts of a case: data classes whose fields are all arrays."""

    @classmethod
    def names(cls) -> tuple[str, ...]:
        """The names of its fields."""
        return tuple(each.name for each in fields(cls))  # type: ignore[arg-type]

    def columns(self) -> dict[str, Array]:
        """Its fields by name."""
        return {name: getattr(self, name) for name in self.names()}


@dataclass(frozen=True, kw_only=True, eq=False)
class Shape(Part):
    """The model: widths, counts of parameters, and the sequence it is trained on."""

    layers: Array
    """Transformer layers."""
    hidden: Array
    """Width of the residual stream."""
    query: Array
    """Width of all query heads."""
    key_value: Array
    """Width of all key (or value) heads."""
    heads: Array
    """Query heads."""
    attention_width: Array
    """Width of all query heads as the matrix unit works on them: narrow heads are padded."""
    ffn: Array
    """Width of the MLP."""
    gated: Array
    """1 for gated activations."""
    vocab: Array
    """Rows of the embedding."""
    span: Array
    """Keys a query attends to, mean over tokens and layers."""
    layer_params: Array
    """Parameters of one layer."""
    embedding_params: Array
    """Input embedding and learned positions."""
    head_params: Array
    """Output projection that is stored of its own (0 when tied)."""
    seq_len: Array
    """Tokens per sequence."""

    @property
    def tied_copy(self) -> Array:
        """Parameters of the head on a stage of its own: a tied one is a second embedding there."""
        return np.where(self.head_params > 0.0, self.head_params, self.embedding_params)


@dataclass(frozen=True, kw_only=True, eq=False)
class Split(Part):
    """The strategy on its cluster: degrees, switches, and the layers of the stages."""

    gpus: Array
    """Accelerators of the cluster."""
    domain: Array
    """Accelerators of one scale-up domain."""
    domains: Array
    """Scale-up domains of the cluster."""
    global_batch: Array
    """Sequences per step."""
    dp_replicate: Array
    """Replicas of a sharding group."""
    dp_shard: Array
    """Ranks of a sharding group."""
    sharding: Array
    """ZeRO stage, 0 to 3."""
    reshard_after_forward: Mask
    """Whether FSDP frees parameters after forward and all-gathers them again in backward."""
    prefetch: Array
    """Blocks that are all-gathered ahead."""
    tp: Array
    """Tensor-parallel degree."""
    sequence_parallel: Mask
    """Whether norms and residuals are split over the tensor-parallel ranks."""
    cp: Array
    """Context-parallel degree."""
    cp_ring: Mask
    """Whether keys and values travel in a ring, not in an all-gather."""
    pp: Array
    """Pipeline stages."""
    chunks: Array
    """Virtual stages per pipeline stage."""
    schedule: Array
    """Place in `strategy.SCHEDULES`."""
    micro_batch: Array
    """Sequences per micro-batch and data-parallel rank."""
    num_microbatches: Array
    """Micro-batches per step."""
    recompute: Array
    """Kind, as the code of its word in `strategies.WORDS`; whole blocks are "full"."""
    recompute_blocks: Array
    """Fraction of the blocks that are repeated in full."""
    overlap_dp: Mask
    """Whether data-parallel communication may overlap compute."""
    overlap_tp: Mask
    """Whether tensor-parallel communication may overlap compute."""
    overlap_pp: Mask
    """Whether sends between interleaved stages may overlap compute."""
    first_layers: Array
    """Layers of the first stage."""
    middle_layers: Array
    """Layers of the largest middle stage."""
    last_layers: Array
    """Layers of the last stage."""
    stages_fit: Mask
    """Whether the layers can be split into such stages."""
    experts_fit: Mask
    """Whether there are experts to split, or none are to be split."""

    @lazy
    def fully_sharded(self) -> Mask:
        """FSDP, HSDP, ZeRO-3."""
        return np.asarray(self.sharding == 3.0)

    @lazy
    def shards_gradients(self) -> Mask:
        """ZeRO-2 and 3: gradients are reduced to their shard in backward."""
        return np.asarray(self.sharding >= 2.0)

    @lazy
    def shards_optimizer(self) -> Mask:
        """ZeRO-1, 2 and 3."""
        return np.asarray(self.sharding >= 1.0)

    @lazy
    def ddp(self) -> Mask:
        """Nothing is sharded."""
        return np.asarray(self.sharding == 0.0)

    @lazy
    def pipelined(self) -> Mask:
        """More than one stage."""
        return np.asarray(self.pp > 1.0)

    @lazy
    def interleaved(self) -> Mask:
        """Several chunks per stage."""
        return np.asarray(self.chunks > 1.0)

    @lazy
    def gpipe(self) -> Mask:
        """All forward passes before all backward passes, on several stages."""
        return np.asarray((self.schedule == _GPIPE) & self.pipelined)

    @lazy
    def zb_v(self) -> Mask:
        """ZB-V: both ends of the model on one stage, two chunks on each."""
        return np.asarray((self.schedule == _ZBV) & self.pipelined)

    @lazy
    def zero_bubble(self) -> Mask:
        """ZB-H1 and ZB-V: weight gradients are deferred."""
        return np.asarray((self.schedule >= _ZBH1) & self.pipelined)

    @lazy
    def split_ends(self) -> Mask:
        """Embedding and head on different stages."""
        apart: Mask = np.asarray(self.pipelined & ~self.zb_v)
        return squeeze_constant_axes(apart)

    @lazy
    def shards(self) -> Array:
        """Ranks that share one copy of what is sharded: context-parallel ranks shard too."""
        return self.dp_shard * self.cp

    @lazy
    def sp(self) -> Array:
        """Ranks over which sequence parallelism splits norms and residuals; 1 without it."""
        return np.where(self.sequence_parallel, self.tp, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False)
class Rates(Part):
    """Sustained rates of one GPU, at the precision of the workload."""

    gemm: Array
    """FLOP/s of GEMMs in the layers."""
    gemm16: Array
    """FLOP/s of 16-bit GEMMs (LM head)."""
    peak: Array
    """Datasheet FLOP/s."""
    matmul_bytes: Array
    """Bytes per GEMM operand element."""
    quantized_copies: Array
    """Copies of a GEMM input that quantizing makes: 1 per tensor, 2 for MX (rows and columns)."""
    units: Array
    """Compute units over which tiles are spread."""
    gemm_fill: Array
    """Depth at which a tile begins to pay, elements."""
    gemm_shapes: NDArray[Any]
    """Products that were timed on the device, a tuple each: `physics.shapes`."""
    attention_forward: Array
    """FLOP/s of attention forward on long sequences."""
    attention_backward: Array
    """FLOP/s of attention backward."""
    memory: Array
    """Bytes/s of streaming kernels."""
    memory_bytes: Array
    """Capacity, bytes."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Habits(Part):
    """Constants of the software, as `Stack` explains them."""

    memory_traffic: Array
    host_layer_seconds: Array
    contention: Array
    tp_overlap: Array
    dp_overlap: Array
    shard_overlap: Array
    update_gather_overlap: Array
    gradient_bytes: Array
    logit_bytes: Array
    optimizer_bytes: Array
    overhead_seconds: Array
    selective_share: Array
    reduce_bytes: Array
    bucket_bytes: Array
    bucket_bytes_per_rank: Array
    cast_bytes: Array
    pipeline_host_seconds: Array
    straggler: Array
    gradient_memory: Array
    activation_factor: Array
    selective_memory: Array
    logit_memory: Array
    workspace_bytes: Array
    fragmentation: Array
    recompute_skips_last: Mask
    keeps_quantized: Mask
    reduce_every_micro_step: Mask
    zero2_every_micro_step: Mask
    pipeline_gathers_once: Mask
    balanced_ring: Mask
    keeps_sp_all_gather: Mask
    unfused_attention: Mask

    def gathers_once(self, split: Split) -> Mask:
        """Whether FSDP keeps the parameters and gradients of a stage unsharded during a step."""
        return np.asarray(self.pipeline_gathers_once & split.pipelined & split.fully_sharded)

    def reduces_each(self, split: Split) -> Mask:
        """Whether gradients are reduced after every micro-batch, or after the last alone."""
        each = np.where(
            split.fully_sharded, self.reduce_every_micro_step, self.zero2_every_micro_step
        )
        return np.asarray(each & ~self.gathers_once(split))

    def gathers(self, split: Split) -> Array:
        """All-gathers of a parameter before forward, per micro-batch: 1, or 1 / n."""
        return np.where(self.gathers_once(split), 1.0 / split.num_microbatches, 1.0)

    def reductions(self, split: Split) -> Array:
        """Reductions of a gradient per micro-batch: 1, or 1 / n where they wait for the last."""
        return np.where(self.reduces_each(split), 1.0, 1.0 / split.num_microbatches)


PARTS: dict[str, type[Any]] = {
    "shape": Shape, "split": Split, "rates": Rates, "links": Links, "habits": Habits,
}  # fmt: skip

_NAMES = {part: tuple(each.name for each in fields(type_)) for part, type_ in PARTS.items()}

_HOME = {name: part for part, names in _NAMES.items() for name in names}
"""Part of each column: no name is in two parts."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Case:
    """One step, or many."""

    shape: Shape
    split: Split
    rates: Rates
    links: Links
    habits: Habits

    def __len__(self) -> int:
        return len(self.shape.layers)

    @lazy
    def tokens(self) -> Array:
        """Tokens that one rank works on per micro-batch."""
        return self.split.micro_batch * self.shape.seq_len / self.split.cp

    @lazy
    def zeros(self) -> Array:
        """Zero for every step: what a technique costs that no strategy uses."""
        return np.zeros_like(self.shape.layers)

    @classmethod
    def of_columns(cls, columns: dict[str, Any]) -> Case:
        """Build a case from all columns by name."""
        return cls(
            **{
                part: type_(**{name: columns[name] for name in _NAMES[part]})
                for part, type_ in PARTS.items()
            }
        )

    @classmethod
    def join(cls, cases: Sequence[Case]) -> Case:
        """Concatenate cases."""
        tables = [case.columns() for case in cases]
        return cls.of_columns({n: np.concatenate([t[n] for t in tables]) for n in _HOME})

    def columns(self) -> dict[str, Any]:
        """All columns by name."""
        return {name: getattr(getattr(self, part), name) for name, part in _HOME.items()}

    def take(self, rows: Index) -> Case:
        """The rows of some places."""
        return Case.of_columns({name: column[rows] for name, column in self.columns().items()})

    def changed(self, **columns: Any) -> Case:
        """Return a copy with some columns exchanged, whatever their parts."""
        return Case.of_columns({**self.columns(), **columns})


def column_names() -> tuple[str, ...]:
    """The names of all columns of a case."""
    return tuple(_HOME)
