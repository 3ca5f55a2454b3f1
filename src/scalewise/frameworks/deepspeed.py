"""DeepSpeed: the JSON of `deepspeed.initialize`, version 0.19.8.

    said = write_rows(ROWS, facts_of(asked))         # {"zero_optimization.stage": 3, ...}
    read_tables(json)

It says how a model is sharded and updated. The program builds the model, its optimizer and its
recompute: those facts are warned of, not written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from scalewise.frameworks.facts import Configuration, configuration
from scalewise.frameworks.table import (
    Choice,
    Facts,
    Fixed,
    Joint,
    Number,
    Row,
    Said,
    Settings,
    flat,
    read_rows,
    same,
    whole,
)
from scalewise.model import Model
from scalewise.offload import joined, offloads_of
from scalewise.sharding import MIB

NAME = "deepspeed"
VERSION = "deepspeed 0.19.8"
AUTO = "auto"
"""Value that the Trainer of transformers fills in."""

_STAGES = {"ddp": 0, "zero1": 1, "zero2": 2, "zero3": 3}
_ZERO = "zero_optimization"


def program(name: str, why: str) -> Joint:
    """Return the row of a fact that the program decides: named whenever it is exported."""

    def write(facts: Facts, said: Said) -> None:
        said.warn(name, facts.get(name), why)

    return Joint((name,), (), write, lambda settings: {})


def _write_sharding(facts: Facts, said: Said) -> None:
    kind, s = facts["sharding"], said.settings
    s[f"{_ZERO}.stage"] = _STAGES[kind]
    if kind != "ddp" and facts["dp_replicate"] > 1:
        said.refuse("dp_replicate", facts["dp_replicate"], "DeepSpeed shards over all ranks: MiCS "
                    "is gone, and hpZ copies parameters only; use fsdp")  # fmt: skip
    if kind == "zero3":
        s[f"{_ZERO}.stage3_gather_16bit_weights_on_model_save"] = True


def _read_sharding(settings: Settings) -> Facts:
    stage = whole(settings.get(f"{_ZERO}.stage")) or 0
    kind = {number: word for word, number in _STAGES.items()}.get(stage, "zero3")
    facts: Facts = {"sharding": kind, "reshard_after_forward": True}
    batch = whole(settings.get("train_batch_size"))
    micro = whole(settings.get("train_micro_batch_size_per_gpu"))
    steps = whole(settings.get("gradient_accumulation_steps"))
    ranks = whole(settings.get("data_parallel_size"))
    world, tp = whole(settings.get("world_size")), _tp(settings)
    if world:
        ranks = max(1, world // tp)
    elif batch and micro and steps:
        ranks = max(1, batch // (micro * steps))
    if ranks:
        facts["gpus"] = ranks * tp
    replicas, shards = (ranks or 1, 1) if kind == "ddp" else (1, ranks or 1)
    return facts | {"dp_replicate": replicas, "dp_shard": shards}


def _tp(settings: Settings) -> int:
    return whole(settings.get("tensor_parallel.autotp_size")) or 1


def _write_prefetch(facts: Facts, said: Said) -> None:
    model = facts.get("model")
    if facts["sharding"] == "zero3" and isinstance(model, Model):
        elements = round(facts["prefetch"] * model.layer_parameters)
        said.settings[f"{_ZERO}.stage3_prefetch_bucket_size"] = elements


def _write_bucket(facts: Facts, said: Said) -> None:
    if facts["bucket_mb"] is None:
        return
    size = 2.0 if facts["reduce_precision"] == "bf16" else 4.0
    elements = round(facts["bucket_mb"] * MIB / size)
    said.settings |= {f"{_ZERO}.reduce_bucket_size": elements,
                      f"{_ZERO}.allgather_bucket_size": elements}  # fmt: skip


def _read_bucket(settings: Settings) -> Facts:
    elements = whole(settings.get(f"{_ZERO}.reduce_bucket_size"))
    if not elements or whole(settings.get(f"{_ZERO}.stage")) == 3:
        return {}
    size = 2.0 if same(settings.get("communication_data_type"), "bf16") else 4.0
    return {"bucket_mb": max(1, round(elements * size / MIB))}


def _write_offload(facts: Facts, said: Said) -> None:
    words = offloads_of(facts["offload"])
    device = "nvme" if "nvme" in words else "cpu"
    for word, key in (("opt", "offload_optimizer"), ("param", "offload_param")):
        if word in words:
            said.settings[f"{_ZERO}.{key}.device"] = device
            if device == "nvme":
                said.settings[f"{_ZERO}.{key}.nvme_path"] = "/local_nvme"
    if "act" in words:
        said.refuse("offload", facts["offload"], "only inputs of recomputed blocks are offloaded; "
                    "drop offact")  # fmt: skip
    if "opt" in words and facts["sharding"] == "ddp":
        said.refuse("offload", facts["offload"], "offload needs ZeRO; use zero1, zero2 or fsdp")
    if {"param", "nvme"} & set(words) and facts["sharding"] != "zero3":
        said.refuse("offload", facts["offload"], "parameters and NVMe need ZeRO-3; use fsdp")


def _read_offload(settings: Settings) -> Facts:
    words = []
    for word, key in (("opt", "offload_optimizer"), ("param", "offload_param")):
        device = settings.get(f"{_ZERO}.{key}.device")
        if device in ("cpu", "nvme"):
            words += [word] + ["nvme"] * (device == "nvme")
    return {"offload": joined(words)}


def _write_precision(facts: Facts, said: Said) -> None:
    word, weights, s = facts["precision"], facts["weights"], said.settings
    if word in ("bf16", "fp16"):
        s[f"{word}.enabled"] = True
    elif word != "fp32":
        said.refuse("precision", word, "DeepSpeed has bf16, fp16 and fp32; the program swaps "
                    "layers for others")  # fmt: skip
    if weights != ("fp32" if word == "fp32" else "mixed"):
        said.refuse("weights", weights, "DeepSpeed keeps a 32-bit master copy of 16-bit weights")


def _read_precision(settings: Settings) -> Facts:
    for word in ("bf16", "fp16"):
        if settings.get(f"{word}.enabled") is True:
            return {"precision": word, "weights": "mixed"}
    if AUTO in (settings.get("bf16.enabled"), settings.get("fp16.enabled")):
        return {}
    return {"precision": "fp32", "weights": "fp32"}


def _write_reduce(facts: Facts, said: Said) -> None:
    word = facts["reduce_precision"]
    if word == "int4":
        said.settings[f"{_ZERO}.zero_quantized_gradients"] = True
    elif word is not None:
        said.settings["communication_data_type"] = word


def _read_reduce(settings: Settings) -> Facts:
    if settings.get(f"{_ZERO}.zero_quantized_gradients"):
        return {"reduce_precision": "int4"}
    given = {"bf16": "bf16", "bfp16": "bf16", "bfloat16": "bf16", "fp32": "fp32"}
    word = given.get(str(settings.get("communication_data_type")))
    return {"reduce_precision": word} if word else {}


def _write_each(facts: Facts, said: Said) -> None:
    own = facts["sharding"] in ("zero2", "zero3")
    if facts["num_microbatches"] > 1 and facts["reduce_each"] != own and _ranks(facts) > 1:
        when = "after every micro-batch" if own else "once per step"
        said.warn("reduce_each", facts["reduce_each"], f"this ZeRO stage reduces {when}")


def _read_each(settings: Settings) -> Facts:
    return {"reduce_each": _read_sharding(settings)["sharding"] in ("zero2", "zero3")}


def _write_overlap(facts: Facts, said: Said) -> None:
    if _ranks(facts) > 1 and facts["sharding"] != "ddp":
        said.settings[f"{_ZERO}.overlap_comm"] = facts["overlap_dp"]
    elif _ranks(facts) > 1 and facts["overlap_dp"]:
        said.warn("overlap_dp", True, "stage 0 reduces gradients after backward; use zero1")


def _read_overlap(settings: Settings) -> Facts:
    """Stage 3 overlaps unless told otherwise, the others only if told."""
    given, stage = settings.get(f"{_ZERO}.overlap_comm"), whole(settings.get(f"{_ZERO}.stage"))
    return {"overlap_dp": stage == 3 if given is None else bool(given) and stage != 0}


def _ranks(facts: Facts) -> int:
    return int(facts["dp_replicate"] * facts["dp_shard"])


_OPTIMIZERS = {
    "adam": "adamw", "adamw": "adamw", "torch_adam": "adamw", "lion": "lion", "muon": "muon",
    "sgd": "momentum",
}  # fmt: skip


def _read_optimizer(settings: Settings) -> Facts:
    word = _OPTIMIZERS.get(str(settings.get("optimizer.type")).lower())
    return {"optimizer": word} if word else {}


def _write_optimizer(facts: Facts, said: Said) -> None:
    said.warn("optimizer", facts["optimizer"], "the program builds it; a section `optimizer` "
              "needs its learning rate too")  # fmt: skip


_SCRIPT = "the program says it, not the JSON"

ROWS: tuple[Row, ...] = (
    program("model", "the program builds it"),
    Number("gpus", "world_size"),
    Joint(("dp_replicate", "dp_shard", "sharding"),
          (f"{_ZERO}.stage", f"{_ZERO}.stage3_gather_16bit_weights_on_model_save"),
          _write_sharding, _read_sharding),
    Number("tp", "tensor_parallel.autotp_size", 1),
    Fixed("sequence_parallel", (False,), "AutoTP does not split the sequence; add nosp",
          counts=lambda facts: facts["tp"] > 1),
    Fixed("cp", (1,), "sequence parallelism of DeepSpeed is Ulysses, another exchange; use cp1"),
    Fixed("cp_method", ("ring",), "no context parallelism", counts=lambda facts: False),
    Fixed("pp", (1,), "a PipelineModule is code, not configuration; use pp1"),
    *(Fixed(name, (value,), "no pipeline", counts=lambda facts: False)
      for name, value in (("virtual_stages", 1), ("schedule", "1f1b"), ("overlap_pp", True),
                          ("first_stage_layers", None), ("last_stage_layers", None))),
    Fixed("ep", (1,), "expert parallelism is an argument of the MoE layer, in code; use ep1"),
    Fixed("etp", (1,), "expert tensor parallelism is in code; drop the etp token"),
    Number("micro_batch", "train_micro_batch_size_per_gpu"),
    Number("num_microbatches", "gradient_accumulation_steps"),
    Number("global_batch", "train_batch_size"),
    program("seq_len", _SCRIPT),
    program("recompute", "the program turns it on, such as gradient_checkpointing_enable()"),
    Fixed("recompute_modules", ("",), _SCRIPT, refuse=False),
    Fixed("mlp_tiles", (1,), "a TiledMLP is code; drop the tilemlp token"),
    Joint(("offload",), (f"{_ZERO}.offload_optimizer.device", f"{_ZERO}.offload_param.device",
                         f"{_ZERO}.offload_optimizer.nvme_path",
                         f"{_ZERO}.offload_param.nvme_path"),
          _write_offload, _read_offload),
    Joint(("precision", "weights"), ("bf16.enabled", "fp16.enabled"),
          _write_precision, _read_precision),
    Fixed("attention_precision", (None,), "no key for attention in fp8; drop fp8attn"),
    Choice("gather_precision", {"int8": {f"{_ZERO}.zero_quantized_weights": True}, None: {}},
           "all-gathers are in 16 bits or int8 (qwz)"),
    Fixed("compiled", (False,), "the program calls engine.compile()", refuse=False),
    Joint(("reduce_precision",), ("communication_data_type", f"{_ZERO}.zero_quantized_gradients"),
          _write_reduce, _read_reduce),
    Joint(("reduce_each",), (), _write_each, _read_each),
    Joint(("bucket_mb",), (f"{_ZERO}.reduce_bucket_size", f"{_ZERO}.allgather_bucket_size"),
          _write_bucket, _read_bucket),
    Fixed("reshard_after_forward", (True,), "ZeRO-3 frees parameters after forward; drop "
          "noreshard", counts=lambda facts: facts["sharding"] == "zero3"),
    Joint(("prefetch",), (f"{_ZERO}.stage3_prefetch_bucket_size",), _write_prefetch,
          lambda settings: {}),
    Number("backward_shard", f"{_ZERO}.zero_hpz_partition_size"),
    Fixed("replica_sync", (None,), "MiCS is refused by DeepSpeed; drop synconce"),
    Fixed("hierarchical_gather", (False,), "MiCS is refused by DeepSpeed; drop hiergather"),
    Joint(("overlap_dp",), (f"{_ZERO}.overlap_comm",), _write_overlap, _read_overlap),
    Fixed("overlap_tp", (False,), "AutoTP overlaps nothing", refuse=False,
          counts=lambda facts: facts["tp"] > 1),
    Fixed("overlap_ep", (True,), _SCRIPT, refuse=False),
    Joint(("optimizer",), (), _write_optimizer, _read_optimizer),
    Fixed("loss", ("full",), _SCRIPT, refuse=False),
    Fixed("tuning", ("full",), "the program adds adapters", refuse=False),
    Fixed("capacity", (None,), "an argument of the MoE layer, in code", refuse=False),
    Fixed("imbalance", (1.0,), "the router decides it", refuse=False),
    Fixed("lengths", (None,), _SCRIPT, refuse=False),
    Fixed("batching", ("packed",), _SCRIPT, refuse=False),
    Fixed("tokens", (None,), "the program counts steps", refuse=False),
)  # fmt: skip
"""Every fact of a plan, and the key that says it."""

LAUNCHED = ("world_size",)


_OWN = {
    "train_batch_size", "train_micro_batch_size_per_gpu", "zero_optimization",
    "gradient_accumulation_steps", "bf16", "fp16", "gradient_clipping", "tensor_parallel",
}  # fmt: skip


def is_config(value: Any) -> bool:
    """Whether parsed JSON is a configuration of DeepSpeed."""
    return isinstance(value, Mapping) and len(_OWN & set(value)) >= 2


_ASKED = {
    "train_batch_size": "--batch", "bf16.enabled": "--precision", "fp16.enabled": "--precision",
    "train_micro_batch_size_per_gpu": "the mb token of --strategy",
    "gradient_accumulation_steps": "the ga token of --strategy",
    f"{_ZERO}.reduce_bucket_size": "the bucket token of --strategy",
}  # fmt: skip
"""Keys that may be "auto", and what is given instead."""


def facts_in(value: Mapping[str, Any], **more: Any) -> tuple[Facts, list[str]]:
    """Return the facts of a configuration, and what it leaves open."""
    settings = flat(value) | more
    notes = [f"{key} is \"auto\": give {flag}" for key, flag in _ASKED.items()
             if settings.get(key) == AUTO]  # fmt: skip
    if settings.get(f"{_ZERO}.zero_hpz_partition_size") == 1:
        del settings[f"{_ZERO}.zero_hpz_partition_size"]
    plain = {key: each for key, each in settings.items() if each != AUTO or "enabled" in key}
    facts = read_rows(ROWS, plain)
    micro = facts.get("micro_batch")
    if micro is None and not _open(settings, "train_batch_size", "gradient_accumulation_steps"):
        ranks = _ranks(facts) * int(facts.get("num_microbatches", 1))
        if "gpus" in facts and facts["global_batch"] % ranks == 0:
            facts["micro_batch"] = facts["global_batch"] // ranks
    elif micro and "global_batch" not in facts and "gpus" in facts:
        steps = facts.get("num_microbatches", 1)
        facts["global_batch"] = micro * steps * _ranks(facts)
    if "gpus" not in facts:
        notes.append("the number of GPUs is not in it: give --gpus")
    if settings.get("sequence_parallel_size", 1) not in (1, None):
        notes.append("sequence parallelism of DeepSpeed is Ulysses, which is not modeled")
    return facts, notes


def _open(settings: Settings, *keys: str) -> bool:
    """Whether one of some numbers is missing or "auto"."""
    return any(whole(settings.get(key)) is None for key in keys)


def read_tables(value: Mapping[str, Any], notes: Iterable[str] = ()) -> Configuration:
    """Read a JSON file."""
    facts, told = facts_in(value)
    told.append("the model is not in it: give MODEL, such as its config.json")
    told.append("the sequence length is not in it: give --seq")
    return configuration(NAME, facts, [*notes, *told])
