"""Is any Python file too long to read in one sitting?

    python scripts/check_sizes.py

Prints the largest files and exits with 1 if one has more than `LIMIT` lines and no reason in
`REASONS`, or if a reason is no longer needed. The remedy is to split the file by idea; a reason
is for what would be harder to read in two places.
"""

from __future__ import annotations

import sys
from pathlib import Path

LIMIT = 600
"""Lines, comments and blank lines included."""

SHOWN = 5
"""How many of the largest files are printed."""

FOLDERS = ("src", "tests", "scripts", "benchmarks", "examples", "docs")

REASONS: dict[str, str] = {}
"""Files that may be longer, and why: {"src/scalewise/x.py": "one table, read as a whole"}."""


def line_counts(root: Path) -> dict[str, int]:
    """Count the lines of every Python file.

    Args:
        root: The folder of the repository.

    Returns:
        Lines by path relative to `root`, the longest first.
    """
    files = [path for folder in FOLDERS for path in (root / folder).rglob("*.py")]
    counts = {
        path.relative_to(root).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in files
    }
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def complaints(counts: dict[str, int], reasons: dict[str, str]) -> list[str]:
    """Return one sentence for each file that breaks the rule.

    Args:
        counts: Lines by path.
        reasons: Why a path may be longer than the limit.
    """
    found = [
        f"{path} has {lines} lines, the limit is {LIMIT}: split it, or give a reason in REASONS"
        for path, lines in counts.items()
        if lines > LIMIT and path not in reasons
    ]
    found += [
        f"{path} is listed in REASONS but has {counts.get(path, 0)} lines: take it off the list"
        for path in reasons
        if counts.get(path, 0) <= LIMIT
    ]
    return found


def main() -> int:
    """Print the largest files; return the exit code."""
    counts = line_counts(Path(__file__).resolve().parent.parent)
    print(f"{len(counts)} Python files, {sum(counts.values())} lines; the largest:")
    for path, lines in list(counts.items())[:SHOWN]:
        print(f"{lines:6d}  {path}  {REASONS.get(path, '')}".rstrip())
    found = complaints(counts, REASONS)
    for sentence in found:
        print(f"error: {sentence}", file=sys.stderr)
    return 1 if found or not counts else 0


if __name__ == "__main__":
    sys.exit(main())
