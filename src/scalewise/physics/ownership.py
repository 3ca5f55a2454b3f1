"""Total cost of ownership of one GPU for an hour of use, to compare with its rent.

hour_of_use(43_000.0, years=4.0, utilization=0.8)
break_even_utilization(43_000.0, years=4.0, rent=2.95)

The purchase counts the GPU with its share of node and network. Capital costs interest, upkeep is a
fraction of the purchase every year, and electricity is paid in hours of use and, at idle power, in
the others. What is left at the end counts as nothing.
"""

from __future__ import annotations

import math

HOURS_PER_YEAR = 8766.0
"""365.25 days."""


def annuity(years: float, interest: float) -> float:
    """Return what has to be paid each year per dollar borrowed.

        i / (1 - (1 + i)^-years),  1 / years without interest

    Args:
        years: Years of use, until nothing is left.
        interest: Of capital, per year.

    >>> annuity(4.0, 0.0)
    0.25
    >>> round(annuity(4.0, 0.08), 4)
    0.3019
    """
    if interest == 0.0:
        return 1.0 / years
    # expm1 and log1p: the difference to 1 is exact for small interest, too.
    return interest / -math.expm1(-years * math.log1p(interest))


def yearly(purchase: float, years: float, interest: float = 0.0, upkeep: float = 0.0) -> float:
    """Return what one GPU costs in a year whether it is used or not, dollars.

        purchase * (annuity + upkeep)

    Args:
        purchase: Of one GPU with its share of node and network, dollars.
        years: Years of use.
        interest: Of capital, per year.
        upkeep: Staff, spare parts, space and support per year, fraction of the purchase.

    >>> yearly(40_000.0, years=4.0, upkeep=0.05)
    12000.0
    """
    return purchase * (annuity(years, interest) + upkeep)


def hour_of_use(
    purchase: float,
    *,
    years: float,
    utilization: float,
    interest: float = 0.0,
    upkeep: float = 0.0,
    watts: float = 0.0,
    idle_watts: float = 0.0,
    usd_per_kwh: float = 0.0,
) -> float:
    """Return the cost of ownership of one GPU for an hour of use, dollars.

        yearly / (8766 * u) + (watts + idle_watts * (1 - u) / u) / 1000 * usd_per_kwh

    Args:
        purchase: Of one GPU with its share of node and network, dollars.
        years: Years of use.
        utilization: Fraction u of the hours in which it is used, 0 to 1.
        interest: Of capital, per year.
        upkeep: Per year, fraction of the purchase.
        watts: Facility power in use.
        idle_watts: Facility power otherwise.
        usd_per_kwh: Price of electricity.

    >>> round(hour_of_use(40_000.0, years=4.0, utilization=0.8), 3)
    1.426
    >>> round(hour_of_use(
    ...     40_000.0, years=4.0, utilization=0.8, upkeep=0.05, watts=1250.0, usd_per_kwh=0.08,
    ... ), 3)
    1.811
    """
    idle = idle_watts * (1.0 - utilization) / utilization
    energy = (watts + idle) / 1000.0 * usd_per_kwh
    return yearly(purchase, years, interest, upkeep) / (HOURS_PER_YEAR * utilization) + energy


def break_even_utilization(
    purchase: float,
    *,
    years: float,
    rent: float,
    interest: float = 0.0,
    upkeep: float = 0.0,
    watts: float = 0.0,
    idle_watts: float = 0.0,
    usd_per_kwh: float = 0.0,
) -> float | None:
    """Return the utilization above which owning costs less than renting; None if it never does.

    `hour_of_use` solved for u = rent:

        (yearly / 8766 + idle) / (rent - energy + idle),  energy and idle in dollars per hour

    Args:
        purchase: Of one GPU with its share of node and network, dollars.
        years: Years of use.
        rent: Price of one GPU for an hour, dollars.
        interest: Of capital, per year.
        upkeep: Per year, fraction of the purchase.
        watts: Facility power in use.
        idle_watts: Facility power otherwise.
        usd_per_kwh: Price of electricity.

    >>> round(break_even_utilization(40_000.0, years=4.0, rent=2.95), 3)
    0.387
    >>> break_even_utilization(40_000.0, years=4.0, rent=1.0) is None
    True
    """
    idle = idle_watts / 1000.0 * usd_per_kwh
    saved = rent - watts / 1000.0 * usd_per_kwh + idle
    if saved <= 0.0:
        return None
    found = (yearly(purchase, years, interest, upkeep) / HOURS_PER_YEAR + idle) / saved
    return found if found <= 1.0 else None
