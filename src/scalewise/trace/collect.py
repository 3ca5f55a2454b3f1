"""Collected content of one trace file: merged intervals by kind, calls of collectives, steps.

    gathered = gather(EventStream("rank0.json.gz"))
    for lane in gathered.lanes: lane.compute, lane.copies, lane.calls, lane.steps

A lane is what can overlap: one device, or the CPU if no device worked. Compute kernels and copies
are merged as they arrive, so that memory grows with the gaps between them, not with events. Calls
of collectives are few and are kept one by one, in 28 bytes each.
"""

from __future__ import annotations

import math
from array import array
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from scalewise.trace import events as kinds
from scalewise.trace.events import Message
from scalewise.trace.intervals import Intervals, Spans, Times, nanoseconds, union
from scalewise.trace.kernels import KINDS, KernelKind, kernel_kind
from scalewise.trace.stream import Event, EventStream

_OPERATOR, _RANGE, _KERNEL, _COPY, _DEVICE_RANGE, _SIMULATED = range(6)
# Capitals are those of PyTorch before 1.13.
_CATEGORIES: dict[str | None, int] = {
    "cpu_op": _OPERATOR, "Operator": _OPERATOR, "user_annotation": _RANGE,
    "kernel": _KERNEL, "Kernel": _KERNEL, "gpu_memcpy": _COPY, "gpu_memset": _COPY,
    "Memcpy": _COPY, "Memset": _COPY, "gpu_user_annotation": _DEVICE_RANGE,
    # Steps that `scalewise timeline` writes: kinds of `simulation.events`.
    **dict.fromkeys(
        ("forward", "backward", "inputs", "weights", "head forward", "head backward", "optimizer",
         "all-gather", "reduce", "collective", "send", "receive", "wait", "straggler", "overhead"),
        _SIMULATED,
    ),
}  # fmt: skip
_SIMULATED_CALLS = frozenset(("all-gather", "reduce", "collective", "send", "receive"))
_SIMULATED_WAITS = frozenset(("wait", "straggler", "overhead"))

CPU = "cpu"
"""Name of the lane where nothing ran on devices."""
FAR = 4e15
"""Microseconds beyond which a time is invalid: a century after 1970, within 64 bits."""
NAMES = 1 << 16
"""Names whose kind is cached: a trace has thousands of names for millions of events."""

Owner = int | str | float | None
"""A process or thread number."""


class Calls(NamedTuple):
    """Calls of collectives, one row each; times in nanoseconds."""

    starts: Times
    ends: Times
    messages: NDArray[np.int64]
    """Index of each call's message in `table`."""
    table: tuple[Message, ...]


class Lane(NamedTuple):
    """Intervals of one device, or of one process on the CPU."""

    device: str
    """For example "gpu 0", or "cpu"."""
    compute: Spans
    copies: Spans
    """Memcpy and memset."""
    calls: Calls
    steps: dict[int, tuple[int, int]]
    """(start, end) of each step by its number, in nanoseconds."""
    step_clock: Literal["device", "host", "simulated"]
    """Whether steps are the device's work for a step, the host's time in it, or simulated."""
    kernels: dict[KernelKind, float]
    """Microseconds of compute kernels by kind, each kernel in full."""


class Collected(NamedTuple):
    """Collected content of one file."""

    lanes: tuple[Lane, ...]
    launches: int
    """Ranges in which the host launched a collective on a device."""
    host_calls: int
    """Collectives on the CPU; in a trace with devices they are not in a lane."""
    barriers: int
    """Gloo barriers, which move no data and are left out."""


class _Calls:
    """Calls in order of arrival: times, message, and launching operator."""

    def __init__(self) -> None:
        self.times = array("d")
        self.messages = array("q")
        self.launchers = array("q")

    def add(self, start: float, duration: float, message: int, launcher: int = -1) -> None:
        self.times.extend((start, start + duration))
        self.messages.append(message)
        self.launchers.append(launcher)

    def finished(self, table: tuple[Message, ...], links: tuple[Times, Times]) -> Calls:
        """Take the message of the launching operator where the kernel itself has none."""
        times = nanoseconds(self.times)
        messages = np.array(self.messages, np.int64)
        launchers = np.array(self.launchers, np.int64)
        ids, linked = links
        if ids.size and launchers.size:
            place = np.minimum(np.searchsorted(ids, launchers), ids.size - 1)
            messages = np.where(ids[place] == launchers, linked[place], messages)
        return Calls(times[0::2], times[1::2], messages, table)


class _Device:
    """Intervals of one device so far."""

    def __init__(self, base: float) -> None:
        self.compute = Intervals(base)
        self.copies = Intervals(base)
        self.calls = _Calls()
        self.kernels = 0
        self.kinds: dict[KernelKind, float] = dict.fromkeys(KINDS, 0.0)
        self.simulated: tuple[float, float] | None = None
        self.steps: dict[int, tuple[float, float]] = {}


class _Gatherer:
    """Collects events in any order."""

    def __init__(self) -> None:
        self.base: float | None = None
        self.devices: dict[Owner, _Device] = {}
        self.threads: dict[Owner, Intervals] = {}
        self.host = _Calls()
        self.callers: set[Owner] = set()
        self.steps: dict[int, tuple[float, float]] = {}
        self.step_threads: set[Owner] = set()
        self.messages: dict[Message, int] = {}
        self.links: tuple[array[int], array[int]] = (array("q"), array("q"))
        self.launches = 0
        self.barriers = 0
        self._on_device = False
        # Separate, because a compiled kernel and the operator that launches it share their name.
        self._operators: dict[str, bool] = {}
        self._kernels: dict[str, tuple[kinds.Role, KernelKind]] = {}

    def feed(self, batch: list[Event]) -> None:
        """Add a batch of events."""
        categories, operators, kernels = _CATEGORIES, self._operators, self._kernels
        if len(operators) + len(kernels) > NAMES:
            operators.clear()
            kernels.clear()
        for event in batch:
            kind = categories.get(event.cat)
            if kind is None or event.ph != "X":
                continue
            start, duration = event.ts, event.dur
            if start is None or duration is None or not 0.0 <= duration < FAR:
                continue
            if not -FAR < start < FAR:
                continue
            if self.base is None:
                self.base = start
            name = event.name
            if kind == _OPERATOR:
                compute = operators.get(name)
                if compute is None:
                    compute = operators[name] = kinds.is_compute(name)
                if compute and self._on_device:
                    continue
                if compute:
                    thread = self.threads.get(event.tid)
                    if thread is None:
                        thread = self.threads[event.tid] = Intervals(self.base)
                    thread.add(start, duration)
                else:
                    self._range(event, start, duration)
            elif kind == _KERNEL:
                known = kernels.get(name)
                if known is None:
                    known = kernels[name] = kinds.role(name), kernel_kind(name)
                role, kernel = known
                if not self._on_device:
                    # With devices, the host's compute is not needed and not stored.
                    self._on_device = True
                    self.threads.clear()
                device = self._device(event.pid)
                device.kernels += 1
                if role == "compute":
                    device.compute.add(start, duration)
                    device.kinds[kernel] += duration
                elif role == "communication":
                    self._call(device, event, start, duration)
                else:
                    device.copies.add(start, duration)
            elif kind == _RANGE:
                self._range(event, start, duration)
            elif kind == _COPY:
                self._device(event.pid).copies.add(start, duration)
            elif kind == _SIMULATED:
                self._simulated(self._device(event.pid), event, start, duration)
            elif name.startswith(kinds.STEP):
                self._step(self._device(event.pid).steps, event, start, duration)

    def _simulated(self, device: _Device, event: Event, start: float, duration: float) -> None:
        """Add an event of a simulated step; its kernels are those of a device."""
        assert self.base is not None
        self._on_device = True
        low, high = device.simulated or (math.inf, -math.inf)
        first = start - self.base
        device.simulated = min(low, first), max(high, first + duration)
        if event.cat in _SIMULATED_CALLS:
            device.calls.add(first, duration, self._place(kinds.message(event)))
        elif event.cat not in _SIMULATED_WAITS:
            device.kernels += 1
            device.compute.add(start, duration)
            device.kinds[kernel_kind(event.name)] += duration

    def _device(self, pid: Owner) -> _Device:
        found = self.devices.get(pid)
        if found is None:
            assert self.base is not None
            found = self.devices[pid] = _Device(self.base)
        return found

    def _call(self, device: _Device, event: Event, start: float, duration: float) -> None:
        """Add a communication kernel, with its message or its launching operator."""
        assert self.base is not None
        message = kinds.message(event)
        launcher = kinds.external_id(event) if message.bytes is None else None
        place = self._place(message)
        device.calls.add(start - self.base, duration, place, -1 if launcher is None else launcher)

    def _range(self, event: Event, start: float, duration: float) -> None:
        """Add a range of the host: a step, a collective, or the launch of one."""
        assert self.base is not None
        name = event.name
        if name.startswith(kinds.STEP):
            self._step(self.steps, event, start, duration)
            self.step_threads.add(event.tid)
        elif name.startswith(kinds.CPU_COMMUNICATION):
            message = kinds.message(event)
            self.callers.add(event.tid)
            if message.collective == "barrier":
                self.barriers += 1
            else:
                self.host.add(start - self.base, duration, self._place(message))
        elif name.startswith(kinds.LAUNCH) or name == "record_param_comms":
            self.launches += name != "record_param_comms"
            message, own = kinds.message(event), kinds.external_id(event)
            if message.bytes is not None and message.collective != kinds.OTHER and own is not None:
                self.links[0].append(own)
                self.links[1].append(self._place(message))

    def _step(
        self, steps: dict[int, tuple[float, float]], event: Event, start: float, duration: float
    ) -> None:
        """Add a range of a step; a step is the union over several streams."""
        number = kinds.step_number(event.name)
        if number is not None and self.base is not None:
            low, high = steps.get(number, (math.inf, -math.inf))
            first = start - self.base
            steps[number] = (min(low, first), max(high, first + duration))

    def _place(self, message: Message) -> int:
        return self.messages.setdefault(message, len(self.messages))

    def collected(self, meta: dict[str, Any]) -> Collected:
        """Return the collected content by lanes."""
        table = _completed(tuple(self.messages), meta)
        ids = np.array(self.links[0], np.int64)
        order = np.argsort(ids, kind="stable")
        links = ids[order], np.array(self.links[1], np.int64)[order]
        # A copy from another device can name a device without other work: no lane.
        worked = {pid: device for pid, device in self.devices.items() if device.kernels}
        lanes = [
            _device_lane(pid, device, device.calls.finished(table, links), self.steps)
            for pid, device in sorted(worked.items(), key=lambda item: str(item[0]))
        ]
        if not lanes and (self.threads or self.host.messages):
            lanes = [self._cpu_lane(self.host.finished(table, links))]
        return Collected(tuple(lanes), self.launches, len(self.host.messages), self.barriers)

    def _cpu_lane(self, calls: Calls) -> Lane:
        """Return the CPU lane: operators compute, except in the threads of Gloo.

        Gloo's own threads copy and divide with operators. That is communication, not compute that
        overlaps it. The busiest thread is never one of them, even if it calls Gloo itself.
        """
        spans = {thread: found.spans() for thread, found in self.threads.items()}
        busiest = max(spans, key=lambda thread: spans[thread].length(), default=None)
        kept = self.step_threads | {busiest}
        compute = [s for t, s in spans.items() if t in kept or t not in self.callers]
        nothing = union()
        steps = _windows(self.steps)
        return Lane(CPU, union(*compute), nothing, calls, steps, "host", {})


def collect(stream: EventStream) -> Collected:
    """Collect a whole file.

    Args:
        stream: Not yet read; afterwards it has the number of events and whether the file was whole.

    Raises:
        InputError: If the file is not a trace.
    """
    gatherer = _Gatherer()
    for batch in stream:
        gatherer.feed(batch)
    return gatherer.collected(stream.meta)


def _device_lane(
    pid: Owner, device: _Device, calls: Calls, host_steps: dict[int, tuple[float, float]]
) -> Lane:
    compute, copies = device.compute.spans(), device.copies.spans()
    name = f"gpu {pid}"
    if device.simulated is not None:
        low, high = device.simulated
        first = min(low, compute.starts[0] * 1e-3 if compute.starts.size else low)
        last = max(high, compute.ends[-1] * 1e-3 if compute.ends.size else high)
        steps = _windows({1: (first, last)})
        return Lane(name, compute, copies, calls, steps, "simulated", device.kinds)
    if not device.steps:
        return Lane(name, compute, copies, calls, _windows(host_steps), "host", device.kinds)
    windows = _windows(device.steps)
    # The work of a step starts with its first kernel and ends where that of the next step starts:
    # late kernels of one stream count in the time of the next step, as in wall-clock time.
    order = sorted(windows, key=lambda number: windows[number][0])
    steps = {number: (windows[number][0], windows[after][0]) for number, after in pairwise(order)}
    steps[order[-1]] = windows[order[-1]]
    return Lane(name, compute, copies, calls, steps, "device", device.kinds)


def _windows(steps: dict[int, tuple[float, float]]) -> dict[int, tuple[int, int]]:
    """Return whole nanoseconds from microseconds."""
    return {
        number: (round(low * 1e3), round(high * 1e3))
        for number, (low, high) in sorted(steps.items())
    }


def _completed(table: tuple[Message, ...], meta: dict[str, Any]) -> tuple[Message, ...]:
    """Name the process group where there is only one; Gloo's ranges and old kernels do not.

    Gloo reports the input of an all-gather; the output is larger by the group's size.
    """
    info = meta.get("distributedInfo")
    groups = info.get("pg_config") if isinstance(info, dict) else None
    only: dict[str, Any] = {}
    if isinstance(groups, list) and len(groups) == 1 and isinstance(groups[0], dict):
        only = groups[0]
    name, size = only.get("pg_desc") or only.get("pg_name"), only.get("pg_size")
    found = []
    for each in table:
        if each.group is None and isinstance(name, str) and isinstance(size, int):
            volume = each.bytes
            if each.collective == "all_gather" and volume is not None:
                volume *= size
            found.append(each._replace(group=name, group_size=size, bytes=volume))
        elif each.group is None and each.collective == "all_gather":
            found.append(each._replace(bytes=None))
        else:
            found.append(each)
    return tuple(found)
