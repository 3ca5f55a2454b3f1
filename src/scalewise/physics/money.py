"""What a step costs: accelerator-hours times their price.

dollars_per_token(2.95, tokens_per_second=9000.0)
"""

from __future__ import annotations

from scalewise.numeric import Num

SECONDS_PER_HOUR = 3600.0


def dollars_per_token(usd_per_hour: Num, tokens_per_second: Num) -> Num:
    """Return dollars per token.

    Args:
        usd_per_hour: Price of one accelerator for an hour.
        tokens_per_second: Tokens per second of one accelerator.
    """
    return usd_per_hour / SECONDS_PER_HOUR / tokens_per_second


def dollars(usd_per_hour: Num, accelerators: Num, seconds: Num) -> Num:
    """Return what `accelerators` cost for `seconds`."""
    return usd_per_hour * accelerators * seconds / SECONDS_PER_HOUR
