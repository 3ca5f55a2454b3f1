"""Simulation of one training step, and its comparison with the estimate.

    line = timeline(model, cluster, workload, strategy)
    line.step_seconds, line.estimate.step_seconds       # simulated, analytical
    line.exposed_seconds                                # by group, on the critical rank
    line.events(0)                                      # events of the rank of the first stage

The durations are those of `estimate`. Overlap, bubbles and exposed communication are results of the
simulation instead of formulas. `step_seconds(case)` returns only the time.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from scalewise.errors import InputError, did_you_mean
from scalewise.results import Result
from scalewise.simulation.build import build
from scalewise.simulation.coarse import coarse_actions
from scalewise.simulation.durations import Durations, durations_of
from scalewise.simulation.engine import TaskTimes, simulation
from scalewise.simulation.jitter import Jitter
from scalewise.simulation.spans import Span, outside, total, union
from scalewise.simulation.step import Step
from scalewise.step.estimate import estimate

if TYPE_CHECKING:
    from scalewise.cluster import Cluster
    from scalewise.model import Model
    from scalewise.simulation.events import Event, Sample
    from scalewise.stack import Stack
    from scalewise.step.case import Case
    from scalewise.step.result import Estimate
    from scalewise.strategy import Strategy
    from scalewise.workload import Workload

Ranks = Literal["stages", "one", "distinct"]
RANKS: tuple[Ranks, ...] = ("stages", "one", "distinct")

FINE = 200_000
"""Blocks beyond which passes are simulated as single tasks."""
MAX_PASSES = 1_000_000
"""Limit of passes of all ranks: about 2 GB and a minute."""
PATIENCE = 100_000
"""Passes from which a simulation takes seconds, and is announced."""
COARSE = 16_000
"""Passes beyond which the steady state of a step is extrapolated."""


@dataclass(frozen=True, kw_only=True)
class Closing:
    """Work of every rank after the last gradient, seconds."""

    optimizer: tuple[float, ...]
    """Optimizer step by rank."""
    gather: tuple[float, ...]
    """All-gather of updated parameters that cannot overlap, by rank (ZeRO-1/2)."""
    overhead: float
    """Framework overhead."""
    offload: float
    """Exposed copies of offload, which are not simulated."""
    straggler: float
    """Wait for the slowest of all scale-up domains."""

    @property
    def seconds(self) -> float:
        """From the last gradient to the end of the step, seconds."""
        both = (a + b for a, b in zip(self.optimizer, self.gather, strict=True))
        return max(both) + self.overhead + self.offload + self.straggler


@dataclass(frozen=True, kw_only=True)
class Simulation:
    """A simulated step: its graph, times of each task, and the work after the last task."""

    durations: Durations
    step: Step
    times: TaskTimes
    closing: Closing
    extrapolated: int
    """Micro-batches of the steady state that were extrapolated."""
    extrapolated_seconds: float
    """Their time, seconds."""

    @property
    def passes_seconds(self) -> float:
        """Until the last gradient is computed and reduced, seconds."""
        return self.times.seconds + self.extrapolated_seconds

    @property
    def seconds(self) -> float:
        """Step time, seconds."""
        return self.passes_seconds + self.closing.seconds

    @cached_property
    def critical_rank(self) -> int:
        """Rank whose passes and P2P transfers take longest."""
        busy = []
        for rank in range(len(self.durations.stages)):
            spans = self.spans(rank)
            busy.append(total(union([*spans["compute"], *spans["pipeline"]])))
        maximum = max(busy)
        return next(rank for rank, seconds in enumerate(busy) if seconds >= maximum * (1.0 - 1e-9))

    def spans(self, rank: int) -> dict[str, list[Span]]:
        """Return busy intervals of each stream of a rank; a P2P transfer counts for both ends."""
        found: dict[str, list[Span]] = {"compute": [], "data": [], "pipeline": []}
        for task, label in enumerate(self.step.labels):
            if label is None or rank not in (label.rank, label.to):
                continue
            stream = "data" if label.stream == "replica" else label.stream
            found[stream].append((self.times.start[task], self.times.end[task]))
        return {name: union(spans) for name, spans in found.items()}

    def exposed(self, rank: int) -> dict[str, float]:
        """Return exposed communication of a rank by group, seconds."""
        spans, durations = self.spans(rank), self.durations.on(rank)
        steps, layers = durations.num_microbatches, durations.stages[rank].layers
        blocks = (durations.forward_block, durations.backward_block)
        data = outside(spans["data"], spans["compute"]) + self.closing.gather[rank]
        busy = union([*spans["compute"], *spans["data"]])
        found = {
            "tensor_parallel": steps * layers * sum(block.tensor for block in blocks),
            "context_parallel": steps * layers * sum(block.context for block in blocks),
            "expert_parallel": steps * layers * sum(block.expert for block in blocks),
            "data_parallel": data + self._inside(rank),
            "pipeline": outside(spans["pipeline"], busy),
        }
        if self.extrapolated:
            # Every micro-batch exposes the same; once-per-step traffic is not repeated.
            times = steps / max(steps - self.extrapolated, 1)
            for group in ("data_parallel", "pipeline"):
                each = durations.step_reduce_each
                once = 0.0 if each else durations.stages[rank].reduce
                once += self.closing.gather[rank]
                fixed = min(found[group], once) if group == "data_parallel" else 0.0
                if group == "data_parallel" and not durations.gather_each:
                    fixed = found[group]
                found[group] = fixed + (found[group] - fixed) * times
        return found

    def _inside(self, rank: int) -> float:
        """Return exposed data-parallel seconds inside passes that are single tasks."""
        if self.step.coarse is None:
            return 0.0
        known, last = (
            self.step.coarse[rank],
            self.durations.num_microbatches - self.extrapolated - 1,
        )
        return sum(
            known[action.kind, action.chunk, action.is_edge(last)].exposed
            for action in self.step.schedules[rank]
        )


def simulate_step(
    case: Case,
    *,
    jitter: float = 0.0,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> Simulation:
    """Simulate one step.

    Args:
        case: One row.
        jitter: Relative spread of kernel times; 0 for none.
        seed: Random seed for the jitter.
        say: Called with a sentence before a simulation that takes seconds.

    Raises:
        InputError: If the step has too many passes.
    """
    durations = durations_of(case)
    noise = Jitter(spread=jitter, seed=seed) if jitter > 0.0 else None
    step, times, extrapolated, more = _passes(durations, noise, say)
    rest = 1.0 - durations.gather_share
    closing = Closing(
        optimizer=tuple(stage.optimizer for stage in durations.stages),
        gather=tuple(rest * stage.gather for stage in durations.stages),
        overhead=durations.overhead,
        offload=durations.offload,
        straggler=0.0,
    )
    if noise is None:
        # The stack's constant for stragglers is the mean of the waits that jitter simulates.
        busy = times.seconds + more + closing.seconds
        closing = replace(closing, straggler=busy * durations.straggler)
    return Simulation(
        durations=durations,
        step=step,
        times=times,
        closing=closing,
        extrapolated=extrapolated,
        extrapolated_seconds=more,
    )


def step_seconds(case: Case) -> float:
    """Return the simulated step time, seconds.

    Args:
        case: One row.
    """
    return simulate_step(case).seconds


def _passes(
    durations: Durations, noise: Jitter | None, say: Callable[[str], None] | None
) -> tuple[Step, TaskTimes, int, float]:
    """Simulate all passes: (graph, times, extrapolated micro-batches, their seconds)."""
    ranks = len(durations.stages)

    def run(some: Durations) -> tuple[Step, TaskTimes]:
        halves = 3 if some.schedule.startswith("zb") and ranks > 1 else 2
        blocks = halves * some.num_microbatches * sum(stage.layers for stage in some.stages)
        coarse = coarse_actions(some) if blocks > FINE else None
        step = build(some, coarse=coarse, jitter=noise)
        return step, simulation(step.graph, contention=some.contention, ranks=ranks)

    chunks = 2 if durations.zb_v else durations.chunks
    each = 3 * chunks * ranks
    maximum = max(COARSE // each, 4 * ranks)
    passes = each * min(durations.num_microbatches, maximum)
    if passes > MAX_PASSES:
        raise InputError(
            f"pp = {ranks} with {durations.num_microbatches:,} micro-batches makes {passes:,} "
            f"passes, more than the {MAX_PASSES:,} that can be simulated",
            hint="use fewer pipeline stages, or scalewise estimate",
        )
    if passes > PATIENCE and say is not None:
        say(f"simulating {passes:,} passes of {ranks} pipeline stages ...")
    if durations.num_microbatches <= maximum:
        return *run(durations), 0, 0.0
    # The steady state of a long step repeats every `ranks` micro-batches.
    cycles = (durations.num_microbatches - maximum) // ranks + 1
    extrapolated = cycles * ranks
    fewer = durations.num_microbatches - extrapolated
    _, short = run(replace(durations, num_microbatches=fewer - ranks))
    step, times = run(replace(durations, num_microbatches=fewer))
    return step, times, extrapolated, cycles * (times.seconds - short.seconds)


@dataclass(frozen=True, kw_only=True, repr=False)
class Timeline(Result):
    """One simulated step, and the estimate of the same step."""

    estimate: Estimate
    """The analytical result for the same step."""
    simulation: Simulation
    ranks: tuple[int, ...]
    """Stages whose ranks are shown."""
    jitter: float
    """Relative spread of kernel times."""
    seed: int
    notes: tuple[str, ...]
    """Warnings and remarks."""
    case: Case

    @property
    def step_seconds(self) -> float:
        """Simulated step time, seconds."""
        return self.simulation.seconds

    @property
    def difference(self) -> float:
        """Simulated over analytical step time, minus one."""
        return self.step_seconds / self.estimate.step_seconds - 1.0

    @property
    def critical_rank(self) -> int:
        """Stage of the critical rank."""
        return self.simulation.critical_rank

    @cached_property
    def exposed_seconds(self) -> dict[str, float]:
        """Exposed communication by group on the critical rank, seconds."""
        return self.simulation.exposed(self.critical_rank)

    @cached_property
    def bubble_seconds(self) -> float:
        """Time in which the critical rank neither computes nor communicates, seconds."""
        spans = self.simulation.spans(self.critical_rank)
        return self.simulation.times.seconds - total(union([s for x in spans.values() for s in x]))

    def events(self, rank: int) -> list[Event]:
        """Return all events of a rank, by stream in order of time."""
        from scalewise.simulation.detail import rank_events

        return rank_events(self.simulation, rank)

    def memory(self, rank: int) -> list[Sample]:
        """Return bytes of a rank over time."""
        from scalewise.simulation.memory import memory_samples

        return memory_samples(self.simulation, self.case, rank)

    def power(self, rank: int) -> list[Sample]:
        """Return watts of a rank over time; empty where its power is not published."""
        from scalewise.simulation.power import power_samples

        return power_samples(self.simulation, self.estimate.cluster, rank)


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
    say: Callable[[str], None] | None = None,
) -> Timeline:
    """Simulate one training step.

    Args:
        model: Model.
        cluster: Cluster.
        workload: Sequence length, batch and precision.
        strategy: Parallelization.
        stack: Software, by name or as constants.
        ranks: Ranks that are shown: "stages" (one per pipeline stage), "one" (the critical rank),
            or "distinct" (one per kind of stage).
        jitter: Relative spread of kernel times, such as 0.02; 0 for none.
        seed: Random seed for the jitter.
        say: Called with a sentence before a simulation that takes seconds.

    Returns:
        The step. One that does not fit in memory is simulated too; `notes` says so.

    Raises:
        InputError: If the inputs contradict each other.
    """
    if ranks not in RANKS:
        raise InputError(f"ranks = {ranks!r} is not known", hint=did_you_mean(ranks, RANKS))
    if not 0.0 <= jitter <= 1.0:
        raise InputError(
            f"jitter = {jitter:g} must be a share between 0 and 1", hint="for example 0.02"
        )
    one = estimate(model, cluster, workload, strategy, stack=stack)
    many = estimate(model, cluster, workload, [strategy], stack=one.stack)
    times = simulate_step(many.case, jitter=jitter, seed=seed, say=say)
    return Timeline(
        estimate=one,
        simulation=times,
        ranks=_shown(times, ranks),
        jitter=jitter,
        seed=seed,
        notes=tuple(_notes(one, times, jitter)),
        case=many.case,
    )


def _shown(times: Simulation, ranks: str) -> tuple[int, ...]:
    """Return the stages to show."""
    stages = times.durations.stages
    if ranks == "one":
        return (times.critical_rank,)
    if ranks == "stages":
        return tuple(range(len(stages)))
    kinds: dict[tuple[tuple[bool, bool], int], int] = {}
    for rank, stage in enumerate(stages):
        ends = rank == 0, rank == len(stages) - 1
        kinds.setdefault((ends, stage.layers), rank)
    return tuple(sorted({*kinds.values(), times.critical_rank}))


def _notes(e: Estimate, times: Simulation, jitter: float) -> list[str]:
    """Return warnings and remarks."""
    found = []
    if e.infeasible is not None:
        found.append(f"this step cannot run; it is simulated all the same: {e.infeasible}")
    if times.step.coarse is not None:
        found.append(
            f"{e.num_microbatches:,} micro-batches of {e.model.layers} layers are too many to "
            "simulate layer by layer: each pass of a micro-batch through a stage is one event"
        )
    if times.extrapolated:
        each = times.extrapolated_seconds / times.extrapolated
        found.append(
            f"{times.extrapolated:,} of {e.num_microbatches:,} micro-batches repeat the "
            f"others and are not drawn: {each * 1e3:.3g} ms each"
        )
    if times.durations.offload:
        found.append(
            f"copies of offload are not drawn: {times.durations.offload:.3g} s that no compute "
            "overlaps end the step"
        )
    if jitter > 0.0:
        found.append(
            "jitter is on: the slowest of each group is drawn, and the stack's constant for "
            "stragglers is left out"
        )
    return found


__all__ = ["RANKS", "Simulation", "Timeline", "simulate_step", "step_seconds", "timeline"]
