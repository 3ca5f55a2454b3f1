"""What a pipeline adds: the bubble, the sends, and the pace of its fullest stage.

1F1B fills and drains once per step: the bubble is the time of all other stages for one micro
batch, divided by the virtual stages when they interleave. Zero-bubble schedules fill a part of it
(`zero_bubble`).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Mask, Num
from scalewise.physics.collectives import send_seconds
from scalewise.step import zero_bubble
from scalewise.step.case import Case
from scalewise.step.groups import links, stages_cross_domains
from scalewise.step.layers import tokens_per_rank


@dataclass(frozen=True, kw_only=True, slots=True)
class Wave:
    """One micro batch on its way down the stages and back, seconds.

    A stage waits for the passes of the others, not for the reductions that follow them.
    """

    forward: Num
    """Through all stages."""
    backward: Num
    """Back through all stages; gradients of inputs alone where those of weights can wait."""
    own_forward: Num
    """The part of it on the slowest stage."""
    own_backward: Num
    weights: Num
    """Gradients of weights on the slowest stage, where they can wait."""
    head: Num
    """Output head and loss, if they are on the slowest stage."""
    ahead: Num
    """By how much the next slowest stage is faster, where the head makes the difference."""

    @property
    def others(self) -> Num:
        """What of it is on other stages."""
        rest: Num = np.maximum(
            self.forward + self.backward - self.own_forward - self.own_backward, 0.0
        )
        return rest


def bubble_seconds(case: Case, wave: Wave, slowest: Num) -> Num:
    """Return the idle time of the slowest stage.

    Args:
        case: The step.
        wave: One micro batch on its way through the stages.
        slowest: One micro batch on the slowest stage, seconds.
    """
    if not (case.pp > 1.0).any():
        return np.zeros_like(case.layers)
    bubble = wave.others / case.chunks
    if (case.schedule >= 2.0).any():
        kept = zero_bubble.bubble_seconds(case, wave, slowest)
        bubble = np.where(case.schedule >= 2.0, kept, bubble)
    if (case.chunks > 1.0).any():
        # Fewer micro batches than stages: every chunk but the last waits for those that are not.
        missing = np.maximum(case.pp - case.micro_steps, 0.0) / case.pp
        whole = wave.forward + wave.backward
        bubble = bubble + np.where(
            case.schedule < 3.0, (1.0 - 1.0 / case.chunks) * missing * whole, 0.0
        )
    result: Num = np.where(case.pp > 1.0, bubble, 0.0)
    return result


def passes_left(case: Case) -> Num:
    """Passes of a stage behind which traffic paid once per step can hide, in whole stages.

    Interleaved: when a chunk has seen its last micro batch, the chunks after it still have a
    round of them before them.
    """
    if not (case.chunks > 1.0).any():
        return 1.0
    round_ = np.minimum(case.pp, case.micro_steps)
    result: Num = 1.0 + np.where(case.pp > 1.0, 1.0 - 1.0 / case.chunks, 0.0) * (round_ - 1.0)
    return result


def message_seconds(case: Case) -> Num:
    """Return the time of one activation or gradient on its way to the neighbouring stage."""
    if not (case.pp > 1.0).any():
        return np.zeros_like(case.layers)
    shard = np.where(case.sequence_parallel > 0.0, case.tp, 1.0)
    message = 2.0 * tokens_per_rank(case) * case.hidden / shard
    seconds = send_seconds(message, links(case), stages_cross_domains(case))
    result: Num = np.where(case.pp > 1.0, seconds, 0.0)
    return result


def posted_ahead(case: Case) -> Mask:
    """Whether messages hide behind other passes, but while the pipeline fills and drains."""
    return np.asarray(((case.overlap_pp > 0.0) & (case.chunks > 1.0)) | (case.schedule >= 2.0))


def last_saves(case: Case) -> Mask:
    """Whether the last stage waits for fewer messages than the others: it has one neighbour."""
    return np.asarray((case.pp > 2.0) & (case.chunks == 1.0) & ~posted_ahead(case))


def sends(case: Case, one: Num, on_last: Mask) -> tuple[Num, Num, Num]:
    """Return (load, exposed, waiting) seconds of activations and gradients sent between stages.

    A middle stage talks to two neighbours in both directions: 4 messages per micro batch and
    chunk, 2 when it is the last or there are only two stages. Interleaved and zero-bubble schedules
    hide messages behind other passes except while the pipeline fills and drains. The first micro
    batch passes all stages down and up, 2 (pp - 1) messages: those between others are a part of
    the bubble.

    Args:
        case: The step.
        one: Seconds of one message.
        on_last: Whether the last stage sets the pace.
    """
    if not (case.pp > 1.0).any():
        none = np.zeros_like(case.layers)
        return none, none, none
    few = (case.pp <= 2.0) | (on_last & last_saves(case))
    per_micro = np.where(few, 2.0, 4.0)
    load = per_micro * case.chunks * case.micro_steps * one
    own = per_micro * one
    hidden = posted_ahead(case)
    exposed = np.where(hidden, own, load)
    # Chunks that block pass their messages in rounds: nothing is left to wait for.
    filling = hidden | (case.chunks == 1.0)
    waiting = np.where(filling, np.maximum(2.0 * (case.pp - 1.0) * one - own, 0.0), 0.0)
    return load, exposed, waiting
