"""Summary of a trace: times that add up, by rank, step, collective, group and size.

    summary.exposed_seconds, summary.overlap_pct
    summary.steps[0].compute_seconds, summary.ranks[0].collectives[0].calls

`read_trace` returns it. With several ranks, the times at the top are means over ranks, so that they
still add up: compute + exposed + copy_only + idle = window, overlapped + exposed = communication.
Overlap is defined as in HolisticTraceAnalysis: time of concurrent communication and compute kernels
over the time of communication kernels.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from scalewise.results import Result


class Times(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Breakdown of a window, of one rank or as the mean of several."""

    window_seconds: float
    """Length of the window, seconds."""
    compute_seconds: float
    """Time with a compute kernel (on the CPU: an operator), seconds."""
    communication_seconds: float
    """Time with a communication kernel (on the CPU: a Gloo collective), seconds."""
    overlapped_seconds: float
    """Overlapped communication: time with both, seconds."""
    exposed_seconds: float
    """Exposed communication: time with communication and no compute, seconds."""
    copy_seconds: float
    """Time with a memcpy or memset, seconds."""
    copy_only_seconds: float
    """Time with a memcpy or memset and neither compute nor communication, seconds."""
    idle_seconds: float
    """Time with nothing running, seconds."""
    overlap_pct: float | None
    """Overlapped over all communication, %; None without communication."""


class Communication(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Calls of one collective, one process group, or one size; mean over ranks."""

    name: str
    """The collective, or the process group by its description."""
    group_size: int | None
    """Ranks of the group; None if the trace does not say or calls differ."""
    calls: float
    """Calls per rank."""
    bytes: float | None
    """Bytes of all calls per rank, each the larger of input and output; None if one is unknown."""
    smallest_bytes: int | None
    """Smallest call, bytes."""
    largest_bytes: int | None
    """Largest call, bytes."""
    communication_seconds: float
    """Time with at least one of these calls, seconds."""
    overlapped_seconds: float
    """Time with one of them and a compute kernel, seconds."""
    exposed_seconds: float
    """Time with one of them and no compute kernel, seconds. Concurrent calls each count in full."""
    overlap_pct: float | None
    """Overlapped fraction, %; None if the calls took no time."""


class Waiting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Waits for late ranks in the collectives of one process group."""

    group: str
    """Process group by its description."""
    group_size: int
    """Ranks of the group."""
    ranks: int
    """Ranks of it that were traced."""
    calls: int
    """Calls that all of them have."""
    waited_seconds: float
    """Time in these calls beyond that of the rank that joins last, mean over all traced ranks,
    seconds."""
    rank: int
    """Rank that causes most of it."""
    last_pct: float
    """Calls that it joins last, %."""
    caused_pct: float
    """Fraction of the waiting in these calls, %."""


class StepTrace(Times, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step, as torch.profiler numbers them."""

    step: int
    """Its number."""
    counted: bool
    """Whether it counts in the times of its rank: the last step of a device does not."""


class RankTrace(Times, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rank: one device in one file.

    Its window starts with the first kernel. It ends before the last step, as in
    HolisticTraceAnalysis, because the profiler may have stopped before the device had finished that
    step. With one step or none, and with `last_step`, it ends with the last kernel. On the CPU the
    window covers all steps.
    """

    rank: int | None
    """Rank in the job, from the trace or the file name; None if neither has it."""
    device: str
    """For example "gpu 0", or "cpu" if nothing ran on devices."""
    file: str
    """File."""
    events: int
    """Events in that file, of any kind."""
    complete: bool
    """Whether the whole file was readable."""
    step_clock: Literal["device", "host", "simulated"]
    """Whether steps are the device's work for each, or the host's time in each; or the one step
    that `scalewise timeline` wrote."""
    kernels: dict[str, float]
    """Seconds of compute by kind of kernel: gemm, attention, other; empty on the CPU. They add up
    to the compute, divided in proportion to the kernels of the file."""
    collectives: tuple[Communication, ...]
    """By collective, the longest first."""
    groups: tuple[Communication, ...]
    """By process group, the longest first."""
    sizes: tuple[Communication, ...]
    """By collective and size, powers of two apart, the longest first."""
    steps: tuple[StepTrace, ...]
    """In order."""


class TraceSummary(Result, Times, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All ranks; times are means over them."""

    world_size: int | None
    """Ranks of the job; None if the trace does not say."""
    collectives: tuple[Communication, ...]
    """By collective, the longest first; "other" if the kernel does not name it."""
    groups: tuple[Communication, ...]
    """By process group, the longest first; "unknown" if the trace does not name it."""
    sizes: tuple[Communication, ...]
    """By collective and size, powers of two apart, the longest first."""
    steps: tuple[StepTrace, ...]
    """In order; mean of the ranks that have the step."""
    kernels: dict[str, float]
    """Seconds of compute by kind of kernel: gemm, attention, other; empty on the CPU."""
    waiting: tuple[Waiting, ...]
    """Waits for late ranks by process group, the longest first; empty with one rank."""
    ranks: tuple[RankTrace, ...]
    """In order."""
    notes: tuple[str, ...]
    """Warnings, one sentence each."""
