"""YAML of configuration files: nested maps of numbers, words, switches and lists.

    text = write_yaml({"fsdp_config": {"fsdp_version": 2}})
    parse_yaml(text, "config.yaml")

The subset that accelerate and MaxText write. Anchors, tags, block texts and several documents are
refused, so that nothing is misread.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from scalewise.errors import InputError
from scalewise.reading import MAX_DEPTH, check_limits

_PLAIN = re.compile(r"[A-Za-z_/.][\w/.+\-]*")
_WORDS: dict[str, Any] = {
    "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False,
    "null": None, "~": None, "": None,
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?\d[\d_]*")
_NUMBER = re.compile(r"[-+]?(\d[\d_]*\.?\d*|\.\d+)([eE][-+]?\d+)?")
_KEY = re.compile(r"""(?:"([^"]*)"|'([^']*)'|([^\s:#'"][^:#]*?))\s*:(?:\s+(.*))?$""")


def write_yaml(value: Mapping[str, Any], indent: int = 0) -> str:
    """Return nested maps as YAML.

    >>> print(write_yaml({"a": 1, "b": {"c": True, "d": "no"}}), end="")
    a: 1
    b:
      c: true
      d: "no"
    """
    lines = []
    for key, each in value.items():
        if isinstance(each, Mapping) and each:
            lines.append(f"{' ' * indent}{key}:\n{write_yaml(each, indent + 2)}")
        else:
            lines.append(f"{' ' * indent}{key}: {_scalar_text(each)}\n")
    return "".join(lines)


def _scalar_text(value: Any) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(map(_scalar_text, value)) + "]"
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and value.lower() not in _WORDS
        return value if plain else json.dumps(value)
    return json.dumps(value)


def parse_yaml(text: str, where: str) -> dict[str, Any]:
    """Return the maps of YAML text.

    Raises:
        InputError: If it is not YAML, or uses more than the subset.
    """
    lines: list[tuple[int, str, int]] = []
    for number, line in enumerate(text.splitlines(), 1):
        bare = _without_comment(line)
        if not bare.strip() or bare.strip() == "---":
            continue
        if "\t" in bare[: len(bare) - len(bare.lstrip())]:
            raise _wrong(where, number, "tabs indent")
        lines.append((len(bare) - len(bare.lstrip()), bare.strip(), number))
    value, rest = _block(lines, 0, where, 0)
    if rest != len(lines):
        raise _wrong(where, lines[rest][2], "the indentation is uneven")
    if not isinstance(value, dict):
        raise InputError(f"{where} is not a YAML map", hint="write key: value lines")
    check_limits(value, where)
    return value


def _block(
    lines: list[tuple[int, str, int]], place: int, where: str, depth: int
) -> tuple[Any, int]:
    """Read the map or list that starts at a line; return it and the line behind."""
    if depth > MAX_DEPTH:
        raise InputError(f"{where}: more than {MAX_DEPTH} tables or lists inside each other")
    if place >= len(lines):
        return None, place
    indent = lines[place][0]
    found: dict[str, Any] = {}
    items: list[Any] = []
    while place < len(lines) and lines[place][0] == indent:
        _, text, number = lines[place]
        place += 1
        if text == "-" or text.startswith("- "):
            if text == "-" or _KEY.fullmatch(text[2:].strip()):
                raise _wrong(where, number, "lists of maps are not read")
            items.append(_scalar(text[2:].strip(), where, number))
            continue
        match = _KEY.fullmatch(text)
        if match is None or items:
            raise _wrong(where, number, "not a key and value")
        key = next(each for each in match.groups()[:3] if each is not None)
        value = (match[4] or "").strip()
        nested = place < len(lines) and (
            lines[place][0] > indent
            or (lines[place][0] == indent and lines[place][1].startswith("- "))
        )
        if value:
            found[key] = _scalar(value, where, number)
            if nested and lines[place][0] > indent:
                raise _wrong(where, lines[place][2], "a value over several lines")
        elif nested:
            found[key], place = _block(lines, place, where, depth + 1)
        else:
            found[key] = None
    if place < len(lines) and lines[place][0] > indent:
        raise _wrong(where, lines[place][2], "the indentation is uneven")
    return (items if items else found), place


def _without_comment(line: str) -> str:
    quote = ""
    for place, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter == "#" and (place == 0 or line[place - 1] in " \t"):
            return line[:place].rstrip()
    return line.rstrip()


def _scalar(text: str, where: str, number: int) -> Any:
    if text[:1] in "&*!|>%@`":
        raise _wrong(where, number, f"`{text[0]}` is not read")
    if text[:1] == text[-1:] == '"' and len(text) > 1:
        try:
            return json.loads(text)
        except ValueError:
            raise _wrong(where, number, "not a quoted text") from None
    if text[:1] == text[-1:] == "'" and len(text) > 1:
        return text[1:-1].replace("''", "'")
    if text[:1] in "[{":
        return _flow(text, where, number)
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INTEGER.fullmatch(text) and len(text) < 300:
        return int(text.replace("_", ""))
    if _NUMBER.fullmatch(text) and len(text) < 300:
        return float(text.replace("_", ""))
    return text


def _flow(text: str, where: str, number: int) -> Any:
    """A list or map on one line: [a, b], {}."""
    if text == "{}":
        return {}
    if text[-1:] != "]" or text[:1] != "[" or any(c in text[1:-1] for c in "[]{}"):
        raise _wrong(where, number, "only flat lists stand on one line")
    inside = text[1:-1].strip()
    return [_scalar(each.strip(), where, number) for each in inside.split(",")] if inside else []


def _wrong(where: str, number: int, why: str) -> InputError:
    return InputError(f"{where}, line {number}: {why}", hint="use plain `key: value` lines")
