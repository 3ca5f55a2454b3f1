"""Waiting for late ranks: which rank joins the collectives of a group last.

    late = waiting(lanes)                # one row per process group
    late[0].rank, late[0].last_pct, late[0].waited_seconds

A collective ends on all ranks at about the same time, so the rank that joins last has the shortest
kernel. Durations need no common clock: on every rank the k-th call of a group is the same call.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scalewise.trace.collect import Lane
from scalewise.trace.events import Message
from scalewise.trace.summary import Waiting
from scalewise.units import format_percent

NANO = 1e-9

ONE_SIDED = ("send", "recv", "send_recv", "barrier")
"""Calls whose ends differ between ranks by nature."""

FEWEST = 4
"""Calls of a group from which a rank is named."""

WAITS_FROM, CAUSED_FROM = 0.03, 80.0
"""Fraction of the time that ranks wait, and fraction of the waiting that one rank causes (%), from
which that rank is named: of two ranks at random each causes a half."""

Key = tuple[str, str, int]
"""Process group, its ranks as text, number of ranks."""


def waiting(lanes: Sequence[tuple[int | None, Lane]], world: int | None) -> tuple[Waiting, ...]:
    """Return the rank that joins last, by process group; the longest waits first.

    Args:
        lanes: Rank and lane of every trace.
        world: Ranks of the job, if known: groups of all ranks are the same without their list.
    """
    durations: dict[Key, dict[int, np.ndarray]] = {}
    for rank, lane in lanes:
        if rank is None:
            continue
        for key, seconds in _durations(lane, world).items():
            durations.setdefault(key, {})[rank] = seconds
    found = [
        row
        for key, by_rank in durations.items()
        if (row := _row(key, by_rank, len(lanes))) is not None
    ]
    return tuple(sorted(found, key=lambda row: -row.waited_seconds))


def late(rows: Sequence[Waiting], window: float) -> tuple[Waiting, ...]:
    """Return the waits that one rank causes and that are worth naming.

    Args:
        rows: Waits by process group.
        window: Length of the trace, seconds.
    """
    return tuple(
        row for row in rows
        if row.waited_seconds > WAITS_FROM * window and row.caused_pct >= CAUSED_FROM
    )  # fmt: skip


def sentence(row: Waiting, window: float) -> str:
    """Return which rank is late, and how long others wait for it."""
    return (
        f"rank {row.rank} joins {row.last_pct:.0f}% of {row.calls:,} calls of {row.group} last: "
        f"ranks wait for it {format_percent(row.waited_seconds / window)} of the time"
    )


def _durations(lane: Lane, world: int | None) -> dict[Key, np.ndarray]:
    """Return the seconds of all calls of a lane by group, in order of their start."""
    keys = [_key(message, world) for message in lane.calls.table]
    order = np.argsort(lane.calls.starts, kind="stable")
    lengths = (lane.calls.ends - lane.calls.starts)[order] * NANO
    messages = lane.calls.messages[order]
    found: dict[Key, np.ndarray] = {}
    for key in dict.fromkeys(each for each in keys if each is not None):
        same = [place for place, each in enumerate(keys) if each == key]
        found[key] = lengths[np.isin(messages, same)]
    return found


def _key(message: Message, world: int | None) -> Key | None:
    """Return what tells a group from others; None where ranks of several could have it."""
    if message.collective in ONE_SIDED or message.group_size is None:
        return None
    if message.ranks is None and message.group_size != world:
        return None
    return (message.group or "unknown", message.ranks or "all", message.group_size)


def _row(key: Key, by_rank: dict[int, np.ndarray], ranks: int) -> Waiting | None:
    """Return the waits of a group; None where calls of its ranks do not correspond."""
    if len(by_rank) < 2 or len({len(each) for each in by_rank.values()}) > 1:
        return None
    numbers = list(by_rank)
    seconds = np.array([by_rank[number] for number in numbers])
    if seconds.shape[1] < FEWEST:
        return None
    waits = seconds - seconds.min(axis=0)
    last = np.argmin(seconds, axis=0)
    # Calls in which others wait longer say more about who is late.
    lost = waits.sum(axis=0)
    caused = np.array([lost[last == place].sum() for place in range(len(numbers))])
    late = int(np.argmax(caused))
    return Waiting(
        group=key[0],
        group_size=key[2],
        ranks=len(numbers),
        calls=int(seconds.shape[1]),
        waited_seconds=float(waits.sum()) / ranks,
        rank=numbers[late],
        last_pct=100.0 * float((last == late).mean()),
        caused_pct=100.0 * float(caused[late] / caused.sum()) if caused.sum() > 0.0 else 0.0,
    )
