"""No upward imports, no import cycles between packages, and torch in `measure` only.

The sources are read, not run: an import counts wherever it stands, under TYPE_CHECKING and inside
functions too, and so does a module named in a string for `import_module` or `require`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "scalewise"

# From the bottom up. A name may import names of its own row, but not in a circle; a new module
# needs a place here.
LAYERS = (
    ("_version", "errors", "numeric", "units", "fields", "derivation", "terms", "metrics",
     "results", "reading", "writing"),
    ("trace", "slurm", "logs"),
    ("blocks", "model", "cluster", "workload", "precision", "recompute", "sharding", "strategy",
     "strategies", "stack", "experts", "optimizer", "loss", "tuning", "lengths", "offload",
     "host", "software", "chip", "hf", "catalog", "price", "region", "reliability",
     "critical_batch"),
    ("physics", "records", "ranges"),
    ("step",),
    ("sweep",),
    ("evidence", "explore", "simulation", "measure", "inventory"),
    ("ask",),
    ("frameworks",),
    ("diagnosis", "program"),
    ("study", "report"),
    ("verbs",),
    ("cli", "ui", "__init__", "__main__"),
)  # fmt: skip
RANK = {name: rank for rank, names in enumerate(LAYERS) for name in names}

# (module, what it imports): the few upward imports that are fine because they happen only when a
# function is called, each with its reason.
LAZY_UPWARD = {
    ("results", "report.views"): "results show themselves: repr, notebooks, frames, figures",
}

CYCLES_LEFT = {("model", "hf")}

TORCH = {"torch", "torchvision", "torchaudio", "torchtitan"}
MAY_IMPORT_TORCH = {"measure", "program"}


class Import(NamedTuple):
    """One imported module."""

    target: str
    """Dotted name, as if written absolutely."""
    line: int
    lazy: bool
    """Whether it happens inside a function."""


def imports_of(source: str, module: str, *, is_package: bool = False) -> list[Import]:
    """Every import in a source file.

    `from a import b` counts as `a.b`, because `b` may be a module; relative imports are resolved
    against `module`.
    """
    found: list[Import] = []

    def base_of(node: ast.ImportFrom) -> str:
        if node.level == 0:
            return node.module or ""
        parts = module.split(".") if is_package else module.split(".")[:-1]
        parts = parts[: len(parts) - (node.level - 1)]
        return ".".join([*parts, node.module] if node.module else parts)

    def visit(node: ast.AST, *, lazy: bool) -> None:
        if isinstance(node, ast.Import):
            found.extend(Import(alias.name, node.lineno, lazy) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = base_of(node)
            found.extend(Import(f"{base}.{a.name}", node.lineno, lazy) for a in node.names)
        elif isinstance(node, ast.Call) and node.args:
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            first = node.args[0]
            if called in {"import_module", "require", "__import__"} and (
                isinstance(first, ast.Constant) and isinstance(first.value, str)
            ):
                found.append(Import(first.value, node.lineno, lazy))
        inside = lazy or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            visit(child, lazy=inside)

    visit(ast.parse(source), lazy=False)
    return found


def layer_of(dotted: str) -> str | None:
    """Name in LAYERS of something under scalewise; None for other packages.

    A public name (`from scalewise import estimate`) belongs to `__init__`, which is at the top.
    """
    package, _, rest = dotted.partition(".")
    if package != "scalewise":
        return None
    first = rest.split(".")[0]
    return first if first in RANK else "__init__"


def modules() -> dict[str, Path]:
    """Every module of the package by dotted name without the leading `scalewise.`."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = list(path.relative_to(PACKAGE).with_suffix("").parts)
        if parts[-1] == "__init__" and len(parts) > 1:
            parts.pop()
        found[".".join(parts)] = path
    return found


MODULES = modules()


def module_imports(name: str) -> list[Import]:
    """Imports of one module of the package."""
    path = MODULES[name]
    dotted = "scalewise" if name == "__init__" else f"scalewise.{name}"
    source = path.read_text(encoding="utf-8")
    return imports_of(source, dotted, is_package=path.stem == "__init__")


def excused(name: str, item: Import) -> bool:
    """Whether an import is one of LAZY_UPWARD."""
    return item.lazy and any(
        name == importer and (item.target + ".").startswith(f"scalewise.{imported}.")
        for importer, imported in LAZY_UPWARD
    )


def upward(name: str, imports: list[Import]) -> list[str]:
    """One sentence for each import that goes up without leave."""
    top = name.split(".")[0]
    rank = RANK[top]
    found = []
    for item in imports:
        layer = layer_of(item.target)
        if layer is None or RANK[layer] <= rank:
            continue
        if not excused(name, item):
            found.append(
                f"line {item.line}: {top} (layer {rank}) imports {item.target} "
                f"(layer {RANK[layer]}), which stands above it"
            )
    return found


def edges_of(imports: Mapping[str, list[Import]]) -> dict[tuple[str, str], str]:
    """Which name of LAYERS imports which other one, with an example of where.

    `__init__` counts as an importer only: its public names come from all layers.
    """
    found: dict[tuple[str, str], str] = {}
    for name, items in imports.items():
        top = name.split(".")[0]
        for item in items:
            layer = layer_of(item.target)
            if layer not in (None, top, "__init__") and not excused(name, item):
                found.setdefault((top, layer), f"{name} line {item.line}")
    return found


def cycles(edges: Iterable[tuple[str, str]], left: Collection[tuple[str, str]] = ()) -> list[str]:
    """Import cycles, each as "a -> b -> a" from the name that comes first in the alphabet."""
    targets: dict[str, list[str]] = {}
    for importer, imported in sorted(edges):
        if (importer, imported) not in left:
            targets.setdefault(importer, []).append(imported)
    found: list[str] = []

    def walk(path: list[str]) -> None:
        for imported in targets.get(path[-1], ()):
            if imported == path[0]:
                found.append(" -> ".join([*path, imported]))
            elif imported > path[0] and imported not in path:
                walk([*path, imported])

    for start in sorted(targets):
        walk([start])
    return found


def torch_imports(name: str, imports: list[Import]) -> list[str]:
    """One sentence for each import of torch outside of where it belongs."""
    if name.split(".")[0] in MAY_IMPORT_TORCH:
        return []
    return [
        f"line {item.line}: imports {item.target}; only {sorted(MAY_IMPORT_TORCH)} may"
        for item in imports
        if item.target.split(".")[0] in TORCH
    ]


def test_package_is_found():
    assert {"errors", "model", "catalog", "step.estimate", "__init__"} <= set(MODULES)


def test_every_module_has_a_layer():
    assert {name.split(".")[0] for name in MODULES} - set(RANK) == set()


@pytest.mark.parametrize("name", sorted(MODULES))
def test_no_upward_import(name: str):
    assert upward(name, module_imports(name)) == []


EDGES = edges_of({name: module_imports(name) for name in MODULES})


def test_no_packages_import_each_other():
    assert cycles(EDGES, CYCLES_LEFT) == []


@pytest.mark.parametrize("edge", sorted(CYCLES_LEFT))
def test_cycles_left_are_still_there(edge: tuple[str, str]):
    assert cycles(EDGES, CYCLES_LEFT - {edge}) != []


@pytest.mark.parametrize("name", sorted(MODULES))
def test_torch_only_where_it_belongs(name: str):
    assert torch_imports(name, module_imports(name)) == []


@pytest.mark.parametrize(("importer", "imported"), sorted(LAZY_UPWARD))
def test_listed_exceptions_are_still_needed(importer: str, imported: str):
    targets = [i.target for i in module_imports(importer) if i.lazy]
    assert any((t + ".").startswith(f"scalewise.{imported}.") for t in targets)


# The checker itself: each of these must be caught.


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("units", "from scalewise.model import Model"),
        ("model", "import scalewise.physics.compute"),
        ("physics.compute", "from scalewise import step"),
        ("physics.compute", "from ..step import terms"),
        ("physics.compute", "from .. import report"),
        ("step.terms", "def f():\n    from scalewise.evidence.runs import Run"),
        ("step.terms", "if TYPE_CHECKING:\n    from scalewise.report import html"),
        ("step.result", "from scalewise.report.estimate_html import estimate_html"),
        ("step.result", "def f():\n    from scalewise.report.estimate_table import table"),
        ("evidence.runs", "import_module('scalewise.cli.main')"),
        ("sweep.run", "from scalewise.explore.search import search"),
        ("catalog", "from scalewise import estimate"),
        ("catalog", "import scalewise"),
    ],
)
def test_upward_imports_are_caught(name: str, source: str):
    assert len(upward(name, imports_of(source, f"scalewise.{name}"))) == 1


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("model", "from scalewise import catalog"),
        ("model", "from scalewise.errors import InputError"),
        ("step.terms", "from . import pipeline"),
        ("results", "def f():\n    from scalewise.report.views import plot"),
        ("cli.main", "from scalewise.explore.search import search"),
        ("physics.compute", "import numpy as np\nfrom unitsystem import cli"),
    ],
)
def test_downward_imports_are_allowed(name: str, source: str):
    assert upward(name, imports_of(source, f"scalewise.{name}")) == []


@pytest.mark.parametrize(
    ("sources", "found"),
    [
        ({"evidence.a": "from scalewise.measure.b import x"}, []),
        (
            {
                "evidence.a": "from scalewise.measure.b import x",
                "measure.c": "def f():\n    from scalewise.evidence import d",
            },
            ["evidence -> measure -> evidence"],
        ),
        (
            {
                "evidence.a": "from ..explore import x",
                "explore.b": "if TYPE_CHECKING:\n    import scalewise.simulation.c",
                "simulation.c": "import_module('scalewise.evidence.a')",
            },
            ["evidence -> explore -> simulation -> evidence"],
        ),
        ({"evidence.a": "from . import b", "evidence.b": "from . import a"}, []),
        (
            {
                "report.a": "from scalewise.results import Result",
                "results": "def f():\n    from scalewise.report.views import plot",
            },
            [],
        ),
    ],
)
def test_cycles_are_caught(sources: dict[str, str], found: list[str]):
    edges = edges_of(
        {name: imports_of(text, f"scalewise.{name}") for name, text in sources.items()}
    )
    assert cycles(edges) == found


def test_a_listed_cycle_is_left():
    edges = [("cli", "ui"), ("ui", "cli"), ("ui", "ask")]
    assert cycles(edges) == ["cli -> ui -> cli"]
    assert cycles(edges, {("cli", "ui")}) == []


@pytest.mark.parametrize(
    "source",
    [
        "import torch",
        "import torch.distributed as dist",
        "from torch import nn",
        "def f():\n    import torch",
        "torch = require('torch', 'measure')",
        "importlib.import_module('torch.profiler')",
    ],
)
def test_torch_is_caught(source: str):
    imports = imports_of(source, "scalewise.step.terms")
    assert len(torch_imports("step.terms", imports)) == 1
    assert torch_imports("measure.train", imports) == []


def test_relative_imports_in_a_package_start_at_the_package():
    found = imports_of(
        "from .terms import x\nfrom ..units import y", "scalewise.step", is_package=True
    )
    assert [item.target for item in found] == ["scalewise.step.terms.x", "scalewise.units.y"]
