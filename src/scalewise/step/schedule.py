"""The pipeline around the slowest stage: latency of one micro-batch, and the bubble.

    pipeline = around(case, block, traffic, stage, head)
    pipeline.bubble, pipeline.latency.forward

A stage waits for the passes of the others, not for the reductions that follow them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scalewise.derivation import Derivation, Letter
from scalewise.numeric import Mask, Num, lazy, mask, maximum, minimum, scalar, some, where
from scalewise.physics import pipeline as physics
from scalewise.step import data_parallel, zero_bubble
from scalewise.step.block import Block, layer_block
from scalewise.step.case import Case
from scalewise.step.data_parallel import LayerTraffic
from scalewise.step.layer import layer_times
from scalewise.step.stage import Stage

if TYPE_CHECKING:
    from scalewise.step.origin import Origin

HEAD_FORWARD = 1.0 / 3.0
"""Fraction of the LM head that belongs to forward: one GEMM of three."""

HEAD_FORWARD_FROZEN = 1.0 / 2.0
"""The same of a frozen one, which has no wgrad."""


@dataclass(frozen=True, kw_only=True)
class MicrobatchLatency:
    """One micro-batch down the stages and back, seconds."""

    forward: Num
    """Through all stages."""
    backward: Num
    """Back through all stages; input gradients alone where wgrads can wait."""
    own_forward: Num
    """The part of it on the slowest stage."""
    own_backward: Num
    wgrad: Num
    """Weight gradients on the slowest stage, where they can wait."""
    head: Num
    """LM head and loss, if they are on the slowest stage."""
    lead: Num
    """By how much the next slowest stage is faster, where the head makes the difference."""
    once: Num = 0.0
    """By how much reductions that are done once slow its backward on the other stages."""

    @lazy
    def total(self) -> Num:
        """Through all stages and back."""
        return self.forward + self.backward

    @lazy
    def own(self) -> Num:
        """The part of it on the slowest stage."""
        return self.own_forward + self.own_backward


def microbatch_latency(
    case: Case, block: Block, traffic: LayerTraffic, stage: Stage, head: Num
) -> MicrobatchLatency:
    """Follow one micro-batch through the stages.

    Of a pass, the first forward layer waits for its all-gather and has none beside it. Backward,
    the last two layers leave their reductions behind.

    Args:
        case: The step.
        block: One layer with its communication.
        traffic: Sharded communication of one layer.
        stage: The slowest stage.
        head: LM head and loss of one micro-batch, seconds.
    """
    pp, more = case.split.pp, case.shape.layers - case.split.pp
    near, own_near = minimum(more, pp), minimum(stage.others, 1.0)
    # The first micro-batch waits for what is gathered once per step.
    often = case.habits.gathers(case.split)
    gather = traffic.all_gather / often
    roots = (traffic.root_all_gather + traffic.first_all_gather) / often
    # Reductions that hold up the next pass fill the cool-down like the wgrads before them.
    held = where(case.split.zero_bubble & ~block.free, stage.tail, 0.0)
    forward: Num = HEAD_FORWARD
    if case.has_frozen:
        forward = where(case.tuned.frozen > 0.0, HEAD_FORWARD_FROZEN, HEAD_FORWARD)
    waits = case.split.shards_gradients & ~case.habits.reduces_each(case.split)
    if traffic.sync is not None:
        waits = waits | case.habits.syncs_once(case.split)
    slower = (more - near - (stage.others - own_near)) * (block.path_inner - block.path_early)
    slower = slower + (near - own_near) * (block.path_near - block.path_early)
    latency = MicrobatchLatency(
        forward=more * block.first_forward
        + pp * (block.forward_alone + gather)
        + roots
        + forward * head,
        backward=(more - near) * block.path_inner
        + near * block.path_near
        + pp * block.path_last
        + (1.0 - forward) * head,
        own_forward=stage.others * block.first_forward
        + stage.one * block.forward_alone
        + gather
        + stage.root_all_gather / often
        + forward * stage.head,
        own_backward=(stage.others - own_near) * block.path_inner
        + own_near * block.path_near
        + stage.one * block.path_last
        + (1.0 - forward) * stage.head,
        wgrad=stage.others * block.wgrad + stage.one * block.wgrad_alone + held,
        head=stage.head,
        once=where(waits & ~case.split.zero_bubble, maximum(slower, 0.0), 0.0),
        lead=stage.lead,
    )
    if not case.dense_first:
        return latency
    ahead, behind = _elsewhere(case, block, stage)
    return replace(latency, forward=latency.forward + ahead, backward=latency.backward + behind)


def _elsewhere(case: Case, block: Block, stage: Stage) -> tuple[Num, Num]:
    """By how much other stages differ from the slowest one for its dense layers, seconds.

    Forward and backward of one micro-batch through them.
    """
    others = case.of_other_stages
    other = layer_block(others, layer_times(others), data_parallel.layer_traffic(others))
    last = case.split.pp - 1.0
    more = case.shape.layers - stage.layers - last
    forward = more * (other.first_forward - block.first_forward)
    forward = forward + last * (other.forward_alone - block.forward_alone)
    backward = more * (other.path_inner - block.path_inner)
    backward = backward + last * (other.path_last - block.path_last)
    slow = case.first_slowest
    return where(slow, forward, 0.0), where(slow, backward, 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pipeline:
    """What the pipeline adds to the slowest stage, seconds."""

    latency: MicrobatchLatency
    bubble: Num
    """Idle time of the slowest stage, without messages between other stages."""


def around(
    case: Case, block: Block, traffic: LayerTraffic, stage: Stage, head: Num
) -> tuple[Pipeline, Stage]:
    """Return the pipeline around the slowest stage, and the stage with reductions that trail.

    Args:
        case: The step.
        block: One layer with its communication.
        traffic: Sharded communication of one layer.
        stage: The slowest stage.
        head: LM head and loss of one micro-batch, seconds.
    """
    split, none = case.split, case.zeros
    if not some(split.pipelined):
        nothing = MicrobatchLatency(
            forward=none, backward=none, own_forward=none, own_backward=none, wgrad=none,
            head=none, lead=none,
        )  # fmt: skip
        return Pipeline(latency=nothing, bubble=none), stage
    latency = microbatch_latency(case, block, traffic, stage, head)
    bubble = bubble_seconds(case, latency, stage.seconds)
    if some(split.zero_bubble) and some(traffic.reduce):
        n = split.num_microbatches
        reduce = stage.layers * traffic.reduce + stage.root_reduce
        late = zero_bubble.trailing_reduce_seconds(
            case, latency, reduce, n * stage.seconds + bubble, block.free
        )
        stage = replace(stage, tail_late=late / n)
    return Pipeline(latency=latency, bubble=bubble), stage


def bubble_seconds(case: Case, latency: MicrobatchLatency, slowest: Num) -> Num:
    """Return the idle time of the slowest stage, by schedule, seconds.

    Args:
        case: The step.
        latency: One micro-batch through the stages.
        slowest: One micro-batch on the slowest stage, seconds.
    """
    split = case.split
    pp, chunks, n = split.pp, split.chunks, split.num_microbatches
    bubble = physics.bubble_1f1b(latency.total, latency.own, chunks)
    if case.dense_first:
        others = maximum(latency.total - latency.own, 0.0)
        first = physics.bubble_of_first(others, latency.own_forward, latency.own_backward, pp, n)
        bubble = where(_waits_twice(case), first, bubble)
    if some(split.zero_bubble):
        forward = latency.forward - latency.own_forward
        dgrad = latency.backward - latency.own_backward
        h1 = physics.bubble_zb_h1(forward, dgrad, latency.wgrad, pp, n, chunks)
        bubble = where(split.zero_bubble, h1, bubble)
        if some(split.zb_v):
            turn = where(latency.head > 0.0, 0.5 * (latency.own + latency.head), 0.0)
            first = latency.total + 0.5 * latency.wgrad
            v = physics.bubble_zb_v(
                forward, dgrad, latency.wgrad, latency.lead, first, turn, slowest, pp, n
            )
            bubble = where(split.zb_v, v, bubble)
    if some(split.interleaved):
        few = physics.bubble_of_few(latency.total, pp, chunks, n)
        bubble = bubble + where(split.zb_v, 0.0, few)
        # The last micro-batch leaves the chunks one after the other; of few, `total` has that.
        after = minimum(n - 1.0, pp - 1.0) / maximum(pp - 1.0, 1.0)
        bubble = bubble + (1.0 - 1.0 / chunks) * after * latency.once
    result: Num = where(split.pipelined, bubble, 0.0)
    return result


def _waits_twice(case: Case) -> Mask:
    """Whether the slowest stage is the first, and works between two waits (1F1B)."""
    split = case.split
    plain = ~split.gpipe & ~split.zero_bubble & ~split.interleaved
    return mask(case.first_slowest & plain)


def passes_left(case: Case) -> Num:
    """Return the passes of a stage that once-per-step traffic can overlap, in whole stages.

    Interleaved: when a chunk has seen its last micro-batch, the chunks after it still have a round
    of them before them.
    """
    split = case.split
    if not some(split.interleaved):
        return 1.0
    round_ = minimum(split.pp, split.num_microbatches)
    more = where(split.pipelined, 1.0 - 1.0 / split.chunks, 0.0)
    result: Num = 1.0 + more * (round_ - 1.0)
    return result


def derive_bubble(o: Origin) -> Derivation:
    """Return how the bubble of a step comes about, by schedule."""
    split, latency = o.case.split, o.step.pipeline.latency
    chunks = Letter("v", scalar(split.chunks), "virtual stages per stage")
    stages = Letter("p", scalar(split.pp), "pipeline stages")
    total = Letter("A", scalar(latency.total), "one micro-batch through all stages and back", "s")
    own = Letter("M", scalar(latency.own), "its part on the slowest stage", "s")
    letters: list[Letter] = [total, own, chunks]
    formula = "max(A - M, 0) / v"
    if split.zero_bubble[0]:
        forward = scalar(latency.forward - latency.own_forward)
        dgrad = scalar(latency.backward - latency.own_backward)
        letters = [
            Letter("F", forward, "one micro-batch forward on the other stages", "s"),
            Letter("D", dgrad, "its dgrads there", "s"),
            Letter("W", scalar(latency.wgrad), "wgrads of the slowest stage, deferred", "s"),
            stages, o.n,
        ]  # fmt: skip
        if split.zb_v[0]:
            head = scalar(latency.head)
            turn = 0.5 * (scalar(latency.own) + head) if head > 0.0 else 0.0
            formula = (
                "max(max(F / 2, D / 2, D - min(n, p - 1) * W) - n * d, "
                "A + W / 2 + (n - 1) * max(F / (p - 1), D / (p - 1), t) - n * S, 0)"
            )
            letters += [
                total,
                Letter("d", scalar(latency.lead), "by how much the head slows its stage", "s"),
                Letter("t", turn, "passes around the head", "s"),
                Letter("S", _bubble_slowest(o), "one micro-batch on the slowest stage", "s"),
            ]
        else:
            formula = (
                "max(F + D - min(n - 1, p - 1) * W, "
                "max(F, D) + max(p - n, 0) / (p - 1) * min(F, D), 0) / v"
            )
            letters.append(chunks)
    if o.case.dense_first and scalar(_waits_twice(o.case)):
        formula = "max(A - M - (p - 1) * f, 0) + max(A - M - (p - 1) * b, 0)"
        if o.n.value <= stages.value:
            formula = "max(A - M - (n - 1) * min(f, b), 0)"
        letters = [
            total, own,
            Letter("f", scalar(latency.own_forward), "forward on the slowest stage", "s"),
            Letter("b", scalar(latency.own_backward), "backward on the slowest stage", "s"),
            o.n if o.n.value <= stages.value else stages,
        ]  # fmt: skip
    if split.interleaved[0] and not split.zb_v[0] and o.n.value < stages.value:
        formula += " + (1 - 1 / v) * (p - n) / p * A"
        known = {letter.name for letter in letters}
        letters += [each for each in (total, stages, o.n, chunks) if each.name not in known]
    once = scalar(latency.once)
    if split.interleaved[0] and once > 0.0:
        formula += " + (1 - 1 / v) * min(n - 1, p - 1) / (p - 1) * E"
        known = {letter.name for letter in letters}
        letters += [each for each in (stages, o.n) if each.name not in known]
        letters.append(Letter("E", once, "reductions of the last micro-batch elsewhere", "s"))
    waiting = scalar(o.step.sends.waiting)
    if waiting > 0.0:
        formula += " + Z"
        letters.append(
            Letter("Z", waiting, "P2P between other stages in warm-up and cool-down", "s")
        )
    return Derivation(
        key="bubble",
        label="pipeline bubble",
        formula=formula,
        letters=tuple(letters),
        notes=("the slowest stage is the last, with the LM head",)
        if o.step.stage.on_last[0]
        else (),
        source="arXiv 2104.04473 (1F1B, interleaved), 2401.10241 (ZB-H1), 2405.15362 (ZB-V)",
    )


def _bubble_slowest(o: Origin) -> float:
    """One micro-batch on the slowest stage without reductions that trail, seconds."""
    return scalar(o.step.stage.seconds) - scalar(o.step.stage.tail_late)
