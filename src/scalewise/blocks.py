"""Blocks that only some models have: experts and latent attention.

    Moe(experts=8, experts_per_token=2, ffn=14336)
    Mla(kv_rank=512, nope_dim=128, rope_dim=64, value_dim=128)

`Model` has them as fields, and `scalewise.model` exports them.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from scalewise.errors import InputError

MAX_LAYERS = 10_000
"""Limit of layers: the deepest published models have 126 (Llama 3.1 405B) to 1,000 (DeepNet)."""

MAX_WIDTH = 1 << 24
"""Limit of the widths and counts of one layer."""

MAX_ROWS = 1 << 30
"""Limit of the rows of an embedding, and of a position."""


class Moe(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The mixture-of-experts half of a Model."""

    experts: int
    """Routed experts in one MoE layer."""
    experts_per_token: int
    """Routed experts that each token visits."""
    ffn: int
    """Width of one routed expert, elements."""
    shared_experts: int = 0
    """Experts every token visits beside the routed ones."""
    shared_ffn: int = 0
    """Width of one shared expert, elements; 0 means as wide as a routed one."""
    shared_gate: bool = False
    """A learned scalar gate on the shared expert (Qwen2-MoE)."""
    bias: bool = False
    """Bias vectors in the router and in every expert (gpt-oss)."""
    layers: int = 0
    """How many layers carry experts; 0 means all of them. The others are dense."""
    dense: Literal["first", "alternating"] = "first"
    """Place of the dense layers: the first ones (DeepSeek), or spread evenly (Llama 4)."""

    def __post_init__(self) -> None:
        """Check the shape, and make the implied width explicit."""
        if self.shared_experts and not self.shared_ffn:
            msgspec.structs.force_setattr(self, "shared_ffn", self.ffn)
        check_positive(self, "moe", "experts", "experts_per_token", "ffn")
        check_not_negative(self, "moe", "shared_experts", "shared_ffn", "layers")
        widths = ("experts", "experts_per_token", "ffn", "shared_experts", "shared_ffn")
        check_at_most(self, "moe", MAX_WIDTH, *widths)
        check_at_most(self, "moe", MAX_LAYERS, "layers")
        if self.experts_per_token > self.experts:
            message = (
                f"moe.experts_per_token = {self.experts_per_token} is more than "
                f"moe.experts = {self.experts}"
            )
            raise InputError(
                message,
                hint=f"use experts_per_token = {self.experts} or fewer",
            )


class Mla(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank queries and keys."""

    query_rank: int = 0
    """Rank of the query projection; 0 means a single full matrix (DeepSeek-V2-Lite)."""
    kv_rank: int
    """Rank of the latent that keys and values are made from."""
    nope_dim: int
    """Width of the query-key part without positions, per head."""
    rope_dim: int
    """Width of the query-key part with rotary positions, per head; the key's is shared by all."""
    value_dim: int
    """Width of a value, per head."""

    def __post_init__(self) -> None:
        """Check the shape."""
        check_positive(self, "mla", "kv_rank", "nope_dim", "rope_dim", "value_dim")
        check_not_negative(self, "mla", "query_rank")
        check_at_most(
            self, "mla", MAX_WIDTH, "query_rank", "kv_rank", "nope_dim", "rope_dim", "value_dim"
        )


def check_positive(shape: msgspec.Struct, prefix: str, *fields: str) -> None:
    """Raise an InputError that names the first field that is not positive."""
    for field in fields:
        value = getattr(shape, field)
        if value <= 0:
            dotted = f"{prefix}.{field}" if prefix else field
            message = f"{dotted} = {value} must be positive"
            raise InputError(message)


def check_not_negative(shape: msgspec.Struct, prefix: str, *fields: str) -> None:
    """Raise an InputError that names the first field that is negative."""
    for field in fields:
        value = getattr(shape, field)
        if value < 0:
            dotted = f"{prefix}.{field}" if prefix else field
            message = f"{dotted} = {value} must not be negative"
            raise InputError(message)


def check_at_most(shape: msgspec.Struct, prefix: str, limit: int, *fields: str) -> None:
    """Raise an InputError that names the first field above a limit; None passes."""
    for field in fields:
        value = getattr(shape, field)
        if value is not None and value > limit:
            dotted = f"{prefix}.{field}" if prefix else field
            # Numbers of many digits are no sentence, and no float.
            shown = f"{value:.4g}" if value < 10**300 else "a number of over 300 digits"
            raise InputError(f"{dotted} = {shown} must be at most {limit:,}")
