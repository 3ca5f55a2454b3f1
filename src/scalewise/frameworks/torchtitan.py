"""torchtitan: the options of 0.3.0 and the TOML of 0.2.2.

    said = write_rows(ROWS, facts_of(asked))          # {"parallelism.tensor_parallel_degree": 2}
    read_rows(ROWS, settings)                         # the same facts

`torchtitan_text` writes and reads the files. Names are the dotted ones of
`torchtitan/config/configs.py` (0.3.0) and `job_config.py` (0.2.2). The two differ in few: what
only one of them can say is in `ROWS` or in `OLD_ROWS`.
"""

from __future__ import annotations

import math
import re

from scalewise.frameworks.table import (
    Choice,
    Facts,
    Fixed,
    Joint,
    Number,
    Row,
    Said,
    Settings,
    tokens_of,
    whole,
)
from scalewise.model import Model, load_model

NAME, OLD = "torchtitan", "torchtitan-0.2"
VERSION, OLD_VERSION = "torchtitan 0.3.0", "torchtitan 0.2.2"

MODELS = {
    "llama-3-8b": ("llama3", "8B"), "llama-3-70b": ("llama3", "70B"),
    "llama-3.1-405b": ("llama3", "405B"), "qwen3-0.6b": ("qwen3", "0.6B"),
    "qwen3-1.7b": ("qwen3", "1.7B"), "qwen3-4b": ("qwen3", "4B"), "qwen3-8b": ("qwen3", "8B"),
    "qwen3-14b": ("qwen3", "14B"), "qwen3-32b": ("qwen3", "32B"),
    "qwen3-30b-a3b": ("qwen3", "30B-A3B"), "qwen3-235b-a22b": ("qwen3", "235B-A22B"),
    "deepseek-v2-lite": ("deepseek_v3", "16B"), "deepseek-v3": ("deepseek_v3", "671B"),
    "gpt-oss-20b": ("gpt_oss", "20b"), "gpt-oss-120b": ("gpt_oss", "120b"),
    "llama-4-scout": ("llama4", "17bx16e"), "llama-4-maverick": ("llama4", "17bx128e"),
}  # fmt: skip
"""Models of the catalog as torchtitan registers them, module and flavor."""

REGISTERED = {
    "llama3": ("8B", "70B"), "qwen3": ("0.6B", "1.7B", "14B", "32B", "30B-A3B"),
    "deepseek_v3": ("16B", "671B"), "gpt_oss": ("20b", "120b"),
}  # fmt: skip
"""Flavors that have a function in the `config_registry.py` of 0.3.0, in 16 bits: that of Llama 3.1
405B converts its layers to float8."""

NAMES = {spelled: name for name, spelled in MODELS.items()}


def function(module: str, flavor: str) -> str:
    """Return the registry function of a flavor, as --config takes it.

    >>> function("qwen3", "30B-A3B")
    'qwen3_30b_a3b'
    """
    return f"{module}_{re.sub(r'[^a-z0-9]', '_', flavor.lower())}"


def _write_model(facts: Facts, said: Said) -> None:
    name = facts["model"].name
    if name not in MODELS:
        said.refuse("model", name, "no flavor of torchtitan; it registers " + ", ".join(MODELS))
        return
    said.settings |= dict(zip(("model.name", "model.flavor"), MODELS[name], strict=True))


def _write_new_model(facts: Facts, said: Said) -> None:
    _write_model(facts, said)
    module, flavor = said.settings.get("model.name"), said.settings.get("model.flavor")
    if module and flavor not in REGISTERED.get(str(module), ()):
        said.refuse("model", facts["model"].name, f"torchtitan 0.3.0 has no 16-bit function for "
                    f"{module} {flavor}; export to torchtitan-0.2, or register one")  # fmt: skip


def _read_model(settings: Settings) -> Facts:
    spelled = (str(settings.get("model.name")), str(settings.get("model.flavor")))
    return {"model": load_model(NAMES[spelled])} if spelled in NAMES else {}


MODEL_KEYS = ("model.name", "model.flavor")


# Data parallelism.


def _write_sharding(facts: Facts, said: Said) -> None:
    kind, s = facts["sharding"], said.settings
    s["parallelism.data_parallel_replicate_degree"] = facts["dp_replicate"]
    s["parallelism.data_parallel_shard_degree"] = facts["dp_shard"]
    if kind in ("zero1", "zero2"):
        said.refuse("sharding", kind, "torchtitan has FSDP, HSDP and DDP; use fsdp")
    if kind == "zero3":
        # "default" depends on the pipeline.
        policy = "always" if facts["reshard_after_forward"] else "never"
        s["parallelism.fsdp_reshard_after_forward"] = policy
        if facts["dp_shard"] * facts["cp"] == 1:
            said.warn("sharding", kind, "one rank shards nothing: torchtitan leaves FSDP out")
    elif facts["cp"] > 1 or (facts["dp_replicate"] > 1 and max(facts["tp"], facts["pp"]) > 1):
        said.refuse("sharding", "ddp", "DDP of torchtitan goes with no other parallelism; use fsdp")


def _read_sharding(settings: Settings) -> Facts:
    degree = {
        name: whole(settings.get(f"parallelism.{name}_parallel_degree")) or 1
        for name in ("tensor", "context", "pipeline")
    }
    replicas = whole(settings.get("parallelism.data_parallel_replicate_degree")) or 1
    shards = whole(settings.get("parallelism.data_parallel_shard_degree"))
    gpus = whole(settings.get("world_size"))
    facts: Facts = {"dp_replicate": replicas}
    per_rank = replicas * math.prod(degree.values())
    if shards is None or shards < 0:
        # What is left over, and unknown without the number of GPUs.
        facts |= {"sharding": "zero3", "dp_shard": max(1, gpus // per_rank) if gpus else 1}
    else:
        # FSDP shards over the ranks of a sequence too.
        kind = "zero3" if shards * degree["context"] > 1 else "ddp"
        facts |= {"sharding": kind, "dp_shard": shards}
        facts["gpus"] = per_rank * shards
    policy = settings.get("parallelism.fsdp_reshard_after_forward", "default")
    resharded = degree["pipeline"] == 1 if policy == "default" else policy == "always"
    return facts | {"reshard_after_forward": resharded}


# Pipeline.

_SCHEDULES = {
    "gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved1F1B", "zbv": "ZBVZeroBubble",
}  # fmt: skip


def _write_pipeline(facts: Facts, said: Said) -> None:
    s, pp, stages = said.settings, facts["pp"], facts["virtual_stages"]
    s["training.local_batch_size"] = facts["micro_batch"]
    s["parallelism.pipeline_parallel_degree"] = pp
    if pp == 1:
        return
    schedule = facts["schedule"]
    s |= {"parallelism.pipeline_parallel_microbatch_size": facts["micro_batch"],
          "training.local_batch_size": facts["num_microbatches"] * facts["micro_batch"],
          }  # fmt: skip
    if schedule not in _SCHEDULES:
        said.refuse("schedule", schedule, "torchtitan has gpipe, 1f1b, interleaved and zbv")
        return
    s["parallelism.pipeline_parallel_schedule"] = _SCHEDULES[schedule]
    chunks = 2 if schedule == "zbv" else stages
    if (schedule == "interleaved") != (stages > 1) and schedule != "zbv":
        said.refuse("virtual_stages", stages, f"{_SCHEDULES[schedule]} has another number of "
                    "stages per rank")  # fmt: skip
    if facts["num_microbatches"] < pp:
        said.refuse("num_microbatches", facts["num_microbatches"],
                    f"fewer than {pp} stages; use a smaller micro-batch")  # fmt: skip
    if not facts["overlap_pp"]:
        said.warn("overlap_pp", False, "the schedule sends as it can")
    first, last = facts["first_stage_layers"], facts["last_stage_layers"]
    layers, places = facts["model"].layers, pp * chunks
    inner = places - (first is not None) - (last is not None)
    rest = layers - (first or 0) - (last or 0)
    each = rest // inner if inner else max(first or 0, last or 0)
    less = [each - (given if given is not None else each) for given in (first, last)]
    if (inner and rest % inner) or each < 1 or min(less) < 0 or (chunks > 1 and any(less)):
        said.refuse("pp", pp, f"{layers} layers do not divide over {places} stages; torchtitan "
                    "takes fewer layers in the first and last stage only")  # fmt: skip
        return
    s |= {"parallelism.pipeline_parallel_layers_per_stage": each,
          "parallelism.pipeline_parallel_first_stage_less_layers": less[0],
          "parallelism.pipeline_parallel_last_stage_less_layers": less[1]}  # fmt: skip


def _read_pipeline(settings: Settings) -> Facts:
    pp = whole(settings.get("parallelism.pipeline_parallel_degree")) or 1
    local = whole(settings.get("training.local_batch_size"))
    if pp == 1:
        facts: Facts = {"pp": 1, "virtual_stages": 1, "schedule": "1f1b", "overlap_pp": True,
                        "first_stage_layers": None, "last_stage_layers": None}  # fmt: skip
        return facts | ({"micro_batch": local} if local else {})
    word = str(settings.get("parallelism.pipeline_parallel_schedule") or "1F1B").lower()
    schedule = {v.lower(): k for k, v in _SCHEDULES.items()}.get(word, "1f1b")
    micro = whole(settings.get("parallelism.pipeline_parallel_microbatch_size")) or 1
    facts = {"pp": pp, "schedule": schedule, "micro_batch": micro, "overlap_pp": True,
             "virtual_stages": 2 if schedule == "interleaved" else 1,
             "first_stage_layers": None, "last_stage_layers": None}  # fmt: skip
    each = whole(settings.get("parallelism.pipeline_parallel_layers_per_stage"))
    known = _read_model(settings).get("model")
    if each is None or known is None:
        return facts
    layers = known.layers
    for place in ("first", "last"):
        less = whole(settings.get(f"parallelism.pipeline_parallel_{place}_stage_less_layers", 1))
        less = 1 if less is None else less
        layers += less
        facts[f"{place}_stage_layers"] = each - less if less else None
    if schedule == "interleaved":
        facts["virtual_stages"] = max(1, round(layers / each / pp))
    return facts


_PIPELINE_KEYS = (
    "parallelism.pipeline_parallel_degree", "parallelism.pipeline_parallel_schedule",
    "parallelism.pipeline_parallel_microbatch_size", "training.local_batch_size",
    "parallelism.pipeline_parallel_layers_per_stage",
    "parallelism.pipeline_parallel_first_stage_less_layers",
    "parallelism.pipeline_parallel_last_stage_less_layers",
)  # fmt: skip


def _read_batch(settings: Settings) -> Facts:
    batch = whole(settings.get("training.global_batch_size"))
    if batch is not None and batch > 0:
        return {"global_batch": batch}
    local = whole(settings.get("training.local_batch_size"))
    sharding = _read_sharding(settings)
    if local and "gpus" in {**sharding, **_gpus(settings)}:
        return {"global_batch": local * sharding["dp_replicate"] * sharding["dp_shard"]}
    return {}


def _gpus(settings: Settings) -> Facts:
    world = whole(settings.get("world_size"))
    return {"gpus": world} if world else {}


def _write_batch(facts: Facts, said: Said) -> None:
    said.settings["training.global_batch_size"] = facts["global_batch"]


# Precision, optimizer, loss.


def _write_precision(facts: Facts, said: Said) -> None:
    word, weights, s = facts["precision"], facts["weights"], said.settings
    if word == "fp32":
        s["training.mixed_precision_param"] = "float32"
    elif word == "bf16":
        s["training.mixed_precision_param"] = "bfloat16"
        s["training.dtype"] = "bfloat16" if weights == "bf16" else "float32"
    else:
        said.refuse("precision", word, "torchtitan 0.3.0 converts layers in a registry function, "
                    "not by an option; export to torchtitan-0.2, or use bf16")  # fmt: skip
    if (word == "fp32") != (weights == "fp32"):
        said.refuse("weights", weights, f"with {word} torchtitan stores "
                    + ("fp32" if word == "fp32" else "mixed or bf16"))  # fmt: skip


_FLOAT8 = "quantize.linear.float8"
_OLD_RECIPES = {"fp8": "tensorwise", "fp8row": "rowwise"}


def _write_old_precision(facts: Facts, said: Said) -> None:
    word = facts["precision"]
    if word in _OLD_RECIPES or word == "mxfp8":
        _write_precision(facts | {"precision": "bf16"}, said)
        kind = "mx" if word == "mxfp8" else "float8"
        recipe = "mxfp8_cublas" if word == "mxfp8" else _OLD_RECIPES[word]
        said.settings["model.converters"] = [f"quantize.linear.{kind}"]
        said.settings[f"quantize.linear.{kind}.recipe_name"] = recipe
    elif word in ("bf16", "fp32"):
        _write_precision(facts, said)
    else:
        said.refuse("precision", word, "torchtitan 0.2.2 has bf16, fp8, fp8row, mxfp8 and fp32")


def _read_precision(settings: Settings) -> Facts:
    wide = settings.get("training.mixed_precision_param") == "float32"
    facts: Facts = {"precision": "fp32" if wide else "bf16", "weights": "mixed"}
    if wide:
        facts["weights"] = "fp32"
    elif settings.get("training.dtype") == "bfloat16":
        facts["weights"] = "bf16"
    converters = settings.get("model.converters") or []
    if any("quantize.linear.mx" in str(each) for each in converters):
        facts["precision"] = "mxfp8"
    elif any(_FLOAT8 in str(each) for each in converters):
        row = str(settings.get(f"{_FLOAT8}.recipe_name") or "tensorwise").startswith("rowwise")
        facts["precision"] = "fp8row" if row else "fp8"
    return facts


_PRECISION_KEYS = ("training.mixed_precision_param", "training.dtype")


def _write_overlap_tp(facts: Facts, said: Said) -> None:
    if facts["tp"] == 1:
        return
    if facts["overlap_tp"] and not facts["compiled"]:
        said.warn("overlap_tp", True, "async tensor parallelism needs compiled code: the export "
                  "leaves it off; add compiled or notpoverlap to the strategy")  # fmt: skip
    elif facts["overlap_tp"]:
        said.settings["compile.enable_async_tensor_parallel"] = True


def _read_overlap_tp(settings: Settings) -> Facts:
    key = "enable_async_tensor_parallel"
    return {"overlap_tp": bool(settings.get(f"compile.{key}", settings.get(f"parallelism.{key}")))}


def _write_compile(facts: Facts, said: Said) -> None:
    said.settings["compile.enable"] = bool(facts["compiled"])
    if facts["compiled"]:
        said.settings["compile.components"] = ["model", "loss"]


def _read_compile(settings: Settings) -> Facts:
    return {"compiled": bool(settings.get("compile.enable"))}


def _write_tokens(facts: Facts, said: Said) -> None:
    if facts["tokens"] is not None:
        per_step = facts["seq_len"] * facts["global_batch"]
        said.settings["training.steps"] = math.ceil(facts["tokens"] / per_step)


def _read_tokens(settings: Settings) -> Facts:
    steps, seq = whole(settings.get("training.steps")), whole(settings.get("training.seq_len"))
    batch = whole(settings.get("training.global_batch_size"))
    if steps and seq and batch and batch > 0:
        return tokens_of(steps, seq, batch)
    return {}


def _no_facts(settings: Settings) -> Facts:
    del settings
    return {}


def _graphs(facts: Facts, said: Said) -> None:
    del facts
    said.settings["training.disable_cuda_graphs"] = True


def _experts(facts: Facts) -> bool:
    return isinstance(facts.get("model"), Model) and facts["model"].moe is not None


def _write_etp(facts: Facts, said: Said) -> None:
    if not _experts(facts) or facts["ep"] == 1:
        if facts["etp"] not in (1, facts["tp"]):
            said.refuse("etp", facts["etp"], "without ep, experts are split as tp says")
        return
    if facts["etp"] not in (1, facts["tp"]):
        said.refuse("etp", facts["etp"], "torchtitan 0.2.2 has etp 1 or tp")
    said.settings["parallelism.expert_tensor_parallel_degree"] = facts["etp"]


def _degree(name: str, word: str) -> Joint:
    """The row of a degree. Written even where it is 1: a registry function may have another."""
    key = f"parallelism.{word}_parallel_degree"

    def write(facts: Facts, said: Said) -> None:
        said.settings[key] = facts[name]

    return Joint((name,), (key,), write, lambda settings: {name: whole(settings.get(key)) or 1})


AC = "activation_checkpoint.mode"
_DATA = "the data loader says it, not an option"

_COMMON: tuple[Row, ...] = (
    Joint(("dp_replicate", "dp_shard", "sharding", "reshard_after_forward"),
          ("parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree",
           "parallelism.fsdp_reshard_after_forward"), _write_sharding, _read_sharding),
    Number("gpus", "world_size"),
    _degree("tp", "tensor"),
    _degree("cp", "context"),
    Joint(("pp", "virtual_stages", "schedule", "first_stage_layers", "last_stage_layers",
           "overlap_pp", "micro_batch"), _PIPELINE_KEYS, _write_pipeline, _read_pipeline),
    _degree("ep", "expert"),
    Joint(("global_batch",), ("training.global_batch_size",), _write_batch, _read_batch),
    Fixed("num_microbatches", (), "follows from the global batch", counts=lambda facts: False),
    Number("seq_len", "training.seq_len"),
    Fixed("recompute_modules", ("",), "torchtitan recomputes blocks or operations, not modules"),
    Fixed("mlp_tiles", (1,), "torchtitan computes an MLP at once; drop the tilemlp token"),
    Choice("offload", {"opt+param": {"training.enable_cpu_offload": True}, "": {}},
           "CPU offload of torchtitan is of optimizer and parameters, offopt-offparam"),
    Fixed("attention_precision", (None,), "no option for attention in fp8; drop fp8attn"),
    Joint(("compiled",), ("compile.enable", "compile.components"), _write_compile, _read_compile),
    Fixed("reduce_precision", ("fp32",), "torchtitan reduces gradients in fp32; use reducefp32",
          counts=lambda facts: facts["dp_replicate"] * facts["dp_shard"] * facts["cp"] > 1),
    Fixed("reduce_each", (True,), "torchtitan reduces after every micro-batch", refuse=False,
          counts=lambda facts: facts["num_microbatches"] > 1 and facts["pp"] == 1
          and facts["dp_replicate"] * facts["dp_shard"] * facts["cp"] > 1),
    Fixed("bucket_mb", (None,), "the bucket of DDP is set in code; drop the bucket token"),
    Fixed("prefetch", (1,), "what FSDP all-gathers ahead is set in code", refuse=False),
    Fixed("backward_shard", (None,), "a second copy of parameters is set in code; drop hpz"),
    Fixed("replica_sync", (None,), "replicas are synchronized as shards are; drop synconce"),
    Fixed("hierarchical_gather", (False,), "no hierarchical all-gather; drop hiergather"),
    Fixed("overlap_dp", (True,), "FSDP always overlaps; drop nodpoverlap"),
    Joint(("overlap_tp",), ("compile.enable_async_tensor_parallel",),
          _write_overlap_tp, _read_overlap_tp),
    Fixed("overlap_ep", (True,), "the dispatcher overlaps as it can", refuse=False),
    Fixed("tuning", ("full",), "adapters are set in a registry function; use full"),
    Fixed("capacity", (None,), "experts are dropless; drop --capacity"),
    Fixed("imbalance", (1.0,), "the router decides it", refuse=False),
    Fixed("lengths", (None,), _DATA, refuse=False),
    Fixed("batching", ("packed",), _DATA, refuse=False),
    Joint(("tokens",), ("training.steps",), _write_tokens, _read_tokens),
)  # fmt: skip

ROWS: tuple[Row, ...] = (
    Joint(("model",), MODEL_KEYS, _write_new_model, _read_model),
    *_COMMON,
    Choice("sequence_parallel", {False: {"parallelism.enable_sequence_parallel": False}, True: {}},
           "", defaults={"parallelism.enable_sequence_parallel": True},
           counts=lambda facts: facts["tp"] > 1),
    Fixed("cp_method", ("allgather",), "torchtitan 0.3.0 has no option for the exchange; use the "
          "ag suffix, such as cp2ag", counts=lambda facts: facts["cp"] > 1),
    Fixed("etp", (1,), "expert parallelism takes the ranks of tp; drop the etp token"),
    Choice("recompute", {"op": {AC: "selective"}, "full": {AC: "full"}, "none": {AC: "none"}},
           "torchtitan recomputes blocks (acfull) or every other matmul (acop)"),
    Joint(("precision", "weights"), _PRECISION_KEYS, _write_precision, _read_precision),
    Fixed("gather_precision", (None,), "all-gathers are in 16 bits; drop gatherfp8 or qwz"),
    Choice("optimizer", {"adamw-bf16": {"optimizer.implementation": "fused_opt_states_bf16"},
                         "adamw": {}}, "other optimizers are set in a registry function"),
    Fixed("loss", ("chunked",), "the registered configurations compute the loss in chunks; ask "
          "with --loss chunked", refuse=False),
    Joint((), ("training.disable_cuda_graphs",), _graphs, _no_facts),
)  # fmt: skip
"""Every fact of a plan, and the option of 0.3.0 that says it."""

OLD_ROWS: tuple[Row, ...] = (
    Joint(("model",), MODEL_KEYS, _write_model, _read_model),
    *_COMMON,
    Fixed("sequence_parallel", (True,), "tensor parallelism of 0.2.2 splits the sequence; "
          "drop nosp", counts=lambda facts: facts["tp"] > 1),
    Choice("cp_method", {"allgather": {"parallelism.context_parallel_rotate_method": "allgather"}},
           "the exchange is an all-gather (cp2ag), or an all-to-all, which is not modeled",
           counts=lambda facts: facts["cp"] > 1),
    Joint(("etp",), ("parallelism.expert_tensor_parallel_degree",), _write_etp,
          lambda settings: {"etp": whole(
              settings.get("parallelism.expert_tensor_parallel_degree")) or 1}),
    Choice("recompute", {
        "op": {AC: "selective", "activation_checkpoint.selective_ac_option": "op"},
        "full": {AC: "full"}, "none": {AC: "none"},
        **{f"1of{n}": {AC: "selective", "activation_checkpoint.selective_ac_option": str(n)}
           for n in range(2, 65)}},
        "torchtitan recomputes blocks (acfull, ac1of2) or every other matmul (acop)"),
    Joint(("precision", "weights"),
          (*_PRECISION_KEYS, "model.converters", f"{_FLOAT8}.recipe_name",
           "quantize.linear.mx.recipe_name"), _write_old_precision, _read_precision),
    Choice("gather_precision", {"fp8": {f"{_FLOAT8}.enable_fsdp_float8_all_gather": True},
                                None: {}}, "all-gathers are in 16 bits or fp8"),
    Choice("optimizer", {"adamw": {"optimizer.name": "AdamW"}}, "0.2.2 has AdamW",
           defaults={"optimizer.name": "AdamW"}),
    Fixed("loss", ("full",), "0.2.2 computes all logits at once; ask with --loss full",
          refuse=False),
)  # fmt: skip
"""Every fact of a plan, and the key of 0.2.2 that says it."""
