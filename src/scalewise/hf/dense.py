"""Dense families: one function for each maps the keys of its configs to fields of Model."""

from __future__ import annotations

from collections.abc import Callable

from scalewise.errors import InputError
from scalewise.hf.config import Config, Fields

# Families with the keys of Llama.


def decoder(config: Config, *, tied: bool = False, ffn: str = "intermediate_size") -> Fields:
    """Return the shape from the keys of Llama, which most later families use."""
    heads = config.integer("num_attention_heads")
    return {
        "layers": config.layers("num_hidden_layers"),
        "hidden": config.integer("hidden_size"),
        "heads": heads,
        "kv_heads": config.integer("num_key_value_heads", default=heads),
        "head_dim": config.integer("head_dim", default=0),
        "ffn": config.integer(ffn),
        "vocab": config.integer("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=tied),
    }


def window(config: Config, layers: int, windowed: int, key: str = "sliding_window") -> Fields:
    """Return the number of windowed layers, from `layer_types` or by the family's rule."""
    if not config.has(key):
        return {}
    if types := config.items("layer_types"):
        windowed = sum(kind in ("sliding_attention", "chunked_attention") for kind in types)
    if windowed <= 0:
        return {}
    return {"window": config.integer(key), "windowed_layers": min(windowed, layers)}


def llama(config: Config) -> Fields:
    """Return the fields of Llama: biases only where the config has them."""
    bias = config.flag("attention_bias", default=False)
    fields = decoder(config)
    fields["mlp_bias"] = config.flag("mlp_bias", default=False)
    return fields | {"attention_bias": bias, "output_bias": bias}


def mistral(config: Config) -> Fields:
    """Return the fields of Mistral: a sliding window in every layer."""
    fields = decoder(config)
    return fields | window(config, fields["layers"], fields["layers"])


def qwen2_window(config: Config, layers: int) -> Fields:
    """Return the window of Qwen2 and Qwen3: in the last layers, where it is switched on."""
    if not config.flag("use_sliding_window", default=False):
        return {}
    return window(config, layers, layers - config.integer("max_window_layers", default=28))


def _qwen2(config: Config) -> Fields:
    fields = decoder(config)
    return fields | {"attention_bias": True} | qwen2_window(config, fields["layers"])


def qwen3(config: Config) -> Fields:
    """Return the fields of Qwen3: normalized queries and keys."""
    fields = llama(config)
    # The class gives every size heads of 128, whatever hidden / heads would say.
    fields["head_dim"] = fields["head_dim"] or 128
    return fields | {"qk_norm": True} | qwen2_window(config, fields["layers"])


def _gemma(config: Config) -> Fields:
    fields = decoder(config, tied=True)
    fields["head_dim"] = fields["head_dim"] or 256
    return fields


def _gemma2(config: Config) -> Fields:
    fields = _gemma(config)
    layers = fields["layers"]
    return fields | {"post_norms": True} | window(config, layers, (layers + 1) // 2)


def _gemma3(config: Config) -> Fields:
    # Published configs omit values that equal the class default.
    defaults = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4}
    config = Config({**defaults, "sliding_window": 4096, **config.raw})
    fields = _gemma(config)
    layers = fields["layers"]
    every = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    fields |= {"post_norms": True, "qk_norm": True}
    return fields | window(config, layers, layers - layers // every)


def _olmo(config: Config) -> Fields:
    """The first generation, in the keys of transformers or of the OLMo repository."""
    if not config.has("n_layers"):
        return llama(config) | {"norm": "layer", "norm_weight": False}
    hidden, heads = config.integer("d_model"), config.integer("n_heads")
    one = config.flag("multi_query_attention", default=False)
    width = config.integer("mlp_ratio", default=4) * hidden
    return {
        "layers": config.integer("n_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": config.integer("n_kv_heads", default=1 if one else heads),
        # Gate and up projection together are one matrix of twice the width.
        "ffn": config.integer("mlp_hidden_size", default=width) // 2,
        "vocab": config.integer("embedding_size", "vocab_size"),
        "tied": config.flag("weight_tying", default=True),
        "norm": "layer",
        "norm_weight": config.flag("layer_norm_with_affine", default=True),
    }


def _olmo2(config: Config) -> Fields:
    return llama(config) | {"qk_norm": True, "qk_norm_width": "projection"}


def _nemotron(config: Config) -> Fields:
    return llama(config) | {"gated": False, "norm": "layer"}


def _starcoder2(config: Config) -> Fields:
    fields = decoder(config, tied=True)
    bias = config.flag("use_bias", default=True)
    fields |= {"gated": False, "norm": "layer"}
    fields |= {"attention_bias": bias, "output_bias": bias, "mlp_bias": bias}
    return fields | window(config, fields["layers"], fields["layers"])


# Families older than Llama, each with names of its own.


def _gpt2(config: Config) -> Fields:
    hidden = config.integer("n_embd", "hidden_size")
    return {
        "layers": config.integer("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": config.integer("n_head", "num_attention_heads"),
        "ffn": config.integer("n_inner", default=4 * hidden),
        "vocab": config.integer("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=True),
        "positions": "learned",
        "max_positions": config.integer("n_positions", "n_ctx"),
        **_classic(),
    }


def _classic(*, bias: bool = True) -> Fields:
    """Return the block of GPT-2: plain MLP, layer norm, biases everywhere."""
    fields: Fields = {"gated": False, "norm": "layer"}
    return fields | {"attention_bias": bias, "output_bias": bias, "mlp_bias": bias}


def _gpt_bigcode(config: Config) -> Fields:
    multi_query = config.flag("multi_query", default=True)
    return _gpt2(config) | ({"kv_heads": 1} if multi_query else {})


def _gpt_neox(config: Config) -> Fields:
    bias = config.flag("attention_bias", default=True)
    fields = decoder(config) | _classic()
    fields |= {"attention_bias": bias, "output_bias": bias}
    return fields | {"parallel_block": config.flag("use_parallel_residual", default=True)}


def _opt(config: Config) -> Fields:
    fields = decoder(config, tied=True, ffn="ffn_dim")
    fields |= _classic(bias=config.flag("enable_bias", default=True))
    width = config.integer("word_embed_proj_dim", default=fields["hidden"])
    if width != fields["hidden"] or not config.flag("do_layer_norm_before", default=True):
        message = f"word_embed_proj_dim = {width} or do_layer_norm_before = false is not supported"
        raise InputError(
            message,
            hint="use another size of OPT than 350m",
        )
    # OPT's table starts at row 2.
    rows = config.integer("max_position_embeddings") + 2
    return fields | {"positions": "learned", "max_positions": rows}


def _bloom(config: Config) -> Fields:
    hidden = config.integer("hidden_size", "n_embed")
    return {
        "layers": config.integer("n_layer", "num_hidden_layers"),
        "hidden": hidden,
        "heads": config.integer("n_head", "num_attention_heads"),
        "ffn": 4 * hidden,
        "vocab": config.integer("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=True),
        "positions": "alibi",
        "embedding_norm": True,
        **_classic(),
    }


def _falcon(config: Config) -> Fields:
    hidden = config.integer("hidden_size", "n_embed")
    heads = config.integer("num_attention_heads", "n_head")
    grouped = config.flag("new_decoder_architecture", default=False)
    if grouped:
        kv_heads = config.integer("num_kv_heads", "n_head_kv", default=heads)
    else:
        kv_heads = 1 if config.flag("multi_query", default=True) else heads
    parallel = grouped or config.flag("parallel_attn", default=True)
    norms = config.integer("num_ln_in_parallel_attn", default=2 if grouped else 1)
    return {
        "layers": config.integer("num_hidden_layers", "n_layer"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "ffn": config.integer("ffn_hidden_size", default=4 * hidden),
        "vocab": config.integer("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=True),
        "positions": "alibi" if config.flag("alibi", default=False) else "rotary",
        "parallel_block": parallel,
        "shared_norm": parallel and norms == 1,
        **_classic(bias=config.flag("bias", default=False)),
    }


def _mpt(config: Config) -> Fields:
    attention = config.part("attn_config")
    hidden = config.integer("d_model", "hidden_size")
    heads = config.integer("n_heads", "num_attention_heads")
    bias = not config.flag("no_bias", default=True)
    multi_query = attention.raw.get("attn_type") == "multiquery_attention"
    fields: Fields = {
        "layers": config.integer("n_layers", "num_hidden_layers"),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": attention.integer("kv_n_heads", default=1 if multi_query else heads),
        "ffn": hidden * config.integer("expansion_ratio", default=4),
        "vocab": config.integer("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=True),
        "norm_bias": bias,
        **_classic(bias=bias),
    }
    if attention.flag("alibi", default=True):
        return fields | {"positions": "alibi"}
    if config.flag("learned_pos_emb", default=True):
        rows = config.integer("max_seq_len")
        return fields | {"positions": "learned", "max_positions": rows}
    return fields | {"positions": "rotary" if attention.raw.get("rope") else "none"}


FAMILIES: dict[str, Callable[[Config], Fields]] = {
    "bloom": _bloom,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neox": _gpt_neox,
    "hf_olmo": _olmo,
    "llama": llama,
    "mistral": mistral,
    "mpt": _mpt,
    "nemotron": _nemotron,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "opt": _opt,
    "phi3": mistral,
    "qwen2": _qwen2,
    "qwen3": qwen3,
    "starcoder2": _starcoder2,
}
"""Functions that read a dense family, by model_type."""
