"""Measured runs from files: logs, exports of metrics, tables, records and traces.

    found = from_sources(["train.log"], {"model": "llama-3-8b", "on": "dgx-h100"})
    diagnose_found(found, Evidence())

Words that are given go before those that a log states; where they differ, a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.question import Question
from scalewise.ask.resolve import Objects, resolve
from scalewise.diagnosis.answer import diagnose_runs
from scalewise.diagnosis.described import (
    describe,
    is_configuration,
    is_trace,
    read_settings,
    run_files,
)
from scalewise.diagnosis.evidence import Evidence
from scalewise.diagnosis.logs import LogSummary, from_log
from scalewise.diagnosis.measured import Measurement
from scalewise.diagnosis.runs import Run, measured_runs
from scalewise.diagnosis.table import TableRun, is_table, read_user_runs
from scalewise.diagnosis.traces import measurement_of
from scalewise.errors import InputError, ScalewiseError
from scalewise.evidence.runs import Run as RunRow
from scalewise.evidence.table import completed_plan
from scalewise.logs.source import split_source
from scalewise.reading import user_path
from scalewise.trace.read import read_trace
from scalewise.units import grouped

if TYPE_CHECKING:
    from scalewise.ask.resolve import Asked
    from scalewise.diagnosis.result import Diagnosis
    from scalewise.model import Convention
    from scalewise.trace.summary import TraceSummary

_KEY = re.compile(r"(\d+)=(.+)")


@dataclass(frozen=True, kw_only=True)
class Found:
    """Runs of files with their estimates."""

    runs: list[Run]
    """The one that is asked about first."""
    asked: Asked
    """Its question."""
    logs: tuple[LogSummary, ...] = ()
    notes: tuple[str, ...] = ()
    trace: TraceSummary | None = None
    """Traces of the first run."""

    def evidence(self, given: Evidence) -> Evidence:
        """Return evidence with what the first log measures besides."""
        waited = next((log.waited for log in self.logs if log.waited is not None), None)
        return given if waited is None else msgspec.structs.replace(given, waited=waited)


def names_source(text: str) -> bool:
    """Whether a word names a file of measured runs, and no model."""
    path = split_source(text)[0]
    if path.endswith((".toml", "config.json")):
        return False
    return bool(text) and (user_path(path).is_file() or _is_run(path))


def _is_run(path: str) -> bool:
    """Whether a path is the folder of a run; a model may be a folder too, with its config.json."""
    folder = user_path(path)
    return folder.is_dir() and run_files(path) != [path]


def from_sources(
    sources: Sequence[str],
    words: Mapping[str, Any],
    measurements: Sequence[Measurement] = (),
    *,
    convention: Convention = "causal",
    objects: Objects | None = None,
    trace: TraceSummary | None = None,
) -> Found:
    """Read files as measured runs of one question.

    Args:
        sources: Paths; `8=small.log` is a run on 8 GPUs, otherwise like the first. A folder is
            that of records, or of one run with its log, traces and configuration.
        words: Fields of a question that are given.
        measurements: Numbers that are given besides.
        convention: FLOP convention of measured MFU and TFLOP/s.
        objects: What is given as objects; their names are among the words.
        trace: Traces that are read already.

    Raises:
        InputError: If one cannot be read, or the question is not complete.
    """
    keyed = [("", text) if (match := _KEY.fullmatch(text)) is None else (match[1], match[2])
             for text in sources]  # fmt: skip
    keyed = [(key, file) for key, path in keyed for file in run_files(path)]
    traces = [path for _, path in keyed if is_trace(path)]
    trace = read_trace(traces) if traces else trace
    keyed = [(key, path) for key, path in keyed if path not in traces]
    tables = [path for _, path in keyed if is_table(split_source(path)[0])]
    if tables:
        if len(tables) < len(sources) or measurements:
            raise InputError(
                f"--from {tables[0]} is a table of runs: no other source may stand besides",
                hint="add a row to the table",
                field="from",
            )
        return _of_tables(tables, words, convention)
    settings = [read_settings(path) for _, path in keyed if is_configuration(path)]
    logs = [from_log(path, key) for key, path in keyed if not is_configuration(path)]
    if not logs and not measurements:
        if trace is None:
            raise InputError(
                f"--from {sources[0]} is a configuration: nothing is measured",
                hint='name a log besides, or --measured "1786 tok/s"',
                field="from",
            )
        measurements = (measurement_of(trace),)
    main = next((log for log in logs if not log.measurement.key), logs[0] if logs else None)
    described = describe(main, settings, words, objects)
    numbers = [*(log.measurement for log in logs), *measurements]
    _check_keys([each.key for each in numbers])
    runs, asked = measured_runs(
        described.question, numbers, convention=convention, objects=described.objects
    )
    said = tuple(log.said for log in logs)
    return Found(runs=runs, asked=asked, logs=said, notes=described.notes, trace=trace)


def diagnose_found(read: Found, given: Evidence, *, apart: bool = False) -> Diagnosis:
    """Return what explains the runs of files.

    Args:
        read: The runs.
        given: Evidence besides.
        apart: Whether every run has software of its own.

    Raises:
        InputError: If fractions of a step are given that the trace has too.
    """
    if read.trace is not None and given.profile is not None:
        raise InputError(
            "--profile and a trace exclude each other",
            hint="the trace has the fractions",
            field="profile",
        )
    return diagnose_runs(
        read.runs, read.asked, evidence=read.evidence(given), logs=read.logs, notes=read.notes,
        apart=apart, trace=read.trace,
    )  # fmt: skip


def _check_keys(keys: Sequence[str]) -> None:
    """Refuse two runs of one size."""
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(
                f"--from: two runs {f'on {key} GPUs' if key else 'without a number of GPUs'}",
                hint="write 8=FILE for a run on 8 GPUs",
                field="from",
            )


def _of_tables(paths: Sequence[str], words: Mapping[str, Any], convention: Convention) -> Found:
    """Runs of tables and records: rows with the model and the length of the largest run."""
    rows = [_resolved(row) for path in paths for row in read_user_runs(path)]
    known = [row for row in rows if row.measurement is not None and row.asked is not None]
    if not known:
        reasons = [f": {row.reason}" for row in rows if row.reason]
        raise InputError(
            f"--from {paths[0]}: no row names its cluster and a measured number"
            + (reasons[0] if reasons else ""),
            hint="columns are model, on, gpus, strategy, seq, batch, and step_s, tokens_s or mfu",
            field="from",
        )
    wanted = [row for row in known if _is_asked(row, words)]
    if not wanted:
        models = dict.fromkeys(row.resolved().model.name for row in known)
        raise InputError(
            f"--from {paths[0]}: no row has {', '.join(map(str, words.values()))}",
            hint=f"its models are {', '.join(models)}",
            field="from",
        )
    first = max(wanted, key=lambda row: row.resolved().cluster.accelerators)
    same = [row for row in wanted if _alike(row, first)]
    same.sort(key=lambda row: row is not first)
    runs, seen = [], set()
    for row in same:
        asked, measurement = row.resolved(), row.measurement
        place = (asked.cluster.accelerators, str(asked.strategy), asked.workload.global_batch)
        if measurement is None or place in seen:
            continue
        seen.add(place)
        e = asked.estimate(convention)
        runs.append(Run(estimate=e, measurement=measurement, rate=measurement.rate(e)))
    left = len(rows) - len(runs)
    notes = [
        f"{left} of {len(rows)} rows left out: another model, length or cluster, or incomplete"
    ]
    notes += [note for row in same for note in row.notes]
    return Found(
        runs=runs, asked=first.resolved(), notes=tuple(dict.fromkeys(notes[0 if left else 1 :]))
    )


def _resolved(row: RunRow) -> TableRun:
    """Return a row as one of words; a record, or a row with the shipped columns, has nouns."""
    if isinstance(row, TableRun):
        return row
    try:
        rate = row.tokens_per_second
        plan, stack = completed_plan(row)
        workload = plan.workload
        question = Question(
            model=plan.model.name, on=plan.cluster.name, gpus=plan.cluster.accelerators,
            seq=workload.seq_len, batch=workload.global_batch, precision=workload.precision,
            optimizer=None if workload.optimizer == "adamw" else workload.optimizer,
            imbalance=None if workload.imbalance == 1.0 else workload.imbalance,
            capacity=workload.capacity,
        )  # fmt: skip
        nouns = Objects(model=plan.model, cluster=plan.cluster, stack=stack, strategy=plan.strategy)
        asked = resolve(question, nouns)
    except ScalewiseError as error:
        return TableRun(row.row, row.line, reason=str(error))
    measurement = None
    if rate is not None:
        text = f"{grouped(rate, 4)} tok/s"
        measurement = Measurement(key="", value=rate, unit="tok/s", text=text)
    return TableRun(row.row, row.line, asked=asked, measurement=measurement, notes=plan.defaults)


def _is_asked(row: TableRun, words: Mapping[str, Any]) -> bool:
    """Whether a row has the words that are given."""
    question = row.resolved().question
    plain = {name: str(value).lower() for name, value in words.items()}
    return all(
        value in str(getattr(question, name)).lower().replace(",", "")
        for name, value in plain.items()
    )


def _alike(row: TableRun, first: TableRun) -> bool:
    """Whether two rows are runs of one model on one kind of machine."""
    one, other = row.resolved(), first.resolved()
    return (
        one.model == other.model
        and one.cluster.name == other.cluster.name
        and one.workload.seq_len == other.workload.seq_len
        and one.workload.precision == other.workload.precision
    )
