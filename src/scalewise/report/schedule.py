"""How does a step look? A drawing of the schedule, of what overlaps, and of memory over time.

    schedule_svg(line)          # a drawing of its own, without scripts or links
    schedule_page(line)         # the same with a summary, as a page that works offline

Three panels share the colours of a legend: every stage of the pipeline over the whole step; the
streams of the rank that sets the pace, where forward turns into backward; its memory. Bars tell
what they are when the pointer rests on them. Colours are those of the other figures.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from scalewise.report.scatter import PALETTE
from scalewise.report.words import gibibytes, milliseconds, percent, plain, title
from scalewise.timeline.events import STREAM_NAMES, STREAMS
from scalewise.units import format_seconds

if TYPE_CHECKING:
    from scalewise.timeline.events import Event
    from scalewise.timeline.play import Timeline

BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK = PALETTE
GREY = "#b8b8b8"

COLOURS = {
    "forward": BLUE,
    "backward": VERMILION,
    "weights": GREEN,
    "data": PURPLE,
    "other": ORANGE,
    "tensor": SKY,
    "pipeline": BLACK,
    "wait": GREY,
}
LEGEND = (
    ("forward", "forward"),
    ("backward", "backward"),
    ("weights", "weight gradients"),
    ("data", "data parallel"),
    ("tensor", "tensor, context parallel"),
    ("pipeline", "sends"),
    ("other", "head, optimizer"),
    ("wait", "waits, launches"),
)

WIDTH, LEFT, RIGHT = 1100, 150, 20
ROW, GAP = 20, 6
BLOCKS_SHOWN = 4
"""Blocks on either side of the turn that the second panel shows."""
LEAST_WIDTH = 0.35
"""Pixels below which neighbouring bars of one kind are drawn as one."""


class Bar(NamedTuple):
    """One bar of a row."""

    start: float
    end: float
    colour: str
    """A key of COLOURS."""
    tip: str
    """What the pointer tells."""
    mark: str = ""
    """What stands in it, where there is room."""


class Row(NamedTuple):
    """One row of a panel."""

    name: str
    bars: list[Bar]


def schedule_svg(line: Timeline) -> str:
    """Draw a step."""
    parts: list[str] = []
    top = 46.0
    stages = overview(line)
    whole = 0.0, line.play.played.seconds + line.play.closing.seconds
    heading = "Pipeline schedule" if len(line.ranks) > 1 else "The whole step"
    top = _panel(parts, heading, stages, whole, top)
    window = turn(line)
    if window is not None:
        name = f"Where forward turns into backward, stage {line.pace}"
        if len(line.play.prices.stages) == 1:
            name = "Where forward turns into backward"
        top = _panel(parts, name, overlaps(line, window), window, top)
    top = _memory(parts, line, whole, top)
    legend = _legend({bar.colour for row in stages for bar in row.bars} | {"data", "tensor"})
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {top}" width="{WIDTH}" '
        f'height="{top}" font-family="system-ui, sans-serif" font-size="12">'
        f'<rect width="{WIDTH}" height="{top}" fill="white"/>'
        '<text x="10" y="20" font-size="14" font-weight="bold">'
        f"{escape(title(line.estimate))}</text>"
    )
    return head + legend + "".join(parts) + "</svg>\n"


def schedule_page(line: Timeline) -> str:
    """Tell a step as a page: summary, drawing, notes."""
    facts = "".join(
        f"<tr><td>{'&emsp;' * name.startswith(' ')}{escape(name.strip())}</td>"
        f"<td class='number'>{escape(value)}</td>"
        f"<td>{escape(detail)}</td></tr>"
        for name, value, detail in summary(line)
    )
    notes = "".join(f"<p>{escape(note)}</p>" for note in line.notes)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title(line.estimate))}</title><style>"
        "body { font: 14px/1.45 system-ui, sans-serif; margin: 2em; color: #111; background: #fff }"
        "table { border-collapse: collapse; margin: 0 0 1em } td { padding: .1em 1em .1em 0 }"
        ".number { text-align: right; font-variant-numeric: tabular-nums }"
        "svg { max-width: 100%; height: auto }</style></head><body>"
        f"<h1 style='font-size: 1.2em'>{escape(title(line.estimate))}</h1>"
        f"<table>{facts}</table>{notes}{schedule_svg(line)}</body></html>\n"
    )


def summary(line: Timeline) -> list[tuple[str, str, str]]:
    """The step in a few lines: (what, value, how `estimate` sees it)."""
    e = line.estimate
    exposed, theirs = sum(line.exposed_seconds.values()), sum(e.exposed.values())
    peak = max((s.value for rank in line.ranks for s in line.memory(rank)), default=0.0)
    rows = [
        (
            "step by events",
            milliseconds(line.step_seconds),
            f"{milliseconds(e.step_seconds)} by closed forms ({100 * line.difference:+.1f} %)",
        ),
        (
            "exposed communication",
            milliseconds(exposed),
            f"{milliseconds(theirs)} by closed forms; {percent(exposed / line.step_seconds)} of "
            "the step",
        ),
    ]
    for group, seconds in line.exposed_seconds.items():
        if seconds > 0.0 or e.exposed[group] > 0.0:
            told = f"{milliseconds(e.exposed[group])} by closed forms"
            rows.append((f"  {plain(group)}", milliseconds(seconds), told))
    if len(line.play.prices.stages) > 1:
        share = percent(line.bubble_seconds / line.step_seconds)
        rows.append(("idle in the pipeline", milliseconds(line.bubble_seconds), f"{share} of it"))
    rows.append(
        ("peak memory shown", gibibytes(peak), f"{gibibytes(e.memory_bytes)} by closed forms")
    )
    return rows


# Rows.


def overview(line: Timeline) -> list[Row]:
    """Every shown stage over the whole step; the streams of the only one where there is one."""
    if len(line.ranks) == 1:
        return overlaps(line, (0.0, math.inf), passes=True)
    # A pass is one bar here, with the waits inside it.
    return [Row(f"stage {rank}", _passes(line, rank, math.inf)) for rank in line.ranks]


def _passes(line: Timeline, rank: int, gap: float) -> list[Bar]:
    """What one stage computes: a bar per pass of a micro batch.

    Args:
        line: The step.
        rank: Which stage.
        gap: Longest wait inside a bar, seconds.
    """
    play, bars = line.play, []
    for task, label in enumerate(play.step.labels):
        if label is None or label.rank != rank or label.stream != "compute":
            continue
        start, end = play.played.start[task], play.played.end[task]
        if end <= start:
            continue
        colour = _colour("compute", label.kind)
        name = label.kind.replace("inputs", "input gradients")
        tip = f"{name}, micro batch {label.micro}, chunk {label.chunk}"
        bars.append(Bar(start, end, colour, tip, str(label.micro)))
    bars += [
        Bar(e.start, e.end, _colour(e.stream, e.kind), e.name)
        for e in line.events(rank)
        if e.micro < 0 and e.stream == "compute"
    ]
    return joined(bars, gap)


def turn(line: Timeline) -> tuple[float, float] | None:
    """The moments around a backward that follows closest on a forward, where the pace is set."""
    play = line.play
    tasks = [
        (play.played.start[task], play.played.end[task], label.kind in ("backward", "inputs"))
        for task, label in enumerate(play.step.labels)
        if label is not None
        and label.rank == line.pace
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
    """The streams of the rank that sets the pace, within a window of time."""
    low, high = window
    bars: dict[str, list[Bar]] = {stream: [] for stream in STREAMS}
    kernels: list[Event] = []
    for event in line.events(line.pace):
        if event.end <= low or event.start >= high:
            continue
        kernels.append(event)
        tip = event.name if event.layer < 0 else f"{event.name}, layer {event.layer}"
        if event.micro >= 0:
            tip += f", micro batch {event.micro}"
        colour = _colour(event.stream, event.kind)
        bars[event.stream].append(
            Bar(max(event.start, low), min(event.end, high), colour, tip, event.name)
        )
    if passes or any(event.kind == "kernel" for event in kernels):
        # Kernels are coloured by the pass they belong to.
        bars["compute"] = _kernels(line, window, keep=not passes)
    return [
        Row(STREAM_NAMES[stream], joined(found, 0.0)) for stream, found in bars.items() if found
    ]


def _kernels(line: Timeline, window: tuple[float, float], *, keep: bool) -> list[Bar]:
    """Compute of the rank that sets the pace, coloured by pass."""
    low, high = window
    found = _blocks(line)
    if not keep:
        return found
    inside: list[Bar] = []
    for event in line.events(line.pace):
        if event.stream != "compute" or event.end <= low or event.start >= high:
            continue
        middle = (event.start + event.end) / 2.0
        block = next((bar for bar in found if bar.start <= middle <= bar.end), None)
        colour = "wait" if event.kind == "wait" or block is None else block.colour
        start, end = max(event.start, low), min(event.end, high)
        inside.append(Bar(start, end, colour, f"{event.name}, layer {event.layer}", event.name))
    return inside


def _blocks(line: Timeline) -> list[Bar]:
    """Blocks of the rank that sets the pace, and what follows them."""
    return _passes(line, line.pace, 1e-9)


def joined(bars: Iterable[Bar], gap: float) -> list[Bar]:
    """Join neighbours that are of the same kind and of the same pass."""
    found: list[Bar] = []
    for bar in sorted(bars):
        if found:
            last = found[-1]
            if (last.colour, last.tip) == (bar.colour, bar.tip) and bar.start - last.end <= gap:
                found[-1] = last._replace(end=max(bar.end, last.end))
                continue
        found.append(bar)
    return found


def _colour(stream: str, kind: str) -> str:
    if stream in ("data", "pipeline"):
        return stream
    if stream in ("tensor", "context"):
        return "tensor"
    if kind in ("forward", "backward", "weights"):
        return kind
    if kind == "inputs":
        return "backward"
    if kind in ("wait", "launch", "straggler", "overhead"):
        return "wait"
    return "other"


# Drawing.


def _legend(used: set[str]) -> str:
    x, parts = float(LEFT), []
    for key, name in LEGEND:
        if key not in used and key in ("weights",):
            continue
        parts.append(
            f'<rect x="{x}" y="28" width="11" height="11" fill="{COLOURS[key]}"/>'
            f'<text x="{x + 15}" y="38">{name}</text>'
        )
        x += 30 + 6.4 * len(name)
    return "".join(parts)


def _panel(
    parts: list[str], name: str, rows: Sequence[Row], window: tuple[float, float], top: float
) -> float:
    """Draw rows of bars with an axis in milliseconds; return where the next panel begins."""
    low, high = window
    scale = (WIDTH - LEFT - RIGHT) / max(high - low, 1e-12)
    parts.append(f'<text x="10" y="{top + 24}" font-weight="bold">{escape(name)}</text>')
    y = top + 34
    height = ROW if len(rows) <= 16 else max(ROW * 16 // len(rows), 7)
    for row in rows:
        if height >= 10:
            parts.append(
                f'<text x="{LEFT - 8}" y="{y + height * 0.72:.1f}" text-anchor="end">'
                f"{escape(row.name)}</text>"
            )
        parts.append(
            f'<rect x="{LEFT}" y="{y}" width="{WIDTH - LEFT - RIGHT}" height="{height}" '
            'fill="#f4f4f4"/>'
        )
        parts += _bars(row.bars, low, scale, y, height)
        y += height + (GAP if height >= 10 else 1)
    return _axis(parts, low, high, scale, top + 34, y) + 10


def _bars(bars: list[Bar], low: float, scale: float, y: float, height: float) -> list[str]:
    """Draw the bars of a row; what is thinner than a hair is drawn with its neighbours."""
    found = []
    held: Bar | None = None
    for bar in [*bars, None]:
        if held is not None and bar is not None:
            thin = (bar.end - held.start) * scale < LEAST_WIDTH or (
                bar.colour == held.colour
                and (bar.end - bar.start) * scale < LEAST_WIDTH
                and (bar.start - held.end) * scale < LEAST_WIDTH
            )
            if thin:
                held = held._replace(end=bar.end)
                continue
        if held is not None:
            found.append(_bar(held, low, scale, y, height))
        held = bar
    return found


def _bar(bar: Bar, low: float, scale: float, y: float, height: float) -> str:
    x, width = LEFT + (bar.start - low) * scale, max((bar.end - bar.start) * scale, 0.2)
    tip = f"<title>{escape(bar.tip)}: {escape(format_seconds(bar.end - bar.start))}</title>"
    edge = ' stroke="white" stroke-width="0.5"' if width > 3 else ""
    text = (
        f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{height}" '
        f'fill="{COLOURS[bar.colour]}"{edge}>{tip}</rect>'
    )
    if bar.mark and height >= 12 and width > 6.6 * len(bar.mark) + 4:
        ink = "black" if bar.colour in ("wait", "tensor", "other", "data") else "white"
        text += (
            f'<text x="{x + width / 2:.1f}" y="{y + height * 0.7:.1f}" text-anchor="middle" '
            f'font-size="10" fill="{ink}" pointer-events="none">{escape(bar.mark)}</text>'
        )
    return text


def ticks(low: float, high: float, most: int = 10) -> list[float]:
    """Round numbers between two, at most so many."""
    span = max(high - low, 1e-12)
    step = 10.0 ** math.floor(math.log10(span / most))
    step = next(step * factor for factor in (1, 2, 5, 10, 20) if span / (step * factor) <= most)
    first = math.ceil(low / step - 1e-9)
    return [n * step for n in range(first, math.floor(high / step + 1e-9) + 1)]


def _axis(parts: list[str], low: float, high: float, scale: float, top: float, y: float) -> float:
    """Draw the axis of time below rows; return its lower edge."""
    marks = ticks(low * 1e3, high * 1e3)
    digits = max(0, -math.floor(math.log10(marks[1] - marks[0]) + 1e-9)) if len(marks) > 1 else 1
    for mark in marks:
        x = LEFT + (mark / 1e3 - low) * scale
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top}" y2="{y + 2}" stroke="#999" '
            'stroke-width="0.5" stroke-dasharray="2 3"/>'
            f'<text x="{x:.1f}" y="{y + 14}" text-anchor="middle" font-size="10" fill="#444">'
            f"{mark:,.{digits}f}</text>"
        )
    parts.append(f'<text x="{LEFT - 8}" y="{y + 14}" text-anchor="end" font-size="10">ms</text>')
    return y + 18


def _memory(parts: list[str], line: Timeline, window: tuple[float, float], top: float) -> float:
    """Draw the memory of the rank that sets the pace, against what it has."""
    samples = line.memory(line.pace)
    low, high = window
    capacity = line.estimate.memory_capacity
    most = max(*(s.value for s in samples), capacity) * 1.04
    height, base = 110.0, top + 34 + 110.0
    scale = (WIDTH - LEFT - RIGHT) / max(high - low, 1e-12)

    def level(value: float) -> float:
        return base - value / most * height

    points, last = [f"{LEFT},{base}"], float(LEFT)
    y = base
    peak = 0.0
    for sample in samples:
        x = LEFT + (sample.start - low) * scale
        peak = max(peak, sample.value)
        # One point per pixel is enough, if none hides a peak.
        if x - last < 0.5 and level(sample.value) >= y:
            continue
        points.append(f"{x:.1f},{y:.1f}")
        y, last = level(sample.value), x
        points.append(f"{x:.1f},{y:.1f}")
    points += [f"{WIDTH - RIGHT},{y:.1f}", f"{WIDTH - RIGHT},{base}"]
    line_y = level(capacity)
    parts.append(
        f'<text x="10" y="{top + 24}" font-weight="bold">Memory of stage {line.pace}</text>'
        f'<polygon points="{" ".join(points)}" fill="{SKY}" stroke="{BLUE}" stroke-width="0.7"/>'
        f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{line_y:.1f}" y2="{line_y:.1f}" '
        f'stroke="{VERMILION}" stroke-dasharray="5 3"/>'
        f'<text x="{LEFT - 8}" y="{line_y + 4:.1f}" text-anchor="end" font-size="10">'
        f"capacity {escape(gibibytes(capacity))}</text>"
        f'<text x="{LEFT - 8}" y="{level(peak) + 16:.1f}" text-anchor="end" font-size="10">'
        f"peak {escape(gibibytes(peak))}</text>"
    )
    return _axis(parts, low, high, scale, top + 34, base) + 8
