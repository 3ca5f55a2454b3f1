"""What lies between the inputs of a step and its terms: one layer, the slowest stage.

    w = work(case)
    w.forward, w.block_backward, w.layers       # seconds of a layer; layers of the slowest stage

`terms` adds these up, `report.explain` shows them: one way through the step, two readers.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from scalewise.numeric import Mask, Num, lean
from scalewise.physics.compute import smooth_max
from scalewise.step import (
    context_parallel,
    data_parallel,
    pipeline,
    tensor_parallel,
    zero_bubble,
)
from scalewise.step.case import Case
from scalewise.step.data_parallel import BlockTraffic, StepTraffic
from scalewise.step.groups import shards, stages_cross_domains
from scalewise.step.layers import LayerCompute, head_compute, layer_compute, product_seconds
from scalewise.step.pipeline import Wave
from scalewise.step.zero_bubble import Halves

# Share of a layer's host time that belongs to forward; backward launches twice the kernels.
HOST_FORWARD = 1.0 / 3.0

# The same of the head: one product forward, two backward.
HEAD_FORWARD = 1.0 / 3.0


@dataclass(frozen=True, kw_only=True, slots=True)
class LayerWork:
    """One layer and micro step on one rank, and the head, before data parallelism: seconds."""

    layer: LayerCompute
    """Its kernels."""
    tp_forward: Num
    """Tensor-parallel communication, hidden or not."""
    tp_backward: Num
    tp_share: Num
    """Share of it that stays on the path whatever runs beside it."""
    tp_exposed_forward: Num
    """What stays on the path, with what finds no compute to hide behind."""
    tp_exposed_backward: Num
    cp_load: Num
    """Context-parallel communication, hidden or not."""
    cp_forward: Num
    """What of it is exposed."""
    cp_backward: Num
    device_forward: Num
    """Kernels and what blocks them."""
    device_backward: Num
    host_forward: Num
    """Time of the host to launch them."""
    host_backward: Num
    forward: Num
    """The slower of device and host, with a rounded corner."""
    backward: Num
    head_gemm: Num
    """Output projection of a micro step."""
    loss: Num
    """Loss and softmax of a micro step, bound by memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work(LayerWork):
    """The same with data parallelism beside it, and the slowest stage."""

    traffic: BlockTraffic
    """Sharded communication."""
    block_forward: Num
    """With sharded communication beside it."""
    block_backward: Num
    exposed_forward: Num
    """Sharded communication that nothing hides."""
    exposed_backward: Num
    reduce_share: Num
    """Share of the backward communication that is gradients."""
    layers: Num
    """Layers of the slowest stage."""
    others: Num
    """Those of them that overlap: all but one."""
    on_last: Mask
    """Whether the slowest stage is the last, which has the head."""
    ends: Num
    """Gathers and reductions of a micro step that nothing runs beside."""
    tail: Num
    """The reductions among them: they follow a pass, and the next stage does not wait for them."""
    root_gather: Num
    """Gather of what no layer holds, on the slowest stage."""
    root_reduce: Num
    """Reduction of its gradients, hidden or not."""
    root_tail: Num
    """What of it nothing runs beside."""
    tail_slowed: Num
    """Compute of a micro step slowed down by the last reductions of the one before."""
    slowest: Num
    """One micro batch on the slowest stage."""
    wave: Wave
    """One micro batch on its way through all stages."""
    bubble: Num
    """Idle time of the slowest stage in a step."""
    params: Num
    """Parameters of the fullest rank before data parallelism shards them."""
    owned: Num
    """Parameters whose optimizer state one rank updates."""
    window: Num
    """Compute of a micro step that traffic paid once per step can hide behind."""
    reduction: StepTraffic
    """Data-parallel traffic paid once per step."""
    send_load: Num
    """Sends between pipeline stages in a step, hidden or not."""
    send_exposed: Num
    """What of them nothing hides."""
    send_waiting: Num
    """Sends between other stages while the pipeline fills and drains: a part of the bubble."""

    @property
    def head(self) -> Num:
        """Output projection and loss of a micro step."""
        return self.head_gemm + self.loss

    @property
    def wait(self) -> Num:
        """Waiting for launches."""
        forward = self.forward - self.device_forward
        return forward + (self.backward - self.device_backward)

    @property
    def slowed(self) -> Num:
        """Compute slowed down by communication beside it."""
        forward = self.block_forward - self.forward - self.exposed_forward
        return forward + (self.block_backward - self.backward - self.exposed_backward)


def layer_work(case: Case) -> LayerWork:
    """What one layer does on one rank, whatever data parallelism and pipeline do around it."""
    products = product_seconds(case)
    layer = layer_compute(case, products)
    tp_forward, tp_backward = tensor_parallel.layer_seconds(case)
    tp_share = tensor_parallel.exposed_share(case)
    cp_load, cp_forward, cp_backward = context_parallel.layer_seconds(case, layer)
    # Device work and what blocks it, against the host that launches it.
    compute_forward, compute_backward = layer.forward, layer.backward + layer.recompute
    # Attention that hides a ring of keys and values hides nothing else.
    free_forward, free_backward = compute_forward, compute_backward
    if (case.cp > 1.0).any():
        ring = (case.cp > 1.0) & (case.cp_ring > 0.0)
        again = np.minimum(layer.attention_forward, layer.recompute)
        free_forward = free_forward - np.where(ring, layer.attention_forward, 0.0)
        free_backward = free_backward - np.where(ring, layer.attention_backward + again, 0.0)
    tp_exposed_forward = tensor_parallel.exposed_seconds(tp_forward, tp_share, free_forward)
    tp_exposed_backward = tensor_parallel.exposed_seconds(tp_backward, tp_share, free_backward)
    zero = zero_bubble.used(case)
    if zero.any():
        # The pass of gradients of inputs has the collectives to itself.
        alone = free_backward - np.minimum(layer.weights, compute_backward)
        alone = tensor_parallel.exposed_seconds(tp_backward, tp_share, np.maximum(alone, 0.0))
        tp_exposed_backward = np.where(zero, alone, tp_exposed_backward)
    device_forward = compute_forward + tp_exposed_forward + cp_forward
    device_backward = compute_backward + tp_exposed_backward + cp_backward
    host_forward, host_backward = host(case)
    head_gemm, loss = head_compute(case, products)
    return LayerWork(
        layer=layer,
        tp_forward=tp_forward,
        tp_backward=tp_backward,
        tp_share=tp_share,
        tp_exposed_forward=tp_exposed_forward,
        tp_exposed_backward=tp_exposed_backward,
        cp_load=cp_load,
        cp_forward=cp_forward,
        cp_backward=cp_backward,
        device_forward=device_forward,
        device_backward=device_backward,
        host_forward=host_forward,
        host_backward=host_backward,
        forward=smooth_max(device_forward, host_forward),
        backward=smooth_max(device_backward, host_backward),
        head_gemm=head_gemm,
        loss=loss,
    )


def work(case: Case) -> Work:
    """Walk through one step (or many)."""
    own, traffic = layer_work(case), data_parallel.block_traffic(case)
    zero, halves = zero_bubble.used(case), None
    if zero.any():
        halves = zero_bubble.halves(case, own, traffic)
        both = halves.inputs_alone + halves.weights_alone
        own = replace(own, backward=np.where(zero, both, own.backward))
    forward, backward, head = own.forward, own.backward, own.head_gemm + own.loss

    # Sharded communication beside it.
    ahead = traffic.forward
    block_forward, exposed_forward = data_parallel.overlapped(case, forward, ahead, ahead)
    block_backward, exposed_backward = data_parallel.beside_backward(case, backward, traffic)
    reduce_share = traffic.reduce / np.maximum(traffic.backward, 1e-30)
    if halves is not None:
        block_backward = np.where(zero, halves.block, block_backward)
        exposed_backward = np.where(zero, halves.exposed, exposed_backward)
        reduce_share = np.where(zero, halves.reduce_share, reduce_share)

    # The slowest stage. Its first gather and its last reduction have nothing to hide behind, so
    # one block of each runs plain and the others overlap. A stage may hold no layer at all where
    # the head fills it.
    block, plain = block_forward + block_backward, forward + backward
    fullest = np.maximum(case.first_layers, case.middle_layers)
    message = pipeline.message_seconds(case)
    saved = np.where(lean(pipeline.last_saves(case)), 2.0 * message, 0.0)
    lead = (case.last_layers - fullest) * block + head - saved
    on_last = lean(np.asarray(lead >= 0.0))
    layers = np.where(on_last, case.last_layers, fullest)
    some, others = np.minimum(layers, 1.0), np.maximum(layers - 1.0, 0.0)
    own_head = np.where(on_last, head, 0.0)
    root_gather, root_reduce = _root(case, traffic, on_last)
    layer_tail, root_tail, tail_slowed = data_parallel.hidden_tail(
        case, traffic, layers, forward, backward, root_reduce, own_head
    )
    tail = layer_tail + root_tail
    ends = traffic.gather + root_gather + tail

    params = fullest_params(case)
    # Gradients hide behind backward, or behind the half of it that comes last; updated parameters
    # (ZeRO-1/2) behind forward too.
    first = np.where(case.sharding == 0.0, 0.0, np.maximum(forward - traffic.forward, 0.0))
    then = np.maximum(backward - traffic.backward, 0.0)
    if halves is not None:
        then = np.where(zero, np.maximum(halves.weights_alone - traffic.reduce, 0.0), then)
    window = layers * (first + then) * pipeline.passes_left(case)
    load = data_parallel.step_load(case, params)
    send_load, send_exposed, send_waiting = pipeline.sends(case, message, on_last)
    slowest = others * block + some * plain + ends + tail_slowed + own_head
    lead = np.where(on_last, lead, 0.0)
    wave = _wave(
        case, own, traffic, block_forward, halves, on_last, lead, layers, root_gather, tail
    )
    bubble = pipeline.bubble_seconds(case, wave, slowest)
    if halves is not None and np.any(traffic.reduce):
        steps, each = case.micro_steps, layers * traffic.reduce + root_reduce
        free = halves.free & zero
        late = zero_bubble.late_reductions(case, wave, each, steps * slowest + bubble, free) / steps
        tail, ends, slowest = tail + late, ends + late, slowest + late
    return Work(
        **{name: getattr(own, name) for name in LayerWork.__slots__},
        traffic=traffic,
        block_forward=block_forward,
        block_backward=block_backward,
        exposed_forward=exposed_forward,
        exposed_backward=exposed_backward,
        reduce_share=reduce_share,
        layers=layers,
        others=others,
        on_last=on_last,
        ends=ends,
        tail=tail,
        root_gather=root_gather,
        root_reduce=root_reduce,
        root_tail=root_tail,
        tail_slowed=tail_slowed,
        slowest=slowest,
        wave=wave,
        bubble=bubble + send_waiting,
        send_waiting=send_waiting,
        params=params,
        owned=params / np.where(case.sharding >= 1.0, shards(case), 1.0),
        window=window,
        reduction=data_parallel.hidden_behind(case, load, window),
        send_load=send_load,
        send_exposed=send_exposed,
    )


def _wave(
    case: Case,
    own: LayerWork,
    traffic: BlockTraffic,
    block_forward: Num,
    halves: Halves | None,
    on_last: Mask,
    lead: Num,
    layers: Num,
    root_gather: Num,
    tail: Num,
) -> Wave:
    """Follow one micro batch through the stages.

    Of a pass, the first forward block waits for its gather and has none beside it. Backward, the
    last two blocks leave their reductions behind.
    """
    none = np.zeros_like(case.layers)
    if not (case.pp > 1.0).any():
        return Wave(
            forward=none, backward=none, own_forward=none, own_backward=none, weights=none,
            head=none, ahead=none,
        )  # fmt: skip
    forward, head = own.forward, own.head_gemm + own.loss
    deep, second = data_parallel.passing_backward(case, own.backward, traffic)
    final, weights = own.backward, none
    some, others = np.minimum(layers, 1.0), np.maximum(layers - 1.0, 0.0)
    if halves is not None:
        zero = zero_bubble.used(case)
        deep, second = np.where(zero, halves.inputs, deep), np.where(zero, halves.inputs, second)
        final = np.where(zero, halves.inputs_alone, final)
        # Reductions that hold up the next pass fill the drain like the gradients before them.
        held = np.where(halves.free, 0.0, tail)
        weights = np.where(zero, others * halves.weights + some * halves.weights_alone + held, 0.0)
    more = case.layers - case.pp
    near, own_near = np.minimum(more, case.pp), np.minimum(others, 1.0)
    own_head = np.where(on_last, head, 0.0)
    roots = traffic.root_gather + traffic.first_gather
    return Wave(
        forward=more * block_forward
        + case.pp * (forward + traffic.gather)
        + roots
        + HEAD_FORWARD * head,
        backward=(more - near) * deep
        + near * second
        + case.pp * final
        + (1.0 - HEAD_FORWARD) * head,
        own_forward=others * block_forward
        + some * forward
        + traffic.gather
        + root_gather
        + HEAD_FORWARD * own_head,
        own_backward=(others - own_near) * deep
        + own_near * second
        + some * final
        + (1.0 - HEAD_FORWARD) * own_head,
        weights=weights,
        head=own_head,
        ahead=lead,
    )


def _root(case: Case, traffic: BlockTraffic, on_last: Mask) -> tuple[Num, Num]:
    """Gather and reduction of what no layer holds on the slowest stage; a middle one has none."""
    if not (case.sharding >= 2.0).any() or (case.pp == 1.0).all():
        return traffic.root_gather, traffic.root_reduce
    on_first = case.first_layers >= case.middle_layers
    gather = np.where(on_first, traffic.first_gather, 0.0)
    reduce = np.where(on_first, traffic.first_reduce, 0.0)
    return (
        np.where(on_last, traffic.root_gather, gather),
        np.where(on_last, traffic.root_reduce, reduce),
    )


def fullest_params(case: Case) -> Num:
    """Parameters of the rank with most of them, whoever sets the pace, before data parallelism."""
    most = np.maximum(np.maximum(case.first_layers, case.middle_layers), case.last_layers)
    return (most * case.layer_params + data_parallel.edge_params(case)) / case.tp


def host(case: Case) -> tuple[Num, Num]:
    """Host time of one layer, forward and backward; full recompute launches forward again."""
    total: Num = case.host_layer_seconds
    if case.pipeline_host_seconds.any():
        deep = np.where((case.pp > 1.0) & (case.tp > 1.0), 1.0, 0.0)
        extra = case.pipeline_host_seconds * np.power(case.tp, 1.25)
        total = total + stages_cross_domains(case) * deep * extra
    forward = HOST_FORWARD * total
    again = np.where(case.recompute == 2.0, forward, 0.0)
    return forward, (1.0 - HOST_FORWARD) * total + again
