"""A question as an address, a plan file, a command and Python: the same digits from each.

    to_query(question)              # "model=llama-2-7b&on=dgx-h100&n=256&batch=1024"
    question = from_toml(text)      # what the web UI saved
    command(question)               # scalewise estimate llama-2-7b --on dgx-h100 --gpus 256 ...

All four are derived from the fields of `Question`.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import msgspec

from scalewise.ask.question import Question, question_fields, question_from
from scalewise.errors import InputError, did_you_mean
from scalewise.reading import MAX_TOML, parse_toml, read_text

ON = "yes"
"""Word of an address for a field that is on."""


def given(question: Question, aside: str = "") -> dict[str, Any]:
    """The fields that say something, in order; with those of one command if it is named."""
    return {
        name: getattr(question, name)
        for name in question_fields(aside)
        if getattr(question, name) not in (None, (), False)
        and not (name == "by" and question.by == Question().by)
    }


def to_query(question: Question) -> str:
    """Write a question as the part of an address behind the question mark."""
    pairs: list[tuple[str, str]] = []
    for name, value in given(question).items():
        key = question_fields()[name].key
        values = value if isinstance(value, tuple) else (value,)
        pairs += [(key, ON if each is True else str(each)) for each in values]
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
    fields = {field.key: field for field in question_fields().values()}
    values: dict[str, Any] = {}
    for key, text in pairs:
        if key not in fields or not text.strip():
            continue
        field = fields[key]
        if field.repeated:
            values.setdefault(field.name, []).append(text)
        elif field.switch:
            values[field.name] = text.strip() == ON
        else:
            values[field.name] = _number(text) if field.number else text.strip()
    return question_from(values)


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def to_toml(question: Question) -> str:
    """Write a question as a plan file, with the meaning of each key over it."""
    lines = [
        "# A plan of scalewise.",
        f"# The same answer from the command line: {command(question)}",
    ]
    for name, value in given(question, "plan").items():
        lines += ["", f"# {question_fields('plan')[name].help}.", f"{name} = {toml_value(value)}"]
    return "\n".join(lines) + "\n"


def from_toml(text: str) -> Question:
    """Read a question from the text of a plan file.

    Raises:
        InputError: If it is not TOML, or has keys or values that cannot be.
    """
    table = parse_toml(text, "the plan")
    for key in table:
        if key not in Question.__struct_fields__:
            hint = did_you_mean(key, Question.__struct_fields__)
            raise InputError(f"the plan has an unknown key `{key}`", hint=hint)
    return question_from(table)


def read_plan(path: str | Path) -> Question:
    """Read a plan file.

    Raises:
        InputError: If there is no such file, or it is no plan.
    """
    return from_toml(read_text(path, what="plan", most=MAX_TOML))


def command(question: Question, aside: str = "", **options: str) -> str:
    """The command that gives the same digits.

    Args:
        question: What is asked.
        aside: Command with fields of its own; empty for `estimate`.
        **options: Options of the command besides.
    """
    words = ["scalewise", aside or "estimate", question.model]
    for name, value in given(question, aside).items():
        flag = question_fields(aside)[name].flag
        if name == "model":
            continue
        if value is True:
            words.append(flag)
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [flag, str(each)]
    for name, text in options.items():
        words += [f"--{name}", text]
    return shlex.join(words)


def python(question: Question) -> str:
    """The lines of Python that give the same digits."""
    call = f"e = sw.estimate({arguments(question)})"
    return f"import scalewise as sw\n\n{call}\nprint(e.step_seconds, e.mfu, e.memory_bytes)\n"


def arguments(question: Question, aside: str = "") -> str:
    """The arguments of Python that ask a question, also fields of one command if it is named."""
    words = [repr(question.model)]
    for name, value in given(question, aside).items():
        if name != "model":
            words.append(f"{name}={list(value) if isinstance(value, tuple) else value!r}")
    return ", ".join(words)


def copies(question: Question) -> dict[str, str]:
    """The question in every form it can be taken away in."""
    return {
        "query": to_query(question),
        "cli": command(question),
        "python": python(question),
        "toml": to_toml(question),
    }


def toml_value(value: Any) -> str:
    """Write a value as TOML."""
    if isinstance(value, tuple | list):
        return "[" + ", ".join(toml_value(each) for each in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    # A JSON string is a TOML basic string.
    return msgspec.json.encode(value).decode()
