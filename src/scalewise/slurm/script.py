"""Batch scripts: the #SBATCH header, and their submission.

    lines = header({"job_name": "scalewise", "nodes": 4, "exclusive": True, "partition": None})
    number = submit(text, folder, what="sweep", hint="check --partition")

Scripts go to sbatch through a pipe. Further options come from the variables of sbatch itself, such
as SBATCH_ACCOUNT.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scalewise.errors import InputError, ScalewiseError

_WORD = re.compile(r"""[^\s"'`\\\x00-\x1f\x7f]+""")
"""A value of one option: sbatch splits lines at blanks and reads quotes."""


def header(options: Mapping[str, Any], notes: Sequence[str] = ()) -> list[str]:
    """Return the first lines of a batch script.

    Args:
        options: Options of sbatch by their long names; True is a flag, None is left to the cluster.
        notes: Comments at the top.

    Raises:
        InputError: If a value has blanks, quotes or control characters, which would end the option.
    """
    lines = ["#!/bin/bash", *(f"# {' '.join(note.split())}" for note in notes)]
    for name, value in options.items():
        if value is not None:
            flag = "--" + name.replace("_", "-")
            if not _WORD.fullmatch(str(value)) or not str(value).isprintable():
                raise InputError(
                    f"{flag} {str(value)[:40]!r}: blanks, quotes and control characters are not "
                    "supported",
                    hint=f"{flag} NAME, as `sinfo` prints it",
                )
            lines.append(f"#SBATCH {flag}" if value is True else f"#SBATCH {flag}={value}")
    return lines


def minutes(seconds: float) -> int:
    """Return a time limit as Slurm counts it: whole minutes, at least one."""
    return max(1, math.ceil(seconds / 60.0))


def check_positive(options: Any, *names: str) -> None:
    """Refuse options that are zero or negative.

    Raises:
        InputError: Naming the first one.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise InputError(f"{name} = {value} must be positive")


def submit(script: str, folder: Path, *, what: str, hint: str) -> str:
    """Submit a batch script and return the number of its job.

    Args:
        script: Its text.
        folder: Holds the logs, <job>.out and <job>.err, on a file system that all nodes share.
        what: The thing submitted, for the error.
        hint: Options to check if sbatch refuses.

    Raises:
        ScalewiseError: If sbatch refuses, with its last line.
    """
    logs = str(folder / ("%A_%a" if "\n#SBATCH --array=" in script else "%j"))
    command = ["sbatch", "--parsable", f"--output={logs}.out", f"--error={logs}.err"]
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False)
    if done.returncode:
        why = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise ScalewiseError(f"sbatch refused the {what}: {why[-1]}", hint=hint)
    return done.stdout.strip().partition(";")[0]
