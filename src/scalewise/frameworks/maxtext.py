"""MaxText: the keys of its YAML and of its command line, version 0.2.5.

    said = write_rows(ROWS, facts_of(asked))         # {"ici_fsdp_parallelism": 8, ...}
    read_settings(parse_yaml(text, name))

Every parallelism has two sizes: within a slice or node (ici) and between them (dcn).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from scalewise.frameworks.facts import Configuration, configuration
from scalewise.frameworks.megatron_text import literal
from scalewise.frameworks.shell import launch_command
from scalewise.frameworks.table import (
    Choice,
    Facts,
    Fixed,
    Joint,
    Number,
    Row,
    Said,
    Settings,
    read_rows,
    tokens_of,
    whole,
)
from scalewise.model import load_model
from scalewise.recompute import recomputed_blocks

NAME = "maxtext"
VERSION = "maxtext 0.2.5"

MODELS = {
    "llama-2-7b": "llama2-7b", "llama-2-13b": "llama2-13b", "llama-2-70b": "llama2-70b",
    "llama-3-8b": "llama3.1-8b", "llama-3-70b": "llama3.1-70b", "llama-3.1-405b": "llama3.1-405b",
    "mistral-7b": "mistral-7b", "mixtral-8x7b": "mixtral-8x7b", "mixtral-8x22b": "mixtral-8x22b",
    "gemma-2b": "gemma-2b", "gemma-7b": "gemma-7b", "gemma-2-2b": "gemma2-2b",
    "gemma-2-9b": "gemma2-9b", "gemma-2-27b": "gemma2-27b", "gemma-3-4b": "gemma3-4b",
    "gemma-3-12b": "gemma3-12b", "gemma-3-27b": "gemma3-27b", "qwen3-0.6b": "qwen3-0.6b",
    "qwen3-1.7b": "qwen3-1.7b", "qwen3-4b": "qwen3-4b", "qwen3-8b": "qwen3-8b",
    "qwen3-14b": "qwen3-14b", "qwen3-32b": "qwen3-32b", "qwen3-30b-a3b": "qwen3-30b-a3b",
    "qwen3-235b-a22b": "qwen3-235b-a22b", "qwen3-coder-480b-a35b": "qwen3-480b-a35b",
    "qwen2.5-7b": "qwen2.5-7b", "qwen2.5-14b": "qwen2.5-14b", "gpt-oss-20b": "gpt-oss-20b",
    "gpt-oss-120b": "gpt-oss-120b", "deepseek-v2-lite": "deepseek2-16b",
    "deepseek-v2": "deepseek2-236b", "deepseek-v3": "deepseek3-671b", "kimi-k2": "kimi-k2-1t",
    "llama-4-scout": "llama4-17b-16e", "llama-4-maverick": "llama4-17b-128e",
    "gpt3-175b": "gpt3-175b",
}  # fmt: skip
"""Models of the catalog as `configs/models` of MaxText names them."""

_NAMES = {
    **{"llama3-8b": "llama-3-8b", "llama3-70b": "llama-3-70b", "llama3-405b": "llama-3.1-405b",
       "llama3.3-70b": "llama-3-70b"},
    **{theirs: ours for ours, theirs in MODELS.items()},
}  # fmt: skip

AXES = {
    "tp": ("tensor_sequence", "tensor"), "cp": ("context",), "ep": ("expert",),
    "dp_shard": ("fsdp", "fsdp_transpose", "sequence"), "dp_replicate": ("data",),
}  # fmt: skip
"""Mesh axes of MaxText by degree, those nearest to each other first."""

_PIPELINE = "pipeline"


def _keys() -> tuple[str, ...]:
    axes = [axis for each in AXES.values() for axis in each] + [_PIPELINE]
    return tuple(f"{where}_{axis}_parallelism" for axis in axes for where in ("ici", "dcn"))


def _write_mesh(facts: Facts, said: Said) -> None:
    s, kind = said.settings, facts["sharding"]
    if kind in ("zero1", "zero2"):
        said.refuse("sharding", kind, "MaxText has fsdp and data parallelism; use fsdp")
    if kind == "zero3" and facts["dp_shard"] == 1:
        said.warn("sharding", kind, "an fsdp axis of one rank shards nothing")
    if facts["pp"] > 1:
        said.refuse("pp", facts["pp"], "the circular schedule of MaxText is not modeled; use pp1")
    if facts["etp"] > 1:
        said.refuse("etp", facts["etp"], "experts are split as tp says; drop the etp token")
    shards = facts["dp_shard"]
    sizes = {
        "tensor_sequence" if facts["sequence_parallel"] else "tensor": facts["tp"],
        "context": facts["cp"],
        "expert": facts["ep"],
        "fsdp": shards,
        "data": facts["dp_replicate"],
    }
    if facts["ep"] > 1:
        # The expert axis is a part of the data-parallel ranks.
        if shards % facts["ep"]:
            said.refuse("ep", facts["ep"], f"does not divide {shards} shards: the expert axis is "
                        "made of data-parallel ranks")  # fmt: skip
            return
        sizes["fsdp"] = shards // facts["ep"]
    left = facts["node"]
    for axis, size in sizes.items():
        inside = math.gcd(size, left)
        left //= inside
        s[f"ici_{axis}_parallelism"] = inside
        s[f"dcn_{axis}_parallelism"] = size // inside


def _size(settings: Settings, axis: str) -> int:
    ici = settings.get(f"ici_{axis}_parallelism", 1)
    dcn = settings.get(f"dcn_{axis}_parallelism", 1)
    return (whole(ici) or 1) * (whole(dcn) or 1)


def _read_mesh(settings: Settings) -> Facts:
    given = {**_DEFAULTS, **settings}
    sizes = {name: math.prod(_size(given, axis) for axis in axes) for name, axes in AXES.items()}
    pp = _size(given, _PIPELINE)
    facts: Facts = {"tp": abs(sizes["tp"]), "cp": abs(sizes["cp"]), "pp": abs(pp),
                    "ep": abs(sizes["ep"]), "etp": 1}  # fmt: skip
    facts["sequence_parallel"] = abs(_size(given, "tensor_sequence")) > 1 or facts["tp"] == 1
    known = facts["tp"] * facts["cp"] * facts["pp"] * facts["ep"]
    gpus, auto = whole(settings.get("world_size")), [k for k in _keys() if given.get(k) == -1]
    shards, replicas = abs(sizes["dp_shard"]), abs(sizes["dp_replicate"])
    if auto and gpus:
        rest = gpus // (known * shards * replicas)
        if auto[0].endswith("_data_parallelism"):
            replicas *= max(1, rest)
        else:
            shards *= max(1, rest)
        facts["gpus"] = gpus
    elif not auto:
        facts["gpus"] = known * shards * replicas
    shards *= facts["ep"]
    kind = "zero3" if shards > 1 or (auto and not gpus) else "ddp"
    return facts | {"dp_shard": shards, "dp_replicate": replicas, "sharding": kind}


_DEFAULTS: Settings = {
    "ici_fsdp_parallelism": -1, "dcn_data_parallelism": -1, "per_device_batch_size": 12.0,
    "max_target_length": 2048, "remat_policy": "full", "context_parallel_strategy": "all_gather",
    "opt_type": "adamw", "dtype": "bfloat16", "gradient_accumulation_steps": 1,
    "model_name": "default",
}  # fmt: skip
"""Values of `base.yml`."""


def _write_model(facts: Facts, said: Said) -> None:
    name = facts["model"].name
    if name in MODELS:
        said.settings["model_name"] = MODELS[name]
    else:
        said.refuse("model", name, "no configs/models/*.yml of MaxText has it")


def _read_model(settings: Settings) -> Facts:
    name = str(settings.get("model_name", "default"))
    return {"model": load_model(_NAMES[name])} if name in _NAMES else {}


def _write_batch(facts: Facts, said: Said) -> None:
    # A device holds a micro-batch of all ranks that share a sequence.
    ranks = facts["tp"] * facts["cp"]
    per_device = facts["micro_batch"] / ranks
    said.settings["per_device_batch_size"] = int(per_device) if per_device % 1 == 0 else per_device
    said.settings["gradient_accumulation_steps"] = facts["num_microbatches"]


def _read_batch(settings: Settings) -> Facts:
    given = {**_DEFAULTS, **settings}
    mesh = _read_mesh(settings)
    # A word in place of a number is no batch, nor is a product that no float holds.
    try:
        micro = float(given["per_device_batch_size"]) * mesh["tp"] * mesh["cp"]
    except (TypeError, ValueError, OverflowError):
        micro = 0.0
    steps = whole(given["gradient_accumulation_steps"]) or 1
    if micro < 1 or micro % 1:
        return {"num_microbatches": steps}
    facts: Facts = {"micro_batch": int(micro), "num_microbatches": steps}
    if "gpus" in mesh:
        facts["global_batch"] = int(micro) * steps * mesh["dp_shard"] * mesh["dp_replicate"]
    return facts


def _write_recompute(facts: Facts, said: Said) -> None:
    kind = facts["recompute"]
    if kind == "full":
        said.settings["remat_policy"] = "full"
    elif kind == "selective":
        said.settings["remat_policy"] = "minimal"
    else:
        blocks = recomputed_blocks(kind)
        why = "all blocks alike" if blocks else "full (acfull) or a policy (acsel)"
        said.refuse("recompute", kind, f"a remat_policy holds for {why}")


def _read_recompute(settings: Settings) -> Facts:
    word = settings.get("remat_policy", "full")
    return {"recompute": "full" if word == "full" else "selective"}


def _write_precision(facts: Facts, said: Said) -> None:
    word, s = facts["precision"], said.settings
    if word in ("bf16", "fp8"):
        s |= {"dtype": "bfloat16", "weight_dtype": "float32"}
        if word == "fp8":
            s["quantization"] = "fp8"
    elif word == "fp32":
        s |= {"dtype": "float32", "weight_dtype": "float32"}
    else:
        said.refuse("precision", word, "MaxText has bf16, fp8 and fp32")
    if facts["weights"] == "bf16" and word == "bf16":
        s["weight_dtype"] = "bfloat16"
    elif facts["weights"] != ("fp32" if word == "fp32" else "mixed"):
        said.refuse("weights", facts["weights"], "weight_dtype is float32 or bfloat16")


def _read_precision(settings: Settings) -> Facts:
    wide = settings.get("dtype", "bfloat16") == "float32"
    facts: Facts = {"precision": "fp32" if wide else "bf16", "weights": "mixed"}
    if wide:
        facts["weights"] = "fp32"
    elif settings.get("weight_dtype") == "bfloat16":
        facts["weights"] = "bf16"
    if str(settings.get("quantization") or "").startswith(("fp8", "nanoo_fp8")):
        facts["precision"] = "fp8"
    return facts


def _write_tokens(facts: Facts, said: Said) -> None:
    if facts["tokens"] is not None:
        per_step = facts["seq_len"] * facts["global_batch"]
        said.settings["steps"] = math.ceil(facts["tokens"] / per_step)


def _read_tokens(settings: Settings) -> Facts:
    steps = whole(settings.get("steps"))
    facts = _read_batch(settings)
    seq = whole(settings.get("max_target_length"))
    if steps and steps > 0 and seq and "global_batch" in facts:
        return tokens_of(steps, seq, facts["global_batch"])
    return {}


def _write_capacity(facts: Facts, said: Said) -> None:
    if facts["capacity"] is not None:
        said.settings |= {"capacity_factor": facts["capacity"], "sparse_matmul": False}


def _read_capacity(settings: Settings) -> Facts:
    factor = settings.get("capacity_factor")
    return {"capacity": float(factor)} if isinstance(factor, int | float) and factor > 0 else {}


_XLA = "XLA decides it"
_DATA = "the data says it, not a key"

ROWS: tuple[Row, ...] = (
    Joint(("model",), ("model_name",), _write_model, _read_model),
    Number("gpus", "world_size"),
    Joint(("tp", "sequence_parallel", "cp", "pp", "ep", "etp", "dp_shard", "dp_replicate",
           "sharding"), _keys(), _write_mesh, _read_mesh),
    Choice("cp_method", {"ring": {"context_parallel_strategy": "ring"},
                         "allgather": {"context_parallel_strategy": "all_gather"}},
           "", defaults=_DEFAULTS, counts=lambda facts: facts["cp"] > 1),
    *(Fixed(name, (value,), "no pipeline", counts=lambda facts: False)
      for name, value in (("virtual_stages", 1), ("schedule", "1f1b"), ("overlap_pp", True),
                          ("first_stage_layers", None), ("last_stage_layers", None))),
    Joint(("micro_batch", "num_microbatches", "global_batch"),
          ("per_device_batch_size", "gradient_accumulation_steps"), _write_batch, _read_batch),
    Number("seq_len", "max_target_length"),
    Joint(("recompute",), ("remat_policy",), _write_recompute, _read_recompute),
    Fixed("recompute_modules", ("",), "a remat_policy names tensors, not modules; drop them"),
    Fixed("mlp_tiles", (1,), "MaxText computes an MLP at once; drop the tilemlp token"),
    Choice("offload", {"opt+param": {"optimizer_memory_host_offload": True,
                                     "parameter_memory_host_offload": True},
                       "opt": {"optimizer_memory_host_offload": True}, "": {}},
           "optimizer and parameters are offloaded to the host"),
    Joint(("precision", "weights"), ("dtype", "weight_dtype", "quantization"),
          _write_precision, _read_precision),
    Fixed("attention_precision", (None,), "no key for attention in fp8; drop fp8attn"),
    Fixed("gather_precision", (None,), "all-gathers are in the weight's type"),
    Fixed("compiled", (True,), "XLA always compiles; drop eager"),
    Choice("reduce_precision", {"bf16": {"grad_dtype": "bfloat16"}, "fp32": {}, None: {}},
           "gradients are reduced in fp32 or bf16"),
    Fixed("reduce_each", (True,), _XLA, refuse=False,
          counts=lambda facts: facts["num_microbatches"] > 1),
    Fixed("bucket_mb", (None,), _XLA),
    Fixed("reshard_after_forward", (True,), _XLA, refuse=False,
          counts=lambda facts: facts["sharding"] == "zero3"),
    Fixed("prefetch", (1,), _XLA, refuse=False),
    Fixed("backward_shard", (None,), "no second copy of parameters; drop the hpz token"),
    Fixed("replica_sync", (None,), "replicas are synchronized as shards are; drop synconce"),
    Fixed("hierarchical_gather", (False,), "no hierarchical all-gather; drop hiergather"),
    Fixed("overlap_dp", (True,), _XLA, refuse=False),
    Fixed("overlap_tp", (True,), _XLA, refuse=False),
    Fixed("overlap_ep", (True,), _XLA, refuse=False),
    Choice("optimizer", {"adamw": {"opt_type": "adamw"}, "muon": {"opt_type": "muon"},
                         "sgd": {"opt_type": "sgd"}}, "MaxText has adamw, muon and sgd",
           defaults=_DEFAULTS),
    Fixed("loss", ("full",), "num_vocab_tiling is not modeled", refuse=False),
    Fixed("tuning", ("full",), "adapters are of post-training; use full"),
    Joint(("capacity",), ("capacity_factor", "sparse_matmul"), _write_capacity, _read_capacity),
    Fixed("imbalance", (1.0,), "the router decides it", refuse=False),
    Fixed("lengths", (None,), _DATA, refuse=False),
    Fixed("batching", ("packed",), _DATA, refuse=False),
    Joint(("tokens",), ("steps",), _write_tokens, _read_tokens),
)  # fmt: skip
"""Every fact of a plan, and the key that says it."""

LAUNCHED = ("world_size",)

_OWN = {"per_device_batch_size", "max_target_length", "remat_policy", "ici_fsdp_parallelism",
        "model_name", "dcn_data_parallelism", "ici_tensor_parallelism"}  # fmt: skip


def is_config(value: Any) -> bool:
    """Whether a parsed file is a configuration of MaxText."""
    return isinstance(value, Mapping) and bool((_OWN - {"model_name"}) & set(value))


def is_launch(words: Iterable[str]) -> bool:
    """Whether words of a command are MaxText's key=value pairs."""
    return any(word.partition("=")[0] in _OWN and "=" in word for word in words)


def read_launch(text: str, name: str = "") -> Configuration:
    """Read the key=value pairs of a command."""
    command = launch_command(text, name, flag="=")
    pairs = [word.partition("=") for word in command.words]
    settings = {
        key: literal(value) for key, equals, value in pairs if equals and key.isidentifier()
    }
    if command.gpus is not None:
        settings["world_size"] = command.gpus
    return read_settings(settings)


def read_settings(value: Mapping[str, Any]) -> Configuration:
    """Read the keys of a YAML file or a command."""
    settings = dict(value)
    facts = read_rows(ROWS, {**_DEFAULTS, **settings} if settings.get("model_name") else settings)
    facts["compiled"] = True
    notes = []
    if "gpus" not in facts:
        notes.append("the number of GPUs is not in it (a size of -1 takes what is left): "
                     "give --gpus")  # fmt: skip
    if "model" not in facts:
        notes.append(
            f"the catalog has no model {settings.get('model_name', 'default')}: give MODEL"
        )
    if facts.get("pp", 1) > 1:
        notes.append("the circular pipeline schedule is not modeled: it is read as 1f1b")
    if "micro_batch" not in facts:
        notes.append("per_device_batch_size splits sequences: give the mb token of --strategy")
    if settings.get("remat_policy", "full") not in ("full", "minimal"):
        notes.append(f"remat_policy {settings['remat_policy']} is read as the usual policy")
    return configuration(NAME, facts, notes)
