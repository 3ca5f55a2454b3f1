"""Export of a plan: files for a framework, and what they do not say.

    out = export(asked, "megatron")
    out.files["launch.sbatch"], out.refused, out.warned

A plan that a framework cannot run as predicted is refused, with every reason; what it decides
itself, or takes from elsewhere, is warned of. Nothing else is left out.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from scalewise.errors import InputError, did_you_mean
from scalewise.frameworks import accelerate, deepspeed, launch, maxtext, megatron, megatron_bridge
from scalewise.frameworks import torchtitan as titan
from scalewise.frameworks.facts import ALIASES, facts_of
from scalewise.frameworks.megatron_text import flags
from scalewise.frameworks.table import Facts, Gap, Row, Said, Settings, nested, write_rows
from scalewise.frameworks.torchtitan_text import arguments, tables
from scalewise.frameworks.yaml import write_yaml
from scalewise.slurm.script import header

if TYPE_CHECKING:
    from scalewise.ask.resolve import Asked

SCRIPT = "launch.sbatch"


@dataclass(frozen=True, kw_only=True)
class Target:
    """A framework that plans are written for."""

    name: str
    version: str
    """Package and version whose names are written."""
    rows: tuple[Row, ...]
    """Its mapping table."""
    files: Callable[[Asked, Settings, Sequence[str]], dict[str, str]]
    """Returns files by name; gets the plan, its settings, and comments."""


@dataclass(frozen=True, kw_only=True)
class Export:
    """A plan as files of a framework."""

    target: str
    """Framework: a key of `TARGETS`."""
    version: str
    """Package and version whose names are written."""
    files: dict[str, str] = field(default_factory=dict)
    """Content by file name; empty where the plan is refused."""
    refused: tuple[Gap, ...] = ()
    """Why it cannot be run as predicted."""
    warned: tuple[Gap, ...] = ()
    """What the files leave to the framework, the program or the data."""
    settings: Settings = field(default_factory=dict)
    """Settings as they are written, by name."""

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain types."""
        return {
            "target": self.target,
            "version": self.version,
            "files": self.files,
            "refused": [_plain(gap) for gap in self.refused],
            "warned": [_plain(gap) for gap in self.warned],
        }


def _plain(gap: Gap) -> dict[str, str]:
    return {"field": gap.field, "value": gap.value, "why": gap.why}


# Files of each framework.


def _lines(words: Sequence[Sequence[str]], indent: str = "    ") -> list[str]:
    """Words of a command, a flag with its values on each line."""
    import shlex

    return [f"{indent}{shlex.join(each)}" for each in words]


def connections(asked: Asked, settings: Settings) -> list[str]:
    """Return the line that sets or unsets CUDA_DEVICE_MAX_CONNECTIONS for Megatron-LM.

    Before Blackwell, tensor and context parallelism overlap with one connection only; FSDP needs
    more (`validate_args` of megatron-core 0.19.2).
    """
    name, s = "CUDA_DEVICE_MAX_CONNECTIONS", asked.strategy
    if settings.get("use_megatron_fsdp") or settings.get("use_torch_fsdp2"):
        return [f"unset {name}"]
    if asked.cluster.accelerator.architecture in BEFORE_BLACKWELL and max(s.tp, s.cp) > 1:
        return [f"export {name}=1"]
    return []


BEFORE_BLACKWELL = ("volta", "turing", "ampere", "ada", "hopper")


def _megatron_files(asked: Asked, s: Settings, notes: Sequence[str]) -> dict[str, str]:
    command = [
        "ARGS=(",
        *_lines(flags(s)),
        ")",
        *launch.torchrun(asked),
        '    pretrain_gpt.py "${ARGS[@]}" "$@"',
    ]
    more = ["Data, tokenizer, learning rate and length of the run: sbatch THIS_FILE --lr ..."]
    environment = connections(asked, s)
    return {SCRIPT: launch.script(asked, command, notes=[*notes, *more], environment=environment)}


def _bridge_files(asked: Asked, s: Settings, notes: Sequence[str]) -> dict[str, str]:
    command = [*launch.torchrun(asked), '    recipe.py "$@"']
    environment = connections(asked, s)
    text = launch.script(asked, command, notes=notes, environment=environment)
    return {"recipe.py": megatron_bridge.snippet(s), SCRIPT: text}


def _titan_files(asked: Asked, s: Settings, notes: Sequence[str]) -> dict[str, str]:
    *rest, last = _lines(arguments(s))
    command = [
        *launch.torchrun(asked),
        "    -m torchtitan.train \\",
        *(f"{line} \\" for line in rest),
        last,
    ]
    return {SCRIPT: launch.script(asked, command, notes=notes)}


def _old_titan_files(asked: Asked, s: Settings, notes: Sequence[str]) -> dict[str, str]:
    command = [*launch.torchrun(asked),
               '    -m torchtitan.train --job.config_file torchtitan.toml "$@"']  # fmt: skip
    return {"torchtitan.toml": toml(tables(s)), SCRIPT: launch.script(asked, command, notes=notes)}


def toml(value: dict[str, Any], prefix: str = "") -> str:
    """Return nested tables as TOML.

    >>> print(toml({"model": {"name": "llama3", "converters": ["mx"]}}), end="")
    [model]
    name = "llama3"
    converters = ["mx"]
    """
    plain = {key: each for key, each in value.items() if not isinstance(each, dict)}
    text = f"[{prefix}]\n" if prefix and plain else ""
    text += "".join(f"{key} = {json.dumps(each)}\n" for key, each in plain.items())
    for key, each in value.items():
        if isinstance(each, dict):
            inner = toml(each, f"{prefix}.{key}" if prefix else key)
            text += ("\n" if text else "") + inner
    return text


def _deepspeed_files(asked: Asked, s: Settings, notes: Sequence[str]) -> dict[str, str]:
    config = nested({k: v for k, v in s.items() if k not in deepspeed.LAUNCHED})
    command = [*launch.torchrun(asked),
               '    "${TRAIN:-train.py}" --deepspeed ds_config.json "$@"']  # fmt: skip
    return {
        "ds_config.json": json.dumps(config, indent=2) + "\n",
        SCRIPT: launch.script(asked, command, notes=notes),
    }


_ACCELERATE = {
    "compute_environment": "LOCAL_MACHINE", "debug": False, "downcast_bf16": "no",
    "main_training_function": "main", "rdzv_backend": "c10d", "same_network": True,
    "use_cpu": False, "machine_rank": 0,
}  # fmt: skip
"""Keys that `accelerate config` always writes."""


def _accelerate_files(asked: Asked, s: Settings, notes: Sequence[str]) -> dict[str, str]:
    config = _ACCELERATE | nested(s)
    start = (f"accelerate launch --config_file accelerate.yaml --machine_rank $SLURM_PROCID "
             f"--main_process_ip $HEAD --main_process_port {launch.PORT}")  # fmt: skip
    command = ["export HEAD", f'srun bash -c \'{start} "${{TRAIN:-train.py}}" "$@"\' - "$@"']
    return {"accelerate.yaml": write_yaml(config),
            SCRIPT: launch.script(asked, command, notes=notes)}  # fmt: skip


def _maxtext_files(asked: Asked, s: Settings, notes: Sequence[str]) -> dict[str, str]:
    keys = {"base_config": "base.yml", **{k: v for k, v in s.items() if k not in maxtext.LAUNCHED}}
    run = 'python3 -m maxtext.trainers.pre_train.train maxtext.yml "$@"'
    files = {"maxtext.yml": write_yaml(keys)}
    if asked.cluster.accelerator.kind == "tpu":
        return files | {"launch.sh": "\n".join([*header({}, notes), "", run, ""])}
    environment = ["export NNODES=$SLURM_NNODES"]
    command = [f"srun bash -c 'export NODE_RANK=$SLURM_NODEID; {run}' - \"$@\""]
    text = launch.script(asked, command, notes=notes, environment=environment)
    return files | {SCRIPT: text}


TARGETS: dict[str, Target] = {
    each.name: each
    for each in (
        Target(name=megatron.NAME, version=megatron.VERSION, rows=megatron.ROWS,
               files=_megatron_files),
        Target(name=titan.NAME, version=titan.VERSION, rows=titan.ROWS, files=_titan_files),
        Target(name=titan.OLD, version=titan.OLD_VERSION, rows=titan.OLD_ROWS,
               files=_old_titan_files),
        Target(name=deepspeed.NAME, version=deepspeed.VERSION, rows=deepspeed.ROWS,
               files=_deepspeed_files),
        Target(name=accelerate.NAME, version=accelerate.VERSION, rows=accelerate.ROWS,
               files=_accelerate_files),
        Target(name=maxtext.NAME, version=maxtext.VERSION, rows=maxtext.ROWS,
               files=_maxtext_files),
        Target(name=megatron_bridge.NAME, version=megatron_bridge.VERSION,
               rows=megatron_bridge.ROWS, files=_bridge_files),
    )
}  # fmt: skip
"""Frameworks by name."""


# What a question says besides the facts of a run.

QUESTION = {
    "model": "fact", "on": "script", "gpus": "fact", "node": "script", "network": "checked",
    "strategy": "fact", "seq": "fact", "batch": "fact", "precision": "fact", "imbalance": "fact",
    "capacity": "fact", "optimizer": "fact", "weights": "fact", "tuning": "fact", "loss": "fact",
    "lengths": "fact", "batching": "fact", "stack": "checked", "tokens": "fact",
    "price": "prediction", "pue": "prediction", "power_cap": "checked", "algorithm": "script",
    "protocol": "script", "sets": "checked", "fit": "prediction", "by": "prediction",
    "goodput": "prediction", "critical_batch": "prediction", "force": "prediction",
}  # fmt: skip
"""Fields of a question: facts of the table, lines of the script, checked below, or of account for
the prediction alone."""


def question_gaps(asked: Asked, target: str) -> list[Gap]:
    """Return what a question assumes of cluster and software, which no file sets."""
    q, found = asked.question, Said()
    stack = asked.software.stack
    software = ALIASES.get(target.removesuffix("-0.2"), target)
    if software not in stack.frameworks and not software.startswith(stack.family):
        found.warn("stack", stack.name, f"the prediction is not of {software}: ask with --stack "
                   f"{software}")  # fmt: skip
    if q.network is not None:
        found.warn("network", q.network, "a property of the cluster, which no file sets")
    if q.power_cap is not None:
        found.warn("power_cap", q.power_cap, "set it on every node as root: nvidia-smi -pl")
    if asked.cluster.algorithm == "hierarchical":
        found.warn("algorithm", "hierarchical", "NCCL has no algorithm of this name")
    for each in q.sets:
        noun = each.partition(".")[0]
        if noun in ("cluster", "stack"):
            found.warn("sets", each, f"a property of the {noun}, which no file sets")
    per_node = launch.gpus_per_node(asked)
    if asked.cluster.accelerators % per_node:
        found.warn("gpus", asked.cluster.accelerators, f"nodes of {per_node} are not full: the "
                   "script starts too many ranks")  # fmt: skip
    return found.warned


def export(asked: Asked, target: str) -> Export:
    """Return a plan as files of a framework, or why it cannot be.

    Args:
        asked: The plan.
        target: A key of `TARGETS`.

    Raises:
        InputError: If there is no such target, or the strategy does not suit the model.
    """
    if target not in TARGETS:
        raise InputError(f"--to {target[:40]}: unknown framework",
                         hint=did_you_mean(target[:40], TARGETS))  # fmt: skip
    to = TARGETS[target]
    facts: Facts = facts_of(asked)
    said = write_rows(to.rows, facts)
    reason = asked.estimate().infeasible
    if reason is not None and reason.startswith(("memory", "host memory")):
        said.warn("memory", "too small", f"predicted not to fit: {reason}")
    elif reason is not None:
        said.refuse("strategy", asked.strategy, reason)
    warned = (*said.warned, *question_gaps(asked, target))
    if said.refused:
        return Export(target=target, version=to.version, refused=tuple(said.refused),
                      warned=warned, settings=said.settings)  # fmt: skip
    notes = [
        f"{asked.model.name} on {asked.cluster.accelerators:,} x "
        f"{asked.cluster.accelerator.name}, {asked.strategy}, for {to.version}",
        f"sequence {asked.workload.seq_len:,}, global batch {asked.workload.global_batch:,}, "
        f"gradient accumulation {facts['num_microbatches']:,}",
        *(f"not said here: {gap}" for gap in warned),
    ]
    files = to.files(asked, said.settings, notes)
    return Export(target=target, version=to.version, files=files, warned=warned,
                  settings=said.settings)  # fmt: skip
