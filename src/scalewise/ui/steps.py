"""What happens within one step? The bars of the timeline view, and the trace that Perfetto opens.

    msgspec.json.decode(timeline_json(Question()))["panels"][0]["rows"]
    trace_file(Question())           # gzip of trace-event JSON

`timeline` plays the step; `report.schedule` says which bars tell it.
"""

from __future__ import annotations

import gzip
import math
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.report.schedule import COLOURS, LEGEND, overlaps, overview, summary, turn
from scalewise.timeline.play import Timeline, timeline
from scalewise.timeline.trace import trace_json
from scalewise.ui.nouns import resolve
from scalewise.ui.requests import Question

if TYPE_CHECKING:
    from scalewise.report.schedule import Bar, Row

MOST_BARS = 1500
"""Bars of one row: more than a screen has pixels for."""
MOST_ROWS = 32
"""Rows of one panel: a deeper pipeline is shown in part, and says so."""
MOST_SAMPLES = 600


def _line(question: Question) -> Timeline:
    e = resolve(question).estimate
    return timeline(e.model, e.cluster, e.workload, e.strategy, stack=e.stack)


def timeline_json(question: Question) -> bytes:
    """The timeline view as JSON.

    Raises:
        InputError: If a word is not understood.
    """
    line = _line(question)
    whole = 0.0, line.play.played.seconds + line.play.closing.seconds
    stages = len(line.play.prices.stages)
    panels = [_panel("The whole step", overview(line), whole)]
    window = turn(line)
    if window is not None:
        name = "Where forward turns into backward"
        if stages > 1:
            name += f", stage {line.pace}, which sets the pace"
        panels.append(_panel(name, overlaps(line, window), window))
    return msgspec.json.encode(
        {
            "panels": panels,
            "legend": [{"key": key, "name": name} for key, name in LEGEND],
            "colours": COLOURS,
            "stages": stages,
            "step_seconds": line.step_seconds,
            "estimate_seconds": line.estimate.step_seconds,
            "difference": line.difference,
            "strategy": str(line.estimate.strategy),
            "summary": [list(row) for row in summary(line)],
            "notes": list(line.notes),
            "memory": _memory(line),
            "capacity": line.estimate.memory_capacity,
        }
    )


def _panel(name: str, rows: list[Row], window: tuple[float, float]) -> dict[str, Any]:
    low, high = window
    if not math.isfinite(high):
        high = max((bar.end for row in rows for bar in row.bars), default=low)
    shown = rows[:MOST_ROWS]
    if len(rows) > len(shown):
        name += f": {len(shown)} of {len(rows)} stages"
    return {
        "name": name,
        "low": low,
        "high": high,
        "rows": [
            {"name": row.name, "bars": [_told(bar) for bar in thinned(row.bars, high - low)]}
            for row in shown
        ],
    }


def _told(bar: Bar) -> list[Any]:
    return [bar.start, bar.end, bar.colour, bar.tip, bar.mark]


def thinned(bars: list[Bar], span: float) -> list[Bar]:
    """Join neighbours that are thinner than can be seen, until few enough are left."""
    least = span / 4000.0
    while len(bars) > MOST_BARS:
        kept: list[Bar] = []
        for bar in bars:
            if kept:
                last = kept[-1]
                near = bar.start - last.end <= least
                small = bar.end - bar.start <= least or last.end - last.start <= least
                if (
                    near
                    and (small or last.colour == bar.colour)
                    and bar.end - last.start <= 4 * least
                ):
                    kept[-1] = last._replace(end=max(last.end, bar.end), mark="")
                    continue
            kept.append(bar)
        bars, least = kept, 2.0 * least
    return bars


def _memory(line: Timeline) -> list[list[float]]:
    """Memory of the rank that sets the pace: (seconds, bytes), no peak left out."""
    samples = [(sample.start, sample.value) for sample in line.memory(line.pace)]
    size = max(math.ceil(len(samples) / MOST_SAMPLES), 1)
    parts = [samples[first : first + size] for first in range(0, len(samples), size)]
    return [[part[0][0], max(value for _, value in part)] for part in parts]


def trace_file(question: Question) -> bytes:
    """The step as a file that Perfetto opens.

    Raises:
        InputError: If a word is not understood.
    """
    text, _ = trace_json(_line(question))
    return gzip.compress(text.encode(), 6, mtime=0)
