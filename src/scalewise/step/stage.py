"""The slowest pipeline stage: its layers, what no layer holds, and one micro-batch on it.

    stage = slowest_stage(case, block, traffic, head)
    stage.layers, stage.on_last, stage.seconds

The slowest stage sets the step time. Without a pipeline it is the whole model.
"""

from __future__ import annotations

from dataclasses import dataclass

from scalewise.numeric import (
    Mask,
    Num,
    lazy,
    mask,
    maximum,
    minimum,
    some,
    squeeze_constant_axes,
    where,
)
from scalewise.step import data_parallel, p2p, tuning
from scalewise.step.block import Block
from scalewise.step.case import Case, Split
from scalewise.step.data_parallel import LayerTraffic


@dataclass(frozen=True, kw_only=True)
class Stage:
    """The slowest stage and one micro-batch on it, seconds."""

    layers: Num
    """Layers it holds; none where the head fills it."""
    one: Num
    """1, or 0 where it holds no layer: the layer whose communication nothing overlaps."""
    others: Num
    """The other layers, whose communication overlaps."""
    on_last: Mask
    """Whether it is the last stage, which has the head."""
    lead: Num
    """By how much the head makes it slower than the next slowest stage."""
    head: Num
    """LM head and loss; 0 where they are elsewhere."""
    root_all_gather: Num
    """All-gather of what no layer holds."""
    root_reduce: Num
    """Reduction of its gradients, overlapped or not."""
    tail_layer: Num
    """Exposed reduction of the last layer, mean over micro-batches."""
    tail_root: Num
    """The same for what no layer holds."""
    tail_across: Num
    """Exposed all-reduce of the last layer between replicas, mean over micro-batches."""
    tail_late: Num
    """Reductions that outlast the passes of a zero-bubble schedule, per micro-batch."""
    tail_slowed: Num
    """Compute slowed by the last reductions of the micro-batch before."""
    passes: Num
    """Forward and backward of all layers."""
    all_gather: Num
    """All-gather of the first layer."""

    @lazy
    def tail(self) -> Num:
        """Exposed reductions that follow a pass: the next stage does not wait for them."""
        return self.tail_layer + self.tail_root + self.tail_across + self.tail_late

    @lazy
    def seconds(self) -> Num:
        """One micro-batch."""
        ends = self.all_gather + self.root_all_gather + self.tail
        return self.passes + ends + self.tail_slowed + self.head


def slowest_stage(case: Case, block: Block, traffic: LayerTraffic, head: Num) -> Stage:
    """Find the slowest stage.

    Args:
        case: The step.
        block: One layer with its communication.
        traffic: Sharded communication of one layer.
        head: LM head and loss of one micro-batch, seconds.
    """
    split = case.split
    both, alone = block.forward + block.backward, block.forward_alone + block.backward_alone
    fullest = maximum(split.first_layers, split.middle_layers)
    if case.dense_first:
        fullest = where(case.first_slowest, split.first_layers, fullest)
    lead = (split.last_layers - fullest) * both + head
    if some(split.pipelined):
        fewer = squeeze_constant_axes(p2p.last_sends_less(split))
        lead = lead - where(fewer, 2.0 * p2p.message_seconds(case), 0.0)
    on_last = squeeze_constant_axes(mask(lead >= 0.0))
    if case.dense_first:
        on_last = on_last & ~case.first_slowest
    layers = where(on_last, split.last_layers, fullest)
    one, others = minimum(layers, 1.0), maximum(layers - 1.0, 0.0)
    own_head = where(on_last, head, 0.0)
    gather, reduce = _roots(case, traffic, on_last)
    tail_layer, tail_root, slowed = data_parallel.exposed_last_reduce(
        case, traffic, layers, block.forward_alone, block.backward_alone, reduce, own_head
    )
    return Stage(
        layers=layers,
        one=one,
        others=others,
        on_last=on_last,
        lead=where(on_last, lead, 0.0),
        head=own_head,
        root_all_gather=gather,
        root_reduce=reduce,
        tail_layer=tail_layer,
        tail_root=tail_root,
        tail_across=data_parallel.exposed_last_all_reduce(case, traffic),
        tail_late=case.zeros,
        tail_slowed=slowed,
        passes=others * both + one * alone,
        all_gather=traffic.all_gather,
    )


def _roots(case: Case, traffic: LayerTraffic, on_last: Mask) -> tuple[Num, Num]:
    """All-gather and reduction of what no layer holds; a middle stage has nothing of it."""
    split = case.split
    if not some(split.shards_gradients) or not some(split.pipelined):
        return traffic.root_all_gather, traffic.root_reduce
    on_first = split.first_layers >= split.middle_layers
    if case.dense_first:
        on_first = on_first | case.first_slowest
    gather = where(on_first, traffic.first_all_gather, 0.0)
    reduce = where(on_first, traffic.first_reduce, 0.0)
    return (
        where(on_last, traffic.root_all_gather, gather),
        where(on_last, traffic.root_reduce, reduce),
    )


def max_params_per_rank(case: Case) -> Num:
    """Trained parameters of the rank with most of them, before data parallelism shards them.

    The largest stage, and one or both ends of a pipeline.
    """
    layers = most_layers(case.split)
    params = (layers * _layer_params(case) + end_params(case)) / case.split.tp
    return tuning.trained_params(case, layers, params)


def frozen_params_per_rank(case: Case) -> Num:
    """Frozen parameters of that rank but experts; 0 where they are trained."""
    params = (most_layers(case.split) * _layer_params(case) + end_params(case)) / case.split.tp
    return case.tuned.frozen * params


def _layer_params(case: Case) -> Num:
    """Parameters of a layer of a middle stage without routed experts, mean."""
    return case.params_of_layer(case.split.middle_sparse)


def max_roots_per_rank(case: Case) -> Num:
    """Those of `max_params_per_rank` that no layer holds: embedding, LM head."""
    return tuning.trained_only(case, end_params(case) / case.split.tp)


def end_params(case: Case) -> Num:
    """Parameters of one or both ends of a pipeline."""
    shape = case.shape
    end = maximum(shape.embedding_params, shape.head_params + shape.mtp_params)
    return where(case.split.pipelined, end, shape.edge_params)


def max_experts_per_rank(case: Case) -> Num:
    """Trained parameters of routed experts of the rank with most of them, not yet sharded."""
    if not case.has_experts:
        return case.zeros
    experts = case.split.middle_sparse * case.expert_params_of_layer
    return tuning.trained_only(case, most_layers(case.split) * experts)


def most_layers(split: Split) -> Num:
    """Layers of the largest stage."""
    return maximum(maximum(split.first_layers, split.middle_layers), split.last_layers)
