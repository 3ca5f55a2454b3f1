"""How does a group of commands start fast? It knows their names and imports the one that is asked.

@click.group(cls=LazyGroup, entries=COMMANDS, unknown="there is no command `{}`")
def cli(): ...
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple

import click

from scalewise.errors import InputError, did_you_mean


class Entry(NamedTuple):
    """Where a command lives, and what the table of commands says of it."""

    module: str
    """Module that holds it."""
    attribute: str
    """Name of the click command in that module."""
    help: str
    """One line."""


class LazyGroup(click.Group):
    """A group that imports a command when it is invoked."""

    def __init__(self, *args: Any, entries: Mapping[str, Entry], unknown: str, **rest: Any) -> None:
        """Take the commands of the group, in the order of `--help`.

        Args:
            *args: As for click's own group.
            entries: The commands by name.
            unknown: Sentence for a word that is none of them, with `{}` in its place.
            **rest: As for click's own group.
        """
        super().__init__(*args, **rest)
        self.entries, self.unknown = entries, unknown

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands without importing any."""
        del ctx
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command."""
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
        """Add a did-you-mean to click's own refusal."""
        word = args[0]
        if word not in self.entries and not word.startswith("-") and not ctx.resilient_parsing:
            raise InputError(self.unknown.format(word), hint=did_you_mean(word, self.entries))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the table of commands from what is known without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in self.entries.items()])
