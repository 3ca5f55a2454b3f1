"""Changes of a cluster, one at a time.

    for upgrade in upgrades(cluster, stack, factor=2.0):
        changed, software = upgrade.change(cluster, stack, upgrade.factor)
        upgrade.name, upgrade.to           # "scale-out bandwidth", "2 x: 800 Gbit/s"

Every change returns a valid cluster, or says in `unused` why it has no effect. `sensitivity`
evaluates the changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
import numpy as np

from scalewise.explore.space import divisors
from scalewise.fields import replace
from scalewise.physics.collectives import ALGORITHMS
from scalewise.physics.compute import CLOCK_EXPONENT
from scalewise.units import (
    format_bit_rate,
    format_bytes,
    format_flops,
    format_rate,
    format_seconds,
    format_watts,
)

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.stack import Stack

Change: TypeAlias = "Callable[[Cluster, Stack, float], tuple[Cluster, Stack]]"
"""(cluster, stack, factor) -> the same, with one quantity better by the factor."""

Part = Literal["chip", "scale-up", "scale-out", "software", "power"]
Means = Literal["buy", "set", "build"]

# The finite changes of power are questions, not claims about a product: a cap well above idle, and
# a TDP that grows by less than between generations of the catalog.
POWER_DOWN, POWER_UP = 0.7, 1.25


@dataclass(frozen=True, kw_only=True)
class Upgrade:
    """One change, not yet evaluated."""

    name: str
    """Quantity or setting."""
    part: Part
    """Part."""
    means: Means
    """Means: bought, a setting that exists, or new software."""
    to: str
    """The finite change, as text."""
    change: Change
    """Function that makes the change."""
    factor: float
    """Factor of the finite change; 1 for a setting."""
    smooth: bool = True
    """Whether any factor is valid, so that there is a local derivative."""
    capacity: bool = False
    """Whether it changes only what fits, not the step time."""
    unused: str = ""
    """Why it has no effect on this cluster; empty if it may."""


def upgrades(cluster: Cluster, stack: Stack, *, factor: float = 2.0) -> list[Upgrade]:
    """Return all changes of a cluster.

    Args:
        cluster: The unchanged cluster.
        stack: Its software.
        factor: Factor of the finite changes.

    Returns:
        Chip, scale-up, scale-out, software, power; those without effect with the reason.
    """
    return [
        *_chip_upgrades(cluster, factor),
        *_link_upgrades(cluster, factor),
        *_software_upgrades(cluster, stack, factor),
        *_power_upgrades(cluster),
    ]


def _times(factor: float, value: str) -> str:
    return f"{factor:g} x: {value}"


def _chip(cluster: Cluster, **changes: Any) -> Cluster:
    return cluster.with_(accelerator=cluster.accelerator.with_(**changes))


def _fabric(cluster: Cluster, **changes: Any) -> Cluster:
    return cluster.with_(fabric=replace(cluster.fabric, **changes))


def _faster(cluster: Cluster, factor: float) -> Cluster:
    """Return the cluster with all peaks times a factor."""
    peaks = {dtype: rate * factor for dtype, rate in cluster.accelerator.peak_flops.items()}
    return _chip(cluster, peak_flops=peaks)


def _chip_upgrades(cluster: Cluster, factor: float) -> Iterator[Upgrade]:
    chip = cluster.accelerator
    # One peak represents all: they grow together.
    dtype = "bf16" if "bf16" in chip.peak_flops else next(iter(chip.peak_flops))
    yield Upgrade(
        name="peak FLOP/s",
        part="chip",
        means="buy",
        to=_times(factor, format_flops(factor * chip.peak_flops[dtype])),
        change=lambda c, s, f: (_faster(c, f), s),
        factor=factor,
    )
    yield Upgrade(
        name="HBM bandwidth",
        part="chip",
        means="buy",
        to=_times(factor, format_rate(factor * chip.memory_bandwidth)),
        change=lambda c, s, f: (_chip(c, memory_bandwidth=c.accelerator.memory_bandwidth * f), s),
        factor=factor,
    )
    yield Upgrade(
        name="HBM capacity",
        part="chip",
        means="buy",
        to=_times(factor, format_bytes(factor * chip.memory_bytes)),
        change=lambda c, s, f: (_chip(c, memory_bytes=c.accelerator.memory_bytes * f), s),
        factor=factor,
        smooth=False,
        capacity=True,
    )


def larger_domain(accelerators: int, domain: int, factor: float) -> int:
    """Return a scale-up domain that is larger by about a factor and fills the cluster.

    Full domains stay full: the new size is the smallest multiple of the old one that divides the
    GPUs and reaches the factor, at most all of them.
    """
    wanted = min(round(domain * factor), accelerators)
    if accelerators % domain:
        return wanted
    return next(d for d in divisors(accelerators) if d >= wanted and d % domain == 0)


def _link_upgrades(cluster: Cluster, factor: float) -> Iterator[Upgrade]:
    count, domain, fabric = cluster.accelerators, cluster.scale_up_domain, cluster.fabric
    alone = "a single GPU has no communication" if count == 1 else ""
    inside = f"all {count:,} GPUs share one scale-up domain" if count <= domain else ""
    single = "domains of one accelerator have no scale-up links" if domain == 1 else ""
    yield Upgrade(
        name="scale-up bandwidth",
        part="scale-up",
        means="buy",
        to=_times(factor, format_rate(factor * cluster.scale_up_bandwidth)),
        change=lambda c, s, f: (c.with_(scale_up_bandwidth=c.scale_up_bandwidth * f), s),
        factor=factor,
        unused=alone or single,
    )
    size = larger_domain(count, domain, factor) if count > domain else domain
    yield Upgrade(
        name="scale-up domain",
        part="scale-up",
        means="buy",
        to=f"{size:,} instead of {domain:,}" if size > domain else "larger",
        change=lambda c, s, _: (c.with_(scale_up_domain=size), s),
        factor=1.0,
        smooth=False,
        unused=alone or inside,
    )
    yield Upgrade(
        name="scale-out bandwidth",
        part="scale-out",
        means="buy",
        to=_times(factor, format_bit_rate(factor * cluster.scale_out_bandwidth)),
        change=lambda c, s, f: (c.with_(scale_out_bandwidth=c.scale_out_bandwidth * f), s),
        factor=factor,
        unused=alone or inside,
    )
    hop = format_seconds(fabric.hop_seconds / factor)
    yield Upgrade(
        name="scale-out latency",
        part="scale-out",
        means="buy",
        to=f"1/{factor:g}: {hop} per hop",
        change=lambda c, s, f: (_fabric(c, **_shorter(c, f)), s),
        factor=factor,
        unused=alone or inside,
    )


def _shorter(cluster: Cluster, factor: float) -> dict[str, float]:
    """Lower latency of NICs and switches; NCCL's own share of a hop stays."""
    names = ("hop_seconds", "call_seconds", "ring_step_seconds")
    return {name: getattr(cluster.fabric, name) / factor for name in names}


def _software_upgrades(cluster: Cluster, stack: Stack, factor: float) -> Iterator[Upgrade]:
    alone = "a single GPU has no communication" if cluster.accelerators == 1 else ""
    yield Upgrade(
        name="library hop latency",
        part="software",
        means="build",
        to=f"1/{factor:g} in the library",
        change=lambda c, s, f: (_fabric(c, latency_factor=c.fabric.latency_factor / f), s),
        factor=factor,
        unused=alone,
    )
    launch = format_seconds(stack.host_layer_seconds / factor)
    yield Upgrade(
        name="host launch speed",
        part="software",
        means="buy",
        to=_times(factor, f"{launch} per layer"),
        change=lambda c, s, f: (
            c,
            msgspec.structs.replace(
                s,
                host_layer_seconds=s.host_layer_seconds / f,
                pipeline_host_seconds=s.pipeline_host_seconds / f,
                host_speed=s.host_speed * f,
            ),
        ),
        factor=factor,
        unused=""
        if stack.host_layer_seconds or stack.pipeline_host_seconds
        else f"stack {stack.name} never waits for the host",
    )
    kind = cluster.accelerator.kind
    foreign = "" if kind == "gpu" else f"these algorithms are NCCL's; this is a {kind}"
    for name in ("auto", *ALGORITHMS):
        if name == cluster.algorithm:
            continue
        yield Upgrade(
            name=_ALGORITHM_WORDS[name],
            part="software",
            # No NCCL setting makes a two-level all-gather.
            means="build" if name == "hierarchical" else "set",
            to="always",
            change=lambda c, s, _, name=name: (c.with_(algorithm=name), s),  # type: ignore[misc]
            factor=1.0,
            smooth=False,
            unused=alone or foreign,
        )


_ALGORITHM_WORDS = {
    "auto": "automatic algorithms",
    "ring": "ring collectives",
    "tree": "tree all-reduce",
    "pat": "PAT gathers",
    "hierarchical": "hierarchical gathers",
}
"""Collective of each algorithm: NCCL has no tree all-gather, and no PAT all-reduce."""


def _limited(cluster: Cluster, factor: float) -> Cluster:
    """Return the cluster with the power limit times a factor.

    Below the TDP it is a cap. Above, clocks rise by the law by which they fall below (an
    extrapolation): peaks grow with the clock, because efficiencies were measured at the full TDP.
    """
    limit, tdp, idle = cluster.power_limit, cluster.tdp, cluster.idle
    assert limit is not None
    assert tdp is not None
    assert idle is not None
    watts = limit * factor
    if watts <= tdp:
        return cluster.with_(power_cap_watts=None if watts == tdp else watts)
    pace = float(np.power((watts - idle) / (tdp - idle), 1.0 / CLOCK_EXPONENT))
    lifted = _chip(cluster.with_(power_cap_watts=None), tdp_watts=watts, idle_watts=idle)
    return _faster(lifted, pace)


def _power_upgrades(cluster: Cluster) -> Iterator[Upgrade]:
    limit, tdp, idle = cluster.power_limit, cluster.tdp, cluster.idle
    if limit is None or tdp is None or idle is None:
        yield Upgrade(
            name="power cap",
            part="power",
            means="set",
            to="lower",
            change=lambda c, s, _: (c, s),
            factor=1.0,
            smooth=False,
            unused=f"the power of {cluster.accelerator.name} is not published",
        )
        return
    # Well above idle, so that power is left to compute with.
    low = max(POWER_DOWN * limit, idle + 0.1 * (tdp - idle))
    if low < limit:
        yield Upgrade(
            name="power cap",
            part="power",
            means="set",
            to=_times(round(low / limit, 3), format_watts(low)),
            change=lambda c, s, f: (_limited(c, f), s),
            factor=low / limit,
        )
    if limit < tdp:
        yield Upgrade(
            name="power cap lifted",
            part="power",
            means="set",
            to=f"{format_watts(tdp)}, the TDP",
            change=lambda c, s, _: (c.with_(power_cap_watts=None), s),
            factor=1.0,
            smooth=False,
        )
    else:
        yield Upgrade(
            name="larger TDP",
            part="power",
            means="buy",
            to=_times(POWER_UP, format_watts(POWER_UP * tdp)),
            change=lambda c, s, f: (_limited(c, f), s),
            factor=POWER_UP,
            smooth=False,
        )
