"""Python reference: public names, read from their docstrings.

public_names()
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from typing import Any

import msgspec

import scalewise
from scalewise.fields import field_docs
from sitegen.words import docstring, fence, table

FURTHER = (
    "scalewise.explore.search.search",
    "scalewise.explore.scale.scale",
    "scalewise.explore.sensitivity.sensitivity",
    "scalewise.simulation.simulate.timeline",
    "scalewise.trace.read.read_trace",
    "scalewise.study.run.run_study",
    "scalewise.evidence.validate.validate",
)
"""Functions behind the commands that the package itself does not export."""


LONGEST = 88
"""Columns of a signature in one line, at most."""


def public_names() -> str:
    """Return every public name of the package, functions first."""
    names = [name for name in scalewise.__all__ if not name.startswith("_")]
    found = {name: _at(f"{scalewise._HOME[name]}.{name}") for name in names}
    functions = {n: v for n, v in found.items() if inspect.isfunction(v)}
    errors = {n: v for n, v in found.items() if _is_error(v)}
    nouns = {n: v for n, v in found.items() if n not in functions and n not in errors}
    out = ["## Functions", *(function(value, f"scalewise.{n}") for n, value in functions.items())]
    out += ["## Classes", *(noun(value, f"scalewise.{n}") for n, value in nouns.items())]
    out += ["## Errors", *(noun(value, f"scalewise.{n}") for n, value in errors.items())]
    out += ["## Further functions", *(function(_at(path), path) for path in FURTHER)]
    return "\n\n".join(out) + "\n"


def function(value: Any, path: str, level: int = 3) -> str:
    """Return one function as Markdown."""
    return "\n\n".join(
        [f"{'#' * level} {path}", fence(signature(value, path), "python"), docstring(value.__doc__)]
    )


def noun(value: type, path: str) -> str:
    """Return one class as Markdown: fields with their docstrings, methods, properties."""
    out = [f"### {path}", docstring(inspect.getdoc(value))]
    rows = [(f"`{n}`", f"`{kind}`", default, doc) for n, kind, default, doc in fields(value)]
    out.append(table(["field", "type", "default", "meaning"], rows))
    members = [
        (f"`{_short(member, name)}`", _first(member))
        for name, member in vars(value).items()
        if not name.startswith("_") and _is_method(member)
    ]
    out.append(table(["method or property", "meaning"], members))
    return "\n\n".join(part for part in out if part)


def fields(value: type) -> list[tuple[str, str, str, str]]:
    """Return name, type, default and docstring of every field of a class."""
    docs = field_docs(value)
    kinds: dict[str, str] = {}
    for base in reversed(value.__mro__):
        kinds |= getattr(base, "__annotations__", {})
    if issubclass(value, msgspec.Struct):
        known = [(f.name, _default(f)) for f in msgspec.structs.fields(value)]
    else:
        known = [(name, "") for name in kinds if not name.startswith("_")]
    return [(n, str(kinds.get(n, "")), default, docs.get(n, "")) for n, default in known]


def _default(one: msgspec.structs.FieldInfo) -> str:
    if one.default is not msgspec.NODEFAULT:
        return f"`{one.default!r}`"
    if one.default_factory is not msgspec.NODEFAULT:
        return f"`{one.default_factory()!r}`"
    return "required"


def signature(value: Any, path: str) -> str:
    """Return the signature of a function, one argument per line if it is long."""
    name = path.rsplit(".", 1)[-1]
    found = inspect.signature(value)
    parts: list[str] = []
    for parameter in found.parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY and "*" not in parts:
            parts.append("*")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        parts.append(f"{parameter.name}: {parameter.annotation}{default}")
    back = f" -> {found.return_annotation}"
    line = f"{name}({', '.join(parts)}){back}"
    if len(line) <= LONGEST:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){back}"])


def _short(member: Any, name: str) -> str:
    """Return the signature of a method without types."""
    if isinstance(member, property):
        return name
    raw = member.__func__ if isinstance(member, classmethod | staticmethod) else member
    names = []
    for parameter in inspect.signature(raw).parameters.values():
        prefix = {"VAR_POSITIONAL": "*", "VAR_KEYWORD": "**"}.get(parameter.kind.name, "")
        names.append(prefix + parameter.name)
    return f"{name}({', '.join(n for n in names if n not in ('self', 'cls'))})"


def _first(member: Any) -> str:
    """Return the first paragraph of a docstring."""
    return re.split(r"\n\s*\n", inspect.getdoc(member) or "")[0]


def _is_method(member: Any) -> bool:
    return inspect.isfunction(member) or isinstance(member, property | classmethod | staticmethod)


def _is_error(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, Exception)


def _at(path: str) -> Any:
    module, _, name = path.rpartition(".")
    return getattr(import_module(module), name)
