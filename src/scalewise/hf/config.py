"""Typed access to a config.json, and the reasons to refuse one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from scalewise.blocks import MAX_LAYERS
from scalewise.errors import InputError

Fields: TypeAlias = dict[str, Any]
"""Keyword arguments of Model, without name and source."""

# Kinds of layers that are no softmax attention, by model_type. The key of a config that says so is
# preferred: it also holds for types that are not listed here.
_OTHER_TYPES = {
    r"(falcon_)?mamba.*|jamba|bamba|zamba2?|falcon_h1|nemotron_h|granitemoehybrid": "Mamba layers",
    r"rwkv.*": "RWKV layers",
    r"qwen3_next|qwen3_5.*": "gated delta nets",
    r"kimi_linear": "Kimi delta attention",
    r"minimax|minimax_text_01|minimax_m1": "lightning attention",
    r"recurrent_gemma": "gated linear recurrences",
    r"lfm2.*": "short convolutions",
    r"deepseek_v32|glm_moe_dsa": "sparse attention with an indexer",
}

_KIND_LISTS = (
    "layer_types",
    "layers_block_type",
    "block_types",
    "attention_types",
    "attn_type_list",
    "decoder_attention_types",
)
_SOFTMAX = ("full_attention", "sliding_attention", "chunked_attention", "attention", 1)
# MiniMax writes numbers: 0 is lightning attention, 1 is softmax attention.
_KINDS = {0: "lightning attention", "mamba": "a Mamba layer", "mamba2": "a Mamba layer"}

# Keys that only configs with such layers have, by how they start.
_OTHER_KEYS = {
    "linear_attn_config": "linear attention",
    "linear_num_key_heads": "gated delta nets",
    "mamba_": "Mamba layers",
    "ssm_": "Mamba layers",
    "hybrid_override_pattern": "Mamba layers",
    "attn_layer_period": "Mamba layers",
    "rwkv": "RWKV layers",
    "index_topk": "sparse attention with an indexer",
}


class Config:
    """A config whose getters return the right type, or raise an error that names the key."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        """Wrap the content of a config.json."""
        self.raw = raw

    def has(self, key: str) -> bool:
        """Return whether the key is there and not null."""
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

    def layers(self, *keys: str) -> int:
        """Return the number of layers: families loop over them, so it is bounded here."""
        count = self.integer(*keys)
        if count > MAX_LAYERS:
            message = f"{keys[0]} in the config is more than {MAX_LAYERS:,}"
            raise InputError(message)
        return count

    def flag(self, key: str, *, default: bool) -> bool:
        """Return true or false."""
        value = self.raw.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            message = f"{key} = {value!r} in the config must be true or false"
            raise InputError(message)
        return value

    def items(self, key: str) -> list[Any]:
        """Return a list; empty if the key is missing."""
        value = self.raw.get(key)
        if value is None:
            return []
        if not isinstance(value, list):
            message = f"{key} = {value!r} in the config must be a list"
            raise InputError(message)
        if len(value) > MAX_LAYERS:
            message = f"{key} in the config has {len(value):,} items, more than {MAX_LAYERS:,}"
            raise InputError(message)
        return value

    def same(self, key: str, *, default: int | None = None) -> int:
        """Return a number that may be written once for each layer, if it is always the same."""
        values = self.raw.get(key)
        if not isinstance(values, list):
            return self.integer(key, default=default, minimum=0)
        if len(set(values)) != 1:
            message = f"{key} = {values!r} in the config must be the same in every layer"
            raise InputError(message)
        return Config({key: values[0]}).integer(key, minimum=0)

    def part(self, key: str) -> Config:
        """Return a nested config; empty if the key is missing."""
        value = self.raw.get(key)
        if value is None:
            return Config({})
        if not isinstance(value, dict):
            message = f"{key} = {value!r} in the config must be an object"
            raise InputError(message)
        return Config(value)


def refuse_other_layers(config: Mapping[str, Any]) -> None:
    """Raise an InputError if a layer is anything but softmax attention.

    Linear attention, delta nets, state-space layers and selected keys (DeepSeek-V3.2) have other
    parameters and other FLOPs, so a number for them would be wrong.
    """
    if (reason := _other_layers(config)) is not None:
        message = f"{reason}, which Scalewise does not model"
        raise InputError(
            message, hint="use a model with full, sliding-window or chunked attention in all layers"
        )


def _other_layers(config: Mapping[str, Any]) -> str | None:
    for key in _KIND_LISTS:
        kinds = config.get(key)
        for kind in kinds if isinstance(kinds, list) else ():
            if not isinstance(kind, str | int) or kind not in _SOFTMAX:
                known = _KINDS.get(kind) if isinstance(kind, str | int) else None
                words = known or str(kind)[:40].replace("_", " ")
                return f"{key} has {kind!r}, {words}"
    interval = config.get("full_attention_interval")
    if isinstance(interval, int) and interval > 1:
        return f"full_attention_interval = {interval}: linear attention between the full layers"
    for start, words in _OTHER_KEYS.items():
        for key, value in config.items():
            if key.startswith(start) and value:
                return f"the config has {key}: {words}"
    model_type = config.get("model_type")
    for pattern, words in _OTHER_TYPES.items():
        if isinstance(model_type, str) and re.fullmatch(pattern, model_type):
            return f"model_type = {model_type!r} has {words}"
    return None
