"""`scalewise export`: a plan as configuration and Slurm script of a training framework.

    scalewise export llama-3-8b --on dgx-h100 --gpus 512 --strategy tp2-zero1 --to megatron -o run
    scalewise export plan.toml --to torchtitan            # what the web UI saved

Exit code 0: it is written; 1: the framework cannot run the plan, and the reasons are printed; 2:
wrong usage.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from scalewise.cli.common import light_numpy, put, show, to_json
from scalewise.cli.options import question_options

if TYPE_CHECKING:
    from scalewise.ask.question import Question

# Spelled out here, because importing them would make `--help` import the nouns.
TARGETS = (
    "megatron", "torchtitan", "torchtitan-0.2", "deepspeed", "accelerate", "maxtext",
    "megatron-bridge",
)  # fmt: skip


class _PlanFirst(click.Command):
    """Command whose first word may be a plan file."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Take a plan file in place of MODEL."""
        if args and args[0].endswith(".toml") and Path(args[0]).is_file():
            from scalewise.reading import read_toml

            # Only a plan names a cluster.
            if "on" in read_toml(args[0], what="plan"):
                args = ["--plan", *args]
        return super().parse_args(ctx, args)


@click.command(cls=_PlanFirst, short_help="Write a plan as configuration of a training framework.")
@question_options()
@click.option("--to", "target", type=click.Choice(TARGETS), required=True, help="Framework.")
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("-o", "--output", metavar="DIR", help="Folder of the files; else they are printed.")
def export(*, question: Question, target: str, as_json: bool, output: str | None) -> int:
    """Write the configuration and the Slurm script that launch a plan.

    MODEL is a name, a file, or a plan file (.toml). What the framework cannot run as predicted is
    refused with its reasons; what it decides itself is printed as a warning.
    """
    light_numpy()
    from scalewise.ask.resolve import resolve
    from scalewise.frameworks.export import export as export_plan

    asked = resolve(question)
    out = export_plan(asked, target)
    if as_json:
        put(None, to_json(out.to_dict()))
    else:
        from scalewise.report.export_table import print_export

        show(lambda console: print_export(out, asked, console, files=output is None))
    if output is not None:
        from scalewise.writing import write_atomically

        for name, text in out.files.items():
            path = write_atomically(
                Path(output) / name, text, make_folder=True, hint="name another folder with -o"
            )
            click.echo(f"wrote {path}", err=True)
    return 1 if out.refused else 0
