"""One training step, played event by event: the second way to the number of `estimate`.

    line = timeline(model, cluster, workload, strategy)
    line.step_seconds, line.estimate.step_seconds       # two ways, one number
    line.exposed_seconds                                # by group, on the rank that sets the pace
    line.events(0)                                      # what the rank of the first stage did

The same prices as `estimate`, but no formula for overlap, bubbles or what hides behind what: they
come out of playing it. `step_seconds(case)` is the short way for those who only want the time.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from scalewise.errors import InputError, did_you_mean
from scalewise.step.estimate import estimate
from scalewise.timeline.build import build
from scalewise.timeline.coarse import coarse_actions
from scalewise.timeline.engine import Played, play
from scalewise.timeline.jitter import Jitter
from scalewise.timeline.prices import Prices, price
from scalewise.timeline.spans import Span, outside, total, union
from scalewise.timeline.step import Step

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.stack import Stack
    from scalewise.step.case import Case
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy
    from scalewise.timeline.events import Event, Sample
    from scalewise.workload import Workload

Ranks = Literal["stages", "one", "all-of-a-kind"]
RANKS: tuple[Ranks, ...] = ("stages", "one", "all-of-a-kind")

FINE = 200_000
"""Blocks beyond which a step is played pass by pass."""
COARSE = 16_000
"""Passes beyond which the middle of a step is folded."""


@dataclass(frozen=True, kw_only=True)
class Closing:
    """What every rank does when all gradients are there, seconds."""

    optimizer: tuple[float, ...]
    """By rank."""
    gather: tuple[float, ...]
    """Gather of updated parameters that may not hide, by rank (ZeRO-1/2)."""
    overhead: float
    """Constant of the software."""
    straggler: float
    """Waiting for the slowest of all scale-up domains."""

    @property
    def seconds(self) -> float:
        """From the last gradient to the end of the step."""
        both = (a + b for a, b in zip(self.optimizer, self.gather, strict=True))
        return max(both) + self.overhead + self.straggler


@dataclass(frozen=True, kw_only=True)
class Play:
    """A step that was played: its graph, when each task ran, and what follows the last."""

    prices: Prices
    step: Step
    played: Played
    closing: Closing
    folded: int
    """Micro batches that were not played one by one, because they are like the others."""
    folded_seconds: float
    """Their time, seconds."""

    @property
    def passes_seconds(self) -> float:
        """Until the last gradient is there."""
        return self.played.seconds + self.folded_seconds

    @property
    def seconds(self) -> float:
        """The whole step."""
        return self.passes_seconds + self.closing.seconds

    @cached_property
    def pace(self) -> int:
        """The rank whose passes and messages take longest: it sets the pace."""
        busy = []
        for rank in range(len(self.prices.stages)):
            spans = self.spans(rank)
            busy.append(total(union([*spans["compute"], *spans["pipeline"]])))
        most = max(busy)
        return next(rank for rank, seconds in enumerate(busy) if seconds >= most * (1.0 - 1e-9))

    def spans(self, rank: int) -> dict[str, list[Span]]:
        """When each stream of a rank was busy; a message counts for both of its ends."""
        found: dict[str, list[Span]] = {"compute": [], "data": [], "pipeline": []}
        for task, label in enumerate(self.step.labels):
            if label is None or rank not in (label.rank, label.to):
                continue
            found[label.stream].append((self.played.start[task], self.played.end[task]))
        return {name: union(spans) for name, spans in found.items()}

    def exposed(self, rank: int) -> dict[str, float]:
        """Communication of a rank that nothing runs beside, by group, seconds."""
        spans, prices = self.spans(rank), self.prices
        steps, layers = prices.micro_steps, prices.stages[rank].layers
        blocks = (prices.forward_block, prices.backward_block)
        data = outside(spans["data"], spans["compute"]) + self.closing.gather[rank]
        busy = union([*spans["compute"], *spans["data"]])
        found = {
            "tensor_parallel": steps * layers * sum(block.tensor for block in blocks),
            "context_parallel": steps * layers * sum(block.context for block in blocks),
            "data_parallel": data + self._inside(rank),
            "pipeline": outside(spans["pipeline"], busy),
        }
        if self.folded:
            # Every micro batch exposes the same; what travels once per step is not repeated.
            times = steps / max(steps - self.folded, 1)
            for group in ("data_parallel", "pipeline"):
                once = prices.stages[rank].reduce + self.closing.gather[rank]
                fixed = min(found[group], once) if group == "data_parallel" else 0.0
                found[group] = fixed + (found[group] - fixed) * times
        return found

    def _inside(self, rank: int) -> float:
        """Exposed data-parallel seconds inside passes that were played as one event."""
        if self.step.coarse is None:
            return 0.0
        known, last = self.step.coarse[rank], self.prices.micro_steps - self.folded - 1
        return sum(
            known[action.kind, action.chunk, action.micro == last].exposed
            for action in self.step.orders[rank]
        )


def play_case(case: Case, *, jitter: float = 0.0, seed: int = 0) -> Play:
    """Play one step of a laid-out case.

    Args:
        case: One row.
        jitter: Spread of kernel times, as a share; 0 plays every kernel at its price.
        seed: Of the jitter.
    """
    prices = price(case)
    noise = Jitter(spread=jitter, seed=seed) if jitter > 0.0 else None
    step, played, folded, more = _passes(prices, noise)
    rest = 1.0 - prices.share
    closing = Closing(
        optimizer=tuple(stage.optimizer for stage in prices.stages),
        gather=tuple(rest * stage.gather for stage in prices.stages),
        overhead=prices.overhead,
        straggler=0.0,
    )
    if noise is None:
        # The stack's constant for stragglers is the mean of what jitter plays one by one.
        busy = played.seconds + more + closing.seconds
        closing = replace(closing, straggler=busy * prices.straggler)
    return Play(
        prices=prices,
        step=step,
        played=played,
        closing=closing,
        folded=folded,
        folded_seconds=more,
    )


def step_seconds(case: Case) -> float:
    """Time of one step by events, seconds: what `validate` needs of one row.

    Args:
        case: One row.
    """
    return play_case(case).seconds


def _passes(prices: Prices, noise: Jitter | None) -> tuple[Step, Played, int, float]:
    """Play all passes, as finely as their number allows: (graph, times, folded, their time)."""
    ranks = len(prices.stages)

    def run(some: Prices) -> tuple[Step, Played]:
        halves = 3 if some.schedule.startswith("zb") and ranks > 1 else 2
        blocks = halves * some.micro_steps * sum(stage.layers for stage in some.stages)
        coarse = coarse_actions(some) if blocks > FINE else None
        step = build(some, coarse=coarse, jitter=noise)
        return step, play(step.graph, contention=some.contention, ranks=ranks)

    chunks = 2 if prices.v_shaped else prices.chunks
    each = 3 * chunks * ranks
    most = max(COARSE // each, 4 * ranks)
    if prices.micro_steps <= most:
        return *run(prices), 0, 0.0
    # The middle of a long step repeats itself every `ranks` micro batches.
    cycles = (prices.micro_steps - most) // ranks + 1
    folded = cycles * ranks
    fewer = prices.micro_steps - folded
    _, short = run(replace(prices, micro_steps=fewer - ranks))
    step, played = run(replace(prices, micro_steps=fewer))
    return step, played, folded, cycles * (played.seconds - short.seconds)


@dataclass(frozen=True, kw_only=True)
class Timeline:
    """One step, event by event, and the estimate of the same step."""

    estimate: Estimate
    """The same step by closed forms."""
    play: Play
    ranks: tuple[int, ...]
    """Stages whose ranks are shown."""
    jitter: float
    """Spread of kernel times, as a share."""
    seed: int
    notes: tuple[str, ...]
    """What to know before reading it."""
    case: Case

    @property
    def step_seconds(self) -> float:
        """Time of the step by events."""
        return self.play.seconds

    @property
    def difference(self) -> float:
        """Step time over that of the estimate, minus one."""
        return self.step_seconds / self.estimate.step_seconds - 1.0

    @property
    def pace(self) -> int:
        """Stage that sets the pace."""
        return self.play.pace

    @cached_property
    def exposed_seconds(self) -> dict[str, float]:
        """Communication that nothing hides, by group, on the rank that sets the pace."""
        return self.play.exposed(self.pace)

    @cached_property
    def bubble_seconds(self) -> float:
        """Time in which the rank that sets the pace neither computes nor communicates."""
        spans = self.play.spans(self.pace)
        return self.play.played.seconds - total(union([s for x in spans.values() for s in x]))

    def events(self, rank: int) -> list[Event]:
        """Everything a rank did, stream by stream in order of time."""
        from scalewise.timeline.detail import rank_events

        return rank_events(self.play, rank)

    def memory(self, rank: int) -> list[Sample]:
        """Bytes on a rank over time."""
        from scalewise.timeline.memory import memory_samples

        return memory_samples(self.play, self.case, rank)

    def power(self, rank: int) -> list[Sample]:
        """Watts of a rank over time; empty where its power is not published."""
        from scalewise.timeline.power import power_samples

        return power_samples(self.play, self.estimate.cluster, rank)


def timeline(
    model: Model,
    cluster: Cluster,
    workload: Workload,
    strategy: Strategy,
    *,
    stack: Stack | str | None = None,
    ranks: str = "stages",
    jitter: float = 0.0,
    seed: int = 0,
) -> Timeline:
    """Play one training step event by event.

    Args:
        model: What is trained.
        cluster: On what.
        workload: Sequence, batch and precision.
        strategy: How it is split.
        stack: Software, by name or as constants.
        ranks: Which ranks are shown: "stages" (one per pipeline stage), "one" (the one that sets
            the pace), or "all-of-a-kind" (one of each kind of stage).
        jitter: Spread of kernel times, as a share such as 0.02; 0 plays each at its price.
        seed: Of the jitter.

    Returns:
        The step. One that does not fit in memory is played all the same; `notes` says so.

    Raises:
        InputError: If the inputs do not fit each other.
    """
    if ranks not in RANKS:
        raise InputError(f"ranks = {ranks!r} is not known", hint=did_you_mean(ranks, RANKS))
    if not 0.0 <= jitter <= 1.0:
        raise InputError(
            f"jitter = {jitter:g} must be a share between 0 and 1", hint="for example 0.02"
        )
    one = estimate(model, cluster, workload, strategy, stack=stack)
    many = estimate(model, cluster, workload, [strategy], stack=one.stack)
    played = play_case(many.case, jitter=jitter, seed=seed)
    return Timeline(
        estimate=one,
        play=played,
        ranks=_shown(played, ranks),
        jitter=jitter,
        seed=seed,
        notes=tuple(_notes(one, played, jitter)),
        case=many.case,
    )


def _shown(played: Play, ranks: str) -> tuple[int, ...]:
    """Stages to show."""
    stages = played.prices.stages
    if ranks == "one":
        return (played.pace,)
    if ranks == "stages":
        return tuple(range(len(stages)))
    kinds: dict[tuple[tuple[bool, bool], int], int] = {}
    for rank, stage in enumerate(stages):
        ends = rank == 0, rank == len(stages) - 1
        kinds.setdefault((ends, stage.layers), rank)
    return tuple(sorted({*kinds.values(), played.pace}))


def _notes(e: Estimate, played: Play, jitter: float) -> list[str]:
    """What a reader should know."""
    found = []
    if e.infeasible is not None:
        found.append(f"this step cannot run, and is played all the same: {e.infeasible}")
    if played.step.coarse is not None:
        found.append(
            f"{e.micro_steps:,} micro steps of {e.model.layers} layers are too many to play layer "
            "by layer: each pass of a micro batch through a stage is one event"
        )
    if played.folded:
        each = played.folded_seconds / played.folded
        found.append(
            f"{played.folded:,} of {e.micro_steps:,} micro steps are like the others and are not "
            f"drawn: {each * 1e3:.3g} ms each"
        )
    if jitter > 0.0:
        found.append(
            "jitter is on: the slowest of each group is drawn, and the stack's constant for "
            "stragglers is left out"
        )
    return found


__all__ = ["RANKS", "Play", "Timeline", "play_case", "step_seconds", "timeline"]
