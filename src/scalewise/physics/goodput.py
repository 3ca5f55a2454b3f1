"""Goodput: fraction of wall time that trains, by failures, restarts and checkpoints.

    M = mean_time_between_failures(2048.0, 3.8e-3 / 86400.0)
    tau = best_interval(20.0, M)
    segment(tau, 20.0, 300.0, M).fraction             # 0.916

Failures are a Poisson process; a failure stops the whole job, which goes back to its last
checkpoint. The exact form of Daly also counts failures during checkpoints and restarts. Pure
functions on floats or arrays; SI units.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from scalewise.numeric import Num, minimum, where

ITERATIONS = 60
"""Of Newton's method: it converges quadratically, and from the right without overshooting."""

MAX_EXPONENT = 200.0
"""Largest exponent that is evaluated: a run beyond it never ends (goodput below 1e-80)."""


def mean_time_between_failures(nodes: Num, rate: Num) -> Num:
    """Return the mean time between failures of a job, seconds; infinite without failures.

        M = 1 / (n r)

    Nodes are in series: a failure of any of them stops the job (Kokolis et al., arXiv
    2410.21680, section III).

    Args:
        nodes: Nodes of the job.
        rate: Failures per node and second.

    >>> round(float(mean_time_between_failures(2048.0, 6.5e-3 / 86400.0)) / 3600.0, 2)    # hours
    1.8
    """
    total = np.asarray(nodes * rate, dtype=np.float64)
    safe: Num = where(total > 0.0, total, 1.0)
    found: Num = where(total > 0.0, 1.0 / safe, np.inf)
    return found


def best_interval(checkpoint: Num, mtbf: Num) -> Num:
    """Return the compute time between checkpoints that makes goodput largest, seconds.

        x + exp(-(x + w / M)) = 1,  tau = x M

    The optimum of Daly's exact form, which restart time does not move. It lies below the optimum of
    Young, sqrt(2 w M) (CACM 17(9), 1974), and above Daly's estimate sqrt(2 w M) - w (FGCS 22,
    2006).

    Args:
        checkpoint: Time of one checkpoint that compute waits for, w.
        mtbf: Mean time between failures, M.

    >>> tau, young = float(best_interval(20.0, 11100.0)), (2.0 * 20.0 * 11100.0) ** 0.5
    >>> round(young), round(tau), round(young - 20.0)
    (666, 653, 646)
    """
    v = np.asarray(checkpoint / mtbf, dtype=np.float64)
    x = minimum(np.sqrt(2.0 * v), 1.0)
    for _ in range(ITERATIONS):
        # Below about 1e-16 the slope vanishes together with the function.
        slope = -np.expm1(-(x + v))
        step = where(slope > 0.0, (x + np.expm1(-(x + v))) / where(slope > 0.0, slope, 1.0), 0.0)
        x = np.maximum(x - step, 0.0)
    found: Num = where(v > 0.0, x, 0.0) * where(np.isfinite(mtbf), mtbf, 1.0)
    return where(np.isfinite(mtbf), found, np.inf)


class Segment(NamedTuple):
    """Mean wall time of one interval of training, seconds; the parts add up to `wall`."""

    useful: Num
    """Training that is kept."""
    checkpoint: Num
    """Checkpoints that compute waits for."""
    rework: Num
    """Training lost at failures and repeated."""
    restart: Num
    """Detection, restart, reload and warm-up."""

    @property
    def wall(self) -> Num:
        """All of it."""
        return self.useful + self.checkpoint + self.rework + self.restart

    @property
    def fraction(self) -> Num:
        """Useful time over wall time."""
        return self.useful / self.wall


def segment(interval: Num, checkpoint: Num, restart: Num, mtbf: Num, *, lag: Num = 0.0) -> Segment:
    """Return the mean wall time of one interval and its checkpoint, by cause.

        wall    = M exp((R + L) / M) (exp((tau + w) / M) - 1)
        rework  = M a - (tau + w) + M a exp(R / M) (exp(L / M) - 1)
        restart = M a (exp(R / M) - 1)
        a       = exp((tau + w) / M) - 1

    The exact form of Daly (FGCS 22, 2006, equation 13) with its wall time split by cause: a is the
    mean number of failures that end an attempt. Failures during a restart begin it again. To first
    order fraction = (1 - (R + tau / 2) / M) / (1 + w / tau), as in arXiv 2410.21680, equation 2.

    Args:
        interval: Training between checkpoints, tau.
        checkpoint: Time of a checkpoint that compute waits for, w.
        restart: From a failure until the job trains again, R.
        mtbf: Mean time between failures, M; infinite without failures.
        lag: Time from the end of an asynchronous snapshot until it is stored, L: a failure in it
            goes back one checkpoint further.

    >>> one = segment(666.0, 20.0, 300.0, 11134.0)                        # Llama 3 at 16,384 GPUs
    >>> [round(float(part / one.wall), 3) for part in one], round(float(one.fraction), 3)
    ([0.916, 0.028, 0.03, 0.027], 0.916)
    >>> round(float(segment(168.0, 20.0, 300.0, 1391.0).fraction), 3)     # eight times as many
    0.673
    """
    rate = 1.0 / np.asarray(mtbf, dtype=np.float64)
    none = rate <= 0.0
    safe = where(none, 1.0, rate)
    cycle = interval + checkpoint
    attempts = where(none, 0.0, np.expm1(minimum(safe * cycle, MAX_EXPONENT)))
    tries = where(none, 0.0, np.expm1(minimum(safe * restart, MAX_EXPONENT)))
    late = where(none, 0.0, np.expm1(minimum(safe * lag, MAX_EXPONENT)))
    again = where(none, 0.0, attempts / safe - cycle)
    scale = attempts / safe
    return Segment(
        useful=interval,
        checkpoint=checkpoint,
        rework=np.maximum(again, 0.0) + scale * (1.0 + tries) * late,
        restart=scale * tries,
    )


def unavailable(nodes: Num, spares: int, rate: Num, repair: Num) -> Num:
    """Return the chance that a failed node finds no spare, 0 to 1.

        P(X >= s),  X ~ Binomial(n + s - 1, q),  q = r T / (1 + r T)

    X is how many of the other nodes are out when one fails. Without spares it is 1.

    Args:
        nodes: Nodes that the job needs, n.
        spares: Nodes in standby, s.
        rate: Failures per node and second, r.
        repair: Time until a failed node is back as a spare, T.

    >>> [round(float(unavailable(1024.0, s, 4.4e-8, 86400.0)), 3) for s in (0, 4, 8, 12)]
    [1.0, 0.545, 0.045, 0.001]
    """
    q = rate * repair / (1.0 + rate * repair)
    others = nodes + spares - 1.0
    below: Num = 0.0
    # Of the binomial at 0, 1, ...: each from the one before, from a logarithm that cannot vanish.
    log_term: Num = others * np.log1p(-q)
    for k in range(spares):
        below = below + np.exp(log_term)
        factor = (others - k) / (k + 1.0) * q / (1.0 - q)
        log_term = where(factor > 0.0, log_term + np.log(where(factor > 0.0, factor, 1.0)), -np.inf)
    return np.maximum(1.0 - below, 0.0)


def requeue_seconds(gpus: Num, base: Num, size: Num, exponent: Num) -> Num:
    """Return the time to requeue a job, seconds.

        base (N / size) ** exponent

    Args:
        gpus: GPUs of the job, N.
        base: Time at `size` GPUs.
        size: GPUs of the job that took it.
        exponent: How it grows.

    >>> [round(float(requeue_seconds(n, 454.0, 2048.0, 0.253))) for n in (2048.0, 4096.0, 8192.0)]
    [454, 541, 645]
    """
    found: Num = base * np.exp(exponent * np.log(gpus / size))
    return found
