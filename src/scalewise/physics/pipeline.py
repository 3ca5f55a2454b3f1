"""Pipeline bubbles in closed form, and micro-batches in flight.

    bubble_1f1b(latency=0.8, own=0.1)                    # the other stages, once per step
    bubble_zb_h1(forward=0.3, dgrad=0.3, wgrad=0.04, stages=8.0, num_microbatches=32.0)

Every function is about the slowest stage, which sets the step time: how long it idles while the
first micro-batch comes down the pipeline and the last gradient goes back up. Pure functions on
floats or arrays; seconds.
"""

from __future__ import annotations

from scalewise.numeric import Num, maximum, minimum, where


def bubble_1f1b(latency: Num, own: Num, chunks: Num = 1.0) -> Num:
    """Return the bubble of GPipe, 1F1B and interleaved 1F1B, seconds.

        (latency - own) / chunks

    (p - 1) (t_f + t_b) where all p stages are equal, divided by the virtual stages (Narayanan et
    al., arXiv 2104.04473).

    Args:
        latency: One micro-batch forward and backward through all stages, seconds.
        own: Its part on the slowest stage, seconds.
        chunks: Virtual stages per stage.

    >>> float(bubble_1f1b(8.0, 1.0)), float(bubble_1f1b(8.0, 1.0, chunks=7.0))
    (7.0, 1.0)
    """
    result: Num = maximum(latency - own, 0.0) / chunks
    return result


def bubble_of_few(latency: Num, stages: Num, chunks: Num, num_microbatches: Num) -> Num:
    """Return what interleaving adds with fewer micro-batches than stages, seconds.

        (1 - 1 / chunks) * max(stages - n, 0) / stages * latency

    Every chunk but the last waits for micro-batches that do not exist.

    >>> float(bubble_of_few(8.0, stages=4.0, chunks=2.0, num_microbatches=2.0))
    2.0
    """
    missing = maximum(stages - num_microbatches, 0.0) / stages
    result: Num = (1.0 - 1.0 / chunks) * missing * latency
    return result


def bubble_of_first(
    others: Num, forward: Num, backward: Num, stages: Num, num_microbatches: Num
) -> Num:
    """Return the idle time of a slowest first stage under 1F1B, seconds.

        max(O - (p - 1) f, 0) + max(O - (p - 1) b, 0)

    It waits for its first micro-batch in warm-up, and for its last in cool-down. Meanwhile it works
    on p - 1 others: forward in warm-up, backward in cool-down. With n <= p the waits are one:
    max(O - (n - 1) min(f, b), 0).

    Args:
        others: O: one micro-batch through the other stages and back, seconds.
        forward: f: one micro-batch forward on the first stage, seconds.
        backward: b: the same backward.
        stages: p: pipeline stages.
        num_microbatches: n: micro-batches per step.

    With equal stages it is the bubble of `bubble_1f1b`:

    >>> float(bubble_of_first(9.0, 1.0, 2.0, 4, 8))
    9.0
    >>> float(bubble_of_first(9.0, 2.0, 4.0, 4, 8))
    3.0
    """
    warm_up = maximum(others - (stages - 1.0) * forward, 0.0)
    cool_down = maximum(others - (stages - 1.0) * backward, 0.0)
    few = maximum(others - (num_microbatches - 1.0) * minimum(forward, backward), 0.0)
    result: Num = where(num_microbatches > stages, warm_up + cool_down, few)
    return result


def bubble_zb_h1(
    forward: Num, dgrad: Num, wgrad: Num, stages: Num, num_microbatches: Num, chunks: Num = 1.0
) -> Num:
    """Return the bubble of ZB-H1 (Qi et al., arXiv 2401.10241), seconds.

        max(F + D - min(n - 1, p - 1) W, max(F, D) + max(p - n, 0) / (p - 1) min(F, D)) / chunks

    Deferred wgrads fill the wait for the first gradient, one per micro-batch after the first. They
    cannot fill the longer of forward and dgrad, nor, with fewer micro-batches than stages, as many
    of the shorter as are missing.

    Args:
        forward: F: one micro-batch forward on the other stages, seconds.
        dgrad: D: its input gradients there, seconds.
        wgrad: W: weight gradients of one micro-batch on the slowest stage, seconds.
        stages: p: pipeline stages.
        num_microbatches: n: micro-batches per step.
        chunks: Virtual stages per stage.

    >>> float(bubble_zb_h1(7.0, 7.0, 1.0, stages=8.0, num_microbatches=32.0))
    7.0
    """
    hops = maximum(stages - 1.0, 1.0)
    filled = minimum(num_microbatches - 1.0, hops) * wgrad
    shorter, longer = minimum(forward, dgrad), maximum(forward, dgrad)
    unmet = maximum(stages - num_microbatches, 0.0) / hops
    bubble = maximum(forward + dgrad - filled, longer + unmet * shorter)
    result: Num = maximum(bubble, 0.0) / chunks
    return result


def bubble_zb_v(
    forward: Num,
    dgrad: Num,
    wgrad: Num,
    lead: Num,
    first: Num,
    turn: Num,
    slowest: Num,
    stages: Num,
    num_microbatches: Num,
) -> Num:
    """Return the bubble of ZB-V (Qi et al., arXiv 2405.15362), seconds.

        max(max(F / 2, D / 2, D - min(n, p - 1) W) - n lead,
            first + (n - 1) max(F / (p - 1), D / (p - 1), turn) - n slowest, 0)

    The longest of three: stages wait for half a pass of each neighbor or for what wgrads do not
    fill, unless the stage with the head is that much slower; or, with few micro-batches, the first
    goes down and up twice and the others follow at the rate of the longest pass.

    Args:
        forward: F: one micro-batch forward on the other stages, seconds.
        dgrad: D: its input gradients there, seconds.
        wgrad: W: weight gradients of one micro-batch on the slowest stage, seconds.
        lead: By how much the head makes its stage slower than the next slowest, seconds.
        first: The first micro-batch through all stages and back, seconds.
        turn: Forward and backward around the head, 0 where the head is elsewhere, seconds.
        slowest: One micro-batch on the slowest stage, seconds.
        stages: p: pipeline stages.
        num_microbatches: n: micro-batches per step.

    >>> float(bubble_zb_v(7.0, 7.0, 1.0, 0.0, 16.5, 0.0, 3.0, stages=8.0, num_microbatches=32.0))
    3.5
    """
    hops = maximum(stages - 1.0, 1.0)
    unfilled = dgrad - minimum(num_microbatches, hops) * wgrad
    held_up = maximum(maximum(0.5 * forward, 0.5 * dgrad), unfilled)
    even = held_up - num_microbatches * lead
    rate = maximum(maximum(forward / hops, dgrad / hops), turn)
    few = first + (num_microbatches - 1.0) * rate - num_microbatches * slowest
    result: Num = maximum(maximum(even, few), 0.0)
    return result


def in_flight(stage: Num, stages: Num, chunks: Num, num_microbatches: Num) -> Num:
    """Return the micro-batches whose activations a stage holds at its peak under 1F1B.

        min(n, p - stage + (p - 1 - stage) / chunks if chunks > 1)

    As many as there are stages from it to the end; interleaved, (p - 1) / chunks more on the first
    (Korthikanti et al., arXiv 2205.05198).

    Args:
        stage: Place of the stage, 0 for the first.
        stages: p: pipeline stages.
        chunks: Virtual stages per stage.
        num_microbatches: n: micro-batches per step.

    >>> float(in_flight(0.0, 8.0, 1.0, 32.0)), float(in_flight(0.0, 8.0, 2.0, 32.0))
    (8.0, 11.5)
    """
    warm = stages - stage
    warm = warm + where(chunks > 1.0, (stages - 1.0 - stage) / chunks, 0.0)
    result: Num = minimum(num_microbatches, warm)
    return result
