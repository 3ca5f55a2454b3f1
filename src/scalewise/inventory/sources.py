"""Output of the tools of a machine: from files, or from the tools themselves.

    sources = from_files(["topo.txt", "nodes/"])      # told apart by what they say
    sources = from_tools()                            # those that are on this machine

Nothing is sent anywhere, and no tool runs longer than a few seconds.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

from scalewise.errors import InputError
from scalewise.inventory.nvidia import QUERY
from scalewise.reading import read_text, user_path

SECONDS = 20.0
"""Longest run of a tool."""

TOOLS: dict[str, tuple[str, ...]] = {
    "gpus": ("nvidia-smi", f"--query-gpu={QUERY}", "--format=csv"),
    "topology": ("nvidia-smi", "topo", "-m"),
    "ibstat": ("ibstat",),
    "rdma": ("rdma", "link"),
    "lspci": ("lspci",),
    "nodes": ("scontrol", "show", "node"),
    "sinfo": ("sinfo", "-o", "%N %D %G"),
}
"""Command by what it says."""

_MARKS = (
    ("topology", r"(?m)^\s+GPU0\b.*$"),
    ("nodes", r"(?m)^NodeName="),
    ("ibstat", r"(?m)^CA '"),
    ("gpus", r"(?m)^\s*(?:\w+, )*name\b.*(?:memory\.total|power\.limit|,|$)"),
    ("rdma", r"(?m)^(?:\d+/\d+: |link )\S+/\d+:? .*\bstate "),
    ("sinfo", r"(?m)^NODELIST\s|^\s*\S+\s+\d+\s+(?:\S*gpu:\S+|\(null\))\s*$"),
    ("lspci", r"(?m)^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.\d "),
)
"""What tells the output of each tool from others."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """Output of one tool."""

    kind: str
    """Key in `TOOLS`."""
    where: str
    """File, or command."""
    text: str


def kind_of(text: str) -> str | None:
    """Return which tool a text is of; None where it is of none."""
    return next((kind for kind, mark in _MARKS if re.search(mark, text)), None)


def from_files(paths: Iterable[str]) -> list[Source]:
    """Read the output of tools from files and folders.

    Raises:
        InputError: If a file cannot be read, or is of no known tool.
    """
    found = []
    for given in paths:
        path = user_path(given)
        inside = sorted(each for each in path.iterdir() if each.is_file()) if path.is_dir() else []
        for file in inside or [path]:
            text = read_text(file, what="output of a tool")
            kind = kind_of(text)
            if kind is None:
                commands = ", ".join(" ".join(command[:2]) for command in TOOLS.values())
                raise InputError(f"{file}: of no known tool", hint=f"the output of {commands}")
            found.append(Source(kind=kind, where=str(file), text=text))
    return found


def from_tools() -> tuple[list[Source], list[str]]:
    """Run the tools that are on this machine; return their output, and what could not be run."""
    found, absent = [], []
    for kind, command in TOOLS.items():
        shown = " ".join(command)
        path = shutil.which(command[0])
        if path is None:
            absent.append(f"{shown}: not on $PATH")
            continue
        try:
            done = subprocess.run(
                [path, *command[1:]], capture_output=True, text=True, errors="replace",
                timeout=SECONDS, check=False,
            )  # fmt: skip
        except (subprocess.TimeoutExpired, OSError) as error:
            absent.append(f"{shown}: {type(error).__name__}")
            continue
        if done.returncode or not done.stdout.strip():
            lines = (done.stderr.strip() or "no output").splitlines()
            absent.append(f"{shown}: {lines[0]}")
        else:
            found.append(Source(kind=kind, where=shown, text=done.stdout))
    return found, absent
