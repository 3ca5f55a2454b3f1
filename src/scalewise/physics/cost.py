"""Cost: GPU-hours times their price.

usd_per_token(2.95, tokens_per_second=9000.0)
"""

from __future__ import annotations

from scalewise.numeric import Num

SECONDS_PER_HOUR = 3600.0


def usd_per_token(usd_per_hour: Num, tokens_per_second: Num) -> Num:
    """Return dollars per token.

        usd_per_hour / 3600 / tokens_per_second

    Args:
        usd_per_hour: Price of one accelerator for an hour.
        tokens_per_second: Tokens per second of one accelerator.

    >>> round(1e6 * usd_per_token(2.95, tokens_per_second=9000.0), 4)     # per million
    0.091
    """
    return usd_per_hour / SECONDS_PER_HOUR / tokens_per_second


def dollars(usd_per_hour: Num, accelerators: Num, seconds: Num) -> Num:
    """Return the cost of `accelerators` for `seconds`, dollars.

        usd_per_hour * accelerators * seconds / 3600

    Args:
        usd_per_hour: Price of one accelerator for an hour.
        accelerators: How many.
        seconds: For how long.

    >>> dollars(2.5, accelerators=8.0, seconds=1800.0)
    10.0
    """
    return usd_per_hour * accelerators * seconds / SECONDS_PER_HOUR


def break_even_price(usd_per_hour: Num, *, rate: Num, other: Num) -> Num:
    """Return the price below which a GPU trains a token for less than another one does.

        usd_per_hour * rate / other

    Args:
        usd_per_hour: Price of the other one for an hour.
        rate: Tokens per second of the one without a price.
        other: Tokens per second of the other one.

    >>> break_even_price(2.5, rate=2200.0, other=1000.0)
    5.5
    """
    return usd_per_hour * rate / other
