"""Who waits for whom in a pipeline? Activations go down the stages, gradients come back up.

    connect(step, prices, wires, chunks=1, jitter=None)

Messages of one rank travel one after another, as they do on one communicator. Interleaved and
zero-bubble schedules post them ahead and compute meanwhile; the others wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.timeline.actions import Action
from scalewise.timeline.graph import NONE
from scalewise.timeline.step import Label

if TYPE_CHECKING:
    from scalewise.timeline.jitter import Jitter
    from scalewise.timeline.prices import Prices
    from scalewise.timeline.step import Step


def connect(
    step: Step,
    prices: Prices,
    wires: list[int],
    *,
    chunks: int,
    jitter: Jitter | None,
) -> None:
    """Send activations and gradients between stages.

    Args:
        step: The step, with all actions laid out.
        prices: What a message takes.
        wires: The resource of each stage that carries its messages.
        chunks: Model chunks per stage.
        jitter: How messages vary, or None.

    Messages of one rank travel one after another. Where sends block, the sender goes on when its
    message has arrived, and a message waits for its receiver; else neither.
    """
    graph, last = step.graph, len(wires) - 1
    if not last:
        return
    # Zero-bubble schedules post their sends ahead: waiting would open the bubbles they close.
    blocking = prices.blocking and not prices.schedule.startswith("zb")
    place_of = [{action: place for place, action in enumerate(order)} for order in step.orders]
    for rank, order in enumerate(step.orders):
        for place, action in enumerate(order):
            target = _target(action, rank, last, chunks, v_shaped=prices.v_shaped)
            if target is None:
                continue
            there, wanted = target
            end = step.bounds[rank][action][1]
            gate = step.bounds[there][wanted][0]
            seconds = prices.message
            if jitter is not None:
                seconds = jitter.kernel(seconds)
            after = [end]
            if blocking and chunks == 1 and place_of[there][wanted]:
                # Both ends take part: it leaves when the receiver is done with what came before.
                # (Stages with several chunks would wait for each other in a circle.)
                before = step.orders[there][place_of[there][wanted] - 1]
                after.append(step.bounds[there][before][1])
            message = graph.add(seconds, after=after, resources=(wires[rank], wires[there]))
            step.labels.append(
                Label(rank, "pipeline", "send", action.chunk, action.micro, NONE, there)
            )
            graph.wait(gate, message)
            if blocking and place + 1 < len(order):
                graph.wait(step.bounds[rank][order[place + 1]][0], message)


def _target(
    action: Action, rank: int, last: int, chunks: int, *, v_shaped: bool
) -> tuple[int, Action] | None:
    """Where the result of an action is needed: (stage, action), or None."""
    kind, chunk, micro = action
    if kind == "W":
        return None
    if v_shaped:
        down = (kind == "F") == (chunk == 0)
        if down and rank < last:
            return rank + 1, action
        if not down and rank > 0:
            return rank - 1, action
        return None
    if kind == "F":
        if rank < last:
            return rank + 1, action
        return (0, Action(kind, chunk + 1, micro)) if chunk + 1 < chunks else None
    if rank > 0:
        return rank - 1, action
    return (last, Action(kind, chunk - 1, micro)) if chunk > 0 else None
