"""Names of the catalog, spelled as people do.

    find_name("models", "llama 2 7b")       # "llama-2-7b"

Letters and digits decide, not the blanks, hyphens and points between them.
"""

from __future__ import annotations

import os
import re

from scalewise.catalog import name_of, names
from scalewise.errors import InputError, did_you_mean

SHORT = {"l": "llama", "g": "gpt", "q": "qwen", "m": "mistral"}
"""First letters that stand for a family: L2-7b."""

LISTED = ("models", "accelerators", "clusters", "stacks")
"""Folders of the catalog that have a command of their own."""


def plain(text: str) -> str:
    """Only letters and digits, in lower case."""
    return re.sub(r"[^a-z0-9]", "", text.lower())


def tokens(text: str) -> list[str]:
    """Words and numbers: "Llama-2 7B" is llama, 2, 7b."""
    return re.findall(r"[a-z]+|[0-9]+(?:\.[0-9]+)?[a-z]*", text.lower())


def score(wanted: str, name: str) -> int:
    """How well a name fits what was typed; 0 if it does not."""
    if plain(wanted) == plain(name):
        return 100
    if _starts(name.lower(), wanted.lower()):
        return 80
    asked, has = tokens(wanted), tokens(name)
    if asked and asked[0] in SHORT:
        asked = [SHORT[asked[0]], *asked[1:]]
    if not asked or not all(any(_starts(h, a) for h in has) for a in asked):
        return 0
    exact = sum(a in has for a in asked)
    return 20 + 10 * exact - min(len(has), 9)


def _starts(name: str, text: str) -> bool:
    """Whether a name starts with the letters and digits of a text: an A10 is no A100."""
    start, rest = plain(text), name
    while rest and start:
        if rest[0].isalnum():
            if rest[0] != start[0]:
                return False
            start = start[1:]
        rest = rest[1:]
    # A number that goes on is another number.
    return not start and not (rest[:1].isdigit() and text[-1:].isdigit())


def is_file(text: str) -> bool:
    """Whether the loaders of the command line would open it as a file."""
    # A fifth of the cost of Path.is_dir, and asked of every question.
    return text.strip().lower().endswith((".toml", ".json")) or os.path.isdir(text)  # noqa: PTH112


def find_name(kind: str, text: str, *, also: str | None = None, field: str | None = None) -> str:
    """Return the name of the catalog that was meant.

    Args:
        kind: A folder of the catalog.
        text: What was typed.
        also: Another folder to look in, second.
        field: Field of the question it stands in, for errors.

    Raises:
        InputError: If nothing is like it.
    """
    what = {"clusters": "cluster or accelerator"}.get(kind, kind.removesuffix("s"))
    if not plain(text):
        raise InputError(
            f"unknown {what} `{text}`: it has no letter or digit",
            hint=f"scalewise {kind} lists names" if kind in LISTED else None,
            field=field,
        )
    for folder in (kind, also):
        if folder is not None and (name := name_of(folder, text)) is not None:
            return name
    known: list[str] = names(kind) + (names(also) if also else [])
    scores = {name: score(text, name) for name in known}
    highest = max(scores.values())
    best = [name for name, value in scores.items() if value == highest]
    if highest and len(best) == 1:
        return best[0]
    if highest:
        raise InputError(
            f"`{text}` may be any {what} of {len(best)}",
            hint="say " + " or ".join([", ".join(best[:4]), *best[4:5]]),
            field=field,
        )
    raise InputError(f"unknown {what} `{text}`", hint=did_you_mean(text, known), field=field)
