"""The timeline view: bars of one simulated step, and the trace that Perfetto opens.

    msgspec.json.decode(timeline_json(Question()))["panels"][0]["rows"]
    trace_file(Question())           # gzip of trace-event JSON

`timeline` simulates the step, `report.timeline_figure` draws its bars; every bar names here the
terms of the estimate in which its time is counted.
"""

from __future__ import annotations

import gzip
import math
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.question import Question
from scalewise.report.timeline_figure import COLORS, LEGEND, overlaps, overview, summary, turn
from scalewise.simulation.events import STREAM_NAMES
from scalewise.simulation.simulate import Timeline
from scalewise.simulation.trace import trace_json
from scalewise.ui.inputs import resolve
from scalewise.units import format_seconds

if TYPE_CHECKING:
    from scalewise.ask.question import Question
from scalewise.report.timeline_figure import Bar, Row

MAX_BARS = 1500
"""Bars of one row: more than a screen has pixels for."""
MAX_ROWS = 64
"""Rows of one panel: a deeper pipeline is shown in part, and says so."""
MAX_SAMPLES = 600

# What the passes of a layer wait for is inside their bars.
_PASS = (
    "gemm", "attention", "experts", "routing", "memory_bound", "contention", "host",
    "tensor_parallel", "context_parallel", "expert_parallel",
)  # fmt: skip
COMPUTED: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("recompute", ("recompute",)),
    ("attention", ("attention",)),
    ("norm", ("memory_bound",)),
    ("gradients", ("memory_bound",)),
    ("qkv", ("gemm",)),
    ("out", ("gemm",)),
    ("up, down", ("gemm",)),
    ("experts", ("experts",)),
    ("route", ("routing",)),
    ("unpermute", ("routing",)),
    ("head", ("head",)),
    ("wait for launch", ("host",)),
    ("wait for the slowest", ("straggler",)),
    ("optimizer", ("optimizer",)),
    ("wait for copies of offload", ("offload",)),
    ("step overhead", ("overhead",)),
    ("forward", _PASS),
    ("backward", (*_PASS, "recompute")),
    ("input gradients", (*_PASS, "recompute")),
    ("weight gradients", ("gemm", "experts", "memory_bound")),
)
"""First words of what a rank computes, and the terms of the estimate that hold its time."""
SENT: dict[str, tuple[str, ...]] = {
    "tensor": ("tensor_parallel",),
    "context": ("context_parallel",),
    "expert": ("expert_parallel",),
    "pipeline": ("pp_p2p",),
    "host": ("host",),
}
"""The same of the other streams, but for data parallelism, which has two terms."""
_STREAM = {name: stream for stream, name in STREAM_NAMES.items()}
IDLE = ("bubble", "pp_p2p")
"""Where a stage of a pipeline does nothing but wait."""


def _line(question: Question) -> Timeline:
    return resolve(question).asked.timeline()


def timeline_json(question: Question) -> bytes:
    """The timeline view as JSON.

    Raises:
        InputError: If a word is not understood.
    """
    line = _line(question)
    whole = 0.0, line.simulation.times.seconds + line.simulation.closing.seconds
    stages = len(line.simulation.durations.stages)
    links: list[tuple[str, ...]] = [IDLE]
    panels = [_panel(_whole_name(line), overview(line), whole, links)]
    window = turn(line)
    if window is not None:
        name = "Where forward turns into backward"
        if stages > 1:
            name += f", stage {line.critical_rank}, which sets the pace"
        panels.append(_panel(name, overlaps(line, window), window, links))
    return msgspec.json.encode(
        {
            "panels": panels,
            "links": links,
            "legend": [{"key": key, "name": name} for key, name in LEGEND],
            "colors": COLORS,
            "stages": stages,
            "critical_rank": line.critical_rank,
            "stages_shown": min(len(line.ranks), MAX_ROWS),
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


def _whole_name(line: Timeline) -> str:
    """What the first panel shows, and what of the step it leaves out."""
    name, stages = "The whole step", len(line.ranks)
    if stages > MAX_ROWS:
        name += f", {MAX_ROWS} of {stages} stages"
    elif stages > 1:
        name += f", all {stages} stages"
    if line.simulation.extrapolated:
        left = format_seconds(line.simulation.extrapolated_seconds)
        name += f", without {line.simulation.extrapolated:,} micro-batches like the others ({left})"
    return name


def terms_of(row: str, bar: Bar) -> tuple[str, ...]:
    """The terms of the estimate in which the time of a bar is counted, as far as it is exposed.

    Args:
        row: Name of the stream, or of the pipeline stage.
        bar: What the rank did.
    """
    stream = _STREAM.get(row, "compute")
    if stream in ("data", "replica"):
        # ZeRO-1 and 2 gather once, after the optimizer, and that is priced with the reduction.
        gathers = bar.tip.startswith("all-gather") and not bar.tip.startswith(
            "all-gather parameters"
        )
        return ("dp_all_gather" if gathers else "dp_grad_reduce", "contention")
    if stream in SENT:
        return SENT[stream]
    return next((terms for words, terms in COMPUTED if bar.tip.startswith(words)), ())


def _panel(
    name: str, rows: list[Row], window: tuple[float, float], links: list[tuple[str, ...]]
) -> dict[str, Any]:
    low, high = window
    if not math.isfinite(high):
        high = max((bar.end for row in rows for bar in row.bars), default=low)

    def answer(row: str, bar: Bar) -> list[Any]:
        terms = terms_of(row, bar)
        if terms not in links:
            links.append(terms)
        return [bar.start, bar.end, bar.color, bar.tip, bar.mark, links.index(terms)]

    return {
        "name": name,
        "low": low,
        "high": high,
        "rows": [
            {
                "name": row.name,
                "bars": [answer(row.name, bar) for bar in thinned(row.bars, high - low)],
            }
            for row in rows[:MAX_ROWS]
        ],
    }


def thinned(bars: list[Bar], span: float) -> list[Bar]:
    """Join neighbors that are thinner than can be seen, until few enough are left."""
    minimum = span / 4000.0
    while len(bars) > MAX_BARS:
        kept: list[Bar] = []
        for bar in bars:
            if kept:
                last = kept[-1]
                near = bar.start - last.end <= minimum
                small = bar.end - bar.start <= minimum or last.end - last.start <= minimum
                if (
                    near
                    and (small or last.color == bar.color)
                    and bar.end - last.start <= 4 * minimum
                ):
                    kept[-1] = last._replace(end=max(last.end, bar.end), mark="")
                    continue
            kept.append(bar)
        bars, minimum = kept, 2.0 * minimum
    return bars


def _memory(line: Timeline) -> list[list[float]]:
    """Memory of the rank that sets the pace: (seconds, bytes), no peak left out."""
    samples = [(sample.start, sample.value) for sample in line.memory(line.critical_rank)]
    size = max(math.ceil(len(samples) / MAX_SAMPLES), 1)
    parts = [samples[first : first + size] for first in range(0, len(samples), size)]
    return [[part[0][0], max(value for _, value in part)] for part in parts]


def trace_file(question: Question) -> bytes:
    """The step as a file that Perfetto opens.

    Raises:
        InputError: If a word is not understood.
    """
    text, _ = trace_json(_line(question))
    return gzip.compress(text.encode(), 6, mtime=0)
