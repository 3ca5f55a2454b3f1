"""Errors for users: one sentence with field, value and rule, and a hint to type.

    raise InputError("tp = 3 does not divide heads = 32", hint="use tp 1, 2, 4, 8, 16 or 32")

This file imports nothing else of scalewise.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

INTERRUPTED = 130
"""Exit code of a command that Ctrl-C ended, whatever it printed before: 128 + SIGINT."""


class ScalewiseError(Exception):
    """Base of every error that is reported without a traceback.

    Attributes:
        hint: What to type instead, or None.
        field: Field of the question that is wrong, or None.
        exit_code: Exit code of the command line: 2 for wrong usage, 1 for other failures.
    """

    exit_code = 1

    def __init__(self, message: str, *, hint: str | None = None, field: str | None = None) -> None:
        super().__init__(message)
        self.hint, self.field = hint, field


class InputError(ScalewiseError):
    """Wrong input: unknown name, bad unit, impossible mesh, unreadable file."""

    exit_code = 2


class MissingExtraError(ScalewiseError):
    """A library of an optional extra is not installed."""

    exit_code = 1


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the closest known words.

    Args:
        word: What the user wrote.
        known: The accepted words.

    Returns:
        "did you mean `x` or `y`?", or a short list of accepted words.
    """
    names = sorted(known)
    close = difflib.get_close_matches(word.lower(), names, n=3, cutoff=0.5)
    if not close:
        close = [name for name in names if word.lower() in name][:3]
    if close:
        return "did you mean " + " or ".join(f"`{name}`" for name in close) + "?"
    shown = ", ".join(names[:8])
    return f"known: {shown}" + (", ..." if len(names) > 8 else "")


def is_like(word: str, known: Iterable[str]) -> bool:
    """Return whether a word is probably a misspelling of a known one."""
    return bool(difflib.get_close_matches(word.lower(), list(known), n=1, cutoff=0.75))


def require(module: str, extra: str) -> object:
    """Import and return an optional library.

    Args:
        module: The dotted name to import.
        extra: The scalewise extra that installs it.

    Returns:
        The imported module.

    Raises:
        MissingExtraError: If it is not installed; names the extra.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"library {module.split('.')[0]} is not installed",
            hint=f"pip install 'scalewise[{extra}]'",
        ) from error
