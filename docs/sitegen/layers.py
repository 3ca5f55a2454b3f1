"""Layers of the package, read from the test that checks them.

layers()
"""

from __future__ import annotations

import ast

from sitegen.blocks import ROOT
from sitegen.words import table

PACKAGE = ROOT / "src" / "scalewise"


def layers() -> str:
    """Return a table of modules by layer, the highest first, with their docstrings' first line."""
    rows = []
    for number, row in reversed(list(enumerate(ranks(), start=1))):
        for name in row:
            if not name.startswith("_"):
                rows.append([number, f"`{name}`", first_sentence(name)])
    return table(["layer", "module", "content"], rows, "r")


def ranks() -> tuple[tuple[str, ...], ...]:
    """Return the layers from the bottom up, as in tests/test_layers.py."""
    tree = ast.parse((ROOT / "tests" / "test_layers.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "LAYERS":
            found: tuple[tuple[str, ...], ...] = ast.literal_eval(node.value)
            return found
    raise KeyError("tests/test_layers.py has no LAYERS")


def first_sentence(name: str) -> str:
    """Return the first paragraph of a module's docstring."""
    path = PACKAGE / f"{name}.py"
    path = path if path.exists() else PACKAGE / name / "__init__.py"
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return text.split("\n\n")[0]
