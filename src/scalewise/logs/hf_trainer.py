"""Logs of the Hugging Face Trainer, of scripts with accelerate, and trainer_state.json.

    {'train_runtime': 1542.0, 'train_samples_per_second': 41.5, 'train_steps_per_second': 0.324, ..

They print no time of a step. Steps are those of the progress bar; without it the numbers at the end
are the mean of the whole run, start-up, evaluation and checkpoints included.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from scalewise.logs.progress_bar import WINDOW
from scalewise.logs.run_log import RunLog, Stated, Steps
from scalewise.numeric import Array

MARK = b"train_steps_per_second"
"""In the last line of the Trainer."""

_NUMBER = re.compile(
    rb"['\"](train_runtime|train_samples_per_second|train_steps_per_second)['\"]: "
    rb"['\"]?([\d.]+(?:e[+-]?\d+)?)['\"]?[,}]"
)

WHOLE = "the mean of the whole run, with start-up, evaluation and checkpoints"


def of_bars(
    path: str,
    windows: Sequence[tuple[int, int, int, float, int]],
    ends: Sequence[tuple[int, bytes]],
    head: str,
) -> RunLog | None:
    """Return the log of a progress bar, or of the numbers at the end; None without both.

    Args:
        path: The log.
        windows: Line, step, number of steps, seconds and events of each.
        ends: Last lines of the Trainer, with their numbers.
        head: Text that may hold a configuration.
    """
    numbers: dict[str, float] = {}
    line = ends[-1][0] if ends else 0
    for _, text in ends:
        numbers |= {name.decode(): float(value) for name, value in _NUMBER.findall(text)}
    framework = "transformers" if ends else "accelerate"
    if not windows:
        return _of_numbers(path, framework, numbers, line)
    table = np.array(windows, dtype=float)
    steps = _steps(*table.T)
    notes = ["times are those of a progress bar in whole seconds, over windows of steps"]
    if not ends:
        notes.append("a step is what the progress bar of the script counts")
    return RunLog(
        path=path, framework=framework, steps=steps, stated=_batch(numbers, line), head=head,
        window=True, digits=0.5 / WINDOW, notes=tuple(notes),
    )  # fmt: skip


def of_state(path: str, state: Mapping[str, Any]) -> RunLog | None:
    """Return the log of a trainer_state.json; None if it has no time."""
    history = [each for each in state.get("log_history", ()) if isinstance(each, Mapping)]
    for each in reversed(history):
        numbers = {
            name: float(each[name])
            for name in ("train_runtime", "train_samples_per_second", "train_steps_per_second")
            if isinstance(each.get(name), int | float)
        }
        if numbers.get("train_steps_per_second"):
            return _of_numbers(path, "transformers", numbers, 0, int(each.get("step", 1) or 1))
    return None


def _of_numbers(
    path: str, framework: str, numbers: Mapping[str, float], line: int, step: int = 1
) -> RunLog | None:
    """One step: the mean of the whole run."""
    rate = numbers.get("train_steps_per_second", 0.0)
    if not rate > 0.0:
        return None
    runtime = numbers.get("train_runtime", 0.0)
    count = max(1, round(runtime * rate)) if runtime else step
    seconds = runtime / count if runtime and count > 1 else 1.0 / rate
    row = np.array([float(line)]), np.array([float(count)]), np.array([float(count)])
    return RunLog(
        path=path, framework=framework, steps=_steps(*row, np.array([seconds])),
        stated=_batch(numbers, line), window=True, digits=0.5e-3 / rate, notes=(WHOLE,),
    )  # fmt: skip


def _batch(numbers: Mapping[str, float], line: int) -> dict[str, Stated]:
    """The batch by sequences and steps per second, where their digits tell it."""
    steps, samples = (numbers.get(f"train_{name}_per_second", 0.0) for name in ("steps", "samples"))
    if not steps or 0.0005 / steps * (samples / steps) > 0.3:
        return {}
    return {"batch": Stated(value=str(max(1, round(samples / steps))), line=line)}


def _steps(
    line: Array, step: Array, every: Array, seconds: Array, events: Array | float = 0.0
) -> Steps:
    missing = np.full(len(line), np.nan)
    zero = np.zeros(len(line), dtype=np.int64)
    return Steps(
        line=line.astype(np.int64), step=step.astype(np.int64), every=every.astype(np.int64),
        start=zero, seconds=seconds, device_tokens=missing, total_tokens=missing, samples=missing,
        loss=missing, memory=missing, clock=missing, waited=missing,
        events=zero + np.asarray(events).astype(np.int64),
    )  # fmt: skip
