"""Figure of a queue: a calendar with one bar for each run.

queue_figure(found)
"""

from __future__ import annotations

from scalewise.explore.queue import Queue
from scalewise.report import queue_words as words
from scalewise.report.figure import PALETTE, Axis, Figure, Panel, Trace

LATE = "#b9d4e6"
"""Color of the days from the predicted to the latest end: the first of PALETTE, paler."""


def queue_figure(found: Queue) -> Figure:
    """Return runs as bars over days, each followed by the days to the far end of its interval."""
    runs = found.calendar.runs
    names = [f"{run.name} ({run.row.accelerators:,})" for run in runs]
    hover = [
        f"{run.name}: {run.row.model}, {run.row.strategy}<br>{found.day(run.start.value)} to "
        f"{found.day(run.end.value)} [{found.day(run.end.low)} to {found.day(run.end.high)}]"
        for run in runs
    ]
    panel = Panel(
        kind="bars",
        x=Axis(values=names),
        y=Axis(label=f"days from {found.start}"),
        traces=[
            Trace(
                name="predicted",
                xs=names,
                ys=[run.end.value - run.start.value for run in runs],
                base=[run.start.value for run in runs],
                texts=[str(found.day(run.end.value)) for run in runs],
                hover=hover,
                color=PALETTE[0],
            ),
            Trace(
                name="to the far end of the 80% interval",
                xs=names,
                ys=[run.end.high - run.end.value for run in runs],
                base=[run.end.value for run in runs],
                hover=hover,
                color=LATE,
            ),
        ],
        sideways=True,
    )
    return Figure(
        name="queue",
        panels=[panel],
        title=f"Queue on {found.calendar.accelerators:,}x {found.cluster}",
        lead=words.lead(found),
        notes=[*words.other_lines(found), *found.notes],
    )
