"""Which parts of the repository's own pages does the site repeat?

    section("README.md", "What is not modelled")

The README stays the only place where a sentence is kept; links to files of the repository become
their paths, because the site does not hold them.
"""

from __future__ import annotations

import re

from sitegen.blocks import ROOT

PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Files at the root that the site has a page for."""


def without_links(text: str) -> str:
    """Replace links into the repository by paths, and links to its pages by ours."""

    def path(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        if target in PAGES:
            return f"[{words}]({PAGES[target]})"
        return f"`{target}`"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", path, text)


def whole(name: str) -> str:
    """Everything of a page but its title."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return without_links(re.sub(r"\A# [^\n]*\n", "", text))


def section(name: str, title: str) -> str:
    """What stands under one heading of a page.

    Raises:
        KeyError: If there is no such heading.
    """
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    if not found:
        raise KeyError(f"{name} has no section '## {title}'")
    return without_links(found[1]).strip()


def between(name: str, mark: str) -> str:
    """What stands between the comments `<!-- mark:start -->` and `<!-- mark:end -->`.

    Raises:
        KeyError: If the comments are not there.
    """
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.search(rf"<!-- {mark}:start -->\n(.*?)<!-- {mark}:end -->", text, flags=re.S)
    if not found:
        raise KeyError(f"{name} has no part '{mark}'")
    return without_links(found[1]).strip()
