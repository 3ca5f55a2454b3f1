"""What lies between the inputs of a step and its terms: one layer, the slowest stage.

    w = work(case)
    w.forward, w.block_backward, w.layers       # seconds of a layer; layers of the slowest stage

`terms` adds these up, `report.explain` shows them: one way through the step, two readers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Mask, Num, lean
from scalewise.physics.compute import smooth_max
from scalewise.step import context_parallel, data_parallel, pipeline, tensor_parallel
from scalewise.step.case import Case
from scalewise.step.data_parallel import BlockTraffic, StepTraffic
from scalewise.step.groups import shards, stages_cross_domains
from scalewise.step.layers import LayerCompute, head_compute, layer_compute, product_seconds

# Share of a layer's host time that belongs to forward; backward launches twice the kernels.
HOST_FORWARD = 1.0 / 3.0


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
    everywhere: Num
    """One micro batch over all stages, but for reductions that follow a pass."""
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
    tp_exposed_forward = tensor_parallel.exposed_seconds(tp_forward, tp_share, compute_forward)
    tp_exposed_backward = tensor_parallel.exposed_seconds(tp_backward, tp_share, compute_backward)
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
    forward, backward, head = own.forward, own.backward, own.head_gemm + own.loss

    # Sharded communication beside it.
    ahead = traffic.forward
    block_forward, exposed_forward = data_parallel.overlapped(case, forward, ahead, ahead)
    block_backward, exposed_backward = data_parallel.beside_backward(case, backward, traffic)

    # The slowest stage. Its first gather and its last reduction have nothing to hide behind, so
    # one block of each runs plain and the others overlap. A stage may hold no layer at all where
    # the head fills it.
    block, plain = block_forward + block_backward, forward + backward
    fullest = np.maximum(case.first_layers, case.middle_layers)
    on_last = lean(np.asarray((case.last_layers - fullest) * block + head >= 0.0))
    layers = np.where(on_last, case.last_layers, fullest)
    some, others = np.minimum(layers, 1.0), np.maximum(layers - 1.0, 0.0)
    root_gather, root_reduce = _root(case, traffic, on_last)
    layer_tail, root_tail, tail_slowed = data_parallel.hidden_tail(
        case, traffic, layers, forward, backward, root_reduce
    )
    tail = layer_tail + root_tail
    ends = traffic.gather + root_gather + tail

    params = fullest_params(case)
    # Gradients hide behind backward; updated parameters (ZeRO-1/2) behind forward too.
    first = np.where(case.sharding == 0.0, 0.0, np.maximum(forward - traffic.forward, 0.0))
    window = layers * (first + np.maximum(backward - traffic.backward, 0.0))
    window = window * pipeline.passes_left(case)
    load = data_parallel.step_load(case, params)
    send_load, send_exposed, send_waiting = pipeline.sends(case)
    slowest = others * block + some * plain + ends + tail_slowed + np.where(on_last, head, 0.0)
    roots = traffic.root_gather + traffic.first_gather
    everywhere = (case.layers - case.pp) * block + case.pp * (plain + traffic.gather) + roots + head
    return Work(
        **{name: getattr(own, name) for name in LayerWork.__slots__},
        traffic=traffic,
        block_forward=block_forward,
        block_backward=block_backward,
        exposed_forward=exposed_forward,
        exposed_backward=exposed_backward,
        reduce_share=traffic.reduce / np.maximum(traffic.backward, 1e-30),
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
        everywhere=everywhere,
        bubble=pipeline.bubble_seconds(case, everywhere, slowest - tail - tail_slowed, own)
        + send_waiting,
        send_waiting=send_waiting,
        params=params,
        owned=params / np.where(case.sharding >= 1.0, shards(case), 1.0),
        window=window,
        reduction=data_parallel.hidden_behind(case, load, window),
        send_load=send_load,
        send_exposed=send_exposed,
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
