"""Model shapes as Megatron-LM's flags, and back.

Names are those of `megatron/training/arguments.py`, megatron-core 0.19.2, with underscores.
"""

from __future__ import annotations

import ast
from typing import Any

from scalewise.blocks import Mla, Moe
from scalewise.errors import InputError
from scalewise.frameworks.table import Facts, Joint, Said, Settings, whole
from scalewise.model import Model

_REFUSED = {
    "post_norms": (False, "Megatron-LM has two norms a layer"),
    "shared_norm": (False, "Megatron-LM has two norms a layer"),
    "parallel_block": (False, "Megatron-LM computes attention before the MLP"),
    "embedding_norm": (False, "Megatron-LM has no norm behind the embedding"),
    "norm_weight": (True, "Megatron-LM's norms have weights"),
    "output_bias": (False, "--add-qkv-bias leaves the output projection without a bias"),
    "mlp_bias": (False, "biases of the MLP come with those of attention"),
}
"""Fields of a model with the only value that flags can say, and why."""

KEYS = (
    "num_layers", "hidden_size", "num_attention_heads", "group_query_attention", "num_query_groups",
    "kv_channels", "ffn_hidden_size", "swiglu", "normalization", "add_bias_linear", "add_qkv_bias",
    "untie_embeddings_and_output_weights", "position_embedding_type", "max_position_embeddings",
    "vocab_size", "padded_vocab_size", "make_vocab_size_divisible_by", "qk_layernorm",
    "multi_latent_attention", "q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim",
    "v_head_dim", "num_experts", "moe_router_topk", "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size", "moe_shared_expert_gate", "moe_layer_freq",
    "moe_token_dispatcher_type", "moe_grouped_gemm", "mtp_num_layers", "window_size",
    "softmax_type",
)  # fmt: skip


def write_model(facts: Facts, said: Said) -> None:
    """Write the flags of a model."""
    model: Model = facts["model"]
    s = said.settings
    s |= {"num_layers": model.layers, "hidden_size": model.hidden,
          "num_attention_heads": model.heads}  # fmt: skip
    if model.ffn:
        s["ffn_hidden_size"] = model.ffn
    if model.kv_heads != model.heads and model.mla is None:
        s |= {"group_query_attention": True, "num_query_groups": model.kv_heads}
    if model.mla is None and model.head_dim * model.heads != model.hidden:
        s["kv_channels"] = model.head_dim
    s["swiglu"] = model.gated
    s["normalization"] = "RMSNorm" if model.norm == "rms" else "LayerNorm"
    _biases(model, said)
    s["untie_embeddings_and_output_weights"] = not model.tied
    positions = {"rotary": "rope", "learned": "learned_absolute", "none": "none"}
    if model.positions not in positions:
        said.refuse("model.positions", model.positions, "Megatron-LM has rope, learned or none")
    s["position_embedding_type"] = positions.get(model.positions, "none")
    if model.max_positions and facts["seq_len"] > model.max_positions:
        said.refuse("seq_len", facts["seq_len"], f"learned positions end at {model.max_positions}")
    s["max_position_embeddings"] = model.max_positions or facts["seq_len"]
    s |= {"vocab_size": model.vocab, "make_vocab_size_divisible_by": 1}
    if model.qk_norm:
        s["qk_layernorm"] = True
        if model.qk_norm_width != "head":
            said.refuse("model.qk_norm_width", model.qk_norm_width, "--qk-layernorm is per head")
    if model.attention_sinks:
        s["softmax_type"] = "learnable"
    if model.mtp_layers:
        s["mtp_num_layers"] = model.mtp_layers
    if model.window is not None:
        if model.window_kind != "sliding" or model.windowed_layers != model.layers:
            said.refuse("model.windowed_layers", model.windowed_layers,
                        "--window-size holds for all layers")  # fmt: skip
        s["window_size"] = f"{model.window},0"
    if model.norm_bias is not None and model.norm_bias != (model.norm == "layer"):
        said.refuse("model.norm_bias", model.norm_bias, "layer norm has a bias in Megatron-LM")
    for name, (value, why) in _REFUSED.items():
        if getattr(model, name) != value and not (
            name in ("output_bias", "mlp_bias") and s["add_bias_linear"]
        ):
            said.refuse(f"model.{name}", getattr(model, name), why)
    if model.mla is not None:
        s |= _mla_flags(model.mla)
    if model.moe is not None:
        _write_experts(model, model.moe, said)


def _biases(model: Model, said: Said) -> None:
    every = model.attention_bias and model.output_bias and (model.mlp_bias or not model.ffn)
    said.settings["add_bias_linear"] = every
    if model.attention_bias and not every:
        said.settings["add_qkv_bias"] = True


def _mla_flags(mla: Mla) -> Settings:
    flags: Settings = {
        "multi_latent_attention": True,
        "kv_lora_rank": mla.kv_rank,
        "qk_head_dim": mla.nope_dim,
        "qk_pos_emb_head_dim": mla.rope_dim,
        "v_head_dim": mla.value_dim,
    }
    return flags | ({"q_lora_rank": mla.query_rank} if mla.query_rank else {})


def _write_experts(model: Model, moe: Moe, said: Said) -> None:
    s = said.settings
    s |= {"num_experts": moe.experts, "moe_router_topk": moe.experts_per_token,
          "moe_ffn_hidden_size": moe.ffn, "moe_token_dispatcher_type": "alltoall",
          "moe_grouped_gemm": True}  # fmt: skip
    if moe.shared_experts:
        s["moe_shared_expert_intermediate_size"] = moe.shared_experts * moe.shared_ffn
    if moe.shared_gate:
        s["moe_shared_expert_gate"] = True
    if moe.bias != bool(s["add_bias_linear"]):
        said.refuse("model.moe.bias", moe.bias, "--disable-bias-linear is of experts too")
    if moe.layers != model.layers:
        dense = model.layers - moe.layers
        if moe.dense == "first":
            s["moe_layer_freq"] = f"([0]*{dense}+[1]*{moe.layers})"
        elif dense == moe.layers:
            s["moe_layer_freq"] = f"([0,1]*{moe.layers})"
        else:
            said.refuse("model.moe.layers", moe.layers, "dense layers are not first or every other")


def read_model(settings: Settings) -> Facts:
    """Read the flags of a model; nothing where they leave its shape open."""
    layers, hidden = whole(settings.get("num_layers")), whole(settings.get("hidden_size"))
    heads = whole(settings.get("num_attention_heads"))
    if layers is None or hidden is None or heads is None:
        return {}
    ffn = whole(settings.get("ffn_hidden_size"))
    gated = bool(settings.get("swiglu"))
    vocab = whole(settings.get("vocab_size")) or whole(settings.get("padded_vocab_size"))
    every = settings.get("add_bias_linear", True) is not False
    qkv = bool(settings.get("add_qkv_bias")) or every
    grouped = bool(settings.get("group_query_attention"))
    positions = {"rope": "rotary", "learned_absolute": "learned", "none": "none"}.get(
        str(settings.get("position_embedding_type", "learned_absolute")), "rotary"
    )
    norm = "rms" if settings.get("normalization") == "RMSNorm" else "layer"
    window = _window(settings.get("window_size"))
    fields: dict[str, Any] = {
        "name": "megatron-lm",
        "source": "arguments of Megatron-LM",
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": (whole(settings.get("num_query_groups")) or 1) if grouped else heads,
        "head_dim": whole(settings.get("kv_channels")) or 0,
        "ffn": ffn if ffn is not None else 4 * hidden,
        "gated": gated,
        "vocab": vocab or 1,
        "tied": not settings.get("untie_embeddings_and_output_weights"),
        "positions": positions,
        "max_positions": 0,
        "norm": norm,
        "attention_bias": qkv,
        "output_bias": every,
        "mlp_bias": every,
        "qk_norm": bool(settings.get("qk_layernorm")),
        "attention_sinks": settings.get("softmax_type") == "learnable",
        "mtp_layers": whole(settings.get("mtp_num_layers")) or 0,
        "window": window,
        "windowed_layers": layers if window else 0,
    }
    if positions == "learned":
        fields["max_positions"] = whole(settings.get("max_position_embeddings")) or 1
    if settings.get("multi_latent_attention"):
        fields["mla"] = Mla(
            query_rank=whole(settings.get("q_lora_rank")) or 0,
            kv_rank=whole(settings.get("kv_lora_rank")) or 32,
            nope_dim=whole(settings.get("qk_head_dim")) or 128,
            rope_dim=whole(settings.get("qk_pos_emb_head_dim")) or 64,
            value_dim=whole(settings.get("v_head_dim")) or 128,
        )
        fields |= {"kv_heads": heads, "head_dim": 0}
    if (experts := whole(settings.get("num_experts"))) is not None:
        fields |= _read_experts(settings, experts, layers, fields["ffn"], bias=every)
    if vocab is None:
        return _without_vocab(fields)
    model = Model(**fields)
    return {"model": _as_catalog(model)}


def _read_experts(
    settings: Settings, experts: int, layers: int, ffn: int, *, bias: bool
) -> dict[str, Any]:
    """The experts of flags; without dense layers, the width of a dense MLP says nothing."""
    routed = whole(settings.get("moe_ffn_hidden_size")) or ffn
    shared = whole(settings.get("moe_shared_expert_intermediate_size")) or 0
    pattern = _pattern(settings.get("moe_layer_freq", 1), layers)
    with_experts = sum(pattern)
    first = all(pattern[layers - with_experts :])
    moe = Moe(
        experts=experts,
        experts_per_token=whole(settings.get("moe_router_topk")) or 2,
        ffn=routed,
        shared_experts=1 if shared else 0,
        shared_ffn=shared,
        shared_gate=bool(settings.get("moe_shared_expert_gate")),
        bias=bias,
        layers=with_experts,
        dense="first" if first else "alternating",
    )
    return {"moe": moe, "ffn": 0 if with_experts == layers else ffn}


def _pattern(value: Any, layers: int) -> list[int]:
    """Layers with experts, as 0 and 1: a frequency N, a list, or "([0]*3+[1]*58)"."""
    if isinstance(value, str):
        value = pattern_of(value)
    if isinstance(value, list):
        return [int(each) for each in value][:layers]
    every = whole(value) or 1
    return [1 if place % every == 0 else 0 for place in range(layers)]


def pattern_of(text: str) -> int | list[int]:
    """Evaluate "([0]*3+[1]*58)": lists of numbers, sums and multiples of them, and nothing else.

    >>> pattern_of("([0]*1+[1]*2)"), pattern_of("2")
    ([0, 1, 1], 2)

    Raises:
        InputError: If it is anything else.
    """
    try:
        found: int | list[int] = _evaluate(ast.parse(text.strip().strip("'\""), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(
            f"--moe-layer-freq {text[:40]}: not a list of layers", hint="for example ([0]*3+[1]*58)"
        ) from None
    return found


def _evaluate(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value < 10**5:
        return int(node.value)
    if isinstance(node, ast.List | ast.Tuple) and len(node.elts) < 10**4:
        return [_evaluate(each) for each in node.elts]
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
        left, right = _evaluate(node.left), _evaluate(node.right)
        if isinstance(node.op, ast.Add) and isinstance(left, list) and isinstance(right, list):
            return [*left, *right]
        if (
            isinstance(node.op, ast.Mult)
            and isinstance(left, list)
            and isinstance(right, int)
            and len(left) * right < 10**5
        ):
            return left * right
    raise ValueError


def _window(value: Any) -> int | None:
    """Tokens of "4096,0" or (4096, 0)."""
    if value is None:
        return None
    first = value[0] if isinstance(value, list | tuple) else str(value).strip("()[] ").split(",")[0]
    return whole(first)


def _as_catalog(model: Model) -> Model:
    """The catalog's model with the same shape: shared experts count as one of their sum here."""
    from scalewise.frameworks.facts import known_model

    return known_model(model) or _one_like(model, ignore=()) or model


def _one_like(model: Model, ignore: tuple[str, ...]) -> Model | None:
    """The only model of the catalog that has the same flags, but for some of its fields."""
    from scalewise.catalog import names
    from scalewise.model import load_model

    found = [
        each
        for each in map(load_model, names("models"))
        if _flags(each, ignore) == _flags(model, ignore)
    ]
    return found[0] if len(found) == 1 else None


def _flags(model: Model, ignore: tuple[str, ...]) -> Settings:
    said = Said()
    write_model({"model": model, "seq_len": 1}, said)
    return {
        "refused": [gap.field for gap in said.refused],
        **{name: value for name, value in said.settings.items() if name not in ignore},
    }


def _without_vocab(fields: dict[str, Any]) -> Facts:
    """The model of the catalog that has this shape, whatever its vocabulary."""
    model = _one_like(Model(**fields), ignore=("vocab_size",))
    return {} if model is None else {"model": model}


MODEL = Joint(("model",), KEYS, write_model, read_model)
"""The row of the model."""
