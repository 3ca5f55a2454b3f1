"""Transformer models: shapes, exact parameters and FLOPs per token.

    model = load_model("llama-3-8b")         # a catalog name, a config.json, a .toml, or a Model
    model.parameters                         # 8030261248, to the last norm weight
    model.forward_flops_parts(seq=8192)      # {"qkv": ..., "attention": ..., "mlp": ..., ...}
    model.training_flops(8192, "palm")       # the convention is always named

A Model holds no weights. This file imports only `errors` and `blocks`; `load_model`
imports the catalog and `hf`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, TypeAlias, get_args

import msgspec

from scalewise.blocks import (
    MAX_LAYERS,
    MAX_ROWS,
    MAX_WIDTH,
    Mla,
    Moe,
    check_at_most,
    check_not_negative,
    check_positive,
)
from scalewise.errors import InputError, did_you_mean
from scalewise.reading import user_path

__all__ = [
    "CONVENTIONS",
    "TRAIN_PER_FORWARD",
    "Convention",
    "Mla",
    "Model",
    "Moe",
    "load_model",
]

Convention: TypeAlias = Literal["causal", "palm", "megatron", "6n"]
"""FLOP conventions of a training step; see `Model.training_flops`."""

CONVENTIONS: tuple[Convention, ...] = get_args(Convention)

# Every multiply-accumulate is two FLOP, and the backward pass does each matmul twice (once for
# the gradient of its input, once for that of its weight): Kaplan et al., arXiv 2001.08361, 2.1.
FLOP_PER_MAC = 2
TRAIN_PER_FORWARD = 3


class Model(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A decoder-only transformer, in the detail that exact counts need.

    Defaults are those of Llama: gated MLP, rotary positions, RMS norms, no biases, separate output
    head.
    """

    name: str
    """Name."""
    layers: int
    """Transformer blocks."""
    hidden: int
    """Width of the residual stream, elements."""
    heads: int
    """Query heads."""
    kv_heads: int = 0
    """Key-value heads; 0 means one for each query head."""
    head_dim: int = 0
    """Width of one head, elements; 0 means hidden / heads (with `mla`: its `value_dim`)."""
    ffn: int = 0
    """Width of the dense MLP, elements; 0 only where every layer has experts."""
    gated: bool = True
    """The MLP has three matrices (SwiGLU, GeGLU) instead of two."""
    vocab: int
    """Rows of the embedding, padding included, tokens."""
    tied: bool = False
    """The output head is the embedding, so its parameters count once."""
    positions: Literal["rotary", "learned", "alibi", "none"] = "rotary"
    """Position encoding; only "learned" has parameters."""
    max_positions: int = 0
    """Rows of a learned position table; 0 for every other kind."""
    window: int | None = None
    """Attention window of the windowed layers, tokens; None if every layer sees everything."""
    windowed_layers: int = 0
    """How many layers use the window."""
    window_kind: Literal["sliding", "chunked"] = "sliding"
    """A query sees the last `window` tokens, or those of its own chunk of `window` (Llama 4)."""
    norm: Literal["rms", "layer"] = "rms"
    """RMS norm has a weight; layer norm has a weight and a bias."""
    norm_bias: bool | None = None
    """Override the bias of the norms (MPT, PaLM: layer norm without); None means by `norm`."""
    norm_weight: bool = True
    """Learned weights in the norms; False for non-parametric norms (OLMo 1)."""
    attention_bias: bool = False
    """Bias on the query, key and value projections."""
    output_bias: bool = False
    """Bias on the attention output projection."""
    mlp_bias: bool = False
    """Bias on the matrices of the dense MLP."""
    qk_norm: bool = False
    """Queries and keys are normalized, with learned weights."""
    qk_norm_width: Literal["head", "projection"] = "head"
    """One norm weight per head element (Qwen3, Gemma 3), or per projected element (OLMo 2)."""
    post_norms: bool = False
    """Four norms a layer, before and after each half (Gemma 2 and 3, Grok-1)."""
    shared_norm: bool = False
    """One norm a layer, which feeds attention and MLP alike (PaLM, Falcon-7B)."""
    embedding_norm: bool = False
    """A norm right after the embedding (BLOOM)."""
    attention_sinks: bool = False
    """One learned logit per head in the softmax of attention (attention sink, gpt-oss)."""
    moe: Moe | None = None
    """Experts, or None for a dense model."""
    mla: Mla | None = None
    """Latent attention, or None for ordinary (grouped) heads."""
    mtp_layers: int = 0
    """Multi-token-prediction modules that training adds (DeepSeek-V3); not in `parameters`."""
    parallel_block: bool = False
    """Attention and MLP read the same input, in parallel (PaLM, GPT-NeoX, Falcon)."""
    source: str = ""
    """Source of the shape."""

    def __post_init__(self) -> None:
        """Set implied sizes, then check that the shape is possible."""
        check_positive(self, "", "layers", "hidden", "heads", "vocab")
        check_at_most(self, "", MAX_LAYERS, "layers", "mtp_layers")
        check_at_most(self, "", MAX_WIDTH, "hidden", "heads", "kv_heads", "head_dim", "ffn")
        check_at_most(self, "", MAX_ROWS, "vocab", "max_positions", "window")
        if not self.kv_heads:
            msgspec.structs.force_setattr(self, "kv_heads", self.heads)
        if not self.head_dim:
            msgspec.structs.force_setattr(self, "head_dim", self._implied_head_dim())
        if self.moe is not None and not self.moe.layers:
            whole = msgspec.structs.replace(self.moe, layers=self.layers)
            msgspec.structs.force_setattr(self, "moe", whole)
        check_positive(self, "", "kv_heads", "head_dim")
        check_not_negative(self, "", "ffn", "max_positions", "windowed_layers", "mtp_layers")
        self._check_attention()
        self._check_mlp()

    def _implied_head_dim(self) -> int:
        if self.mla is not None:
            return self.mla.value_dim
        if self.hidden % self.heads:
            message = f"hidden = {self.hidden} is not a multiple of heads = {self.heads}"
            raise InputError(
                message,
                hint="give head_dim, or correct one of the two",
            )
        return self.hidden // self.heads

    def _check_attention(self) -> None:
        if self.heads % self.kv_heads:
            message = f"heads = {self.heads} is not a multiple of kv_heads = {self.kv_heads}"
            raise InputError(
                message,
                hint="every key-value head serves the same number of query heads",
            )
        if (self.positions == "learned") != (self.max_positions > 0):
            message = (
                f"max_positions = {self.max_positions} does not fit positions = {self.positions!r}"
            )
            raise InputError(
                message,
                hint="give max_positions for learned positions only",
            )
        if (self.window is None) != (self.windowed_layers == 0):
            message = (
                f"window = {self.window} does not fit windowed_layers = {self.windowed_layers}"
            )
            raise InputError(
                message,
                hint="give both, or neither",
            )
        if self.window is not None and self.window <= 0:
            message = f"window = {self.window} must be positive"
            raise InputError(message, hint="leave it out")
        if self.windowed_layers > self.layers:
            message = (
                f"windowed_layers = {self.windowed_layers} is more than layers = {self.layers}"
            )
            raise InputError(message)
        if self.post_norms and self.shared_norm:
            message = "post_norms and shared_norm cannot both be true"
            raise InputError(message, hint="set one of them to false")

    def _check_mlp(self) -> None:
        if self.moe_layers > self.layers:
            message = f"moe.layers = {self.moe_layers} is more than layers = {self.layers}"
            raise InputError(message)
        if self.dense_layers and not self.ffn:
            message = (
                f"ffn = 0, but {self.dense_layers} of the {self.layers} layers have a dense MLP"
            )
            raise InputError(
                message,
                hint="give the width of the MLP",
            )

    # Shapes that others build on.

    @property
    def moe_layers(self) -> int:
        """Layers with experts; 0 for a dense model."""
        return self.moe.layers if self.moe is not None else 0

    @property
    def dense_layers(self) -> int:
        """Layers with a dense MLP."""
        return self.layers - self.moe_layers

    @property
    def query_key_dim(self) -> int:
        """Width of one head in the score product; only `mla` makes it differ from the value's."""
        return self.mla.nope_dim + self.mla.rope_dim if self.mla is not None else self.head_dim

    @property
    def value_dim(self) -> int:
        """Width of one head of the values."""
        return self.mla.value_dim if self.mla is not None else self.head_dim

    @property
    def query_width(self) -> int:
        """Width of all queries of a token, elements."""
        return self.heads * self.query_key_dim

    @property
    def key_width(self) -> int:
        """Width of all keys of a token, elements."""
        return self.kv_heads * self.query_key_dim

    @property
    def value_width(self) -> int:
        """Width of all values of a token, elements."""
        return self.kv_heads * self.value_dim

    @property
    def context_width(self) -> int:
        """Width of the input of the attention output projection, elements."""
        return self.heads * self.value_dim

    @property
    def mlp_matrices(self) -> int:
        """Weight matrices in one MLP or expert: 3 gated, 2 plain."""
        return 3 if self.gated else 2

    @property
    def norms_per_layer(self) -> int:
        """Norms of the full hidden width in one layer."""
        return 4 if self.post_norms else 1 if self.shared_norm else 2

    # Parameters.

    def parameter_parts(self) -> dict[str, int]:
        """Return the parameters by part.

        Returns:
            Named counts that add up to `parameters`. "head" is 0 if it is tied to the embedding;
            "embedding" includes the norm that BLOOM puts behind it.
        """
        hidden, layers = self.hidden, self.layers
        return {
            "embedding": self.vocab * hidden
            + (self._norm_size(hidden) if self.embedding_norm else 0),
            "positions": self.max_positions * hidden,
            "attention": layers * (self.attention_parameters - self._layer_norms()),
            "mlp": self.dense_layers * self.dense_mlp_parameters,
            "experts": self.moe_layers * self.expert_parameters_per_layer,
            "router": self.moe_layers * self.router_parameters,
            "shared_experts": self.moe_layers * self.shared_expert_parameters,
            "norms": layers * self._layer_norms(),
            "final_norm": self._norm_size(hidden),
            "head": 0 if self.tied else self.vocab * hidden,
        }

    @property
    def parameters(self) -> int:
        """All parameters, every expert included."""
        return sum(self.parameter_parts().values())

    @property
    def active_parameters(self) -> int:
        """Parameters that one token uses: all but the experts it does not visit."""
        parts = self.parameter_parts()
        idle = 0
        if (moe := self.moe) is not None:
            idle = parts["experts"] // moe.experts * (moe.experts - moe.experts_per_token)
        return sum(parts.values()) - idle

    @property
    def expert_parameters(self) -> int:
        """All routed experts of all layers: what expert parallelism divides."""
        return self.parameter_parts()["experts"]

    @property
    def layer_parameters(self) -> float:
        """Parameters of one layer without its routed experts, averaged over the layers.

        Another group shards the rest, `expert_parameters`.
        """
        parts = self.parameter_parts()
        names = ("attention", "mlp", "router", "shared_experts", "norms")
        return sum(parts[name] for name in names) / self.layers

    @property
    def attention_parameters(self) -> int:
        """Attention of one layer: projections, biases, sinks, and all norms of the layer."""
        sinks = self.heads if self.attention_sinks else 0
        weights = self._qkv_weights() + self._out_weights()
        return weights + self._attention_biases() + sinks + self._layer_norms()

    @property
    def dense_mlp_parameters(self) -> int:
        """The MLP of one dense layer."""
        return self._mlp_size(self.ffn, bias=self.mlp_bias) if self.ffn else 0

    @property
    def expert_parameters_per_layer(self) -> int:
        """All routed experts of one MoE layer; 0 for a dense model."""
        if (moe := self.moe) is None:
            return 0
        return moe.experts * self._mlp_size(moe.ffn, bias=moe.bias)

    @property
    def shared_expert_parameters(self) -> int:
        """The shared experts of one MoE layer, without their gate; 0 where there are none."""
        if (moe := self.moe) is None:
            return 0
        return moe.shared_experts * self._mlp_size(moe.shared_ffn, bias=False)

    @property
    def router_parameters(self) -> int:
        """The router of one MoE layer, with the gate of the shared expert; 0 without experts."""
        if (moe := self.moe) is None:
            return 0
        return self._router_weights() + (moe.experts if moe.bias else 0)

    @property
    def mtp_parameters(self) -> int:
        """Parameters of the multi-token-prediction modules; `parameters` leaves them out.

        Each is one more layer of the last kind, a projection of 2 hidden to hidden, a norm of both
        of its inputs, and one before the head. It shares embedding and head with the model
        (DeepSeek-V3, arXiv 2412.19437, section 2.2).
        """
        block = self.dense_mlp_parameters
        if self.moe is not None:
            block = self.router_parameters + self.shared_expert_parameters
            block += self.expert_parameters_per_layer
        join = 2 * self.hidden**2 + 3 * self._norm_size(self.hidden)
        return self.mtp_layers * (self.attention_parameters + block + join)

    @property
    def embedding_parameters(self) -> int:
        """The token and position tables."""
        parts = self.parameter_parts()
        return parts["embedding"] + parts["positions"]

    @property
    def head_parameters(self) -> int:
        """The output head's own parameters; 0 where it is tied to the embedding."""
        return self.parameter_parts()["head"]

    def _qkv_weights(self) -> int:
        if (mla := self.mla) is None:
            return self.hidden * (self.query_width + self.key_width + self.value_width)
        query = self.hidden * self.query_width
        if mla.query_rank:
            query = mla.query_rank * (self.hidden + self.query_width)
        latent = self.hidden * (mla.kv_rank + mla.rope_dim)
        return query + latent + mla.kv_rank * self.heads * (mla.nope_dim + mla.value_dim)

    def _out_weights(self) -> int:
        return self.context_width * self.hidden

    def _attention_biases(self) -> int:
        qkv = self.query_width + self.key_width + self.value_width
        if (mla := self.mla) is not None:
            # Only the projections into the latents may carry one.
            qkv = mla.query_rank + mla.kv_rank + mla.rope_dim
        return qkv * self.attention_bias + self.hidden * self.output_bias

    def _mlp_weights(self, width: int) -> int:
        return self.mlp_matrices * self.hidden * width

    def _mlp_size(self, width: int, *, bias: bool) -> int:
        biases = (self.mlp_matrices - 1) * width + self.hidden
        return self._mlp_weights(width) + (biases if bias else 0)

    def _router_weights(self) -> int:
        if (moe := self.moe) is None:
            return 0
        return self.hidden * (moe.experts + moe.shared_gate)

    def _norm_size(self, width: int) -> int:
        if not self.norm_weight:
            return 0
        bias = self.norm == "layer" if self.norm_bias is None else self.norm_bias
        return width * (1 + bias)

    def _layer_norms(self) -> int:
        total = self.norms_per_layer * self._norm_size(self.hidden)
        if self.qk_norm:
            per_head = self.qk_norm_width == "head"
            width = 2 * self.head_dim if per_head else self.query_width + self.key_width
            total += self._norm_size(width)
        if (mla := self.mla) is not None:
            total += self._norm_size(mla.query_rank) + self._norm_size(mla.kv_rank)
        return total

    # FLOPs, all for one token.

    def attention_span(self, seq: float) -> float:
        """Return the mean number of keys per query under the causal mask, over layers.

        A query at position i of a full layer has i keys, seq / 2 on average. With a sliding window
        w < seq the first w queries have w / 2 and the rest w: w - w^2 / (2 seq). Chunks of w are
        short sequences of their own.

        Args:
            seq: Sequence length, tokens.

        Returns:
            Keys, tokens.
        """
        _check_sequence(seq)
        full = seq / 2
        if self.window is None or self.window >= seq:
            return full
        w = self.window
        if self.window_kind == "sliding":
            windowed = w - w * w / (2 * seq)
        else:
            chunks, rest = divmod(seq, w)
            windowed = (chunks * w * w + rest * rest) / (2 * seq)
        share = self.windowed_layers / self.layers
        return share * windowed + (1 - share) * full

    def forward_flops_parts(self, seq: int, span: float | None = None) -> dict[str, float]:
        """Return the FLOP of the forward pass per token, by matmul.

        Norms, activations and the embedding lookup are left out: they are memory-bound, and no
        convention counts them.

        Args:
            seq: Sequence length, tokens; only "attention" depends on it.
            span: Keys a token attends to, mean; None for one document per sequence.

        Returns:
            FLOP per token by part; only the experts a token visits are counted. "mtp" has all of
            the multi-token-prediction modules: their layer, projection and pass through the head.
        """
        parts = {name: float(FLOP_PER_MAC * n) for name, n in self._matmul_parts().items()}
        scores_and_values = self.query_width + self.context_width
        keys = self.attention_span(seq) if span is None else span
        attention = FLOP_PER_MAC * scores_and_values * keys
        mtp = self.mtp_layers * (FLOP_PER_MAC * self._mtp_weights() + attention)
        whole = self.layers * attention
        return {"qkv": parts.pop("qkv"), "attention": whole, **parts, "mtp": mtp}

    def training_flops(
        self, seq: int, convention: Convention = "causal", span: float | None = None
    ) -> float:
        """Count the FLOP of forward and backward, per token, without any recomputation.

        Published utilizations differ by over ten percent for the choice of convention alone, so
        it always has a name:

        - "causal": 3 x `forward_flops_parts`; 6 per matmul parameter, head included and lookup
          not, and the attention the causal mask and the windows leave. What must be computed.
        - "palm": 6 N + 12 layers heads head_dim seq, N being all parameters and attention counted
          as if nothing were masked (Chowdhery et al., arXiv 2204.02311, appendix B).
        - "megatron": 72 l h^2 (1 + s / 6h + V / 12 h l), which is 6 per matmul parameter with the
          logits, and full attention (Narayanan et al., arXiv 2104.04473, section 5.1, without
          its recomputation); here for any head and MLP shape.
        - "6n": 6 N, attention left out (Kaplan et al., arXiv 2001.08361).

        With experts, N is `active_parameters`. Only "causal" has the multi-token-prediction
        modules.

        Args:
            seq: Sequence length, tokens.
            convention: One of `CONVENTIONS`.
            span: Keys a token attends to, mean, where sequences hold several documents: for
                "causal" alone.

        Returns:
            FLOP per token.

        Raises:
            InputError: If the convention is unknown or seq is not positive.
        """
        _check_sequence(seq)
        step = FLOP_PER_MAC * TRAIN_PER_FORWARD
        full_attention = step * self.layers * (self.query_width + self.context_width) * seq
        if convention == "causal":
            return TRAIN_PER_FORWARD * sum(self.forward_flops_parts(seq, span).values())
        if convention == "palm":
            return float(step * self.active_parameters + full_attention)
        if convention == "megatron":
            return float(step * self.matmul_parameters + full_attention)
        if convention == "6n":
            return float(step * self.active_parameters)
        message = f"unknown convention {convention}"
        raise InputError(
            message,
            hint=did_you_mean(str(convention), CONVENTIONS),
        )

    @property
    def matmul_parameters(self) -> int:
        """Parameters that multiply each token: visited experts, and the head even if tied."""
        return sum(self._matmul_parts().values())

    def _mtp_weights(self) -> int:
        """Weights that multiply each token in one multi-token-prediction module."""
        block = self._mlp_weights(self.ffn)
        if (moe := self.moe) is not None:
            block = self._router_weights() + moe.experts_per_token * self._mlp_weights(moe.ffn)
            block += moe.shared_experts * self._mlp_weights(moe.shared_ffn)
        join = 2 * self.hidden**2 + self.vocab * self.hidden
        return self._qkv_weights() + self._out_weights() + block + join

    def _matmul_parts(self) -> dict[str, int]:
        parts = {
            "qkv": self.layers * self._qkv_weights(),
            "attention_out": self.layers * self._out_weights(),
            "mlp": self.dense_layers * self._mlp_weights(self.ffn),
            "router": self.moe_layers * self._router_weights(),
            "experts": 0,
            "shared_experts": 0,
            "head": self.vocab * self.hidden,
        }
        if (moe := self.moe) is not None:
            shared = moe.shared_experts * self._mlp_weights(moe.shared_ffn)
            parts["experts"] = moe.layers * moe.experts_per_token * self._mlp_weights(moe.ffn)
            parts["shared_experts"] = moe.layers * shared
        return parts


def load_model(name_or_path: str | Path | Model) -> Model:
    """Return a model by catalog name, or from a file.

    Args:
        name_or_path: A catalog name or alias ("llama-3-8b", "meta-llama/Meta-Llama-3-8B"); a
            Hugging Face config.json or the directory that holds it; a .toml file with the fields
            of Model; or a Model, which is returned unchanged.

    Returns:
        The model.

    Raises:
        InputError: If there is no such name or file, or the file does not describe a model.
    """
    if isinstance(name_or_path, Model):
        return name_or_path
    path = user_path(name_or_path)
    word = str(name_or_path)
    # A word without a suffix is a catalog name even if a directory has the same name.
    is_path = isinstance(name_or_path, Path) or word.startswith((".", "~", "/"))
    if is_path or path.suffix == ".json" or ("/" in word and path.exists()):
        if path.is_dir():
            path = path / "config.json"
        if not path.is_file():
            message = f"{path}: no such model file"
            raise InputError(
                message,
                hint="give a config.json, a directory that holds one, or a .toml file",
            )
        word = str(path)
        if path.suffix != ".toml":
            from scalewise.hf import read_hf_config

            return read_hf_config(path)

    from scalewise import catalog

    return catalog.load("models", word, Model)


def _check_sequence(seq: float) -> None:
    if seq <= 0:
        message = f"seq = {seq} must be positive"
        raise InputError(message, hint="for example seq = 4096")
