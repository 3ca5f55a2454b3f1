"""Carbon: energy of the facility times the carbon intensity of its electricity.

emissions(3.6e9, kg_per_kwh=0.35)       # 1 MWh
"""

from __future__ import annotations

from scalewise.numeric import Num

JOULES_PER_KWH = 3.6e6


def emissions(joules: Num, kg_per_kwh: Num) -> Num:
    """Return the emissions of electricity, kg CO2.

        joules / 3.6e6 * kg_per_kwh

    Emissions of making the hardware are not part of it.

    Args:
        joules: Energy of the facility.
        kg_per_kwh: Carbon intensity of the electricity.

    >>> emissions(3.6e9, kg_per_kwh=0.35)
    350.0
    """
    return joules / JOULES_PER_KWH * kg_per_kwh
