"""Logs of `tests/data/logs`."""

from __future__ import annotations

from pathlib import Path

DATA = Path(__file__).parent.parent / "data" / "logs"


def public_lines() -> list[tuple[str, str]]:
    """Framework and line, as posted."""
    rows = (DATA / "public.txt").read_text(encoding="utf-8").splitlines()
    return [(name, line.replace("\\x1b", "\x1b")) for name, _, line in
            (row.partition("\t") for row in rows)]  # fmt: skip
