"""`scalewise measure`: take real measurements on the devices that are here.

    scalewise measure train tiny --strategy fsdp2 --steps 20

Each kind of measurement is a command in a file of its own, imported when it is invoked.
"""

from __future__ import annotations

from importlib import import_module
from typing import NamedTuple

import click

from scalewise.errors import InputError, did_you_mean


class Entry(NamedTuple):
    """Where a measurement lives, and what `--help` says about it without importing it."""

    module: str
    """Module that holds it."""
    attribute: str
    """Name of the click command in that module."""
    help: str
    """One line."""


KINDS: dict[str, Entry] = {
    "train": Entry("scalewise.cli.measure_train", "train", "Train for a few steps, and time them."),
    "collectives": Entry(
        "scalewise.cli.measure_collectives",
        "collectives",
        "Time collectives by size, group and placement.",
    ),
    "kernels": Entry("scalewise.cli.measure_kernels", "kernels", "Time the kernels of a model."),
    "merge": Entry("scalewise.cli.measure_merge", "merge", "Join records, or write them as runs."),
}
"""Every measurement, in the order of `--help`."""


class KindsGroup(click.Group):
    """A group that imports a measurement when it is invoked."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the measurements without importing any."""
        del ctx
        return list(KINDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one."""
        del ctx
        if cmd_name not in KINDS:
            return None
        entry = KINDS[cmd_name]
        command = getattr(import_module(entry.module), entry.attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Add a did-you-mean to click's own refusal."""
        word = args[0]
        if word not in KINDS and not word.startswith("-") and not ctx.resilient_parsing:
            raise InputError(f"`{word}` cannot be measured", hint=did_you_mean(word, KINDS))
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print what is known without importing anything."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.help) for name, entry in KINDS.items()])


@click.group("measure", cls=KindsGroup, short_help="Measure training on the devices here.")
def measure() -> None:
    """Measure what really happens on the devices that are here, and keep it as records.

    Needs PyTorch: pip install 'scalewise[measure]'.
    """
