"""Scaling curves: points over sizes, marginal values and knees.

    points = join(points)                      # marginal values filled in
    knee(curve, 0.5)                           # first size below 50% marginal efficiency, or None
    curves.groups()                            # comparable curves: strategies of one question

Only data and arithmetic: `scale` makes curves, `report.scale_table` prints and draws them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from scalewise.explore.causes import Cause, find_cause
from scalewise.explore.sizes import Rule
from scalewise.ranges import Basis, parts_of
from scalewise.results import Result

KNEE = 0.5
"""Marginal efficiency below which a size is past its knee, by default."""


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy at one size. Marginal values are relative to the previous size that fits."""

    accelerators: int
    """Number of GPUs."""
    strategy: str
    """The strategy, with its sizes."""
    stack: str = ""
    """Software that runs it."""
    global_batch: int
    """Sequences per step over all GPUs."""
    num_microbatches: int
    """Gradient accumulation steps."""
    step_seconds: float
    """Step time, seconds."""
    terms: dict[str, float]
    """Seconds of the step by term; they add up."""
    tokens_per_second: float
    """Tokens/s of all GPUs."""
    tokens_per_second_per_accelerator: float
    """Tokens/s of one GPU."""
    low: float
    """Low end of the 80% prediction interval of tokens/s per GPU."""
    high: float
    """High end of it."""
    mfu: float
    """Model FLOP/s over peak."""
    exposed_fraction: float
    """Exposed communication, fraction of the step."""
    contention_share: float
    """Contention, fraction of the step."""
    memory_bytes: float
    """Peak memory (worst rank), bytes."""
    fit: float | None = None
    """Chance to fit into memory, 0 to 1."""
    watts_per_accelerator: float | None = None
    """Mean power of one GPU, watts; None if it is not published."""
    facility_watts_per_accelerator: float | None = None
    """With host, network and PUE, watts."""
    tokens_per_joule: float | None = None
    """Tokens per joule of facility energy."""
    usd_per_million_tokens: float | None = None
    """Cost, dollars per million tokens; None without a price."""
    days: float | None = None
    """Days of wall time for the token budget; None without one."""
    days_low: float | None = None
    """Low end of their 80% interval."""
    days_high: float | None = None
    """High end of it."""
    run_usd: float | None = None
    """Cost of the token budget, dollars; None without one or without a price."""
    run_joules: float | None = None
    """Facility energy of the token budget, joules."""
    goodput: float | None = None
    """Fraction of wall time that trains; None where nothing was asked of whole runs."""
    goodput_low: float | None = None
    """The same at the high failure rate."""
    goodput_high: float | None = None
    """The same at the low one."""
    checkpoint_interval: float | None = None
    """Training between checkpoints, seconds."""
    statistical_efficiency: float | None = None
    """Tokens of a very small batch over those of this one, for the same loss, by the critical
    batch; None where it is not asked for."""
    statistical_low: float | None = None
    """The same by the law with the smallest critical batch."""
    statistical_high: float | None = None
    """The same by the law with the largest one."""
    effective_tokens_per_second: float | None = None
    """Effective tokens/s of all GPUs."""
    effective_tokens_per_second_per_accelerator: float | None = None
    """Effective tokens/s of one GPU."""
    all_gather_seconds: float | None = None
    """All-gather of one layer's parameters, seconds; None without a ring all-gather."""
    all_gather_latency: float | None = None
    """Its latency, which more bandwidth does not shorten, seconds."""
    evaluated: int | None = None
    """Strategies evaluated to find this one; None if it was given."""
    infeasible: str | None = None
    """Why it cannot run, or None."""
    family: str = ""
    """Software family."""
    chip: str = ""
    """Architecture of the GPU."""
    beyond: float = 0.0
    """Doublings of GPUs beyond the largest run the software was fitted on."""
    previous: int | None = None
    """GPUs of the point that the marginal values refer to; None for the first."""
    marginal_tokens_per_second: float | None = None
    """Tokens/s gained per GPU added since the previous size."""
    marginal_effective_tokens_per_second: float | None = None
    """Effective tokens/s gained per GPU added since the previous size."""
    marginal_tokens_per_joule: float | None = None
    """Tokens/s gained per facility watt added since the previous size."""
    marginal_usd_per_million_tokens: float | None = None
    """Cost added over tokens gained since the previous size; None if nothing was gained."""
    cause: Cause | None = None
    """Cause of the loss since the previous size; None if nothing was lost."""

    @property
    def feasible(self) -> bool:
        """Whether it can run."""
        return self.infeasible is None

    @property
    def basis(self) -> Basis:
        """What intervals of ratios to points of the same model and sequence depend on."""
        return Basis(
            rate=self.tokens_per_second_per_accelerator,
            parts=parts_of(self.terms, self.step_seconds),
            software=self.stack,
            family=self.family or self.stack,
            chip=self.chip,
            accelerators=self.accelerators,
            beyond=self.beyond,
            parameters=1.0,
            seq_len=1,
            tokens=self.global_batch / self.accelerators,
        )


class InfeasibleSize(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A size that a strategy cannot have."""

    accelerators: int
    """Number of GPUs."""
    reason: str
    """Reason."""


class Group(NamedTuple):
    """Model, cluster and sequence length that comparable curves share."""

    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    seq_len: int
    """Tokens per sequence."""


class Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy for one model on one cluster over all sizes."""

    label: str
    """The strategy without its sizes, or `best`."""
    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    seq_len: int
    """Tokens per sequence."""
    stack: str
    """Software stack."""
    precision: str
    """Precision of GEMMs."""
    parameters: float = 0.0
    """Parameters of the model; 0 if unknown."""
    kind: str = "gpu"
    """Kind of accelerator: "gpu", "tpu" or "other"."""
    points: tuple[Point, ...]
    """In order of size."""
    missing: tuple[InfeasibleSize, ...] = ()
    """Infeasible sizes."""

    @property
    def group(self) -> Group:
        """Group of comparable curves."""
        return Group(self.model, self.cluster, self.seq_len)

    @property
    def feasible(self) -> tuple[Point, ...]:
        """The points that can run."""
        return tuple(point for point in self.points if point.feasible)


class Knee(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Knee of one curve."""

    label: str
    """The strategy without its sizes."""
    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    seq_len: int
    """Tokens per sequence."""
    accelerators: int
    """First size with a marginal efficiency below the threshold."""
    previous: int
    """The size before it."""
    returned: float
    """Marginal efficiency: tokens/s per added GPU over tokens/s per GPU at the smallest size."""


class Crossover(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Crossover of two strategies."""

    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    seq_len: int
    """Tokens per sequence."""
    accelerators: int
    """First size at which the winner leads."""
    previous: int
    """Largest smaller size that was evaluated, where the winner does not lead."""
    winner: str
    """Label of the strategy that leads from here."""
    loser: str
    """Label of the other one."""
    gain: float
    """Lead at this size, as a fraction of the loser's tokens/s."""
    rate: float
    """Tokens/s per GPU of the winner at this size."""
    last: int
    """Largest size at which both run."""
    last_gain: float
    """Lead there; negative if it was lost again."""
    chance: float = 0.5
    """Chance that the winner leads there, 0 to 1."""


class Curves(Result, msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer: curves, and what was asked."""

    rules: tuple[Rule, ...]
    """Workload rules; they differ in the sequence length only."""
    sizes: tuple[int, ...]
    """What was asked for."""
    by: str
    """Objective of `best`: "time", "cost" or "energy"."""
    curves: tuple[Curve, ...]
    """By model, cluster and sequence length, then by strategy, in the given order."""
    crossovers: tuple[Crossover, ...] = ()
    """All crossovers within groups, in order of size."""
    warnings: tuple[str, ...] = ()
    """Warnings, each once."""

    def groups(self) -> tuple[Group, ...]:
        """Return the groups of comparable curves, in order."""
        return tuple(dict.fromkeys(curve.group for curve in self.curves))

    def of(self, group: Group) -> tuple[Curve, ...]:
        """Return the curves of one group."""
        return tuple(curve for curve in self.curves if curve.group == group)

    def knees(self, share: float = KNEE) -> tuple[Knee, ...]:
        """Return the knees of all curves that have one."""
        found = (knee(curve, share) for curve in self.curves)
        return tuple(each for each in found if each is not None)


def knee(curve: Curve, share: float = KNEE) -> Knee | None:
    """Return the first size with a marginal efficiency below a threshold.

    Marginal efficiency is the tokens/s gained since the previous size per added GPU, relative to
    tokens/s per GPU at the smallest size that runs. Under perfect scaling it is 1 at every size,
    and there is no knee. Where a critical batch is asked for, it is that of effective tokens.

    Args:
        curve: The curve.
        share: Threshold, above 0.

    Returns:
        The knee, or None.
    """
    points = curve.feasible
    for point in points[1:]:
        assert point.previous is not None
        returned = marginal_efficiency(points[0], point)
        if returned is not None and returned < share:
            return Knee(
                label=curve.label,
                model=curve.model,
                cluster=curve.cluster,
                seq_len=curve.seq_len,
                accelerators=point.accelerators,
                previous=point.previous,
                returned=returned,
            )
    return None


def marginal_efficiency(first: Point, point: Point) -> float | None:
    """Return tokens/s per added GPU over tokens/s per GPU at the first size.

    Effective tokens where they are known.

    Args:
        first: Point of the smallest size that runs.
        point: Another point of its curve; None is returned for the first one.
    """
    effective = first.effective_tokens_per_second_per_accelerator
    if effective is not None and point.marginal_effective_tokens_per_second is not None:
        return point.marginal_effective_tokens_per_second / effective
    if point.marginal_tokens_per_second is None:
        return None
    return point.marginal_tokens_per_second / first.tokens_per_second_per_accelerator


def join(points: Iterable[Point]) -> tuple[Point, ...]:
    """Return the points with marginal values; points that cannot run are kept."""
    joined: list[Point] = []
    before: Point | None = None
    for point in sorted(points, key=lambda each: each.accelerators):
        if point.feasible:
            joined.append(point if before is None else _compared(before, point))
            before = point
        else:
            joined.append(point)
    return tuple(joined)


def _compared(before: Point, point: Point) -> Point:
    """Fill in the marginal values."""
    added = point.accelerators - before.accelerators
    gained = point.tokens_per_second - before.tokens_per_second
    per_joule = per_million = effective = None
    fewer, more = before.effective_tokens_per_second, point.effective_tokens_per_second
    if fewer is not None and more is not None:
        effective = (more - fewer) / added
    old, new = before.facility_watts_per_accelerator, point.facility_watts_per_accelerator
    if old is not None and new is not None:
        watts = new * point.accelerators - old * before.accelerators
        per_joule = gained / watts if watts > 0 else None
    if before.usd_per_million_tokens is not None and point.usd_per_million_tokens is not None:
        # Dollars per second times a million, at each of the two sizes.
        paid = point.usd_per_million_tokens * point.tokens_per_second
        paid -= before.usd_per_million_tokens * before.tokens_per_second
        per_million = paid / gained if gained > 0 else None
    return msgspec.structs.replace(
        point,
        previous=before.accelerators,
        marginal_tokens_per_second=gained / added,
        marginal_effective_tokens_per_second=effective,
        marginal_tokens_per_joule=per_joule,
        marginal_usd_per_million_tokens=per_million,
        cause=find_cause(before, point),
    )
