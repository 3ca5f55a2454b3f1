"""Low-rank adapters of a frozen decoder: LoRA (Hu et al., arXiv 2106.09685).

    freeze(block, dtype=torch.bfloat16)
    add_adapters(block, parse_tuning("lora16-qv"))

Both take modules on the meta device, before their weights are drawn. An adapter adds B (A x) / r x
alpha to W x by four kernels, as estimates count them (`physics.adapters`).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalewise.measure.decoder import Block, Mlp
from scalewise.tuning import Tuning

SCALE = 2.0
"""alpha / r: alpha is twice the rank in most recipes; speed does not depend on it."""

PLACES = {"query": "wq", "key": "wk", "value": "wv", "out": "wo"}
"""Projections of attention by the names of `tuning.TARGETS`."""


class LoraLinear(nn.Linear):
    """A frozen linear layer and its adapter."""

    def __init__(self, base: nn.Linear, rank: int) -> None:
        super().__init__(
            base.in_features, base.out_features, bias=base.bias is not None, device="meta",
            dtype=base.weight.dtype,
        )  # fmt: skip
        self.weight.requires_grad_(False)
        if self.bias is not None:
            self.bias.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.empty(rank, base.in_features, device="meta"))
        self.lora_b = nn.Parameter(torch.empty(base.out_features, rank, device="meta"))

    def forward(self, x: Tensor) -> Tensor:
        """Add what the adapter says to what the frozen layer says."""
        low = functional.linear(x, self.lora_a)
        return super().forward(x) + SCALE * functional.linear(low, self.lora_b)


def freeze(module: nn.Module, *, dtype: torch.dtype) -> None:
    """Keep parameters as they are, in the precision that computes with them."""
    module.to(dtype).requires_grad_(False)


def add_adapters(block: Block, tuning: Tuning) -> None:
    """Put adapters beside the projections of a frozen layer."""
    for target in tuning.targets:
        if target in PLACES:
            _adapt(block.attention, PLACES[target], tuning.rank)
        elif isinstance(block.mlp, Mlp):
            for name in ("w1", "w3", "w2"):
                if getattr(block.mlp, name) is not None:
                    _adapt(block.mlp, name, tuning.rank)


def _adapt(module: nn.Module, name: str, rank: int) -> None:
    setattr(module, name, LoraLinear(getattr(module, name), rank))
