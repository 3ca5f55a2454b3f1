"""What files and flags say of one run: its question, with the configuration beside a log.

    described = describe(logs, settings, {"on": "dgx-h100"})
    described.question, described.objects, described.notes

Words that are given go before those of configurations that are named, these before what a log
states, and that before configurations that are found beside the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scalewise.ask.question import Question, question_fields, question_from
from scalewise.ask.resolve import Objects
from scalewise.diagnosis.logs import LogRun
from scalewise.errors import InputError
from scalewise.frameworks import Configuration
from scalewise.frameworks import read as read_configuration
from scalewise.logs.blocks import first_bytes
from scalewise.reading import read_text, user_path

if TYPE_CHECKING:
    from scalewise.model import Model

BESIDE = (
    "config.json", "ds_config*.json", "deepspeed*.json", "zero*.json", "accelerate*.yaml",
    "accelerate*.yml", "fsdp*.yaml", "default_config.yaml", "*.sbatch",
)  # fmt: skip
"""Names of configurations that are looked for beside a log: those of the Hugging Face Hub,
DeepSpeed and accelerate, and launch scripts of Slurm."""

LOGS = (".log", ".log.gz", ".out", ".txt", "trainer_state.json")
"""Ends of names of logs in the folder of a run."""


@dataclass(frozen=True, kw_only=True)
class Described:
    """One run in words."""

    question: Question
    objects: Objects
    """What needs no name, such as the model of a configuration."""
    notes: tuple[str, ...]


def describe(
    log: LogRun | None,
    settings: Sequence[Configuration],
    words: Mapping[str, Any],
    given: Objects | None = None,
) -> Described:
    """Return the question of a run.

    Args:
        log: Its log.
        settings: Configurations that are named besides.
        words: Fields of a question that are given.
        given: What is given as objects; their names are among the words.

    Raises:
        InputError: If its model or cluster is not known.
    """
    stated: dict[str, Any] = {} if log is None else dict(log.words)
    model = None if log is None else log.model
    notes: list[str] = []
    found: dict[str, Any] = {}
    if log is not None and not settings and not log.configured:
        for path in beside(log.said.path):
            each = read_settings(str(path))
            notes += [f"{path.name} beside the log is used", *each.notes]
            found |= each.words
            if model is None and "model" not in stated:
                model = None if "model" in each.words else each.model or model
    found |= stated
    for each in settings:
        found |= each.words
        notes += each.notes
        if each.model is not None:
            model = None if "model" in each.words else each.model
    notes += _differing(found, words, None if log is None else log.said.stated)
    found |= words
    notes = [note for note in notes if not _answered(note, found, model)]
    objects = given or Objects()
    if model is not None and "model" not in words:
        objects = replace(objects, model=model)
        found.setdefault("model", model.name)
    return Described(question=complete(found, log), objects=objects, notes=tuple(notes))


def beside(path: str) -> tuple[Path, ...]:
    """Return the configurations in the folder of a log, at most one of each kind of name.

    Of several with names of one kind, none is used: they may belong to other runs.
    """
    folder = user_path(path).parent
    found = []
    for pattern in BESIDE:
        files = sorted(folder.glob(pattern))
        if len(files) == 1 and files[0].is_file() and _is_readable(files[0]):
            found.append(files[0])
    return tuple(dict.fromkeys(found))


def _is_readable(path: Path) -> bool:
    """Whether a file that nobody named is a configuration of a known framework."""
    try:
        read_settings(str(path))
    except InputError:
        return False
    return True


def read_settings(path: str) -> Configuration:
    """Return the configuration in a file."""
    return read_configuration(read_text(path, what="configuration"), user_path(path).name)


def is_configuration(path: str) -> bool:
    """Whether a path is a configuration or launch script, by its ending and its content."""
    file = user_path(path)
    if file.name == "trainer_state.json":
        return False
    if file.name.endswith((".json", ".json.gz")):
        if file.suffix == ".gz" or _holds_trace(first_bytes(file)):
            return False
        return '"log_history"' not in read_text(path, what="configuration")
    return file.suffix in (".yaml", ".yml", ".toml", ".sh", ".slurm", ".sbatch", ".py")


def is_trace(path: str) -> bool:
    """Whether a file is a profiler trace."""
    file = user_path(path)
    if not file.is_file() or not file.name.endswith((".json", ".json.gz")):
        return False
    return _holds_trace(first_bytes(file))


def run_files(path: str) -> list[str]:
    """Return the log and the traces in the folder of a run; any other path as it is.

    Raises:
        InputError: If the folder has several logs.
    """
    folder = user_path(path)
    if not folder.is_dir():
        return [path]
    files = sorted(file for file in folder.iterdir() if file.is_file())
    logs = [str(file) for file in files if file.name.endswith(LOGS)]
    if len(logs) > 1:
        raise InputError(
            f"--from {path} holds {len(logs)} logs",
            hint=f"name one of them: --from {logs[0]}",
            field="from",
        )
    return [*logs, *(str(file) for file in files if is_trace(str(file)))] or [path]


def _holds_trace(text: bytes) -> bool:
    """Whether a text is that of the PyTorch profiler, or of a simulated step."""
    return b'"traceEvents"' in text or b'"deviceProperties"' in text


def _answered(note: str, found: Mapping[str, Any], model: Model | None) -> bool:
    """Whether a note asks for words that are there by now."""
    asks = [name for name in found if f"give {question_fields()[name].flag}" in note]
    return bool(asks) or ("give MODEL" in note and model is not None)


def complete(found: Mapping[str, Any], log: LogRun | None = None) -> Question:
    """Return the question of some words.

    Args:
        found: Fields of the question.
        log: Log that they come from.

    Raises:
        InputError: If the model or the cluster is not known.
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
    return question_from(found)


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
