"""Hugging Face accelerate: the YAML of `accelerate launch --config_file`, version 1.15.

    said = write_rows(ROWS, facts_of(asked))        # {"parallelism_config.....dp_shard_size": 256}
    read_tables(parse_yaml(text, name))

It says how processes are laid out and sharded. The program says the rest: model, batch, optimizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scalewise.frameworks import deepspeed
from scalewise.frameworks.deepspeed import program
from scalewise.frameworks.facts import Configuration, configuration
from scalewise.frameworks.table import (
    Choice,
    Facts,
    Fixed,
    Joint,
    Row,
    Said,
    Settings,
    flat,
    read_rows,
    whole,
)

NAME = "accelerate"
VERSION = "accelerate 1.15.0"

_PARALLEL = "parallelism_config.parallelism_config"
_FSDP = "fsdp_config.fsdp"
FSDP = {
    "fsdp_version": 2,
    "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
    "fsdp_state_dict_type": "SHARDED_STATE_DICT",
    "fsdp_cpu_ram_efficient_loading": True,
}
"""Keys of FSDP that no fact decides."""

_STRATEGIES = {"ddp": "NO_SHARD", "zero2": "SHARD_GRAD_OP", "zero3": "FULL_SHARD"}
"""Sharding strategies of FSDP version 1."""


def _write_sharding(facts: Facts, said: Said) -> None:
    s, kind = said.settings, facts["sharding"]
    s |= {"num_processes": facts["gpus"], "num_machines": -(-facts["gpus"] // facts["node"])}
    if kind in ("zero1", "zero2"):
        said.refuse("sharding", kind, "accelerate has FSDP and DDP, and hands ZeRO to DeepSpeed; "
                    "use fsdp, or export to deepspeed")  # fmt: skip
    if kind == "ddp":
        s["distributed_type"] = "MULTI_GPU" if facts["gpus"] > 1 else "NO"
        for name in ("tp", "cp"):
            if facts[name] > 1:
                said.refuse(name, facts[name], "DDP of accelerate goes with no other parallelism; "
                            "use fsdp")  # fmt: skip
        return
    if facts["dp_replicate"] > 1 and facts["dp_shard"] == 1 and facts["tp"] * facts["cp"] > 1:
        said.refuse("dp_shard", 1, "replicas alone go with no tp or cp; shard over 2 or more")
    s["distributed_type"] = "FSDP"
    for key, value in FSDP.items():
        s[f"fsdp_config.{key}"] = value
    s[f"{_FSDP}_reshard_after_forward"] = facts["reshard_after_forward"]
    if facts["dp_replicate"] > 1 or facts["tp"] > 1 or facts["cp"] > 1:
        for name in ("dp_replicate", "dp_shard", "tp", "cp"):
            s[f"{_PARALLEL}_{name}_size"] = facts[name]


def _read_sharding(settings: Settings) -> Facts:
    gpus = whole(settings.get("num_processes"))
    sizes = {name: whole(settings.get(f"{_PARALLEL}_{name}_size")) or 1
             for name in ("dp_replicate", "dp_shard", "tp", "cp")}  # fmt: skip
    facts: Facts = {"tp": sizes["tp"], "cp": sizes["cp"]}
    if gpus:
        facts["gpus"] = gpus
    kind = str(settings.get("distributed_type", "NO")).upper()
    if kind != "FSDP":
        return facts | {"sharding": "ddp", "dp_replicate": gpus or 1, "dp_shard": 1}
    replicas, shards = sizes["dp_replicate"], sizes["dp_shard"]
    if shards == 1 and gpus:
        shards = max(1, gpus // (replicas * sizes["tp"] * sizes["cp"]))
    reshard, sharding = settings.get(f"{_FSDP}_reshard_after_forward", True), "zero3"
    if str(settings.get("fsdp_config.fsdp_version", 1)) == "1":
        old = str(settings.get(f"{_FSDP}_sharding_strategy") or reshard).upper()
        names = {word: name for name, word in _STRATEGIES.items()}
        numbers = {"1": "zero3", "2": "zero2", "3": "ddp"}
        sharding = names.get(old) or numbers.get(old) or "zero3"
        reshard = True
        if "HYBRID" in old or old in ("4", "5"):
            node = (gpus or 1) // (whole(settings.get("num_machines")) or 1)
            replicas, shards = (gpus or 1) // max(1, node), max(1, node)
    facts |= {"sharding": sharding, "dp_replicate": replicas, "dp_shard": shards}
    return facts | {"reshard_after_forward": reshard is not False}


def _write_offload(facts: Facts, said: Said) -> None:
    if facts["offload"] == "opt+param" and facts["sharding"] == "zero3":
        said.settings[f"{_FSDP}_offload_params"] = True
    elif facts["offload"]:
        said.refuse("offload", facts["offload"], "CPU offload of FSDP is of optimizer and "
                    "parameters, offopt-offparam")  # fmt: skip


def _read_offload(settings: Settings) -> Facts:
    return {"offload": "opt+param" if settings.get(f"{_FSDP}_offload_params") is True else ""}


def _write_recompute(facts: Facts, said: Said) -> None:
    kind = facts["recompute"]
    if facts["sharding"] == "zero3" and kind in ("full", "none"):
        said.settings[f"{_FSDP}_activation_checkpointing"] = kind == "full"
    elif kind not in ("full", "none"):
        said.refuse("recompute", kind, "accelerate recomputes whole blocks (acfull) or nothing")
    else:
        said.warn("recompute", kind, "the program turns it on without FSDP, such as "
                  "gradient_checkpointing_enable()")  # fmt: skip


def _read_recompute(settings: Settings) -> Facts:
    on = settings.get(f"{_FSDP}_activation_checkpointing") is True
    if str(settings.get("distributed_type")).upper() != "FSDP":
        return {}
    return {"recompute": "full" if on else "none"}


def _write_precision(facts: Facts, said: Said) -> None:
    word = facts["precision"]
    if word in ("bf16", "fp16", "fp8"):
        said.settings["mixed_precision"] = word
        if word == "fp8":
            said.settings["fp8_config.backend"] = "AO"
    elif word == "fp32":
        said.settings["mixed_precision"] = "no"
    else:
        said.refuse("precision", word, "accelerate has bf16, fp16, fp8 and fp32")
    if facts["weights"] != ("fp32" if word == "fp32" else "mixed"):
        said.refuse("weights", facts["weights"], "accelerate keeps 32-bit parameters and casts "
                    "them")  # fmt: skip


def _read_precision(settings: Settings) -> Facts:
    word = settings.get("mixed_precision", "no")
    if word in ("bf16", "fp16", "fp8"):
        return {"precision": word, "weights": "mixed"}
    return {"precision": "fp32", "weights": "fp32"}


def _reduces(kind: str, precision: str) -> str:
    """Precision of the gradient reduction: FSDP takes that of compute, DDP that of parameters."""
    return "bf16" if kind == "zero3" and precision in ("bf16", "fp8") else "fp32"


def _write_reduce(facts: Facts, said: Said) -> None:
    own, word = _reduces(facts["sharding"], facts["precision"]), facts["reduce_precision"]
    if word == "int4":
        said.refuse("reduce_precision", word, "gradients are reduced in bf16 or fp32; drop qgz")
    elif word not in (None, own):
        said.warn("reduce_precision", word, f"accelerate reduces in {own}; ask with reduce{own}")


def _read_reduce(settings: Settings) -> Facts:
    kind, word = _read_sharding(settings)["sharding"], _read_precision(settings)["precision"]
    return {"reduce_precision": _reduces(kind, word)}


_BACKEND = "dynamo_config.dynamo_backend"
_SCRIPT = "the program says it, not the YAML"
_SHARDED = "the program sets it in FullyShardedDataParallelPlugin"

ROWS: tuple[Row, ...] = (
    program("model", "the program builds it"),
    Joint(("gpus", "dp_replicate", "dp_shard", "sharding", "tp", "cp", "reshard_after_forward"),
          ("num_processes", "num_machines", "distributed_type",
           *(f"fsdp_config.{key}" for key in FSDP), f"{_FSDP}_reshard_after_forward",
           *(f"{_PARALLEL}_{name}_size" for name in ("dp_replicate", "dp_shard", "tp", "cp"))),
          _write_sharding, _read_sharding),
    Fixed("sequence_parallel", (False,), "tensor parallelism of transformers does not split the "
          "sequence; add nosp", counts=lambda facts: facts["tp"] > 1),
    Choice("cp_method", {"allgather": {f"{_PARALLEL}_cp_comm_strategy": "allgather"}},
           "context parallelism is an all-gather (cp2ag), or an all-to-all, which is not modeled",
           counts=lambda facts: facts["cp"] > 1),
    Fixed("pp", (1,), "accelerate has no pipeline; use pp1"),
    *(Fixed(name, (value,), "no pipeline", counts=lambda facts: False)
      for name, value in (("virtual_stages", 1), ("schedule", "1f1b"), ("overlap_pp", True),
                          ("first_stage_layers", None), ("last_stage_layers", None))),
    Fixed("ep", (1,), "accelerate has no expert parallelism; use ep1"),
    Fixed("etp", (1,), "accelerate has no expert tensor parallelism; drop the etp token"),
    program("micro_batch", _SCRIPT),
    program("num_microbatches", _SCRIPT),
    program("global_batch", _SCRIPT),
    program("seq_len", _SCRIPT),
    Joint(("recompute",), (f"{_FSDP}_activation_checkpointing",),
          _write_recompute, _read_recompute),
    Fixed("recompute_modules", ("",), "accelerate recomputes whole blocks; drop modules"),
    Fixed("mlp_tiles", (1,), "a tiled MLP is code; drop the tilemlp token"),
    Joint(("offload",), (f"{_FSDP}_offload_params",), _write_offload, _read_offload),
    Joint(("precision", "weights"), ("mixed_precision", "fp8_config.backend"),
          _write_precision, _read_precision),
    Fixed("attention_precision", (None,), "no key for attention in fp8; drop fp8attn"),
    Fixed("gather_precision", (None,), "all-gathers are in 16 bits; drop gatherfp8 or qwz"),
    Choice("compiled", {True: {_BACKEND: "INDUCTOR"}, False: {}}, ""),
    Joint(("reduce_precision",), (), _write_reduce, _read_reduce),
    Fixed("reduce_each", (True,), "accelerate reduces as no_sync() in the program says",
          refuse=False, counts=lambda facts: facts["num_microbatches"] > 1),
    Fixed("bucket_mb", (None,), "bucket_cap_mb is set in code; drop the bucket token"),
    Fixed("prefetch", (1,), _SHARDED, refuse=False),
    Fixed("backward_shard", (None,), "FSDP2 takes it in code; drop the hpz token"),
    Fixed("replica_sync", (None,), "replicas are synchronized as shards are; drop synconce"),
    Fixed("hierarchical_gather", (False,), "no hierarchical all-gather; drop hiergather"),
    Fixed("overlap_dp", (True,), "FSDP and DDP always overlap; drop nodpoverlap"),
    Fixed("overlap_tp", (False,), "tensor parallelism of transformers overlaps nothing",
          refuse=False, counts=lambda facts: facts["tp"] > 1),
    Fixed("overlap_ep", (True,), _SCRIPT, refuse=False),
    program("optimizer", "the program builds it"),
    Fixed("loss", ("full",), _SCRIPT, refuse=False),
    Fixed("tuning", ("full",), "the program adds adapters", refuse=False),
    Fixed("capacity", (None,), _SCRIPT, refuse=False),
    Fixed("imbalance", (1.0,), "the router decides it", refuse=False),
    Fixed("lengths", (None,), _SCRIPT, refuse=False),
    Fixed("batching", ("packed",), _SCRIPT, refuse=False),
    Fixed("tokens", (None,), "the program counts steps", refuse=False),
)  # fmt: skip
"""Every fact of a plan, and the key that says it."""


def is_config(value: Any) -> bool:
    """Whether a parsed file is a configuration of accelerate."""
    return isinstance(value, Mapping) and "distributed_type" in value


def read_tables(value: Mapping[str, Any]) -> Configuration:
    """Read a configuration file; one that hands over to DeepSpeed is read as DeepSpeed's."""
    settings = flat(value)
    notes = ["the model is not in it: give MODEL, such as its config.json",
             "the sequence length is not in it: give --seq"]  # fmt: skip
    inner = value.get("deepspeed_config")
    if str(settings.get("distributed_type")).upper() == "DEEPSPEED" and isinstance(inner, Mapping):
        return _with_deepspeed(settings, inner, notes)
    if str(settings.get("distributed_type")).upper() == "MEGATRON_LM":
        notes.append("its megatron_lm_config is not read: give the log of the run")
    facts = read_rows(ROWS, settings)
    if whole(settings.get("num_processes")) is None:
        notes.append("the number of GPUs is not in it: give --gpus")
    notes.append("the batch is not in it: give --batch, and the mb token of --strategy")
    return configuration(NAME, facts, notes)


def _with_deepspeed(
    settings: Settings, inner: Mapping[str, Any], notes: list[str]
) -> Configuration:
    """ZeRO as accelerate spells it: the stage and offload devices beside the rest."""
    zero = {"stage": inner.get("zero_stage", 2)}
    more: Settings = {f"zero_optimization.{key}": each for key, each in zero.items()}
    for key in ("offload_optimizer", "offload_param"):
        if (device := inner.get(f"{key}_device")) in ("cpu", "nvme"):
            more[f"zero_optimization.{key}.device"] = device
    word = settings.get("mixed_precision")
    if word in ("bf16", "fp16"):
        more[f"{word}.enabled"] = True
    if (steps := whole(inner.get("gradient_accumulation_steps"))) is not None:
        more["gradient_accumulation_steps"] = steps
    if (gpus := whole(settings.get("num_processes"))) is not None:
        more["world_size"] = gpus
    if "deepspeed_config_file" in inner:
        notes.append(f"{inner['deepspeed_config_file']} has the rest: give that file")
    facts, told = deepspeed.facts_in({}, **more)
    notes.append("the batch is not in it: give --batch, and the mb token of --strategy")
    return configuration(deepspeed.NAME, facts, [*notes, *told])
