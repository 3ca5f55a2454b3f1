"""Times of one step from the profiler traces of a launch.

    times, notes = step_times(["rank0.json.gz", "rank1.json.gz"])
    times["exposed_seconds"]

`scalewise.trace` reads the traces; here the steps in them are averaged, to be compared with the
step time. A trace that cannot be read costs a note, not the measurement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from scalewise.errors import ScalewiseError

PARTS = (
    "window_seconds", "compute_seconds", "communication_seconds", "overlapped_seconds",
    "exposed_seconds", "idle_seconds",
)  # fmt: skip


def step_times(files: Sequence[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """Read traces, and average over the steps that count and the ranks.

    Args:
        files: One per rank.

    Returns:
        Seconds of one step by part, with "steps" (how many) and "collectives" (of all of them,
        by collective); None if there is nothing to report, and then why.
    """
    from scalewise.trace.read import read_trace

    try:
        summary = read_trace(list(files))
    except ScalewiseError as error:
        return None, [f"the traces could not be read: {error}"]
    steps = [step for step in summary.steps if step.counted]
    if not steps:
        return None, ["the traces hold no whole step"]
    times: dict[str, Any] = {
        part: sum(getattr(step, part) for step in steps) / len(steps) for part in PARTS
    }
    times["steps"] = len(steps)
    times["collectives"] = msgspec.to_builtins(summary.collectives)
    return times, []
