"""Fenced blocks of a page: parsed, run in order, with their output and pictures.

    for done in run_page(text):
        done.block.text, done.output, done.pictures

A fence names its language, then how it is run:

    sh runnable                 every command must succeed; the page shows its output
    sh runnable exit=1          ... must exit with this code; stderr is shown as well
    sh runnable show="A|B"      show only paragraphs that start with A or B
    sh runnable lines=12        show only the first lines
    sh runnable quiet           show nothing
    sh runnable picture=x.svg alt="..."    show the picture it wrote
    sh runnable needs=torch     skipped where this library is not installed
    sh not-run                  not run: needs hardware or a network
    python runnable             the same for a program
    toml file=a/b.toml          written to this file, for the blocks below it

The blocks of one page run in one empty folder, in which `tests` links to that of the repository.
Tests and the build use the same function, so every page shows real output.
This file imports nothing else of the site.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parents[2]

SECONDS = 900
"""Timeout of one command; none needs more than a few seconds on an idle machine."""

COLUMNS = 92
"""Width of the terminal that commands see: the width of a page."""

TAGS = {
    "sh": {"runnable", "not-run"},
    "python": {"runnable", "not-run"},
    "toml": {"file", "not-run"},
    "json": {"file", "not-run"},
    "csv": {"file", "not-run"},
}
"""Options of which a fence of each language needs one."""

FENCE = re.compile(r"^```(\w+)[ ]?([^\n]*)\n((?:[^\n]*\n)*?)^```[ ]*$", flags=re.MULTILINE)


class BlockError(Exception):
    """A block whose exit code or output is not as its fence declares."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """One fenced block."""

    language: str
    """First word of the fence."""
    words: dict[str, str]
    """Options of the fence by name, empty for those without a value."""
    text: str
    """Text inside the fence."""

    @property
    def runs(self) -> bool:
        """Whether it is executed or written to a file."""
        return "runnable" in self.words or "file" in self.words


@dataclass(kw_only=True)
class Done:
    """A block and its result."""

    block: Block
    output: str = ""
    """Output as the page shows it."""
    pictures: dict[str, bytes] = field(default_factory=dict)
    """Files it drew, by name."""
    skipped: str = ""
    """The missing library, if the block was skipped."""


def parse(match: re.Match[str]) -> Block:
    """Read one fence."""
    words = dict(word.partition("=")[::2] for word in shlex.split(match[2]))
    return Block(language=match[1], words=words, text=match[3])


def blocks(page: str) -> list[Block]:
    """Return every fenced block of a page, in order."""
    return [parse(match) for match in FENCE.finditer(page)]


def untagged(page: str) -> list[Block]:
    """Return blocks of a page that do not declare whether they run."""
    return [b for b in blocks(page) if b.language in TAGS and not TAGS[b.language] & set(b.words)]


def commands(text: str) -> list[str]:
    """Return the commands of a shell block: comments dropped, continued lines joined."""
    lines = (line.strip() for line in text.replace("\\\n", " ").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def shown(output: str, words: dict[str, str]) -> str:
    """Return the part of an output that a page shows.

    Raises:
        BlockError: If a requested paragraph is missing.
    """
    output = "\n".join(line.rstrip() for line in output.strip("\n").splitlines())
    if "quiet" in words or "picture" in words:
        return ""
    if "show" in words:
        paragraphs = re.split(r"\n\s*\n", output)
        wanted = []
        for start in words["show"].split("|"):
            found = [p for p in paragraphs if p.lstrip().startswith(start.strip())]
            if not found:
                raise BlockError(f"no paragraph starts with {start!r} in:\n{output}")
            wanted.append(found[0])
        output = "\n\n".join(wanted)
    lines = output.splitlines()
    maximum = int(words.get("lines", len(lines)))
    return "\n".join([*lines[:maximum], *(["..."] if len(lines) > maximum else [])])


def environment() -> dict[str, str]:
    """Return the environment of commands: this interpreter first, no colors, no user catalog."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    fixed = {"PATH": path, "NO_COLOR": "1", "COLUMNS": str(COLUMNS), "PYTHONIOENCODING": "utf-8"}
    return {k: v for k, v in os.environ.items() if k != "SCALEWISE_CATALOG"} | fixed


def execute(command: list[str], folder: Path, code: int) -> str:
    """Run one command.

    Args:
        command: Program and arguments.
        folder: Working folder.
        code: Expected exit code.

    Returns:
        stdout, and stderr too where the expected code is not 0.

    Raises:
        BlockError: If the exit code differs.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=SECONDS,
        check=False,
    )
    if done.returncode != code:
        output = done.stdout + done.stderr
        raise BlockError(f"exit code {done.returncode} instead of {code}: {command[-1]}\n{output}")
    return done.stdout + (done.stderr if code else "")


def run_block(block: Block, folder: Path) -> Done:
    """Run one block, or write its file.

    Args:
        block: The block.
        folder: Working folder of its page.

    Returns:
        The block with its output and pictures.

    Raises:
        BlockError: If an exit code differs from the declared one, or a paragraph is missing.
    """
    if not block.runs:
        return Done(block=block)
    if "file" in block.words:
        path = folder / block.words["file"]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text, encoding="utf-8")
        return Done(block=block)
    missing = [m for m in block.words.get("needs", "").split(",") if m and find_spec(m) is None]
    if missing:
        return Done(block=block, skipped=missing[0])
    code = int(block.words.get("exit", "0"))
    if block.language == "python":
        output = execute([sys.executable, "-c", block.text], folder, code)
    else:
        each = [execute(["bash", "-c", c], folder, code) for c in commands(block.text)]
        output = "\n".join(each)
    names = [name for name in block.words.get("picture", "").split(",") if name]
    pictures = {Path(name).name: (folder / name).read_bytes() for name in names}
    return Done(block=block, output=shown(output, block.words), pictures=pictures)


def run_page(page: str) -> list[Done]:
    """Run every block of a page, in order, in a folder of their own.

    Where the variable SITEGEN_RUNS names a folder, results are kept there by the text of the page,
    so that tests and a build of the same code run each block once.
    """
    found = blocks(page)
    if not any(block.runs for block in found):
        return [Done(block=block) for block in found]
    kept: Path | None = None
    if folder := os.environ.get("SITEGEN_RUNS"):
        kept = Path(folder) / f"{hashlib.sha256(page.encode()).hexdigest()}.json"
        if kept.is_file():
            return msgspec.json.decode(kept.read_bytes(), type=list[Done])
    with tempfile.TemporaryDirectory(prefix="scalewise-page-") as name:
        folder_ = Path(name)
        (folder_ / "tests").symlink_to(ROOT / "tests")
        done = [run_block(block, folder_) for block in found]
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_bytes(msgspec.json.encode(done))
    return done
