"""Capture of a program in a child process, with limits; one per pipeline stage.

    captures = capture_program(CaptureSpec(adapter="script", world=64, arguments=("train.py",)))

The child replaces parts of PyTorch and runs code that nobody here wrote, so it may hang, crash or
take all memory: it has a deadline and a limit of memory, and what it printed last is in the error.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scalewise.errors import InputError, ScalewiseError, require
from scalewise.program.events import Capture
from scalewise.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from scalewise.program.capture.spec import CaptureSpec

MODULE = "scalewise.program.capture.child"

ADAPTERS = ("script", "torchtitan", "transformers")
"""Ways to run a program; "decoder" runs jobs of our own."""

USES_TRANSFORMERS = re.compile(rb"^\s*(?:from|import)\s+transformers\b", re.MULTILINE)
"""A line of a script that imports Hugging Face's transformers."""

SECONDS = 900.0
"""Deadline of one capture, seconds."""

MEMORY_BYTES = 16 << 30
"""Address space of a capture, bytes; PyTorch alone maps about 4 GB."""

SHOWN = 12
"""Last lines of a program's output that an error shows."""

READ = 1 << 16
"""Bytes at the end of the output that are read for them."""

OUTPUT_BYTES = 1 << 30
"""Largest file that a capturing process may write: its output is kept until it ends."""


class CaptureError(ScalewiseError):
    """A program that could not be captured."""


def adapter_of(arguments: Sequence[str]) -> str:
    """Return the adapter of a program: that of the framework that it runs or imports.

    Args:
        arguments: Script or `-m` and a module, and their arguments.

    >>> adapter_of(["-m", "torchtitan.train", "--module", "llama3"]), adapter_of(["train.py"])
    ('torchtitan', 'script')
    """
    if tuple(arguments[:1]) == ("-m",):
        module = "".join(arguments[1:2]).partition(".")[0]
        return module if module in ADAPTERS else "script"
    script = Path("".join(arguments[:1]))
    if script.is_file() and USES_TRANSFORMERS.search(script.read_bytes()):
        return "transformers"
    return "script"


def capture_program(
    spec: CaptureSpec, *, seconds: float = SECONDS, memory_bytes: int = MEMORY_BYTES
) -> list[Capture]:
    """Capture a program: one rank, or with a pipeline one rank of every stage.

    Args:
        spec: The program and its place.
        seconds: Deadline of each capture.
        memory_bytes: Limit of memory of each capture.

    Raises:
        CaptureError: If the program failed, or does what a capture cannot hold.
        InputError: If the program cannot be found.
    """
    require("torch", "measure")
    found = {spec.rank: _child(spec, seconds, memory_bytes)}
    ranks = _stage_ranks(found[spec.rank])
    for rank in ranks:
        if rank not in found:
            other = msgspec.structs.replace(spec, rank=rank)
            found[rank] = _child(other, seconds, memory_bytes)
    return [found[rank] for rank in ranks]


def _stage_ranks(capture: Capture) -> Sequence[int]:
    """Return one rank of each pipeline stage, first stage first; the captured one without."""
    for event in capture.collectives():
        if capture.pipelined and event.name in ("send", "recv"):
            return capture.groups[event.group].ranks
    return (capture.rank,)


def _child(spec: CaptureSpec, seconds: float, memory_bytes: int) -> Capture:
    """Run one capturing process."""
    from scalewise.program.capture.spec import Answer

    with tempfile.TemporaryDirectory(prefix="scalewise-program-") as folder:
        asked, answered = Path(folder) / "spec.json", Path(folder) / "answer.json"
        output = Path(folder) / "output.txt"
        asked.write_bytes(msgspec.json.encode(spec))
        command = [sys.executable, "-m", MODULE, str(asked), str(answered), str(memory_bytes)]
        code = _ended(command, output, seconds)
        if not answered.is_file():
            how = f"with code {code}" if code >= 0 else f"by signal {-code}"
            raise CaptureError(
                f"the program ended its process {how} before it was captured (limit of memory: "
                f"{format_bytes(memory_bytes)})" + _tail(output),
                hint="--memory 32GB if it ran out of memory",
            )
        answer = msgspec.json.decode(answered.read_bytes(), type=Answer)
        if answer.refused:
            raise CaptureError(
                "the program does what a capture cannot hold: " + "; ".join(answer.refused[:5]),
                hint="leave it out of the captured program, or measure it: scalewise measure",
            )
        if answer.capture is None:
            kind = InputError if answer.exit_code == InputError.exit_code else CaptureError
            raise kind(answer.error + _tail(output), hint=answer.hint or None)
        return answer.capture


def _ended(command: Sequence[str], output: Path, seconds: float) -> int:
    """Run a command to its end and return its code; what it started ends with it."""
    with output.open("wb") as log:
        # A session of its own: what the program forks can be ended with it.
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise CaptureError(
                f"the program took longer than {format_seconds(seconds)} for two steps"
                + _tail(output),
                hint="--timeout 1h, or fewer layers",
            ) from None
        finally:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _tail(output: Path) -> str:
    """Return the last lines that a program printed."""
    with output.open("rb") as file:
        file.seek(max(output.stat().st_size - READ, 0))
        text = file.read().decode("utf-8", errors="replace")
    lines = text.rstrip().splitlines()[-SHOWN:]
    shown = "\n  ".join(line[:200] for line in lines)
    return f"; its last lines:\n  {shown}" if shown else ""
