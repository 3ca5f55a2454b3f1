"""Exports of metrics: CSV and JSONL of Weights & Biases, TensorBoard and trainers.

    log = read_export("wandb.csv")                                 # columns known by name
    log = read_export("metrics.csv", "perf/rate=tok/s")            # or named, with their unit

A row is a step. Columns of W&B start with the name of the run ("run-7 - throughput(tps)"); a CSV of
TensorBoard has one metric, whose name is in that of the file alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scalewise.errors import InputError, did_you_mean
from scalewise.logs import hf_trainer
from scalewise.logs.blocks import line_blocks
from scalewise.logs.line import GIB
from scalewise.logs.run_log import MAX_STEP, RunLog, Steps
from scalewise.numeric import Array
from scalewise.reading import parse_json, read_csv, read_text

COLUMNS: dict[str, tuple[str, float]] = {
    # torchtitan, components/metrics.py
    "throughput(tps)": ("device_tokens", 1.0),
    "wps": ("device_tokens", 1.0),
    "time_metrics/end_to_end(s)": ("seconds", 1.0),
    "time_metrics/data_loading(%)": ("waited", 0.01),
    "memory/max_reserved(GiB)": ("memory", GIB),
    "loss_metrics/global_avg_loss": ("loss", 1.0),
    # Composer (llm-foundry), callbacks/speed_monitor.py
    "throughput/device/tokens_per_sec": ("device_tokens", 1.0),
    "throughput/tokens_per_sec": ("total_tokens", 1.0),
    "throughput/samples_per_sec": ("samples", 1.0),
    # OLMo, train.py
    "throughput/device/tokens_per_second": ("device_tokens", 1.0),
    # Megatron-LM, NeMo, nanotron, MaxText, axolotl
    "iteration-time": ("seconds", 1.0),
    "train_step_timing in s": ("seconds", 1.0),
    "tokens_per_sec_per_gpu": ("device_tokens", 1.0),
    "tokens_per_sec": ("total_tokens", 1.0),
    "time_per_iteration_ms": ("seconds", 1e-3),
    "elapsed_time_per_iteration_ms": ("seconds", 1e-3),
    "perf/step_time_seconds": ("seconds", 1.0),
    "perf/per_device_tokens_per_sec": ("device_tokens", 1.0),
    "train/tokens_per_second_per_gpu": ("device_tokens", 1.0),
    "tokens_per_second_per_gpu": ("device_tokens", 1.0),
    # What tables call it.
    "step_s": ("seconds", 1.0),
    "step_seconds": ("seconds", 1.0),
    "step_time_s": ("seconds", 1.0),
    "step_time": ("seconds", 1.0),
    "seconds_per_step": ("seconds", 1.0),
    "step_ms": ("seconds", 1e-3),
    "step_time_ms": ("seconds", 1e-3),
    "loss": ("loss", 1.0),
    "train_loss": ("loss", 1.0),
    "train/loss": ("loss", 1.0),
}
"""Column of `Steps` and factor to its unit, by the name that a framework gives a metric."""

STEP = ("step", "global_step", "trainer/global_step", "train/global_step", "_step", "iteration")
"""Columns with the number of the step, in any case."""

CLOCK = ("_timestamp", "wall time", "timestamp")
"""Columns with the time since 1970, s."""

UNITS: dict[str, tuple[str, float]] = {
    "s": ("seconds", 1.0),
    "s/step": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "tok/s": ("device_tokens", 1.0),
    "tok/s total": ("total_tokens", 1.0),
    "seq/s total": ("samples", 1.0),
}
"""Units of a column that is named, behind its =."""

ENDINGS = (".csv", ".jsonl", ".json", ".tsv")

_TIMES = ("seconds", "device_tokens", "total_tokens", "samples")


def read_export(path: str | Path, choice: str = "") -> RunLog:
    """Read metrics of a run.

    Args:
        path: CSV, JSONL, or trainer_state.json.
        choice: Column to read, with its unit behind = unless it is known.

    Raises:
        InputError: If it cannot be read, or has no column with times or rates.
    """
    name = str(path)
    damaged: list[int] = []
    if name.endswith(".json"):
        log = _state(name)
        if log is not None:
            return log
    if name.endswith(".csv"):
        found = read_csv(path, what="export")
        columns = found.columns
        rows: list[tuple[int, Mapping[str, Any]]] = list(found.rows)
    else:
        rows = list(_json_rows(name, damaged))
        columns = list(dict.fromkeys(key for _, row in rows for key in row))
    chosen = _chosen(columns, choice, name)
    steps = _steps(columns, rows, chosen, name)
    if damaged and len(damaged) > len(steps):
        raise InputError(
            f"export {name}, line {damaged[0]}: not valid JSON", hint="export it again"
        )
    notes = (
        [f"{len(damaged)} lines are not valid JSON, the first is {damaged[0]}"] if damaged else []
    )
    notes.append("from the " + ("columns " if len(chosen) > 1 else "column ") + ", ".join(chosen))
    reserved = "memory/max_reserved(GiB)"
    return RunLog(
        path=name, framework="", steps=steps, damaged=tuple(damaged), notes=tuple(notes),
        memory="reserved" if any(each.endswith(reserved) for each in chosen) else "",
    )  # fmt: skip


def _state(path: str) -> RunLog | None:
    """The log of a trainer_state.json; None if it is another file."""
    state = parse_json(read_text(path, what="export"), path)
    if not isinstance(state, dict) or "log_history" not in state:
        return None
    log = hf_trainer.of_state(path, state)
    if log is None:
        raise InputError(
            f"{path} has no time: the run has not ended",
            hint="name its log, or an export of its metrics",
        )
    return log


def _json_rows(path: str, damaged: list[int]) -> Iterable[tuple[int, Mapping[str, Any]]]:
    """Objects of a JSONL file by line, those inside flattened by a level."""
    import msgspec

    for first, block in line_blocks(path):
        for place, text in enumerate(block.splitlines()):
            if not text.strip(b" \0"):
                continue
            try:
                value = msgspec.json.decode(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                damaged.append(first + place)
                continue
            if not isinstance(value, dict):
                damaged.append(first + place)
                continue
            row = {key: each for key, each in value.items() if not isinstance(each, dict)}
            for inner in value.values():
                if isinstance(inner, dict):
                    row |= {key: each for key, each in inner.items() if key not in row}
            yield first + place, row


def _chosen(columns: list[str], choice: str, path: str) -> dict[str, tuple[str, float]]:
    """Columns to read, by name."""
    known: dict[str, tuple[str, float]] = {}
    for name in columns:
        last = name.rsplit(" - ", 1)[-1]
        if last in COLUMNS:
            known[name] = COLUMNS[last]
    if choice:
        name, _, unit = choice.partition("=") if choice not in columns else (choice, "", "")
        if name not in columns:
            raise InputError(
                f"{path} has no column {name[:60]!r}", hint=did_you_mean(name, columns)
            )
        if unit and unit not in UNITS:
            raise InputError(f"column {choice[:60]}: unknown unit {unit!r}",
                             hint="use " + ", ".join(UNITS))  # fmt: skip
        if not unit and name not in known:
            raise InputError(
                f"column {name[:60]!r}: its unit is not known",
                hint=f"for example {name}=tok/s; units are {', '.join(UNITS)}",
            )
        meant = UNITS[unit] if unit else known[name]
        others = {key: each for key, each in known.items() if each[0] not in _TIMES}
        return {name: meant} | others
    if "Value" in columns and not any(each[0] in _TIMES for each in known.values()):
        known |= _of_tensorboard(path)
    quantities = [each[0] for each in known.values()]
    for name, (quantity, _) in known.items():
        if quantity in _TIMES and quantities.count(quantity) > 1:
            what = quantity.replace("_", " ")
            raise InputError(
                f"{path} has several columns of {what}, such as {name[:60]!r}",
                hint=f"name one: {path}:COLUMN",
            )
    if not any(quantity in _TIMES for quantity in quantities):
        raise InputError(
            f"{path} has no known column with times or rates",
            hint=f"name one with its unit, such as {path}:{(columns or ['COLUMN'])[-1]}=tok/s",
        )
    return known


def _of_tensorboard(path: str) -> dict[str, tuple[str, float]]:
    """The metric of a CSV of TensorBoard, by the name of the file, where signs became _."""
    stem = "".join(each for each in Path(path).stem.lower() if each.isalnum())
    for name, meant in COLUMNS.items():
        plain = "".join(each for each in name.lower() if each.isalnum())
        if len(plain) > 8 and stem.endswith(plain) and meant[0] in _TIMES:
            return {"Value": meant}
    return {}


def _steps(
    columns: list[str],
    rows: list[tuple[int, Mapping[str, Any]]],
    chosen: Mapping[str, tuple[str, float]],
    path: str,
) -> Steps:
    """Rows with a number in a chosen column."""
    lower = {name.lower(): name for name in reversed(columns)}
    step_name = next((lower[name] for name in STEP if name in lower), None)
    clock_name = next((lower[name] for name in CLOCK if name in lower), None)
    main = [name for name, (quantity, _) in chosen.items() if quantity in _TIMES]
    numbers: dict[str, list[float]] = {name: [] for name in chosen}
    line: list[int] = []
    step: list[float] = []
    clock: list[float] = []
    seen: set[float] = set()
    for at, row in rows:
        values = {name: _number(row.get(name), at, name, path) for name in chosen}
        if not any(np.isfinite(values[name]) for name in main):
            continue
        number = _number(row.get(step_name), at, step_name, path) if step_name else float(len(line))
        if not abs(number) < MAX_STEP or number in seen:
            continue
        seen.add(number)
        line.append(at)
        step.append(number)
        clock.append(_number(row.get(clock_name), at, clock_name, path) if clock_name else np.nan)
        for name, value in values.items():
            numbers[name].append(value)
    count = len(line)
    if not count:
        raise InputError(
            f"{path} has no row with a number in {', '.join(main)}", hint="export it again"
        )
    missing = np.full(count, np.nan)
    found: dict[str, Array] = {}
    for name, (quantity, factor) in chosen.items():
        # What overflows is infinite, which counts as not known.
        with np.errstate(over="ignore"):
            found[quantity] = np.array(numbers[name]) * factor
    every = np.maximum(np.diff(np.array(step), prepend=step[0] - 1.0), 1.0)
    if count > 2:
        every[0] = np.median(every[1:])
    return Steps(
        line=np.array(line), step=np.array(step).astype(np.int64), every=every.astype(np.int64),
        start=np.zeros(count, dtype=np.int64), events=np.zeros(count, dtype=np.int64),
        clock=np.array(clock),
        **{name: found.get(name, missing) for name in (
            "seconds", "device_tokens", "total_tokens", "samples", "loss", "memory", "waited")},
    )  # fmt: skip


def _number(value: Any, line: int, column: str | None, path: str) -> float:
    """A cell as a number; NaN where it is blank."""
    if value is None or value in ("", "NaN", "nan", "null", "N/A", "Infinity"):
        return float("nan")
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(
            f"{path}, line {line}: {column} = {str(value)[:40]!r} is not a number",
            hint="blank means not known",
        ) from None
