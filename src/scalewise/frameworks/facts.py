"""Facts of a plan: what a launch has to say, resolved, each under one name.

    facts = facts_of(asked)              # {"tp": 2, "seq_len": 4096, "precision": "bf16", ...}
    configuration("megatron", facts)     # the words of a question that has these facts

All fields of `Strategy` and of `Workload`, the number of GPUs and the model. Words that defer to
the software ("selective", None) are replaced by what they mean there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.catalog import names
from scalewise.frameworks.table import Facts, whole
from scalewise.model import Model, load_model
from scalewise.stack import Stack, load_stack, stack_for
from scalewise.strategy import Strategy
from scalewise.workload import WORK, Workload

if TYPE_CHECKING:
    from scalewise.ask.resolve import Asked

STRATEGY: tuple[str, ...] = Strategy.__struct_fields__
WORKLOAD: tuple[str, ...] = Workload.__struct_fields__

ASIDE = ("goodput", "critical_batch")
"""Fields of a workload that are of account for the prediction alone."""

FACTS: tuple[str, ...] = tuple(
    name for name in dict.fromkeys(("model", "gpus", "node", *STRATEGY, *WORKLOAD))
    if name not in ASIDE
)  # fmt: skip
"""Names of all facts. `precision` is that of the strategy, or else that of the workload."""

ALIASES = {
    "megatron": "megatron-lm", "torchtitan": "torchtitan", "deepspeed": "deepspeed",
    "accelerate": "accelerate", "maxtext": "maxtext", "megatron-bridge": "megatron-bridge",
}  # fmt: skip
"""Name of each framework as a software stack."""


def target_of(stack: str) -> str | None:
    """Return the framework that a plan on a software stack is exported to; None if there is none.

    >>> target_of("pytorch"), target_of("megatron"), target_of("nanotron")
    ('torchtitan', 'megatron-bridge', None)
    """
    if stack not in names("stacks"):
        return None
    known = load_stack(stack).frameworks
    return next((target for target, name in ALIASES.items() if name in known), None)


@dataclass(frozen=True, kw_only=True)
class Configuration:
    """What a configuration or log of a framework says of a run."""

    framework: str
    """Framework: a key of `ALIASES`, or "huggingface" for a config.json."""
    words: dict[str, str] = field(default_factory=dict)
    """Fields of a question that it answers, as a user writes them."""
    model: Model | None = None
    """Model, where it says the shape; `words` has its name where the catalog knows it."""
    notes: tuple[str, ...] = ()
    """What it leaves open, or what has no word here, one sentence each."""


def facts_of(asked: Asked) -> Facts:
    """Return the facts of a resolved question."""
    s, stack = asked.strategy, asked.software.stack
    facts: Facts = msgspec.structs.asdict(asked.workload) | msgspec.structs.asdict(s)
    facts["model"], facts["gpus"] = asked.model, asked.cluster.accelerators
    hosts = asked.cluster.host_accelerators or asked.cluster.scale_up_domain
    facts["node"] = min(hosts, asked.cluster.accelerators)
    facts["precision"] = s.precision or asked.workload.precision
    facts["num_microbatches"] = s.microbatches_of(asked.workload)
    facts["loss"] = asked.workload.loss or stack.loss
    if s.recompute == "selective" and stack.selective != "policy":
        facts["recompute"] = stack.selective
    facts |= _defaults_of(stack, facts, facts)
    return normal(facts)


def _defaults_of(stack: Stack, facts: Facts, stated: Facts) -> Facts:
    """What the software does where a strategy leaves it open."""
    return {
        "compiled": stack.compiled if stated.get("compiled") is None else stated["compiled"],
        "reduce_precision": stated.get("reduce_precision") or _reduces(stack, facts),
        "reduce_each": _each(stack, facts) if stated.get("reduce_each") is None
        else stated["reduce_each"],
    }  # fmt: skip


def _reduces(stack: Stack, facts: Facts) -> str:
    """Precision in which software reduces gradients: 16-bit copies have 16-bit gradients."""
    return "bf16" if stack.reduce_bytes <= 2.0 or facts.get("weights") == "bf16" else "fp32"


def _each(stack: Stack, facts: Facts) -> bool:
    """Whether software reduces gradients after every micro-batch."""
    if facts.get("sharding") == "zero3":
        return stack.reduce_every_micro_step
    return facts.get("sharding") == "zero2" and stack.zero2_every_micro_step


def normal(facts: Facts) -> Facts:
    """Return facts with those that change nothing at their default.

    The number of ranks counts only where the number of GPUs is known.

    >>> normal({"tp": 1, "sequence_parallel": False})["sequence_parallel"]
    True
    """
    found, plain = dict(facts), Strategy()

    def drop(*fields: str) -> None:
        for name in fields:
            if name in found:
                found[name] = getattr(plain, name)

    sized = found.get("gpus") is not None
    replicas, shards = found.get("dp_replicate", 1), found.get("dp_shard", 1)
    if found.get("sharding") != "zero3" and "sharding" in found:
        drop("reshard_after_forward", "prefetch", "backward_shard", "replica_sync",
             "hierarchical_gather")  # fmt: skip
        if found.get("gather_precision") == "int8":
            drop("gather_precision")
    model = found.get("model")
    experts = isinstance(model, Model) and model.moe is not None
    # Ranks that split a sequence reduce gradients too, and replicas of experts.
    if sized and replicas * shards * found.get("cp", 1) == 1 and not experts:
        drop("overlap_dp", "reduce_each", "bucket_mb", "gather_precision")
        found["reduce_precision"] = None
    if _microbatches(found) == 1:
        drop("reduce_each")
    if found.get("tp", 1) == 1:
        drop("sequence_parallel", "overlap_tp")
    if found.get("cp", 1) == 1:
        drop("cp_method")
    if found.get("pp", 1) == 1:
        drop("schedule", "virtual_stages", "first_stage_layers", "last_stage_layers", "overlap_pp")
    if isinstance(model, Model) and not experts:
        drop("ep", "etp", "overlap_ep")
        found["imbalance"], found["capacity"] = 1.0, None
    elif found.get("ep", 1) == 1:
        drop("overlap_ep")
    return found


def _microbatches(facts: Facts) -> int | None:
    """Gradient accumulation steps, where they are said or follow."""
    if facts.get("num_microbatches") is not None:
        return whole(facts["num_microbatches"])
    degrees = (facts.get("micro_batch", 0), facts.get("dp_replicate", 1), facts.get("dp_shard", 1))
    # A word in place of a number is refused later, with its name.
    per_step = math.prod(whole(each) or 0 for each in degrees)
    batch = whole(facts.get("global_batch"))
    return batch // per_step if batch and per_step and facts.get("gpus") else None


_NOT_IN_STRATEGY = ("precision", "num_microbatches")


def configuration(framework: str, facts: Facts, notes: Iterable[str] = ()) -> Configuration:
    """Return the words of a question that has these facts.

    Args:
        framework: A key of `ALIASES`.
        facts: What is known; the degrees that divide data are left open where the number of GPUs is
            not known.
        notes: What has no word here.
    """
    facts, words, told = normal(facts), dict[str, str](), list(notes)
    model = facts.get("model")
    if isinstance(model, Model):
        known = known_model(model)
        if known is not None:
            words["model"], model = known.name, known
    software = ALIASES.get(framework)
    if software is not None:
        words["stack"] = software
    known_size = (gpus := whole(facts.get("gpus"))) is not None
    if known_size:
        words["gpus"] = str(gpus)
    text = strategy_words(facts, software, sized=known_size)
    if text:
        words["strategy"] = text
    for word, name in (("seq", "seq_len"), ("batch", "global_batch")):
        if (count := whole(facts.get(name))) is not None:
            words[word] = str(count)
    plain = Workload(seq_len=1, global_batch=1)
    for name in ("precision", *WORK):
        value = facts.get(name)
        if value is not None and (name in _SAID or value != getattr(plain, name)):
            words[name] = f"{value:g}" if isinstance(value, float) else str(value)
    if software is not None and "loss" in words and words["loss"] == _stack(software, facts).loss:
        del words["loss"]
    return Configuration(
        framework=framework,
        words=words,
        model=model if isinstance(model, Model) else None,
        notes=tuple(dict.fromkeys(told)),
    )


_SAID = ("precision", "optimizer")
"""Facts that are words even where they are the usual ones."""


def _stack(software: str, facts: Facts) -> Stack:
    sharded = facts.get("sharding") == "zero3" and facts.get("dp_shard", 1) > 1
    return stack_for(software, fully_sharded=sharded)


def strategy_words(facts: Facts, software: str | None, *, sized: bool) -> str:
    """Return the strategy of facts; without its data-parallel size where that is open."""
    fields: dict[str, Any] = {
        name: facts[name]
        for name in STRATEGY
        if name in facts and name not in _NOT_IN_STRATEGY and facts[name] is not None
    }
    if not fields:
        return ""
    if software is not None:
        usual = _defaults_of(_stack(software, facts), facts, {})
        for name, value in usual.items():
            if fields.get(name) == value:
                fields.pop(name, None)
    if sized:
        return _without(str(Strategy(**fields)), facts)
    fields |= {"dp_replicate": 1, "dp_shard": 1}
    sharding = fields.get("sharding", "zero3")
    rest = _without(str(Strategy(**fields)), facts).partition("-")[2]
    word = "fsdp" if sharding == "zero3" else str(sharding)
    return f"{word}-{rest}" if rest else word


def _without(text: str, facts: Facts) -> str:
    """Leave out the micro-batch where it is not known."""
    return text if facts.get("micro_batch") is not None else text.replace("-mb1", "")


def known_model(model: Model) -> Model | None:
    """Return the model of the catalog with this shape, or None."""
    for name in names("models"):
        known = load_model(name)
        if same_shape(known, model):
            return known
    return None


def same_shape(one: Model, other: Model) -> bool:
    """Whether two models differ in name and source alone."""
    plain = {"name": "", "source": ""}
    return msgspec.structs.replace(one, **plain) == msgspec.structs.replace(other, **plain)
