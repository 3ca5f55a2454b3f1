"""What a pipeline adds: the bubble, the sends, and the pace of its fullest stage.

1F1B fills and drains once per step: the bubble is the time of all other stages for one micro
batch, divided by the virtual stages when they interleave. Zero-bubble schedules split backward
into gradients of inputs and of weights and fill the drain with the latter (Qi et al., arXiv
2401.10241): what is left depends on how long the two are, and on the micro batches there are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Num
from scalewise.physics.collectives import send_seconds
from scalewise.step.case import Case
from scalewise.step.groups import links, stages_cross_domains
from scalewise.step.layers import tokens_per_rank

if TYPE_CHECKING:
    from scalewise.step.work import LayerWork


def bubble_seconds(case: Case, all_stages: Num, slowest: Num, layer: LayerWork) -> Num:
    """Return the idle time of the slowest stage.

    Args:
        case: The step.
        all_stages: Time of one micro batch summed over all stages, seconds.
        slowest: Time of one micro batch on the slowest stage, seconds.
        layer: Passes of one layer: zero-bubble schedules lay them out one by one.
    """
    if not (case.pp > 1.0).any():
        return np.zeros_like(case.layers)
    bubble = np.maximum(all_stages - slowest, 0.0) / case.chunks
    if (case.schedule >= 2.0).any():
        bubble = np.where(case.schedule >= 2.0, bubble * kept_share(case, layer), bubble)
    if (case.chunks > 1.0).any():
        # Fewer micro batches than stages: every chunk but the last waits for those that are not.
        missing = np.maximum(case.pp - case.micro_steps, 0.0) / case.pp
        bubble = bubble + np.where(
            case.schedule < 3.0, (1.0 - 1.0 / case.chunks) * missing * all_stages, 0.0
        )
    result: Num = np.where(case.pp > 1.0, bubble, 0.0)
    return result


def kept_share(case: Case, layer: LayerWork) -> Num:
    """Share of the 1F1B bubble that a zero-bubble schedule keeps.

    With f, i and w for forward, gradients of inputs and of weights, M micro batches and p stages,
    1F1B idles for (p - 1) (f + i + w). ZB-H1 waits for the gradient of the first micro batch,
    (p - 1) (f + i), and puts off one w per micro batch after the first to fill that; it cannot
    fill what passes before its first forward, (p - 1) f. ZB-V runs two half chunks down and up:
    its stages wait for the longest half pass of a neighbour or, with few micro batches, for the
    gradients of the first one to come back.
    """
    f, w = layer.forward, weights_seconds(layer)
    i = layer.backward - w
    steps, hops = case.micro_steps, np.maximum(case.pp - 1.0, 1.0)
    whole = hops * (f + layer.backward)
    h1 = np.maximum(hops * (f + i) - np.minimum(steps - 1.0, hops) * w, hops * f)
    longest = np.maximum(np.maximum(0.5 * f, 0.5 * i), i - w)
    few = (case.pp - steps + 0.5 * (steps - 1.0)) * (f + i) - (steps - 1.0) * w
    # Its two chunks are in the length of a half pass already.
    v = np.maximum(hops * longest, few) * case.chunks
    result: Num = np.where(case.schedule == 3.0, v, h1) / whole
    return result


def weights_seconds(layer: LayerWork) -> Num:
    """Part of a layer's backward that computes gradients of weights, launches in proportion."""
    share = np.minimum(layer.layer.weights / layer.device_backward, 1.0)
    result: Num = layer.backward * share
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


def sends(case: Case) -> tuple[Num, Num, Num]:
    """Return (load, exposed, waiting) seconds of activations and gradients sent between stages.

    A middle stage talks to two neighbours in both directions: 4 messages per micro batch and
    chunk, 2 when there are only two stages. Interleaved and zero-bubble schedules hide messages
    behind other passes except while the pipeline fills and drains. The first micro batch passes
    all stages down and up, 2 (pp - 1) messages: those between others are a part of the bubble.
    """
    if not (case.pp > 1.0).any():
        none = np.zeros_like(case.layers)
        return none, none, none
    shard = np.where(case.sequence_parallel > 0.0, case.tp, 1.0)
    message = 2.0 * tokens_per_rank(case) * case.hidden / shard
    one = send_seconds(message, links(case), stages_cross_domains(case))
    per_micro = np.where(case.pp > 2.0, 4.0, 2.0)
    load = per_micro * case.chunks * case.micro_steps * one
    own = per_micro * one
    # A last stage that sets the pace by its head would leave the others time for half of their
    # messages; published runs (arXiv 2104.04473) do not show it.
    hidden = ((case.overlap_pp > 0.0) & (case.chunks > 1.0)) | (case.schedule >= 2.0)
    exposed = np.where(hidden, own, load)
    # Chunks that block pass their messages in rounds: nothing is left to wait for.
    filling = hidden | (case.chunks == 1.0)
    waiting = np.where(filling, np.maximum(2.0 * (case.pp - 1.0) * one - own, 0.0), 0.0)
    staged = np.where(case.pp > 1.0, 1.0, 0.0)
    return staged * load, staged * exposed, staged * waiting
