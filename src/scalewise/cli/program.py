"""`scalewise program`: your own training program on pretend ranks, priced.

    scalewise program --gpus 64 --on dgx-h100 -- train.py --steps 3
    scalewise program --gpus 2048 --on dgx-h100 -o capture.json -- -m my.trainer
    scalewise program --gpus 2048 --on dgx-h200 --from capture.json

Exit code 0: captured and priced; 1: it cannot be captured; 2: wrong usage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from scalewise.cli.common import light_numpy, show, to_json, write_bytes
from scalewise.cli.options import question_options
from scalewise.errors import InputError

if TYPE_CHECKING:
    from scalewise.ask.question import Question
    from scalewise.program.events import Capture

RECOGNIZED = ("model", "strategy", "seq", "batch", "precision", "by", "fit")
"""Fields of a question that the program answers."""


@click.command(
    short_help="Capture your own training program on pretend ranks, and price it.",
    context_settings={"ignore_unknown_options": False},
)
@question_options(leave=RECOGNIZED)
@click.option(
    "--model", metavar="MODEL", help="Model that the program trains. [recognized by its parameters]"
)
@click.option("--from", "source", metavar="FILE", help="Capture to price, instead of a program.")
@click.option(
    "--timeout", default="15min", show_default=True, metavar="TIME", help="Limit of a capture."
)
@click.option(
    "--memory",
    default="16GB",
    show_default=True,
    metavar="BYTES",
    help="Memory that a capturing process may take.",
)
@click.option("--rank", default=0, show_default=True, metavar="RANK", help="Rank that is captured.")
@click.option(
    "--adapter",
    type=click.Choice(["script", "torchtitan", "transformers"]),
    help="How to run it. [by the module, or what the script imports]",
)
@click.option("--json", "as_json", is_flag=True, help="Print the comparison as JSON.")
@click.option("-o", "--output", metavar="FILE", help="Output file for the capture: .json.")
@click.argument("arguments", metavar="-- SCRIPT [ARGUMENTS]", nargs=-1, type=click.UNPROCESSED)
def program(
    question: Question,
    model: str | None,
    source: str | None,
    timeout: str,
    memory: str,
    rank: int,
    adapter: str | None,
    output: str | None,
    arguments: tuple[str, ...],
    *,
    as_json: bool,
) -> int:
    """Run SCRIPT (or -m MODULE) on pretend ranks, without GPUs, and price what it really does.

    Nothing is allocated: one rank of each pipeline stage is captured on fake tensors until its
    second optimizer step. The strategy, model and batch are recognized from what it communicates.
    """
    light_numpy()
    from scalewise.program.compare import compare

    captures = _captures(question, source, timeout, memory, rank, adapter, arguments)
    if output is not None:
        _write(captures, output)
    found = compare(captures, question, model=model)
    if as_json:
        from scalewise.report.program_table import program_dict

        click.echo(to_json(program_dict(found)))
        return 0
    from scalewise.report.program_table import print_program

    show(lambda console: print_program(found, console))
    return 0


def _captures(
    question: Question,
    source: str | None,
    timeout: str,
    memory: str,
    rank: int,
    adapter: str | None,
    arguments: tuple[str, ...],
) -> list[Capture]:
    """Capture the program, or read a capture."""
    if source is not None:
        if arguments:
            raise InputError("--from and a script exclude each other", hint="leave one of them out")
        from scalewise.program.events import read_captures

        return read_captures(source)
    if not arguments:
        raise InputError(
            "the script is missing", hint="scalewise program --gpus 64 --on dgx-h100 -- train.py"
        )
    from scalewise.program.capture.spec import CaptureSpec
    from scalewise.program.run import adapter_of, capture_program
    from scalewise.program.world import world_of
    from scalewise.units import parse

    world, per_node, device_bytes = world_of(question)
    if not 0 <= rank < world:
        raise InputError(f"--rank {rank}: there are {world:,} ranks", hint="--rank 0", field="rank")
    spec = CaptureSpec(
        adapter=adapter or adapter_of(arguments), world=world, rank=rank, per_node=per_node,
        memory_bytes=device_bytes, arguments=arguments,
    )  # fmt: skip
    return capture_program(
        spec, seconds=parse(timeout, "seconds"), memory_bytes=int(parse(memory, "bytes"))
    )


def _write(captures: list[Capture], output: str) -> None:
    import msgspec

    if not output.endswith(".json"):
        raise InputError(f"-o {output}: unsupported file type", hint="-o capture.json")
    write_bytes(output, msgspec.json.encode(captures))
