"""Activation recompute: none, the attention core, or whole blocks.

    block = with_recompute(block, "1of4", layer=4)

"selective" and "attention" are Megatron's (Korthikanti et al., arXiv 2205.05198): everything
between the projections of attention. "full" keeps only the input of each block, "1of4" that of
every fourth.
"""

from __future__ import annotations

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from scalewise.measure.decoder import Block
from scalewise.recompute import recomputed_blocks
from scalewise.strategy import Recompute


def with_recompute(block: Block, kind: Recompute, *, layer: int) -> Block:
    """Return the block with recompute applied.

    Args:
        block: One layer, before it is sharded.
        kind: As in a Strategy.
        layer: Its place in the model, from 0.
    """
    blocks = recomputed_blocks(kind)
    if blocks is not None and layer % blocks[1] < blocks[0]:
        wrapped: Block = checkpoint_wrapper(block, preserve_rng_state=False)
        return wrapped
    block.attention.recomputed = kind in ("selective", "attention")
    return block
