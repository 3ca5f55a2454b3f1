"""The shape of an explanation: a formula in letters, its inputs, the numbers put in, the result.

    Explained(key="optimizer", title="Optimizer update", formula="T = b P / B", inputs=(...), ...)

`explain_terms`, `explain_memory` and `explain` build these; `explain` prints them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from scalewise.units import format_seconds


class Letter(NamedTuple):
    """One letter of a formula."""

    letter: str
    """As it stands in the formula."""
    value: str
    """Its value, with unit."""
    meaning: str
    """What it is."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """One number of an estimate, worked out."""

    key: str
    """The term, memory part or other result it explains, as the estimate names it."""
    kind: Literal["term", "memory", "result"] = "result"
    """Which table of the estimate has it: `terms`, `memory`, or the estimate itself."""
    title: str
    """What it is, in words."""
    formula: str
    """In letters."""
    letters: tuple[Letter, ...] = ()
    """What the letters stand for."""
    working: tuple[str, ...] = ()
    """Intermediate results, one line each."""
    result: float
    """The number itself, SI."""
    show: Callable[[float], str] = field(default=format_seconds)
    """Prints the result with its unit."""
    source: str = ""
    """Where formula and constants come from."""


def plain(value: float) -> str:
    """Print a count or a plain factor: "4,096", "0.7"."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:,.4g}"
