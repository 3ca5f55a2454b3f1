"""Tasks of an experiment: all combinations of its axes.

    for item in plan(experiment):
        item.axes, item.task          # {"model": "llama-2-7b", ...}, Task(...)

Nothing is computed here, so that unknown names are reported before any computation.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import msgspec

from scalewise.ask.question import Question, question_fields, question_from
from scalewise.ask.resolve import Inputs, Objects, inputs
from scalewise.catalog import knows, load_cluster
from scalewise.cluster import Cluster
from scalewise.errors import InputError, did_you_mean
from scalewise.explore.sizes import Rule, default_precision, parse_sizes
from scalewise.explore.tasks import Task
from scalewise.explore.templates import BEST, Template, parse_template
from scalewise.fields import replace
from scalewise.model import Model, load_model
from scalewise.software import choose_stack
from scalewise.stack import Stack
from scalewise.step.estimate import CHOSEN_FIT
from scalewise.study.files import Experiment, Study, Variant
from scalewise.study.measures import Value
from scalewise.study.tasks import ChangesTask, CollectiveTask
from scalewise.units import parse
from scalewise.workload import WORK

MAX_POINTS = 100_000
"""Limit of the points of one experiment: about an hour on one core, and 200 MB."""

THIS_MACHINE = "this-machine"
"""Cluster of studies for `study measure`: any machine. Its predictions need a calibration of that
name (`scalewise calibrate this-machine`) in $SCALEWISE_CATALOG."""

AS_IT_IS = Variant(name="as it is")
"""The unchanged cluster."""

KEYS = {
    "model": "models", "on": "clusters", "gpus": "sizes", "strategy": "strategies",
    "seq": "sequences", "batch": "batch", "precision": "precisions", "stack": "stacks",
    "algorithm": "algorithms", "by": "by",
}  # fmt: skip
"""Fields of a question that are keys of an experiment of their own."""


@dataclass(frozen=True)
class Item:
    """One task with its axes."""

    axes: dict[str, Value]
    """Axes and their values."""
    task: Task | CollectiveTask | ChangesTask
    """Task."""


def plan(experiment: Experiment) -> list[Item]:
    """Yield the tasks of an experiment; none about a machine without a calibration.

    Raises:
        InputError: If a name is unknown, naming the experiment.
    """
    if not predictable(experiment):
        return []
    try:
        _check_points(experiment)
        if experiment.kind == "collectives":
            return list(_collectives(experiment))
        return [
            Item({"case": name, **item.axes} if name else item.axes, item.task)
            for name, case in cases_of(experiment).items()
            for item in _steps(case)
        ]
    except InputError as error:
        raise InputError(f"experiment {experiment.id}: {error}", hint=error.hint) from error


def predictable(experiment: Experiment) -> bool:
    """Return whether the catalog has the machine of an experiment: else it is measured only."""
    return THIS_MACHINE not in experiment.clusters or knows("clusters", THIS_MACHINE)


def _check_points(experiment: Experiment) -> None:
    if (count := points_of(experiment)) > MAX_POINTS:
        raise InputError(
            f"its axes make up to {count:,} points, more than {MAX_POINTS:,}",
            hint="take values off its axes, or make several experiments of it",
        )


def points_of(experiment: Experiment) -> int:
    """Return the largest number of tasks, a product of the axes, without making any."""
    total = 0
    for case in cases_of(experiment).values():
        count = len(sizes_of(case)) * len(case.clusters) * len(case.variants or (AS_IT_IS,))
        count *= len(case.algorithms)
        if case.kind == "collectives":
            count *= len(case.collectives)
        else:
            axes = (case.tp, case.cp, case.pp, case.precisions, case.stacks)
            for values in axes:
                count *= max(len(values), 1)
            count *= len(case.models) * len(case.sequences) * len(case.strategies)
        total += count
    return total


def cases_of(experiment: Experiment) -> dict[str, Experiment]:
    """Return the versions of an experiment by name; without cases, itself under an empty name.

    Raises:
        InputError: If a case changes a key to a value that it cannot have.
    """
    if not experiment.cases:
        return {"": experiment}
    keys = {**msgspec.to_builtins(experiment), "cases": ()}
    try:
        return {
            case.name: msgspec.convert({**keys, **case.set}, Experiment)
            for case in experiment.cases
        }
    except msgspec.ValidationError as error:
        raise InputError(str(error), hint="see `scalewise study new`") from error


def sizes_of(experiment: Experiment) -> tuple[int, ...]:
    """Return the numbers of GPUs, ascending."""
    if isinstance(experiment.sizes, str):
        return parse_sizes(experiment.sizes, "sizes")
    return parse_sizes(",".join(map(str, experiment.sizes)), "sizes")


def templates_of(experiment: Experiment) -> list[Template]:
    """Return the strategies, each with every degree of the axes tp, pp and cp."""
    degrees = [
        [f"{name}{degree}" if degree > 1 else "" for degree in values] if values else [""]
        for name, values in (("tp", experiment.tp), ("cp", experiment.cp), ("pp", experiment.pp))
    ]
    found: dict[str, Template] = {}
    for strategy, *words in product(experiment.strategies, *degrees):
        # A search is not limited to degrees that are listed for other strategies.
        spelled = "-".join([strategy, *(word for word in words if word)])
        label = strategy if strategy.strip().lower().split("-")[0] == BEST else spelled
        found.setdefault(label, parse_template(label))
    return list(found.values())


def changed(cluster: Cluster, variant: Variant) -> Cluster:
    """Apply a variant.

    Raises:
        InputError: If a field does not exist.
    """
    own: dict[str, Any] = {}
    chip: dict[str, Any] = {}
    fabric: dict[str, Any] = {}
    for key, value in variant.set.items():
        target, dot, field = key.partition(".")
        if not dot:
            own[key] = value
        elif target in ("accelerator", "fabric"):
            (chip if target == "accelerator" else fabric)[field] = value
        else:
            raise InputError(
                f"variant {variant.name}: nothing called `{target}` can be changed",
                hint=did_you_mean(target, ("accelerator", "fabric")),
            )
    if chip:
        own["accelerator"] = cluster.accelerator.with_(**chip)
    if fabric:
        known = cluster.fabric.__struct_fields__
        for field in fabric:
            if field not in known:
                raise InputError(
                    f"variant {variant.name}: a fabric has no field `{field}`",
                    hint=did_you_mean(field, known),
                )
        own["fabric"] = replace(cluster.fabric, **fabric)
    return cluster.with_(**own) if own else cluster


def reduced(study: Study) -> Study:
    """Return the study with the ends of every axis only (`--quick`)."""
    return msgspec.structs.replace(
        study, experiment=tuple(_reduced(each) for each in study.experiment)
    )


def _reduced(experiment: Experiment) -> Experiment:
    def ends(values: Any) -> Any:
        return (values[0], values[-1]) if len(values) > 2 else values

    names = ("models", "clusters", "variants", "strategies", "tp", "pp", "cp", "sequences",
             "algorithms", "messages")  # fmt: skip
    sizes = sizes_of(experiment)
    return msgspec.structs.replace(
        experiment,
        sizes=[sizes[0], *([sizes[-1]] if len(sizes) > 1 else [])],
        **{name: ends(getattr(experiment, name)) for name in names},
    )


def _clusters(experiment: Experiment) -> Iterator[tuple[str, Variant, Cluster]]:
    """Yield clusters with variants at the largest size, where a missing network is an error."""
    largest = sizes_of(experiment)[-1]
    for name, variant in product(experiment.clusters, experiment.variants or (AS_IT_IS,)):
        yield name, variant, changed(load_cluster(name, accelerators=largest), variant)


def _collectives(experiment: Experiment) -> Iterator[Item]:
    messages = tuple(parse(text, "bytes") for text in experiment.messages)
    for (name, variant, cluster), algorithm, collective, size in product(
        _clusters(experiment), experiment.algorithms, experiment.collectives, sizes_of(experiment)
    ):
        if experiment.question:
            cluster = _asked(experiment, load_model(Question().model), cluster, None).cluster
        machine = cluster.with_(accelerators=size, algorithm=algorithm)
        axes: dict[str, Value] = {
            "cluster": name,
            "variant": variant.name,
            "algorithm": algorithm,
            "collective": collective,
            "accelerators": size,
            "nodes": machine.nodes,
        }
        yield Item(axes, CollectiveTask(cluster=machine, collective=collective, messages=messages))


def _steps(experiment: Experiment) -> Iterator[Item]:
    models = [load_model(name) for name in experiment.models]
    clusters = list(_clusters(experiment))
    for plain, (name, variant, found), algorithm, precision, stack, seq_len, template in product(
        models, clusters, experiment.algorithms, experiment.precisions or (None,),
        experiment.stacks or (None,), experiment.sequences, templates_of(experiment),
    ):  # fmt: skip
        named = stack
        if stack is None and name == THIS_MACHINE and knows("stacks", THIS_MACHINE):
            named = THIS_MACHINE
        model, cluster, fit = plain, found, CHOSEN_FIT
        software = _stack(named, cluster, template)
        words: dict[str, Any] = {}
        if experiment.question:
            asked = _asked(experiment, model, cluster, software)
            model, cluster, software, fit = asked.model, asked.cluster, asked.stack, asked.fit
            words = {each: getattr(asked.workload, each) for each in WORK
                     if each in experiment.question}  # fmt: skip
        rule = Rule(
            kind=experiment.scaling,
            batch=experiment.batch
            if experiment.batch_tokens is None
            else experiment.batch_tokens / seq_len,
            seq_len=seq_len,
            precision=precision,  # type: ignore[arg-type]
            **words,
        )
        used = rule.precision or default_precision(cluster)
        cluster.accelerator.peak(used)
        for size in sizes_of(experiment):
            machine = cluster.with_(accelerators=size, algorithm=algorithm)
            axes: dict[str, Value] = {
                "model": model.name,
                "cluster": name,
                "variant": variant.name,
                "algorithm": algorithm,
                "precision": used,
                "stack": _stack_name(software, cluster, template),
                "seq_len": seq_len,
                "strategy": template.label,
                "tp": template.base.tp,
                "pp": template.base.pp,
                "cp": template.base.cp,
                "accelerators": size,
                "nodes": machine.nodes,
            }
            nouns: dict[str, Any] = {
                "model": model, "cluster": machine, "rule": rule, "template": template,
                "stack": software,
            }  # fmt: skip
            if experiment.kind == "scale":
                task: Task | ChangesTask = Task(
                    **nouns, by=experiment.by, convention=experiment.convention, fit=fit
                )
            else:
                task = ChangesTask(
                    **nouns, factor=experiment.factor, reoptimize=experiment.reoptimize
                )
            yield Item(axes, task)


def _asked(experiment: Experiment, model: Model, cluster: Cluster, stack: Stack | None) -> Inputs:
    """Resolve the fields of the question of an experiment, as every command does.

    Raises:
        InputError: If there is no such field, or it is a key of the experiment.
    """
    for name in experiment.question:
        if name in KEYS:
            raise InputError(
                f"question.{name} is the key `{KEYS[name]}` of an experiment", hint=KEYS[name]
            )
        if name not in question_fields():
            raise InputError(
                f"a question has no field `{name}`", hint=did_you_mean(name, question_fields())
            )
    objects = Objects(model=model, cluster=cluster, stack=stack)
    return inputs(question_from(experiment.question), objects)


def _stack(name: str | None, cluster: Cluster, template: Template) -> Stack | None:
    """The named software; None for the usual one, also where the named one does not run."""
    if name is None or _is_for_other_device(name, cluster):
        return None
    return choose_stack(name, cluster, compiled=template.base.compiled).stack


def _stack_name(stack: Stack | None, cluster: Cluster, template: Template) -> str:
    """Name of the software on the axis of software."""
    if stack is not None:
        return stack.name
    if template.limits is not None:
        return "usual"
    base = template.base
    sharded = base.sharding == "zero3"
    return choose_stack(None, cluster, fully_sharded=sharded, compiled=base.compiled).stack.name


def _is_for_other_device(name: str, cluster: Cluster) -> bool:
    from scalewise.stack import load_stack

    known = name.endswith(".toml") or knows("stacks", name)
    return known and load_stack(name).devices not in (cluster.accelerator.kind, "any")
