"""Parts of README, CONTRIBUTING and CHANGELOG that pages of the site repeat.

    whole("CHANGELOG.md")
    section("README.md", "Not modeled")

Links to files of the repository become paths, because the site does not hold those files.
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
    """Replace links to files by paths, and links to pages by links inside the site."""

    def path(match: re.Match[str]) -> str:
        words, target = match[1], match[2]
        if re.match(r"[a-z]+:", target):
            return match[0]
        if target in PAGES:
            return f"[{words}]({PAGES[target]})"
        if target.startswith("docs/") and target.endswith(".md"):
            return f"[{words}]({target.removeprefix('docs/')})"
        return f"`{target}`"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(([^)\s]+)\)", path, text)


def whole(name: str) -> str:
    """Return a page without its title."""
    text = (ROOT / name).read_text(encoding="utf-8")
    return without_links(re.sub(r"\A# [^\n]*\n", "", text))


def section(name: str, title: str) -> str:
    """Return the text under one heading of a page.

    Raises:
        KeyError: If there is no such heading.
    """
    text = (ROOT / name).read_text(encoding="utf-8")
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S)
    if not found:
        raise KeyError(f"{name} has no section '## {title}'")
    return without_links(found[1]).strip()
