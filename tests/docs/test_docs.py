"""Pages of docs/: every runnable block runs, references read from the code are complete.

Blocks run through the same function as in the build of the site.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
sys.path.insert(0, str(DOCS))

from sitegen import (  # noqa: E402 - the folder of the site is no package that is installed
    commands,
    hardware,
    includes,
    inserts,
    layers,
    physics,
    python_api,
    words,
)
from sitegen.blocks import (  # noqa: E402
    Block,
    BlockError,
    blocks,
    run_block,
    run_page,
    shown,
    untagged,
)

PAGES = sorted(DOCS.glob("*.md"))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_blocks_run(page: Path):
    for done in run_page(text_of(page)):
        words = done.block.words
        shows = "runnable" in words and not {"quiet", "picture", "needs"} & set(words)
        assert bool(done.output) == shows or done.skipped or "needs" in words
        for name, content in done.pictures.items():
            assert b"<svg" in content[:1000], name


def test_results_are_kept_where_a_folder_is_named(tmp_path, monkeypatch):
    page = "```python runnable\nprint(6 * 7)\n```\n"
    monkeypatch.setenv("SITEGEN_RUNS", str(tmp_path))
    first = run_page(page)
    assert [done.output.strip() for done in first] == ["42"]
    monkeypatch.setattr("sitegen.blocks.run_block", None)
    assert run_page(page) == first


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_page_is_plain(page: Path):
    text = text_of(page)
    assert [b.text for b in untagged(text)] == [], "say runnable, not-run or file="
    assert text.isascii()
    assert text.startswith("# ")
    assert "PLACEHOLDER" not in text
    assert max(len(line) for line in text.splitlines() if not line.startswith(("|", "```"))) < 180


def test_every_page_is_in_the_navigation():
    named = re.findall(
        r"^ +- (?:Start: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), flags=re.M
    )
    assert sorted(named) == [page.name for page in PAGES]


def test_every_picture_says_what_it_shows():
    for page in PAGES:
        for block in blocks(text_of(page)):
            assert ("picture" in block.words) == bool(block.words.get("alt")), page.name


def test_every_command_named_exists():
    from scalewise.cli.main import COMMANDS

    for page in PAGES:
        text = text_of(page)
        code = re.findall(r"`([^`\n]+)`", text) + [b.text for b in blocks(text)]
        named = {w for part in code for w in re.findall(r"\bscalewise ([a-z][\w-]*)", part)}
        assert named - {"as", "import"} - set(COMMANDS) == set(), page.name


def test_inserts_exist():
    for page in PAGES:
        for order in re.findall(r"^<!-- insert: (.+?) -->$", text_of(page), flags=re.M):
            if order not in ("worked_examples",):
                assert inserts.insert(order).strip(), order


def test_unknown_insert_is_refused():
    with pytest.raises(KeyError, match="unknown insert 'x'"):
        inserts.insert("x")
    with pytest.raises(KeyError, match="no section"):
        includes.section("README.md", "No such thing")


# The picture of the README.


def test_picture_is_up_to_date():
    """`python docs/make_figures.py` draws it again."""
    import make_figures

    drawn = (DOCS / "images" / "scaling.svg").read_text(encoding="utf-8")
    found = re.search(r"FSDP: ([\d ]+)", drawn)
    assert found, "the picture has no numbers: run python docs/make_figures.py"
    now = [p.tokens_per_second_per_accelerator for p in make_figures.curve("fsdp{n}-mb2")]
    assert [float(v) for v in found[1].split()] == pytest.approx(now, rel=0.02)


# References read from the code are complete.


def test_command_line_has_every_option():
    text = commands.command_line()
    assert "## scalewise estimate\n" in text
    assert "### scalewise study run\n" in text
    assert "| `--strategy S` | Strategy, such as fsdp256-tp2-pp4-mb2; without sizes" in text


def test_public_names_are_all_there():
    import scalewise

    text = python_api.public_names()
    for name in scalewise.__all__:
        if not name.startswith("_"):
            assert f"### scalewise.{name}\n" in text
    assert "| `tp` | `int` | `1` | Tensor-parallel degree. |" in text
    assert "| `tokens_per_second_per_accelerator` |" in text


def test_every_physical_function_and_constant_is_there():
    text = physics.formulas()
    assert "RING_INTER = np.array([2.7, 4.0, 14.0]) * 1e-6" in text
    assert "PAT_BASE, PAT_INTER, PAT_PER_RANK, PAT_SHARE" in text
    assert "IDLE_SHARE = 0.14" in text
    chapters = {name for files in physics.PARTS.values() for name in files}
    package = ROOT / "src" / "scalewise"
    for folder in ("physics", "step"):
        for path in (package / folder).glob("*.py"):
            name = f"{folder}/{path.name}"
            assert name in chapters | physics.LEFT_OUT, f"{name} needs a chapter in PARTS"
            if name in physics.LEFT_OUT:
                continue
            source = path.read_text(encoding="utf-8")
            named = re.findall(r"^([A-Z][A-Z0-9_]*)(?:: [^=\n]+)? = ", source, flags=re.M)
            if name not in physics.CONSTANTS_ONLY:
                named += re.findall(r"^def (\w+)", source, flags=re.M)
            assert [n for n in named if not re.search(rf"\b{n}\b", text)] == [], name


def test_constants_keep_their_comments():
    source = "import x\n\n# Why.\nA = 1\nB = 2\n\nT = TypeVar('T')\nlow = 3\nC = 4\n'''Unit.'''\n"
    assert physics.constants(source) == ["# Why.\nA = 1\nB = 2", "C = 4\n'''Unit.'''"]


def test_steps_of_an_explanation():
    text = "head\n\n1. Alpha\n  F = a\n    a  1\n  = 1\n\n2. Beta\n  G = b\n\nWhat to try\n  x\n"
    assert list(physics.steps(text)) == [("Alpha", "F = a\n  a  1\n= 1"), ("Beta", "G = b")]


def test_catalog_has_every_file():
    from scalewise.catalog import names

    kinds = ("accelerators", "clusters", "fabrics", "calibrations", "stacks")
    for kind in kinds:
        text = inserts.insert(kind)
        assert [n for n in names(kind) if f'??? quote "{n}.toml"' not in text] == []
    assert "| `h100-sxm-80gb` | 989 | 1,979 |" in hardware.accelerators()


def test_layers_are_those_of_the_test():
    assert layers.ranks()[-1][0] == "cli"
    assert "| `physics` | Closed forms on floats or arrays" in layers.layers()


# The tools themselves.


def block(fence: str, text: str = "") -> Block:
    return blocks(f"```{fence}\n{text}\n```\n")[0]


def test_fences():
    found = block('sh runnable exit=1 show="A b|C" lines=2', "echo")
    assert found.language == "sh"
    assert found.words == {"runnable": "", "exit": "1", "show": "A b|C", "lines": "2"}
    assert found.runs
    assert not block("sh not-run").runs
    assert untagged("```sh\nls\n```\n\n```text\nx\n```\n")[0].text == "ls\n"


def test_blocks_share_a_folder_and_must_end_as_said(tmp_path: Path):
    run_block(block("toml file=a/b.toml", "x = 1"), tmp_path)
    done = run_block(block("sh runnable", "cat a/b.toml\n# no\necho \\\n  two"), tmp_path)
    assert done.output == "x = 1\n\ntwo"
    with pytest.raises(BlockError, match="exit code 3 instead of 0"):
        run_block(block("sh runnable", "exit 3"), tmp_path)
    with pytest.raises(BlockError, match="exit code 0 instead of 1"):
        run_block(block("sh runnable exit=1", "true"), tmp_path)
    assert run_block(block("sh runnable exit=3", "echo why >&2; exit 3"), tmp_path).output == "why"
    assert run_block(block("sh runnable needs=no_such_module", "false"), tmp_path).skipped
    assert run_block(block("python runnable", "print(2 + 2)"), tmp_path).output == "4"


def test_what_is_shown():
    output = "Head\n  a\n  b\n\nTail\n  c  \n"
    assert shown(output, {}) == "Head\n  a\n  b\n\nTail\n  c"
    assert shown(output, {"show": "Tail"}) == "Tail\n  c"
    assert shown(output, {"lines": "1"}) == "Head\n..."
    assert shown(output, {"quiet": ""}) == ""
    with pytest.raises(BlockError, match="no paragraph starts with 'Nose'"):
        shown(output, {"show": "Nose"})


def test_bars_end_no_cell():
    assert words.cell("a|b\n c `x|y`") == "a\\|b c `x|y`"
    assert words.table(["n"], []) == ""


def test_docstrings_become_tables():
    text = words.docstring(
        "Say it.\n\n    code(1)\n\nArgs:\n    x: What, m.\n        More.\n    **y: Rest.\n\n"
        "Returns:\n    A number.\n"
    )
    assert "Say it.\n\n```text\ncode(1)\n```" in text
    assert "| `x` | What, m. More. |" in text
    assert "| `**y` | Rest. |" in text
    assert "**Returns** A number." in text


def test_links_into_the_repository_become_paths():
    text = "[a](src/b.py), [c](https://d.org), [e](README.md)"
    assert includes.without_links(text) == "`src/b.py`, [c](https://d.org), [e](index.md)"
