"""Models from the `config.json` of Hugging Face repositories.

    model = read_hf_config("checkpoints/my-model/config.json")
    model = model_from_hf({"model_type": "llama", "hidden_size": 4096, ...}, name="mine")

Nothing is downloaded and `transformers` is not needed: one function per family maps the keys of its
configs (`dense`, `experts`). Keys that determine the shape are required; a default is used only
where published configs rely on the default of the `model_type`. Layers without softmax attention
are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scalewise.errors import InputError, did_you_mean
from scalewise.hf import dense, experts
from scalewise.hf.config import Config, refuse_other_layers
from scalewise.model import Model
from scalewise.reading import check_limits, read_json, user_path

_FAMILIES = dense.FAMILIES | experts.FAMILIES

# Vision-language wrappers, and what their `text_config` is if it does not say so itself.
_WRAPPERS = {
    "gemma3": "gemma3_text",
    "kimi_k25": "kimi_k2",
    "llama4": "llama4_text",
    "mistral3": "mistral",
}

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
        InputError: If the model_type is unknown, a key is missing or invalid, or a layer has no
            softmax attention.
    """
    check_limits(config, "the config")
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
    for part in (config, config.get("text_config")):
        if isinstance(part, Mapping):
            refuse_other_layers(part)
    if model_type not in _FAMILIES:
        close = did_you_mean(model_type, MODEL_TYPES)
        known = f"known: {', '.join(MODEL_TYPES)}"
        message = f"model_type = {model_type!r} is not supported"
        raise InputError(
            message,
            hint=f"{close} {known}" if close.startswith("did") else known,
        )
    fields = _FAMILIES[model_type](Config(config))
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
    path = user_path(path)
    if path.is_dir():
        path = path / "config.json"
    config = read_json(path, what="config", hint="download the config.json again")
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
