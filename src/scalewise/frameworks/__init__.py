"""Training frameworks: plans written as their configuration, and their configuration read back.

    read(text, name="train.log").words        # {"model": "llama-3-8b", "strategy": "zero1x64-mb2"}
    export(asked, "megatron").files           # {"launch.sbatch": "#!/bin/bash ..."}, in `export`

One file per framework, each with one mapping table for both directions (`table`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalewise.errors import InputError
from scalewise.frameworks.facts import Configuration

__all__ = ["Configuration", "read"]

_HINT = (
    "give a log with Megatron-LM's arguments or torchtitan's `Running with configs:`, a command or "
    "launch script, a DeepSpeed .json, a torchtitan .toml or .json, a config.yaml of accelerate or "
    "MaxText, or a config.json"
)


def read(text: str, name: str = "") -> Configuration:
    """Read a configuration, a launch script or a log of any framework.

    Args:
        text: Its text.
        name: Of its file, for messages and to tell formats apart.

    Raises:
        InputError: If it is none of them, or says something that cannot be.
    """
    from scalewise.frameworks import megatron_bridge, megatron_text, torchtitan_text

    if megatron_text.is_log(text):
        return megatron_text.read_arguments(text)
    if torchtitan_text.is_log(text):
        return torchtitan_text.read_log(text, name)
    if megatron_bridge.is_snippet(text):
        return megatron_bridge.read_snippet(text, name)
    where = name or "the text"
    start = text.lstrip()
    if start.startswith("{"):
        return _of_json(text, where)
    if name.endswith((".yaml", ".yml")):
        return _of_yaml(text, where)
    if name.endswith(".toml") or start.startswith("["):
        return _of_toml(text, where)
    found = _of_command(text, name)
    if found is None and not name.endswith((".sh", ".slurm", ".sbatch")):
        found = _maybe_yaml(text, where)
    if found is None:
        raise InputError(f"{where}: no configuration of a known framework", hint=_HINT)
    return found


def _of_json(text: str, where: str) -> Configuration:
    from scalewise.frameworks import accelerate, deepspeed, torchtitan_text
    from scalewise.reading import parse_json

    value: Any = parse_json(text, where)
    if torchtitan_text.is_config(value):
        return torchtitan_text.read_tables(value)
    if deepspeed.is_config(value):
        return deepspeed.read_tables(value)
    if accelerate.is_config(value):
        return accelerate.read_tables(value)
    if isinstance(value, Mapping) and "model_type" in value:
        return _of_huggingface(value, where)
    raise InputError(f"{where}: JSON of no known framework", hint=_HINT)


def _of_huggingface(value: Mapping[str, Any], where: str) -> Configuration:
    from scalewise.frameworks.facts import configuration
    from scalewise.hf import model_from_hf

    try:
        model = model_from_hf(value)
    except InputError as error:
        raise InputError(f"{where}: {error}", hint=error.hint) from error
    return configuration("huggingface", {"model": model})


def _of_yaml(text: str, where: str) -> Configuration:
    from scalewise.frameworks import accelerate, maxtext
    from scalewise.frameworks.yaml import parse_yaml

    value = parse_yaml(text, where)
    if accelerate.is_config(value):
        return accelerate.read_tables(value)
    if maxtext.is_config(value):
        return maxtext.read_settings(value)
    raise InputError(f"{where}: YAML of no known framework", hint=_HINT)


def _maybe_yaml(text: str, where: str) -> Configuration | None:
    try:
        return _of_yaml(text, where)
    except InputError:
        return None


def _of_toml(text: str, where: str) -> Configuration:
    from scalewise.frameworks import torchtitan_text
    from scalewise.reading import parse_toml

    value = parse_toml(text, where)
    if torchtitan_text.is_config(value):
        return torchtitan_text.read_tables(value)
    raise InputError(f"{where}: TOML of no known framework", hint=_HINT)


def _of_command(text: str, name: str) -> Configuration | None:
    """A command or launch script, or None if it is neither."""
    from scalewise.frameworks import maxtext, megatron_text, torchtitan_text
    from scalewise.frameworks.shell import launch_command

    readers = (
        (megatron_text.is_launch, megatron_text.read_launch, "--"),
        (torchtitan_text.is_launch, torchtitan_text.read_launch, "--"),
        (maxtext.is_launch, maxtext.read_launch, "="),
    )
    for is_launch, read_launch, flag in readers:
        try:
            words = launch_command(text, name, flag).words
        except InputError:
            continue
        if is_launch(words):
            return read_launch(text, name)
    return None
