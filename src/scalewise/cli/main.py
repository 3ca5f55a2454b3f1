"""What happens when somebody types `scalewise`? Find the command, run it, say plainly what failed.

    scalewise --help
    scalewise estimate llama-2-7b --on dgx-h100 --gpus 2048 --strategy fsdp2048-mb2

Commands live in files of their own and are imported when they are invoked, because NumPy alone
costs more than everything `--help` needs. stdout carries data, stderr carries talk. Exit codes: 0
it fits or worked, 1 it does not fit or failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from scalewise._version import __version__
from scalewise.cli.lazy import Entry, LazyGroup
from scalewise.errors import ScalewiseError

_HERE = "scalewise.cli."

COMMANDS: dict[str, Entry] = {
    "estimate": Entry(_HERE + "estimate", "estimate", "Predict what one training step costs."),
    "scale": Entry(_HERE + "scale", "scale", "Draw weak and strong scaling over sizes."),
    "search": Entry(_HERE + "search", "search", "Try every strategy and rank what can run."),
    "sensitivity": Entry(_HERE + "sensitivity", "sensitivity", "Say what the next upgrade buys."),
    "timeline": Entry(_HERE + "timeline", "timeline", "Play one training step event by event."),
    "study": Entry(_HERE + "study", "study", "Answer a question over many points, with a report."),
    "models": Entry(_HERE + "catalog", "models", "List the models, or show one."),
    "accelerators": Entry(_HERE + "catalog", "accelerators", "List the accelerators, or show one."),
    "clusters": Entry(_HERE + "catalog", "clusters", "List the clusters, or show one."),
    "stacks": Entry(_HERE + "catalog", "stacks", "List the software stacks, or show one."),
    "validate": Entry(_HERE + "validate", "validate", "Compare predictions with published runs."),
    "calibrate": Entry(_HERE + "calibrate", "calibrate", "Fit constants to measured runs."),
    "compare": Entry(_HERE + "compare", "compare", "Compare predictions with your measurements."),
    "trace": Entry(_HERE + "trace", "trace", "Read profiler traces: what was exposed."),
    "measure": Entry(_HERE + "measure", "measure", "Measure training on the devices here."),
    "ui": Entry(_HERE + "ui", "ui", "Explore it all on a local web page."),
    "doctor": Entry(_HERE + "doctor", "doctor", "Describe this installation, for bug reports."),
}
"""Every command, in the order of `--help`."""

INTERRUPTED = 130
BROKEN_PIPE = 141


class CommandLine(LazyGroup):
    """All commands; what goes wrong in one becomes a sentence."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,  # noqa: FBT001 - click's signature
        windows_expand_args: bool = True,  # noqa: FBT001
        **extra: Any,
    ) -> Any:
        """Run, and exit with a code that scripts can rely on."""

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
        code = _guarded(run)
        sys.exit(code)


def _guarded(run: Any) -> int:
    """Run, and turn every foreseeable failure into one sentence and an exit code."""
    try:
        code = run()
        # Otherwise a full disk or a closed pipe shows up only when the interpreter goes away.
        sys.stdout.flush()
    except click.ClickException as error:
        _refuse(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return INTERRUPTED
    except ScalewiseError as error:
        _say("error", str(error))
        if error.hint:
            _say("hint", error.hint)
        return error.exit_code
    except BrokenPipeError:
        _drop_stdout()
        return BROKEN_PIPE
    except OSError as error:
        _drop_stdout()
        where = f"{error.filename}: " if error.filename else ""
        _say("error", f"{where}{error.strerror or error}")
        return 1
    except Exception as error:
        error.add_note("This is a bug in scalewise: please report it with `scalewise doctor`.")
        raise
    return code if isinstance(code, int) else 0


def _refuse(error: click.ClickException) -> None:
    """Say what click did not understand, in the words of our own errors."""
    context = getattr(error, "ctx", None)
    if type(error).__name__ == "NoArgsIsHelpError" or context is None:
        error.show()
        return
    message = error.format_message().rstrip(".")
    _say("error", message[:1].lower() + message[1:])
    _say("hint", f"see `{context.command_path} --help`")


def _say(word: str, text: str) -> None:
    """Speak on stderr, in colour where that is a terminal that wants it."""
    plain = bool(os.environ.get("NO_COLOR")) or not sys.stderr.isatty()
    label = f"{word}:" if plain else click.style(f"{word}:", fg=_COLOURS[word], bold=True)
    click.echo(f"{label} {text}", err=True)


_COLOURS = {"error": "red", "hint": "cyan"}


def _drop_stdout() -> None:
    """Nobody reads stdout any more: keep the interpreter from complaining when it flushes."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        # Not a real file, as under a test.
        return


@click.group(
    "scalewise",
    cls=CommandLine,
    entries=COMMANDS,
    unknown="there is no command `{}`",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="Start with: scalewise estimate llama-2-7b --on dgx-h100 --gpus 2048",
)
@click.version_option(__version__, message="scalewise %(version)s")
def cli() -> None:
    """What does the next accelerator buy you? Predict and explain LLM training steps."""


def main() -> None:
    """Run the command line: the entry point of the `scalewise` script."""
    cli()
