"""Task graph of one step: blocks, all-gathers, reductions, and their dependencies.

    step = build(durations)
    times = simulation(step.graph, contention=durations.contention, ranks=len(durations.stages))

One rank per pipeline stage represents all ranks of that stage. Dependencies are those of real
frameworks. A block waits for its all-gathered parameters. An all-gather is issued when the block
before it starts, so that at most 1 + prefetch blocks are in memory. Gradients are reduced after the
backward of a block, on the same communicator. The once-per-step reduction follows the last
backward.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from scalewise.simulation.actions import Action, Order
from scalewise.simulation.graph import NONE, Graph
from scalewise.simulation.p2p import connect
from scalewise.simulation.schedules import pipeline_schedule
from scalewise.simulation.step import Coarse, Label, Step

if TYPE_CHECKING:
    from scalewise.simulation.durations import Durations, Stage
    from scalewise.simulation.jitter import Jitter
    from scalewise.simulation.zb_v import Lengths


REDUCTIONS_AHEAD = 2
"""Gradient buffers of a rank: a block waits for the reduction before the last one."""


def build(
    durations: Durations,
    *,
    coarse: list[dict[tuple[str, int, bool], Coarse]] | None = None,
    jitter: Jitter | None = None,
    schedules: list[Order] | None = None,
) -> Step:
    """Build the graph of one step up to the optimizer.

    Args:
        durations: Seconds of each task.
        coarse: Actions as single tasks, where the step has too many blocks.
        jitter: Variation of kernels and collectives, or None.
        schedules: Schedules that replace those of the strategy.
    """
    stages, chunks = durations.stages, durations.chunks
    if durations.zb_v:
        chunks = 2
    made = schedules or pipeline_schedule(
        durations.schedule,
        stages=len(stages),
        chunks=chunks,
        num_microbatches=durations.num_microbatches,
        lengths=_lengths(durations) if durations.zb_v else None,
        message=durations.message,
    )
    step = Step(
        graph=Graph(),
        labels=[],
        schedules=made,
        coarse=coarse,
    )
    ranks = [
        _Rank(step, durations.on(place), place, chunks, jitter) for place in range(len(stages))
    ]
    for rank, order in zip(ranks, made, strict=True):
        rank.lay_out(order)
    wires = [rank.wire for rank in ranks]
    connect(step, durations, wires, chunks=chunks, jitter=jitter)
    return step


def split(layers: int, chunks: int, *, first: bool = False) -> list[int]:
    """Return the layers of each chunk, as equal as possible.

    The smaller chunk is the one with the embedding on the first stage, with the head elsewhere.
    """
    low, extra = divmod(layers, chunks)
    sizes = [low + (place < extra) for place in range(chunks)]
    return sizes[::-1] if first else sizes


def _lengths(durations: Durations) -> Lengths:
    """Return approximate seconds of each pass of ZB-V, as a framework would measure them."""
    gathers = durations.sharding == 3 and durations.gather_each
    gather, again = (durations.gather, durations.gather_again) if gathers else (0.0, 0.0)
    layer = {
        "F": max(durations.forward, gather),
        "I": max(durations.inputs, again if durations.reshard_after_forward else 0.0),
        "W": max(
            durations.weights,
            durations.reduce if durations.sharding >= 2 and durations.reduce_each else 0.0,
        ),
    }
    found = []
    for place, stage in enumerate(durations.stages):
        sizes = split(stage.layers, 2, first=place == 0)
        passes = {
            (kind, chunk): size * layer[kind] for kind in layer for chunk, size in enumerate(sizes)
        }
        if place == durations.head_rank:
            passes["F", 1] += durations.head_forward
            passes["I", 1] += durations.head_backward
        found.append(passes)
    return found


class _Rank:
    """Builds the tasks of one rank, action by action."""

    def __init__(
        self, step: Step, durations: Durations, place: int, chunks: int, jitter: Jitter | None
    ) -> None:
        self.step, self.durations, self.place, self.jitter = step, durations, place, jitter
        self.stage: Stage = durations.stages[place]
        self.sizes = split(self.stage.layers, chunks, first=place == 0)
        self.chunks = chunks
        graph = step.graph
        self.main = graph.stream()
        self.link = graph.resource()
        self.wire = graph.resource()
        self.outer = graph.resource()
        # A shard that is the whole parameter needs no all-gather.
        self.full = durations.sharding == 3 and durations.gather > 0.0
        self.scattered = durations.sharding >= 2
        self.last = durations.num_microbatches - 1
        self.hold: list[int] = []
        """Tasks that the next block waits for besides its own dependencies."""
        self.block = NONE
        """The latest block on the compute stream."""
        # A wgrad pass is too short to overlap its reductions: they get buffers for one more pass
        # and overlap the passes that follow.
        halves = durations.schedule.startswith("zb") and len(durations.stages) > 1
        self.ahead = REDUCTIONS_AHEAD + (max(self.sizes) if halves else 0)
        self.reductions: list[int] = []
        """The latest reductions of gradients."""
        self.replicas: list[int] = []
        """The latest all-reduces between replicas."""
        self.reduced = 0
        """Blocks of the last micro-batch whose backward is in the graph."""
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
        stream: str = "data",
    ) -> int:
        """Add a collective of the data-parallel ranks; replicas have links of their own."""
        if self.jitter is not None:
            seconds += self.jitter.wait(self.durations.backward, self.durations.data_ranks)
        task = self.step.graph.add(
            seconds,
            after=after,
            after_start=after_start,
            resources=(self.outer if stream == "replica" else self.link,),
            rank=self.place,
            slows=slows,
        )
        if not slows:
            self.step.graph.rank[task] = NONE
        self.step.labels.append(Label(self.place, stream, kind, action.chunk, action.micro, layer))
        return task

    def gate(self) -> int:
        """Add the earliest start of an action: a task of zero seconds."""
        task = self.step.graph.add(0.0, stream=self.main)
        self.step.labels.append(None)
        return task

    # Actions.

    def lay_out(self, order: Order) -> None:
        """Add all actions in order, and the reduction after the last one."""
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
        return self.place == self.durations.head_rank and action.chunk == self.chunks - 1

    def _forward(self, action: Action, gate: int) -> None:
        """Add forward blocks with their all-gathers; the first of a micro-batch is exposed."""
        durations = self.durations
        size = self.sizes[action.chunk]
        begins = action.chunk == 0
        before = self.block
        needs: list[int] = []
        gathers = self.full and (durations.gather_each or action.micro == 0)
        if gathers and begins and self.stage.root_gather > 0.0:
            needs.append(
                self.data(self.stage.root_gather, "all-gather", action, NONE, after=(gate,))
            )
        ready = [NONE] * size
        blocks: list[int] = []
        for layer in range(size):
            if gathers:
                ready[layer] = self._gather(
                    action, layer, layer, blocks, gate if begins else NONE, before
                )
            if action.micro == 0 and self.gathered:
                needs += self._arrived(action.chunk, layer)
            blocks.append(
                self.compute(
                    durations.forward,
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
                durations.head_forward, "head forward", action, NONE, after=needs, slowed=False
            )
        elif needs:
            self.hold += needs

    def _gather(
        self, action: Action, layer: int, place: int, blocks: list[int], gate: int, before: int
    ) -> int:
        """Add the all-gather of a block, issued as early as prefetch allows.

        Args:
            action: Action of the block.
            layer: Layer of the block.
            place: Its position in the action.
            blocks: Blocks of the action so far.
            gate: Start of the action where no all-gather may precede it, else NONE.
            before: Block before the action, at whose start the first all-gather is issued.
        """
        durations = self.durations
        seconds = durations.gather if action.kind == "F" else durations.gather_again
        ahead = durations.prefetch if durations.overlap else 0
        at = place - ahead
        if ahead == 0:
            after = blocks[-1] if blocks else (gate if gate >= 0 else before)
            return self.data(seconds, "all-gather", action, layer, after=(after, *self.hold))
        if at >= 0:
            return self.data(seconds, "all-gather", action, layer, after_start=blocks[at])
        if gate >= 0:
            return self.data(seconds, "all-gather", action, layer, after=(gate,))
        return self.data(seconds, "all-gather", action, layer, after_start=before)

    def _backward(self, action: Action) -> None:
        """Add backward blocks in reverse, with all-gathers of freed parameters and reductions."""
        durations = self.durations
        size = self.sizes[action.chunk]
        whole = action.kind == "B"
        seconds = durations.backward if whole else durations.inputs
        before = self.block
        if self._has_head(action):
            self.compute(
                durations.head_backward, "head backward", action, NONE, after=[], slowed=False
            )
        blocks: list[int] = []
        kept = action.chunk == self.chunks - 1
        frees = self.full and durations.reshard_after_forward and durations.gather_each
        for place in range(size):
            layer = size - 1 - place
            ready = NONE
            if frees and not (kept and place == 0):
                ready = self._gather(action, layer, place, blocks, NONE, before)
            # An all-gather that is not prefetched is issued before the reduction of the block
            # that precedes it.
            if whole and place:
                self._reduce(action, layer + 1, blocks[-1])
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
        if whole and size:
            self._reduce(action, 0, blocks[-1])
        if whole and action.chunk == 0:
            self._root_reduce(action)

    def _weights(self, action: Action) -> None:
        """Add deferred wgrad blocks and their reductions."""
        for layer in reversed(range(self.sizes[action.chunk])):
            block = self.compute(
                self.durations.weights, "weights", action, layer, after=[], slowed=True
            )
            self._reduce(action, layer, block)
        if action.chunk == 0:
            self._root_reduce(action)

    # Data parallelism.

    def _reduce(self, action: Action, layer: int, block: int) -> None:
        """Add the reduction of a block's gradients after its backward."""
        durations = self.durations
        if self.scattered and (durations.reduce_each or action.micro == self.last):
            final = action.micro == self.last
            seconds = durations.reduce_last if final else durations.reduce
            # Backward runs ahead of the reductions only as far as their buffers allow.
            task = self.data(seconds, "reduce", action, layer, after=(block,))
            self.reductions.append(task)
            if not durations.overlap:
                self.hold.append(task)
            elif len(self.reductions) >= self.ahead:
                self.hold.append(self.reductions.pop(0))
            if durations.across > 0.0 and (final or not durations.sync_once):
                self._all_reduce(action, layer, task)
        if self._step_reduces(action):
            low, high = self._piece(self.reduced, durations.share)
            self.reduced += 1
            if high > low:
                self.data(
                    self.stage.reduce * (high - low), "reduce", action, layer,
                    after=(block,), slows=False,
                )  # fmt: skip

    def _step_reduces(self, action: Action) -> bool:
        """Whether DDP or ZeRO-1 reduces gradients beside an action."""
        due = self.durations.step_reduce_each or action.micro == self.last
        return due and self.stage.reduce > 0.0

    def _all_reduce(self, action: Action, layer: int, scatter: int) -> None:
        """Add the all-reduce between replicas, which runs one block longer than its scatter."""
        task = self.data(
            self.durations.across, "reduce", action, layer, after=(scatter,), stream="replica"
        )
        self.replicas.append(task)
        if not self.durations.overlap:
            self.hold.append(task)
        elif len(self.replicas) > self.ahead:
            self.hold.append(self.replicas.pop(0))

    def _piece(self, place: int, share: float) -> tuple[float, float]:
        """Return the range of the reduction of all gradients that is ready with a block."""
        blocks = max(self.stage.layers, 1)
        if self.durations.step_reduce_each:
            place %= blocks
        return min(place / blocks, share), min((place + 1) / blocks, share)

    def _root_reduce(self, action: Action) -> None:
        """Add the reduction of gradients outside of layers, at the end of a micro-batch."""
        durations = self.durations
        due = durations.reduce_each or action.micro == self.last
        if self.scattered and due and self.stage.root_reduce > 0.0:
            task = self.data(
                self._root_seconds(action), "reduce", action, NONE,
                after=(self.step.graph.last(self.main),),
            )  # fmt: skip
            if not durations.overlap:
                self.hold.append(task)
        self._finish_reduction(action)

    def _finish_reduction(self, action: Action) -> None:
        """Let the next forward wait for all buckets of a micro-batch that reduces its own."""
        if self._step_reduces(action) and action.micro < self.last:
            self.hold.append(self._rest_of_reduction(action))

    def _root_seconds(self, action: Action) -> float:
        """Return the seconds to reduce gradients outside of layers."""
        waits = self.durations.sync_once and action.micro < self.last
        return self.stage.root_reduce - (self.stage.root_across if waits else 0.0)

    def _rest_of_reduction(self, action: Action) -> int:
        """Add the reduction that a backward cannot overlap."""
        hidden = (
            self._piece(max(self.reduced - 1, 0), self.durations.share)[1] if self.reduced else 0.0
        )
        rest = self.stage.reduce * (1.0 - hidden)
        after = (self.step.graph.last(self.main),)
        if rest <= 0.0:
            return after[0]
        return self.data(rest, "reduce", action, NONE, after=after, slows=False)

    def _updated_parameters(self) -> dict[int, int]:
        """Add the all-gathers of updated parameters during the first forward (ZeRO-1/2).

        The part that cannot overlap precedes the step and holds the first layers; the rest arrives
        layer by layer.
        """
        durations, layers = self.durations, self.stage.layers
        share = durations.gather_share
        if self.stage.gather <= 0.0 or share <= 0.0:
            return {}
        found: dict[int, int] = {}
        first = Action("F", 0, 0)
        for layer in range(layers):
            low, high = max(layer / layers, 1.0 - share), max((layer + 1) / layers, 1.0 - share)
            if high > low:
                found[layer] = self.data(
                    self.stage.gather * (high - low), "all-gather", first, layer, slows=False
                )
        return found

    def _arrived(self, chunk: int, layer: int) -> list[int]:
        """Return the all-gather of the updated parameters of a block."""
        place = sum(self.sizes[:chunk]) + layer
        return [self.gathered[place]] if place in self.gathered else []

    # Whole actions.

    def _coarse(self, action: Action, gate: int) -> None:
        """Add an action as one task, with the all-gather before and the reduction after it."""
        assert self.step.coarse is not None
        durations, stage = self.durations, self.stage
        known = self.step.coarse[self.place][action.kind, action.chunk, action.is_edge(self.last)]
        needs: list[int] = []
        first, final = action.chunk == 0, action.micro == self.last
        layers = self.sizes[action.chunk]
        gathers = self.full and (durations.gather_each or action.micro == 0)
        if action.kind == "F" and first and gathers:
            seconds = stage.root_gather + (durations.gather if layers else 0.0)
            needs.append(self.data(seconds, "all-gather", action, NONE, after=(gate,)))
        if action.kind == "F" and action.micro == 0 and self.gathered:
            needs += [
                task for layer in range(layers) for task in self._arrived(action.chunk, layer)
            ]
        kind = {"F": "forward", "B": "backward", "I": "inputs", "W": "weights"}[action.kind]
        block = self.compute(known.seconds, kind, action, NONE, after=needs, slowed=True)
        if action.kind not in "BW":
            return
        if first and self.scattered and (durations.reduce_each or final):
            one = durations.reduce_last if final else durations.reduce
            seconds = self._root_seconds(action) + (one if layers else 0.0)
            task = self.data(seconds, "reduce", action, NONE, after=(block,))
            if not durations.overlap:
                self.hold.append(task)
            if durations.across > 0.0 and layers and (final or not durations.sync_once):
                self._all_reduce(action, NONE, task)
        if self._step_reduces(action):
            low, _ = self._piece(self.reduced, durations.share)
            _, high = self._piece(self.reduced + layers - 1, durations.share)
            self.reduced += layers
            if high > low:
                self.data(
                    stage.reduce * (high - low), "reduce", action, NONE,
                    after_start=block, slows=False,
                )  # fmt: skip
        if first:
            self._finish_reduction(action)
