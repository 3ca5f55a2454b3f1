"""Words of deadlines and budgets.

days_of("21d")          # 21.0
dollars_of("$1.5M")     # 1500000.0
"""

from __future__ import annotations

from scalewise.errors import InputError
from scalewise.units import parse


def days_of(text: str, name: str = "--deadline") -> float:
    """Return the days of a deadline.

    Raises:
        InputError: If it is no time.

    >>> days_of("3h")
    0.125
    """
    if text.strip().replace(".", "").isdecimal():
        raise InputError(
            f"{name} {text}: has no unit", hint=f"{name} {text.strip()}d", field="deadline"
        )
    try:
        seconds = parse(text, "seconds")
    except InputError as error:
        raise InputError(f"{name} {text}: {error}", hint=f"{name} 30d", field="deadline") from None
    if seconds <= 0.0:
        raise InputError(f"{name} {text}: must be positive", hint=f"{name} 30d", field="deadline")
    return seconds / 86400.0


def dollars_of(text: str) -> float:
    """Return the dollars of a budget.

    Raises:
        InputError: If it is no amount.

    >>> dollars_of("$1.5M"), dollars_of("250,000")
    (1500000.0, 250000.0)
    """
    try:
        usd = parse(text.strip().lstrip("$"), "count")
    except InputError:
        usd = 0.0
    if usd <= 0.0:
        raise InputError(
            f"--budget {text}: not an amount of dollars", hint="--budget 1.5M", field="budget"
        )
    return usd
