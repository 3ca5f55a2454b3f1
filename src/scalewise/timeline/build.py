"""From prices to a graph: every block, gather and reduction of a step, and what each waits for.

    step = build(prices)
    played = play(step.graph, contention=prices.contention, ranks=len(prices.stages))

One rank per pipeline stage stands for all that do the same. Dependencies are those of real
frameworks: a block waits for its gathered parameters; a gather is issued when the block before it
starts, so that at most 1 + prefetch blocks are there at once; gradients are reduced when a block's
backward is done, on the same communicator; the once-per-step reduction follows the last backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.timeline.actions import Action, Order
from scalewise.timeline.graph import NONE, Graph
from scalewise.timeline.orders import pipeline_orders
from scalewise.timeline.sends import connect
from scalewise.timeline.step import Coarse, Label, Step

if TYPE_CHECKING:
    from scalewise.timeline.jitter import Jitter
    from scalewise.timeline.prices import Prices, Stage
    from scalewise.timeline.v_shaped import Lengths


REDUCTIONS_AHEAD = 2
"""Gradient buffers of a rank: a block waits until the reduction before the last is done."""


def build(
    prices: Prices,
    *,
    coarse: list[dict[tuple[str, int, bool], Coarse]] | None = None,
    jitter: Jitter | None = None,
    orders: list[Order] | None = None,
) -> Step:
    """Lay out one step up to the optimizer.

    Args:
        prices: What each event takes.
        coarse: Actions as single events, where the step has too many blocks.
        jitter: How kernels and collectives vary, or None.
        orders: Other orders than those of the schedule.
    """
    stages, chunks = prices.stages, prices.chunks
    if prices.v_shaped:
        chunks = 2
    made = orders or pipeline_orders(
        prices.schedule,
        stages=len(stages),
        chunks=chunks,
        micro_steps=prices.micro_steps,
        lengths=_lengths(prices) if prices.v_shaped else None,
        message=prices.message,
    )
    step = Step(
        graph=Graph(),
        labels=[],
        orders=made,
        coarse=coarse,
    )
    ranks = [_Rank(step, prices, place, chunks, jitter) for place in range(len(stages))]
    for rank, order in zip(ranks, made, strict=True):
        rank.lay_out(order)
    wires = [rank.wire for rank in ranks]
    connect(step, prices, wires, chunks=chunks, jitter=jitter)
    return step


def split(layers: int, chunks: int, *, first: bool = False) -> list[int]:
    """Layers of each chunk, as equal as they can be.

    The smaller chunk is the one with the embedding on the first stage, with the head elsewhere.
    """
    low, extra = divmod(layers, chunks)
    sizes = [low + (place < extra) for place in range(chunks)]
    return sizes[::-1] if first else sizes


def _lengths(prices: Prices) -> Lengths:
    """Seconds of each pass of ZB-V, about: what a framework would measure to plan with."""
    gather = prices.gather if prices.sharding == 3 else 0.0
    layer = {
        "F": max(prices.forward, gather),
        "I": max(prices.inputs, gather if prices.reshard else 0.0),
        "W": max(
            prices.weights, prices.reduce if prices.sharding >= 2 and prices.reduce_each else 0.0
        ),
    }
    found = []
    for place, stage in enumerate(prices.stages):
        sizes = split(stage.layers, 2, first=place == 0)
        passes = {
            (kind, chunk): size * layer[kind] for kind in layer for chunk, size in enumerate(sizes)
        }
        if place == prices.head_rank:
            passes["F", 1] += prices.head_forward
            passes["I", 1] += prices.head_backward
        found.append(passes)
    return found


class _Rank:
    """Lays out the tasks of one rank, action by action."""

    def __init__(
        self, step: Step, prices: Prices, place: int, chunks: int, jitter: Jitter | None
    ) -> None:
        self.step, self.prices, self.place, self.jitter = step, prices, place, jitter
        self.stage: Stage = prices.stages[place]
        self.sizes = split(self.stage.layers, chunks, first=place == 0)
        self.chunks = chunks
        graph = step.graph
        self.main = graph.stream()
        self.link = graph.resource()
        self.wire = graph.resource()
        # Where a shard is the whole there is nothing to gather.
        self.full = prices.sharding == 3 and prices.gather > 0.0
        self.scattered = prices.sharding >= 2
        self.last = prices.micro_steps - 1
        self.hold: list[int] = []
        """What the next block must wait for beside its own needs."""
        self.block = NONE
        """The latest block on the compute stream."""
        # A pass of weight gradients alone is too short to hide its reductions: they get buffers
        # for one pass more, and hide behind what follows.
        halves = prices.schedule.startswith("zb") and len(prices.stages) > 1
        self.ahead = REDUCTIONS_AHEAD + (max(self.sizes) if halves else 0)
        self.reductions: list[int] = []
        """The latest reductions of gradients."""
        self.reduced = 0
        """Blocks of the last micro batch whose backward is laid out."""
        self.gathered = self._updated_parameters()
        step.bounds.append({})

    # Tasks.

    def compute(
        self,
        seconds: float,
        kind: str,
        action: Action,
        layer: int,
        *,
        after: list[int],
        slowed: bool,
    ) -> int:
        """Add a block to the compute stream."""
        if self.jitter is not None:
            seconds = self.jitter.kernel(seconds)
        task = self.step.graph.add(
            seconds,
            stream=self.main,
            after=[*after, *self.hold],
            rank=self.place if slowed else NONE,
        )
        self.hold.clear()
        self.step.labels.append(
            Label(self.place, "compute", kind, action.chunk, action.micro, layer)
        )
        self.block = task
        return task

    def data(
        self,
        seconds: float,
        kind: str,
        action: Action,
        layer: int,
        *,
        after: tuple[int, ...] = (),
        after_start: int = NONE,
        slows: bool = True,
    ) -> int:
        """Add a collective of the data-parallel ranks."""
        if self.jitter is not None:
            seconds += self.jitter.wait(self.prices.backward, self.prices.data_ranks)
        task = self.step.graph.add(
            seconds,
            after=after,
            after_start=after_start,
            resources=(self.link,),
            rank=self.place,
            slows=slows,
        )
        if not slows:
            self.step.graph.rank[task] = NONE
        self.step.labels.append(Label(self.place, "data", kind, action.chunk, action.micro, layer))
        return task

    def gate(self) -> int:
        """Add the moment at which an action may begin: takes no time."""
        task = self.step.graph.add(0.0, stream=self.main)
        self.step.labels.append(None)
        return task

    # Actions.

    def lay_out(self, order: Order) -> None:
        """Lay out all actions in order, and the reduction after the last."""
        for action in order:
            gate = self.gate()
            if self.step.coarse is not None:
                self._coarse(action, gate)
            elif action.kind == "F":
                self._forward(action, gate)
            elif action.kind == "W":
                self._weights(action)
            else:
                self._backward(action)
            end = self.step.graph.last(self.main)
            self.step.bounds[self.place][action] = (gate, end)
        self._rest_of_reduction(order[-1])

    def _has_head(self, action: Action) -> bool:
        return self.place == self.prices.head_rank and action.chunk == self.chunks - 1

    def _forward(self, action: Action, gate: int) -> None:
        """Gather and compute block after block; the first gather of a micro batch is not hidden."""
        prices = self.prices
        size = self.sizes[action.chunk]
        begins = action.chunk == 0
        before = self.block
        needs: list[int] = []
        if self.full and begins and self.stage.root_gather > 0.0:
            needs.append(self.data(self.stage.root_gather, "gather", action, NONE, after=(gate,)))
        ready = [NONE] * size
        blocks: list[int] = []
        for layer in range(size):
            if self.full:
                ready[layer] = self._gather(
                    action, layer, layer, blocks, gate if begins else NONE, before
                )
            if action.micro == 0 and self.gathered:
                needs += self._arrived(action.chunk, layer)
            blocks.append(
                self.compute(
                    prices.forward,
                    "forward",
                    action,
                    layer,
                    after=[ready[layer], *needs],
                    slowed=True,
                )
            )
            needs.clear()
        if self._has_head(action):
            self.compute(
                prices.head_forward, "head forward", action, NONE, after=needs, slowed=False
            )
        elif needs:
            self.hold += needs

    def _gather(
        self, action: Action, layer: int, place: int, blocks: list[int], gate: int, before: int
    ) -> int:
        """Add the gather of a block, issued as far ahead as prefetch allows.

        Args:
            action: Whose block.
            layer: Which block.
            place: Its place in the order of the action.
            blocks: Blocks of the action so far.
            gate: Start of the action where nothing may be gathered before it, else NONE.
            before: Block before the action, at whose start the first gather is issued.
        """
        prices = self.prices
        ahead = prices.prefetch if prices.overlap else 0
        at = place - ahead
        if ahead == 0:
            after = blocks[-1] if blocks else (gate if gate >= 0 else before)
            return self.data(prices.gather, "gather", action, layer, after=(after, *self.hold))
        if at >= 0:
            return self.data(prices.gather, "gather", action, layer, after_start=blocks[at])
        if gate >= 0:
            return self.data(prices.gather, "gather", action, layer, after=(gate,))
        return self.data(prices.gather, "gather", action, layer, after_start=before)

    def _backward(self, action: Action) -> None:
        """Compute blocks in reverse; gather again what was freed, reduce what is done."""
        prices = self.prices
        size = self.sizes[action.chunk]
        whole = action.kind == "B"
        seconds = prices.backward if whole else prices.inputs
        before = self.block
        if self._has_head(action):
            self.compute(
                prices.head_backward, "head backward", action, NONE, after=[], slowed=False
            )
        blocks: list[int] = []
        kept = action.chunk == self.chunks - 1
        for place in range(size):
            layer = size - 1 - place
            ready = NONE
            if self.full and prices.reshard and not (kept and place == 0):
                ready = self._gather(action, layer, place, blocks, NONE, before)
            blocks.append(
                self.compute(
                    seconds,
                    "backward" if whole else "inputs",
                    action,
                    layer,
                    after=[ready],
                    slowed=True,
                )
            )
            if whole:
                self._reduce(action, layer, blocks[-1])
        if whole and action.chunk == 0:
            self._root_reduce(action)

    def _weights(self, action: Action) -> None:
        """Compute the gradients of weights that were put off, and reduce them."""
        for layer in reversed(range(self.sizes[action.chunk])):
            block = self.compute(
                self.prices.weights, "weights", action, layer, after=[], slowed=True
            )
            self._reduce(action, layer, block)
        if action.chunk == 0:
            self._root_reduce(action)

    # Data parallelism.

    def _reduce(self, action: Action, layer: int, block: int) -> None:
        """Reduce the gradients of a block whose backward is done."""
        prices = self.prices
        if self.scattered and (prices.reduce_each or action.micro == self.last):
            # Backward runs at most so far ahead of the reductions whose buffers it needs.
            task = self.data(prices.reduce, "reduce", action, layer, after=(block,))
            self.reductions.append(task)
            if not prices.overlap:
                self.hold.append(task)
            elif len(self.reductions) >= self.ahead:
                self.hold.append(self.reductions.pop(0))
        if action.micro == self.last and self.stage.reduce > 0.0:
            low, high = self._piece(self.reduced, prices.share)
            self.reduced += 1
            if high > low:
                self.data(
                    self.stage.reduce * (high - low), "reduce", action, layer,
                    after=(block,), slows=False,
                )  # fmt: skip

    def _piece(self, place: int, share: float) -> tuple[float, float]:
        """Share of the step's load that becomes ready with a block, as far as it may hide."""
        blocks = max(self.stage.layers, 1)
        return min(place / blocks, share), min((place + 1) / blocks, share)

    def _root_reduce(self, action: Action) -> None:
        """Reduce the gradients of what no layer holds, at the end of a micro batch."""
        prices = self.prices
        due = prices.reduce_each or action.micro == self.last
        if self.scattered and due and self.stage.root_reduce > 0.0:
            task = self.data(
                self.stage.root_reduce, "reduce", action, NONE,
                after=(self.step.graph.last(self.main),),
            )  # fmt: skip
            if not prices.overlap:
                self.hold.append(task)

    def _rest_of_reduction(self, action: Action) -> None:
        """Reduce after the last backward what could not hide behind it."""
        hidden = (
            self._piece(max(self.reduced - 1, 0), self.prices.share)[1] if self.reduced else 0.0
        )
        rest = self.stage.reduce * (1.0 - hidden)
        if rest > 0.0:
            self.data(
                rest, "reduce", action, NONE, after=(self.step.graph.last(self.main),), slows=False
            )

    def _updated_parameters(self) -> dict[int, int]:
        """Gather, beside the first forward, what the last optimizer step updated (ZeRO-1/2).

        The part that may not hide was gathered before the step began, and it is that of the first
        layers; the rest arrives layer by layer.
        """
        prices, layers = self.prices, self.stage.layers
        if self.stage.gather <= 0.0 or prices.share <= 0.0:
            return {}
        found: dict[int, int] = {}
        first = Action("F", 0, 0)
        for layer in range(layers):
            low = max(layer / layers, 1.0 - prices.share)
            high = max((layer + 1) / layers, 1.0 - prices.share)
            if high > low:
                found[layer] = self.data(
                    self.stage.gather * (high - low), "gather", first, layer, slows=False
                )
        return found

    def _arrived(self, chunk: int, layer: int) -> list[int]:
        """The gather that brings the updated parameters of a block."""
        place = sum(self.sizes[:chunk]) + layer
        return [self.gathered[place]] if place in self.gathered else []

    # Whole actions.

    def _coarse(self, action: Action, gate: int) -> None:
        """Lay out an action as one event, with the gather before and the reduction after it."""
        assert self.step.coarse is not None
        prices, stage = self.prices, self.stage
        known = self.step.coarse[self.place][action.kind, action.chunk, action.micro == self.last]
        needs: list[int] = []
        first, final = action.chunk == 0, action.micro == self.last
        layers = self.sizes[action.chunk]
        if action.kind == "F" and first and self.full:
            seconds = stage.root_gather + (prices.gather if layers else 0.0)
            needs.append(self.data(seconds, "gather", action, NONE, after=(gate,)))
        if action.kind == "F" and action.micro == 0 and self.gathered:
            needs += [
                task for layer in range(layers) for task in self._arrived(action.chunk, layer)
            ]
        kind = {"F": "forward", "B": "backward", "I": "inputs", "W": "weights"}[action.kind]
        block = self.compute(known.seconds, kind, action, NONE, after=needs, slowed=True)
        if action.kind not in "BW":
            return
        if first and self.scattered and (prices.reduce_each or final):
            seconds = stage.root_reduce + (prices.reduce if layers else 0.0)
            task = self.data(seconds, "reduce", action, NONE, after=(block,))
            if not prices.overlap:
                self.hold.append(task)
        if final and stage.reduce > 0.0:
            low, _ = self._piece(self.reduced, prices.share)
            _, high = self._piece(self.reduced + layers - 1, prices.share)
            self.reduced += layers
            if high > low:
                self.data(
                    stage.reduce * (high - low), "reduce", action, NONE,
                    after_start=block, slows=False,
                )  # fmt: skip
