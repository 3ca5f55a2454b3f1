"""P2P transfers between pipeline stages: activations forward, gradients backward.

    connect(step, durations, wires, chunks=1, jitter=None)

Transfers of one rank run one after another, as on one communicator. Interleaved and zero-bubble
schedules overlap them with compute; other schedules wait for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.simulation.actions import Action
from scalewise.simulation.graph import NONE
from scalewise.simulation.step import Label

if TYPE_CHECKING:
    from scalewise.simulation.durations import Durations
    from scalewise.simulation.jitter import Jitter
    from scalewise.simulation.step import Step


def connect(
    step: Step,
    durations: Durations,
    wires: list[int],
    *,
    chunks: int,
    jitter: Jitter | None,
) -> None:
    """Add the P2P transfers of activations and gradients.

    Args:
        step: The step, with all actions in its graph.
        durations: Seconds of one transfer.
        wires: Resource of each stage that carries its transfers.
        chunks: Model chunks per stage.
        jitter: Variation of transfers, or None.

    Transfers of one rank run one after another. Where sends block, the sender continues when its
    transfer has arrived, and a transfer waits for its receiver; otherwise neither waits.
    """
    graph, last = step.graph, len(wires) - 1
    if not last:
        return
    # Zero-bubble schedules overlap their sends: waiting would add the bubbles that they remove.
    blocking = durations.blocking and not durations.schedule.startswith("zb")
    place_of = [{action: place for place, action in enumerate(order)} for order in step.schedules]
    for rank, order in enumerate(step.schedules):
        for place, action in enumerate(order):
            target = _target(action, rank, last, chunks, zb_v=durations.zb_v)
            if target is None:
                continue
            there, wanted = target
            end = step.bounds[rank][action][1]
            gate = step.bounds[there][wanted][0]
            seconds = durations.message
            if jitter is not None:
                seconds = jitter.kernel(seconds)
            after = [end]
            if blocking and chunks == 1 and place_of[there][wanted]:
                # Both ends take part: the transfer starts when the receiver has finished its
                # previous action. (Stages with several chunks would deadlock.)
                before = step.schedules[there][place_of[there][wanted] - 1]
                after.append(step.bounds[there][before][1])
            message = graph.add(seconds, after=after, resources=(wires[rank], wires[there]))
            step.labels.append(
                Label(rank, "pipeline", "send", action.chunk, action.micro, NONE, there)
            )
            graph.wait(gate, message)
            if blocking and place + 1 < len(order):
                graph.wait(step.bounds[rank][order[place + 1]][0], message)


def _target(
    action: Action, rank: int, last: int, chunks: int, *, zb_v: bool
) -> tuple[int, Action] | None:
    """Return the (stage, action) that needs the result of an action, or None."""
    kind, chunk, micro = action
    if kind == "W":
        return None
    if zb_v:
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
