"""README.md: its commands run, its output is current, its files exist, its sources are credited.

A block that opens with ```sh runnable is run line by line, ```python runnable as a whole. The two
blocks ```sh main and ```sh tests build environments of their own: .ci/run runs those, and tests
here run only the part after the installation.
"""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner

from scalewise.cli.main import COMMANDS, cli
from waiting import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
README = (ROOT / "README.md").read_text(encoding="utf-8")

SUFFIXES = ("py", "md", "toml", "csv", "txt", "json", "svg", "png", "html", "yaml")
NOT_OURS = {"config.json", "report.html"}
"""File names in the README that stand for a file of the user."""


class Block(NamedTuple):
    """One fenced block."""

    language: str
    tag: str
    text: str


def blocks(page: str) -> list[Block]:
    """Every fenced block of a page."""
    found = re.findall(r"^```(\w*)[ ]?(.*)\n((?:.*\n)*?)^```$", page, flags=re.MULTILINE)
    return [Block(language, tag.strip(), text) for language, tag, text in found]


def tagged(language: str, tag: str) -> list[str]:
    """Texts of the README's blocks with this opening."""
    return [b.text for b in blocks(README) if (b.language, b.tag) == (language, tag)]


def commands(text: str) -> list[str]:
    """The commands of a shell block: comments dropped, continued lines joined."""
    joined = text.replace("\\\n", " ")
    lines = (line.strip() for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def links(page: str) -> list[str]:
    """Targets of the links and pictures of a page that stay inside the repository."""
    targets = re.findall(r"\]\(([^)\s]+)\)", page) + re.findall(r'(?:src|href)="([^"]+)"', page)
    inside = [t.split("#")[0] for t in targets if not re.match(r"[a-z]+:", t)]
    return [t for t in inside if t]


def named_files(page: str) -> list[str]:
    """What looks like a file or folder in code spans and shell blocks."""
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    code = re.findall(r"`([^`\n]+)`", prose) + [b.text for b in blocks(page) if b.language == "sh"]
    words = [word.strip("'\",:;()") for text in code for word in text.split()]
    looks = re.compile(rf"[\w./-]+(?:\.(?:{'|'.join(SUFFIXES)})|/)")
    return [w for w in words if looks.fullmatch(w) and not w.startswith((".venv/", "/"))]


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """Run in a folder that shows the repository's files but keeps what is written to itself."""
    for name in ("tests", "docs"):
        (folder / name).symlink_to(ROOT / name)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environment = {**os.environ, "PATH": path, "NO_COLOR": "1", "COLUMNS": "100"}
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


MAIN, TESTS = tagged("sh", "main"), tagged("sh", "tests")
RUNNABLE = [c for text in tagged("sh", "runnable") for c in commands(text)]
PYTHON = tagged("python", "runnable")


def test_there_are_two_main_commands_of_one_line_each():
    assert [len(commands(text)) for text in MAIN] == [1]
    assert [len(commands(text)) for text in TESTS] == [1]


def test_main_commands_stand_alone():
    assert MAIN[0].startswith("python3 -m venv .venv && .venv/bin/pip install . && ")
    assert TESTS[0] == "sh scripts/test\n"


def test_there_is_something_to_run():
    assert len(RUNNABLE) >= 5
    assert len(PYTHON) == 1


@pytest.mark.parametrize("command", dict.fromkeys([MAIN[0].split("/bin/")[-1].strip(), *RUNNABLE]))
def test_command_runs(command: str, tmp_path: Path):
    done = run(["bash", "-c", command], tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("program", PYTHON)
def test_program_runs(program: str, tmp_path: Path):
    done = run([sys.executable, "-c", program], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def test_every_command_named_exists():
    code = re.findall(r"`([^`\n]+)`", README) + [b.text for b in blocks(README)]
    named = {w for text in code for w in re.findall(r"\bscalewise ([a-z][\w-]*)", text)} - {"as"}
    assert named - set(COMMANDS) == set()
    assert "estimate" in named


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path):
    targets = links(page.read_text(encoding="utf-8"))
    assert [t for t in targets if not (page.parent / t).exists()] == []


def test_named_files_exist():
    named = set(named_files(README)) - NOT_OURS
    assert {"tests/data/hf/qwen3-8b.json"} <= named
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_picture_is_shown():
    assert "docs/images/scaling.svg" in links(README)


def test_picture_and_command_are_of_the_same_software():
    """The title of the figure names the stack that the command uses; see docs/make_figures.py."""
    sys.path.insert(0, str(ROOT / "docs"))
    import make_figures

    size = make_figures.SIZES.index(2048)
    point = make_figures.curve("fsdp{n}-mb2")[size]
    words = [*MAIN[0].split("/bin/scalewise ")[-1].split(), "--json"]
    answer = json.loads(CliRunner().invoke(cli, words).stdout)
    assert point.step_seconds == pytest.approx(answer["step_seconds"], rel=1e-9)
    assert point.stack.name == answer["stack"]


def test_output_is_that_of_the_main_command():
    """`python docs/make_figures.py` writes it again."""
    sys.path.insert(0, str(ROOT / "docs"))
    import make_figures

    assert len(tagged("text", "output")[0].splitlines()) > 5
    assert make_figures.with_transcript(README) == README


def test_readme_is_short():
    assert len(README.splitlines()) <= 120


@pytest.mark.parametrize("table", ["runs", "kernels", "collectives"])
def test_notice_credits_every_source(table: str):
    notice = (ROOT / "NOTICE").read_text(encoding="utf-8")
    path = ROOT / "src" / "scalewise" / "catalog" / "runs" / f"{table}.csv"
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows
    wanted = {_credit(row.get("source_ref") or row["source"]) for row in rows}
    named = {credit for credit in wanted if re.search(rf"{re.escape(credit)}(?![\w-])", notice)}
    assert sorted(wanted - named) == []


def _credit(source: str) -> str:
    """The part of a row's source that a credit must name: a repository, a paper, or all of it."""
    patterns = (
        r"github\.com/([\w.-]+/[\w.-]+)",
        r"github:([\w.-]+/[\w.-]+)",
        r"huggingface\.co/(spaces/[\w.-]+/[\w.-]+)",
        r"(arXiv:\d{4}\.\d{5})",
        r"^([\w.-]+/[\w.-]+) ",
    )
    for pattern in patterns:
        if match := re.search(pattern, source):
            return match.group(1)
    return source


# The readers themselves.


def test_readers_of_pages():
    page = (
        "See [a](x/y.md#z), ![b](p.svg), [c](https://e.org/q.md) and `src/n.py` or `a/b per s`.\n"
        "```sh main\npython a.py --in dir/ \\\n  --b\n# no\nlast\n```\n"
        "```text\nnot/this.py\n```\n"
    )
    assert links(page) == ["x/y.md", "p.svg"]
    assert named_files(page) == ["src/n.py", "a.py", "dir/"]
    assert [(b.language, b.tag) for b in blocks(page)] == [("sh", "main"), ("text", "")]
    assert commands(blocks(page)[0].text) == ["python a.py --in dir/    --b", "last"]
