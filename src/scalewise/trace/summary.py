"""What does a trace say? Times that add up, by rank, step, collective, group and size.

    summary.exposed_seconds, summary.overlap_pct
    summary.steps[0].compute_seconds, summary.ranks[0].collectives[0].calls

`read_trace` makes these. Of several ranks, the times at the top are the mean over ranks, so that
they still add up: compute + exposed + copy_only + idle = window, overlapped + exposed =
communication. Overlap is counted as HolisticTraceAnalysis does: time in which a communication and
a compute kernel run at once, over the time in which any communication kernel runs.
"""

from __future__ import annotations

from typing import Literal

import msgspec


class Times(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the time of a window went, on one rank or as the mean of several."""

    window_seconds: float
    """From the beginning to the end of what is told, in seconds."""
    compute_seconds: float
    """Any compute kernel ran (on the CPU: any operator), in seconds."""
    communication_seconds: float
    """Any communication kernel ran (on the CPU: any collective of Gloo), in seconds."""
    overlapped_seconds: float
    """Both at once, in seconds: communication that is hidden."""
    exposed_seconds: float
    """Communication but no compute, in seconds."""
    copy_seconds: float
    """Any memcpy or memset ran, in seconds."""
    copy_only_seconds: float
    """A memcpy or memset but neither compute nor communication, in seconds."""
    idle_seconds: float
    """Nothing ran, in seconds."""
    overlap_pct: float | None
    """Overlapped of all communication, in percent; None where nothing was communicated."""


class Communication(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The calls of one collective, of one process group, or of one size; the mean over ranks."""

    name: str
    """The collective, or the process group by its description."""
    group_size: int | None
    """Ranks that take part; None where the trace does not say or calls differ."""
    calls: float
    """Calls per rank."""
    bytes: float | None
    """Of all calls per rank, each the larger of input and output; None where one is unknown."""
    smallest_bytes: int | None
    """Of one call, in bytes."""
    largest_bytes: int | None
    """Of one call, in bytes."""
    communication_seconds: float
    """At least one of these calls ran, in seconds."""
    overlapped_seconds: float
    """And a compute kernel too, in seconds."""
    exposed_seconds: float
    """And no compute kernel, in seconds. Calls that run at once each count in full."""
    overlap_pct: float | None
    """Overlapped of all, in percent; None where the calls took no time."""


class StepTrace(Times, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step, as torch.profiler numbers them."""

    step: int
    """Its number."""
    counted: bool
    """Whether it is part of the times of its rank: the last step of a device is not, see there."""


class RankTrace(Times, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank: one device in one file.

    Its window begins with the first thing that ran. It ends before the last step, as that of
    HolisticTraceAnalysis does, because the profiler may have stopped before the device had
    finished that step; with one step or none, and where it was asked for, it ends with the last
    thing that ran. On the CPU the window is that of all steps.
    """

    rank: int | None
    """Its number in the job, from the trace or the name of the file; None where neither says."""
    device: str
    """For example "gpu 0", or "cpu" where nothing ran on devices."""
    file: str
    """Where it was read from."""
    events: int
    """In that file, of any kind."""
    complete: bool
    """Whether the whole file could be read."""
    step_clock: Literal["device", "host"]
    """Whether steps are what the device did for each, or when the host was in each."""
    collectives: tuple[Communication, ...]
    """By collective, the longest first."""
    groups: tuple[Communication, ...]
    """By process group, the longest first."""
    sizes: tuple[Communication, ...]
    """By collective and size, powers of two apart, the longest first."""
    steps: tuple[StepTrace, ...]
    """In order."""


class TraceSummary(Times, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All ranks that were read; times are the mean over them."""

    world_size: int | None
    """Ranks of the job, as the trace says; None where it does not."""
    collectives: tuple[Communication, ...]
    """By collective, the longest first; "other" is what its kernel does not name."""
    groups: tuple[Communication, ...]
    """By process group, the longest first; "unknown" where the trace does not say."""
    sizes: tuple[Communication, ...]
    """By collective and size, powers of two apart, the longest first."""
    steps: tuple[StepTrace, ...]
    """In order; the mean of the ranks that have the step."""
    ranks: tuple[RankTrace, ...]
    """In order."""
    notes: tuple[str, ...]
    """What a reader should know before believing this, one sentence each."""
