"""From words on a command line to nouns: what was asked, what was changed, what was chosen?

    question = ask("llama-2-7b", "dgx-h100", gpus="2048", strategy="tp2-mb2")
    question.strategy          # fsdp1024-tp2-mb2
    question.chosen            # ("fsdp1024: 2048 accelerators / (tp 2 x cp 1 x pp 1)", ...)

Three words are enough: model, hardware, count. Whatever else is needed is chosen here, once, and
said: an estimate whose inputs nobody can see is not an answer.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from scalewise.catalog import load_cluster
from scalewise.cli.overrides import Overrides
from scalewise.errors import InputError
from scalewise.model import load_model
from scalewise.strategy import Strategy, parse_strategy
from scalewise.units import parse
from scalewise.workload import Workload

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.stack import Stack

SEQUENCE = 4096
"""Tokens per sequence when nobody says."""

FILL = 4
"""Micro batches per pipeline stage when nobody gives a batch: the bubble is then below a fifth."""

MOST = 2**22
"""Most accelerators: beyond any cluster, and what a strategy can spell."""

_DATA_PARALLEL = re.compile(r"(ddp|dp|zero[123]x|fsdp|hsdp)\d")


@dataclass(frozen=True, kw_only=True)
class Question:
    """The nouns of one estimate, and how they came about."""

    model: Model
    cluster: Cluster
    workload: Workload
    strategy: Strategy
    stack: Stack
    chosen: tuple[str, ...]
    """What was chosen for the user, one phrase each, with the flag that changes it."""
    changed: tuple[str, ...]
    """What `--set` changed, one phrase each."""
    notes: tuple[str, ...]
    """What looks odd about the question, one sentence each."""


def ask(
    model: str,
    on: str,
    *,
    gpus: str | None = None,
    strategy: str | None = None,
    seq: str | None = None,
    batch: str | None = None,
    precision: str | None = None,
    stack: str | None = None,
    tokens: str | None = None,
    power_cap: str | None = None,
    algorithm: str | None = None,
    protocol: str | None = None,
    sets: Sequence[str] = (),
    batch_per_gpu: int | None = None,
) -> Question:
    """Load every noun, apply the overrides, choose what is missing.

    Args:
        model: A catalog name, a config.json, a directory that holds one, or a .toml file.
        on: A cluster or an accelerator, by name or .toml file.
        gpus: How many accelerators; by default the product of the strategy, else the cluster's.
        strategy: How to split; without a data-parallel part, the rest is fully sharded.
        seq: Tokens per sequence.
        batch: Sequences per step over all accelerators.
        precision: Of the matrix products.
        stack: Software, by name or .toml file.
        tokens: Token budget of the whole run.
        power_cap: Watts per accelerator.
        algorithm: Collective algorithm.
        protocol: Collective protocol.
        sets: Overrides, "cluster.scale_out_bandwidth=800Gbit/s"; they win over the flags.
        batch_per_gpu: Where no strategy is asked about, but the best one: sequences per
            accelerator when no batch is given.

    Returns:
        The question.

    Raises:
        InputError: If a word is not understood.
    """
    given = {
        "MODEL": model, "--on": on, "--gpus": gpus, "--strategy": strategy, "--seq": seq,
        "--batch": batch, "--precision": precision, "--stack": stack, "--tokens": tokens,
        "--power-cap": power_cap, "--algorithm": algorithm, "--protocol": protocol,
    }  # fmt: skip
    for flag, value in given.items():
        require_text(value, flag)
    overrides = Overrides.read(sets)
    chosen: list[str] = []
    noun = overrides.apply("model", load_model(model))
    plan = None if strategy is None else overrides.apply("strategy", parse_strategy(strategy))
    split = plan or overrides.apply("strategy", Strategy())
    stated = strategy is not None and _states_data_parallel(strategy)
    stated = stated or overrides.touches("strategy", "dp_shard", "dp_replicate")

    count = _count(overrides.take("cluster", "accelerators") or gpus, split, plan, chosen)
    cluster = load_cluster(on, accelerators=count)
    if count is None:
        count = cluster.accelerators
        chosen.append(f"{count:,} accelerators, the size of {cluster.name} (--gpus)")
    if not stated:
        split = _share_the_rest(split, count, chosen if batch_per_gpu is None else [])
    cluster = _switches(cluster, power_cap, algorithm, protocol)
    cluster = overrides.apply("cluster", cluster)

    given = {"sequence": seq, "global_batch": batch, "precision": precision, "tokens": tokens}
    given = overrides.workload(given)
    if batch_per_gpu is not None and given["global_batch"] is None:
        given["global_batch"] = str(batch_per_gpu * count)
        chosen.append(
            f"global batch {batch_per_gpu * count:,} sequences, {batch_per_gpu} per accelerator "
            "(--batch)"
        )
    work = _workload(noun, cluster, split, given, chosen)
    software = _software(stack, overrides, cluster, split, chosen)
    overrides.check_used()
    return Question(
        model=noun,
        cluster=cluster,
        workload=work,
        strategy=split,
        stack=software,
        chosen=tuple(chosen),
        changed=tuple(overrides.changed),
        notes=_notes(noun, work, split),
    )


def _read(text: str, kind: str, flag: str) -> float:
    """Read a quantity, and name the flag where it is wrong."""
    try:
        return parse(text, kind)
    except InputError as error:
        raise InputError(f"{flag}: {error}", hint=error.hint) from error


def _states_data_parallel(strategy: str) -> bool:
    return any(_DATA_PARALLEL.match(token) for token in strategy.strip().lower().split("-"))


def _count(
    gpus: str | None, split: Strategy, plan: Strategy | None, chosen: list[str]
) -> int | None:
    """How many accelerators: stated, or the strategy's product; None leaves it to the cluster."""
    if gpus is not None:
        count = int(_read(gpus, "count", "--gpus"))
        if not 1 <= count <= MOST:
            raise InputError(f"--gpus {gpus[:40]} must lie between 1 and {MOST:,}")
        return count
    if plan is None:
        return None
    chosen.append(f"{split.accelerators:,} accelerators, the product of the strategy (--gpus)")
    return split.accelerators


def _share_the_rest(split: Strategy, count: int, chosen: list[str]) -> Strategy:
    """Fully shard over whatever tensor, context and pipeline parallelism leave."""
    inner = split.tp * split.cp * split.pp
    if count < 1 or count % inner:
        split.check_mesh(count)
    ranks = count // inner
    why = f"{count:,} accelerators"
    if inner > 1:
        why += f" / (tp {split.tp} x cp {split.cp} x pp {split.pp})"
    chosen.append(f"fsdp{ranks}: {why} (--strategy)")
    return split.with_(dp_shard=ranks)


def _switches(
    cluster: Cluster, power_cap: str | None, algorithm: str | None, protocol: str | None
) -> Cluster:
    """Apply the flags that are fields of the cluster."""
    changes: dict[str, Any] = {}
    if power_cap is not None:
        changes["power_cap_watts"] = _read(power_cap, "watts", "--power-cap")
    if algorithm is not None:
        changes["algorithm"] = algorithm
    if protocol is not None:
        changes["protocol"] = protocol
    return cluster.with_(**changes) if changes else cluster


def _workload(
    model: Model,
    cluster: Cluster,
    split: Strategy,
    given: dict[str, str | None],
    chosen: list[str],
) -> Workload:
    """Read sequence, batch, precision and budget, and choose what is missing."""
    fields: dict[str, Any] = {}
    if given["tokens"] is not None:
        fields["tokens"] = _read(given["tokens"], "tokens", "--tokens")
    if given["sequence"] is not None:
        fields["sequence"] = int(_read(given["sequence"], "count", "--seq"))
    else:
        table = model.max_positions if model.positions == "learned" else SEQUENCE
        fields["sequence"] = min(SEQUENCE, table)
        why = f", the learned positions of {model.name}" if table < SEQUENCE else ""
        chosen.append(f"sequence {fields['sequence']:,} tokens{why} (--seq)")
    if given["global_batch"] is not None:
        fields["global_batch"] = int(_read(given["global_batch"], "count", "--batch"))
    else:
        fields["global_batch"] = _batch(split, chosen)
    if given["precision"] is not None:
        fields["precision"] = given["precision"].lower()
    elif split.precision is None:
        fields["precision"] = _precision(cluster, chosen)
    return Workload(**fields)


def _batch(split: Strategy, chosen: list[str]) -> int:
    """Choose the smallest batch that keeps every rank, and the pipeline, busy."""
    steps = split.accumulation or (FILL * split.pp if split.pp > 1 else 1)
    batch = split.micro_batch * split.data_parallel * steps
    factors = f"micro batch {split.micro_batch} x {split.data_parallel:,} data-parallel ranks"
    if split.accumulation is None and steps > 1:
        factors += f" x {steps} micro steps, {FILL} per pipeline stage"
    elif steps > 1:
        factors += f" x {steps} micro steps"
    chosen.append(f"global batch {batch:,} sequences = {factors} (--batch)")
    return batch


def _precision(cluster: Cluster, chosen: list[str]) -> str:
    """Choose bf16, or fp16 on chips that came before it."""
    accelerator = cluster.accelerator
    if "bf16" in accelerator.peak_flops or "fp16" not in accelerator.peak_flops:
        chosen.append("precision bf16 (--precision)")
        return "bf16"
    chosen.append(f"precision fp16, because {accelerator.name} has no bf16 units (--precision)")
    return "fp16"


def _software(
    stack: str | None,
    overrides: Overrides,
    cluster: Cluster,
    strategy: Strategy,
    chosen: list[str],
) -> Stack:
    """Load the software stack that was named, or the default of the device."""
    from scalewise.step.estimate import choose_stack

    software, note = choose_stack(stack, cluster, compiled=strategy.compiled)
    if note is not None:
        chosen.append(f"{note} (--stack)")
    return overrides.apply("stack", software)


def _notes(model: Model, work: Workload, split: Strategy) -> tuple[str, ...]:
    """Say what looks odd about the question."""
    notes: list[str] = []
    if model.positions == "learned" and work.sequence > model.max_positions:
        notes.append(
            f"sequence {work.sequence:,} is longer than the {model.max_positions:,} learned "
            f"positions of {model.name}"
        )
    if split.ep > 1 and model.moe is None:
        notes.append(f"ep{split.ep} has no effect: {model.name} has no experts")
    return tuple(notes)


def require_text(value: str | None, flag: str) -> None:
    """Refuse an empty string where a word is needed, before it is looked up as one.

    Raises:
        InputError: Naming the flag.
    """
    if value is not None and not value.strip():
        raise InputError(f"{flag} is empty", hint=f"give {flag} a value, or leave it out")
