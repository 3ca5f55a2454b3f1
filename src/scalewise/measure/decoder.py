"""The decoder-only transformer that is trained, as PyTorch modules built from a Model.

    decoder = Decoder(load_model("tiny"), seq_len=256)
    logits = decoder(tokens)                                  # (batch, sequence, vocab)
    stage = Decoder(model, seq_len=256, layers=range(2), last=False)    # the first of two stages

Modules have the shape that PyTorch's parallelism expects: separate query, key and value
projections, blocks in a ModuleDict under their global index, and no knowledge of ranks. Weights are
drawn per parameter, from the seed and the parameter's name, so that every strategy starts from the
same numbers.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from scalewise.model import Model

INIT_STD = 0.02
"""Standard deviation of fresh weights (GPT-2's, which most decoders kept)."""

ROPE_BASE = 10_000.0
"""Base of the rotary angles; speed does not depend on it (Su et al., arXiv 2104.09864)."""

NORM_EPS = 1e-5

Exchange = Callable[[nn.Module, Tensor, list[int]], Tensor]
"""Experts, rows sorted by expert, and rows of every expert of the layer -> rows in that order."""


def _norm(model: Model, width: int) -> nn.Module:
    """A norm of the model's kind."""
    bias = model.norm == "layer" if model.norm_bias is None else model.norm_bias
    if model.norm == "rms" and not bias:
        return nn.RMSNorm(width, eps=NORM_EPS, elementwise_affine=model.norm_weight)
    return nn.LayerNorm(width, eps=NORM_EPS, elementwise_affine=model.norm_weight, bias=bias)


class Attention(nn.Module):
    """Causal grouped-query attention through PyTorch's fused kernel."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.head_dim = model.head_dim
        self.rotary = model.positions == "rotary"
        bias = model.attention_bias
        self.wq = nn.Linear(model.hidden, model.query_width, bias=bias)
        self.wk = nn.Linear(model.hidden, model.key_width, bias=bias)
        self.wv = nn.Linear(model.hidden, model.value_width, bias=bias)
        self.wo = nn.Linear(model.context_width, model.hidden, bias=model.output_bias)
        self.per_head = model.qk_norm_width == "head"
        self.q_norm: nn.Module | None = None
        self.k_norm: nn.Module | None = None
        if model.qk_norm:
            self.q_norm = _norm(model, self.head_dim if self.per_head else model.query_width)
            self.k_norm = _norm(model, self.head_dim if self.per_head else model.key_width)
        self.recomputed = False
        """Whether backward computes the core again (selective recompute)."""

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Attend within each sequence of `x` (batch, sequence, hidden)."""
        q, k, v = self.wq(x), self.wk(x), self.wv(x)
        if self.q_norm is not None and self.k_norm is not None and not self.per_head:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.recomputed and torch.is_grad_enabled():
            from torch.utils.checkpoint import checkpoint

            context = checkpoint(
                self._core, q, k, v, cos, sin, use_reentrant=False, preserve_rng_state=False
            )
        else:
            context = self._core(q, k, v, cos, sin)
        out: Tensor = self.wo(context)
        return out

    def _core(self, q: Tensor, k: Tensor, v: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Everything between the projections: what selective recompute repeats."""
        batch, seq_len = q.shape[0], q.shape[1]
        # -1 heads: under tensor parallelism a rank holds only some of them.
        q, k, v = (t.view(batch, seq_len, -1, self.head_dim) for t in (q, k, v))
        if self.q_norm is not None and self.k_norm is not None and self.per_head:
            q, k = self.q_norm(q), self.k_norm(k)
        if self.rotary:
            q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        shared = q.shape[1] // k.shape[1]
        if shared > 1:
            k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
        out = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return out.transpose(1, 2).reshape(batch, seq_len, -1)


class Mlp(nn.Module):
    """The dense half of a block: gated (SwiGLU) or plain (GELU)."""

    def __init__(self, model: Model, width: int, *, bias: bool) -> None:
        super().__init__()
        self.w1 = nn.Linear(model.hidden, width, bias=bias)
        self.w3 = nn.Linear(model.hidden, width, bias=bias) if model.gated else None
        self.w2 = nn.Linear(width, model.hidden, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        """Transform every token on its own."""
        if self.w3 is None:
            out: Tensor = self.w2(functional.gelu(self.w1(x)))
        else:
            out = self.w2(functional.silu(self.w1(x)) * self.w3(x))
        return out


class Experts(nn.Module):
    """Grouped MLPs: the routed experts of a layer, or those of them that a rank holds.

    Weights are stacked, (experts, out, in), so that a layer has few parameters, however many
    experts there are.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        assert model.moe is not None
        count, width, hidden = model.moe.experts, model.moe.ffn, model.hidden
        self.w1 = nn.Parameter(torch.empty(count, width, hidden))
        self.w3 = nn.Parameter(torch.empty(count, width, hidden)) if model.gated else None
        self.w2 = nn.Parameter(torch.empty(count, hidden, width))
        biased = model.moe.bias
        self.w1_bias = nn.Parameter(torch.empty(count, width)) if biased else None
        self.w3_bias = nn.Parameter(torch.empty(count, width)) if biased and model.gated else None
        self.w2_bias = nn.Parameter(torch.empty(count, hidden)) if biased else None

    def forward(self, rows: Tensor, counts: list[int]) -> Tensor:
        """Transform rows that are sorted by expert, `counts` of them for each."""
        up = grouped_linear(rows, self.w1, self.w1_bias, counts)
        if self.w3 is None:
            inner = functional.gelu(up)
        else:
            inner = functional.silu(up) * grouped_linear(rows, self.w3, self.w3_bias, counts)
        return grouped_linear(inner, self.w2, self.w2_bias, counts)


def grouped_linear(rows: Tensor, weight: Tensor, bias: Tensor | None, counts: list[int]) -> Tensor:
    """Multiply each group of rows by its own matrix: at once if groups are equal, else in turn.

    Args:
        rows: Sorted by group, (rows, in).
        weight: Of every group, (groups, out, in).
        bias: Of every group, (groups, out), or None.
        counts: Rows of every group.
    """
    if len(set(counts)) == 1:
        grouped = rows.view(len(counts), counts[0], rows.shape[1])
        out = torch.bmm(grouped, weight.transpose(1, 2))
        return (out if bias is None else out + bias[:, None]).flatten(0, 1)
    biases = [None] * len(counts) if bias is None else bias.unbind()
    parts = zip(rows.split(counts), weight.unbind(), biases, strict=True)
    # Groups without rows too: a weight without a gradient would be missing in its reduction.
    return torch.cat([functional.linear(*part) for part in parts])


class MoeMlp(nn.Module):
    """The mixture-of-experts half of a block: router, routed experts, shared experts.

    Each token visits its top-k experts, weighted by the softmax of their logits (Mixtral, arXiv
    2401.04088, section 2.1). No token is dropped.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        moe = model.moe
        assert moe is not None
        self.per_token = moe.experts_per_token
        self.count = moe.experts
        self.router = nn.Linear(model.hidden, moe.experts, bias=moe.bias)
        self.experts = Experts(model)
        # Shared experts together are one MLP of their joint width.
        width = moe.shared_experts * moe.shared_ffn
        self.shared = Mlp(model, width, bias=False) if width else None
        self.gate = nn.Linear(model.hidden, 1, bias=False) if moe.shared_gate else None
        self.balanced = True
        """Whether tokens go to experts in turn, whatever the router says."""
        self.exchange: Exchange | None = None
        """Sends rows to the ranks of their experts and back; None where a rank holds them all."""

    def forward(self, x: Tensor) -> Tensor:
        """Send every token of `x` (batch, sequence, hidden) through its experts."""
        logits = self.router(x).flatten(0, 1)
        if self.balanced:
            chosen = experts_in_turn(len(logits), self.count, self.per_token, x.device)
            each, rest = divmod(chosen.numel(), self.count)
            counts = [each + (expert < rest) for expert in range(self.count)]
        else:
            chosen = logits.topk(self.per_token).indices
            counts = chosen.flatten().bincount(minlength=self.count).tolist()
        weights = logits.gather(1, chosen).float().softmax(1).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        rows = x.flatten(0, 1)[order // self.per_token]
        if self.exchange is None:
            rows = self.experts(rows, counts)
        else:
            rows = self.exchange(self.experts, rows, counts)
        rows = rows[order.argsort()].view(len(logits), self.per_token, -1)
        out = torch.bmm(weights[:, None], rows.to(x.dtype)).view_as(x)
        if self.shared is None:
            return out
        said = self.shared(x)
        out = out + (said if self.gate is None else self.gate(x).sigmoid() * said)
        return out


def experts_in_turn(tokens: int, experts: int, per_token: int, device: Any) -> Tensor:
    """Experts of every token, (tokens, per_token), dealt in turn so that all get the same rows.

    Benchmarks force such a balance, because a router that is not trained would measure chance
    (Megatron-LM: `--moe-router-force-load-balancing`).

    >>> experts_in_turn(4, 4, 2, "cpu").tolist()
    [[0, 1], [2, 3], [0, 1], [2, 3]]
    """
    return (torch.arange(tokens * per_token, device=device) % experts).view(tokens, per_token)


def has_experts(model: Model, layer: int) -> bool:
    """Return whether a layer, counted from 0, has experts.

    Dense layers are the first ones, or lie between those with experts (Llama 4 Maverick: every
    second layer has experts, from the second on).
    """
    if model.moe is None:
        return False
    if model.moe.dense == "first":
        return layer >= model.dense_layers
    # The expert layers up to and with this one, less those before it.
    share = model.moe_layers
    return (layer + 1) * share // model.layers > layer * share // model.layers


class Block(nn.Module):
    """One layer: attention and MLP around the residual stream."""

    def __init__(self, model: Model, *, experts: bool = False) -> None:
        super().__init__()
        self.attention_norm = _norm(model, model.hidden)
        self.attention = Attention(model)
        self.mlp_norm = None if model.shared_norm else _norm(model, model.hidden)
        self.mlp = MoeMlp(model) if experts else Mlp(model, model.ffn, bias=model.mlp_bias)
        self.after_attention = _norm(model, model.hidden) if model.post_norms else None
        self.after_mlp = _norm(model, model.hidden) if model.post_norms else None
        self.parallel = model.parallel_block

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Add what attention and MLP say about `x`."""
        normed = self.attention_norm(x)
        attended = self.attention(normed, cos, sin)
        if self.after_attention is not None:
            attended = self.after_attention(attended)
        base = x if self.parallel else x + attended
        if self.mlp_norm is not None:
            said = self.mlp(self.mlp_norm(base))
        else:
            said = self.mlp(normed if self.parallel else self.attention_norm(base))
        if self.after_mlp is not None:
            said = self.after_mlp(said)
        out: Tensor = x + attended + said if self.parallel else base + said
        return out


class Decoder(nn.Module):
    """A whole model, or the consecutive layers of it that one pipeline stage holds."""

    def __init__(
        self,
        model: Model,
        *,
        seq_len: int,
        layers: Iterable[int] | None = None,
        first: bool = True,
        last: bool = True,
    ) -> None:
        super().__init__()
        self.model = model
        self.seq_len = seq_len
        self.embedding = nn.Embedding(model.vocab, model.hidden) if first else None
        learned = first and model.positions == "learned"
        self.positions = nn.Embedding(model.max_positions, model.hidden) if learned else None
        named = first and model.embedding_norm
        self.embedding_norm = _norm(model, model.hidden) if named else None
        chosen = range(model.layers) if layers is None else layers
        self.layers = nn.ModuleDict(
            {str(index): Block(model, experts=has_experts(model, index)) for index in chosen}
        )
        self.norm = _norm(model, model.hidden) if last else None
        self.head = nn.Linear(model.hidden, model.vocab, bias=False) if last else None
        self._angles: tuple[Tensor, Tensor] | None = None
        self.tie()

    def tie(self) -> None:
        """Make the head share the embedding's weights, where the model says so."""
        if self.model.tied and self.head is not None and self.embedding is not None:
            self.head.weight = self.embedding.weight

    def angles(self, device: Any) -> tuple[Tensor, Tensor]:
        """The rotary angles, computed once."""
        if self._angles is None or self._angles[0].device != device:
            self._angles = rotary_angles(self.model.head_dim, self.seq_len, device)
        return self._angles

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (first stage) or hidden states to logits (last stage) or hidden states."""
        cos, sin = self.angles(x.device)
        if self.embedding is not None:
            tokens = x
            x = self.embedding(tokens)
            if self.positions is not None:
                x = x + self.positions.weight[: tokens.shape[1]]
            if self.embedding_norm is not None:
                x = self.embedding_norm(x)
        for block in self.layers.values():
            x = block(x, cos, sin)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x))
        return x


def rotary_angles(head_dim: int, seq_len: int, device: Any) -> tuple[Tensor, Tensor]:
    """Cosines and sines of the rotary angles, (sequence, head_dim / 2) each."""
    even = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32)
    rates = ROPE_BASE ** (-even / head_dim)
    angles = torch.outer(torch.arange(seq_len, device=device, dtype=torch.float32), rates)
    return torch.cos(angles), torch.sin(angles)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn pairs of elements of `x` (batch, sequence, heads, head_dim) by their angles."""
    a, b = x.float().chunk(2, dim=-1)
    cos, sin = cos[None, :, None, :], sin[None, :, None, :]
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1).to(x.dtype)


def loss_of(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy of the next token, computed in 32 bits."""
    return functional.cross_entropy(logits.float().flatten(0, 1), targets.flatten())


def materialize(module: nn.Module, prefix: str, *, device: Any, seed: int) -> None:
    """Give a module built on the meta device its memory and its first weights.

    Every parameter is drawn from a generator of its own, seeded by its full name: a rank that
    holds a part of the model starts with the numbers of the whole.

    Args:
        module: Fresh from the meta device.
        prefix: Its name in the whole model, with a trailing dot, or "".
        device: Where the weights shall live.
        seed: Of the run.
    """
    module.to_empty(device=device)
    generator = torch.Generator(device=device)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            full = prefix + name
            if full.endswith(("bias", "lora_b")):
                parameter.zero_()
            elif "norm" in full.split(".")[-2] or "after_" in full:
                parameter.fill_(1.0)
            else:
                # 32 bits: of a longer seed, CPU generators ignore the rest.
                generator.manual_seed(zlib.crc32(f"{seed} {full}".encode()))
                parameter.normal_(0.0, INIT_STD, generator=generator)
