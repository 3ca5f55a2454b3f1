"""Markdown from code: tables, docstrings, fences, folded blocks.

    table(["name", "meaning"], [["`tp`", "Tensor-parallel degree."]])
    docstring(function.__doc__)

This file imports nothing else of the site.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence

SECTIONS = ("Args", "Returns", "Raises", "Attributes", "Yields")


def cell(text: object) -> str:
    """Return one table cell: a single line with bars escaped outside of code spans."""
    parts = re.split(r"(`+[^`]*`+)", " ".join(str(text).split()))
    return "".join(p if p.startswith("`") else p.replace("|", "\\|") for p in parts)


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], right: str = "") -> str:
    """Return a table.

    Args:
        heads: Names of the columns.
        rows: Their cells.
        right: One letter per column, "r" for those that hold numbers.

    Returns:
        Markdown; empty without rows.
    """
    lines = [f"| {' | '.join(cell(c) or ' ' for c in row)} |" for row in rows]
    if not lines:
        return ""
    rule = ["---:" if right[i : i + 1] == "r" else "---" for i in range(len(heads))]
    return "\n".join([f"| {' | '.join(heads)} |", f"| {' | '.join(rule)} |", *lines]) + "\n"


def fence(text: str, language: str = "text", kind: str = "") -> str:
    """Return a block of code; the fence is longer than any fence inside."""
    ticks = "`" * max(3, 1 + max((len(t) for t in re.findall(r"`{3,}", text)), default=0))
    style = f" {{ .{language} .{kind} }}" if kind else language
    return f"{ticks}{style}\n{text.rstrip()}\n{ticks}\n"


def folded(title: str, inside: str, kind: str = "note") -> str:
    """Return a block that opens on a click."""
    body = "\n".join(f"    {line}".rstrip() for line in inside.rstrip().splitlines())
    return f'??? {kind} "{title}"\n\n{body}\n'


def indented(text: str) -> str:
    """Turn the indented examples of a docstring into blocks."""
    out: list[str] = []
    inside: list[str] = []

    def close() -> None:
        if any(line.strip() for line in inside):
            while inside and not inside[-1].strip():
                inside.pop()
            out.append(fence("\n".join(line[4:] for line in inside)))
        inside.clear()

    before = ""
    for line in text.splitlines():
        is_code = line.startswith("    ") and (inside or not before.strip())
        if is_code or (inside and not line.strip()):
            inside.append(line)
        else:
            close()
            out.append(line)
        before = line
    close()
    return "\n".join(out)


def entries(text: str) -> list[tuple[str, str]]:
    """Read "name: meaning" lines with their continuations."""
    found: list[tuple[str, str]] = []
    for line in inspect.cleandoc(text).splitlines():
        match = re.match(r"(\*{0,2}\w+(?: \([^)]*\))?):\s*(.*)", line)
        if match and not line.startswith(" "):
            found.append((match[1], match[2]))
        elif found and line.strip():
            name, meaning = found[-1]
            found[-1] = (name, f"{meaning} {line.strip()}")
    return found


def docstring(text: str | None) -> str:
    """Turn a Google-style docstring into Markdown."""
    clean = inspect.cleandoc(text or "")
    names = "|".join(SECTIONS)
    parts = re.split(rf"^({names}):\n", clean, flags=re.MULTILINE)
    out = [indented(parts[0]).strip()]
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        block, _, rest = _dedented_end(body)
        if name in {"Returns", "Yields"}:
            out.append(f"**{name}** {' '.join(block.split())}")
        else:
            rows = [(f"`{key}`", meaning) for key, meaning in entries(block)]
            head = {"Args": "argument", "Raises": "raises", "Attributes": "attribute"}[name]
            out.append(table([head, "meaning"], rows))
        if rest.strip():
            out.append(indented(rest).strip())
    return "\n\n".join(part for part in out if part.strip()) + "\n"


def _dedented_end(body: str) -> tuple[str, str, str]:
    """Split a section from prose that follows it without indentation."""
    match = re.search(r"^\S", body, flags=re.MULTILINE)
    if not match:
        return body, "", ""
    return body[: match.start()], "", body[match.start() :]
