"""Words of goodput, shared by every view.

    goodput_words(0.931, 0.89, 0.95, 2040.0)
    # "goodput 93.1% [89.0-95.0], checkpoint every 34.0 min"

Text only; `step.goodput` computes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scalewise.units import format_percent, format_seconds, grouped

if TYPE_CHECKING:
    from scalewise.explore.points import Point
    from scalewise.step.goodput import Goodput

NOTE = "goodput: useful over wall time; its [low-high] is the range of published failure rates"
"""How to read goodput."""


def fraction_words(fraction: float, low: float, high: float) -> str:
    """Return goodput with its range, where it has one: "93.1% [89.0-95.0]"."""
    ends = f"{100.0 * low:.1f}", f"{100.0 * high:.1f}"
    return format_percent(fraction) + ("" if ends[0] == ends[1] else f" [{ends[0]}-{ends[1]}]")


def goodput_words(fraction: float, low: float, high: float, interval: float | None) -> str:
    """Return goodput and the interval of checkpoints in one phrase."""
    every = "no failures" if interval is None else f"checkpoint every {format_seconds(interval)}"
    return f"goodput {fraction_words(fraction, low, high)}, {every}"


def of_point(point: Point) -> str:
    """Return the goodput of a point in one phrase; empty where nothing was asked of whole runs."""
    if point.goodput is None or point.goodput_low is None or point.goodput_high is None:
        return ""
    ends = point.goodput_low, point.goodput_high
    return goodput_words(point.goodput, *ends, point.checkpoint_interval)


def goodput_percents(points: Sequence[Point | None]) -> list[str]:
    """Return a column of goodput; empty where nothing was asked of whole runs."""
    found = [None if point is None else point.goodput for point in points]
    return ["" if each is None else f"{100.0 * each:.1f}" for each in found]


def days_words(days: float, interval: tuple[float, float] | None) -> str:
    """Return days with their 80% interval: "12.9 days [10.4-15.2]"."""
    ends = "" if interval is None else f" [{grouped(interval[0])}-{grouped(interval[1])}]"
    return f"{grouped(days)} days{ends}"


def losses_words(g: Goodput) -> str:
    """Return the lost time by cause, largest first: "restart 5.2%, rework 1.1%"."""
    losses = sorted(g.losses.items(), key=lambda item: -item[1])
    return ", ".join(f"{cause} {format_percent(lost)}" for cause, lost in losses if lost >= 5e-4)


def detail_words(g: Goodput) -> str:
    """Return failures, checkpoints and spares behind a goodput."""
    if g.mtbf is None or g.interval is None:
        return "no failures"
    kind = "asynchronous checkpoint" if g.asynchronous else "checkpoint"
    parts = [
        f"{kind} every {format_seconds(g.interval)}",
        f"failure every {format_seconds(g.mtbf)}",
    ]
    if g.reliability.spares:
        spares = g.reliability.spares
        parts.append(f"{spares:,} spare node{'s' if spares > 1 else ''}")
    return ", ".join(parts)
