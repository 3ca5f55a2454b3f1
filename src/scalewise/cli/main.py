"""Entry point of the command line: finds a command, runs it and reports failures.

    scalewise --help
    scalewise estimate llama-2-7b --on dgx-h100 --gpus 2048 --strategy fsdp2048-mb2

Each command is a file of its own, imported when it is invoked: NumPy alone takes longer to import
than everything `--help` needs. stdout carries data, stderr messages. Exit codes: 0 success, 1 the
strategy does not fit or the command failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from scalewise._version import __version__
from scalewise.cli.lazy import Entry, LazyGroup
from scalewise.errors import INTERRUPTED, ScalewiseError

_HELP = {
    "estimate": "Predict throughput, memory and cost of one training step.",
    "scale": "Estimate weak or strong scaling over numbers of GPUs.",
    "search": "Estimate every strategy and rank what fits.",
    "plan": "Plan whole runs against a deadline and a budget.",
    "sensitivity": "Estimate what the next upgrade gains.",
    "diagnose": "Rank the causes of a slow run by a measured number.",
    "timeline": "Simulate one step; write a Perfetto trace.",
    "program": "Capture your own training program on pretend ranks, and price it.",
    "export": "Write a plan as configuration of a training framework.",
    "study": "Run experiments over many points; write a report.",
    "models": "List the models, or show one.",
    "accelerators": "List the accelerators, or show one.",
    "clusters": "List the clusters, or show one.",
    "stacks": "List the software stacks, or show one.",
    "validate": "Compare predictions with published runs.",
    "calibrate": "Fit constants to measured runs.",
    "compare": "Compare predictions with your measurements.",
    "remember": "Keep your runs; later answers use them.",
    "trace": "Measure exposed communication in profiler traces.",
    "measure": "Measure training on the GPUs of this machine or cluster.",
    "ui": "Open the web UI.",
    "doctor": "Print versions, GPUs and catalog, for bug reports.",
}

_IN_CATALOG = ("models", "accelerators", "clusters", "stacks")

COMMANDS: dict[str, Entry] = {
    name: Entry(f"scalewise.cli.{'catalog' if name in _IN_CATALOG else name}", name, text)
    for name, text in _HELP.items()
}
"""Every command, in the order of `--help`."""

BROKEN_PIPE = 141


class CommandLine(LazyGroup):
    """The group of all commands; it turns errors into one-line messages and exit codes."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001 - click's signature
        windows_expand_args: bool = True,  # noqa: FBT001
        **extra: Any,
    ) -> Any:
        """Run a command, and exit with its code."""

        def run() -> Any:
            return super(CommandLine, self).main(
                args,
                prog_name or "scalewise",
                complete_var,
                standalone_mode=False,
                windows_expand_args=windows_expand_args,
                **extra,
            )

        if not standalone_mode:
            return run()
        # A name that the terminal cannot show, such as a byte of a path, is written out.
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="backslashreplace")
        code = _guarded(run)
        sys.exit(code)


def _guarded(run: Any) -> int:
    """Return the exit code of a run, with an error message on stderr where it failed."""
    try:
        code = run()
        # Report a full disk or a closed pipe here, not when the interpreter exits.
        sys.stdout.flush()
    except click.ClickException as error:
        _print_usage_error(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except ScalewiseError as error:
        _print_message("error", str(error))
        if error.hint:
            _print_message("hint", error.hint)
        return error.exit_code
    except BrokenPipeError:
        _drop_stdout()
        return BROKEN_PIPE
    except OSError as error:
        _drop_stdout()
        where = f"{error.filename}: " if error.filename else ""
        _print_message("error", f"{where}{error.strerror or error}")
        return 1
    except Exception as error:
        error.add_note(
            "This is a bug in scalewise: report it with the output of `scalewise doctor`."
        )
        raise
    return code if isinstance(code, int) else 0


def _print_usage_error(error: click.ClickException) -> None:
    """Print an error of click in the form of scalewise's own."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    message = error.format_message().rstrip(".")
    _print_message("error", message[:1].lower() + message[1:])
    # What the parser itself refuses has no command: an option without its value.
    _print_message("hint", f"{'scalewise' if context is None else context.command_path} --help")


def _print_message(word: str, text: str) -> None:
    """Print a message on stderr, in color on a terminal."""
    from scalewise.writing import visible

    plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
    label = f"{word}:" if plain else click.style(f"{word}:", fg=_COLORS[word], bold=True)
    click.echo(f"{label} {visible(text)}", err=True)


_COLORS = {"error": "red", "hint": "cyan"}


def _drop_stdout() -> None:
    """Redirect stdout to /dev/null, so that the interpreter can flush it at exit."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        # Not a real file, as under a test.
        return


@click.group(
    "scalewise",
    cls=CommandLine,
    entries=COMMANDS,
    unknown="unknown command {}",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: scalewise estimate llama-2-7b --on dgx-h100 --gpus 2048",
)
@click.version_option(__version__, message="scalewise %(version)s")
def cli() -> None:
    """Predict throughput, memory, power and cost of LLM training."""


def main() -> None:
    """Run the command line; entry point of the `scalewise` script."""
    cli()
