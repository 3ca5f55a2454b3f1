r"""Megatron-Bridge: Python assignments on a recipe, version 0.6.2.

    snippet(settings)              # "cfg = llama3_8b_pretrain_config()\ncfg.model.... = 2\n..."
    read_snippet(text)

The facts and their settings are those of Megatron-LM (`megatron.ROWS`): Megatron-Bridge configures
the same core. This file says in which part of its configuration each setting is.
"""

from __future__ import annotations

import ast
from typing import Any

from scalewise.errors import InputError
from scalewise.frameworks import megatron
from scalewise.frameworks.facts import Configuration, configuration
from scalewise.frameworks.table import (
    Facts,
    Fixed,
    Joint,
    Row,
    Said,
    Settings,
    Value,
    read_rows,
    same,
)
from scalewise.model import load_model

NAME = "megatron-bridge"
VERSION = "megatron-bridge 0.6.2"

RECIPES = {
    "llama-2-7b": ("llama", "llama2_7b"), "llama-3-8b": ("llama", "llama3_8b"),
    "llama-3-70b": ("llama", "llama3_70b"), "llama-3.1-405b": ("llama", "llama31_405b"),
    "llama-3.2-1b": ("llama", "llama32_1b"), "llama-3.2-3b": ("llama", "llama32_3b"),
    "qwen2.5-0.5b": ("qwen", "qwen25_500m"), "qwen2.5-7b": ("qwen", "qwen25_7b"),
    "qwen2.5-14b": ("qwen", "qwen25_14b"), "qwen2.5-32b": ("qwen", "qwen25_32b"),
    "qwen2.5-72b": ("qwen", "qwen25_72b"), "qwen3-0.6b": ("qwen", "qwen3_600m"),
    "qwen3-1.7b": ("qwen", "qwen3_1p7b"), "qwen3-4b": ("qwen", "qwen3_4b"),
    "qwen3-8b": ("qwen", "qwen3_8b"), "qwen3-14b": ("qwen", "qwen3_14b"),
    "qwen3-32b": ("qwen", "qwen3_32b"), "qwen3-30b-a3b": ("qwen", "qwen3_30b_a3b"),
    "qwen3-235b-a22b": ("qwen", "qwen3_235b_a22b"),
    "deepseek-v2-lite": ("deepseek", "deepseek_v2_lite"),
    "deepseek-v2": ("deepseek", "deepseek_v2"), "deepseek-v3": ("deepseek", "deepseek_v3"),
    "gpt-oss-20b": ("gpt_oss", "gpt_oss_20b"), "gpt-oss-120b": ("gpt_oss", "gpt_oss_120b"),
    "gemma-2-2b": ("gemma", "gemma2_2b"), "gemma-2-9b": ("gemma", "gemma2_9b"),
    "gemma-2-27b": ("gemma", "gemma2_27b"), "moonlight-16b-a3b": ("moonlight", "moonlight_16b"),
    "glm-4.5": ("glm", "glm45_355b"), "glm-4.5-air": ("glm", "glm45_air_106b"),
}  # fmt: skip
"""Models of the catalog as recipes, `megatron.bridge.recipes.FAMILY.NAME_pretrain_config`."""

_PRECISIONS = {
    "bf16": "bf16_mixed", "fp16": "fp16_mixed", "fp8": "bf16_with_fp8_current_scaling_mixed",
    "fp8block": "bf16_with_fp8_subchannel_scaling_mixed", "mxfp8": "bf16_with_mxfp8_mixed",
    "nvfp4": "bf16_with_nvfp4_mixed",
}  # fmt: skip
"""Registered mixed-precision recipes by precision."""

PARTS = {
    "world_size": (),
    "micro_batch_size": ("train",),
    "global_batch_size": ("train",),
    "train_samples": ("train",),
    "seq_length": ("model", "dataset"),
    "optimizer": ("optimizer",),
    "sgd_momentum": ("optimizer",),
    "use_precision_aware_optimizer": ("optimizer",),
    "optimizer_cpu_offload": ("optimizer",),
    "exp_avg_dtype": ("optimizer",),
    "exp_avg_sq_dtype": ("optimizer",),
    "use_distributed_optimizer": ("ddp", "optimizer"),
    "num_distributed_optimizer_instances": ("ddp",),
    "use_megatron_fsdp": ("ddp", "dist"),
    "data_parallel_sharding_strategy": ("ddp",),
    "megatron_fsdp_grad_comm_dtype": ("ddp",),
    "fp8_param_gather": ("mixed_precision",),
    "grad_reduce_in_fp32": ("mixed_precision",),
    "ddp_bucket_size": ("ddp",),
    "overlap_grad_reduce": ("comm_overlap",),
    "overlap_param_gather": ("comm_overlap",),
    "tp_comm_overlap": ("comm_overlap",),
    "overlap_p2p_comm": ("comm_overlap",),
    "ckpt_format": ("checkpoint",),
}
"""Parts of the configuration that a setting of Megatron-LM is in; `model` for the others."""

RENAMED = {
    "num_virtual_stages_per_pipeline_rank": "virtual_pipeline_model_parallel_size",
    "decoder_first_pipeline_num_layers": "num_layers_in_first_pipeline_stage",
    "decoder_last_pipeline_num_layers": "num_layers_in_last_pipeline_stage",
    "ddp_bucket_size": "bucket_size",
}
"""Settings with another name in the configuration classes than as flags."""

_DTYPES = ("exp_avg_dtype", "exp_avg_sq_dtype", "megatron_fsdp_grad_comm_dtype")
_TORCH = {"bf16": "bfloat16", "fp32": "float32", "fp16": "float16"}


def _write_model(facts: Facts, said: Said) -> None:
    name = facts["model"].name
    if name not in RECIPES:
        said.refuse("model", name, "Megatron-Bridge has no recipe of it; export to megatron")
        return
    said.settings["recipe"] = RECIPES[name]


def _read_model(settings: Settings) -> Facts:
    names = {recipe: name for name, recipe in RECIPES.items()}
    name = names.get(settings.get("recipe", ()))
    return {"model": load_model(name)} if name is not None else {}


def _write_precision(facts: Facts, said: Said) -> None:
    word = facts["precision"]
    if word not in _PRECISIONS:
        said.refuse("precision", word, "Megatron-Bridge registers " + ", ".join(_PRECISIONS))
        return
    said.settings["mixed_precision"] = _PRECISIONS[word]
    if facts["weights"] != "mixed":
        said.refuse("weights", facts["weights"], "it keeps a 32-bit master copy of weights")


def _read_precision(settings: Settings) -> Facts:
    word = str(settings.get("mixed_precision", "bf16_mixed")).replace("-", "_")
    names = {theirs: ours for ours, theirs in _PRECISIONS.items()}
    names["bf16_with_fp8_delayed_scaling_mixed"] = "fp8"
    return {"precision": names[word], "weights": "mixed"} if word in names else {}


def _write_reshard(facts: Facts, said: Said) -> None:
    if facts["sharding"] == "zero3" and not facts["reshard_after_forward"]:
        said.refuse("reshard_after_forward", False, "Megatron-FSDP frees parameters after "
                    "forward; drop noreshard")  # fmt: skip


def _write_reduce(facts: Facts, said: Said) -> None:
    word = facts["reduce_precision"]
    if word == "int4":
        said.refuse("reduce_precision", word, "gradients are reduced in fp32 or bf16")
    elif word is not None:
        said.settings["grad_reduce_in_fp32"] = word == "fp32"


def _read_reduce(settings: Settings) -> Facts:
    wide = settings.get("grad_reduce_in_fp32", True)
    return {"reduce_precision": "fp32" if wide is not False else "bf16"}


def _read_experts(settings: Settings) -> Facts:
    """Degrees of experts; the recipe says that there are some."""
    keys = {"ep": "expert_model_parallel_size", "etp": "expert_tensor_parallel_size"}
    return {name: settings[key] for name, key in keys.items() if settings.get(key)}


def _own(row: Row) -> Row:
    """The row of Megatron-Bridge in place of one of Megatron-LM."""
    own: dict[str, Row] = {
        "model": Joint(("model",), ("recipe",), _write_model, _read_model),
        "precision": Joint(("precision", "weights"), ("mixed_precision",),
                           _write_precision, _read_precision),
        "reduce_precision": Joint(("reduce_precision",), ("grad_reduce_in_fp32",),
                                  _write_reduce, _read_reduce),
        "ep": Joint(row.fields, row.keys, row.write, _read_experts),
        "tuning": Fixed("tuning", ("full",), "adapters are cfg.peft, of a sft recipe; use full"),
    }  # fmt: skip
    return own.get(row.fields[0], row) if row.fields else row


ROWS: tuple[Row, ...] = (
    *map(_own, megatron.ROWS),
    Joint((), (), _write_reshard, lambda settings: {}),
)
"""Every fact of a plan, and the setting that says it."""


def places(settings: Settings) -> list[tuple[str, str, Value]]:
    """Return where each setting goes: part, name, value."""
    found: list[tuple[str, str, Value]] = []
    for key, value in settings.items():
        if key in ("recipe", "mixed_precision", "world_size", "gradient_accumulation_fusion"):
            continue
        found += [(each, RENAMED.get(key, key), value) for each in PARTS.get(key, ("model",))]
    return found


def snippet(settings: Settings) -> str:
    """Return the Python file of settings."""
    family, name = settings["recipe"]
    recipe = f"{name}_pretrain_config"
    overlap = {key: value for part, key, value in places(settings) if part == "comm_overlap"}
    overlap = {"tp_comm_overlap": False, **overlap}
    lines = [
        f'"""Plan of scalewise for {VERSION}: torchrun ... recipe.py"""',
        "",
        "import torch",
        f"from megatron.bridge.recipes.{family} import {recipe}",
        "from megatron.bridge.training.comm_overlap import CommOverlapConfig",
        "from megatron.bridge.training.gpt_step import forward_step",
        "from megatron.bridge.training.mixed_precision import get_mixed_precision_config",
        "from megatron.bridge.training.pretrain import pretrain",
        "",
        f"cfg = {recipe}()",
    ]
    lines.append(
        f'cfg.mixed_precision = get_mixed_precision_config("{settings["mixed_precision"]}")'
    )
    for part, key, value in places(settings):
        if part != "comm_overlap":
            lines.append(f"cfg.{part}.{key} = {_python(key, value)}")
    said = ", ".join(f"{key}={value!r}" for key, value in overlap.items())
    lines += [
        f"cfg.comm_overlap = CommOverlapConfig({said})",
        "",
        'if __name__ == "__main__":',
        "    pretrain(config=cfg, forward_step_func=forward_step)",
        "",
    ]
    text = "\n".join(lines)
    return text if "torch." in text else text.replace("import torch\n", "")


def _python(key: str, value: Value) -> str:
    return f"torch.{_TORCH[value]}" if key in _DTYPES and value in _TORCH else repr(value)


def is_snippet(text: str) -> bool:
    """Whether a text is Python on a recipe of Megatron-Bridge."""
    return "megatron.bridge" in text and "cfg." in text


def read_snippet(text: str, name: str = "") -> Configuration:
    """Read assignments on a recipe; the file is parsed, never run.

    Raises:
        InputError: If it is not Python.
    """
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InputError(
            f"{name or 'the text'} is not Python", hint="give the whole file"
        ) from None
    settings: Settings = {}
    spelled = {theirs: ours for ours, theirs in RENAMED.items()}
    recipes = {f"{each[1]}_pretrain_config": each for each in RECIPES.values()}
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Name) and isinstance(value, ast.Call):
            called = getattr(value.func, "id", "")
            if called in recipes:
                settings["recipe"] = recipes[called]
        elif isinstance(target, ast.Attribute) and isinstance(value, ast.Call):
            settings |= {each.arg: _value(each.value) for each in value.keywords if each.arg}
            if value.args:
                settings[target.attr] = _value(value.args[0])
        elif isinstance(target, ast.Attribute):
            settings[spelled.get(target.attr, target.attr)] = _value(value)
    facts = read_rows(ROWS, settings)
    notes = [] if "gpus" in facts else ["the number of GPUs is not in it: give --gpus"]
    if "model" not in facts:
        notes.append("the recipe is none of the catalog's models: give MODEL")
    if same(settings.get("seq_length"), None):
        notes.append("the sequence length is the recipe's: give --seq")
    return configuration(NAME, facts, notes)


def _value(node: ast.expr) -> Any:
    if isinstance(node, ast.Attribute):
        return megatron.dtype(f"torch.{node.attr}")
    try:
        return ast.literal_eval(node)
    except (ValueError, RecursionError):
        return None
