"""What zero-bubble schedules do: backward in two halves, of which the second can wait.

ZB-H1 (Qi et al., arXiv 2401.10241) and ZB-V (Qi et al., arXiv 2405.15362) compute gradients of
inputs first, because the next stage waits for them, and put gradients of weights into the gaps.
Sharded parameters are gathered beside the first half, gradients reduced beside the second.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scalewise.numeric import Mask, Num
from scalewise.physics.compute import smooth_max
from scalewise.step.case import Case
from scalewise.step.data_parallel import BlockTraffic, overlapped

if TYPE_CHECKING:
    from scalewise.step.pipeline import Wave
    from scalewise.step.work import LayerWork

# Share of backward's launches that computes gradients of weights: of the products every second
# one, of norms, attention and activations none. An assumption.
WEIGHT_LAUNCHES = 1.0 / 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Halves:
    """Backward of a layer in two halves, sharded communication beside them: seconds."""

    inputs: Num
    """Gradients of inputs."""
    inputs_alone: Num
    """The same without communication beside it."""
    weights: Num
    """Gradients of weights, mean over micro steps."""
    weights_alone: Num
    """The same without communication beside it."""
    block: Num
    """Both, as the steady state of the pipeline has them."""
    exposed: Num
    """Communication that nothing hides."""
    reduce_share: Num
    """Share of it that is gradients."""
    free: Mask
    """Whether reductions hide behind all passes, because no gather waits behind them."""


def used(case: Case) -> Mask:
    """Which strategies put gradients of weights off."""
    return np.asarray((case.schedule >= 2.0) & (case.pp > 1.0))


def passes(layer: LayerWork) -> tuple[Num, Num]:
    """Return a layer's backward in halves, gradients of inputs and of weights: seconds.

    Each is a pass of its own, the slower of its kernels and of its launches.
    """
    kernels = np.minimum(layer.layer.weights, layer.device_backward)
    launches = WEIGHT_LAUNCHES * layer.host_backward
    inputs = smooth_max(layer.device_backward - kernels, layer.host_backward - launches)
    weights: Num = smooth_max(kernels, launches)
    return inputs, weights


def halves(case: Case, layer: LayerWork, traffic: BlockTraffic) -> Halves:
    """Price the two halves.

    Reductions queue up behind gradients of weights, which are often too short for them, and the
    gathers of the next forward queue up behind those. Without gathers (ZeRO-2) they hide behind
    all passes of a micro batch.
    """
    now, later = passes(layer)
    inputs, gathers = overlapped(case, now, traffic.again, traffic.again)
    often = np.where(case.reduce_every_micro_step > 0.0, 1.0, 1.0 / case.micro_steps)
    none = np.zeros_like(case.layers)
    weights, reduces = overlapped(case, later, traffic.reduce / often, none)
    weights, reduces = often * weights + (1.0 - often) * later, often * reduces
    block, exposed = inputs + weights, gathers + reduces
    free = (np.asarray(traffic.gather) <= 0.0) & (case.reduce_every_micro_step > 0.0)
    if free.any():
        both, shown = overlapped(case, layer.forward + now + later, traffic.reduce, none)
        block = np.where(free, both - layer.forward, block)
        exposed = np.where(free, shown, exposed)
        reduces = np.where(free, shown, reduces)
        # All passes are slowed down alike, but for those before the first reduction.
        slowed = (both - shown) / (layer.forward + now + later) - 1.0
        slower = 1.0 + (1.0 - 1.0 / case.micro_steps) * slowed
        inputs = np.where(free, slower * now, inputs)
    return Halves(
        inputs=inputs,
        inputs_alone=now,
        weights=np.where(free, later, weights),
        weights_alone=later,
        block=block,
        exposed=exposed,
        reduce_share=reduces / np.maximum(exposed, 1e-30),
        free=free,
    )


def bubble_seconds(case: Case, wave: Wave, slowest: Num) -> Num:
    """Return what is left of the bubble.

    With F, I and W for the passes of the slowest stage, M micro batches and p stages:

    ZB-H1 waits for the gradient of the first micro batch, the F and I of the other stages, and
    puts off one W per micro batch after the first to fill that. It cannot fill the longer of the
    two, nor, with fewer micro batches than stages, as many of the shorter as are missing.

    ZB-V is held up by the longest of three: stages wait for half a pass of each neighbour, or for
    what W does not fill; the stage with the head works without a gap; or, with few micro batches,
    the first goes down and up twice and the others follow it at the pace of the longest pass.

    Args:
        case: The step.
        wave: One micro batch on its way through the stages.
        slowest: One micro batch on the slowest stage, seconds.
    """
    hops = np.maximum(case.pp - 1.0, 1.0)
    forward = wave.forward - wave.own_forward
    backward = wave.backward - wave.own_backward
    filled = np.minimum(case.micro_steps - 1.0, hops) * wave.weights
    shorter, longer = np.minimum(forward, backward), np.maximum(forward, backward)
    unmet = np.maximum(case.pp - case.micro_steps, 0.0) / hops
    h1 = np.maximum(forward + backward - filled, longer + unmet * shorter)
    h1 = np.maximum(h1, 0.0) / case.chunks
    if not (case.schedule == 3.0).any():
        return h1
    f, i = forward / hops, backward / hops
    unfilled = backward - np.minimum(case.micro_steps, hops) * wave.weights
    held_up = np.maximum(np.maximum(0.5 * forward, 0.5 * backward), unfilled)
    even = held_up - case.micro_steps * wave.ahead
    turn = np.where(wave.head > 0.0, 0.5 * (wave.own_forward + wave.own_backward + wave.head), 0.0)
    pace = np.maximum(np.maximum(f, i), turn)
    first = wave.forward + wave.backward + 0.5 * wave.weights
    few = first + (case.micro_steps - 1.0) * pace - case.micro_steps * slowest
    v = np.maximum(np.maximum(even, few), 0.0)
    result: Num = np.where(case.schedule == 3.0, v, h1)
    return result


def late_reductions(case: Case, wave: Wave, load: Num, seconds: Num, free: Mask) -> Num:
    """Return by how much reductions that need no gather outlast the passes, seconds per step.

    Gradients of weights come late: the last stage of ZB-H1 puts off as many as there are stages
    until its other passes are done, and in ZB-V the first wait until the micro batches under way
    have turned round. What is reduced after that has only the rest of the step to hide behind.

    Args:
        case: The step.
        wave: One micro batch on its way through the stages.
        load: Reductions of a micro step, seconds.
        seconds: All passes of the slowest stage, the bubble included.
        free: Whether no gather waits behind reductions.
    """
    steps, put_off = case.micro_steps, np.minimum(case.micro_steps, case.pp)
    both, first = wave.own_forward + wave.own_backward, wave.forward + wave.own_backward
    v = first + 0.5 * put_off * both + steps * load
    h1 = first + (steps - 1.0) * both + (steps - put_off) * wave.weights + put_off * load
    late = np.maximum(np.where(case.schedule == 3.0, v, h1) - seconds, 0.0)
    result: Num = np.where(free & (case.overlap_dp > 0.0) & (case.sharding >= 2.0), late, 0.0)
    return result
