"""Measured points of a study: rows with the axes of the predicted ones, from records.

    measured = measured_rows(study, "records/")
    measured.rows[0].metrics["tokens_per_second_per_accelerator"]      # median of the repeats
    measured.rows[0].samples["tokens_per_second_per_accelerator"]      # each repeat

A record belongs to a point if it has the same model, strategy, sequence length, batch and
precision. What no record has is not measured, and never filled in.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from scalewise.errors import InputError
from scalewise.measure.idle import LaunchNote, disturbance, journal_of, read_journal
from scalewise.records.environment import Environment
from scalewise.records.files import Record, read_records
from scalewise.records.job import job_of
from scalewise.records.metrics import Summary, summarize
from scalewise.records.rows import bus_factor
from scalewise.study.files import Experiment, Study
from scalewise.study.jobs import Machine, MeasuredPoint, launch_key, points_to_measure
from scalewise.study.plan import cases_of
from scalewise.study.rows import Row


@dataclass(frozen=True, kw_only=True)
class MeasuredRow(Row):
    """One measured point."""

    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)
    """Metrics of each repeat, SI; the medians are in `metrics`."""
    disturbed: float = 0.0
    """Log of the mean slowdown of a fixed loop around its repeats; 0 on an idle machine."""
    records: tuple[str, ...] = ()
    """Ids of the records."""


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """Everything that was measured of a study."""

    rows: list[MeasuredRow]
    """In the order of the study; points without records have none."""
    missing: int
    """Points that could be measured there, but have no record."""
    machine: str
    """Device, cores and software, in a line."""
    notes: list[str]
    """Doubts about the records, one sentence each."""

    def of(self, experiment: Experiment | str) -> list[MeasuredRow]:
        """Return the rows of one experiment."""
        name = experiment if isinstance(experiment, str) else experiment.id
        return [row for row in self.rows if row.experiment == name]


def measured_rows(study: Study, *paths: str | Path) -> Measurements:
    """Return the measured points of a study.

    Args:
        study: The study.
        *paths: Record files and folders.

    Raises:
        InputError: If there is no record, or a name in the study is unknown.
    """
    found = read_records(*paths)
    records = [each for each in found.records if each.kind in ("train", "collective")]
    if not records:
        raise InputError(
            f"{', '.join(map(str, paths))}: no record of training or collectives",
            hint=f"scalewise study measure {study.name}",
        )
    where, kept, dropped = _one_machine(records)
    journal = {
        key: value
        for path in paths
        for key, value in read_journal(journal_of(path)).items()
    }  # fmt: skip
    trained = _by_key(each for each in kept if each.kind == "train")
    timed = [each for each in kept if each.kind == "collective"]
    machine = Machine(
        device=where.device, devices=where.cores, ranks=max(r.environment.ranks for r in kept),
        ranks_per_node=max(r.environment.ranks_per_node for r in kept) if where.nodes else None,
        accelerator=where.accelerator, shapes=any(r.environment.links for r in kept),
    )  # fmt: skip
    points = points_to_measure(study, machine)
    rows: list[MeasuredRow] = []
    missing = 0
    for point in points:
        if point.reason is not None:
            continue
        if point.job is not None:
            mine = trained.get(point.key, [])
            found_rows = [_step_row(point, mine, journal)] if mine else []
        else:
            found_rows = _collective_rows(point, timed, journal)
        rows += found_rows
        missing += not found_rows
    notes = [*found.notes, *dropped, *_warnings(kept)]
    for experiment in study.experiments:
        rows = _with_curves(experiment, rows)
    return Measurements(rows=rows, missing=missing, machine=_machine_text(where), notes=notes)


def _one_machine(records: Sequence[Record]) -> tuple[Environment, list[Record], list[str]]:
    """Return the machine with most records, its records, and a note about the others."""
    groups: dict[tuple[Any, ...], list[Record]] = {}
    for each in records:
        e = each.environment
        name = "" if e.nodes else e.host
        versions = e.versions.get("torch")
        groups.setdefault((e.device, e.device_name, e.cpu, e.cores, name, versions), []).append(
            each
        )
    kept = max(groups.values(), key=len)
    rest = len(records) - len(kept)
    note = (
        f"{rest} of {len(records)} records are of another machine or PyTorch and are left out: "
        "give the folder of one"
    )
    return kept[0].environment, kept, [note] if rest else []


def _machine_text(where: Environment) -> str:
    torch = where.versions.get("torch", "unknown")
    return (
        f"{where.device_name} ({where.cores} cores), {where.backend}, PyTorch {torch}, "
        f"{where.platform}"
    )


def _warnings(records: Sequence[Record]) -> list[str]:
    """Return how many records were not taken on an idle machine; numbers differ in each warning."""
    busy = sum(any("not idle" in text for text in each.warnings) for each in records)
    if not busy:
        return []
    return [
        f"{busy} of {len(records)} launches began while other load was on the machine: their "
        "intervals are wider"
    ]


def _by_key(records: Iterable[Record]) -> dict[str, list[Record]]:
    """Return records of training by their launch key."""
    found: dict[str, list[Record]] = {}
    for each in records:
        found.setdefault(launch_key(job_of(each.inputs), each.environment.links), []).append(each)
    return found


def _step_row(
    point: MeasuredPoint, records: Sequence[Record], journal: Mapping[str, LaunchNote]
) -> MeasuredRow:
    """Return the row of a training job."""
    launches = sorted(records, key=lambda each: (each.launch, each.started))
    every = [_metrics(summarize([each])) for each in launches]
    samples: dict[str, tuple[float, ...]] = {}
    for name in every[0]:
        values = [value for each in every if (value := each[name]) is not None]
        # A metric that some repeats lack has no spread over all of them.
        if len(values) == len(every):
            samples[name] = tuple(values)
    metrics = _metrics(summarize(launches))
    metrics |= {name: statistics.median(values) for name, values in samples.items()}
    rates = samples["tokens_per_second_per_accelerator"]
    return MeasuredRow(
        experiment=point.experiment, axes=point.axes, metrics=metrics,
        strategy=str(point.job.strategy) if point.job is not None else "",
        interval=(min(rates), max(rates)), samples=samples,
        disturbed=disturbance([each.id for each in launches], journal),
        records=tuple(each.id for each in launches),
        note=f"measured, {len(launches)} repeat{'s' if len(launches) > 1 else ''}",
    )  # fmt: skip


def _metrics(s: Summary) -> dict[str, float | None]:
    """Return what a record measures, by the names of predictions."""
    step = s.step_seconds.median
    rate, watts = s.tokens_per_second_per_device, s.watts_per_device
    load, exposed = s.communication_seconds, s.exposed_seconds
    return {
        "tokens_per_second": s.tokens_per_second,
        "tokens_per_second_per_accelerator": rate,
        "step_seconds": step,
        "accelerator_seconds_per_token": 1.0 / rate,
        "tflops_per_accelerator": s.tflops_per_device,
        "mfu": s.mfu,
        "hfu": s.hfu,
        "memory_bytes": s.peak_memory_bytes,
        "watts_per_accelerator": watts,
        "tokens_per_device_joule": None if not watts else rate / watts,
        "comm_fraction": None if load is None else load / step,
        "exposed_fraction": None if exposed is None else exposed / step,
        "hidden_share": 1.0 - min(exposed / load, 1.0) if load and exposed is not None else None,
    }


def _collective_rows(
    point: MeasuredPoint, records: Sequence[Record], journal: Mapping[str, LaunchNote]
) -> list[MeasuredRow]:
    """Return one row per message of a collective."""
    op, ranks = str(point.axes["collective"]), point.ranks
    assert point.sweep is not None
    rows = []
    for size in point.sweep.sizes:
        times = [
            (each.id, float(row["time_us"]) * 1e-6)
            for each in records
            if each.environment.links == point.links
            for row in each.results.get("rows", ())
            if row["op"] == op and row["accelerators"] == ranks and row["message_bytes"] == size
            and row.get("placement", "packed") == "packed"
        ]  # fmt: skip
        if not times:
            continue
        seconds = tuple(each for _, each in times)
        moved = bus_factor(op, ranks) * size
        samples = {
            "collective_seconds": seconds,
            "bus_bandwidth": tuple(moved / each for each in seconds),
        }
        rows.append(
            MeasuredRow(
                experiment=point.experiment, axes={**point.axes, "message_bytes": size},
                metrics={name: statistics.median(values) for name, values in samples.items()},
                samples=samples, disturbed=disturbance([each for each, _ in times], journal),
                records=tuple(each for each, _ in times),
            )
        )  # fmt: skip
    return rows


def _with_curves(experiment: Experiment, rows: Sequence[MeasuredRow]) -> list[MeasuredRow]:
    """Add speedup and scaling efficiency, and take the fastest over the axes of `best_over`."""
    over = {name: case.best_over for name, case in cases_of(experiment).items()}
    mine = [row for row in rows if row.experiment == experiment.id and "strategy" in row.axes]
    best: dict[tuple[Any, ...], MeasuredRow] = {}
    for row in mine:
        left_out = over[str(row.axes.get("case", ""))]
        key = tuple((k, v) for k, v in row.axes.items() if k not in left_out)
        if key not in best or _rate(row) > _rate(best[key]):
            best[key] = row
    curves: dict[tuple[Any, ...], list[MeasuredRow]] = {}
    for row in best.values():
        key = tuple((k, v) for k, v in row.axes.items() if k not in ("accelerators", "nodes"))
        curves.setdefault(key, []).append(row)
    changed: dict[int, MeasuredRow] = {}
    for curve in curves.values():
        first = min(curve, key=lambda row: int(row.axes["accelerators"]))
        for row in curve:
            changed[id(row)] = _relative(row, first)
    kept = {id(row) for row in best.values()}
    return [
        changed.get(id(row), row)
        for row in rows
        if row.experiment != experiment.id or "strategy" not in row.axes or id(row) in kept
    ]


def _rate(row: Row) -> float:
    return row.metrics["tokens_per_second"] or 0.0


def _relative(row: MeasuredRow, first: MeasuredRow) -> MeasuredRow:
    """Return a row with speedup and scaling efficiency, repeat by repeat."""
    samples, metrics = dict(row.samples), dict(row.metrics)
    for name, of in (
        ("speedup", "tokens_per_second"),
        ("scaling_efficiency", "tokens_per_second_per_accelerator"),
    ):
        # Repeats of all points were taken in turn, so equal numbers belong together.
        samples[name] = tuple(
            a / b for a, b in zip(row.samples[of], first.samples[of], strict=False)
        )
        metrics[name] = statistics.median(samples[name])
    return replace(row, samples=samples, metrics=metrics)
