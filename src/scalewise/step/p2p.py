"""P2P sends between pipeline stages: activations forward, their gradients backward.

A middle stage talks to two neighbors in both directions: 4 messages per micro-batch and chunk, 2
when it is the last or there are only two stages. Interleaved and zero-bubble schedules overlap
messages with other passes except in warm-up and cool-down. The first micro-batch passes all stages
down and up, 2 (pp - 1) messages: those between other stages are part of the bubble.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Mask, Num, mask, maximum, scalar, some, where
from scalewise.physics.collectives import SOURCE, p2p_seconds
from scalewise.step.case import Case, Split
from scalewise.step.groups import stages_cross_domains

if TYPE_CHECKING:
    from scalewise.step.origin import Origin


@dataclass(frozen=True, kw_only=True, slots=True)
class Sends:
    """Messages of the slowest stage in a step, seconds."""

    message: Num
    """One message."""
    per_microbatch: Num
    """Messages per micro-batch and chunk."""
    seconds: Num
    """All of them, overlapped or not."""
    exposed: Num
    waiting: Num
    """Messages between other stages in warm-up and cool-down: part of the bubble."""


def message_bytes(case: Case) -> Num:
    """Return one activation or its gradient, bytes."""
    return case.rates.activation_bytes * case.tokens * case.shape.hidden / case.split.sp


def message_seconds(case: Case) -> Num:
    """Return one activation or gradient to the neighboring stage, seconds."""
    split = case.split
    if not some(split.pipelined):
        return case.zeros
    seconds = p2p_seconds(message_bytes(case), case.links, stages_cross_domains(split))
    result: Num = where(split.pipelined, seconds, 0.0)
    return result


def overlaps_p2p(split: Split) -> Mask:
    """Whether messages overlap other passes, except in warm-up and cool-down."""
    return mask((split.overlap_pp & split.interleaved) | split.zero_bubble)


def last_sends_less(split: Split) -> Mask:
    """Whether the last stage waits for fewer messages than the others: it has one neighbor."""
    return mask((split.pp > 2.0) & ~split.interleaved & ~overlaps_p2p(split))


def sends(case: Case, on_last: Mask) -> Sends:
    """Return the messages of the slowest stage.

    Args:
        case: The step.
        on_last: Whether the last stage is the slowest.
    """
    split, none = case.split, case.zeros
    if not some(split.pipelined):
        return Sends(message=none, per_microbatch=none, seconds=none, exposed=none, waiting=none)
    message = message_seconds(case)
    few = (split.pp <= 2.0) | (on_last & last_sends_less(split))
    per_microbatch = where(few, 2.0, 4.0)
    seconds = per_microbatch * split.chunks * split.num_microbatches * message
    own, overlapped = per_microbatch * message, overlaps_p2p(split)
    # Chunks that block pass their messages in rounds: nothing is left to wait for.
    filling = overlapped | ~split.interleaved
    waiting = maximum(2.0 * (split.pp - 1.0) * message - own, 0.0)
    return Sends(
        message=message,
        per_microbatch=per_microbatch,
        seconds=seconds,
        exposed=where(overlapped, own, seconds),
        waiting=where(filling, waiting, 0.0),
    )


def derive(o: Origin) -> Derivation:
    """Return how exposed P2P of a step comes about."""
    split, sends_ = o.case.split, o.step.sends
    overlapped = bool(scalar(overlaps_p2p(split)))
    crosses = bool(scalar(stages_cross_domains(split)))
    where = "between domains" if crosses else "inside a domain"
    size = scalar(message_bytes(o.case))
    letters: tuple[Letter, ...] = (
        Letter("k", scalar(sends_.per_microbatch), "messages per micro-batch and chunk"),
        Letter("t", scalar(sends_.message), f"one message of {size / 1e6:,.1f} MB {where}", "s"),
    )
    if not overlapped:
        letters = (*letters, Letter("v", scalar(split.chunks), "virtual stages per stage"), o.n)
    return Derivation(
        key="pp_p2p",
        label="exposed P2P",
        formula="k * t" if overlapped else "k * v * n * t",
        letters=letters,
        notes=("overlapped except in warm-up and cool-down",) if overlapped else (),
        source=SOURCE,
    )
