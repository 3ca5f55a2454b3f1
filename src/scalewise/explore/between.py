"""Sizes between and beyond those that were asked for.

    between(256, 512, node=8)           # (288, 320, ..., 480)
    beyond(256)                         # (512, 1024, ...)

Between two sizes of which one is within the limits and one is not, the size that just is lies
somewhere: eighths of the gap in whole nodes, and once more between the two that remain.
"""

from __future__ import annotations

from collections.abc import Iterator

PARTS = 8
"""Parts of a gap that are tried at once."""

FARTHEST = 64
"""How many times the largest size is looked at beyond it."""


def between(small: int, large: int, node: int) -> tuple[int, ...]:
    """Return up to seven sizes inside a gap, multiples of a node where the ends are larger.

    >>> between(256, 512, node=8)
    (288, 320, 352, 384, 416, 448, 480)
    >>> between(2, 8, node=8)
    (3, 4, 5, 6, 7)
    >>> between(288, 320, node=8)
    (296, 304, 312)
    """
    step = node if small >= node else 1
    found = {
        step * round((small + (large - small) * part / PARTS) / step) for part in range(1, PARTS)
    }
    return tuple(sorted(size for size in found if small < size < large))


def beyond(largest: int) -> Iterator[int]:
    """Yield powers of two times the largest size.

    >>> list(beyond(256))[:3]
    [512, 1024, 2048]
    """
    factor = 2
    while factor <= FARTHEST:
        yield largest * factor
        factor *= 2
