"""What would the next upgrade buy? Change one thing at a time and look.

    for row in sensitivity(model, cluster, workload, strategy):
        row.name, row.elasticity, row.upgrade, row.gain

The elasticity is the local one: per cent of throughput per per cent of the quantity. The upgrade
is finite, because a doubled network moves the bottleneck. The strategy stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from scalewise.step.estimate import choose_stack, estimate

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.stack import Stack
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload

STEP = 0.01
"""Relative change for the local derivative."""

Change = Callable[["Cluster", "Stack", float], "tuple[Cluster, Stack]"]
"""(cluster, stack, factor) -> the same, with one quantity better by the factor."""


@dataclass(frozen=True, kw_only=True)
class Sensitivity:
    """What one quantity is worth."""

    name: str
    elasticity: float | None
    """Per cent of tokens/s per per cent of the quantity; None for a switch."""
    upgrade: str
    """The finite change."""
    gain: float
    """Share of tokens/s it brings."""
    energy_gain: float | None
    """Share of tokens per joule it brings; None where power is not known."""
    cost_gain: float | None
    """Share of tokens per dollar it brings at the same price; None without a price."""


def _chip(cluster: Cluster, stack: Stack, **changes: object) -> tuple[Cluster, Stack]:
    return cluster.with_(accelerator=cluster.accelerator.with_(**changes)), stack


def _fabric(cluster: Cluster, stack: Stack, **changes: object) -> tuple[Cluster, Stack]:
    return cluster.with_(fabric=msgspec.structs.replace(cluster.fabric, **changes)), stack


def _peak(cluster: Cluster, stack: Stack, factor: float) -> tuple[Cluster, Stack]:
    peaks = {dtype: rate * factor for dtype, rate in cluster.accelerator.peak_flops.items()}
    return _chip(cluster, stack, peak_flops=peaks)


def _latency(cluster: Cluster, stack: Stack, factor: float) -> tuple[Cluster, Stack]:
    fabric = cluster.fabric
    return _fabric(
        cluster,
        stack,
        hop_seconds=fabric.hop_seconds / factor,
        call_seconds=fabric.call_seconds / factor,
        ring_step_seconds=fabric.ring_step_seconds / factor,
        latency_factor=fabric.latency_factor / factor,
    )


CONTINUOUS: dict[str, Change] = {
    "peak FLOP/s": _peak,
    "memory bandwidth": lambda c, s, f: _chip(
        c, s, memory_bandwidth=c.accelerator.memory_bandwidth * f
    ),
    "scale-up bandwidth": lambda c, s, f: (
        c.with_(scale_up_bandwidth=c.scale_up_bandwidth * f),
        s,
    ),
    "scale-out bandwidth": lambda c, s, f: (
        c.with_(scale_out_bandwidth=c.scale_out_bandwidth * f),
        s,
    ),
    "network latency": _latency,
    "host launch speed": lambda c, s, f: (
        c,
        msgspec.structs.replace(s, host_layer_seconds=s.host_layer_seconds / f),
    ),
}
"""Quantities that can be better by any factor."""

SWITCHES: dict[str, tuple[str, Change]] = {
    "scale-up domain": (
        "twice as large",
        lambda c, s, _: (c.with_(scale_up_domain=2 * c.scale_up_domain), s),
    ),
    "tree all-reduce": ("always", lambda c, s, _: (c.with_(algorithm="tree"), s)),
    "PAT gathers": ("always", lambda c, s, _: (c.with_(algorithm="pat"), s)),
    "hierarchical gathers": (
        "always",
        lambda c, s, _: (c.with_(algorithm="hierarchical"), s),
    ),
}
"""Changes of kind: on or off."""


def sensitivity(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Strategy,
    *,
    stack: Stack | str | None = None,
    factor: float = 2.0,
) -> list[Sensitivity]:
    """Try every upgrade alone, at the same strategy.

    Args:
        model: What is trained.
        cluster: On what.
        workload: Sequence, batch, precision.
        strategy: How it is split.
        stack: Software, as for `estimate`.
        factor: Size of the finite upgrade.

    Returns:
        Quantities and switches, largest gain first.
    """
    software, _ = choose_stack(stack, cluster, compiled=strategy.compiled)
    base = estimate(model, cluster, workload, strategy, stack=software)

    def changed(change: Change, by: float) -> Estimate:
        other, programs = change(cluster, software, by)
        return estimate(model, other, workload, strategy, stack=programs)

    rows = []
    for name, change in CONTINUOUS.items():
        up, down = changed(change, 1.0 + STEP), changed(change, 1.0 / (1.0 + STEP))
        ratio = up.tokens_per_second / down.tokens_per_second
        elasticity = float(np.log(ratio) / (2.0 * np.log1p(STEP)))
        better = changed(change, factor)
        rows.append(_row(name, elasticity, f"{factor:g} x better", base, better))
    if cluster.power_cap_watts is None and cluster.tdp is not None and cluster.idle is not None:
        cap = 0.7 * cluster.tdp
        if cap > cluster.idle:
            capped = changed(lambda c, s, _: (c.with_(power_cap_watts=cap), s), 1.0)
            rows.append(_row("power cap", None, f"{cap:.0f} W", base, capped))
    for name, (words, change) in SWITCHES.items():
        rows.append(_row(name, None, words, base, changed(change, 1.0)))
    return sorted(rows, key=lambda row: -row.gain)


def _row(
    name: str, elasticity: float | None, upgrade: str, base: Estimate, better: Estimate
) -> Sensitivity:
    """What a change brings."""

    def gain(new: float | None, old: float | None) -> float | None:
        return None if not new or not old else new / old - 1.0

    return Sensitivity(
        name=name,
        elasticity=elasticity,
        upgrade=upgrade,
        gain=better.tokens_per_second / base.tokens_per_second - 1.0,
        energy_gain=gain(better.tokens_per_joule, base.tokens_per_joule),
        cost_gain=gain(base.usd_per_million_tokens, better.usd_per_million_tokens),
    )
