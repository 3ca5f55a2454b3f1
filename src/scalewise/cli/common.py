"""Output of commands: tables on stdout, files by their type, messages on stderr.

show(lambda out: print_estimate(e, out))     # colors only on a terminal
write("x.json", text)
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

import click

from scalewise.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = (".csv", ".html", ".json", ".parquet", ".png", ".svg")
"""File types of tables and figures."""

# Library and extra by file type, checked before anything is computed.
_NEEDS = {
    ".html": ("plotly", "plot"),
    ".parquet": ("polars", "data"),
    ".png": ("matplotlib", "plot"),
    ".svg": ("matplotlib", "plot"),
}

PIPE_WIDTH = 100
"""Columns if stdout is not a terminal and $COLUMNS is not set."""


def show(draw: Callable[[Console], None]) -> None:
    """Print on stdout: in color on a terminal, as plain text elsewhere.

    Args:
        draw: Prints to the console it is given.
    """
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        from rich.console import Console

        file = cast("TextIO", _Terminal(sys.stdout))
        draw(Console(file=file, highlight=False, markup=False, emoji=False))
        return
    click.echo(drawn(draw, encoding=sys.stdout.encoding))


def drawn(draw: Callable[[Console], None], *, encoding: str = "utf-8") -> str:
    """Return the output of `draw` as plain text.

    Args:
        draw: Prints to the console it is given.
        encoding: Encoding of the destination; decides which characters bars are made of.
    """
    from rich.console import Console

    asked = os.environ.get("COLUMNS", "")
    width = (int(asked) if asked.isdecimal() and len(asked) < 6 else 0) or PIPE_WIDTH
    page = _Page(encoding)
    draw(Console(file=page, highlight=False, markup=False, emoji=False, width=width, no_color=True))
    lines = (line.rstrip() for line in page.getvalue().splitlines())
    return "\n".join(lines).strip("\n")


class _Terminal:
    """Standard output without control characters but colors."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write text."""
        from scalewise.writing import visible

        return self._stream.write(visible(text, colored=True))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class _Page(io.StringIO):
    """Text buffer with the encoding of its destination, without control characters."""

    def write(self, text: str) -> int:
        """Write text."""
        from scalewise.writing import visible

        return super().write(visible(text))

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def to_json(data: Any) -> str:
    """Return indented JSON, with infinities as null."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def write(path: str, text: str) -> None:
    """Write a text file as a whole, and report it on stderr."""
    write_bytes(path, text.encode())


def write_bytes(path: str, content: bytes) -> None:
    """Write a binary file as a whole, and report it on stderr."""
    from scalewise.writing import write_atomically

    write_atomically(path, content, hint="name another file with -o")
    click.echo(f"wrote {path}", err=True)


def check_library(ending: str | None) -> None:
    """Check that the library of a file type is installed, before anything is computed.

    Raises:
        MissingExtraError: If it is not; names the extra.
    """
    if ending in _NEEDS:
        from scalewise.errors import require

        require(*_NEEDS[ending])


def light_numpy() -> None:
    """Limit NumPy to one thread: nothing here multiplies matrices.

    Starting a thread per core takes as much CPU time as an estimate. Only for commands that start
    no other program, because child processes inherit the setting.
    """
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def put(output: str | None, text: str) -> None:
    """Write text to a file, or to stdout without one."""
    if output is None:
        click.echo(text)
    else:
        write(output, text + "\n")


def ending_of(output: str | None, known: Sequence[str], flag: str = "-o") -> str | None:
    """Return the file type of an output, checked before anything is computed.

    Raises:
        InputError: If it is not supported.
    """
    if output is None:
        return None
    ending = Path(output).suffix.lower()
    if ending not in known:
        words = ", ".join(known[:-1]) + f" or {known[-1]}"
        what = f"unsupported file type {ending}" if ending else "no file type"
        raise InputError(f"{flag} {output}: {what}", hint=f"use {words}")
    return ending
