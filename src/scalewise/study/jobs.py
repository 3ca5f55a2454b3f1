"""Points of a study as launches of real training steps and collectives.

    points = points_to_measure(study, Machine(device="cpu", devices=2, memory_bytes=8e9))
    points[0].axes, points[0].job, points[0].reason       # reason: None, or why it does not fit

A point has the axes of its prediction (`study.plan`), so that claims and figures take either.
Points of several experiments that are the same launch are measured once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import msgspec

from scalewise.catalog import load_cluster
from scalewise.errors import InputError
from scalewise.explore.sizes import Rule
from scalewise.explore.templates import Template, fill
from scalewise.measure.check import check_job
from scalewise.measure.collective_plan import CollectivePlan
from scalewise.measure.launch import RANK_BYTES
from scalewise.model import load_model
from scalewise.optimizer import load_optimizer
from scalewise.records.job import Device, TrainJob, check_optimizer, check_precision, inputs_of
from scalewise.records.links import ShapedLinks
from scalewise.study.files import Experiment, Study, Variant
from scalewise.study.measures import Value
from scalewise.study.plan import (
    AS_IT_IS,
    THIS_MACHINE,
    cases_of,
    sizes_of,
    templates_of,
)
from scalewise.tuning import parse_tuning, trained_parameters
from scalewise.units import format_bytes, parse

RANKS_PER_CORE = 2
"""Maximum ranks per core on CPUs: with more, the scheduler of the system is measured."""

TRACED_STEPS = 3
"""Profiled steps of a point whose experiment asks for communication."""

FP32_BYTES = 4.0
"""Bytes of a weight, and of its gradient."""

STEP_FIELDS = ("optimizer", "tuning")
"""Fields of a question that change a measured step."""

RUN_FIELDS = ("tokens", "goodput", "critical_batch", "price", "pue", "fit", "force")
"""Fields of a question that change no step: the run around it, its cost, and what is chosen."""

TRACED = ("comm_fraction", "exposed_fraction", "hidden_share")
"""Metrics that only a trace has."""

ITERATIONS = 20
"""Samples of each collective."""

LINK_FIELDS = {"scale_up_domain", "scale_out_bandwidth"}
"""Fields of a cluster that pretend nodes can have: ranks of a node, and bandwidth of each rank."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """What points can be measured on."""

    device: Device
    """Kind of device."""
    devices: int
    """GPUs, or cores."""
    ranks: int | None = None
    """Maximum ranks on Slurm; None on this machine."""
    ranks_per_node: int | None = None
    """Ranks of one node; None for one machine."""
    memory_bytes: float | None = None
    """Host memory, bytes; None if unknown."""
    accelerator: str | None = None
    """Catalog name of the devices; None if unknown."""
    shapes: bool = False
    """Whether it can limit links between pretend nodes."""
    host: str = ""
    """Name by which two machines with records in one folder differ."""

    @property
    def maximum(self) -> int:
        """Maximum ranks of a launch."""
        if self.ranks is not None:
            return self.ranks
        return self.devices * (RANKS_PER_CORE if self.device == "cpu" else 1)

    def nodes(self, ranks: int) -> int:
        """Return the nodes that so many ranks take."""
        return -(-ranks // self.ranks_per_node) if self.ranks_per_node else 1


@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    """One point of a study, and the launch that measures it."""

    experiment: str
    """Id of the experiment."""
    axes: dict[str, Value]
    """Axes; without the message size, which all share a launch."""
    ranks: int
    """Processes."""
    job: TrainJob | None = None
    """The training job, or None."""
    sweep: CollectivePlan | None = None
    """The collectives, or None."""
    links: ShapedLinks | None = None
    """Limited links that the launch needs; None for the machine as it is."""
    reason: str | None = None
    """Why it cannot be measured here; None if it can."""
    key: str = field(default="")
    """Hash of everything that determines the launch; empty if there is none."""

    def id(self, repeat: int, host: str) -> str:
        """Return the id of the record of a repeat on a machine.

        The same launch always has the same id: a record that a killed run left is found, and one
        that is written twice is read once.
        """
        return _hash([self.key, repeat, host])


def points_to_measure(study: Study, machine: Machine) -> list[MeasuredPoint]:
    """Return every point of a study, with its launch or the reason why there is none.

    Raises:
        InputError: If a name in the study is unknown, naming the experiment.
    """
    found: list[MeasuredPoint] = []
    for experiment in study.experiments:
        try:
            for name, case in cases_of(experiment).items():
                maker = _collectives if case.kind == "collectives" else _steps
                for point in maker(case, machine):
                    axes = {"case": name, **point.axes} if name else point.axes
                    found.append(_changed(point, axes=axes))
        except InputError as error:
            raise InputError(f"experiment {experiment.id}: {error}", hint=error.hint) from error
    return found


def _changed(point: MeasuredPoint, **changes: Any) -> MeasuredPoint:
    fields = {name: getattr(point, name) for name in point.__dataclass_fields__}
    return MeasuredPoint(**(fields | changes))


def launch_key(job: TrainJob, links: ShapedLinks | None = None) -> str:
    """Return the hash of what a training job measures; lengths of runs and traces do not count."""
    plain = inputs_of(job)
    for name in ("steps", "warmup", "trace_steps", "seed", "text", "learning_rate"):
        plain.pop(name)
    # Other names of the same layers are the same measurement.
    plain["model"] = {k: v for k, v in plain["model"].items() if k not in ("name", "source")}
    return _hash([plain, *_linked(links)] if links else plain)


def _linked(links: ShapedLinks | None) -> list[ShapedLinks]:
    """Return what limited links add to a key: nothing, if there are none."""
    return [links] if links else []


def _hash(content: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(content, order="sorted")).hexdigest()[:16]


def _steps(experiment: Experiment, machine: Machine) -> Iterator[MeasuredPoint]:
    """Yield the training steps of an experiment without cases."""
    traced = any(name in TRACED for name in experiment.shown)
    for model, cluster, variant, algorithm, precision, seq_len, template, size in product(
        [load_model(name) for name in experiment.models], experiment.clusters,
        experiment.variants or (AS_IT_IS,), experiment.algorithms, experiment.precisions or (None,),
        experiment.sequences, templates_of(experiment), sizes_of(experiment),
    ):  # fmt: skip
        used = precision or ("fp32" if machine.device == "cpu" else "bf16")
        axes: dict[str, Value] = {
            "model": model.name, "cluster": cluster, "variant": variant.name,
            "algorithm": algorithm, "precision": used, "seq_len": seq_len,
            "strategy": template.label, "tp": template.base.tp, "pp": template.base.pp,
            "cp": template.base.cp, "accelerators": size, "nodes": machine.nodes(size),
        }  # fmt: skip
        point = MeasuredPoint(experiment=experiment.id, axes=axes, ranks=size)
        try:
            _check_place(experiment, machine, cluster, size=size, algorithm=algorithm)
            point = _with_links(point, variant, machine)
            job = _job(experiment, template, model, seq_len, size, used, traced=traced)
            _check_memory(job, machine)
            check_job(job, machine.device)
        except InputError as error:
            yield _changed(point, reason=str(error))
        else:
            yield _changed(point, job=job, key=launch_key(job, point.links))


def _job(
    experiment: Experiment, template: Template, model: Any, seq_len: int, size: int, used: str,
    *, traced: bool,
) -> TrainJob:  # fmt: skip
    """Return the training job of a point.

    Raises:
        InputError: If there is none.
    """
    if experiment.kind == "sensitivity":
        raise InputError("changed hardware cannot be measured")
    if template.limits is not None:
        raise InputError(f"strategy {template.label} is searched: only a named one is measured")
    batch = experiment.batch
    if experiment.batch_tokens is not None:
        batch = experiment.batch_tokens / seq_len
    for name in experiment.question:
        if name not in STEP_FIELDS + RUN_FIELDS:
            raise InputError(f"question.{name} cannot be measured")
    rule = Rule(kind=experiment.scaling, batch=batch, seq_len=seq_len)
    global_batch = rule.global_batch(size)
    return TrainJob(
        model=model, strategy=fill(template, size, global_batch), seq_len=seq_len,
        global_batch=global_batch, precision=check_precision(used), steps=experiment.steps,
        warmup=max(1, experiment.steps // 4) if experiment.steps > 1 else 0,
        trace_steps=TRACED_STEPS if traced else 0,
        optimizer=check_optimizer(str(experiment.question.get("optimizer", "adamw"))),
        tuning=str(experiment.question.get("tuning", "full")),
    )  # fmt: skip


def _collectives(experiment: Experiment, machine: Machine) -> Iterator[MeasuredPoint]:
    """Yield the collectives of an experiment: all messages of a size are one launch."""
    sizes = [int(parse(text, "bytes")) for text in experiment.messages]
    for cluster, variant, algorithm, collective, size in product(
        experiment.clusters, experiment.variants or (AS_IT_IS,), experiment.algorithms,
        experiment.collectives, sizes_of(experiment),
    ):  # fmt: skip
        axes: dict[str, Value] = {
            "cluster": cluster, "variant": variant.name, "algorithm": algorithm,
            "collective": collective, "accelerators": size, "nodes": machine.nodes(size),
        }  # fmt: skip
        point = MeasuredPoint(experiment=experiment.id, axes=axes, ranks=size)
        try:
            _check_place(experiment, machine, cluster, size=size, algorithm=algorithm)
            point = _with_links(point, variant, machine)
        except InputError as error:
            yield _changed(point, reason=str(error))
            continue
        plan = CollectivePlan(
            ops=list(experiment.collectives), sizes=sizes, group_sizes=[size], iters=ITERATIONS,
            beside=False,
        )  # fmt: skip
        key = _hash([msgspec.to_builtins(plan), size, *_linked(point.links)])
        yield _changed(point, sweep=plan, key=key)


def _check_place(
    experiment: Experiment, machine: Machine, cluster: str, *, size: int, algorithm: str
) -> None:
    """Refuse points of other machines.

    Raises:
        InputError: With the reason.
    """
    if cluster != THIS_MACHINE:
        asked = load_cluster(cluster, accelerators=1).accelerator.name
        if asked != machine.accelerator:
            here = machine.accelerator or f"a {machine.device} without a name (--on)"
            raise InputError(f"the study asks about {asked}, this machine is {here}")
    if experiment.kind == "collectives" and size < 2:
        raise InputError("collectives need at least 2 ranks")
    if algorithm != "auto":
        raise InputError(f"algorithm {algorithm}: only the library's own choice is measured")
    if size > machine.maximum:
        what = "ranks of Slurm" if machine.ranks is not None else (
            "GPUs" if machine.device == "cuda" else
            f"cores, at most {RANKS_PER_CORE} ranks on each")  # fmt: skip
        count = machine.ranks if machine.ranks is not None else machine.devices
        raise InputError(f"{size} ranks do not fit: there are {count} {what}")
    per_node = machine.ranks_per_node
    if per_node and size > per_node and size % per_node:
        raise InputError(f"{size} ranks do not fill nodes of {per_node} ranks")


def _with_links(point: MeasuredPoint, variant: Variant, machine: Machine) -> MeasuredPoint:
    """Return a point on the cluster that a variant describes.

    Ranks of one node are the machine as it is, so that they are measured once for all bandwidths.

    Raises:
        InputError: If this machine cannot be changed like that.
    """
    if not variant.set:
        return point
    if set(variant.set) != LINK_FIELDS:
        raise InputError("a changed cluster cannot be measured, except for its links")
    links = ShapedLinks(
        ranks_per_node=int(variant.set["scale_up_domain"]),
        bandwidth=parse(variant.set["scale_out_bandwidth"], "bytes_per_second"),
    )
    if point.ranks > links.ranks_per_node and point.ranks % links.ranks_per_node:
        raise InputError(f"{point.ranks} ranks do not fill nodes of {links.ranks_per_node} ranks")
    nodes = links.nodes(point.ranks)
    if nodes > 1 and not machine.shapes:
        raise InputError("limited links need Linux, root, ip and tc, on CPUs of one machine")
    axes = {**point.axes, "nodes": nodes}
    return _changed(point, axes=axes, links=links if nodes > 1 else None)


def _check_memory(job: TrainJob, machine: Machine) -> None:
    """Refuse jobs whose state alone does not fit into the memory of this machine.

    Raises:
        InputError: With the bytes.
    """
    if machine.device != "cpu" or machine.memory_bytes is None or machine.ranks is not None:
        return
    needed = state_bytes(job) + job.ranks * RANK_BYTES
    if needed > machine.memory_bytes:
        raise InputError(
            f"memory: at least {format_bytes(needed)} for {job.ranks} rank{'s' * (job.ranks > 1)}, "
            f"this machine has {format_bytes(machine.memory_bytes)}"
        )


def state_bytes(job: TrainJob) -> float:
    """Return weights, gradients and optimizer state of all ranks together, bytes.

    (4 x parameters + (4 + moments) x trained parameters) x copies, in bytes: 16 per parameter with
    AdamW. Only data parallelism copies. Activations are not counted.

        >>> from scalewise.model import load_model
        >>> from scalewise.strategy import parse_strategy
        >>> work = {"seq_len": 64, "global_batch": 4, "precision": "fp32", "steps": 2, "warmup": 1}
        >>> tiny = load_model("tiny")
        >>> one, two = (
        ...     state_bytes(TrainJob(model=tiny, strategy=parse_strategy(s), **work))
        ...     for s in ("fsdp2", "ddp2"))
        >>> two / one
        2.0
    """
    s = job.strategy
    copies = s.dp_replicate * (1 if s.sharding == "zero3" else s.dp_shard)
    trained = trained_parameters(job.model, parse_tuning(job.tuning))
    updated = FP32_BYTES + load_optimizer(job.optimizer).moment_bytes
    return copies * (FP32_BYTES * job.model.parameters + updated * trained)


def distinct(points: Iterable[MeasuredPoint]) -> list[MeasuredPoint]:
    """Return one point per launch, in order; of several, the one with the most profiled steps."""
    found: dict[str, MeasuredPoint] = {}
    for point in points:
        if point.reason is not None:
            continue
        old = found.get(point.key)
        if old is None:
            found[point.key] = point
        elif point.job is not None and old.job is not None:
            steps = max(point.job.steps, old.job.steps)
            traced = max(point.job.trace_steps, old.job.trace_steps)
            longest = point.job if point.job.steps == steps else old.job
            job = msgspec.structs.replace(longest, trace_steps=traced)
            found[point.key] = _changed(old, job=job)
    return list(found.values())


def reasons(points: Sequence[MeasuredPoint]) -> dict[str, int]:
    """Return how many points cannot be measured here, by reason, the most frequent first."""
    counts: dict[str, int] = {}
    for point in points:
        if point.reason is not None:
            counts[point.reason] = counts.get(point.reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
