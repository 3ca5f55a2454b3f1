"""Tensor and sequence parallelism: the split of each weight, through DTensor.

    split_block(block, mesh["tp"], sequence_parallel=True)
    split_edges(decoder, mesh["tp"], sequence_parallel=True)

The plan is Megatron's: columns, then rows, so that each half of a block communicates once. With
sequence parallelism, norms and residuals are split over the sequence. Without it, every rank holds
and computes them, so norms stay ordinary tensors. The logits stay split over the vocabulary, and
the loss is computed there (`loss_parallel`).
"""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    ParallelStyle,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

from scalewise.measure.decoder import Block, Decoder, Mlp, MoeMlp


def split_block(block: Block, mesh: Any, *, sequence_parallel: bool) -> None:
    """Split one layer.

    Args:
        block: With its weights; every rank holds all of them before, its part afterwards.
        mesh: The tensor-parallel dimension.
        sequence_parallel: Whether what runs between blocks is split over the sequence.
    """
    rows = Shard(1) if sequence_parallel else Replicate()
    plan: dict[str, ParallelStyle] = {
        "attention.wq": ColwiseParallel(),
        "attention.wk": ColwiseParallel(),
        "attention.wv": ColwiseParallel(),
        "attention.wo": RowwiseParallel(output_layouts=rows),
    }
    dense: dict[str, Mlp] = {"mlp": block.mlp} if isinstance(block.mlp, Mlp) else {}
    if isinstance(block.mlp, MoeMlp):
        # Each rank routes its own part of the sequence, so routers get partial gradients.
        local = PrepareModuleInput(
            input_layouts=(rows,), desired_input_layouts=(rows,), use_local_output=True
        )
        plan |= {"mlp": local, "mlp.router": SequenceParallel(use_local_output=True)}
        if block.mlp.gate is not None:
            plan["mlp.gate"] = SequenceParallel(use_local_output=True)
        if block.mlp.shared is not None:
            dense = {"mlp.shared": block.mlp.shared}
    for name, mlp in dense.items():
        plan[f"{name}.w1"] = ColwiseParallel()
        plan[f"{name}.w2"] = RowwiseParallel(output_layouts=rows)
        if mlp.w3 is not None:
            plan[f"{name}.w3"] = ColwiseParallel()
        if sequence_parallel:
            plan[name] = PrepareModuleInput(
                input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)
            )
    if sequence_parallel:
        plan["attention"] = PrepareModuleInput(
            input_layouts=(Shard(1), None, None), desired_input_layouts=(Replicate(), None, None)
        )
        for name in ("attention_norm", "mlp_norm", "after_attention", "after_mlp"):
            if getattr(block, name) is not None:
                plan[name] = SequenceParallel()
    # Every rank has drawn the same weights, so none are sent.
    parallelize_module(block, mesh, plan, src_data_rank=None)


def split_edges(decoder: Decoder, mesh: Any, *, sequence_parallel: bool) -> None:
    """Split embedding, last norm and head of a model or stage, as far as it has them."""
    rows = Shard(1) if sequence_parallel else Replicate()
    plan: dict[str, ParallelStyle] = {}
    if decoder.embedding is not None:
        plan["embedding"] = RowwiseParallel(input_layouts=Replicate(), output_layouts=rows)
    if decoder.norm is not None:
        if sequence_parallel:
            plan["norm"] = SequenceParallel()
        plan["head"] = ColwiseParallel(
            input_layouts=rows, output_layouts=Shard(-1), use_local_output=False
        )
    if plan:
        parallelize_module(decoder, mesh, plan, src_data_rank=None)
        decoder.tie()
