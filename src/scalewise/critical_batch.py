"""What is known of the critical batch of a run, in words.

parse_critical_batch("laws")                   # published laws
parse_critical_batch("4Mtok")                  # measured, for the data of this run
parse_critical_batch("0.8Mtok@300B,20%")       # measured by 20% more steps, after 300 B tokens
"""

from __future__ import annotations

import re

import msgspec

from scalewise.errors import InputError
from scalewise.units import parse

LAWS = "laws"
"""Word for published laws."""

EXAMPLES = "--critical-batch laws, 4Mtok or 0.8Mtok@300B,20%"

_TOKENS = re.compile(r"(?P<number>.*?)\s*(?:tok(?:ens?)?)?", flags=re.IGNORECASE)
_OVERHEAD = re.compile(r"\d+(?:\.\d+)?%")


class CriticalBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Critical batch of a run: measured, or by laws."""

    batch: float | None = None
    """Measured batch, tokens; None for laws."""
    at: float | None = None
    """Tokens after which it was measured; None for those of the run."""
    overhead: float = 1.0
    """Extra steps at that batch over linear scaling, which define it; 1 for twice the steps."""


def parse_critical_batch(text: str) -> CriticalBatch:
    """Read what is said of the critical batch.

    Raises:
        InputError: If it is neither laws nor a batch in tokens.

    >>> parse_critical_batch("0.8Mtok@300B,20%").overhead
    0.2
    """
    if text.strip().lower() == LAWS:
        return CriticalBatch()
    first, _, rest = (part.strip() for part in text.partition(","))
    size, at, after = (part.strip() for part in first.partition("@"))
    if (rest and not _OVERHEAD.fullmatch(rest)) or (at and not after):
        raise _refused(text)
    batch = _tokens(size, text)
    data = _tokens(after, text) if at else None
    overhead = float(rest.removesuffix("%")) / 100.0 if rest else 1.0
    if not 0.0 < overhead <= 1.0:
        raise _refused(text)
    return CriticalBatch(batch=batch, at=data, overhead=overhead)


def _tokens(text: str, whole: str) -> float:
    match = _TOKENS.fullmatch(text)
    try:
        value = parse(match["number"] if match else text, "tokens")
    except InputError:
        raise _refused(whole) from None
    if value <= 0.0:
        raise _refused(whole)
    return value


def _refused(text: str) -> InputError:
    message = f"--critical-batch {text[:40]}: neither laws nor a batch in tokens"
    return InputError(message, hint=EXAMPLES, field="critical_batch")
