"""Words of ownership: "purchase=43000,years=4,utilization=0.8,upkeep=0.05,interest=0.08,kwh=0.08".

    owned = parse_own("on").of(cluster, watts, load_region("us"))
    owned.usd_per_hour, owned.words

What is not stated is a known purchase price of the chip, the electricity of the region, and
assumptions that are listed with the answer. `physics.ownership` has the formula.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scalewise.errors import InputError, did_you_mean
from scalewise.physics import ownership

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.region import Region

ASSUMED = {"years": 4.0, "utilization": 0.8, "interest": 0.0, "upkeep": 0.0}
"""Inputs without a source: assumptions, named in the output wherever they are used."""

HINT = "for example --own purchase=43000,years=4,utilization=0.8,kwh=0.08"

_KNOWN = ("purchase", *ASSUMED, "kwh")


@dataclass(frozen=True, kw_only=True)
class Owned:
    """Ownership of one GPU of a cluster."""

    purchase: float
    """Purchase with its share of node and network, dollars."""
    source: str
    """Where it is from."""
    usd_per_hour: float
    """Total cost of an hour of use, dollars."""
    words: str
    """The inputs, as a phrase."""
    inputs: dict[str, float]
    """Arguments of `physics.ownership.hour_of_use`."""

    def utilization(self, rent: float) -> float | None:
        """Utilization above which owning costs less than a rent; None if it never does."""
        inputs = {name: value for name, value in self.inputs.items() if name != "utilization"}
        return ownership.break_even_utilization(self.purchase, rent=rent, **inputs)


@dataclass(frozen=True, kw_only=True)
class Own:
    """What is said of ownership."""

    stated: dict[str, float] = field(default_factory=dict)
    """Numbers by name."""

    def of(self, cluster: Cluster, watts: float | None, region: Region) -> Owned:
        """Return the ownership of one GPU of a cluster.

        Args:
            cluster: The cluster.
            watts: Facility power of one GPU in training; None if unknown.
            region: Whose electricity it takes where no price is stated.

        Raises:
            InputError: If the purchase price or the price of electricity is neither stated nor
                known.
        """
        chip = cluster.accelerator
        purchase, source = self.stated.get("purchase"), "yours"
        if purchase is None:
            purchase, source = chip.purchase_usd, f"{chip.purchase_date}: {chip.purchase_source}"
        if purchase is None:
            raise InputError(
                f"--own: no purchase price of {chip.name} is known",
                hint="state it per GPU with node and network: --own purchase=60000", field="own",
            )  # fmt: skip
        kwh, of = self.stated.get("kwh", region.usd_per_kwh), "yours"
        if "kwh" not in self.stated:
            of = f"{region.name} {region.price_year}"
        if kwh is None:
            raise InputError(
                f"--own: no price of electricity is known for region {region.name}",
                hint="state it: --own kwh=0.08, or choose --region us", field="own",
            )  # fmt: skip
        assumed = {name: self.stated.get(name, value) for name, value in ASSUMED.items()}
        idle = (cluster.idle or 0.0) + cluster.host_watts + cluster.network_watts
        inputs = assumed | {
            "watts": watts or 0.0, "idle_watts": idle * cluster.pue, "usd_per_kwh": kwh,
        }  # fmt: skip
        marks = {name: "" if name in self.stated else " (assumed)" for name in ASSUMED}
        words = ", ".join(
            [
                *(f"{name} {assumed[name]:g}{marks[name]}" for name in ASSUMED),
                f"${kwh:g}/kWh ({of})",
            ]
        )
        usd = ownership.hour_of_use(purchase, **inputs)
        return Owned(purchase=purchase, source=source, usd_per_hour=usd, words=words, inputs=inputs)


def parse_own(text: str) -> Own:
    """Read what is said of ownership; "on" states nothing.

    Raises:
        InputError: If a word or number is wrong.

    >>> parse_own("purchase=43000,years=5").stated
    {'purchase': 43000.0, 'years': 5.0}
    """
    stated: dict[str, float] = {}
    for part in [] if text.strip().lower() == "on" else text.split(","):
        name, equals, value = (each.strip() for each in part.partition("="))
        name = name.lower()
        if name not in _KNOWN or not equals:
            hint = HINT if not equals else did_you_mean(name, _KNOWN)
            raise InputError(f"--own: unknown setting {part.strip()[:40]}", hint=hint, field="own")
        stated[name] = _number(name, value)
    return Own(stated=stated)


def _number(name: str, text: str) -> float:
    """Read one number: dollars, years, or a fraction that may be written with %."""
    percent = text.endswith("%")
    try:
        value = float(text.removesuffix("%").lstrip("$").replace("_", ""))
    except ValueError:
        value = -1.0
    value = value / 100.0 if percent else value
    positive = name in ("purchase", "years", "utilization")
    highest = 1.0 if name in ("utilization", "interest", "upkeep") else float("inf")
    if not (0.0 < value <= highest or (value == 0.0 and not positive)):
        rule = "positive" if positive else "at least 0"
        limit = " and at most 1" if highest == 1.0 else ""
        raise InputError(f"--own {name}={text[:20]}: must be {rule}{limit}", hint=HINT, field="own")
    return value
