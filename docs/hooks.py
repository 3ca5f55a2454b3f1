"""mkdocs hooks: run the blocks of pages, draw pictures, insert references.

    mkdocs build --strict

Fences declare what to run (see sitegen/blocks.py); a comment on a line of its own inserts text:

    <!-- insert: command_line -->

The site works without a network: a page that loads anything from another host fails the build.
"""

from __future__ import annotations

import os
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

import make_figures
from sitegen.blocks import FENCE, BlockError, Done, parse, run_page
from sitegen.inserts import insert
from sitegen.words import fence

WORKERS = 2
"""Pages that run at once."""

PICTURES = "pictures"
"""Folder of the site for pictures that blocks draw."""

_DONE: dict[str, list[Done]] = {}
"""Results of blocks by the text of their page: `mkdocs serve` runs only changed pages."""

EXTERNAL = re.compile(
    r"""<(?:script|img|iframe|source|embed|audio|video)\b[^>]*?\bsrc=["']?(?:https?:)?//"""
    r"""|<link\b(?![^>]*rel=["']?canonical)[^>]*?\bhref=["']?(?:https?:)?//"""
    r"""|@import\s+(?:url\()?["']?(?:https?:)?//|url\(["']?(?:https?:)?//""",
    flags=re.IGNORECASE,
)
"""Markup that makes a browser load something from another host."""


def on_config(config: Any) -> Any:
    """Keep a user catalog out of the pages."""
    os.environ.pop("SCALEWISE_CATALOG", None)
    return config


def on_files(files: Files, config: Any) -> Files:
    """Run the blocks of all pages, and add their pictures to the files of the site."""
    pages = [file for file in files.documentation_pages() if file.src_uri.endswith(".md")]
    texts = [page.content_string for page in pages]
    with ThreadPoolExecutor(WORKERS) as pool:
        answers = list(pool.map(_run, (page.src_uri for page in pages), texts))
    for page, done in zip(pages, answers, strict=True):
        for one in done:
            for name, content in one.pictures.items():
                uri = f"{PICTURES}/{_picture(page.src_uri, name)}"
                files.append(File.generated(config, uri, content=content))
    with TemporaryDirectory() as folder:
        for drawn in make_figures.draw(Path(folder)):
            uri = f"images/{drawn.name}"
            if (old := files.get_file_from_path(uri)) is not None:
                files.remove(old)
            files.append(File.generated(config, uri, content=drawn.read_bytes()))
    return files


def _run(uri: str, text: str) -> list[Done]:
    if text not in _DONE:
        try:
            _DONE[text] = run_page(text)
        except BlockError as error:
            raise PluginError(f"{uri}: {error}") from error
    return _DONE[text]


def _picture(uri: str, name: str) -> str:
    return f"{Path(uri).stem}-{name}"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Put outputs under their blocks, and replace insert comments."""
    uri = page.file.src_uri
    answers = iter(_run(uri, page.file.content_string))
    text = FENCE.sub(lambda match: _shown(match, next(answers), uri), markdown)
    return re.sub(r"^<!-- insert: (.+?) -->$", lambda m: _inserted(m[1], uri), text, flags=re.M)


def _shown(match: re.Match[str], done: Done, uri: str) -> str:
    """Return one block as the page shows it: input, then output and pictures."""
    block = parse(match)
    if "hidden" in block.words:
        return ""
    title = f' title="{block.words["file"]}"' if "file" in block.words else ""
    text = f"```{block.language}{title}\n{block.text}```\n"
    if done.skipped and "quiet" not in block.words:
        text += f"\n*Not run in this build: `{done.skipped}` is not installed.*\n"
    if done.output:
        text += "\n" + fence(done.output, "text", "output")
    for name in done.pictures:
        alt = block.words.get("alt", "")
        text += f"\n![{alt}]({PICTURES}/{_picture(uri, name)})\n"
    return text


def _inserted(name: str, uri: str) -> str:
    try:
        return insert(name)
    except (KeyError, BlockError) as error:
        raise PluginError(f"{uri}: {error}") from error


def on_post_build(config: Any) -> None:
    """Fail if a page loads anything from another host."""
    found = []
    for path in Path(config["site_dir"]).rglob("*"):
        if path.suffix in {".html", ".css"}:
            text = path.read_text(encoding="utf-8")
            found += [f"{path.name}: {m[0][:100]}" for m in EXTERNAL.finditer(text)]
    if found:
        raise PluginError("the site loads from other hosts:\n" + "\n".join(found[:20]))
