"""Feasibility of strategies: rules, and reasons of those that cannot run.

    codes = feasibility(case, memory_low)      # 0 fits, else a place in REASONS

Infeasible is an answer: each strategy gets at most one reason, the first that applies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Array, Mask, maximum, minimum, some, where
from scalewise.step import offload
from scalewise.step.case import Case

if TYPE_CHECKING:
    from scalewise.numeric import Num

REASONS = (
    "fits",
    "mesh: the degrees do not multiply to the GPUs",
    "batch: micro-batch x data-parallel ranks does not divide the global batch",
    "heads: tp does not divide the attention heads",
    "sequence: cp does not divide the sequence",
    "stages: the layers cannot be split into these pipeline stages and chunks",
    "experts: ep or etp does not divide the experts, their width or the ranks of a stage",
    "precision: only weights of fp8 and fp8block can be all-gathered in fp8",
    "partition: hpz does not divide the ranks of a sharding group",
    "batching: cp needs sequences of one length, not bucketed ones",
    "tuning: a frozen model computes in 16 bits, with its MLPs whole",
    "offload: parameters leave the device only with FSDP; Muon and Shampoo do not run on CPUs",
    "host memory: what is offloaded does not fit",
    "memory: the worst rank does not fit",
)

OUT_OF_MEMORY = len(REASONS) - 1
"""Code of strategies that only memory forbids."""


def experts_fit(case: Case) -> Mask:
    """Whether experts can be split so; dense models have none to split.

    ep and etp divide the experts, their width and the ranks of a stage; what shards parameters
    shards those of experts too. With tp, tokens are distinct only under sequence parallelism.
    """
    split, sparse = case.split, case.sparse
    both = split.ep * split.etp
    if not case.has_experts:
        return np.asarray(both <= 1.0)
    stage = split.tp * split.cp * split.dp_replicate * split.dp_shard
    inside = split.tp * split.cp * split.dp_shard
    fits = (
        (np.remainder(sparse.experts, split.ep) == 0.0)
        & (np.remainder(sparse.expert_ffn, split.etp) == 0.0)
        & (np.remainder(stage, both) == 0.0)
        & (
            ~split.shards_optimizer
            | (np.remainder(maximum(inside, both), minimum(inside, both)) == 0.0)
        )
        & ((split.tp <= 1.0) | split.sequence_parallel)
    )
    return np.asarray(where(sparse.experts > 0.0, fits, both <= 1.0))


def partition_fits(case: Case) -> Mask:
    """Whether groups of the all-gather of backward divide those that shard parameters."""
    split = case.split
    group = maximum(split.backward_shard, 1.0)
    fits = np.remainder(split.shards, group) == 0.0
    if case.has_experts and some(split.backward_shard):
        fits = fits & (
            np.remainder(split.expert_shards, minimum(group, split.expert_shards)) == 0.0
        )
    return np.asarray(fits)


def tuning_fits(case: Case) -> Mask:
    """Whether a frozen model can compute so: in 16 bits (8 where it has 16), MLPs not in tiles."""
    tuned, rates = case.tuned, case.rates
    if not case.has_frozen:
        return np.asarray(tuned.frozen == 0.0)
    quantized = (tuned.quantized > 0.0) & (rates.quantize_bytes > 0.0)
    wrong = quantized | (rates.activation_bytes > 2.0) | (case.split.mlp_tiles > 1.0)
    return np.asarray((tuned.frozen == 0.0) | ~wrong)


def _refuses_offload(case: Case) -> Mask:
    """Whether something is offloaded that cannot be."""
    split = case.split
    if not some(split.offload):
        return np.asarray(split.offload > 0.0)
    alone = split.offloads("param") & ~split.fully_sharded
    return np.asarray(alone | (split.offloads("opt") & (case.update.layer_flops > 0.0)))


def feasibility(case: Case, memory_low: Num) -> Array:
    """Return for each step its place in `REASONS`.

    Args:
        case: The steps.
        memory_low: Low end of the predicted peak memory, bytes: only what certainly does not fit
            is refused; a configuration known to have run must not be.
    """
    split, shape = case.split, case.shape
    ranks = split.dp_replicate * split.dp_shard
    wrong = (
        ranks * split.tp * split.cp * split.pp != split.gpus,
        split.global_batch % (ranks * split.micro_batch) != 0.0,
        shape.heads % split.tp != 0.0,
        (shape.longest % split.cp != 0.0) & (shape.longest == shape.seq_len),
        # Embedding and head may take the place of a layer each (Megatron: 126 + 2 on 128 chunks).
        (split.pp * split.chunks > shape.layers + 2.0)
        | ~split.stages_fit
        # ZB-V gives every stage two chunks, whatever `v` is.
        | (split.zb_v & (2.0 * split.pp > shape.layers)),
        ~experts_fit(case),
        ~split.gather_fits,
        ~partition_fits(case),
        (shape.longest > shape.seq_len) & (split.cp > 1.0),
        ~tuning_fits(case),
        _refuses_offload(case),
        offload.host_bytes(case) > case.host.host_bytes,
        memory_low > case.rates.memory_bytes,
    )
    codes = where(wrong[-1], float(len(wrong)), 0.0)
    for code in range(len(wrong) - 1, 0, -1):
        if some(wrong[code - 1]):
            codes = where(wrong[code - 1], float(code), codes)
    return codes
