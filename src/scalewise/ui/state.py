"""How does a question travel? As an address, as a TOML file, as a command, as Python: same digits.

    to_query(question)              # "model=llama-2-7b&on=dgx-h100&n=256&batch=1024"
    question = from_toml(text)      # what "save as TOML" wrote
    command(question)               # scalewise estimate llama-2-7b --on dgx-h100 --gpus 256 ...

An address is short and can be read; a file has a comment over every key.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from scalewise.errors import InputError, did_you_mean
from scalewise.ui.requests import Question, docs_of, refused

SHORT = {"gpus": "n", "sets": "set", "power_cap": "cap"}
"""Fields whose name in an address differs."""

_LONG = {short: field for field, short in SHORT.items()}
_FLAGS = {
    "on": "--on", "gpus": "--gpus", "strategy": "--strategy", "seq": "--seq", "batch": "--batch",
    "precision": "--precision", "stack": "--stack", "tokens": "--tokens",
    "power_cap": "--power-cap", "algorithm": "--algorithm", "protocol": "--protocol",
}  # fmt: skip


def to_query(question: Question) -> str:
    """Write a question as the part of an address behind the question mark."""
    pairs: list[tuple[str, str]] = []
    for field in Question.__struct_fields__:
        value = getattr(question, field)
        if field == "sets":
            pairs += [(SHORT[field], text) for text in value]
        elif value is not None and not (field == "by" and value == "time"):
            pairs.append((SHORT.get(field, field), str(value)))
    return urlencode(pairs, safe=":=.,")


def from_query(query: str | Sequence[tuple[str, str]]) -> Question:
    """Read a question from an address; keys that are no part of it belong to the views.

    Raises:
        InputError: If a value cannot be.
    """
    try:
        pairs = parse_qsl(query, max_num_fields=200) if isinstance(query, str) else query
    except ValueError:
        raise InputError("the address has more than 200 parts") from None
    values: dict[str, Any] = {}
    for key, text in pairs:
        field = _LONG.get(key, key)
        if field == "sets":
            values.setdefault("sets", []).append(text)
        elif field in Question.__struct_fields__ and text.strip():
            values[field] = text.strip()
    return _converted(values)


def to_toml(question: Question) -> str:
    """Write a question as a file, with the meaning of each key over it."""
    docs = docs_of(Question)
    lines = [
        "# A plan of scalewise.",
        f"# The same answer from the command line: {command(question)}",
    ]
    for field in Question.__struct_fields__:
        value = getattr(question, field)
        if value is None or value == ():
            continue
        lines += ["", f"# {docs.get(field, '')}".rstrip(), f"{field} = {_toml(value)}"]
    return "\n".join(lines) + "\n"


def from_toml(text: str) -> Question:
    """Read a question from the text of a file.

    Raises:
        InputError: If it is not TOML, or has keys or values that cannot be.
    """
    try:
        table = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"the plan is not valid TOML: {error}") from error
    for key in table:
        if key not in Question.__struct_fields__:
            hint = did_you_mean(key, Question.__struct_fields__)
            raise InputError(f"the plan has an unknown key `{key}`", hint=hint)
    return _converted(table)


def read_plan(path: str | Path) -> Question:
    """Read a plan that the page saved.

    Raises:
        InputError: If there is no such file, or it is no plan.
    """
    file = Path(path).expanduser()
    try:
        return from_toml(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the plan {file}: {error}") from error


def command(question: Question) -> str:
    """The command that gives the same digits."""
    words = ["scalewise", "estimate", question.model]
    for field, flag in _FLAGS.items():
        value = getattr(question, field)
        if value is not None:
            words += [flag, str(value)]
    for text in question.sets:
        words += ["--set", text]
    return shlex.join(words)


def python(question: Question) -> str:
    """The lines of Python that give the same digits."""
    given = {
        field: str(getattr(question, field))
        for field in _FLAGS
        if field != "on" and getattr(question, field) is not None
    }
    arguments = [repr(question.model), repr(question.on)]
    arguments += [f"{field}={value!r}" for field, value in given.items()]
    if question.sets:
        arguments.append(f"sets={list(question.sets)!r}")
    return (
        "import scalewise as sw\n"
        "from scalewise.cli.inputs import ask\n\n"
        f"q = ask({', '.join(arguments)})\n"
        "e = sw.estimate(q.model, q.cluster, q.workload, q.strategy, stack=q.stack)\n"
        "print(e.step_seconds, e.mfu, e.memory_bytes)\n"
    )


def copies(question: Question) -> dict[str, str]:
    """The question in every form it can be taken away in."""
    return {
        "query": to_query(question),
        "cli": command(question),
        "python": python(question),
        "toml": to_toml(question),
    }


def _converted(values: dict[str, Any]) -> Question:
    try:
        return msgspec.convert(values, Question)
    except msgspec.ValidationError as error:
        raise refused(str(error), Question) from None


def _toml(value: Any) -> str:
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_toml(each) for each in value) + "]"
    if isinstance(value, int):
        return str(value)
    # A JSON string is a TOML basic string.
    return msgspec.json.encode(value).decode()
