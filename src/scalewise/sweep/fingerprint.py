"""Names of points: a hash of the function, its task, the physics and the catalog.

    fingerprint(price)                      # changes with the physics, the catalog, the function
    key_of("scalewise.explore.price", task, fingerprint(price))

Everything that could change a result changes the name of its point, so a store never returns a
stale one. A task that names a file outside of the catalog should hold the content of that file
instead of its path, because only the path would enter the name.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from scalewise.catalog import PACKAGE
from scalewise.errors import InputError
from scalewise.reading import user_path

SOURCES = ("physics", "step", "explore", "ask")
"""Folders of the package whose code decides about numbers; the nouns beside them do as well."""

NOT_NOUNS = {"__init__.py", "__main__.py", "_version.py", "errors.py"}

# Lossless, unlike JSON, for which an infinite and a missing limit are the same `null`.
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")


def name_of(function: Callable[..., Any]) -> str:
    """The name by which other processes and later days find a function.

    Raises:
        InputError: If it has none: lambdas, methods of objects, functions inside of functions.
    """
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None)
    if module is None or name is None or "<" in name or hasattr(function, "__self__"):
        raise InputError(
            f"a sweep needs a function that stands at the top of a module, not {function!r}",
            hint="define it with `def` in a module that workers can import",
        )
    return f"{module}.{name}"


def key_of(function: str, task: msgspec.Struct, print_: str) -> str:
    """The name of one point.

    Args:
        function: From `name_of`.
        task: What is computed from.
        print_: From `fingerprint`.

    Returns:
        64 hexadecimal digits.

    Raises:
        InputError: If the task holds something that cannot be written down.
    """
    try:
        written = _ENCODER.encode(task)
    except TypeError as error:
        raise InputError(f"the task {task!r} cannot be written down: {error}") from error
    digest = hashlib.sha256()
    for part in (function.encode(), type(task).__qualname__.encode(), written, print_.encode()):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


def fingerprint(function: Callable[..., Any] | None = None) -> str:
    """Digest of the physics and the constants in use.

    Sources are read once: the code that runs is the one that was imported, whatever happens to its
    files meanwhile. Catalog files are looked at every time, as the catalog itself does.

    Args:
        function: If given and not part of the sources, the file that defines it counts too.

    Returns:
        16 hexadecimal digits.
    """
    own = os.environ.get("SCALEWISE_CATALOG")
    parts = [_sources(), _catalog_digest(tuple(_catalog_files(own)))]
    if function is not None:
        parts.append(_source_of(function.__module__))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


@cache
def _sources() -> str:
    root = PACKAGE.parent
    files = [path for folder in SOURCES for path in (root / folder).glob("*.py")]
    files += [path for path in root.glob("*.py") if path.name not in NOT_NOUNS]
    return _digest((path.relative_to(root).as_posix(), path) for path in sorted(files))


@cache
def _source_of(module: str) -> str:
    """Digest of one module's file; empty where there is none (a prompt) or it counts already."""
    if module.startswith("scalewise.") and module.split(".")[1] in SOURCES:
        return ""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not Path(file).is_file():
        return ""
    return _digest([("", Path(file))])


def _catalog_files(own: str | None) -> Iterator[tuple[str, str, int, int]]:
    """Every catalog file: its name, its place, when it changed, its size."""
    for label, root in (("own", own and user_path(own)), ("package", PACKAGE)):
        if not root or not Path(root).is_dir():
            continue
        kinds = sorted(path for path in Path(root).iterdir() if path.is_dir())
        for kind in kinds:
            with os.scandir(kind) as entries:
                files = sorted((e for e in entries if e.name.endswith(".toml")), key=_name)
            for entry in files:
                stat = entry.stat()
                name = f"{label}/{kind.name}/{entry.name}"
                yield name, entry.path, stat.st_mtime_ns, stat.st_size


def _name(entry: os.DirEntry[str]) -> str:
    return entry.name


@lru_cache(maxsize=8)
def _catalog_digest(files: tuple[tuple[str, str, int, int], ...]) -> str:
    return _digest((name, Path(path)) for name, path, *_ in files)


def _digest(files: Any) -> str:
    """Digest of names and contents; folders differ between machines and do not count."""
    digest = hashlib.sha256()
    for name, path in files:
        content = path.read_bytes()
        digest.update(f"{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()
