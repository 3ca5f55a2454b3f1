"""Activation recompute: none, the attention core, or whole blocks.

    block = with_recompute(block, "selective")

"selective" is Megatron's (Korthikanti et al., arXiv 2205.05198): everything between the projections
of attention. "full" keeps only the input of each block.
"""

from __future__ import annotations

from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper

from scalewise.measure.decoder import Block
from scalewise.strategy import Recompute


def with_recompute(block: Block, kind: Recompute) -> Block:
    """Return the block with recompute applied.

    Args:
        block: One layer, before it is sharded.
        kind: As in a Strategy.
    """
    if kind == "full":
        wrapped: Block = checkpoint_wrapper(block, preserve_rng_state=False)
        return wrapped
    block.attention.recomputed = kind == "selective"
    return block
