"""Check that no source file is too long, and no line of JavaScript or CSS too wide.

    python scripts/check_sizes.py

Prints the largest files. Exits with 1 if a file has more lines than its limit and no reason in
`REASONS`, if a reason is no longer needed, or if a line is wider than its limit. Split a long file
by technique; a reason is for one that would be harder to read in two parts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

LIMITS = {".py": 600, ".js": 400, ".css": 400}
"""Lines of a file by suffix, comments and blank lines included."""

MAX_COLUMNS = {".js": 120, ".css": 120}
"""Characters of a line by suffix; ruff checks Python."""

SHOWN = 5
"""Number of largest files that are printed."""

FOLDERS = ("src", "tests", "scripts", "benchmarks", "examples", "docs", "fuzz")

REASONS: dict[str, str] = {}
"""Files that may be longer, with the reason: {"src/scalewise/x.py": "one table"}."""


def sources(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield path and lines of every source file.

    Args:
        root: The folder of the repository.
    """
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in LIMITS:
                yield path.relative_to(root).as_posix(), path.read_text("utf-8").splitlines()


def too_long(counts: dict[str, int], reasons: dict[str, str]) -> list[str]:
    """Return one sentence for each file that is too long, and for each needless reason.

    Args:
        counts: Lines by path.
        reasons: Why a path may be longer than its limit.
    """
    over = {path for path, lines in counts.items() if lines > LIMITS[Path(path).suffix]}
    found = [
        f"{path}: {counts[path]} lines, the limit is {LIMITS[Path(path).suffix]}: "
        "split it, or give a reason in REASONS"
        for path in counts
        if path in over and path not in reasons
    ]
    found += [
        f"{path}: {counts.get(path, 0)} lines, within the limit: remove it from REASONS"
        for path in reasons
        if path not in over
    ]
    return found


def too_wide(path: str, lines: list[str]) -> list[str]:
    """Return one sentence for each line that is too wide.

    Args:
        path: Path of the file.
        lines: Its lines.
    """
    limit = MAX_COLUMNS.get(Path(path).suffix)
    return [
        f"{path}:{number}: {len(line)} columns, the limit is {limit}: break the line"
        for number, line in enumerate(lines, 1)
        if limit is not None and len(line) > limit
    ]


def main() -> int:
    """Print the largest files; return the exit code."""
    files = dict(sources(Path(__file__).resolve().parent.parent))
    counts = {path: len(lines) for path, lines in files.items()}
    counts = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    print(f"{len(counts)} source files, {sum(counts.values())} lines; the largest:")
    for path, lines in list(counts.items())[:SHOWN]:
        print(f"{lines:6d}  {path}  {REASONS.get(path, '')}".rstrip())
    found = too_long(counts, REASONS)
    for path, text in files.items():
        found += too_wide(path, text)
    for sentence in found:
        print(f"error: {sentence}", file=sys.stderr)
    return 1 if found or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
