"""In which order does each pipeline stage work through its micro batches?

    orders = pipeline_orders("1f1b", stages=4, chunks=1, micro_steps=8)
    orders[0][0]                   # Action(kind="F", chunk=0, micro=0)

GPipe, 1F1B, interleaved 1F1B (Narayanan et al., arXiv 2104.04473), ZB-H1 (Qi et al., arXiv
2401.10241) and ZB-V (Qi et al., arXiv 2405.15362), for any number of micro batches. An order says
nothing about time: stages of different length play the same one.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from itertools import pairwise
from typing import NamedTuple


class Action(NamedTuple):
    """What a stage does as a whole: one pass of one micro batch through one of its chunks."""

    kind: str
    """F forward; B backward; I and W its two halves: gradients of inputs, and of weights."""
    chunk: int
    """Which of the stage's chunks, in forward order."""
    micro: int
    """Micro batch."""


Order = list[Action]


def pipeline_orders(
    schedule: str,
    *,
    stages: int,
    chunks: int,
    micro_steps: int,
    passes: tuple[float, float, float] = (1.0, 1.0, 1.0),
) -> list[Order]:
    """Return the order of every stage.

    Args:
        schedule: "gpipe", "1f1b" (interleaved where there are several chunks), "zbh1" or "zbv".
        stages: Pipeline stages.
        chunks: Model chunks per stage; ZB-V has two whatever is asked.
        micro_steps: Micro batches per step.
        passes: Length of forward, gradients of inputs and of weights, for ZB-V.
    """
    if schedule == "zbv" and stages > 1:
        return _v_shaped(stages, micro_steps, passes)
    if schedule == "gpipe":
        return [_all_forward(chunks, micro_steps)] * stages
    orders = [_one_forward_one_backward(r, stages, chunks, micro_steps) for r in range(stages)]
    if schedule == "zbh1":
        return [_weights_later(order, delay=rank) for rank, order in enumerate(orders)]
    return orders


def _all_forward(chunks: int, micro_steps: int) -> Order:
    """GPipe: all forward, then all backward; chunk after chunk where there are several."""
    forward = [Action("F", c, m) for c in range(chunks) for m in range(micro_steps)]
    backward = [Action("B", c, m) for c in reversed(range(chunks)) for m in range(micro_steps)]
    return forward + backward


def _groups(stages: int, micro_steps: int) -> list[range]:
    """Micro batches that go through a chunk before the next chunk gets them.

    At least as many as stages, so that the first has left the last stage in time; as equal as
    they can be.
    """
    rounds = max(micro_steps // stages, 1)
    size, extra = divmod(micro_steps, rounds)
    cuts = [0]
    for place in range(rounds):
        cuts.append(cuts[-1] + size + (place < extra))
    return [range(a, b) for a, b in pairwise(cuts)]


def _one_forward_one_backward(rank: int, stages: int, chunks: int, micro_steps: int) -> Order:
    """1F1B, interleaved where there are several chunks.

    A stage runs ahead until the first gradient can come back, then alternates.
    """
    if chunks == 1:
        forward = [Action("F", 0, m) for m in range(micro_steps)]
        backward = [Action("B", 0, m) for m in range(micro_steps)]
        ahead = stages - rank - 1
    else:
        groups = _groups(stages, micro_steps)
        forward = [Action("F", c, m) for g in groups for c in range(chunks) for m in g]
        backward = [Action("B", c, m) for g in groups for c in reversed(range(chunks)) for m in g]
        ahead = 2 * (stages - rank - 1) + (chunks - 1) * max(len(g) for g in groups)
    ahead = min(ahead, len(forward))
    order = forward[:ahead]
    for place in range(len(forward) - ahead):
        order += [forward[ahead + place], backward[place]]
    return order + backward[len(forward) - ahead :]


def _weights_later(order: Order, *, delay: int) -> Order:
    """ZB-H1: gradients of inputs first; those of weights `delay` passes later fill the drain."""
    result: Order = []
    waiting: list[Action] = []
    for action in order:
        if action.kind != "B":
            result.append(action)
            continue
        result.append(action._replace(kind="I"))
        waiting.append(action._replace(kind="W"))
        if len(waiting) > delay:
            result.append(waiting.pop(0))
    return result + waiting


def _v_shaped(stages: int, micro_steps: int, passes: tuple[float, float, float]) -> list[Order]:
    """ZB-V: two chunks, the second in reverse, so that the first stage is the last one too.

    The published order, which fits passes of equal length, or one found by playing it with the
    lengths of its passes, as its authors do: each stage takes what is ready in some order of
    preference, forward of its first chunk only while its share of activations allows, and
    gradients of weights when nothing else is there (or at once). The best of them is taken.
    """
    short = min(micro_steps, 4 * stages)
    cyclic = _v_cycles(stages, short)
    best, least = None, _v_seconds(cyclic, passes)
    for preference in _PREFERENCES:
        seconds = _play_v(stages, short, passes, preference)[1]
        if seconds < least * (1.0 - 1e-9):
            best, least = preference, seconds
    if best is None:
        return _v_cycles(stages, micro_steps)
    return _play_v(stages, micro_steps, passes, best)[0]


def _v_cycles(stages: int, micro_steps: int) -> list[Order]:
    """ZB-V in fixed cycles: run ahead, then all six passes of a micro batch in turn, then drain."""
    orders: list[Order] = []
    for rank in range(stages):
        order: Order = []
        counts: dict[tuple[str, int], int] = {}

        def do(
            *passes: str, order: Order = order, counts: dict[tuple[str, int], int] = counts
        ) -> None:
            for name in passes:
                key = name[0], int(name[1])
                micro = counts.get(key, 0)
                counts[key] = micro + 1
                order.append(Action(*key, micro))

        whole = max(micro_steps, 2 * stages - 1)
        for _ in range(2 * (stages - rank) - 1):
            do("F0")
        for _ in range(rank):
            do("F1", "F0")
        for _ in range(stages - rank):
            do("F1", "I1", "W1")
        while counts.get(("F", 1), 0) < counts["F", 0] or counts["F", 0] < whole:
            if counts["F", 0] < whole:
                do("F0")
            do("I0", "W0", "F1", "I1", "W1")
        for _ in range(rank):
            do("I0", "I1")
        for _ in range(stages - rank):
            do("I0", "W0")
        for chunk in (1, 0):
            while counts["W", chunk] < counts["I", chunk]:
                do(f"W{chunk}")
        orders.append([action for action in order if action.micro < micro_steps])
    return orders


def _v_seconds(orders: list[Order], passes: tuple[float, float, float]) -> float:
    """When the last pass of such orders ends."""
    seconds = dict(zip("FIW", passes, strict=True))
    last = len(orders) - 1
    done: dict[tuple[int, Action], float] = {}
    places, clocks = [0] * len(orders), [0.0] * len(orders)
    moved = True
    while moved:
        moved = False
        for stage, order in enumerate(orders):
            while places[stage] < len(order):
                action = order[places[stage]]
                needs = _v_needs(stage, last, action)
                if needs is not None and needs not in done:
                    break
                ready = 0.0 if needs is None else done[needs]
                clocks[stage] = max(clocks[stage], ready) + seconds[action.kind]
                done[stage, action] = clocks[stage]
                places[stage] += 1
                moved = True
    return max(clocks)


def _v_needs(stage: int, last: int, action: Action) -> tuple[int, Action] | None:
    """What a pass of ZB-V waits for: (stage, action), or None."""
    kind, chunk, micro = action
    if kind == "W":
        return stage, Action("I", chunk, micro)
    if (kind, chunk) == ("F", 0):
        return (stage - 1, action) if stage else None
    if (kind, chunk) == ("F", 1):
        return (stage + 1, action) if stage < last else (last, Action("F", 0, micro))
    if (kind, chunk) == ("I", 1):
        return (stage - 1, action) if stage else (0, Action("F", 1, micro))
    return (stage + 1, action) if stage < last else (last, Action("I", 1, micro))


_PREFERENCES = tuple(
    (order, at_once)
    for order in (
        (("I", 1), ("I", 0), ("F", 1), ("F", 0)),
        (("I", 0), ("I", 1), ("F", 1), ("F", 0)),
        (("F", 1), ("I", 1), ("I", 0), ("F", 0)),
        (("I", 0), ("F", 1), ("I", 1), ("F", 0)),
        (("F", 1), ("I", 0), ("I", 1), ("F", 0)),
        (("I", 0), ("F", 0), ("I", 1), ("F", 1)),
    )
    for at_once in (False, True)
)
"""Passes by preference, and whether gradients of weights follow those of inputs at once."""

Preference = tuple[tuple[tuple[str, int], ...], bool]


def _play_v(
    stages: int, micro_steps: int, passes: tuple[float, float, float], preference: Preference
) -> tuple[list[Order], float]:
    """Play ZB-V by one preference: its orders, and when the last pass ends."""
    plan = _VPlan(stages, micro_steps, preference)
    seconds = dict(zip("FIW", passes, strict=True))
    free = [True] * stages
    ends: list[tuple[float, int, str, int]] = []
    waiting, now = list(range(stages)), 0.0
    while True:
        for stage in waiting:
            picked = plan.pick(stage)
            if picked is not None:
                kind, chunk = picked
                free[stage] = False
                heappush(ends, (now + seconds[kind], stage, kind, chunk))
        if not ends:
            return plan.orders, now
        now = ends[0][0]
        touched: set[int] = set()
        while ends and ends[0][0] <= now:
            _, stage, kind, chunk = heappop(ends)
            free[stage] = True
            plan.finish(stage, kind, chunk)
            touched |= {stage, max(stage - 1, 0), min(stage + 1, stages - 1)}
        waiting = sorted(stage for stage in touched if free[stage])


class _VPlan:
    """What each stage of ZB-V has begun and finished."""

    def __init__(self, stages: int, micro_steps: int, preference: Preference) -> None:
        self.order, self.at_once = preference
        self.last, self.micro_steps = stages - 1, micro_steps
        self.most = 2 * stages
        """Chunks of activations a stage may hold: as many as 1F1B's first stage."""
        self.orders: list[Order] = [[] for _ in range(stages)]
        keys = [(kind, chunk) for kind in "FI" for chunk in (0, 1)]
        self.begun = [dict.fromkeys(keys, 0) for _ in range(stages)]
        self.done = [dict.fromkeys(keys, 0) for _ in range(stages)]
        self.weights: list[deque[Action]] = [deque() for _ in range(stages)]
        self.held = [0] * stages

    def pick(self, stage: int) -> tuple[str, int] | None:
        """Begin the next pass of a stage: (kind, chunk), or None if it must wait."""
        if self.at_once and self.weights[stage]:
            return self._weigh(stage)
        for kind, chunk in self.order:
            micro = self.begun[stage][kind, chunk]
            full = (kind, chunk) == ("F", 0) and self.held[stage] >= self.most
            if micro < self.micro_steps and not full and self._arrived(stage, kind, chunk) > micro:
                self.begun[stage][kind, chunk] += 1
                self.orders[stage].append(Action(kind, chunk, micro))
                self.held[stage] += kind == "F"
                return kind, chunk
        return self._weigh(stage) if self.weights[stage] else None

    def _weigh(self, stage: int) -> tuple[str, int]:
        """Begin the oldest gradients of weights that wait."""
        action = self.weights[stage].popleft()
        self.orders[stage].append(action)
        self.held[stage] -= 1
        return "W", action.chunk

    def finish(self, stage: int, kind: str, chunk: int) -> None:
        """Note that a pass is done."""
        if kind == "W":
            return
        if kind == "I":
            self.weights[stage].append(Action("W", chunk, self.done[stage][kind, chunk]))
        self.done[stage][kind, chunk] += 1

    def _arrived(self, stage: int, kind: str, chunk: int) -> int:
        """How many micro batches a pass could begin with, as far as its neighbour is."""
        done, last = self.done, self.last
        if (kind, chunk) == ("F", 0):
            return done[stage - 1]["F", 0] if stage else self.micro_steps
        if (kind, chunk) == ("F", 1):
            return done[stage + 1]["F", 1] if stage < last else done[last]["F", 0]
        if (kind, chunk) == ("I", 1):
            return done[stage - 1]["I", 1] if stage else done[0]["F", 1]
        return done[stage + 1]["I", 0] if stage < last else done[last]["I", 1]
