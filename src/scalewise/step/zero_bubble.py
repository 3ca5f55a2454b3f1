"""Zero-bubble schedules: backward split into dgrad and a wgrad that can wait.

ZB-H1 (Qi et al., arXiv 2401.10241) and ZB-V (Qi et al., arXiv 2405.15362) compute input gradients
first, because the next stage waits for them, and put weight gradients into the gaps. Sharded
parameters are all-gathered beside dgrad, gradients reduced beside wgrad.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Mask, Num, mask, maximum, minimum, scalar, some, where
from scalewise.physics.compute import derive_smooth_max, smooth_max
from scalewise.physics.overlap import derive_overlap
from scalewise.step.case import Case
from scalewise.step.data_parallel import LayerTraffic, overlapped, overlaps_compute

if TYPE_CHECKING:
    from scalewise.step.layer import Layer
    from scalewise.step.origin import Origin
    from scalewise.step.schedule import MicrobatchLatency

WGRAD_LAUNCHES = 1.0 / 3.0
"""Fraction of backward's launches that computes weight gradients: every second GEMM, but no norm,
attention or activation. An assumption."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SplitBackward:
    """Backward of a layer in two passes with overlapped communication, seconds."""

    dgrad: Num
    """Input gradients."""
    dgrad_alone: Num
    """The same without overlapped communication."""
    wgrad: Num
    """Weight gradients, mean over micro-batches."""
    wgrad_alone: Num
    """The same without overlapped communication."""
    slowed: Num
    """Compute slowed by overlapped communication, in the steady state of the pipeline."""
    exposed: Num
    """Exposed communication."""
    reduce_fraction: Num
    """Fraction of it that is gradients."""
    free: Mask
    """Whether reductions overlap all passes, because no all-gather waits behind them."""


def passes(layer: Layer) -> tuple[Num, Num]:
    """Return a layer's backward as dgrad and wgrad, each the slower of kernels and launches.

    Wrappers count as dgrad: the next stage waits for them.
    """
    kernels = minimum(layer.kernels.wgrad, layer.device_backward)
    launches = layer.wgrad_launches * layer.host_backward
    dgrad = smooth_max(layer.device_backward - kernels, layer.host_backward - launches)
    wgrad: Num = smooth_max(kernels, launches)
    return dgrad + layer.wrappers_backward, wgrad


def derive_passes(layer: Layer) -> Derivation:
    """Return how backward comes about where it is split into dgrad and wgrad; one row."""
    device, host = scalar(layer.device_backward), scalar(layer.host_backward)
    kernels = min(scalar(layer.kernels.wgrad), device)
    launches = scalar(layer.wgrad_launches) * host
    dgrad = derive_smooth_max("D", "dgrad of a layer", device - kernels, host - launches)
    wgrad = derive_smooth_max("W", "wgrad of a layer", kernels, launches)
    return Derivation(
        key="b",
        label="backward of a layer, split",
        formula="D + W",
        letters=(
            Letter("D", dgrad.value, "input gradients", "s", dgrad),
            Letter("W", wgrad.value, "weight gradients, deferred", "s", wgrad),
        ),
    )


def split_backward(case: Case, layer: Layer, traffic: LayerTraffic) -> SplitBackward:
    """Return the two passes with overlapped communication.

    Reductions queue behind wgrads, which are often too short for them, and the all-gathers of the
    next forward queue behind those. Without all-gathers (ZeRO-2) they overlap all passes.
    """
    dgrad_alone, wgrad_alone = passes(layer)
    again, n = traffic.backward_all_gather, case.split.num_microbatches
    often = case.habits.reductions(case.split)
    none = case.zeros
    dgrad_slowed, gathers = overlapped(case, dgrad_alone, again, again)
    wgrad_slowed, reduces = overlapped(case, wgrad_alone, traffic.reduce / often, none)
    dgrad = dgrad_alone + dgrad_slowed + gathers
    wgrad = wgrad_alone + often * (wgrad_slowed + reduces)
    slowed, reduces = dgrad_slowed + often * wgrad_slowed, often * reduces
    exposed = gathers + reduces
    free = mask(traffic.all_gather <= 0.0) & case.habits.reduces_each(case.split)
    if some(free):
        alone = layer.forward + dgrad_alone + wgrad_alone
        all_slowed, left = overlapped(case, alone, traffic.reduce, none)
        slowed = where(free, all_slowed, slowed)
        exposed = where(free, left, exposed)
        reduces = where(free, left, reduces)
        # All passes are slowed alike, but for those before the first reduction.
        slower = 1.0 + (1.0 - 1.0 / n) * all_slowed / alone
        dgrad = where(free, slower * dgrad_alone, dgrad)
    return SplitBackward(
        dgrad=dgrad,
        dgrad_alone=dgrad_alone,
        wgrad=where(free, wgrad_alone, wgrad),
        wgrad_alone=wgrad_alone,
        slowed=slowed,
        exposed=exposed,
        reduce_fraction=reduces / maximum(exposed, 1e-30),
        free=free,
    )


def trailing_reduce_seconds(
    case: Case, latency: MicrobatchLatency, reduce: Num, seconds: Num, free: Mask
) -> Num:
    """Return by how much reductions without an all-gather outlast the passes, seconds per step.

    Weight gradients come late: the last stage of ZB-H1 defers as many as there are stages until its
    other passes are done, and in ZB-V the first wait until the micro-batches in flight have turned
    round. What is reduced after that has only the rest of the step to overlap with.

    Args:
        case: The step.
        latency: One micro-batch through the stages.
        reduce: Reductions of a micro-batch, seconds.
        seconds: All passes of the slowest stage, the bubble included.
        free: Whether no all-gather waits behind reductions.
    """
    split, n = case.split, case.split.num_microbatches
    deferred = minimum(n, split.pp)
    both = latency.own_forward + latency.own_backward
    first = latency.forward + latency.own_backward
    v = first + 0.5 * deferred * both + n * reduce
    h1 = first + (n - 1.0) * both + (n - deferred) * latency.wgrad + deferred * reduce
    late = maximum(where(split.zb_v, v, h1) - seconds, 0.0)
    result: Num = where(free & split.overlap_dp & split.shards_gradients, late, 0.0)
    return result


def derive_backward(o: Origin) -> tuple[Derivation, Derivation]:
    """Return how slowed compute and exposed communication of backward in two passes come about."""
    split, habits, traffic, layer = o.case.split, o.case.habits, o.step.traffic, o.step.layer
    contention = scalar(habits.contention)
    dgrad, wgrad = (scalar(each) for each in passes(layer))
    again, reduce = scalar(traffic.backward_all_gather), scalar(traffic.reduce)
    beside = bool(split.overlap_dp[0])
    if bool(habits.reduces_each(split)[0]) and scalar(traffic.all_gather) <= 0.0:
        # Without all-gathers, reductions overlap all passes of a micro-batch.
        everything = scalar(layer.forward) + dgrad + wgrad
        return derive_overlap("all passes", everything, reduce, contention, overlaps=beside)
    often = scalar(habits.reductions(split))
    ahead = bool(scalar(overlaps_compute(split, again)))
    halves = zip(
        derive_overlap("dgrad", dgrad, again, contention, overlaps=ahead),
        derive_overlap("wgrad", wgrad, reduce / often, contention, overlaps=beside),
        strict=True,
    )
    labels = ("backward slowed by communication", "exposed communication of backward")
    slowed, exposed = (
        Derivation(
            key=f"{label.split()[0]}_backward",
            label=label,
            formula="x + r * y",
            letters=(
                Letter("x", first.value, first.label, "s", first),
                Letter("y", second.value, second.label, "s", second),
                Letter("r", often, "reductions per micro-batch"),
            ),
        )
        for label, (first, second) in zip(labels, halves, strict=True)
    )
    return slowed, exposed
