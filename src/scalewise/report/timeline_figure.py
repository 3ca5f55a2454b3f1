"""Figure and page of a simulated step: schedule, overlap around the turn, memory over time.

    timeline_figure(line)             # three panels under one legend
    overview(line), turn(line)        # the rows of bars, for the terminal and the web UI

Panels: every stage of the pipeline over the whole step; the streams of the critical rank where
forward turns into backward; its memory. `timeline` simulates.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from scalewise.report.figure import PALETTE, Axis, Figure, Marks, Panel, Rule, Trace
from scalewise.report.page import facts, figure_page
from scalewise.report.table import file_bytes
from scalewise.report.words import gibibytes, milliseconds, percent, plain, title
from scalewise.simulation.events import STREAM_NAMES, STREAMS
from scalewise.units import format_seconds

if TYPE_CHECKING:
    from scalewise.simulation.simulate import Timeline

COLORS = dict(
    zip(
        ("forward", "backward", "weights", "data", "other", "tensor", "pipeline", "wait"),
        (*PALETTE, "#b8b8b8"),
        strict=True,
    )
)
"""Colors by key of a bar."""
LEGEND = (
    ("forward", "forward"),
    ("backward", "backward"),
    ("weights", "wgrad"),
    ("data", "data parallel"),
    ("tensor", "tensor, context, expert parallel"),
    ("pipeline", "P2P send/recv"),
    ("other", "head, optimizer"),
    ("wait", "waits, launches"),
)
"""Keys and names, in the order of the legend."""

BLOCKS_SHOWN = 4
"""Blocks on either side of the turn that the second panel shows."""
THINNEST = 1 / 2600
"""Fraction of a panel below which neighbors are drawn as one bar."""
MAX_SAMPLES = 1000
"""Points of the line of memory."""


class Bar(NamedTuple):
    """One bar of a row."""

    start: float
    end: float
    color: str
    """Key of COLORS."""
    tip: str
    """What the pointer shows."""
    mark: str = ""
    """Text inside it, where there is room."""


class Row(NamedTuple):
    """One row of a panel."""

    name: str
    bars: list[Bar]


def timeline_file(line: Timeline, ending: str) -> bytes:
    """Return a simulated step as a file: .html, .svg or .png."""
    return file_bytes(
        ending, page=lambda: timeline_page(line), figure=lambda: timeline_figure(line)
    )


def timeline_figure(line: Timeline) -> Figure:
    """Return the schedule, the overlap around the turn and the memory of a step."""
    whole = 0.0, line.simulation.times.seconds + line.simulation.closing.seconds
    several = len(line.simulation.durations.stages) > 1
    name = "Pipeline schedule" if len(line.ranks) > 1 else "Whole step"
    panels = [_schedule(name, overview(line), whole)]
    window = turn(line)
    if window is not None:
        of = f", stage {line.critical_rank}" if several else ""
        panels.append(_schedule(f"Forward to backward{of}", overlaps(line, window), window))
    panels.append(_memory(line, whole))
    return Figure(name="timeline", panels=panels, title=title(line.estimate), notes=line.notes)


def timeline_page(line: Timeline) -> str:
    """Return a step as a self-contained page: figure and summary."""
    rows = {name.strip(): f"{value}; {detail}" for name, value, detail in summary(line)}
    return figure_page(timeline_figure(line), facts("Simulated step", rows))


def summary(line: Timeline) -> list[tuple[str, str, str]]:
    """Return (name, simulated value, comparison with the analytical estimate)."""
    e = line.estimate
    exposed, theirs = sum(line.exposed_seconds.values()), sum(e.exposed.values())
    peak = max((s.value for rank in line.ranks for s in line.memory(rank)), default=0.0)
    rows = [
        (
            "step time",
            milliseconds(line.step_seconds),
            f"analytical {milliseconds(e.step_seconds)} ({_signed(line.difference)})",
        ),
        (
            "exposed communication",
            milliseconds(exposed),
            f"analytical {milliseconds(theirs)}; {percent(exposed / line.step_seconds)} of step",
        ),
    ]
    for group, seconds in line.exposed_seconds.items():
        if seconds > 0.0 or e.exposed[group] > 0.0:
            text = f"analytical {milliseconds(e.exposed[group])}"
            rows.append((f"  {plain(group)}", milliseconds(seconds), text))
    if len(line.simulation.durations.stages) > 1:
        fraction = percent(line.bubble_seconds / line.step_seconds)
        rows.append(("pipeline bubble", milliseconds(line.bubble_seconds), f"{fraction} of step"))
    rows.append(("peak memory", gibibytes(peak), f"analytical {gibibytes(e.memory_bytes)}"))
    return rows


def _signed(fraction: float) -> str:
    """Return a difference in percent, without the sign of a zero."""
    text = f"{100 * fraction:+.1f}%"
    return "0.0%" if text in ("+0.0%", "-0.0%") else text


def _schedule(name: str, rows: Sequence[Row], window: tuple[float, float]) -> Panel:
    """Return rows of bars over time, one trace per color."""
    low, high = window
    shown = [(row.name, bar) for row in rows for bar in merged(row.bars, high - low)]
    traces = []
    for key, legend in LEGEND:
        mine = [(row, bar) for row, bar in shown if bar.color == key]
        if mine:
            traces.append(
                Trace(
                    name=legend,
                    xs=[row for row, _ in mine],
                    ys=[1e3 * (bar.end - bar.start) for _, bar in mine],
                    base=[1e3 * bar.start for _, bar in mine],
                    texts=[bar.mark for _, bar in mine],
                    hover=[f"{bar.tip}: {format_seconds(bar.end - bar.start)}" for _, bar in mine],
                    color=COLORS[key],
                )
            )
    return Panel(
        kind="bars",
        title=name,
        x=Axis(values=[row.name for row in rows]),
        y=Axis(label="time (ms)", span=(1e3 * low, 1e3 * high)),
        traces=traces,
        sideways=True,
    )


def _memory(line: Timeline, window: tuple[float, float]) -> Panel:
    """Return the memory of the critical rank over time, below its capacity."""
    samples = [(1e3 * s.start, s.value / 2**30) for s in line.memory(line.critical_rank)]
    size = max(math.ceil(len(samples) / MAX_SAMPLES), 1)
    parts = [samples[first : first + size] for first in range(0, len(samples), size)]
    # The highest of each part: no peak is left out.
    points = [(part[0][0], max(value for _, value in part)) for part in parts]
    points.append((1e3 * window[1], points[-1][1]))
    when, peak = max(points, key=lambda point: point[1])
    capacity = line.estimate.memory_capacity
    times = [when for before, after in pairwise(points) for when in (before[0], after[0])]
    levels = [level for _, level in points[:-1] for _ in range(2)]
    trace = Trace(
        name="",
        xs=times,
        ys=levels,
        low=[0.0] * len(times),
        high=levels,
        hover=[
            f"{when:,.1f} ms: {level:,.1f} GiB" for when, level in zip(times, levels, strict=True)
        ],
        marker="",
    )
    return Panel(
        kind="lines",
        title=f"Memory of stage {line.critical_rank}",
        x=Axis(label="time (ms)", span=(1e3 * window[0], 1e3 * window[1])),
        y=Axis(label="memory (GiB)"),
        traces=[trace],
        marks=[Marks(name="", xs=[when], ys=[peak], labels=[f"{peak:.1f} GiB"], symbol="ring")],
        stretch=0.6,
        rules=[
            Rule(
                value=capacity / 2**30,
                name=f"capacity {gibibytes(capacity)}",
                color=PALETTE[1],
                dash="dash",
            )
        ],
    )


def merged(bars: Iterable[Bar], span: float) -> list[Bar]:
    """Join bars that are too thin to see with their neighbors; busy time stays as long as it is."""
    least = THINNEST * span
    found: list[Bar] = []
    for bar in bars:
        if found:
            last, seconds = found[-1], bar.end - bar.start
            if bar.end - last.start < least:
                found[-1] = last._replace(end=min(last.end + seconds, bar.end))
                continue
            thin = bar.color == last.color and seconds < least
            if thin and bar.start - last.end < min(seconds, least):
                found[-1] = last._replace(end=max(bar.end, last.end))
                continue
        found.append(bar)
    return found


def overview(line: Timeline) -> list[Row]:
    """Return all shown stages over the whole step; of a single stage, its streams."""
    if len(line.ranks) == 1:
        return overlaps(line, (0.0, math.inf), passes=True)
    # A pass is one bar here, with the waits inside it.
    return [Row(f"stage {rank}", _passes(line, rank, math.inf)) for rank in line.ranks]


def _passes(line: Timeline, rank: int, gap: float) -> list[Bar]:
    """Return the compute of one stage: a bar per pass of a micro-batch.

    Args:
        line: The step.
        rank: The stage.
        gap: Longest wait inside a bar, seconds.
    """
    simulation, bars = line.simulation, []
    for task, label in enumerate(simulation.step.labels):
        start, end = simulation.times.start[task], simulation.times.end[task]
        if label is not None and (label.rank, label.stream) == (rank, "compute") and end > start:
            name = label.kind.replace("inputs", "input gradients")
            tip = f"{name}, micro-batch {label.micro}, chunk {label.chunk}"
            bars.append(Bar(start, end, _key("compute", label.kind), tip, str(label.micro)))
    bars += [
        Bar(e.start, e.end, _key(e.stream, e.kind), e.name)
        for e in line.events(rank)
        if e.micro < 0 and e.stream == "compute"
    ]
    return joined(bars, gap)


def turn(line: Timeline) -> tuple[float, float] | None:
    """Return the window around the backward that follows closest on a forward, critical rank."""
    simulation = line.simulation
    tasks = [
        (simulation.times.start[task], simulation.times.end[task], label.kind != "forward")
        for task, label in enumerate(simulation.step.labels)
        if label is not None
        and label.rank == line.critical_rank
        and label.kind in ("forward", "backward", "inputs")
    ]
    turns = [
        (after[0] - before[1], place)
        for place, (before, after) in enumerate(pairwise(tasks), start=1)
        if after[2] and not before[2]
    ]
    if not turns:
        return None
    shortest = min(gap for gap, _ in turns)
    place = next(place for gap, place in turns if gap <= shortest * (1.0 + 1e-9))
    last = min(place + BLOCKS_SHOWN, len(tasks)) - 1
    return tasks[max(place - BLOCKS_SHOWN, 0)][0], tasks[last][1]


def overlaps(line: Timeline, window: tuple[float, float], *, passes: bool = False) -> list[Row]:
    """Return the streams of the critical rank within a window of time.

    Args:
        line: The step.
        window: Start and end, seconds.
        passes: Draw compute by pass instead of by kernel.
    """
    low, high = window
    blocks = _passes(line, line.critical_rank, 1e-9)
    events = [e for e in line.events(line.critical_rank) if e.end > low and e.start < high]
    kernels = any(event.kind == "kernel" for event in events)
    bars: dict[str, list[Bar]] = {stream: [] for stream in STREAMS}
    for event in events:
        tip = event.name if event.layer < 0 else f"{event.name}, layer {event.layer}"
        if event.micro >= 0:
            tip += f", micro-batch {event.micro}"
        key = _key(event.stream, event.kind)
        if kernels and event.stream == "compute" and event.kind != "wait":
            # A kernel has the color of its pass.
            middle = (event.start + event.end) / 2.0
            key = next((b.color for b in blocks if b.start <= middle <= b.end), "wait")
        start, end = max(event.start, low), min(event.end, high)
        bars[event.stream].append(Bar(start, end, key, tip, event.name))
    if passes:
        bars["compute"] = blocks
    return [Row(STREAM_NAMES[name], joined(found, 0.0)) for name, found in bars.items() if found]


def joined(bars: Iterable[Bar], gap: float) -> list[Bar]:
    """Join neighbors of the same kind and pass."""
    found: list[Bar] = []
    for bar in sorted(bars):
        last = found[-1] if found else None
        same = last is not None and (last.color, last.tip) == (bar.color, bar.tip)
        if last is not None and same and bar.start - last.end <= gap:
            found[-1] = last._replace(end=max(bar.end, last.end))
        else:
            found.append(bar)
    return found


_KEYS = {"forward": "forward", "backward": "backward", "inputs": "backward", "weights": "weights"}
_KEYS |= dict.fromkeys(("wait", "launch", "straggler", "overhead"), "wait")


def _key(stream: str, kind: str) -> str:
    """Return the key of COLORS of an event."""
    streams = {"pipeline": "pipeline", **dict.fromkeys(("tensor", "context", "expert"), "tensor")}
    streams |= dict.fromkeys(("data", "replica"), "data")
    return streams.get(stream) or _KEYS.get(kind, "other")
