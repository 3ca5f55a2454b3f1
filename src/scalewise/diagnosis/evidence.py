"""Evidence besides rates: a profile of one step, and nccl-tests between two nodes.

    parse_profile("compute=0.62,exposed=0.30,idle=0.08")
    parse_node_rate("3.2GB/s")
    log_evidence(table, Evidence(node_rate=3.2e9))

Logs are read by `logs`, traces by `traces`, and end as the same `Evidence`.
"""

from __future__ import annotations

import math

import msgspec
import numpy as np

from scalewise.diagnosis.parts import COARSE, EXPOSED_PLACES, shares
from scalewise.diagnosis.predict import OTHER_KEY, Table
from scalewise.errors import InputError, did_you_mean
from scalewise.numeric import Array
from scalewise.units import parse

PROFILE_NOISE = 0.07
"""Standard deviation of a fraction: 5% of the profile, 5% of the model."""

NODE_NOISE = 0.24
"""Standard deviation (log) of nccl-tests against the rate a step sees: that of communication in
`catalog/ranges.toml`. In a public case it is 4 to 21% (blog "IB vs Ethernet fine-tuning at
scale")."""

PADDED = 0.5
"""Part of the prior of `padding` that is padding: the other one is stalls of checkpoints and
evaluation, which steady steps leave out. Judgement."""

WAITED_NOISE = 0.05
"""Standard deviation of the fraction that waits for data: loaders run ahead, and ranks differ."""

NODE_LOSS = 100.0
"""Factor over which a network that is slow for an unlisted reason spreads, flat in the log."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is known besides rates."""

    profile: dict[str, float] | None = None
    """Fractions of the step by part, as in `parts.PROFILE`."""
    node_rate: float | None = None
    """Bus bandwidth of nccl-tests between two nodes, bytes/s per node."""
    waited: float | None = None
    """Fraction of the step that waits for data, as a framework measures it."""
    steady: bool = False
    """Whether the measured number is that of steady steps, without stalls between them."""


def parse_profile(text: str) -> dict[str, float]:
    """Read the fractions of a step.

    Args:
        text: Such as "compute=0.62,exposed=0.30,idle=0.08", or in percent: "compute=62%".

    Raises:
        InputError: If a part is unknown, or a fraction cannot be.
    """
    found: dict[str, float] = {}
    for piece in text.split(","):
        name, _, number = (part.strip() for part in piece.partition("="))
        if name not in COARSE:
            raise InputError(
                f"--profile {piece.strip()[:40]}: unknown part",
                hint=did_you_mean(name, COARSE),
                field="profile",
            )
        try:
            value = float(number.removesuffix("%")) / (100.0 if number.endswith("%") else 1.0)
        except ValueError:
            value = math.nan
        if not 0.0 <= value <= 1.0:
            raise InputError(
                f"--profile {piece.strip()[:40]}: must be a fraction between 0 and 1",
                hint="for example compute=0.62,exposed=0.30,idle=0.08",
                field="profile",
            )
        if name in found:
            raise InputError(f"--profile: {name} is given twice", field="profile")
        found[name] = value
    if sum(found.values()) > 1.05:
        raise InputError(
            f"--profile {text[:60]}: the fractions add up to more than 1",
            hint="overlapped communication counts as compute",
            field="profile",
        )
    return found


def parse_node_rate(text: str | float) -> float:
    """Read the bus bandwidth of nccl-tests, bytes/s per node.

    Raises:
        InputError: If it is not a positive rate.
    """
    try:
        value = parse(text, "bytes_per_second")
    except InputError as error:
        raise InputError(f"--nccl: {error}", hint=error.hint, field="nccl") from error
    if not value > 0.0:
        raise InputError(
            f"--nccl {text}: must be greater than 0", hint="for example 3.2GB/s", field="nccl"
        )
    return value


def log_profile(table: Table, profile: dict[str, float], run: int = 0) -> Array:
    """Return the log likelihood of a profile of one run, by point."""
    total = np.zeros(len(table.cause))
    for name, fraction in profile.items():
        away = (fraction - shares(table.parts[run], name)) / PROFILE_NOISE
        total = total - 0.5 * away**2
    return total


def log_nccl(table: Table, node_rate: float | Array) -> Array:
    """Return the log likelihood of nccl-tests between two nodes, by point.

    A network that is slow for an unlisted reason may have any rate below the usual one.

    Args:
        table: Predictions.
        node_rate: Measured bytes/s per node, or several, one on each row.
    """
    measured = np.log(np.asarray(node_rate, dtype=float))[..., None]
    away = (measured - table.log_node_rate) / NODE_NOISE
    usual = np.asarray(-0.5 * away**2 - np.log(NODE_NOISE * np.sqrt(2.0 * np.pi)))
    waits = (table.cause == table.keys.index(OTHER_KEY)) & np.isin(table.variant, EXPOSED_PLACES)
    below = (table.log_node_rate - measured) / np.log(NODE_LOSS)
    inside = (below > -0.1) & (below <= 1.0)
    floor = np.where(inside, -np.log(np.log(NODE_LOSS)), -50.0)
    return np.where(waits, np.maximum(floor, np.minimum(usual, 0.0) - 50.0), usual)


def log_waited(table: Table, waited: float, run: int = 0) -> Array:
    """Return the log likelihood of the fraction of a step that waits for data, by point.

    Under the cause that waits for data it is what the step idles beyond a healthy one, and nothing
    under all others: it is the time inside the loader.

    Args:
        table: Predictions.
        waited: Measured fraction.
        run: Run it was measured of.
    """
    idle = shares(table.parts[run], "idle")
    beyond = np.maximum(idle - idle[0], 0.0)
    here = table.cause == (table.keys.index("stall") if "stall" in table.keys else -1)
    expected = np.where(here, beyond, 0.0)
    away = (waited - expected) / WAITED_NOISE
    return np.asarray(-0.5 * away**2)


def log_evidence(table: Table, evidence: Evidence, run: int = 0) -> Array:
    """Return the log likelihood of all evidence, by point.

    Args:
        table: Predictions.
        evidence: What is known.
        run: Run that was profiled.
    """
    total = np.zeros(len(table.cause))
    if evidence.profile is not None:
        total = total + log_profile(table, evidence.profile, run)
    if evidence.node_rate is not None:
        total = total + log_nccl(table, evidence.node_rate)
    if evidence.waited is not None:
        total = total + log_waited(table, evidence.waited, run)
    if evidence.steady and "padding" in table.keys:
        total = total + np.where(table.cause == table.keys.index("padding"), np.log(PADDED), 0.0)
    return total
