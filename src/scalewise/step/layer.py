"""One layer on one rank: kernels, launches, tensor, context and expert parallelism.

    layer = layer_times(case)
    layer.forward, layer.backward          # per micro-batch, before data parallelism

All times are seconds per tensor-parallel rank and micro-batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Num, maximum, minimum, scalar, some, where
from scalewise.physics.compute import derive_smooth_max, smooth_max
from scalewise.physics.overlap import exposed_beside
from scalewise.step import context_parallel, expert_parallel, tensor_parallel, tuning, wrappers
from scalewise.step.case import Case
from scalewise.step.groups import stages_cross_domains
from scalewise.step.kernels import Kernels, layer_kernels
from scalewise.step.recompute import repeated
from scalewise.step.zero_bubble import WGRAD_LAUNCHES, derive_passes

if TYPE_CHECKING:
    from scalewise.step.origin import Origin

HOST_FORWARD = 1.0 / 3.0
"""Fraction of a layer's launches that belongs to forward; backward launches twice the kernels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Layer:
    """One layer and micro-batch on one rank, before data parallelism, seconds."""

    kernels: Kernels
    tp_forward: Num
    """Tensor-parallel communication, overlapped or not."""
    tp_backward: Num
    tp_fraction: Num
    """Fraction of it that stays exposed."""
    tp_exposed_forward: Num
    tp_exposed_backward: Num
    cp_seconds: Num
    """Context-parallel communication, overlapped or not."""
    cp_exposed_forward: Num
    cp_exposed_backward: Num
    ep_forward: Num
    """All-to-all of experts, overlapped or not."""
    ep_backward: Num
    ep_fraction: Num
    """Fraction of it that stays exposed."""
    ep_exposed_forward: Num
    ep_exposed_backward: Num
    free_forward: Num
    """Kernels that tensor-parallel communication can overlap with."""
    free_backward: Num
    device_forward: Num
    """Kernels and exposed communication."""
    device_backward: Num
    host_forward: Num
    """Launches."""
    host_backward: Num
    wgrad_launches: Num
    """Fraction of the launches of backward that computes weight gradients."""
    wrappers_forward: Num
    """FSDP and DTensor on a host that is the device."""
    wrappers_backward: Num
    forward: Num
    """The slower of device and host, with a rounded corner, and the wrappers."""
    backward: Num

    @property
    def seconds(self) -> Num:
        """Forward and backward."""
        return self.forward + self.backward


def host(case: Case) -> tuple[Num, Num]:
    """Return the launches of one layer, forward and backward, seconds.

    Recompute of whole blocks launches forward again.
    """
    split, habits = case.split, case.habits
    total: Num = habits.host_layer_seconds
    if case.has_experts:
        sparse = case.slowest_sparse
        total = (1.0 - sparse) * total + sparse * expert_parallel.host_seconds(case)
    if some(habits.pipeline_host_seconds):
        crossing = split.pipelined & (split.tp > 1.0) & stages_cross_domains(split)
        extra = habits.pipeline_host_seconds * np.power(split.tp, 1.25)
        total = total + where(crossing, extra, 0.0)
    forward, backward = HOST_FORWARD * total, (1.0 - HOST_FORWARD) * total
    if case.has_frozen:
        more = tuning.launches(case, total)
        forward, backward = forward + more[0], backward + more[1]
    again = repeated(case).launches * forward
    return forward, backward + again


def layer_times(case: Case) -> Layer:
    """Return one layer on one rank, whatever data parallelism and pipeline do around it."""
    split, kernels = case.split, layer_kernels(case)
    tp_forward, tp_backward = tensor_parallel.layer_seconds(case)
    cp_seconds, cp_forward, cp_backward = context_parallel.layer_seconds(
        case, kernels.attention_forward, kernels.attention_backward
    )
    forward, backward = kernels.forward, kernels.backward
    free_forward, free_backward = forward, backward
    if some(split.cp > 1.0):
        # Attention that overlaps a ring of keys and values overlaps nothing else.
        ring = (split.cp > 1.0) & split.cp_ring
        again = repeated(case).attention * kernels.attention_forward
        free_forward = free_forward - where(ring, kernels.attention_forward, 0.0)
        free_backward = free_backward - where(ring, kernels.attention_backward + again, 0.0)
    if some(split.zero_bubble):
        # Collectives of dgrad cannot overlap with wgrads that are deferred.
        dgrad = maximum(free_backward - minimum(kernels.wgrad, backward), 0.0)
        free_backward = where(split.zero_bubble, dgrad, free_backward)
    fraction = tensor_parallel.exposed_fraction(split, case.habits)
    tp_exposed_forward = exposed_beside(tp_forward, fraction, free_forward)
    tp_exposed_backward = exposed_beside(tp_backward, fraction, free_backward)
    ep_forward, ep_backward = expert_parallel.layer_seconds(case)
    ep_fraction: Num = case.zeros
    ep_exposed_forward, ep_exposed_backward = ep_forward, ep_backward
    device_forward = forward + tp_exposed_forward + cp_forward
    device_backward = backward + tp_exposed_backward + cp_backward
    if case.has_experts:
        ep_fraction = expert_parallel.exposed_fraction(case)
        beside = expert_parallel.BESIDE
        ep_exposed_forward = exposed_beside(ep_forward, ep_fraction, beside * forward)
        ep_exposed_backward = exposed_beside(ep_backward, ep_fraction, beside * backward)
        device_forward = device_forward + ep_exposed_forward
        device_backward = device_backward + ep_exposed_backward
    host_forward, host_backward = host(case)
    wrappers_forward, wrappers_backward = wrappers.layer_seconds(case)
    return Layer(
        kernels=kernels,
        tp_forward=tp_forward,
        tp_backward=tp_backward,
        tp_fraction=fraction,
        tp_exposed_forward=tp_exposed_forward,
        tp_exposed_backward=tp_exposed_backward,
        cp_seconds=cp_seconds,
        cp_exposed_forward=cp_forward,
        cp_exposed_backward=cp_backward,
        ep_forward=ep_forward,
        ep_backward=ep_backward,
        ep_fraction=ep_fraction,
        ep_exposed_forward=ep_exposed_forward,
        ep_exposed_backward=ep_exposed_backward,
        free_forward=free_forward,
        free_backward=free_backward,
        device_forward=device_forward,
        device_backward=device_backward,
        host_forward=host_forward,
        host_backward=host_backward,
        wgrad_launches=tuning.wgrad_launches(case, WGRAD_LAUNCHES),
        wrappers_forward=wrappers_forward,
        wrappers_backward=wrappers_backward,
        forward=smooth_max(device_forward, host_forward) + wrappers_forward,
        backward=smooth_max(device_backward, host_backward) + wrappers_backward,
    )


def derive_launches(o: Origin) -> Derivation:
    """Return how the wait for launches comes about."""
    layer = o.step.layer
    forward = derive_smooth_max(
        "f", "forward of a layer", scalar(layer.device_forward), scalar(layer.host_forward)
    )
    if o.case.split.zero_bubble[0]:
        backward = derive_passes(layer)
    else:
        backward = derive_smooth_max(
            "b", "backward of a layer", scalar(layer.device_backward), scalar(layer.host_backward)
        )
    wrapped = wrappers.derive_layer(o.case)
    more = bool(wrapped.value)
    return Derivation(
        key="host",
        label="kernel launches",
        formula="n * L * (f - df + b - db + w)" if more else "n * L * (f - df + b - db)",
        letters=(
            o.n,
            o.layers,
            Letter("f", forward.value, "forward of a layer, launches included", "s", forward),
            Letter("df", scalar(layer.device_forward), "device alone, forward", "s"),
            Letter("b", backward.value, "backward of a layer, launches included", "s", backward),
            Letter("db", scalar(layer.device_backward), "device alone, backward", "s"),
            *((Letter("w", wrapped.value, wrapped.label, "s", wrapped),) if more else ()),
        ),
        source=f"host time per layer: {o.software}",
    )
