r"""A kind of step line: what marks it, and which numbers it has.

    StepLine(framework="nanogpt", mark=b": loss ", pattern=re.compile(rb"iter (?P<step>\d+): ..."))

Groups of a pattern are named after `GROUPS`, which have the unit of each. Every number must be
followed by what the framework prints after it: a line that was cut inside a number has another one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Memory = Literal["reserved", "allocated", ""]
"""What PyTorch's caching allocator holds, or what tensors of it occupy."""

GIB = float(2**30)

GROUPS: dict[str, tuple[str, float]] = {
    "step": ("step", 1.0),
    "seconds": ("seconds", 1.0),
    "ms": ("seconds", 1e-3),
    "tps": ("device_tokens", 1.0),
    "total_tps": ("total_tokens", 1.0),
    "sps": ("samples", 1.0),
    "loss": ("loss", 1.0),
    "gib": ("memory", GIB),
    "bytes": ("memory", 1.0),
    "batch": ("batch", 1.0),
    "micro": ("micro", 1.0),
}
"""Column and factor to its unit by name of a group: seconds of a step, tokens/s per GPU and in
total, sequences/s in total, loss, bytes of the fullest printed GPU, sequences of a step, and number
of the micro-batch."""

NUMBER = rb"\d[\d,]*(?:\.\d+)?(?:[eE][+-]?\d+)?"
"""A number, with commas between thousands or without."""

HUMAN = rb"\d+(?:\.\d+)?[KMBGT]?"
"""A number with three digits and a letter for thousands, as nanotron prints it."""

_LETTERS = {b"K": 1e3, b"M": 1e6, b"B": 1e9, b"G": 1e9, b"T": 1e12}

ANSI = re.compile(rb"\x1b\[[0-9;]*m")
"""Colors of a terminal."""


@dataclass(frozen=True, kw_only=True)
class StepLine:
    """How one framework prints a step."""

    framework: str
    """Name as in `scalewise stacks`, or the program's own."""
    mark: bytes
    """What every such line has exactly once; lines without it are not read."""
    pattern: re.Pattern[bytes]
    """Numbers of the line, in groups named after `GROUPS`."""
    once: tuple[bytes, ...] = ()
    """What else such a line has exactly once: two of them are two lines in one."""
    twice: tuple[bytes, ...] = ()
    """What such a line has exactly twice."""
    states: Callable[[bytes], dict[str, tuple[str, int]]] | None = None
    """What it prints before the first step: words of a question, each with its place."""
    memory: Memory = ""
    """Kind of its memory."""
    digits: float = 0.0
    """Relative error of what is printed with few digits."""
    dense: bool = False
    """Whether its pattern has the mark and all other words, and only `[^\\0]` and `\\s` of it could
    match the end of a line: blocks of such lines are read at once."""
    window: bool = False
    """Whether a number is the mean since the last line, and not of one step alone."""


def number(text: bytes) -> float:
    """Return a printed number: commas between thousands, or a letter behind it.

    >>> number(b"7,282"), number(b"11.4K")
    (7282.0, 11400.0)
    """
    letter = text[-1:]
    if letter in _LETTERS:
        return float(text[:-1]) * _LETTERS[letter]
    return float(text.replace(b",", b"") if b"," in text else text)
