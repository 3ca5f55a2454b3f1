"""What a pipeline adds: the bubble, the sends, and the pace of its fullest stage.

1F1B fills and drains once per step: the bubble is the time of all other stages for one micro
batch, divided by the virtual stages when they interleave. Zero-bubble schedules split backward
into input and weight gradients and fill the drain with the latter (Qi et al., arXiv 2401.10241):
ZB-H1 keeps a third of the 1F1B bubble, ZB-V next to none.
"""

from __future__ import annotations

import numpy as np

from scalewise.numeric import Num
from scalewise.physics.collectives import send_seconds
from scalewise.step.case import Case
from scalewise.step.groups import links, stages_cross_domains
from scalewise.step.layers import tokens_per_rank

# Bubble over that of 1F1B with t_forward = t_input_grad = t_weight_grad (arXiv 2401.10241, tab. 2).
ZBH1_BUBBLE = 1.0 / 3.0


def bubble_seconds(case: Case, all_stages: Num, slowest: Num) -> Num:
    """Return the idle time of the slowest stage.

    Args:
        case: The step.
        all_stages: Time of one micro batch summed over all stages, seconds.
        slowest: Time of one micro batch on the slowest stage, seconds.
    """
    if not (case.pp > 1.0).any():
        return np.zeros_like(case.layers)
    bubble = np.maximum(all_stages - slowest, 0.0) / case.chunks
    share = np.where(case.schedule == 2.0, ZBH1_BUBBLE, np.where(case.schedule == 3.0, 0.0, 1.0))
    result: Num = np.where(case.pp > 1.0, bubble * share, 0.0)
    return result


def sends(case: Case) -> tuple[Num, Num]:
    """Return (load, exposed) seconds of activations and gradients sent between stages.

    A middle stage talks to two neighbours in both directions: 4 messages per micro batch and
    chunk, 2 when there are only two stages. Interleaved schedules hide them behind the other
    chunks except while the pipeline fills and drains.
    """
    if not (case.pp > 1.0).any():
        return np.zeros_like(case.layers), np.zeros_like(case.layers)
    shard = np.where(case.sequence_parallel > 0.0, case.tp, 1.0)
    message = 2.0 * tokens_per_rank(case) * case.hidden / shard
    one = send_seconds(message, links(case), stages_cross_domains(case))
    per_micro = np.where(case.pp > 2.0, 4.0, 2.0) * case.chunks
    load = per_micro * case.micro_steps * one
    filling = 2.0 * (case.pp - 1.0) * one
    hidden = (case.overlap_pp > 0.0) & (case.chunks > 1.0)
    exposed = np.where(hidden, np.minimum(filling, load), load)
    alone = case.pp == 1.0
    return np.where(alone, 0.0, load), np.where(alone, 0.0, exposed)
