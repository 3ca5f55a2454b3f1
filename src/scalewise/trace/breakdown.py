"""Times of a trace that add up: unions, overlaps, and means over ranks.

    times(lane, low, high)             # every field of Times, for one window
    rank = account(lane, ...)          # a whole RankTrace
    mean = mean_of(ranks)              # the fields at the top of a TraceSummary

All sums are of whole nanoseconds, so the identities hold exactly before division.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from scalewise.trace.collect import CPU, Calls, Lane
from scalewise.trace.events import Message
from scalewise.trace.intervals import Spans, merged, union
from scalewise.trace.summary import Communication, RankTrace, StepTrace, Times

NANO = 1e-9
UNKNOWN = "unknown"
"""Name of a process group that the trace does not name."""

_ADDED = tuple(name for name in Times.__struct_fields__ if name.endswith("_seconds"))


class _Busy:
    """Merged intervals of one lane, computed once for all its windows."""

    def __init__(self, lane: Lane) -> None:
        self.compute, self.copies = lane.compute, lane.copies
        self.communication = merged((lane.calls.starts, lane.calls.ends))
        self.work = union(self.compute, self.communication)
        self.any = union(self.work, self.copies)

    def times(self, low: int, high: int) -> dict[str, float | None]:
        """Return the fields of `Times` for one window."""
        window = high - low
        compute, communication, work, copies, busy = (
            spans.length(low, high)
            for spans in (self.compute, self.communication, self.work, self.copies, self.any)
        )
        overlapped = compute + communication - work
        return {
            "window_seconds": window * NANO,
            "compute_seconds": compute * NANO,
            "communication_seconds": communication * NANO,
            "overlapped_seconds": overlapped * NANO,
            "exposed_seconds": (work - compute) * NANO,
            "copy_seconds": copies * NANO,
            "copy_only_seconds": (busy - work) * NANO,
            "idle_seconds": (window - busy) * NANO,
            "overlap_pct": _percent(overlapped, communication),
        }


def break_down(lane: Lane, *, last_step: bool = False, **named: Any) -> RankTrace:
    """Return the breakdown of one lane.

    Args:
        lane: Collected intervals and calls.
        last_step: Whether to count the last step of a device too.
        named: The other fields of `RankTrace`: rank, file, events, complete.
    """
    busy = _Busy(lane)
    low, high = _window(lane, busy.any, last_step=last_step)
    calls = _within(lane.calls, low, high)
    return RankTrace(
        **busy.times(low, high),  # type: ignore[arg-type]
        **named,
        device=lane.device,
        step_clock=lane.step_clock,
        kernels=_by_kind(lane, busy.compute.length(low, high) * NANO),
        collectives=_text(calls, busy.compute, lambda m: m.collective),
        groups=_text(calls, busy.compute, lambda m: (m.group or UNKNOWN, m.group_size)),
        sizes=_text(calls, busy.compute, lambda m: (m.collective, _size_class(m.bytes))),
        steps=tuple(
            StepTrace(step=number, counted=window[0] < high, **busy.times(*window))  # type: ignore[arg-type]
            for number, window in lane.steps.items()
        ),
    )


def _by_kind(lane: Lane, compute_seconds: float) -> dict[str, float]:
    """Divide the compute of a window in proportion to the kernels of the file."""
    total = sum(lane.kernels.values())
    if total <= 0.0:
        return {}
    return {kind: compute_seconds * each / total for kind, each in lane.kernels.items()}


def _window(lane: Lane, busy: Spans, *, last_step: bool) -> tuple[int, int]:
    """Return the part of a trace that counts.

    On a device: from the first kernel to the last one before the last step. The profiler stops when
    the host has left that step, and the device may not have finished it. A single step counts in
    full. On the CPU: all steps, because the host's work between operators is part of a step;
    without steps, from the first operator to the last.
    """
    starts = [start for start, _ in lane.steps.values()]
    if starts and (lane.device == CPU or lane.step_clock == "simulated"):
        return min(starts), max(end for _, end in lane.steps.values())
    low, high = int(busy.starts[0]), int(busy.ends[-1])
    if len(starts) > 1 and not last_step and max(starts) > low:
        return low, int(busy.clipped(low, max(starts)).ends[-1])
    return low, high


def _within(calls: Calls, low: int, high: int) -> Calls:
    """Return the calls in a window, clipped to it."""
    kept = (calls.ends >= low) & (calls.starts <= high)
    return calls._replace(
        starts=np.clip(calls.starts[kept], low, high),
        ends=np.clip(calls.ends[kept], low, high),
        messages=calls.messages[kept],
    )


def _size_class(bytes_: int | None) -> int:
    """Return calls by size class, powers of two apart, because there can be many sizes."""
    return -1 if bytes_ is None else bytes_.bit_length()


def _text(
    calls: Calls, compute: Spans, key: Callable[[Message], Hashable]
) -> tuple[Communication, ...]:
    """Return totals of calls that have the same key."""
    places: dict[Hashable, int] = {}
    by_message = [places.setdefault(key(each), len(places)) for each in calls.table]
    if not calls.messages.size:
        return ()
    keys = np.array(by_message, np.int64)[calls.messages]
    found = []
    for name, place in places.items():
        mine = np.flatnonzero(keys == place)
        if not mine.size:
            continue
        spans = merged((calls.starts[mine], calls.ends[mine]))
        total, overlapped = spans.length(), compute.shared(spans)
        kinds, counts = np.unique(calls.messages[mine], return_counts=True)
        messages = [calls.table[kind] for kind in kinds]
        sizes = [each.bytes for each in messages if each.bytes is not None]
        known = len(sizes) == len(messages)
        ranks = {each.group_size for each in messages}
        found.append(
            Communication(
                name=str(name[0] if isinstance(name, tuple) else name),
                group_size=ranks.pop() if len(ranks) == 1 else None,
                calls=float(mine.size),
                bytes=float(np.dot(sizes, counts)) if known else None,
                smallest_bytes=min(sizes, default=None),
                largest_bytes=max(sizes, default=None),
                communication_seconds=total * NANO,
                overlapped_seconds=overlapped * NANO,
                exposed_seconds=(total - overlapped) * NANO,
                overlap_pct=_percent(overlapped, total),
            )
        )
    return _sorted(found)


def mean_of(ranks: Sequence[RankTrace]) -> dict[str, Any]:
    """Return times and rows of the average rank.

    Args:
        ranks: At least one.

    Returns:
        The fields of `Times`, and `kernels`, `collectives`, `groups`, `sizes` and `steps`.
    """
    count = len(ranks)
    steps: dict[int, list[StepTrace]] = {}
    for step in sorted((s for rank in ranks for s in rank.steps), key=lambda s: s.step):
        steps.setdefault(step.step, []).append(step)
    kinds = sorted({kind for rank in ranks for kind in rank.kernels})
    return {
        **_mean_times(ranks),
        "kernels": {
            kind: math.fsum(rank.kernels.get(kind, 0.0) for rank in ranks) / count for kind in kinds
        },
        "collectives": _mean_rows((row for r in ranks for row in r.collectives), count, _by_name),
        "groups": _mean_rows((row for r in ranks for row in r.groups), count, _by_group),
        "sizes": _mean_rows((row for r in ranks for row in r.sizes), count, _by_size),
        "steps": tuple(
            StepTrace(step=number, counted=all(s.counted for s in same), **_mean_times(same))
            for number, same in steps.items()
        ),
    }


def _by_name(row: Communication) -> Hashable:
    return row.name


def _by_group(row: Communication) -> Hashable:
    return row.name, row.group_size


def _by_size(row: Communication) -> Hashable:
    return row.name, _size_class(row.largest_bytes)


def _mean_times(parts: Sequence[Times]) -> dict[str, Any]:
    if len(parts) == 1:
        return {name: getattr(parts[0], name) for name in Times.__struct_fields__}
    means: dict[str, Any] = {
        name: math.fsum(getattr(part, name) for part in parts) / len(parts) for name in _ADDED
    }
    total = means["communication_seconds"]
    return means | {"overlap_pct": _percent(means["overlapped_seconds"], total)}


def _mean_rows(
    rows: Iterable[Communication], ranks: int, key: Callable[[Communication], Hashable]
) -> tuple[Communication, ...]:
    """Return the mean over all ranks, including those without such calls."""
    by_key: dict[Hashable, list[Communication]] = {}
    for row in rows:
        by_key.setdefault(key(row), []).append(row)
    found = []
    for same in by_key.values():
        sizes = {row.group_size for row in same}
        volumes = [row.bytes for row in same if row.bytes is not None]
        minimum = [row.smallest_bytes for row in same if row.smallest_bytes is not None]
        maximum = [row.largest_bytes for row in same if row.largest_bytes is not None]
        times = {
            name: math.fsum(getattr(row, name) for row in same) / ranks
            for name in ("communication_seconds", "overlapped_seconds", "exposed_seconds")
        }
        found.append(
            Communication(
                name=same[0].name,
                group_size=sizes.pop() if len(sizes) == 1 else None,
                calls=math.fsum(row.calls for row in same) / ranks,
                bytes=math.fsum(volumes) / ranks if len(volumes) == len(same) else None,
                smallest_bytes=min(minimum, default=None),
                largest_bytes=max(maximum, default=None),
                overlap_pct=_percent(times["overlapped_seconds"], times["communication_seconds"]),
                **times,
            )
        )
    return _sorted(found)


def _sorted(rows: list[Communication]) -> tuple[Communication, ...]:
    return tuple(sorted(rows, key=lambda row: (-row.communication_seconds, row.name)))


def _percent(part: float, whole: float) -> float | None:
    return 100.0 * part / whole if whole else None
