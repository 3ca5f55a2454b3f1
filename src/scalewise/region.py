"""Electricity of a region: carbon intensity and price.

    load_region("france").kg_per_kwh        # 0.041 (scalewise.catalog.regions)

Every number has its year and source; what is not published is None. This file imports only
`errors` of scalewise.
"""

from __future__ import annotations

import math

import msgspec

from scalewise.errors import InputError


class Region(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Electricity of one country or of the world."""

    name: str
    """Name: "france"."""
    kg_per_kwh: float
    """Carbon intensity of the electricity, kg CO2 (or CO2e, see the source) per kWh."""
    carbon_year: str
    """Year of the carbon intensity."""
    carbon_source: str
    """Where it was read."""
    usd_per_kwh: float | None = None
    """Price for industry, dollars per kWh; None if none was found with a source."""
    price_year: str = ""
    """Year of the price."""
    price_source: str = ""
    """Where it was read."""

    def __post_init__(self) -> None:
        for field in ("kg_per_kwh", "usd_per_kwh"):
            value = getattr(self, field)
            if value is not None and not (math.isfinite(value) and value >= 0.0):
                raise InputError(f"region `{self.name}`: {field} = {value:g} must be at least 0")
