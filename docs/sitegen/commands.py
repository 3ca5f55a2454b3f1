"""Command-line reference, read from the click commands.

command_line()
"""

from __future__ import annotations

import inspect
import re

import click

from scalewise.cli.catalog import Clusters
from scalewise.cli.main import cli
from sitegen.words import fence, table


def command_line() -> str:
    """Return every command with its arguments and options."""
    context = click.Context(cli, info_name="scalewise")
    out = []
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        out.append(described(command, context, name, level=2))
    return "\n".join(out)


def described(command: click.Command, parent: click.Context, name: str, level: int) -> str:
    """Return one command, and its subcommands if it is a group."""
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(command.collect_usage_pieces(context))
    text = [f"{'#' * level} scalewise {_path(context)}", ""]
    text += [fence(f"{context.command_path} {usage}", "sh"), prose(command.help or "")]
    rows = []
    for parameter in command.get_params(context):
        record = parameter.get_help_record(context)
        if record and record[1] and "--help" not in parameter.opts:
            rows.append((f"`{record[0]}`", record[1]))
    text.append(table(["option", "meaning"], rows))
    if command.epilog:
        text.append(prose(command.epilog))
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            inner = command.get_command(context, below)
            assert inner is not None
            text.append(described(inner, context, below, level + 1))
    if isinstance(command, Clusters):
        text += [described(inner, parent, f"{name} {below}", level + 1)
                 for below, inner in command.below().items()]  # fmt: skip
    return "\n".join(text) + "\n"


def prose(text: str) -> str:
    """Return the paragraphs of a help text; those marked with a backspace are not wrapped."""
    out = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text).replace("\f", "")):
        if paragraph.startswith("\b"):
            out.append(fence(paragraph.lstrip("\b\n")))
        else:
            out.append(" ".join(paragraph.split()))
    return "\n\n".join(out) + "\n"


def _path(context: click.Context) -> str:
    return context.command_path.removeprefix("scalewise ")
