"""In which order does each pipeline stage work through its micro batches?

    orders = pipeline_orders("1f1b", stages=4, chunks=1, micro_steps=8)
    orders[0][0]                   # Action(kind="F", chunk=0, micro=0)

GPipe, 1F1B, interleaved 1F1B (Narayanan et al., arXiv 2104.04473), ZB-H1 (Qi et al., arXiv
2401.10241) and ZB-V (Qi et al., arXiv 2405.15362), for any number of micro batches. An order says
nothing about time: stages of different length play the same one.
"""

from __future__ import annotations

from itertools import pairwise

from scalewise.timeline.actions import Action, Order
from scalewise.timeline.v_shaped import Lengths, v_shaped_orders


def pipeline_orders(
    schedule: str,
    *,
    stages: int,
    chunks: int,
    micro_steps: int,
    lengths: Lengths | None = None,
    message: float = 0.0,
) -> list[Order]:
    """Return the order of every stage.

    Args:
        schedule: "gpipe", "1f1b" (interleaved where there are several chunks), "zbh1" or "zbv".
        stages: Pipeline stages.
        chunks: Model chunks per stage; ZB-V has two whatever is asked.
        micro_steps: Micro batches per step.
        lengths: Seconds of every pass by stage, for ZB-V; equal if not given.
        message: Seconds of a message between stages, for ZB-V.
    """
    if schedule == "zbv" and stages > 1:
        return v_shaped_orders(stages, micro_steps, lengths, message)
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
