"""What do all commands share? Where output goes, and how it is written.

show(lambda out: print_estimate(e, out))     # on stdout; colours only where somebody sees them
write("x.json", text)        # one sentence on stderr, none on stdout
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from scalewise.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from rich.console import Console

FORMATS = (".csv", ".html", ".json", ".parquet", ".png", ".svg")
"""Endings that tables and figures can be written to."""

# Those whose libraries are extras: asked for before anything is computed.
_NEEDS = {
    ".html": ("plotly", "plot"),
    ".parquet": ("polars", "data"),
    ".png": ("matplotlib", "plot"),
    ".svg": ("matplotlib", "plot"),
}

PIPE_WIDTH = 100
"""Columns when stdout is no terminal and $COLUMNS is not set."""


def show(draw: Callable[[Console], None]) -> None:
    """Draw on stdout: in colour on a terminal, as lines without trailing blanks elsewhere.

    Args:
        draw: Prints to the console it is given.
    """
    if sys.stdout.isatty() or os.environ.get("FORCE_COLOR"):
        from rich.console import Console

        draw(Console(highlight=False, markup=False, emoji=False))
        return
    click.echo(drawn(draw, encoding=sys.stdout.encoding))


def drawn(draw: Callable[[Console], None], *, encoding: str = "utf-8") -> str:
    """Return as plain text what would be drawn.

    Args:
        draw: Prints to the console it is given.
        encoding: Of where the text will go; it decides which characters bars are made of.
    """
    from rich.console import Console

    asked = os.environ.get("COLUMNS", "")
    width = int(asked) if asked.isdigit() and int(asked) > 0 else PIPE_WIDTH
    page = _Page(encoding)
    draw(Console(file=page, highlight=False, markup=False, emoji=False, width=width, no_color=True))
    lines = (line.rstrip() for line in page.getvalue().splitlines())
    return "\n".join(lines).strip("\n")


class _Page(io.StringIO):
    """A page in memory that knows where its text will go."""

    def __init__(self, encoding: str) -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._encoding


def to_json(data: Any) -> str:
    """Write JSON that people can read: indented, infinities as null."""
    import msgspec

    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode()


def write(path: str, text: str) -> None:
    """Write a file, and say so on stderr."""
    Path(path).expanduser().write_text(text, encoding="utf-8")
    click.echo(f"wrote {path}", err=True)


def write_bytes(path: str, content: bytes) -> None:
    """Write a file that is no text, and say so on stderr."""
    Path(path).expanduser().write_bytes(content)
    click.echo(f"wrote {path}", err=True)


def check_library(ending: str | None) -> None:
    """Refuse an ending whose library is not installed, before a long search and not after it.

    Raises:
        MissingExtraError: Naming the extra.
    """
    if ending in _NEEDS:
        from scalewise.errors import require

        require(*_NEEDS[ending])


def light_numpy() -> None:
    """Keep NumPy from starting a thread per core: nothing here multiplies matrices.

    The threads cost as much CPU as a whole estimate. Only for commands that start no other
    program, because the setting is inherited.
    """
    if "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def put(output: str | None, text: str) -> None:
    """Write text to a file, or to stdout where none is named."""
    if output is None:
        click.echo(text)
    else:
        write(output, text + "\n")


def ending_of(output: str | None, known: Sequence[str]) -> str | None:
    """The ending of a file, refused before anything is computed where it is not known.

    Raises:
        InputError: Naming the file and the endings there are.
    """
    if output is None:
        return None
    ending = Path(output).suffix.lower()
    if ending not in known:
        words = ", ".join(known[:-1]) + f" or {known[-1]}"
        hint = did_you_mean(ending, known) if ending else f"end it in {words}"
        raise InputError(f"-o {output!r} has no known ending", hint=hint)
    return ending


def question_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options by which every command asks about one strategy on one cluster."""
    for option in reversed((*_QUESTION, *_SWITCHES)):
        command = option(command)
    return plan_option()(command)


def switch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that change a cluster, a budget, or any field of the question."""
    for option in reversed(_SWITCHES):
        command = option(command)
    return command


def plan_option(*, leave: Sequence[str] = ()) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The option --plan, which fills in whatever else is not given on the command line.

    Args:
        leave: Options that mean something else to the command than to a plan.
    """

    def read(ctx: click.Context, parameter: click.Parameter, path: str | None) -> None:
        del parameter
        if path is None:
            return
        light_numpy()
        from scalewise.ui.nouns import plan_flags

        # What is given as a word or a flag wins over this map, what is required counts as given.
        known = {each.name for each in ctx.command.params} - set(leave)
        found = {name: value for name, value in plan_flags(path).items() if name in known}
        ctx.default_map = {name: value for name, value in found.items() if value is not None}

    return click.option(
        "--plan",
        metavar="FILE",
        is_eager=True,
        expose_value=False,
        callback=read,
        help="Take what is not given here from a plan that `scalewise ui` saved.",
    )


# Spelled out here, because importing them would make `--help` import the nouns.
ALGORITHMS = ("auto", "ring", "tree", "pat", "hierarchical")
PROTOCOLS = ("auto", "ll", "ll128", "simple")

_QUESTION = (
    click.option(
        "--on", required=True, metavar="CLUSTER", help="Cluster or accelerator, or a .toml."
    ),
    click.option("--gpus", metavar="N", help="Accelerators. [the strategy's, else the cluster's]"),
    click.option(
        "--strategy", metavar="S", help="For example fsdp256-tp2-pp4-mb2. [fsdp over all]"
    ),
    click.option("--seq", metavar="N", help="Tokens per sequence. [4096]"),
    click.option("--batch", metavar="N", help="Sequences per step, over all accelerators."),
    click.option("--precision", metavar="P", help="bf16, fp16, fp8, mxfp8 or nvfp4. [bf16]"),
    click.option("--stack", metavar="NAME", help="Software, see `scalewise stacks`."),
)

_SWITCHES = (
    click.option("--tokens", metavar="N", help="Token budget of the whole run, such as 15T."),
    click.option("--power-cap", metavar="W", help="Power limit per accelerator, such as 500W."),
    click.option("--algorithm", type=click.Choice(ALGORITHMS), help="Of collectives (NCCL_ALGO)."),
    click.option("--protocol", type=click.Choice(PROTOCOLS), help="Of collectives (NCCL_PROTO)."),
    click.option(
        "--set",
        "sets",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change any field: cluster.scale_out_bandwidth=800Gbit/s. Repeatable.",
    ),
)
