"""Renderer of sideways bars as text, for terminals.

    bar_lines(panel, 30)            # one bar of at most 30 characters per category

A bar that starts at zero is solid; one that starts elsewhere is shaded. ASCII unless the terminal
has block characters.
"""

from __future__ import annotations

from scalewise.report.figure import Panel, Value
from scalewise.report.words import bar


def bar_lines(panel: Panel, width: int, *, blocks: bool = True) -> list[str]:
    """Return the bars of a panel as text, one line per category.

    Args:
        panel: Sideways bars, one per category.
        width: Characters of the longest bar.
        blocks: Whether block characters are used.
    """
    reach = max(panel.values, default=0.0) or 1.0
    lines: dict[Value, str] = dict.fromkeys(panel.x.values, "")
    for trace in panel.traces:
        starts = trace.base or [0.0] * len(trace.xs)
        for x, start, length in zip(trace.xs, starts, trace.ys, strict=True):
            low, high = start / reach, (start + (length or 0.0)) / reach
            lines[x] = floating_bar(low, high, width, blocks=blocks) if start else (
                bar(high, width, blocks=blocks)
            )  # fmt: skip
    return list(lines.values())


def floating_bar(low: float, high: float, width: int, *, blocks: bool = True) -> str:
    """Return a shaded bar between two fractions of the width, at least one character long."""
    # Whole characters, because a bar can begin only where a character begins.
    first = min(round(max(low, 0.0) * width), width - 1)
    last = max(round(max(high, 0.0) * width), first + 1)
    return " " * first + ("\u2592" if blocks else "=") * (last - first)
