"""Answers of commands: a table on stdout, JSON or CSV instead, or a file by its type.

    @answer_options(csv="Print all rows as CSV.")
    def plan(question, *, answer: Answer) -> int:
        answer.give(file=lambda ending: ..., data=lambda: {...}, table=lambda console: ...)

What is asked for is checked before anything is computed, and only what writes it is imported.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from scalewise.cli.common import (
    FORMATS,
    check_library,
    ending_of,
    light_numpy,
    put,
    show,
    to_json,
    write_bytes,
)
from scalewise.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

Command = Callable[..., Any]


@dataclass(frozen=True, kw_only=True)
class Answer:
    """How an answer is to be given."""

    path: str | None
    """File to write."""
    ending: str | None
    """Its type."""
    as_json: bool
    as_csv: bool

    def give(
        self,
        *,
        file: Callable[[str], bytes],
        table: Callable[[Console], None],
        data: Callable[[], Any] | None = None,
    ) -> None:
        """Write the file, and print what was asked for; without either, print the table.

        Args:
            file: Content of a file of a type.
            table: Prints the table.
            data: What is printed as JSON; by default the .json file.
        """
        if self.path is not None and self.ending is not None:
            write_bytes(self.path, file(self.ending))
        if self.as_csv or (self.as_json and data is None):
            put(None, file(".csv" if self.as_csv else ".json").decode().rstrip("\n"))
        elif self.as_json and data is not None:
            put(None, to_json(data()))
        elif self.path is None:
            show(table)


def answer_options(
    *,
    json: str = "Print everything as JSON.",
    csv: str | None = None,
    output: str = "Output file: .json, .csv, .parquet, .html, .svg or .png.",
    types: tuple[str, ...] = FORMATS,
) -> Callable[[Command], Command]:
    """Decorate a command with --json, --csv and -o, which it gets as `answer`.

    Args:
        json: Help of --json.
        csv: Help of --csv; None without that flag.
        output: Help of -o.
        types: File types.
    """

    def decorate(command: Command) -> Command:
        @functools.wraps(command)
        def run(
            *args: Any, as_json: bool, as_csv: bool = False, output: str | None, **given: Any
        ) -> Any:
            ending = ending_of(output, types)
            check_library(ending)
            if as_json and as_csv:
                raise InputError("--json and --csv exclude each other", hint="keep one of the two")
            light_numpy()
            found = Answer(path=output, ending=ending, as_json=as_json, as_csv=as_csv)
            return command(*args, answer=found, **given)

        decorated: Command = click.option("-o", "--output", metavar="FILE", help=output)(run)
        if csv is not None:
            decorated = click.option("--csv", "as_csv", is_flag=True, help=csv)(decorated)
        return click.option("--json", "as_json", is_flag=True, help=json)(decorated)

    return decorate
