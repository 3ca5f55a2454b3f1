"""Measured runs from files: logs, exports of metrics, tables and records.

    found = from_sources(["train.log"], {"model": "llama-3-8b", "on": "dgx-h100"})
    diagnose_runs(found.runs, found.asked, logs=found.logs)

Words that are given go before those that a log states; where they differ, a note says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.question import Question, question_fields, question_from
from scalewise.ask.resolve import Objects, resolve
from scalewise.diagnosis.evidence import Evidence
from scalewise.diagnosis.logs import LogRun, LogSummary, from_log
from scalewise.diagnosis.measured import Measurement
from scalewise.diagnosis.runs import Run, measured_runs
from scalewise.diagnosis.table import TableRun, is_table, read_user_runs
from scalewise.errors import InputError, ScalewiseError
from scalewise.evidence.runs import Run as RunRow
from scalewise.evidence.table import completed_plan
from scalewise.frameworks import Configuration
from scalewise.frameworks import read as read_configuration
from scalewise.logs.blocks import line_blocks
from scalewise.logs.source import split_source
from scalewise.reading import read_text, user_path
from scalewise.units import grouped

if TYPE_CHECKING:
    from scalewise.ask.resolve import Asked
    from scalewise.model import Convention, Model

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

    def evidence(self, given: Evidence) -> Evidence:
        """Return evidence with what the first log measures besides."""
        waited = next((log.waited for log in self.logs if log.waited is not None), None)
        return given if waited is None else msgspec.structs.replace(given, waited=waited)


def names_source(text: str) -> bool:
    """Whether a word names a file of measured runs, and no model."""
    path = split_source(text)[0]
    if path.endswith((".toml", "config.json")):
        return False
    return bool(text) and user_path(path).is_file()


def from_sources(
    sources: Sequence[str],
    words: Mapping[str, Any],
    measurements: Sequence[Measurement] = (),
    *,
    convention: Convention = "causal",
) -> Found:
    """Read files as measured runs of one question.

    Args:
        sources: Paths; `8=small.log` is a run on 8 GPUs, otherwise like the first.
        words: Fields of a question that are given.
        measurements: Numbers that are given besides.
        convention: FLOP convention of measured MFU and TFLOP/s.

    Raises:
        InputError: If one cannot be read, or the question is not complete.
    """
    keyed = [("", text) if (match := _KEY.fullmatch(text)) is None else (match[1], match[2])
             for text in sources]  # fmt: skip
    tables = [path for _, path in keyed if is_table(split_source(path)[0])]
    if tables:
        if len(tables) < len(sources) or measurements:
            raise InputError(
                f"--from {tables[0]} is a table of runs: no other source may stand besides",
                hint="add a row to the table",
                field="from",
            )
        return _of_tables(tables, words, convention)
    settings = [_configuration(path) for _, path in keyed if is_configuration(path)]
    logs = [from_log(path, key) for key, path in keyed if not is_configuration(path)]
    if not logs and not measurements:
        raise InputError(
            f"--from {sources[0]} is a configuration: nothing is measured",
            hint='name a log besides, or --measured "1786 tok/s"',
            field="from",
        )
    return _of_logs(logs, settings, words, measurements, convention)


def is_configuration(path: str) -> bool:
    """Whether a path is a configuration or launch script, by its ending and its content."""
    file = user_path(path)
    if file.name == "trainer_state.json":
        return False
    if file.name.endswith((".json", ".json.gz")):
        first = next(line_blocks(file), (1, b""))[1]
        if b'"traceEvents"' in first or b'"deviceProperties"' in first:
            raise InputError(
                f"--from {path} is a profiler trace",
                hint=f"name it with --trace {path}",
                field="from",
            )
        if file.suffix == ".gz":
            return False
        return '"log_history"' not in read_text(path, what="configuration")
    return file.suffix in (".yaml", ".yml", ".toml", ".sh", ".slurm", ".sbatch")


def _configuration(path: str) -> Configuration:
    """The configuration in a file."""
    return read_configuration(read_text(path, what="configuration"), user_path(path).name)


def _of_logs(
    logs: Sequence[LogRun],
    settings: Sequence[Configuration],
    words: Mapping[str, Any],
    measurements: Sequence[Measurement],
    convention: Convention,
) -> Found:
    """Runs of logs: the first one without a key is asked about."""
    main = next((log for log in logs if not log.measurement.key), logs[0] if logs else None)
    found: dict[str, Any] = {} if main is None else dict(main.words)
    model = None if main is None else main.model
    notes: list[str] = []
    for each in settings:
        found |= each.words
        notes += each.notes
        if each.model is not None:
            model = None if "model" in each.words else each.model
    notes += _differing(found, words, None if main is None else main.said.stated)
    found |= words
    notes = [note for note in notes if not _answered(note, found, model)]
    objects = None
    if model is not None and "model" not in words:
        objects = Objects(model=model)
        found.setdefault("model", model.name)
    question = question_from(_complete(found, main))
    numbers = [*(log.measurement for log in logs), *measurements]
    keys = [each.key for each in numbers]
    for key in keys:
        if keys.count(key) > 1:
            raise InputError(
                f"--from: two runs {f'on {key} GPUs' if key else 'without a number of GPUs'}",
                hint="write 8=FILE for a run on 8 GPUs",
                field="from",
            )
    runs, asked = measured_runs(question, numbers, convention=convention, objects=objects)
    return Found(runs=runs, asked=asked, logs=tuple(log.said for log in logs), notes=tuple(notes))


def _answered(note: str, found: Mapping[str, Any], model: Model | None) -> bool:
    """Whether a note asks for words that are there by now."""
    asks = [name for name in found if f"give {question_fields()[name].flag}" in note]
    return bool(asks) or ("give MODEL" in note and model is not None)


def _complete(found: dict[str, Any], log: LogRun | None) -> dict[str, Any]:
    """Fields of the question, with its model and cluster.

    Raises:
        InputError: If one of the two is not known.
    """
    for name in ("model", "on"):
        if name not in found:
            flag = question_fields()[name].flag
            said = ", ".join(f"{key} {value}" for key, value in found.items())
            raise InputError(
                f"{flag} is missing" + (f", and {log.said.path} does not state it" if log else ""),
                hint=f"known is {said}"
                if said
                else "scalewise models lists models, scalewise clusters clusters",
                field=name,
            )
    return found


def _differing(
    found: Mapping[str, Any], words: Mapping[str, Any], stated: Mapping[str, str] | None
) -> list[str]:
    """Words that are given otherwise than files state them."""
    return [
        f"{question_fields()[name].flag} {words[name]} is given, the files say "
        f"{(stated or {}).get(name, value)}"
        for name, value in found.items()
        if name in words and str(words[name]) != str(value) and name != "on"
    ]


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
