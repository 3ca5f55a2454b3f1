"""What lies between the inputs of a step and its terms: one layer, the slowest stage.

    w = work(case)
    w.forward, w.block_backward, w.layers       # seconds of a layer; layers of the slowest stage

`terms` adds these up, `report.explain` shows them: one way through the step, two readers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from scalewise.numeric import Mask, Num
from scalewise.physics.compute import smooth_max
from scalewise.step import context_parallel, data_parallel, tensor_parallel
from scalewise.step.case import Case
from scalewise.step.data_parallel import BlockTraffic, StepTraffic
from scalewise.step.factored import on_distinct
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
    """Share of it that stays on the path."""
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
    slowest: Num
    """One micro batch on the slowest stage."""
    everywhere: Num
    """One micro batch over all stages."""
    params: Num
    """Parameters of the fullest rank before data parallelism shards them."""
    owned: Num
    """Parameters whose optimizer state one rank updates."""
    reduction: StepTraffic
    """Data-parallel traffic paid once per step."""

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
    device_forward = layer.forward + tp_share * tp_forward + cp_forward
    device_backward = layer.backward + layer.recompute + tp_share * tp_backward + cp_backward
    host_forward, host_backward = host(case)
    head_gemm, loss = head_compute(case, products)
    return LayerWork(
        layer=layer,
        tp_forward=tp_forward,
        tp_backward=tp_backward,
        tp_share=tp_share,
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
    own = on_distinct(case, case.layer_group, layer_work)
    traffic = on_distinct(case, case.data_group, data_parallel.block_traffic)
    forward, backward, head = own.forward, own.backward, own.head_gemm + own.loss

    # Sharded communication beside it.
    block_forward = data_parallel.overlapped(case, forward, traffic.forward)
    block_backward = data_parallel.overlapped(case, backward, traffic.backward)

    # The slowest stage. Its first gather and its last reduction have nothing to hide behind, so
    # one block of each runs plain and the others overlap. A stage may hold no layer at all where
    # the head fills it.
    block, plain = block_forward + block_backward, forward + backward
    ends = traffic.gather + traffic.reduce + traffic.root_gather + traffic.root_reduce
    fullest = np.maximum(case.first_layers, case.middle_layers)
    on_last = np.asarray((case.last_layers - fullest) * block + head >= 0.0)
    layers = np.where(on_last, case.last_layers, fullest)
    some, others = np.minimum(layers, 1.0), np.maximum(layers - 1.0, 0.0)

    params = fullest_params(case)
    idle = np.maximum(forward - traffic.forward, 0.0) + np.maximum(backward - traffic.backward, 0.0)
    load = on_distinct(case, case.data_group, _step_load)
    return Work(
        **{name: getattr(own, name) for name in LayerWork.__slots__},
        traffic=traffic,
        block_forward=block_forward,
        block_backward=block_backward,
        exposed_forward=data_parallel.exposed(case, block_forward, forward, traffic.forward),
        exposed_backward=data_parallel.exposed(case, block_backward, backward, traffic.backward),
        reduce_share=traffic.reduce / np.maximum(traffic.backward, 1e-30),
        layers=layers,
        others=others,
        on_last=on_last,
        ends=ends,
        slowest=others * block + some * plain + ends + np.where(on_last, head, 0.0),
        everywhere=(case.layers - case.pp) * block + case.pp * (plain + ends) + head,
        params=params,
        owned=params / np.where(case.sharding >= 1.0, shards(case), 1.0),
        reduction=data_parallel.hidden_behind(case, load, layers * idle),
    )


def fullest_params(case: Case) -> Num:
    """Parameters of the rank with most of them, whoever sets the pace, before data parallelism."""
    most = np.maximum(np.maximum(case.first_layers, case.middle_layers), case.last_layers)
    return (most * case.layer_params + data_parallel.edge_params(case)) / case.tp


def _step_load(case: Case) -> Num:
    """What data parallelism moves once per step."""
    return data_parallel.step_load(case, fullest_params(case))


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
