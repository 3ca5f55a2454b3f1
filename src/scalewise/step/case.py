"""Every number one step needs, in eight parts: the input of all formulas in `step`.

    case = lay_out(model, cluster, workload, strategies, stack, chip)      # step.layout
    case.shape.hidden, case.split.tp, case.rates.gemm, case.links.scale_out, case.habits.contention
    many = Case.join([case, ...])                  # several models or clusters behind each other
    case.changed(contention=case.habits.contention / 2.0)

Fields are arrays: one value per strategy, or one axis per knob of a space of strategies, with
length 1 along axes they do not depend on. For a single strategy (`Strategies.one`) they are numbers
of NumPy. So one estimate and a million run through the same lines, and a calibration can vary any
constant.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from scalewise.numeric import (
    Array,
    Index,
    Mask,
    Num,
    lazy,
    mask,
    maximum,
    minimum,
    some,
    squeeze_constant_axes,
    where,
)
from scalewise.offload import OFFLOADS
from scalewise.physics.links import Links
from scalewise.recompute import MODULES
from scalewise.step.parts import Host, Part, Rates, Sparse, Update
from scalewise.step.tuned import Tuned
from scalewise.strategies import encode

if TYPE_CHECKING:
    from scalewise.step.distinct import Distinct

_MODULES = {module: 2.0**bit for bit, module in enumerate(MODULES)}
_OFFLOADS = {word: 2.0**bit for bit, word in enumerate(OFFLOADS)}
_GPIPE, _ZBH1, _ZBV = (encode("schedule", word) for word in ("gpipe", "zbh1", "zbv"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Shape(Part):
    """The model: widths, counts of parameters, and the sequence it is trained on."""

    layers: Array
    """Transformer layers."""
    hidden: Array
    """Width of the residual stream."""
    query: Array
    """Width of all query heads; with latent attention that of all values."""
    key_value: Array
    """Width of all key (or value) heads, mean of the two."""
    qkv: Array
    """Width of queries, keys and values as the projections make them."""
    rotary: Array
    """Elements per token that rotary positions move; latent attention splits and joins heads."""
    attention_kept: Array
    """Elements per token that backward needs of queries, keys, values and attention output."""
    query_rank: Array
    """Width of the latent that queries are made from (MLA); 0 without one."""
    kv_rank: Array
    """Width of the latent that keys and values are made from (MLA); 0 for ordinary attention."""
    rope: Array
    """Width of the rotary key that all heads share (MLA)."""
    query_up: Array
    """Width of all queries (MLA)."""
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
    dense_params: Array
    """Parameters of one layer with a dense MLP."""
    embedding_params: Array
    """Input embedding and learned positions."""
    head_params: Array
    """Output projection that is stored of its own (0 when tied)."""
    seq_len: Array
    """Tokens per sequence as computed, padding included; mean of a bucketed batch."""
    longest: Array
    """Tokens of the longest sequence, which memory has to hold."""
    document: Array
    """Tokens of a document, mean over tokens: what one attention kernel runs along."""
    mtp: Array
    """Multi-token-prediction modules, each a layer and a pass through the head."""
    mtp_params: Array
    """Their projections and norms, which no layer holds."""

    @lazy
    def latent(self) -> Mask:
        """Whether attention is latent (MLA)."""
        return mask(self.kv_rank > 0.0)

    @property
    def edge_params(self) -> Array:
        """Parameters that no layer holds."""
        return self.embedding_params + self.head_params + self.mtp_params

    @property
    def last_params(self) -> Array:
        """Those on a last stage of its own: a tied head is a second embedding there."""
        head = where(self.head_params > 0.0, self.head_params, self.embedding_params)
        return head + self.mtp_params


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
    ep: Array
    """Expert-parallel degree."""
    etp: Array
    """Expert tensor-parallel degree."""
    overlap_ep: Mask
    """Whether the all-to-all of experts may overlap compute."""
    first_sparse: Array
    """Fraction of the layers of the first stage that have experts."""
    middle_sparse: Array
    """The same for a middle stage, or the only one."""
    last_sparse: Array
    """The same for the last stage."""
    modules: Array
    """Modules that are recomputed besides, as the code of `recompute_modules`."""
    mlp_tiles: Array
    """Tiles in which dense MLPs are computed; 1 for none."""
    offload: Array
    """What is kept off the device, as the code of `offload`."""
    gather_bytes: Array
    """Bytes per all-gathered parameter of a layer; others have those of activations."""
    gather_fits: Mask
    """Whether weights of this precision can be all-gathered so."""
    gather_int8: Mask
    """Whether parameters are dequantized where they arrive (ZeRO++ qwZ)."""
    reduce_int4: Mask
    """Whether gradients are reduced in int4, in two hops (ZeRO++ qgZ)."""
    backward_shard: Array
    """Ranks of the all-gather of backward, where they hold a copy of their own; 0 for all."""
    hierarchical: Mask
    """Whether parameters are all-gathered between domains first, then inside."""
    sync_once: Mask
    """Whether replicas are to reduce gradients once per step."""
    reduce_stated: Array
    """When gradients are reduced, as the code of `reduce_each`: 1 once per step, 2 after every
    micro-batch, 0 as the software does."""

    @lazy
    def fully_sharded(self) -> Mask:
        """FSDP, HSDP, ZeRO-3."""
        return mask(self.sharding == 3.0)

    @lazy
    def shards_gradients(self) -> Mask:
        """ZeRO-2 and 3: gradients are reduced to their shard in backward."""
        return mask(self.sharding >= 2.0)

    @lazy
    def shards_optimizer(self) -> Mask:
        """ZeRO-1, 2 and 3."""
        return mask(self.sharding >= 1.0)

    @lazy
    def ddp(self) -> Mask:
        """Nothing is sharded."""
        return mask(self.sharding == 0.0)

    @lazy
    def pipelined(self) -> Mask:
        """More than one stage."""
        return mask(self.pp > 1.0)

    @lazy
    def interleaved(self) -> Mask:
        """Several chunks per stage."""
        return mask(self.chunks > 1.0)

    @lazy
    def gpipe(self) -> Mask:
        """All forward passes before all backward passes, on several stages."""
        return mask((self.schedule == _GPIPE) & self.pipelined)

    @lazy
    def zb_v(self) -> Mask:
        """ZB-V: both ends of the model on one stage, two chunks on each."""
        return mask((self.schedule == _ZBV) & self.pipelined)

    @lazy
    def zero_bubble(self) -> Mask:
        """ZB-H1 and ZB-V: weight gradients are deferred."""
        return squeeze_constant_axes(mask((self.schedule >= _ZBH1) & self.pipelined))

    @lazy
    def split_ends(self) -> Mask:
        """Embedding and head on different stages."""
        apart: Mask = mask(self.pipelined & ~self.zb_v)
        return squeeze_constant_axes(apart)

    @lazy
    def shards(self) -> Array:
        """Ranks that share one copy of what is sharded: context-parallel ranks shard too."""
        return self.dp_shard * self.cp

    @lazy
    def expert_ranks(self) -> Array:
        """Ranks of a stage that hold the same experts and see different tokens."""
        stage = self.tp * self.cp * self.dp_replicate * self.dp_shard
        return maximum(stage / (self.ep * self.etp), 1.0)

    @lazy
    def expert_shards(self) -> Array:
        """Ranks that share one copy of what is sharded of experts."""
        inside = np.floor(self.tp * self.cp * self.dp_shard / (self.ep * self.etp))
        return minimum(maximum(inside, 1.0), self.expert_ranks)

    @lazy
    def gathers_quantized(self) -> Mask:
        """Whether parameters of layers are quantized before they are all-gathered."""
        return mask((self.gather_bytes < 2.0) & self.shards_optimizer & ~self.gather_int8)

    def recomputes(self, module: str) -> Mask:
        """Whether a module is recomputed besides."""
        return mask(np.floor(self.modules / _MODULES[module]) % 2.0 == 1.0)

    def offloads(self, word: str) -> Mask:
        """Whether a word of `OFFLOADS` is kept off the device."""
        return mask(np.floor(self.offload / _OFFLOADS[word]) % 2.0 == 1.0)

    @lazy
    def sp(self) -> Array:
        """Ranks over which sequence parallelism splits norms and residuals; 1 without it."""
        return where(self.sequence_parallel, self.tp, 1.0)


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
    pipeline_host_seconds: Array
    fsdp_host_seconds: Array
    fsdp_copy_bytes: Array
    fsdp_step_seconds: Array
    tp_host_seconds: Array
    tp_step_seconds: Array
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
    gathers_ends_again: Mask
    balanced_ring: Mask
    keeps_sp_all_gather: Mask
    composed_kernels: Mask
    frees_gradients: Mask
    limits_all_gathers: Mask
    upcast_scores: Mask
    unfused_attention: Mask

    def gathers_once(self, split: Split) -> Mask:
        """Whether FSDP keeps the parameters of a stage unsharded during a step."""
        return mask(self.pipeline_gathers_once & split.pipelined & split.fully_sharded)

    def reduces_each(self, split: Split) -> Mask:
        """Whether gradients are reduced after every micro-batch, or after the last alone."""
        each = where(split.fully_sharded, self.reduce_every_micro_step, self.zero2_every_micro_step)
        each = mask(each & ~self.gathers_once(split))
        if some(split.reduce_stated):
            each = mask(where(split.reduce_stated > 0.0, split.reduce_stated == 2.0, each))
        return each

    def syncs_once(self, split: Split) -> Mask:
        """Whether replicas reduce gradients once per step, and shards after every micro-batch."""
        replicas = split.sync_once & split.fully_sharded & (split.dp_replicate > 1.0)
        return mask(replicas & self.reduces_each(split))

    def keeps_gradients(self, split: Split) -> Mask:
        """Whether FSDP keeps the gradients of a stage unsharded until they are reduced once."""
        once = (split.reduce_stated == 1.0) & split.fully_sharded & (split.num_microbatches > 1.0)
        return mask((self.gathers_once(split) & ~self.reduces_each(split)) | once)

    def step_reductions(self, split: Split) -> Array:
        """Reductions of DDP and ZeRO-1 per step: one, or one per micro-batch where stated."""
        each = (split.reduce_stated == 2.0) & ~split.shards_gradients
        return where(each, split.num_microbatches, 1.0)

    def gathers(self, split: Split) -> Array:
        """All-gathers of a parameter before forward, per micro-batch: 1, or 1 / n."""
        return where(self.gathers_once(split), 1.0 / split.num_microbatches, 1.0)

    def reductions(self, split: Split) -> Array:
        """Reductions of a gradient per micro-batch: 1, or 1 / n where they wait for the last."""
        return where(self.reduces_each(split), 1.0, 1.0 / split.num_microbatches)


PARTS: dict[str, type[Any]] = {
    "shape": Shape, "split": Split, "rates": Rates, "links": Links, "habits": Habits,
    "sparse": Sparse, "update": Update, "tuned": Tuned, "host": Host,
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
    sparse: Sparse
    update: Update
    tuned: Tuned
    host: Host

    def __len__(self) -> int:
        return len(self.shape.layers)

    @lazy
    def tokens(self) -> Array:
        """Tokens that one rank works on per micro-batch."""
        return self.split.micro_batch * self.shape.seq_len / self.split.cp

    @lazy
    def has_experts(self) -> bool:
        """Whether any step has experts: dense ones skip all that experts need."""
        return some(self.sparse.experts)

    @lazy
    def has_frozen(self) -> bool:
        """Whether any step has a frozen model: the others skip all that adapters need."""
        return some(self.tuned.frozen)

    @lazy
    def first_slowest(self) -> Mask:
        """Whether the first stage is the slowest one, for its dense layers."""
        from scalewise.step.slowest_mix import first_is_slowest

        return first_is_slowest(self)

    @lazy
    def dense_first(self) -> bool:
        """Whether the first stage of any step is the slowest one, for its dense layers."""
        return self.has_experts and some(self.first_slowest)

    @lazy
    def of_other_stages(self) -> Case:
        """The same steps with the mix of a middle stage on the first one."""
        return self.changed(first_sparse=self.split.middle_sparse)

    @lazy
    def distinct(self) -> Distinct | None:
        """Layouts with different splits of a layer, where a list of them repeats some."""
        from scalewise.step.distinct import distinct_splits

        return distinct_splits(self)

    @lazy
    def slowest_sparse(self) -> Num:
        """Fraction of the layers of the slowest stage that have experts."""
        split = self.split
        if not self.dense_first:
            return split.middle_sparse
        return where(self.first_slowest, split.first_sparse, split.middle_sparse)

    @lazy
    def layer_params(self) -> Num:
        """Parameters of one layer of the slowest stage without routed experts, mean."""
        return self.params_of_layer(self.slowest_sparse)

    def params_of_layer(self, sparse: Num) -> Num:
        """Parameters of one layer without routed experts, where a fraction of them has experts."""
        if not self.has_experts:
            return self.shape.dense_params
        return self.shape.dense_params + sparse * self.sparse.more_params

    @lazy
    def expert_params_mean(self) -> Num:
        """Routed experts of one layer of the slowest stage on one rank, mean, parameters."""
        return self.slowest_sparse * self.expert_params_of_layer

    @lazy
    def expert_params_of_layer(self) -> Num:
        """Routed experts of one layer that has experts, on one rank, parameters."""
        return self.sparse.expert_params / (self.split.ep * self.split.etp)

    @lazy
    def mlp(self) -> Num:
        """Width of the MLP that every token passes: dense, or shared experts; mean over layers."""
        return self.mlp_of(self.slowest_sparse)

    def mlp_of(self, sparse: Num) -> Num:
        """The same where a fraction of the layers has experts."""
        if not self.has_experts:
            return self.shape.ffn
        return (1.0 - sparse) * self.shape.ffn + sparse * self.sparse.shared_ffn

    @lazy
    def root_gather_bytes(self) -> Array:
        """Bytes per all-gathered parameter of embedding and LM head."""
        split = self.split
        return where(split.gather_int8, split.gather_bytes, self.rates.activation_bytes)

    @lazy
    def zeros(self) -> Array:
        """Zero for every step: what a technique costs that no strategy uses."""
        return 0.0 * self.shape.layers

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


def column_names(part: str | None = None) -> tuple[str, ...]:
    """The names of all columns of a case, or of one of its parts."""
    return tuple(_HOME) if part is None else _NAMES[part]
