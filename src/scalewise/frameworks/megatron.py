"""Megatron-LM: flags of `pretrain_gpt.py`, and the arguments that it prints.

    said = write_rows(ROWS, facts_of(asked))      # {"tensor_model_parallel_size": 2, ...}
    read_rows(ROWS, settings)                     # the same facts

`megatron_text` writes and reads the flags and the log. Names are those of
`megatron/training/arguments.py` in megatron-core 0.19.2, with underscores: the names of its
arguments after validation.
"""

from __future__ import annotations

import math

from scalewise.frameworks.megatron_model import MODEL
from scalewise.frameworks.table import (
    Choice,
    Facts,
    Fixed,
    Joint,
    Number,
    Row,
    Said,
    Settings,
    Value,
    tokens_of,
    whole,
)
from scalewise.model import Model
from scalewise.recompute import modules_of, recomputed_blocks
from scalewise.sharding import MIB

NAME = "megatron"
VERSION = "megatron-core 0.19.2"


def _parallel(facts: Facts) -> bool:
    """Whether gradients are reduced: over data and context ranks, or replicas of experts."""
    model = facts.get("model")
    experts = isinstance(model, Model) and model.moe is not None
    return experts or bool(facts["dp_replicate"] * facts["dp_shard"] * facts["cp"] > 1)


# Sharding of data-parallel ranks.

_FSDP = {"zero2": "optim_grads", "zero3": "optim_grads_params"}


def _write_sharding(facts: Facts, said: Said) -> None:
    s, kind, replicas = said.settings, facts["sharding"], facts["dp_replicate"]
    if kind == "ddp":
        return
    if kind == "zero1":
        s["use_distributed_optimizer"] = True
    elif kind == "zero3" and not facts["reshard_after_forward"]:
        s |= {"use_torch_fsdp2": True, "torch_fsdp2_reshard_after_forward": False,
              "gradient_accumulation_fusion": False}  # fmt: skip
        for name in ("pp", "ep", "dp_replicate"):
            if facts[name] > 1:
                said.refuse(name, facts[name], "--use-torch-fsdp2, which alone keeps parameters "
                            "after forward, has none; drop noreshard")  # fmt: skip
        model = facts.get("model")
        if isinstance(model, Model) and model.tied:
            said.refuse("model.tied", True, "--use-torch-fsdp2 needs an untied head")
    else:
        s |= {"use_megatron_fsdp": True, "data_parallel_sharding_strategy": _FSDP[kind],
              "use_distributed_optimizer": True, "ckpt_format": "fsdp_dtensor",
              "gradient_accumulation_fusion": False}  # fmt: skip
    if replicas > 1 and not s.get("use_torch_fsdp2"):
        s["num_distributed_optimizer_instances"] = replicas


def _read_sharding(settings: Settings) -> Facts:
    world = whole(settings.get("world_size"))
    model_ranks = math.prod(
        whole(settings.get(key)) or 1
        for key in (
            "tensor_model_parallel_size",
            "pipeline_model_parallel_size",
            "context_parallel_size",
        )
    )
    ranks = max(1, world // model_ranks) if world else 1
    facts: Facts = {"sharding": "ddp", "reshard_after_forward": True}
    if settings.get("use_torch_fsdp2"):
        reshard = settings.get("torch_fsdp2_reshard_after_forward", True) is not False
        facts = {"sharding": "zero3", "reshard_after_forward": reshard}
    elif settings.get("use_megatron_fsdp") or settings.get("use_custom_fsdp"):
        strategy = settings.get("data_parallel_sharding_strategy") or "optim_grads_params"
        kinds = {"no_shard": "ddp", "optim": "zero1"} | {v: k for k, v in _FSDP.items()}
        facts["sharding"] = kinds.get(str(strategy), "zero3")
    elif any(settings.get(f"use_{kind}distributed_optimizer") for kind in ("", "layer_wise_")):
        facts["sharding"] = "zero1"
    if facts["sharding"] == "ddp":
        return facts | {"dp_replicate": ranks, "dp_shard": 1}
    replicas = whole(settings.get("num_distributed_optimizer_instances")) or 1
    return facts | {"dp_replicate": replicas, "dp_shard": max(1, ranks // replicas)}


SHARDING = Joint(
    ("dp_replicate", "dp_shard", "sharding", "reshard_after_forward"),
    (
        "use_distributed_optimizer", "num_distributed_optimizer_instances", "use_megatron_fsdp",
        "data_parallel_sharding_strategy", "use_torch_fsdp2", "torch_fsdp2_reshard_after_forward",
        "ckpt_format", "gradient_accumulation_fusion",
    ),
    _write_sharding,
    _read_sharding,
)  # fmt: skip


# Reduction of gradients: when, and in which buckets.


def _reduces_each(facts: Facts) -> bool:
    return facts["sharding"] in ("zero2", "zero3")


def _write_each(facts: Facts, said: Said) -> None:
    own = _reduces_each(facts)
    if facts["num_microbatches"] > 1 and _parallel(facts) and facts["reduce_each"] != own:
        when = "after every micro-batch" if own else "once per step"
        said.warn("reduce_each", facts["reduce_each"], f"Megatron-LM reduces {when}")


def _read_each(settings: Settings) -> Facts:
    return {"reduce_each": _reduces_each(_read_sharding(settings))}


GRADIENT_BYTES = {"fp32": 4.0, "bf16": 2.0}


def _write_bucket(facts: Facts, said: Said) -> None:
    if facts["bucket_mb"] is not None:
        size = GRADIENT_BYTES.get(facts["reduce_precision"] or "fp32", 4.0)
        said.settings["ddp_bucket_size"] = round(facts["bucket_mb"] * MIB / size)


def _read_bucket(settings: Settings) -> Facts:
    elements = whole(settings.get("ddp_bucket_size"))
    size = 2.0 if settings.get("grad_reduce_in_bf16") else 4.0
    return {"bucket_mb": max(1, round(elements * size / MIB)) if elements else None}


def _write_reduce(facts: Facts, said: Said) -> None:
    word = facts["reduce_precision"]
    fsdp = facts["sharding"] in ("zero2", "zero3") and facts["reshard_after_forward"]
    if word == "bf16":
        key = "megatron_fsdp_grad_comm_dtype" if fsdp else "grad_reduce_in_bf16"
        said.settings[key] = "bf16" if fsdp else True
    elif word == "fp32" and fsdp:
        said.settings["megatron_fsdp_grad_comm_dtype"] = "fp32"
    elif word not in ("fp32", None):
        said.refuse("reduce_precision", word, "gradients are reduced in fp32 or bf16")


def _read_reduce(settings: Settings) -> Facts:
    if settings.get("grad_reduce_in_bf16"):
        return {"reduce_precision": "bf16"}
    word = dtype(settings.get("megatron_fsdp_grad_comm_dtype"))
    return {"reduce_precision": word if word in ("bf16", "fp32") else "fp32"}


def dtype(value: Value) -> Value:
    """Return a type as flags name it: torch.bfloat16 is bf16."""
    names = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "uint8": "fp8"}
    word = str(value).removeprefix("torch.")
    return names.get(word, value)


# Overlap.


def _write_overlap(facts: Facts, said: Said) -> None:
    if not _parallel(facts) or not facts["overlap_dp"] or said.settings.get("use_torch_fsdp2"):
        if _parallel(facts) and not facts["overlap_dp"] and facts["sharding"] == "zero3":
            said.warn("overlap_dp", False, "FSDP of Megatron-LM all-gathers ahead as it can")
        return
    said.settings["overlap_grad_reduce"] = True
    if facts["sharding"] != "ddp":
        said.settings["overlap_param_gather"] = True


def _read_overlap(settings: Settings) -> Facts:
    fsdp2 = bool(settings.get("use_torch_fsdp2"))
    return {"overlap_dp": fsdp2 or bool(settings.get("overlap_grad_reduce"))}


def _write_tp_overlap(facts: Facts, said: Said) -> None:
    if facts["tp"] > 1 and facts["overlap_tp"]:
        if not facts["sequence_parallel"]:
            said.refuse("overlap_tp", True, "--tp-comm-overlap needs sequence parallelism; add "
                        "notpoverlap to the strategy, or drop nosp")  # fmt: skip
        said.settings["tp_comm_overlap"] = True


def _read_tp_overlap(settings: Settings) -> Facts:
    return {"overlap_tp": bool(settings.get("tp_comm_overlap"))}


# Pipeline.


def _write_pipeline(facts: Facts, said: Said) -> None:
    pp, stages = facts["pp"], facts["virtual_stages"]
    if pp == 1:
        return
    said.settings["pipeline_model_parallel_size"] = pp
    wanted = "interleaved" if stages > 1 else "1f1b"
    if facts["schedule"] != wanted:
        said.refuse("schedule", facts["schedule"], "Megatron-LM runs 1f1b, or interleaved with "
                    "virtual stages")  # fmt: skip
    first, last = facts["first_stage_layers"], facts["last_stage_layers"]
    for name, layers in (("first", first), ("last", last)):
        if layers is not None:
            said.settings[f"decoder_{name}_pipeline_num_layers"] = layers
    _check_layers(facts, said)
    if stages == 1:
        if not facts["overlap_pp"]:
            said.warn("overlap_pp", False, "1f1b sends as it can; nothing turns it off")
        return
    said.settings["num_virtual_stages_per_pipeline_rank"] = stages
    if facts["num_microbatches"] % pp:
        said.refuse("num_microbatches", facts["num_microbatches"],
                    f"the interleaved schedule needs a multiple of pp = {pp}")  # fmt: skip
    if not facts["overlap_pp"]:
        said.settings["overlap_p2p_comm"] = False
        if pp == 2:
            said.refuse("overlap_pp", False, "the interleaved schedule of 2 stages needs overlap; "
                        "drop noppoverlap")  # fmt: skip


def _check_layers(facts: Facts, said: Said) -> None:
    """Refuse layers that do not divide evenly, as `TransformerConfig` does."""
    model = facts.get("model")
    if not isinstance(model, Model):
        return
    layers, stages = model.layers, facts["pp"]
    for name in ("first_stage_layers", "last_stage_layers"):
        if facts[name] is not None:
            layers, stages = layers - facts[name], stages - 1
            if facts[name] % facts["virtual_stages"]:
                said.refuse(name, facts[name], "virtual stages do not divide it")
    per_stage = layers / stages if stages else 0
    if (stages and (per_stage % 1 or per_stage % facts["virtual_stages"])) or layers < stages:
        chunks = f"{stages} stages x {facts['virtual_stages']}"
        said.refuse("pp", facts["pp"], f"{layers} layers do not divide over {chunks}; give first "
                    "and last, such as first7-last7")  # fmt: skip


def _read_pipeline(settings: Settings) -> Facts:
    pp = whole(settings.get("pipeline_model_parallel_size")) or 1
    stages = whole(settings.get("num_virtual_stages_per_pipeline_rank"))
    stages = stages or whole(settings.get("virtual_pipeline_model_parallel_size")) or 1
    layers = whole(settings.get("num_layers"))
    chunk = whole(settings.get("num_layers_per_virtual_pipeline_stage"))
    if stages == 1 and chunk and layers:
        stages = max(1, layers // pp // chunk)
    facts: Facts = {
        "pp": pp,
        "virtual_stages": stages,
        "schedule": "interleaved" if stages > 1 else "1f1b",
        "overlap_pp": stages == 1 or settings.get("overlap_p2p_comm", True) is not False,
        "first_stage_layers": whole(settings.get("decoder_first_pipeline_num_layers")),
        "last_stage_layers": whole(settings.get("decoder_last_pipeline_num_layers")),
    }
    if pp == 1:
        facts |= {"virtual_stages": 1, "schedule": "1f1b", "overlap_pp": True}
    return facts


PIPELINE = Joint(
    ("pp", "virtual_stages", "schedule", "first_stage_layers", "last_stage_layers", "overlap_pp"),
    (
        "pipeline_model_parallel_size", "num_virtual_stages_per_pipeline_rank",
        "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers",
        "overlap_p2p_comm",
    ),
    _write_pipeline,
    _read_pipeline,
)  # fmt: skip


# Recompute.

_MODULES = {
    "norm": "layernorm", "latent": "mla_up_proj", "activation": "moe_act", "mlp": "mlp",
}  # fmt: skip


def _chunk_layers(facts: Facts) -> float | None:
    """Layers of a model chunk, where all are alike."""
    model = facts.get("model")
    if not isinstance(model, Model) or facts.get("first_stage_layers"):
        return None
    return float(model.layers / facts["pp"] / facts["virtual_stages"])


def _write_recompute(facts: Facts, said: Said) -> None:
    s, kind, modules = said.settings, facts["recompute"], modules_of(facts["recompute_modules"])
    blocks = recomputed_blocks(kind)
    if kind == "full":
        s |= {"recompute_granularity": "full", "recompute_method": "uniform",
              "recompute_num_layers": 1}  # fmt: skip
    elif blocks is not None:
        layers = _chunk_layers(facts)
        some = None if layers is None else layers * blocks[0] / blocks[1]
        if some is None or some % 1:
            said.refuse("recompute", kind, "--recompute-num-layers is a whole number of each "
                        "model chunk's layers")  # fmt: skip
            return
        s |= {"recompute_granularity": "full", "recompute_method": "block",
              "recompute_num_layers": int(some)}  # fmt: skip
    elif kind not in ("none", "attention"):
        said.refuse("recompute", kind, "Megatron-LM recomputes attention (acattn), modules or "
                    "whole blocks (acfull)")  # fmt: skip
    if blocks is not None:
        if modules:
            said.refuse("recompute_modules", facts["recompute_modules"],
                        "whole blocks and modules cannot be combined")  # fmt: skip
        return
    words = ["core_attn"] * (kind == "attention") + [_MODULES[each] for each in modules]
    if words:
        s |= {"recompute_granularity": "selective", "recompute_modules": words}


def _read_recompute(settings: Settings) -> Facts:
    kind = settings.get("recompute_granularity")
    if settings.get("recompute_activations"):
        kind = "selective"
    facts: Facts = {"recompute": "none", "recompute_modules": ""}
    if kind == "full":
        facts["recompute"] = "full"
        count, layers = whole(settings.get("recompute_num_layers")), settings.get("num_layers")
        if settings.get("recompute_method") == "block" and count and whole(layers):
            pipeline = _read_pipeline(settings)
            chunk = (whole(layers) or 0) // pipeline["pp"] // pipeline["virtual_stages"]
            if count < chunk:
                shared = math.gcd(count, chunk)
                facts["recompute"] = f"{count // shared}of{chunk // shared}"
    elif kind == "selective":
        given = settings.get("recompute_modules") or ["core_attn"]
        words = given if isinstance(given, list) else str(given).split()
        facts["recompute"] = "attention" if "core_attn" in words else "none"
        facts["recompute_modules"] = "+".join(k for k, v in _MODULES.items() if v in words)
    return facts


# Precision and optimizer.

_PRECISIONS: dict[str, Settings] = {
    "bf16": {"bf16": True},
    "fp16": {"fp16": True},
    "fp8": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise"},
    "fp8block": {"bf16": True, "fp8": "e4m3", "fp8_recipe": "blockwise"},
    "mxfp8": {"bf16": True, "fp8": "e4m3", "fp8_recipe": "mxfp8"},
    "nvfp4": {"bf16": True, "fp4": "e2m1", "fp4_recipe": "nvfp4"},
    "fp32": {},
}


def _write_precision(facts: Facts, said: Said) -> None:
    word, weights = facts["precision"], facts["weights"]
    if word not in _PRECISIONS:
        said.refuse("precision", word, "Megatron-LM has bf16, fp16, fp8, fp8block, mxfp8, nvfp4 "
                    "and fp32")  # fmt: skip
    said.settings |= _PRECISIONS.get(word, {})
    if weights != ("fp32" if word == "fp32" else "mixed"):
        said.refuse("weights", weights, "Megatron-LM keeps a 32-bit master copy of 16-bit weights")


def _read_precision(settings: Settings) -> Facts:
    if settings.get("fp4"):
        word = "nvfp4"
    elif settings.get("fp8"):
        word = {"blockwise": "fp8block", "mxfp8": "mxfp8"}.get(
            str(settings.get("fp8_recipe")), "fp8"
        )
    elif settings.get("fp16"):
        word = "fp16"
    else:
        word = "bf16" if settings.get("bf16") else "fp32"
    return {"precision": word, "weights": "fp32" if word == "fp32" else "mixed"}


_OPTIMIZERS: dict[Value, Settings] = {
    "adamw-bf16": {"optimizer": "adam", "use_precision_aware_optimizer": True,
                   "exp_avg_dtype": "bf16", "exp_avg_sq_dtype": "bf16"},
    "adamw": {"optimizer": "adam"},
    "sgd": {"optimizer": "sgd", "sgd_momentum": 0.0},
    "momentum": {"optimizer": "sgd"},
    "lion": {"optimizer": "lion"},
    "muon": {"optimizer": "muon"},
}  # fmt: skip


def _write_capacity(facts: Facts, said: Said) -> None:
    if facts["capacity"] is not None:
        said.settings |= {"moe_expert_capacity_factor": facts["capacity"],
                          "moe_pad_expert_input_to_capacity": True}  # fmt: skip


def _read_capacity(settings: Settings) -> Facts:
    factor = settings.get("moe_expert_capacity_factor")
    return {"capacity": float(factor)} if factor else {}


def _write_experts(facts: Facts, said: Said) -> None:
    model = facts.get("model")
    if isinstance(model, Model) and model.moe is not None:
        said.settings["expert_model_parallel_size"] = facts["ep"]
        # Not given, it would be the tensor-parallel degree.
        said.settings["expert_tensor_parallel_size"] = facts["etp"]


def _read_experts(settings: Settings) -> Facts:
    if not settings.get("num_experts"):
        return {}
    etp = whole(settings.get("expert_tensor_parallel_size"))
    tp = whole(settings.get("tensor_model_parallel_size")) or 1
    return {"ep": whole(settings.get("expert_model_parallel_size")) or 1, "etp": etp or tp}


def _write_tokens(facts: Facts, said: Said) -> None:
    if facts["tokens"] is not None:
        said.settings["train_samples"] = math.ceil(facts["tokens"] / facts["seq_len"])


def _read_tokens(settings: Settings) -> Facts:
    samples, seq = whole(settings.get("train_samples")), whole(settings.get("seq_length"))
    return tokens_of(samples, seq) if samples and seq else {}


def _check_together(facts: Facts, said: Said) -> None:
    """Refuse what `validate_args` refuses of settings that are right alone."""
    fsdp = said.settings.get("use_megatron_fsdp") or said.settings.get("use_torch_fsdp2")
    if fsdp and said.settings.get("optimizer") not in ("adam", "sgd", None):
        said.refuse("optimizer", facts["optimizer"], "FSDP of Megatron-LM has adam and sgd; use "
                    "zero1")  # fmt: skip
    if said.settings.get("optimizer") == "muon" and facts["sharding"] == "zero1":
        said.warn("optimizer_state", "muon", "Megatron-LM shards it by whole layers")
    if facts["gather_precision"] == "fp8" and facts["sharding"] == "ddp":
        said.refuse("gather_precision", "fp8", "--fp8-param-gather needs ZeRO-1 or FSDP")
    if facts["precision"] == "fp16" and said.settings.get("use_torch_fsdp2"):
        said.refuse("precision", "fp16", "--use-torch-fsdp2 has no fp16; drop noreshard")
    if facts["gather_precision"] == "fp8" and not said.settings.get("fp8"):
        said.refuse("gather_precision", "fp8", "--fp8-param-gather needs GEMMs in fp8")


_DATA = "the data says it, not a flag"

ROWS: tuple[Row, ...] = (
    MODEL,
    Number("gpus", "world_size"),
    Number("tp", "tensor_model_parallel_size", 1),
    Choice("sequence_parallel", {True: {"sequence_parallel": True}, False: {}}, "",
           counts=lambda facts: facts["tp"] > 1),
    Number("cp", "context_parallel_size", 1),
    Choice("cp_method", {"allgather": {"cp_comm_type": ["all_gather"]},
                         "ring": {"cp_comm_type": ["p2p"]}},
           "no other exchange", counts=lambda facts: facts["cp"] > 1),
    PIPELINE,
    Joint(("ep", "etp"), ("expert_model_parallel_size", "expert_tensor_parallel_size"),
          _write_experts, _read_experts),
    SHARDING,
    Number("micro_batch", "micro_batch_size"),
    Number("global_batch", "global_batch_size"),
    Fixed("num_microbatches", (), "follows from the global batch",
          counts=lambda facts: False),
    Number("seq_len", "seq_length"),
    Joint(("recompute", "recompute_modules"),
          ("recompute_granularity", "recompute_method", "recompute_num_layers",
           "recompute_modules"), _write_recompute, _read_recompute),
    Fixed("mlp_tiles", (1,), "Megatron-LM computes an MLP at once; drop the tilemlp token"),
    Choice("offload", {"opt": {"optimizer_cpu_offload": True,
                               "use_precision_aware_optimizer": True}, "": {}},
           "only the optimizer (offopt) is offloaded whole"),
    Joint(("precision", "weights"), ("bf16", "fp16", "fp8", "fp8_recipe", "fp4", "fp4_recipe"),
          _write_precision, _read_precision),
    Fixed("attention_precision", (None,), "no flag for attention in fp8; drop fp8attn"),
    Choice("gather_precision", {"fp8": {"fp8_param_gather": True}, None: {}},
           "all-gathers are in 16 bits or fp8"),
    Fixed("compiled", (True,), "kernels are Transformer Engine's, fused as they are",
          refuse=False),
    Joint(("reduce_precision",), ("grad_reduce_in_bf16", "megatron_fsdp_grad_comm_dtype"),
          _write_reduce, _read_reduce),
    Joint(("reduce_each",), (), _write_each, _read_each),
    Joint(("bucket_mb",), ("ddp_bucket_size",), _write_bucket, _read_bucket),
    Fixed("prefetch", (1,), "Megatron-LM decides what it all-gathers ahead", refuse=False,
          counts=lambda facts: facts["sharding"] == "zero3"),
    Fixed("backward_shard", (None,), "no second copy of parameters; drop the hpz token"),
    Fixed("replica_sync", (None,), "replicas are synchronized as shards are; drop synconce"),
    Fixed("hierarchical_gather", (False,), "no hierarchical all-gather; drop hiergather"),
    Joint(("overlap_dp",), ("overlap_grad_reduce", "overlap_param_gather"),
          _write_overlap, _read_overlap),
    Joint(("overlap_tp",), ("tp_comm_overlap",), _write_tp_overlap, _read_tp_overlap),
    Fixed("overlap_ep", (True,), "the dispatcher overlaps as it can", refuse=False),
    Choice("optimizer", _OPTIMIZERS, "Megatron-LM has adam, sgd, lion and muon",
           defaults={"optimizer": "adam", "sgd_momentum": 0.9}),
    Choice("loss", {"fused": {"cross_entropy_loss_fusion": True}, "full": {}},
           "the loss is full or fused"),
    Fixed("tuning", ("full",), "Megatron-LM trains all parameters; adapters are Megatron-Bridge's"),
    Joint(("capacity",), ("moe_expert_capacity_factor", "moe_pad_expert_input_to_capacity"),
          _write_capacity, _read_capacity),
    Fixed("imbalance", (1.0,), "the router decides it", refuse=False),
    Fixed("lengths", (None,), _DATA, refuse=False),
    Fixed("batching", ("packed",), _DATA, refuse=False),
    Joint(("tokens",), ("train_samples",), _write_tokens, _read_tokens),
    Joint((), (), _check_together, lambda settings: {}),
)  # fmt: skip
"""Every fact of a plan, and the flags that say it."""
