"""The user's own runs: tables with the words of a question and a measured number, records, logs.

    model,on,gpus,strategy,seq,batch,tokens_s
    llama-3-8b,dgx-h100,32,fsdp32-mb1,8192,32,1786

    read_user_runs("runs.csv")           # runs for validate, compare, calibrate, studies, the page

CSV, JSONL, or TOML with `[[run]]`. Any other field of a question may be a column too. A name that
the catalog lacks stands for the nearest one, with a note; a row that cannot be is a run with a
reason. Tables with the columns of the shipped runs, records, and logs are read by the same door.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from scalewise.ask.names import find_name, is_file
from scalewise.ask.question import Question, question_fields, question_from
from scalewise.ask.resolve import Asked, resolve
from scalewise.catalog import names
from scalewise.catalog.nearest import nearest_accelerator
from scalewise.diagnosis.described import describe, is_trace, run_files
from scalewise.diagnosis.logs import from_log
from scalewise.diagnosis.measured import Measurement, parse_measured
from scalewise.errors import InputError, ScalewiseError, did_you_mean
from scalewise.evidence.measured import cell, noun_cells, runs_of
from scalewise.evidence.runs import REQUIRED, Plan, Run, UnsupportedError, read_runs
from scalewise.logs.source import split_source
from scalewise.model import Model
from scalewise.reading import parse_json, read_csv, read_text, read_toml, user_path
from scalewise.records.files import holds_records, read_records
from scalewise.stack import Stack
from scalewise.strategy import Strategy

COLUMNS = ("model", "on", "gpus", "strategy", "seq", "batch")
"""Words of a question that a table has."""

MEASURED = {
    "step_s": "s/step",
    "step_seconds": "s/step",
    "step_ms": "ms",
    "tokens_s": "tok/s",
    "tokens_per_second": "tok/s",
    "tokens_s_total": "tok/s total",
    "mfu": "% MFU",
    "tflops": "TFLOP/s",
}
"""Columns with the measured number, and its unit where a cell has none; the first one that is not
blank counts. Rates are per GPU, MFU is in percent or a fraction."""

OTHERS = ("id", "source", "notes", "memory_gb")
"""Columns that are kept as they are."""

ROWS = "run"
"""Name of the rows in a TOML file."""


class TableRun(Run):
    """A row of words, resolved as any question is."""

    def __init__(
        self,
        row: dict[str, str],
        line: int,
        *,
        asked: Asked | None = None,
        measurement: Measurement | None = None,
        reason: str = "",
        notes: tuple[str, ...] = (),
    ) -> None:
        super().__init__(row, line)
        self.asked, self.measurement, self.reason, self.notes = asked, measurement, reason, notes

    def resolved(self) -> Asked:
        """The question of the row.

        Raises:
            UnsupportedError: With the reason, if it cannot be.
        """
        if self.asked is None:
            raise UnsupportedError(f"line {self.line}: {self.reason}")
        return self.asked

    def model(self, defaults: list[str]) -> Model:
        """The model that is named."""
        del defaults
        return self.resolved().model

    def strategy(self, defaults: list[str]) -> Strategy:
        """The strategy that is named, or the usual one."""
        del defaults
        return self.resolved().strategy

    @property
    def stack(self) -> Stack | None:
        """Software that is named, or usual."""
        return None if self.asked is None else self.asked.software.stack

    @property
    def states_recompute(self) -> bool:
        """Whether the strategy is named: it says what is recomputed."""
        return True

    def plan(self) -> Plan:
        """The row as nouns."""
        asked = self.resolved()
        chosen = tuple(str(each) for each in asked.defaults)
        return Plan(
            model=asked.model,
            cluster=asked.cluster,
            workload=asked.workload,
            strategy=asked.strategy,
            defaults=(*self.notes, *chosen),
        )


def read_user_runs(
    path: str, words: Mapping[str, Any] | None = None, *, exact: bool = False
) -> list[Run]:
    """Read runs of the user: records, a table of words or with the shipped columns, or a log.

    Args:
        path: Folder or .jsonl of records, .csv, .jsonl or .toml; a log, an export of its metrics,
            or the folder of a run.
        words: Fields of a question that are given. They describe the run of a log, and say what
            the rows of a table ran on.
        exact: Whether a name that the catalog lacks is refused.

    Raises:
        InputError: If it cannot be read, or its columns are neither.
    """
    file, given = user_path(path), dict(words or {})
    if file.is_dir() and (inside := run_files(path)) != [path]:
        path = next((each for each in inside if not is_trace(each)), path)
        file = user_path(path)
    if _is_log(path):
        return [_log_run(path, given)]
    if file.suffix == ".toml" and file.is_file():
        return list(_table_runs(_toml_rows(path), path, given, exact=exact))
    if holds_records(path):
        rows = None if file.is_dir() else _json_rows(path)
        if rows is None:
            return list(runs_of(read_records(path, kind="train").records))
        return list(_table_runs(rows, path, given, exact=exact))
    columns, found = read_csv(path, what="table of runs")
    usual = {"on", "gpus", *MEASURED} - {"step_seconds"}
    if set(REQUIRED) & set(columns) or not usual & set(columns):
        return read_runs(path)
    _check_columns(columns, path)
    return list(_table_runs(found, path, given, exact=exact))


def _is_log(path: str) -> bool:
    """Whether a file is a log or an export of metrics: no column of it names a run."""
    name, column = split_source(path)
    file = user_path(name)
    if column or file.suffix not in (".csv", ".toml"):
        return not is_table(name)
    columns = set(read_csv(name, what="table of runs").columns) if file.suffix == ".csv" else set()
    return "step" in {each.lower() for each in columns} and not columns & {"model", *REQUIRED}


def is_own(path: str) -> bool:
    """Whether a path is a log, or a table of runs: no records, which have kernels and links too."""
    file = user_path(path)
    if file.is_dir():
        return run_files(path) != [path]
    return file.is_file() and (holds_rows(path) or _is_log(path))


def is_table(path: str) -> bool:
    """Whether a path holds several runs: a folder, records, or a table."""
    file = user_path(path)
    if file.is_dir():
        return True
    if file.suffix == ".jsonl":
        first = next(iter(read_text(path, what="table of runs").splitlines()), "")
        return '"environment"' in first or holds_rows(path)
    return holds_rows(path)


def holds_rows(path: str) -> bool:
    """Whether a file is a table of runs, and not records or metrics."""
    file = user_path(path)
    if not file.is_file():
        return False
    if file.suffix == ".csv":
        columns = read_csv(path, what="table of runs").columns
        shipped = {"accelerator", "accelerators"} <= set(columns)
        return shipped or len({"model", "on", "gpus", "strategy"} & set(columns)) >= 2
    if file.suffix == ".jsonl":
        first = next(iter(read_text(path, what="table of runs").splitlines()), "")
        return '"environment"' not in first and '"model"' in first and '"gpus"' in first
    return file.suffix == ".toml" and ROWS in read_toml(path, what="table of runs")


def _json_rows(path: str) -> list[tuple[int, dict[str, str]]] | None:
    """Rows of JSON lines by line; None if they are records."""
    rows: list[tuple[int, dict[str, str]]] = []
    for line, text in enumerate(read_text(path, what="table of runs").splitlines(), start=1):
        if not text.strip():
            continue
        if not rows and ('"environment"' in text or '"model"' not in text):
            return None
        value = parse_json(text, f"{path}, line {line}")
        if not isinstance(value, dict):
            raise InputError(
                f"{path}, line {line}: not an object", hint='{"model": "llama-3-8b", ..}'
            )
        rows.append((line, {key: cell(each) for key, each in value.items() if each is not None}))
    if rows:
        _check_columns(list(dict.fromkeys(key for _, row in rows for key in row)), path)
    return rows or None


def _toml_rows(path: str) -> list[tuple[int, dict[str, str]]]:
    """Rows of `[[run]]` by number."""
    table = read_toml(path, what="table of runs")
    rows = table.get(ROWS)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} has no [[{ROWS}]]", hint=f"one [[{ROWS}]] for each run")
    _check_columns(list(dict.fromkeys(key for row in rows for key in row)), path)
    return [(number, {key: cell(each) for key, each in row.items()})
            for number, row in enumerate(rows, start=1)]  # fmt: skip


def _check_columns(columns: Iterable[str], path: str) -> None:
    """Refuse a table without a model, or with a column that means nothing."""
    known = (*question_fields(), *MEASURED, *OTHERS)
    for name in columns:
        if name and name not in known:
            raise InputError(
                f"{path}: unknown column {name[:60]!r}", hint=did_you_mean(name, known)
            )
    if "model" not in columns:
        raise InputError(
            f"{path} has no column 'model'",
            hint=f"columns are {', '.join(COLUMNS)}, and step_s, tokens_s or mfu",
        )


def _log_run(path: str, words: Mapping[str, Any]) -> TableRun:
    """The run of a log, as its flags and the configuration in or beside it describe it."""
    log = from_log(path)
    described = describe(log, (), words)
    asked = resolve(described.question, described.objects)
    cells = _cells(asked)
    cells["tokens_per_second_per_accelerator"] = log.measurement.rate(asked.estimate())
    cells |= {"source": "own", "id": user_path(log.said.path).name}
    plain = {name: cell(value) for name, value in cells.items() if value is not None}
    return TableRun(plain, 1, asked=asked, measurement=log.measurement, notes=described.notes)


def _table_runs(
    rows: Iterable[tuple[int, Mapping[str, str]]],
    path: str,
    words: Mapping[str, Any],
    *,
    exact: bool,
) -> Iterable[TableRun]:
    for line, row in rows:
        given = {key: value.strip() for key, value in row.items() if value and value.strip()}
        if given:
            yield _table_run(given | {**words}, line, path, exact=exact)


def _table_run(row: dict[str, str], line: int, path: str, *, exact: bool) -> TableRun:
    """One row, resolved; with a reason instead where it cannot be."""
    kept = {key: row[key] for key in OTHERS if key in row}
    kept.setdefault("source", "own")
    kept.setdefault("id", f"{user_path(path).name}-{line}")
    notes: list[str] = []
    try:
        question = _question(row, notes, exact=exact)
        asked = resolve(question)
        measurement = _measurement(row, line)
        cells = _cells(asked)
        if measurement is not None:
            rate = measurement.rate(asked.estimate("palm" if "tflops" in row else "causal"))
            cells["tokens_per_second_per_accelerator"] = rate
    except ScalewiseError as error:
        words = {"model": row.get("model", ""), "accelerator": row.get("on", ""),
                 "accelerators": row.get("gpus", "")}  # fmt: skip
        return TableRun({**kept, **words}, line, reason=str(error))
    plain = {name: cell(value) for name, value in cells.items() if value is not None}
    return TableRun(
        {**plain, **kept}, line, asked=asked, measurement=measurement, notes=tuple(notes)
    )


def _question(row: Mapping[str, str], notes: list[str], *, exact: bool) -> Question:
    """The words of a row as a question; names that are unknown stand for the nearest."""
    words: dict[str, Any] = {name: row[name] for name in question_fields() if name in row}
    for name in ("model", "on"):
        if name not in words:
            raise InputError(f"{name} is not stated", hint=f"fill in the column {name}")
    if not exact:
        words["model"] = _nearest_model(words["model"], notes)
        words["on"] = _nearest_cluster(words["on"], notes)
    if "sets" in words:
        words["sets"] = tuple(words["sets"].split())
    for name, field in question_fields().items():
        if name in words and field.number:
            try:
                words[name] = float(words[name])
            except ValueError:
                raise InputError(f"{name} = {words[name]!r} is not a number") from None
    return question_from(words)


def _nearest_model(text: str, notes: list[str]) -> str:
    """A name of the catalog: the one that is meant, or else the nearest in letters."""
    if is_file(text) or "/" in text:
        return text
    try:
        return find_name("models", text)
    except InputError:
        near = difflib.get_close_matches(text.lower(), names("models"), n=1, cutoff=0.75)
        if not near:
            raise
        notes.append(f"model {text} is not in the catalog: {near[0]} assumed")
        return near[0]


def _nearest_cluster(text: str, notes: list[str]) -> str:
    """A name of the catalog: the one that is meant, or else the accelerator nearest to it."""
    if is_file(text):
        return text
    try:
        return find_name("clusters", text, also="accelerators")
    except InputError as error:
        if "may be any" in str(error):
            raise
        chip, note = nearest_accelerator(text)
        if note:
            notes.append(note)
        return chip.name


def _measurement(row: Mapping[str, str], line: int) -> Measurement | None:
    """The measured number of a row."""
    for column, unit in MEASURED.items():
        text = row.get(column)
        if text is None:
            continue
        if text[-1:].isdigit() or text[-1:] == ".":
            fraction = column == "mfu" and float(text) <= 1.0
            text = f"{text} {'MFU' if fraction else unit}"
        try:
            return parse_measured([text])[0]
        except (InputError, ValueError) as error:
            raise InputError(f"line {line}: {column} = {row[column]!r}: {error}") from None
    return None


def _cells(asked: Asked) -> dict[str, Any]:
    """Columns of the shipped table, from the nouns of a row."""
    chip = asked.cluster.accelerator
    return noun_cells(asked.model, asked.strategy, asked.workload) | {
        "accelerator": chip.name,
        "accelerators": asked.cluster.accelerators,
        "scaleup_domain": asked.cluster.scale_up_domain,
        "framework": next(iter(asked.software.stack.frameworks), asked.software.stack.name),
    }
