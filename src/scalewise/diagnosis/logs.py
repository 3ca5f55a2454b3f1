"""Logs as measurements: the steady step of a log, its noise, and what it loses besides.

    given = from_log("train.log")
    given.words["batch"], given.measurement, given.said.stalls

Words of a question come from the configuration in the log, then from its step lines. The measured
number is the median of the steady steps: stalls are told apart, as their own fraction of the time.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from scalewise.ask.names import find_name
from scalewise.catalog.nearest import nearest_accelerator
from scalewise.diagnosis.measured import Measurement, Unit
from scalewise.errors import InputError
from scalewise.frameworks import read as read_configuration
from scalewise.logs.source import read_source
from scalewise.logs.steady import Drift, Stall, Steady, steady
from scalewise.units import grouped

CONFIGURATIONS = ("-- arguments --", "Running with configs:", "Running with args:")
"""What stands before a configuration that a log prints."""

FRAMEWORK_STACKS = ("megatron-lm", "megatron-bridge", "nemo", "nanotron", "deepspeed", "accelerate",
                    "transformers")  # fmt: skip
"""Frameworks whose software follows from their log: those that PyTorch's eager or compiled code
does not leave open."""

if TYPE_CHECKING:
    from scalewise.logs.run_log import RunLog
    from scalewise.model import Model


@dataclass(frozen=True, kw_only=True)
class LogSummary:
    """What a log says besides the measured number."""

    path: str
    key: str
    """GPUs or strategy of its run, empty for the run that is asked about."""
    framework: str
    """What wrote it; empty for an export."""
    used: int
    """Lines that the median is of."""
    total: int
    """Lines with a step."""
    warm_up: int
    """Lines left out at the start."""
    error: float
    """Standard error of the median (log)."""
    scatter: float
    """Standard deviation of a step (log)."""
    stalls: tuple[Stall, ...]
    """Largest fraction of the time first."""
    drift: Drift | None
    memory: float | None
    """Largest memory that it prints, bytes."""
    memory_kind: str
    """Reserved or allocated, by PyTorch's caching allocator."""
    waited: float | None
    """Fraction of a step that waits for data, where the framework measures it."""
    stated: dict[str, str]
    """Words of a question that it states, each with the line it stands on."""
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for stall in plain["stalls"]:
            stall["seconds"] = None if np.isnan(stall["seconds"]) else stall["seconds"]
        return plain


@dataclass(frozen=True, kw_only=True)
class LogRun:
    """A log, ready to be asked about."""

    words: dict[str, Any]
    """Fields of a question that it states."""
    model: Model | None
    """Model of its configuration, if that describes one that has no name."""
    measurement: Measurement
    said: LogSummary
    configured: bool = False
    """Whether it prints its configuration."""


def from_log(text: str, key: str = "") -> LogRun:
    """Read a log or an export as a measurement.

    Args:
        text: Path; of an export with its column behind a colon.
        key: GPUs or strategy it belongs to, empty for the run that is asked about.

    Raises:
        InputError: If it cannot be read, or no step of it has a time.
    """
    log = read_source(text)
    found = steady(log)
    notes = list(log.notes)
    stated, model = _words(log, notes)
    words: dict[str, Any] = {name: value for name, (value, _) in stated.items()}
    if found.few:
        notes.append(f"{found.total} steps: too few to tell warm-up from the rest")
    return LogRun(
        words=words,
        model=model,
        measurement=measurement_of(log, found, key),
        configured=any(mark in log.head for mark in CONFIGURATIONS),
        said=LogSummary(
            path=log.path,
            key=key,
            framework=log.framework,
            used=found.used,
            total=found.total,
            warm_up=found.warm_up,
            error=found.error,
            scatter=found.scatter,
            stalls=found.stalls,
            drift=found.drift,
            memory=None if np.isnan(found.memory) else found.memory,
            memory_kind=log.memory,
            waited=None if np.isnan(found.waited) else found.waited,
            stated={
                name: f"{value} (line {line})" if line else value
                for name, (value, line) in stated.items()
            },
            notes=tuple(notes),
        ),
    )


def _words(log: RunLog, notes: list[str]) -> tuple[dict[str, tuple[str, int]], Model | None]:
    """Words of a log with their lines, 0 for its configuration, and a model without a name."""
    stated = {name: (each.value, each.line) for name, each in log.stated.items()}
    for field, folder, other in (("model", "models", None), ("on", "clusters", "accelerators")):
        if field in stated:
            value, line = stated.pop(field)
            name = _known(value, folder, other)
            if name:
                stated[field] = name, line
            else:
                notes.append(f"{field} {value} in line {line} is not in the catalog")
    model = None
    if any(mark in log.head for mark in CONFIGURATIONS):
        try:
            found = read_configuration(log.head, log.path)
        except InputError as error:
            notes.append(f"its configuration is not read: {error}")
        else:
            stated = stated | {name: (value, 0) for name, value in found.words.items()}
            notes += found.notes
            model = None if "model" in found.words else found.model
    if "stack" not in stated and log.framework in FRAMEWORK_STACKS:
        stated["stack"] = log.framework, 0
    return stated, model


def _known(text: str, folder: str, other: str | None) -> str:
    """The name of the catalog that is meant; empty if there is none."""
    try:
        return find_name(folder, text, also=other)
    except InputError:
        pass
    if other is not None:
        chip, note = nearest_accelerator(text)
        return (
            ""
            if "is not in the catalog" in note and _family(text) != _family(chip.name)
            else chip.name
        )
    return ""


def _family(text: str) -> str:
    """The family of a GPU: "h100" of "NVIDIA H100 80GB HBM3"."""
    found = re.search(r"[a-z]{1,2}\d{2,3}[a-z]?", text.lower())
    return found[0] if found else ""


def measurement_of(log: RunLog, found: Steady, key: str = "") -> Measurement:
    """Return the steady state as one measured number.

    Tokens/s come first, which need no batch; then the time of a step.
    """
    choices: tuple[tuple[float, Unit], ...] = (
        (found.device_tokens, "tok/s"),
        (found.total_tokens, "tok/s total"),
        (found.seconds, "s/step"),
        (found.samples, "seq/s total"),
    )
    for value, unit in choices:
        if not np.isnan(value):
            text = f"{grouped(value, 4)} {unit}"
            return Measurement(key=key, value=value, unit=unit, text=text, noise=found.error)
    raise InputError(f"log {log.path}: no step has a time or a rate", field="measured")
