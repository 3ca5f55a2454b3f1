"""Measured numbers in the figures of a study: published ones, and runs of the user.

    marks_of(experiment, rows, runs)          # marks with axes, metric, value, label, source

Published numbers are in the study file. Runs and timings of collectives come from tables with the
columns of the shipped ones. A run belongs to an experiment with its model's shape, its chip, its
sequence length and a size range around it. Its strategy is in the label.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from scalewise.catalog import load_cluster
from scalewise.diagnosis.table import read_user_runs
from scalewise.errors import InputError
from scalewise.evidence.collectives import Collective, read_collectives
from scalewise.evidence.runs import Run, UnsupportedError, read_runs
from scalewise.model import Model, load_model
from scalewise.reading import read_csv
from scalewise.records.files import holds_records
from scalewise.study.files import Experiment
from scalewise.study.measured import MeasuredRow
from scalewise.study.measures import Value
from scalewise.study.plan import sizes_of
from scalewise.study.rows import Row, metric_of, select
from scalewise.units import parse

Measured = Run | Collective
"""One measured row."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """One measured number."""

    axes: dict[str, list[Value]]
    """Known axes, each with its values."""
    metric: str
    """Metric."""
    value: float
    """SI."""
    label: str
    """Label in the legend."""
    source: str
    """Source."""
    published: bool = True
    """Whether it is in the study file; else it is a run of an overlay."""

    def fits(self, name: str, value: Value) -> bool:
        """Return whether an axis may have a value; an unknown axis matches everything."""
        return name not in self.axes or str(value) in map(str, self.axes[name])


def read_overlays(paths: Iterable[str]) -> list[Measured]:
    """Read tables of runs, or of timings of collectives, which have a column `op`.

    Tables of runs are those of `diagnosis.table`: words of a question, the shipped columns, or
    records of `scalewise measure`.

    Raises:
        InputError: If one cannot be read.
    """
    found: list[Measured] = []
    for path in paths:
        if not holds_records(path) and "op" in _header(path):
            found += read_collectives(path)[0]
        else:
            found += read_user_runs(path)
    return found


def _header(path: str) -> list[str]:
    """Return the columns of a CSV table; none if it cannot be read, which its reader reports."""
    if not path.endswith(".csv"):
        return []
    try:
        return read_csv(path).columns
    except InputError:
        return []


@cache
def _shipped() -> tuple[Measured, ...]:
    return (*read_runs(), *read_collectives()[0])


def marks_of(
    experiment: Experiment, rows: Sequence[Row], runs: Sequence[Measured] = ()
) -> list[Mark]:
    """Return the marks in the figures of an experiment.

    Args:
        experiment: The experiment.
        rows: Its points: some results are published relative to another.
        runs: Measured runs; shipped ones are added if the experiment asks for them.
    """
    found = []
    for each in experiment.published:
        value = each.value
        if each.relative_to:
            base = select(rows, each.relative_to)
            ours = metric_of(base[0], each.metric) if len(base) == 1 else None
            if ours is None:
                continue
            value *= ours
        axes = {name: v if isinstance(v, list) else [v] for name, v in each.at.items()}
        found.append(
            Mark(axes=axes, metric=each.metric, value=value, label=each.label, source=each.source)
        )
    for run in (*runs, *(_shipped() if experiment.measured else ())):
        if isinstance(run, Collective):
            found += _timings(experiment, run) if experiment.kind == "collectives" else []
        elif experiment.kind == "scale":
            found += _marks(experiment, run)
    return found


def measured_marks(rows: Iterable[MeasuredRow], machine: str) -> list[Mark]:
    """Return the marks of measured points of the same study.

    Args:
        rows: The points.
        machine: Where they were measured, for the source.
    """
    return [
        Mark(
            axes={axis: [value] for axis, value in row.axes.items()},
            metric=name,
            value=value,
            label="measured",
            source=f"{row.strategy or 'collective'} on {machine}, "
            f"{len(row.records)} repeat{'s' * (len(row.records) > 1)}",
            published=False,
        )
        for row in rows
        for name, value in row.metrics.items()
        if value is not None
    ]


def _timings(experiment: Experiment, row: Collective) -> list[Mark]:
    """Return the marks of one timing, if it belongs to the experiment."""
    sizes = sizes_of(experiment)
    messages = {int(parse(text, "bytes")) for text in experiment.messages}
    clusters: list[Value] = [
        name
        for name in experiment.clusters
        if _chip(name) == row.accelerator and (row.nodes == 1 or _fabric(name) == row.fabric)
    ]
    if not clusters or row.op not in experiment.collectives or int(row.size) not in messages:
        return []
    if not sizes[0] <= row.ranks <= sizes[-1] or row.algorithm == "sharp":
        return []
    moved = (row.ranks - 1) / row.ranks * (2.0 if row.op == "all_reduce" else 1.0)
    axes: dict[str, list[Value]] = {
        "cluster": clusters,
        "collective": [row.op],
        "accelerators": [row.ranks],
        "nodes": [row.nodes],
        "message_bytes": [int(row.size)],
    }
    return [
        Mark(
            axes=axes,
            metric=name,
            value=value,
            label=f"measured {row.op.replace('_', '-')}",
            source=f"{row.name}, {row.fabric}, {row.source}",
            published=False,
        )
        for name, value in (
            ("collective_seconds", row.seconds),
            ("bus_bandwidth", moved * row.size / row.seconds),
        )
    ]


def _marks(experiment: Experiment, run: Run) -> list[Mark]:
    """Return the marks of one run, if it belongs to the experiment."""
    axes = _axes(experiment, run)
    if axes is None:
        return []
    try:
        spelled = str(run.strategy([]))
        measured = {"tokens_per_second_per_accelerator": run.tokens_per_second}
    except (InputError, UnsupportedError):
        return []
    measured["tflops_per_accelerator"] = run.number("tflops_per_accelerator")
    measured["watts_per_accelerator"] = run.number("watts_per_accelerator")
    percent = run.number("mfu_pct")
    measured["mfu"] = None if percent is None else percent / 100.0
    return [
        Mark(
            axes=axes,
            metric=name,
            value=value,
            label=f"measured, {run.source}",
            source=f"{run.id}, {spelled}; {run.text('source_ref') or run.source}",
            published=False,
        )
        for name, value in measured.items()
        if value
    ]


def _axes(experiment: Experiment, run: Run) -> dict[str, list[Value]] | None:
    """Return the axes of a run in the terms of the experiment; None if it does not belong there."""
    count, seq_len = run.count("accelerators"), run.count("seq_len")
    sizes = sizes_of(experiment)
    if count is None or not sizes[0] <= count <= sizes[-1]:
        return None
    if seq_len is None or seq_len not in experiment.sequences:
        return None
    try:
        model = run.model([])
    except (InputError, UnsupportedError):
        return None
    models: list[Value] = [
        load_model(name).name for name in experiment.models if _alike(load_model(name), model)
    ]
    chip = run.text("accelerator")
    clusters: list[Value] = [name for name in experiment.clusters if _chip(name) == chip]
    if not models or not clusters:
        return None
    axes: dict[str, list[Value]] = {
        "model": models,
        "cluster": clusters,
        "seq_len": [seq_len],
        "accelerators": [count],
    }
    for name in ("tp", "pp", "cp"):
        axes[name] = [run.count(name) or 1]
    if run.text("precision"):
        axes["precision"] = [str(run.text("precision"))]
    return axes


def _alike(one: Model, other: Model) -> bool:
    """Return whether two models have the same layers; names differ between sources."""
    shape = ("layers", "hidden", "heads", "ffn")
    return all(getattr(one, name) == getattr(other, name) for name in shape)


@cache
def _chip(cluster: str) -> str:
    return load_cluster(cluster, accelerators=1).accelerator.name


@cache
def _fabric(cluster: str) -> str:
    return load_cluster(cluster, accelerators=1).fabric.name
