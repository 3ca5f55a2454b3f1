"""Models from the `config.json` of Hugging Face repositories.

    model = read_hf_config("checkpoints/my-model/config.json")
    model = model_from_hf({"model_type": "llama", "hidden_size": 4096, ...}, name="mine")

Nothing is downloaded and `transformers` is not needed: one function per family maps the keys of its
configs. Keys that determine the shape are required; a default is used only where published configs
rely on the default of the `model_type`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from scalewise.errors import InputError, did_you_mean
from scalewise.model import Mla, Model, Moe

Fields: TypeAlias = dict[str, Any]
"""Keyword arguments of Model, without name and source."""


class _Config:
    """A config whose getters return the right type, or raise an error that names the key."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw

    def has(self, key: str) -> bool:
        return self.raw.get(key) is not None

    def integer(self, *keys: str, default: int | None = None, minimum: int = 1) -> int:
        """Return the first of `keys` that is present (families renamed theirs over time)."""
        for key in keys:
            value = self.raw.get(key)
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
                message = (
                    f"{key} = {value!r} in the config must be a whole number of at least {minimum}"
                )
                raise InputError(message)
            return value
        if default is not None:
            return default
        message = f"the config of model_type {self.raw.get('model_type')!r} has no key {keys[0]}"
        raise InputError(
            message,
            hint="use the config.json of the model, not of an adapter or a tokenizer",
        )

    def flag(self, key: str, *, default: bool) -> bool:
        value = self.raw.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            message = f"{key} = {value!r} in the config must be true or false"
            raise InputError(message)
        return value

    def seq_len(self, key: str) -> list[Any]:
        value = self.raw.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            message = f"{key} = {value!r} in the config must be a list"
            raise InputError(message)
        return value

    def part(self, key: str) -> _Config:
        value = self.raw.get(key)
        if value is None:
            return _Config({})
        if not isinstance(value, dict):
            message = f"{key} = {value!r} in the config must be an object"
            raise InputError(message)
        return _Config(value)


# Families with the keys of Llama.


def _decoder(config: _Config, *, tied: bool = False, ffn: str = "intermediate_size") -> Fields:
    """Return the shape from the keys of Llama, which most later families use."""
    heads = config.integer("num_attention_heads")
    return {
        "layers": config.integer("num_hidden_layers"),
        "hidden": config.integer("hidden_size"),
        "heads": heads,
        "kv_heads": config.integer("num_key_value_heads", default=heads),
        "head_dim": config.integer("head_dim", default=0),
        "ffn": config.integer(ffn),
        "vocab": config.integer("vocab_size"),
        "tied": config.flag("tie_word_embeddings", default=tied),
    }


def _window(config: _Config, layers: int, windowed: int, key: str = "sliding_window") -> Fields:
    """Return the number of windowed layers, from `layer_types` or by the family's rule."""
    if not config.has(key):
        return {}
    if types := config.seq_len("layer_types"):
        windowed = sum(kind in ("sliding_attention", "chunked_attention") for kind in types)
        known = ("sliding_attention", "chunked_attention", "full_attention")
        unknown = [kind for kind in types if kind not in known]
        if unknown:
            message = f"layer_types has {unknown[0]!r}, which is not softmax attention"
            raise InputError(
                message,
                hint="linear attention and state-space layers are not supported",
            )
    if windowed <= 0:
        return {}
    return {"window": config.integer(key), "windowed_layers": min(windowed, layers)}


def _llama(config: _Config) -> Fields:
    bias = config.flag("attention_bias", default=False)
    fields = _decoder(config)
    fields["mlp_bias"] = config.flag("mlp_bias", default=False)
    return fields | {"attention_bias": bias, "output_bias": bias}


def _mistral(config: _Config) -> Fields:
    fields = _decoder(config)
    return fields | _window(config, fields["layers"], fields["layers"])


def _qwen2_window(config: _Config, layers: int) -> Fields:
    if not config.flag("use_sliding_window", default=False):
        return {}
    return _window(config, layers, layers - config.integer("max_window_layers", default=28))


def _qwen2(config: _Config) -> Fields:
    fields = _decoder(config)
    return fields | {"attention_bias": True} | _qwen2_window(config, fields["layers"])


def _qwen3(config: _Config) -> Fields:
    fields = _llama(config)
    # The class gives every size heads of 128, whatever hidden / heads would say.
    fields["head_dim"] = fields["head_dim"] or 128
    return fields | {"qk_norm": True} | _qwen2_window(config, fields["layers"])


def _gemma(config: _Config) -> Fields:
    fields = _decoder(config, tied=True)
    fields["head_dim"] = fields["head_dim"] or 256
    return fields


def _gemma2(config: _Config) -> Fields:
    fields = _gemma(config)
    layers = fields["layers"]
    return fields | {"post_norms": True} | _window(config, layers, (layers + 1) // 2)


def _gemma3(config: _Config) -> Fields:
    # Published configs omit values that equal the class default.
    defaults = {"vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4}
    config = _Config({**defaults, "sliding_window": 4096, **config.raw})
    fields = _gemma(config)
    layers = fields["layers"]
    every = config.integer("sliding_window_pattern", "_sliding_window_pattern", default=6)
    fields |= {"post_norms": True, "qk_norm": True}
    return fields | _window(config, layers, layers - layers // every)


def _olmo(config: _Config) -> Fields:
    """The first generation, in the keys of transformers or of the OLMo repository."""
    if not config.has("n_layers"):
        return _llama(config) | {"norm": "layer", "norm_weight": False}
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


def _olmo2(config: _Config) -> Fields:
    return _llama(config) | {"qk_norm": True, "qk_norm_width": "projection"}


def _nemotron(config: _Config) -> Fields:
    return _llama(config) | {"gated": False, "norm": "layer"}


def _starcoder2(config: _Config) -> Fields:
    fields = _decoder(config, tied=True)
    bias = config.flag("use_bias", default=True)
    fields |= {"gated": False, "norm": "layer"}
    fields |= {"attention_bias": bias, "output_bias": bias, "mlp_bias": bias}
    return fields | _window(config, fields["layers"], fields["layers"])


# Families with experts.


def _mixtral(config: _Config) -> Fields:
    fields = _mistral(config)
    expert_ffn, fields["ffn"] = fields["ffn"], 0
    fields["moe"] = Moe(
        experts=config.integer("num_local_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn=expert_ffn,
    )
    return fields


def _qwen_moe(config: _Config, fields: Fields) -> Fields:
    layers = fields["layers"]
    dense = config.seq_len("mlp_only_layers")
    step = config.integer("decoder_sparse_step", default=1)
    moe_layers = sum(i not in dense and (i + 1) % step == 0 for i in range(layers))
    if moe_layers == layers:
        fields["ffn"] = 0
    shared = config.has("shared_expert_intermediate_size")
    fields["moe"] = Moe(
        experts=config.integer("num_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn=config.integer("moe_intermediate_size"),
        shared_experts=int(shared),
        shared_ffn=config.integer("shared_expert_intermediate_size") if shared else 0,
        shared_gate=shared,
        layers=moe_layers,
    )
    return fields


def _qwen2_moe(config: _Config) -> Fields:
    fields = _decoder(config)
    layers = fields["layers"]
    fields["attention_bias"] = config.flag("qkv_bias", default=True)
    if config.flag("use_sliding_window", default=False):
        # Unlike its dense sibling: every other layer, among the first `max_window_layers`.
        first = min(layers, config.integer("max_window_layers", default=28))
        fields |= _window(config, layers, (first + 1) // 2)
    return _qwen_moe(config, fields)


def _qwen3_moe(config: _Config) -> Fields:
    return _qwen_moe(config, _qwen3(config))


def _deepseek(config: _Config) -> Fields:
    fields = _llama(config)
    layers = fields["layers"]
    value_dim = config.integer("v_head_dim")
    # The config's head_dim is the rotary part alone, and its key-value heads mean nothing here.
    fields |= {"head_dim": value_dim, "kv_heads": fields["heads"]}
    fields["mla"] = Mla(
        query_rank=config.integer("q_lora_rank", default=0),
        kv_rank=config.integer("kv_lora_rank"),
        nope_dim=config.integer("qk_nope_head_dim"),
        rope_dim=config.integer("qk_rope_head_dim"),
        value_dim=value_dim,
    )
    first_dense = config.integer("first_k_dense_replace", default=0, minimum=0)
    every = config.integer("moe_layer_freq", default=1)
    shared = config.integer("n_shared_experts", default=0, minimum=0)
    fields["moe"] = Moe(
        experts=config.integer("n_routed_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn=config.integer("moe_intermediate_size"),
        shared_experts=shared,
        layers=sum(i >= first_dense and i % every == 0 for i in range(layers)),
    )
    return fields


def _gpt_oss(config: _Config) -> Fields:
    fields = _decoder(config)
    layers = fields["layers"]
    bias = config.flag("attention_bias", default=True)
    fields |= {"attention_bias": bias, "output_bias": bias, "attention_sinks": True}
    expert_ffn, fields["ffn"] = fields["ffn"], 0
    fields["moe"] = Moe(
        experts=config.integer("num_local_experts", "num_experts"),
        experts_per_token=config.integer("num_experts_per_tok", "experts_per_token"),
        ffn=expert_ffn,
        bias=True,
    )
    return fields | _window(config, layers, (layers + 1) // 2)


def _llama4(config: _Config) -> Fields:
    fields = _llama(config)
    layers = fields["layers"]
    expert_ffn, fields["ffn"] = fields["ffn"], config.integer("intermediate_size_mlp")
    step = config.integer("interleave_moe_layer_step", default=1)
    moe_layers = len(config.seq_len("moe_layers")) or layers // step
    fields["moe"] = Moe(
        experts=config.integer("num_local_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn=expert_ffn,
        shared_experts=1,
        layers=moe_layers,
    )
    # Three layers in four attend within chunks; its query-key norm has no weights.
    chunked = sum(map(bool, config.seq_len("no_rope_layers"))) or layers - layers // 4
    window = _window(config, layers, chunked, key="attention_chunk_size")
    return fields | window | ({"window_kind": "chunked"} if window else {})


# Families older than Llama, each with names of its own.


def _gpt2(config: _Config) -> Fields:
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


def _gpt_bigcode(config: _Config) -> Fields:
    multi_query = config.flag("multi_query", default=True)
    return _gpt2(config) | ({"kv_heads": 1} if multi_query else {})


def _gpt_neox(config: _Config) -> Fields:
    bias = config.flag("attention_bias", default=True)
    fields = _decoder(config) | _classic()
    fields |= {"attention_bias": bias, "output_bias": bias}
    return fields | {"parallel_block": config.flag("use_parallel_residual", default=True)}


def _opt(config: _Config) -> Fields:
    fields = _decoder(config, tied=True, ffn="ffn_dim")
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


def _bloom(config: _Config) -> Fields:
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


def _falcon(config: _Config) -> Fields:
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


def _mpt(config: _Config) -> Fields:
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


_FAMILIES: dict[str, Callable[[_Config], Fields]] = {
    "bloom": _bloom,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "falcon": _falcon,
    "gemma": _gemma,
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt2": _gpt2,
    "gpt_bigcode": _gpt_bigcode,
    "gpt_neox": _gpt_neox,
    "gpt_oss": _gpt_oss,
    "hf_olmo": _olmo,
    "kimi_k2": _deepseek,
    "llama": _llama,
    "llama4_text": _llama4,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "mpt": _mpt,
    "nemotron": _nemotron,
    "olmo": _olmo,
    "olmo2": _olmo2,
    "opt": _opt,
    "phi3": _mistral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    "starcoder2": _starcoder2,
}

# Vision-language wrappers, and what their `text_config` is if it does not say so itself.
_WRAPPERS = {"gemma3": "gemma3_text", "llama4": "llama4_text", "mistral3": "mistral"}

MODEL_TYPES = tuple(sorted([*_FAMILIES, *_WRAPPERS]))
"""Supported values of `model_type`."""


def model_from_hf(config: Mapping[str, Any], name: str | None = None) -> Model:
    """Return the Model of a parsed Hugging Face config.

    Args:
        config: The content of config.json. Of a vision-language model only the text part counts.
        name: Name of the model; by default that of the config.

    Returns:
        The model.

    Raises:
        InputError: If the model_type is unknown, or a key is missing or invalid.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        message = "the config has no model_type"
        raise InputError(
            message,
            hint=f"one of {', '.join(MODEL_TYPES)}",
        )
    title = name or _own_name(config) or model_type
    if model_type in _WRAPPERS:
        text = config.get("text_config")
        if not isinstance(text, Mapping):
            message = f"the config of model_type {model_type!r} has no key text_config"
            raise InputError(message)
        kind = {"model_type": _WRAPPERS[model_type]}
        tied = {k: v for k, v in config.items() if k == "tie_word_embeddings"}
        return model_from_hf({**kind, **tied, **text}, name=title)
    if model_type not in _FAMILIES:
        close = did_you_mean(model_type, MODEL_TYPES)
        known = f"known: {', '.join(MODEL_TYPES)}"
        message = f"model_type = {model_type!r} is not supported"
        raise InputError(
            message,
            hint=f"{close} {known}" if close.startswith("did") else known,
        )
    fields = _FAMILIES[model_type](_Config(config))
    source = f"Hugging Face config.json, model_type {model_type}"
    return Model(name=title, source=source, **fields)


def read_hf_config(path: str | Path, name: str | None = None) -> Model:
    """Return the Model of a config.json.

    Args:
        path: The file, or the directory that holds it.
        name: Name of the model; by default that of the config, or else of its directory.

    Returns:
        The model.

    Raises:
        InputError: If the file is missing, is not JSON, or does not describe a known model.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except json.JSONDecodeError as error:
        message = f"{path}, line {error.lineno}: not valid JSON ({error.msg})"
        raise InputError(
            message,
            hint="download the config.json again",
        ) from error
    except (OSError, UnicodeDecodeError) as error:
        message = f"{path} cannot be read: {error}"
        raise InputError(message) from error
    if not isinstance(config, dict):
        message = f"{path} holds a JSON {type(config).__name__}, not an object"
        raise InputError(message)
    title = name or _own_name(config) or _title(path)
    try:
        return model_from_hf(config, name=title)
    except InputError as error:
        message = f"{path}: {error}"
        raise InputError(message, hint=error.hint) from error


def _own_name(config: Mapping[str, Any]) -> str | None:
    """Return the hub name of a config, unless it is a local path."""
    own = config.get("_name_or_path")
    if isinstance(own, str) and own and not own.startswith((".", "/", "~")):
        return own
    return None


def _title(path: Path) -> str:
    return path.resolve().parent.name if path.stem == "config" else path.stem
