"""Coarse simulation of long steps: each pass of a micro-batch is one task.

    coarse = coarse_actions(durations)       # by stage: (kind, chunk, edge of the step) -> Coarse

The passes of one micro-batch are simulated block by block, once per kind of stage. A step of ten
thousand micro-batches then simulates whole passes, with the all-gathers before and the reductions
after them as separate tasks. All passes of a stage are alike, so the error is small: zero where
forward and backward of a micro-batch follow each other, below 3% otherwise.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scalewise.simulation.actions import Action
from scalewise.simulation.build import build
from scalewise.simulation.engine import simulation
from scalewise.simulation.spans import Span, outside, union
from scalewise.simulation.step import Coarse

if TYPE_CHECKING:
    from scalewise.simulation.durations import Durations, Stage
    from scalewise.simulation.engine import TaskTimes
    from scalewise.simulation.step import Step

Passes = dict[tuple[str, int, bool], Coarse]


def coarse_actions(durations: Durations) -> list[Passes]:
    """Simulate one micro-batch on every kind of stage."""
    known: dict[tuple[Stage, bool], Passes] = {}
    found = []
    for rank, stage in enumerate(durations.stages):
        key = stage, rank == durations.head_rank
        if key not in known:
            known[key] = _passes(durations.on(rank), stage, head=key[1])
        found.append(known[key])
    return found


def _passes(durations: Durations, stage: Stage, *, head: bool) -> Passes:
    """Return the passes of one stage: of most micro-batches, first forward and last backward."""
    chunks = 2 if durations.zb_v else durations.chunks
    halves = durations.schedule.startswith("zb") and len(durations.stages) > 1
    order = [Action("F", chunk, 0) for chunk in range(chunks)]
    for chunk in reversed(range(chunks)):
        order += [Action(kind, chunk, 0) for kind in ("IW" if halves else "B")]
    alone = replace(
        durations,
        stages=(replace(stage, reduce=0.0, gather=0.0),),
        num_microbatches=1,
        schedule="1f1b",
        chunks=chunks,
        head_forward=durations.head_forward if head else 0.0,
        head_backward=durations.head_backward if head else 0.0,
    )
    found: Passes = {}
    for final in (False, True):
        variant = alone
        if final:
            variant = replace(variant, reduce=durations.reduce_last)
        elif not durations.reduce_each:
            variant = replace(variant, reduce=0.0, across=0.0)
        elif durations.sync_once:
            variant = replace(variant, across=0.0)
        # The only micro-batch is the last.
        variant = replace(variant, reduce_last=variant.reduce)
        if not (final or durations.gather_each):
            variant = replace(variant, gather=0.0)
        step = build(variant, schedules=[order])
        times = simulation(step.graph, contention=durations.contention)
        for action in order:
            found[action.kind, action.chunk, final] = _measure(step, times, action)
    return found


def _measure(step: Step, times: TaskTimes, action: Action) -> Coarse:
    """Return the seconds of one pass and of the communication that overlaps it."""
    gate, end = step.bounds[0][action]
    main = [
        (times.start[task], times.end[task])
        for task in range(gate + 1, len(step.labels))
        if (label := step.labels[task]) is not None and label.stream == "compute" and task <= end
    ]
    if not main:
        return Coarse(seconds=0.0, exposed=0.0)
    begin, done = main[0][0], main[-1][1]
    beside: list[Span] = [
        (max(times.start[task], begin), min(times.end[task], done))
        for task, label in enumerate(step.labels)
        if label is not None and label.stream in ("data", "replica")
    ]
    return Coarse(seconds=done - begin, exposed=outside(beside, union(main)))
