"""Pipeline schedules: the order of forward and backward passes on every stage.

    orders = pipeline_schedule("1f1b", stages=4, chunks=1, num_microbatches=8)
    orders[0][0]                   # Action(kind="F", chunk=0, micro=0)

GPipe, 1F1B, interleaved 1F1B (Narayanan et al., arXiv 2104.04473), ZB-H1 (Qi et al., arXiv
2401.10241) and ZB-V (Qi et al., arXiv 2405.15362), for any number of micro-batches. A schedule has
no times: stages of different length use the same one.
"""

from __future__ import annotations

from itertools import pairwise

from scalewise.simulation.actions import Action, Order
from scalewise.simulation.zb_v import Lengths, zb_v_schedule


def pipeline_schedule(
    schedule: str,
    *,
    stages: int,
    chunks: int,
    num_microbatches: int,
    lengths: Lengths | None = None,
    message: float = 0.0,
) -> list[Order]:
    """Return the order of every stage.

    Args:
        schedule: "gpipe", "1f1b" (interleaved with several chunks), "zbh1" or "zbv".
        stages: Pipeline stages.
        chunks: Model chunks per stage; ZB-V always has two.
        num_microbatches: Micro-batches per step.
        lengths: Seconds of every pass by stage, for ZB-V; equal by default.
        message: Seconds of a P2P transfer between stages, for ZB-V.
    """
    if schedule == "zbv" and stages > 1:
        return zb_v_schedule(stages, num_microbatches, lengths, message)
    if schedule == "gpipe":
        return [_gpipe(chunks, num_microbatches)] * stages
    schedules = [_1f1b(r, stages, chunks, num_microbatches) for r in range(stages)]
    if schedule == "zbh1":
        return [_zb_h1(order, delay=rank) for rank, order in enumerate(schedules)]
    return schedules


def _gpipe(chunks: int, num_microbatches: int) -> Order:
    """Return GPipe: all forward, then all backward; chunk after chunk with several chunks."""
    forward = [Action("F", c, m) for c in range(chunks) for m in range(num_microbatches)]
    backward = [Action("B", c, m) for c in reversed(range(chunks)) for m in range(num_microbatches)]
    return forward + backward


def _groups(stages: int, num_microbatches: int) -> list[range]:
    """Return the micro-batches that pass a chunk before the next chunk starts.

    At least as many as stages, so that the first one has left the last stage in time; as equal as
    possible.
    """
    rounds = max(num_microbatches // stages, 1)
    size, extra = divmod(num_microbatches, rounds)
    cuts = [0]
    for place in range(rounds):
        cuts.append(cuts[-1] + size + (place < extra))
    return [range(a, b) for a, b in pairwise(cuts)]


def _1f1b(rank: int, stages: int, chunks: int, num_microbatches: int) -> Order:
    """Return 1F1B, interleaved with several chunks.

    A stage runs forward passes until the first gradient can arrive (warm-up), then alternates.
    """
    if chunks == 1:
        forward = [Action("F", 0, m) for m in range(num_microbatches)]
        backward = [Action("B", 0, m) for m in range(num_microbatches)]
        ahead = stages - rank - 1
    else:
        groups = _groups(stages, num_microbatches)
        forward = [Action("F", c, m) for g in groups for c in range(chunks) for m in g]
        backward = [Action("B", c, m) for g in groups for c in reversed(range(chunks)) for m in g]
        ahead = 2 * (stages - rank - 1) + (chunks - 1) * max(len(g) for g in groups)
    ahead = min(ahead, len(forward))
    order = forward[:ahead]
    for place in range(len(forward) - ahead):
        order += [forward[ahead + place], backward[place]]
    return order + backward[len(forward) - ahead :]


def _zb_h1(order: Order, *, delay: int) -> Order:
    """Return ZB-H1: dgrad first; wgrad, deferred by `delay` passes, fills the cool-down."""
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
