"""Price of a GPU-hour: a number with its kind, date, source and region.

    load_cluster("aws-p5").price            # Price(usd_per_hour=6.88, kind="list", ...)
    load_cluster("dgx-h100").price.words    # "market 2026-05"

Prices of different kinds are not comparable: a list price is what a cloud asks without a contract,
a market price the middle of many offers, a reserved price what a commitment gets. Outputs name the
kind beside the number. This file imports nothing else of scalewise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

PriceKind: TypeAlias = Literal["list", "market", "reserved", "yours", "owned"]
"""list: on demand, without a contract. market: middle of the offers for a chip. reserved: with a
commitment. yours: stated by the user. owned: computed from a purchase."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """Dollars of one GPU with its node for an hour."""

    usd_per_hour: float
    """Dollars per hour."""
    kind: PriceKind
    """What the number is."""
    date: str = ""
    """When it was published, YYYY-MM; empty if unknown, or stated by the user."""
    source: str = ""
    """Where it was read."""
    region: str = ""
    """Where it holds; empty for no stated region."""
    chip: str = ""
    """Accelerator that it is inherited from; empty for the cluster's own price."""

    @property
    def words(self) -> str:
        """Kind and date: "list 2026-04", "list undated", "yours"."""
        if self.kind in ("yours", "owned"):
            return f"{self.kind} {self.date}".strip()
        return f"{self.kind} {self.date or 'undated'}"


def mixed_kinds(prices: Iterable[tuple[str, Price]]) -> str:
    """Return which kinds of price stand side by side; empty where there is one.

    Args:
        prices: Clusters with their prices.

    >>> a, b = Price(usd_per_hour=3.0, kind="market"), Price(usd_per_hour=7.0, kind="list")
    >>> mixed_kinds([("dgx-h100", a), ("aws-p5", b)])
    'market (dgx-h100), list (aws-p5)'
    >>> mixed_kinds([("dgx-h100", a), ("dgx-a100", a)])
    ''
    """
    found: dict[str, dict[str, None]] = {}
    for name, price in prices:
        found.setdefault(price.kind, {})[name] = None
    return ", ".join(f"{kind} ({', '.join(on)})" for kind, on in found.items() if len(found) > 1)
