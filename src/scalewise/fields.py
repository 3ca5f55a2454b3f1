"""Fields of structs and dataclasses: their docstrings, and copies that are checked.

    field_docs(Stack)["contention"]
    replace(cluster.fabric, efficiency=1.1)      # raises InputError: must be at most 1

The docstrings are the manual of every noun: catalog files and the command line print them.
This file imports nothing else of scalewise.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise
from typing import Any, TypeVar

import msgspec

_S = TypeVar("_S", bound=msgspec.Struct)


@cache
def field_docs(type_: type) -> dict[str, str]:
    """Return the docstring under every field of a class, which Python itself drops.

    Args:
        type_: The class; fields of the classes it derives from come first.

    Returns:
        One line by field; empty where the source is not available.
    """
    docs: dict[str, str] = {}
    for each in reversed(type_.__mro__):
        docs |= _own_docs(each)
    return docs


def _own_docs(type_: type) -> dict[str, str]:
    """The docstrings under the fields that a class itself declares."""
    try:
        tree = ast.parse(inspect.getsource(type_)).body[0]
    except (OSError, SyntaxError, TypeError):
        return {}
    assert isinstance(tree, ast.ClassDef)
    docs: dict[str, str] = {}
    for field, text in pairwise(tree.body):
        is_text = isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and is_text:
            words = str(text.value.value)  # type: ignore[attr-defined]
            docs[field.target.id] = " ".join(words.split())
    return docs


def replace(struct: _S, **changes: Any) -> _S:
    """Return a copy with some fields changed, checked by the struct's `__post_init__`.

    `msgspec.structs.replace` runs that check from msgspec 0.21 on and skips it before, so a value
    out of bounds would be an error under one version and a number under another.

    Args:
        struct: What to copy.
        **changes: New values by field.

    Returns:
        The copy; fields that hold structs are shared.
    """
    return type(struct)(**{**msgspec.structs.asdict(struct), **changes})
