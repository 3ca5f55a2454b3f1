"""What if a step has too many blocks to play? Each pass of a micro batch becomes one event.

    coarse = coarse_actions(prices)          # by stage: (kind, chunk, last micro batch) -> Coarse

The passes of one micro batch are played block by block once per kind of stage; a step of ten
thousand micro batches then plays whole passes, with the gathers before and the reductions after
them as events of their own. Every pass of a stage is like the other, so little is lost in time:
nothing where a micro batch's forward and backward follow each other, else below 3 %.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scalewise.timeline.actions import Action
from scalewise.timeline.build import build
from scalewise.timeline.engine import play
from scalewise.timeline.spans import Span, outside, union
from scalewise.timeline.step import Coarse

if TYPE_CHECKING:
    from scalewise.timeline.engine import Played
    from scalewise.timeline.prices import Prices, Stage
    from scalewise.timeline.step import Step

Passes = dict[tuple[str, int, bool], Coarse]


def coarse_actions(prices: Prices) -> list[Passes]:
    """Play one micro batch on every kind of stage."""
    known: dict[tuple[Stage, bool], Passes] = {}
    found = []
    for rank, stage in enumerate(prices.stages):
        key = stage, rank == prices.head_rank
        if key not in known:
            known[key] = _passes(prices, stage, head=key[1])
        found.append(known[key])
    return found


def _passes(prices: Prices, stage: Stage, *, head: bool) -> Passes:
    """The passes of one stage, as they are in all micro batches and in the last."""
    chunks = 2 if prices.v_shaped else prices.chunks
    halves = prices.schedule.startswith("zb") and len(prices.stages) > 1
    order = [Action("F", chunk, 0) for chunk in range(chunks)]
    for chunk in reversed(range(chunks)):
        order += [Action(kind, chunk, 0) for kind in ("IW" if halves else "B")]
    alone = replace(
        prices,
        stages=(replace(stage, reduce=0.0, gather=0.0),),
        micro_steps=1,
        schedule="1f1b",
        chunks=chunks,
        head_forward=prices.head_forward if head else 0.0,
        head_backward=prices.head_backward if head else 0.0,
    )
    found: Passes = {}
    for final in (False, True):
        reduces = final or prices.reduce_each
        variant = alone if reduces else replace(alone, reduce=0.0)
        step = build(variant, orders=[order])
        played = play(step.graph, contention=prices.contention)
        for action in order:
            found[action.kind, action.chunk, final] = _measure(step, played, action)
    return found


def _measure(step: Step, played: Played, action: Action) -> Coarse:
    """What one pass took, and what ran beside it."""
    gate, end = step.bounds[0][action]
    main = [
        (played.start[task], played.end[task])
        for task in range(gate + 1, len(step.labels))
        if (label := step.labels[task]) is not None and label.stream == "compute" and task <= end
    ]
    if not main:
        return Coarse(seconds=0.0, exposed=0.0)
    begin, done = main[0][0], main[-1][1]
    beside: list[Span] = [
        (max(played.start[task], begin), min(played.end[task], done))
        for task, label in enumerate(step.labels)
        if label is not None and label.stream == "data"
    ]
    return Coarse(seconds=done - begin, exposed=outside(beside, union(main)))
