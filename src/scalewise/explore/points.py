"""What is a scaling curve? Points over sizes, what each size gains, and where it stops paying.

    points = join(points)                      # marginal values filled in
    knee(curve, 0.5)                           # first size that returns less than half, or None
    curves.groups()                            # what may be compared: strategies of one question

Data and arithmetic on it only: `scale` makes curves, `report.curves` prints and draws them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from scalewise.explore.causes import Cause, find_cause
from scalewise.explore.sizes import Rule

KNEE = 0.5
"""Share of the first return below which growth is called past its knee, unless one is given."""


class Point(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy at one size. Marginal values compare with the previous size that fits."""

    accelerators: int
    """How many."""
    strategy: str
    """The strategy, with its sizes."""
    global_batch: int
    """Sequences per step over all accelerators."""
    micro_steps: int
    """Micro steps per optimizer step."""
    step_seconds: float
    """Time of one optimizer step, seconds."""
    terms: dict[str, float]
    """Seconds of the step by what they are spent on; they add up."""
    tokens_per_second: float
    """Of all accelerators."""
    tokens_per_second_per_accelerator: float
    """Of one."""
    low: float
    """Low end of the 80 % interval of tokens/s per accelerator."""
    high: float
    """High end of it."""
    mfu: float
    """Model FLOP/s over peak."""
    exposed_share: float
    """Share of the step in communication that nothing hides."""
    contention_share: float
    """Share of the step by which hidden communication slows compute down."""
    memory_bytes: float
    """Peak of the fullest rank, bytes."""
    watts_per_accelerator: float | None = None
    """Mean power of one device, watts; None where it is not published."""
    facility_watts_per_accelerator: float | None = None
    """With host, network and PUE, watts."""
    tokens_per_joule: float | None = None
    """Of the site's energy."""
    usd_per_million_tokens: float | None = None
    """Rent, dollars; None where no price is known."""
    days: float | None = None
    """Days for the token budget, without failures; None without one."""
    gather_seconds: float | None = None
    """Gather of one layer's parameters, seconds; None where no ring gathers any."""
    gather_latency: float | None = None
    """What of it is owed to latency, which more bandwidth does not shorten, seconds."""
    examined: int | None = None
    """Strategies tried to find this one; None where it was given."""
    infeasible: str | None = None
    """Why it cannot run, or None."""
    previous: int | None = None
    """Accelerators of the point that the marginal values compare with; None for the first."""
    marginal_tokens_per_second: float | None = None
    """Tokens/s gained per accelerator added since the previous size."""
    marginal_tokens_per_joule: float | None = None
    """Tokens/s gained per watt added at the site since the previous size."""
    marginal_usd_per_million_tokens: float | None = None
    """Rent added over tokens gained since the previous size; None if nothing was gained."""
    cause: Cause | None = None
    """What the loss since the previous size is spent on; None if nothing was lost."""

    @property
    def feasible(self) -> bool:
        """Whether it can run."""
        return self.infeasible is None


class Missing(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A size that a strategy cannot have."""

    accelerators: int
    """How many."""
    reason: str
    """Why there is no point."""


class Group(NamedTuple):
    """What curves must share for one strategy to beat another."""

    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    sequence: int
    """Tokens per sequence."""


class Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy for one model on one cluster over all sizes."""

    label: str
    """The strategy without its sizes, or `best`."""
    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    sequence: int
    """Tokens per sequence."""
    stack: str
    """Software whose constants were used."""
    precision: str
    """Of the matrix products."""
    points: tuple[Point, ...]
    """By rising size."""
    missing: tuple[Missing, ...] = ()
    """Sizes without a point."""

    @property
    def group(self) -> Group:
        """What it may be compared with."""
        return Group(self.model, self.cluster, self.sequence)

    @property
    def feasible(self) -> tuple[Point, ...]:
        """The points that can run."""
        return tuple(point for point in self.points if point.feasible)


class Knee(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where growing stops paying."""

    label: str
    """The strategy without its sizes."""
    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    sequence: int
    """Tokens per sequence."""
    accelerators: int
    """First size whose added accelerators return too little."""
    previous: int
    """The size before it."""
    returned: float
    """What each added accelerator brings, over what each one brings at the smallest size."""


class Crossover(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one strategy overtakes another."""

    model: str
    """Name of the model."""
    cluster: str
    """Name of the cluster."""
    sequence: int
    """Tokens per sequence."""
    accelerators: int
    """First size at which the winner is ahead."""
    previous: int
    """Largest size known to lie below it, where the winner was behind or level."""
    winner: str
    """Label of the strategy that is ahead from here."""
    loser: str
    """Label of the other one."""
    gain: float
    """By how much at this size, as a share of the loser's tokens/s."""
    rate: float
    """Tokens/s per accelerator of the winner at this size."""
    last: int
    """Largest size at which both run."""
    last_gain: float
    """By how much there; negative if the lead was lost again."""


class Curves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The answer: curves, and what was asked."""

    rules: tuple[Rule, ...]
    """What a step trains at every size; they differ in the sequence only."""
    sizes: tuple[int, ...]
    """What was asked for."""
    by: str
    """What `best` makes small: "time", "cost" or "energy"."""
    curves: tuple[Curve, ...]
    """By model, cluster and sequence, then by strategy, in the order asked for."""
    crossovers: tuple[Crossover, ...] = ()
    """Every place where one strategy overtakes another in the same group, by rising size."""
    warnings: tuple[str, ...] = ()
    """What to know before trusting the points, each once."""

    def groups(self) -> tuple[Group, ...]:
        """What may be compared, in order."""
        return tuple(dict.fromkeys(curve.group for curve in self.curves))

    def of(self, group: Group) -> tuple[Curve, ...]:
        """The curves of one group."""
        return tuple(curve for curve in self.curves if curve.group == group)

    def knees(self, share: float = KNEE) -> tuple[Knee, ...]:
        """The knees of all curves that have one."""
        found = (knee(curve, share) for curve in self.curves)
        return tuple(each for each in found if each is not None)


def knee(curve: Curve, share: float = KNEE) -> Knee | None:
    """Find the first size whose added accelerators return too little.

    The return of a size is the tokens/s gained since the previous one per accelerator added. It
    is compared with tokens/s per accelerator at the smallest size that runs: under perfect
    scaling the two are equal at every size, and there is no knee.

    Args:
        curve: The curve.
        share: What part of the first return is still enough, above 0.

    Returns:
        The knee, or None if every size returns enough.
    """
    points = curve.feasible
    for point in points[1:]:
        assert point.previous is not None
        assert point.marginal_tokens_per_second is not None
        returned = point.marginal_tokens_per_second / points[0].tokens_per_second_per_accelerator
        if returned < share:
            return Knee(
                label=curve.label,
                model=curve.model,
                cluster=curve.cluster,
                sequence=curve.sequence,
                accelerators=point.accelerators,
                previous=point.previous,
                returned=returned,
            )
    return None


def join(points: Iterable[Point]) -> tuple[Point, ...]:
    """Add to each point what it gains over the one before it; points that cannot run are kept."""
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
    per_joule = per_million = None
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
        marginal_tokens_per_joule=per_joule,
        marginal_usd_per_million_tokens=per_million,
        cause=find_cause(before, point),
    )
