"""Group of commands that imports each command when it is invoked.

@click.group(cls=LazyGroup, entries=COMMANDS, unknown="unknown command {}")
def cli(): ...
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from scalewise.errors import InputError, did_you_mean


class Entry(NamedTuple):
    """Location of a command, and its line in the table of commands."""

    module: str
    """Dotted name of the module."""
    attribute: str
    """Name of the click command in the module."""
    help: str
    """Help in one line, equal to the short help of the command."""


class LazyGroup(click.Group):
    """Group that imports a command when it is invoked."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], unknown: str, **rest: Any) -> None:
        """Build the group.

        Args:
            *args: As for `click.Group`.
            entries: Commands by name, in the order of `--help`.
            unknown: Error message for an unknown name, with `{}` in its place.
            **rest: As for `click.Group`.
        """
        super().__init__(*args, **rest)
        self.entries, self.unknown = entries, unknown

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, without importing any."""
        del ctx
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return one command; None if there is none of that name."""
        del ctx
        if cmd_name not in self.entries:
            return None
        entry = self.entries[cmd_name]
        command = getattr(import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve a command; the error for an unknown one names close matches."""
        word = args[0]
        if word not in self.entries and not word.startswith("-") and not ctx.resilient_parsing:
            raise InputError(self.unknown.format(word), hint=did_you_mean(word, self.entries))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table of commands, without importing any."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])
