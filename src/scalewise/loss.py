"""Cross-entropy losses: what they keep of the logits, and what they move.

    LOSSES["chunked"].memory                  # an eighth of the logits at a time

The output of a large vocabulary is often the largest tensor of a step. Chunked losses compute it in
pieces of the sequence; fused ones never store it whole and overwrite logits with their gradient.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

Loss: TypeAlias = Literal["full", "chunked", "fused"]
"""All logits at once, in chunks of the sequence, or fused with the LM head."""

LOSS_WORDS: tuple[str, ...] = get_args(Loss)


class LossKind(msgspec.Struct, frozen=True, kw_only=True):
    """One way to compute the loss."""

    memory: float
    """Fraction of the logits, and of their copies and gradients, that exist at a time."""
    most_bytes: float
    """Bytes moved per logit, at most; infinite for what the software does."""
    source: str
    """Source of the numbers."""


LOSSES: dict[Loss, LossKind] = {
    "full": LossKind(memory=1.0, most_bytes=float("inf"), source="all logits at once"),
    "chunked": LossKind(
        memory=1.0 / 8.0,
        most_bytes=float("inf"),
        source="eight chunks: num_output_chunks of CEWithChunkedOutputLoss, pytorch/torchtune",
    ),
    # Written once, read for maximum and sum, overwritten by the gradient, read by the GEMMs: five
    # passes of 16 bits.
    "fused": LossKind(
        memory=1.0 / 32.0,
        most_bytes=10.0,
        source="Liger kernel, Hsu et al., arXiv 2410.10989, section 3.2: chunks in place; the size "
        "of a chunk depends on hidden over vocabulary, 1/32 for 4,096 and 128k",
    ),
}
