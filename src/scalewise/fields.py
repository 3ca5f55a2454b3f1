"""The strings under the fields of a class, which Python itself forgets.

    field_docs(Stack)["contention"]

They are the manual of every noun: catalog files and the command line show them.
This file imports nothing else of scalewise.
"""

from __future__ import annotations

import ast
import inspect
from functools import cache
from itertools import pairwise


@cache
def field_docs(type_: type) -> dict[str, str]:
    """Read the string under every field of a class, which Python itself forgets.

    Args:
        type_: The class.

    Returns:
        One line by field; empty where the source is not at hand.
    """
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
