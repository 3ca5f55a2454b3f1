"""Capture of a program in a child process, with limits; one per pipeline stage.

    captures = capture_program(CaptureSpec(adapter="script", world=64, arguments=("train.py",)))

The child replaces parts of PyTorch and runs code that nobody here wrote, so it may hang, crash or
take all memory: it has a deadline and a limit of memory, and what it printed last is in the error.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from scalewise.errors import InputError, ScalewiseError, require
from scalewise.program.events import Capture
from scalewise.units import format_bytes, format_seconds

if TYPE_CHECKING:
    from scalewise.program.capture.spec import CaptureSpec

MODULE = "scalewise.program.capture.child"

SECONDS = 900.0
"""Deadline of one capture, seconds."""

MEMORY_BYTES = 16 << 30
"""Address space of a capture, bytes; PyTorch alone maps about 4 GB."""

SHOWN = 12
"""Last lines of a program's output that an error shows."""


class CaptureError(ScalewiseError):
    """A program that could not be captured."""


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
    first = _child(spec, seconds, memory_bytes)
    captures = [first]
    for rank in _stage_ranks(first):
        captures.append(_child(msgspec.structs.replace(spec, rank=rank), seconds, memory_bytes))
    return captures


def _stage_ranks(capture: Capture) -> Sequence[int]:
    """Return one rank of each further pipeline stage."""
    for event in capture.collectives():
        if capture.pipelined and event.name in ("send", "recv"):
            return capture.groups[event.group].ranks[1:]
    return ()


def _child(spec: CaptureSpec, seconds: float, memory_bytes: int) -> Capture:
    """Run one capturing process."""
    from scalewise.program.capture.spec import Answer

    with tempfile.TemporaryDirectory(prefix="scalewise-program-") as folder:
        asked, answered = Path(folder) / "spec.json", Path(folder) / "answer.json"
        output = Path(folder) / "output.txt"
        asked.write_bytes(msgspec.json.encode(spec))
        command = [sys.executable, "-m", MODULE, str(asked), str(answered), str(memory_bytes)]
        with output.open("wb") as log:
            try:
                code = subprocess.run(
                    command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, timeout=seconds,
                    check=False,
                ).returncode  # fmt: skip
            except subprocess.TimeoutExpired:
                raise CaptureError(
                    f"the program took longer than {format_seconds(seconds)} for two steps"
                    + _tail(output),
                    hint="--timeout 1h, or fewer layers",
                ) from None
        if not answered.is_file():
            raise CaptureError(
                f"the capturing process ended with code {code} (limit of memory: "
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


def _tail(output: Path) -> str:
    """Return the last lines that a program printed."""
    lines = output.read_text("utf-8", errors="replace").rstrip().splitlines()[-SHOWN:]
    shown = "\n  ".join(line[:200] for line in lines)
    return f"; its last lines:\n  {shown}" if shown else ""
