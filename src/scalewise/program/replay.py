"""Step time of a captured program: its own kernels, collectives and waits, priced and simulated.

    replayed = replay(captures, case, roles)
    replayed.seconds, replayed.exposed["shard"]

Kernels and collectives have the durations that `estimate` gives them (`physics.compute`,
`physics.collectives`), with the constants of the same chip, fabric and software. Their order, their
streams and what waits for what are the program's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Array, mask, scalar
from scalewise.physics.all_to_all import Sent, all_to_all_seconds
from scalewise.physics.collectives import (
    all_gather_seconds,
    all_reduce_seconds,
    p2p_seconds,
    reduce_scatter_seconds,
)
from scalewise.physics.compute import KERNEL_SECONDS, attention_seconds, gemm_seconds
from scalewise.physics.links import Placement, placement
from scalewise.program.events import Capture, Event, Group
from scalewise.simulation.engine import TaskTimes, simulation
from scalewise.simulation.graph import NONE, Graph
from scalewise.simulation.spans import Span, outside, total, union

if TYPE_CHECKING:
    from scalewise.step.case import Case

LAUNCH_SECONDS = 5e-6
"""Host time of an eager kernel launch, seconds: Python, dispatcher and driver. The 4 to 8 us at
which kernels that are launched from Python flatten out (`physics.compute.KERNEL_SECONDS`)."""

HALF = {"bfloat16", "float16"}
"""Types of 16 bits."""

COLLECTIVES: dict[str, Callable[..., object]] = {
    "all_gather": all_gather_seconds,
    "reduce_scatter": reduce_scatter_seconds,
    "all_reduce": all_reduce_seconds,
    # Half of an all-reduce: one pass of the ring.
    "broadcast": all_gather_seconds,
}


@dataclass(frozen=True, kw_only=True)
class Replay:
    """A simulated step of a captured program."""

    seconds: float
    """Step time."""
    compute: dict[str, float]
    """Seconds of the kernels of the slowest rank by kind, without contention: gemm, attention,
    recompute, other, optimizer."""
    contention: float
    """What they lose to communication beside them, seconds."""
    communication: dict[str, float]
    """Seconds of communication of that rank by role."""
    exposed: dict[str, float]
    """The part of it that no compute overlaps, by role."""
    waiting: float
    """Seconds in which that rank neither computes nor communicates (launches, bubbles), with the
    framework's overhead and the wait for the slowest domain of the estimate."""
    rank: int
    """The rank, as a place among the captures."""


@dataclass(kw_only=True)
class _Rank:
    """Tasks of one rank, by what they are."""

    compute: dict[str, list[int]] = field(default_factory=dict)
    communication: dict[str, list[int]] = field(default_factory=dict)


class Rates:
    """Durations of the events of a program on one machine."""

    def __init__(self, case: Case) -> None:
        """Take the constants of an estimate.

        Args:
            case: One row: the machine, the software and the precision.
        """
        self.case = case
        self.domain = case.split.domain
        self.memory = scalar(case.rates.memory)

    def kernel(self, event: Event) -> float:
        """Return the time of a kernel, seconds."""
        rates = self.case.rates
        streamed = (event.read + event.written) / self.memory
        if "attention" in event.name and event.flops:
            backward = event.phase == "backward"
            rate = rates.attention_backward if backward else rates.attention_forward
            length = float(event.shapes[0][-2]) if event.shapes else 1.0
            return scalar(attention_seconds(event.flops, rate=rate, seq_len=np.full(1, length)))
        if event.flops and len(event.shapes) > 1:
            return max(self._gemm(event), streamed)
        return KERNEL_SECONDS + streamed if event.phase != "optimizer" else streamed

    def _gemm(self, event: Event) -> float:
        """Return the time of a GEMM, or of several of equal shape."""
        # The operands are the last two matrices; a bias comes before them.
        left, right = [shape for shape in event.shapes if len(shape) > 1][-2:]
        m, k, n = left[-2], left[-1], right[-1]
        if k != right[-2]:
            k, n = right[-2], right[-1]
        times = event.flops / (2.0 * m * n * k)
        rates = self.case.rates
        wide = event.dtype == "float32" and scalar(rates.activation_bytes) < 4.0
        rate = rates.gemm16 if event.dtype in HALF else rates.gemm
        if wide:
            # A GEMM in 32 bits among those in 16: TF32 has half of their rate (data
            # sheets of A100, 156 of 312 TFLOP/s, and H100 SXM, 494 of 989).
            rate = rates.gemm16 / 2.0
        each = gemm_seconds(
            float(m), float(n), float(k), rate=rate, units=rates.units, fill=rates.gemm_fill,
            memory_rate=rates.memory, element_bytes=4.0 if event.dtype == "float32" else 2.0,
        )  # fmt: skip
        return times * scalar(each)

    def collective(self, event: Event, group: Group) -> float:
        """Return the time of a collective or transfer, seconds."""
        size = np.full(1, event.bytes)
        links = self.case.links
        place = placement(np.full(1, float(group.size)), float(group.stride), self.domain)
        if event.name in ("send", "recv"):
            return scalar(p2p_seconds(size, links, mask(place.domains > 1.0)))
        if event.name == "all_to_all":
            return self._all_to_all(size, place)
        return scalar(COLLECTIVES[event.name](size, place, links))

    def _all_to_all(self, size: Array, place: Placement) -> float:
        """Return the time of an exchange of equal parts."""
        whole = size / place.ranks
        inside = whole * (place.per_domain - 1.0)
        sent = Sent(inside, whole * (place.ranks - place.per_domain))
        seconds = all_to_all_seconds(
            sent, place, self.case.links, inside_efficiency=1.0, network_efficiency=1.0,
            deduplicated=0.0,
        )  # fmt: skip
        return scalar(seconds)


def replay(captures: Sequence[Capture], case: Case, roles: dict[str, str]) -> Replay:
    """Simulate a captured step.

    Args:
        captures: One per pipeline stage, first stage first.
        case: One row of an estimate on the same machine, for its constants.
        roles: Role of every process group.
    """
    rates, graph = Rates(case), Graph()
    ranks: list[_Rank] = []
    ends: dict[tuple[int, int, int], list[int]] = {}
    receives: list[tuple[tuple[int, int, int], int, int]] = []
    for place, capture in enumerate(captures):
        ranks.append(_lay_out(graph, capture, rates, roles, place, ends, receives))
    for key, number, task in receives:
        sends = ends.get(key, [])
        if number < len(sends):
            graph.wait(task, sends[number])
    contention = scalar(case.habits.contention)
    times = simulation(graph, contention=contention, ranks=len(captures))
    slowest = max(range(len(ranks)), key=lambda place: _busy(ranks[place], times))
    more = scalar(case.habits.overhead_seconds)
    stragglers = case.habits.straggler * np.log2(np.maximum(case.split.domains, 1.0))
    more += scalar(stragglers) * (times.seconds + more)
    return _summed(graph, ranks[slowest], times, more, slowest)


def _lay_out(
    graph: Graph,
    capture: Capture,
    rates: Rates,
    roles: dict[str, str],
    place: int,
    ends: dict[tuple[int, int, int], list[int]],
    receives: list[tuple[tuple[int, int, int], int, int]],
) -> _Rank:
    """Add the tasks of one rank: a host that issues in order, streams that keep their order."""
    own, host = _Rank(), graph.stream()
    streams: dict[int, int] = {}
    lanes: dict[str, int] = {}
    task_of: dict[int, int] = {}
    lasts: dict[int, list[tuple[int, int]]] = {}
    held: dict[int, list[int]] = {}
    counts: dict[tuple[int, int, int], int] = {}
    for event in capture.events:
        stream = streams.setdefault(event.stream, -1)
        if stream < 0:
            stream = streams[event.stream] = graph.stream()
        waits = held.pop(event.stream, [])
        if event.kind == "kernel":
            launch = 0.0 if event.phase == "optimizer" else LAUNCH_SECONDS
            issued = graph.add(launch, stream=host)
            seconds = rates.kernel(event)
            task = graph.add(seconds, stream=stream, after=(issued, *waits), rank=place)
            own.compute.setdefault(_kind(event), []).append(task)
        elif event.kind == "collective":
            issued = graph.add(LAUNCH_SECONDS, stream=host)
            group = capture.groups[event.group]
            seconds = rates.collective(event, group)
            before = graph.last(stream)
            key = (capture.rank, _global(event.peer, group), 0)
            if event.name == "recv":
                key = (_global(event.peer, group), capture.rank, 0)
                seconds = 0.0
            lane = event.group + (event.name if event.peer >= 0 else "")
            on = stream
            if event.asynchronous:
                on = lanes.setdefault(lane, -1)
                if on < 0:
                    on = lanes[lane] = graph.stream()
            after = (issued, before, *waits) if event.asynchronous else (issued, *waits)
            task = graph.add(seconds, stream=on, after=after, rank=place, slows=seconds > 0.0)
            own.communication.setdefault(roles.get(event.group, "other"), []).append(task)
            if event.name == "send":
                ends.setdefault(key, []).append(task)
            elif event.name == "recv":
                number = counts.get(key, 0)
                counts[key] = number + 1
                receives.append((key, number, task))
        elif event.kind == "wait":
            held.setdefault(event.stream, waits).append(task_of.get(event.on, NONE))
            continue
        elif event.kind == "stream_wait":
            known = [task for tick, task in lasts.get(event.on, []) if tick <= event.until]
            held.setdefault(event.stream, waits).extend(known[-1:])
            continue
        else:
            graph.add(0.0, stream=host, after=(graph.last(stream), *waits))
            continue
        task_of[event.tick] = task
        lasts.setdefault(event.stream, []).append((event.tick, task))
    return own


def _global(peer: int, group: Group) -> int:
    """Return the global rank of a member of a group."""
    return group.ranks[peer] if 0 <= peer < group.size else peer


def _kind(event: Event) -> str:
    """Return what a kernel is: a row of the comparison."""
    if event.phase == "optimizer":
        return "optimizer"
    if "attention" in event.name and event.flops:
        return "attention"
    if event.flops:
        return "recompute" if event.phase == "recompute" else "gemm"
    return "other"


def _spans(tasks: Sequence[int], times: TaskTimes) -> list[Span]:
    return union((times.start[task], times.end[task]) for task in tasks)


def _busy(rank: _Rank, times: TaskTimes) -> float:
    return total(_spans([task for tasks in rank.compute.values() for task in tasks], times))


def _summed(graph: Graph, rank: _Rank, times: TaskTimes, more: float, place: int) -> Replay:
    """Return what one rank did; `more` seconds end the step."""
    everything = [task for tasks in rank.compute.values() for task in tasks]
    busy = _spans(everything, times)
    spoken = [task for tasks in rank.communication.values() for task in tasks]
    either = union([*busy, *_spans(spoken, times)])
    lost = sum(times.end[task] - times.start[task] - graph.seconds[task] for task in everything)
    return Replay(
        seconds=times.seconds + more,
        compute={
            kind: sum(graph.seconds[task] for task in tasks) for kind, tasks in rank.compute.items()
        },
        contention=max(lost, 0.0),
        communication={r: total(_spans(t, times)) for r, t in rank.communication.items()},
        exposed={r: outside(_spans(t, times), busy) for r, t in rank.communication.items()},
        waiting=max(times.seconds - total(either), 0.0) + more,
        rank=place,
    )
