"""Families with experts: which layers have them, how wide they are, and what every token shares."""

from __future__ import annotations

from collections.abc import Callable, Collection

from scalewise.errors import InputError
from scalewise.hf.config import Config, Fields
from scalewise.hf.dense import decoder, llama, mistral, qwen3, window
from scalewise.model import Mla, Moe


def _place(fields: Fields, sparse: Collection[int]) -> Fields:
    """Return the fields of Moe that say which layers carry experts, from their numbers."""
    layers = fields["layers"]
    dense = [layer for layer in range(layers) if layer not in sparse]
    if not dense:
        fields["ffn"] = 0
    first = dense == list(range(len(dense)))
    return {"layers": layers - len(dense), "dense": "first" if first else "alternating"}


def _everywhere(config: Config, fields: Fields, experts: str = "num_local_experts") -> Fields:
    """Return the fields with experts in every layer; the width of the MLP is that of an expert."""
    expert_ffn, fields["ffn"] = fields["ffn"], 0
    shared = config.integer("shared_intermediate_size", default=0, minimum=0)
    fields["moe"] = Moe(
        experts=config.integer(experts),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn=expert_ffn,
        shared_experts=int(shared > 0),
        shared_ffn=shared,
    )
    return fields


def _mixtral(config: Config) -> Fields:
    return _everywhere(config, mistral(config))


def _granite(config: Config) -> Fields:
    return _everywhere(config, llama(config))


def _grok(config: Config) -> Fields:
    fields = decoder(config, tied=True) | {"post_norms": True}
    return _everywhere(config, fields, experts="num_experts")


def _olmoe(config: Config) -> Fields:
    fields = llama(config) | {"qk_norm": True, "qk_norm_width": "projection"}
    return _everywhere(config, fields, experts="num_experts")


def _minimax_m2(config: Config) -> Fields:
    fields = decoder(config)
    if config.flag("use_qk_norm", default=True):
        per_head = config.raw.get("qk_norm_type") == "per_head"
        fields |= {"qk_norm": True, "qk_norm_width": "head" if per_head else "projection"}
    return _everywhere(config, fields)


def _qwen_moe(config: Config, fields: Fields) -> Fields:
    dense = config.items("mlp_only_layers")
    step = config.integer("decoder_sparse_step", default=1)
    sparse = [i for i in range(fields["layers"]) if i not in dense and (i + 1) % step == 0]
    shared = config.has("shared_expert_intermediate_size")
    fields["moe"] = Moe(
        experts=config.integer("num_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn=config.integer("moe_intermediate_size"),
        shared_experts=int(shared),
        shared_ffn=config.integer("shared_expert_intermediate_size") if shared else 0,
        shared_gate=shared,
        **_place(fields, sparse),
    )
    return fields


def _qwen2_moe(config: Config) -> Fields:
    fields = decoder(config)
    layers = fields["layers"]
    fields["attention_bias"] = config.flag("qkv_bias", default=True)
    if config.flag("use_sliding_window", default=False):
        # Unlike its dense sibling: every other layer, among the first `max_window_layers`.
        first = min(layers, config.integer("max_window_layers", default=28))
        fields |= window(config, layers, (first + 1) // 2)
    return _qwen_moe(config, fields)


def _qwen3_moe(config: Config) -> Fields:
    return _qwen_moe(config, qwen3(config))


def _routed(config: Config, fields: Fields) -> Fields:
    """Return the fields with the experts of DeepSeek's keys, which GLM has too."""
    first = config.integer("first_k_dense_replace", default=0, minimum=0)
    every = config.integer("moe_layer_freq", default=1)
    sparse = [i for i in range(fields["layers"]) if i >= first and i % every == 0]
    fields["moe"] = Moe(
        experts=config.integer("n_routed_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn=config.integer("moe_intermediate_size"),
        shared_experts=config.integer("n_shared_experts", default=0, minimum=0),
        **_place(fields, sparse),
    )
    return fields


def _deepseek_moe(config: Config) -> Fields:
    """The first generation: ordinary heads."""
    return _routed(config, llama(config))


def _deepseek(config: Config) -> Fields:
    """Latent attention. `num_nextn_predict_layers` is not read: transformers leaves them out."""
    fields = llama(config)
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
    return _routed(config, fields)


def _glm4_moe(config: Config) -> Fields:
    fields = decoder(config)
    # Unlike Llama's, the bias leaves the output projection out.
    fields["attention_bias"] = config.flag("attention_bias", default=False)
    fields["qk_norm"] = config.flag("use_qk_norm", default=False)
    return _routed(config, fields)


def _ernie(config: Config) -> Fields:
    fields = decoder(config, tied=True)
    layers = fields["layers"]
    if config.flag("use_bias", default=False):
        message = "use_bias = true in the config is not supported with experts"
        raise InputError(message, hint="set use_bias to false: the biases are few")
    start = config.integer("moe_layer_start_index", default=1, minimum=0)
    end = config.integer("moe_layer_end_index", default=-1, minimum=-1)
    every = config.integer("moe_layer_interval", default=1)
    last = layers - 1 if end < 0 else end
    sparse = [i for i in range(layers) if start <= i <= last and (i + 1) % every == 0]
    fields["moe"] = Moe(
        experts=config.integer("moe_num_experts"),
        experts_per_token=config.integer("moe_k"),
        ffn=config.integer("moe_intermediate_size"),
        shared_experts=config.integer("moe_num_shared_experts", default=2, minimum=0),
        **_place(fields, sparse),
    )
    return fields


def _hunyuan(config: Config) -> Fields:
    fields = llama(config)
    if config.flag("use_cla", default=False):
        message = "use_cla = true: keys and values shared between layers are not modeled"
        raise InputError(message, hint="use a model whose layers all have keys of their own")
    fields["qk_norm"] = config.flag("use_qk_norm", default=True)
    ffn, skipped = fields["ffn"], config.integer("moe_layer_num_skipped", default=0, minimum=0)
    fields["moe"] = Moe(
        experts=config.same("num_experts"),
        experts_per_token=config.same("moe_topk"),
        ffn=config.same("moe_intermediate_size", default=ffn),
        shared_experts=config.same("num_shared_expert", default=1),
        shared_ffn=ffn,
        **_place(fields, range(skipped, fields["layers"])),
    )
    return fields


def _gpt_oss(config: Config) -> Fields:
    fields = decoder(config)
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
    return fields | window(config, layers, (layers + 1) // 2)


def _llama4(config: Config) -> Fields:
    fields = llama(config)
    layers = fields["layers"]
    expert_ffn, fields["ffn"] = fields["ffn"], config.integer("intermediate_size_mlp")
    step = config.integer("interleave_moe_layer_step", default=1)
    sparse = config.items("moe_layers") or range(step - 1, layers, step)
    fields["moe"] = Moe(
        experts=config.integer("num_local_experts"),
        experts_per_token=config.integer("num_experts_per_tok"),
        ffn=expert_ffn,
        shared_experts=1,
        **_place(fields, sparse),
    )
    # Three layers in four attend within chunks; its query-key norm has no weights.
    chunked = sum(map(bool, config.items("no_rope_layers"))) or layers - layers // 4
    found = window(config, layers, chunked, key="attention_chunk_size")
    return fields | found | ({"window_kind": "chunked"} if found else {})


FAMILIES: dict[str, Callable[[Config], Fields]] = {
    "deepseek": _deepseek_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "ernie4_5_moe": _ernie,
    "glm4_moe": _glm4_moe,
    "gpt_oss": _gpt_oss,
    "granitemoe": _granite,
    "granitemoeshared": _granite,
    "grok-1": _grok,
    "hunyuan_v1_moe": _hunyuan,
    "kimi_k2": _deepseek,
    "llama4_text": _llama4,
    "minimax_m2": _minimax_m2,
    "mixtral": _mixtral,
    "olmoe": _olmoe,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
}
"""Functions that read a family with experts, by model_type."""
