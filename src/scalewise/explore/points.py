"""What is a scaling curve? Points over sizes, what each size gains, knees and crossovers.

    points = join(points)                      # marginal values filled in
    knee(curve, 0.5)                           # first size that returns less than half, or None
    curves.crossovers()                        # "from 1,024 on tp2 beats fsdp"

Data and arithmetic on it only: `scale` makes curves, `report.curves` prints and draws them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations

import msgspec

from scalewise.explore.sizes import Rule
from scalewise.step.terms import TERM_NAMES

KNEE = 0.5
"""Share of the first return below which growth is called past its knee, unless one is given."""

TIE = 1e-6
"""Relative difference below which two strategies count as equal, as hsdp64 and fsdp at 64 do."""


class Cause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What most of the loss between two sizes is spent on."""

    term: str
    """Key of the term of the step."""
    name: str
    """The term in words."""
    share: float
    """Its part of all growth in accelerator-seconds per token, 0 to 1."""
    loss: float
    """Share of tokens/s per accelerator lost since the previous size, by all terms together."""


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


class Curve(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One strategy on one cluster over all sizes."""

    label: str
    """The strategy without its sizes."""
    cluster: str
    """Name of the cluster."""
    stack: str
    """Software whose constants were used."""
    precision: str
    """Of the matrix products."""
    points: tuple[Point, ...]
    """By rising size."""
    missing: tuple[Missing, ...] = ()
    """Sizes without a point."""

    @property
    def feasible(self) -> tuple[Point, ...]:
        """The points that can run."""
        return tuple(point for point in self.points if point.feasible)


class Knee(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where growing stops paying."""

    label: str
    """The strategy without its sizes."""
    cluster: str
    """Name of the cluster."""
    accelerators: int
    """First size whose added accelerators return too little."""
    previous: int
    """The size before it."""
    returned: float
    """What each added accelerator brings, over what each one brings at the smallest size."""


class Crossover(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where one strategy overtakes another."""

    cluster: str
    """Name of the cluster."""
    accelerators: int
    """First size at which the winner is ahead."""
    previous: int
    """The size before it, where it was behind or level."""
    winner: str
    """Label of the strategy that is ahead from here."""
    loser: str
    """Label of the other one."""
    gain: float
    """By how much at this size, as a share of the loser's tokens/s."""
    last: int
    """Largest size at which both run."""
    last_gain: float
    """By how much there; negative if the lead was lost again."""


class Curves(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Curves of one model under one batch rule."""

    model: str
    """Name of the model."""
    rule: Rule
    """What a step trains at every size."""
    sizes: tuple[int, ...]
    """What was asked for."""
    curves: tuple[Curve, ...]
    """By cluster, then by strategy, in the order asked for."""
    warnings: tuple[str, ...] = ()
    """What to know before trusting the points, each once."""

    def clusters(self) -> tuple[str, ...]:
        """Names of the clusters, in order."""
        return tuple(dict.fromkeys(curve.cluster for curve in self.curves))

    def on(self, cluster: str) -> tuple[Curve, ...]:
        """The curves of one cluster."""
        return tuple(curve for curve in self.curves if curve.cluster == cluster)

    def knees(self, share: float = KNEE) -> tuple[Knee, ...]:
        """The knees of all curves that have one."""
        found = (knee(curve, share) for curve in self.curves)
        return tuple(each for each in found if each is not None)

    def crossovers(self) -> tuple[Crossover, ...]:
        """Every place where one strategy overtakes another on the same cluster.

        Sizes at which either cannot run are passed over. Strategies that were level so far and
        then part count as well; falling back to level does not.
        """
        found: list[Crossover] = []
        for cluster in self.clusters():
            for first, second in combinations(self.on(cluster), 2):
                found += _crossings(first, second)
        return tuple(sorted(found, key=lambda each: each.accelerators))


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
                cluster=curve.cluster,
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
        cause=_cause(before, point),
    )


def _cause(before: Point, point: Point) -> Cause | None:
    """Name the term that grew most in accelerator-seconds per token.

    Per token and accelerator, because that is what stays the same when scaling is perfect, be it
    weak or strong. Terms that shrank do not count against the ones that grew: parts add up to 1.
    """
    loss = 1.0 - (
        point.tokens_per_second_per_accelerator / before.tokens_per_second_per_accelerator
    )
    if loss <= TIE:
        return None
    # Accelerators over tokens per step; the step's own seconds cancel.
    old = 1.0 / (before.tokens_per_second_per_accelerator * before.step_seconds)
    new = 1.0 / (point.tokens_per_second_per_accelerator * point.step_seconds)
    growth = {
        name: max(seconds * new - before.terms.get(name, 0.0) * old, 0.0)
        for name, seconds in point.terms.items()
    }
    whole = sum(growth.values())
    if not whole:
        return None
    term = max(growth, key=growth.__getitem__)
    return Cause(term=term, name=TERM_NAMES.get(term, term), share=growth[term] / whole, loss=loss)


def _crossings(first: Curve, second: Curve) -> list[Crossover]:
    """Walk two curves side by side and note every change of the lead."""
    others = {point.accelerators: point for point in second.feasible}
    pairs = [(p, others[p.accelerators]) for p in first.feasible if p.accelerators in others]
    found: list[Crossover] = []
    ahead: str | None = None
    end = pairs[-1][0].tokens_per_second / pairs[-1][1].tokens_per_second if pairs else 1.0
    for place, (one, other) in enumerate(pairs):
        ratio = one.tokens_per_second / other.tokens_per_second
        if abs(ratio - 1.0) <= TIE:
            continue
        winner, loser = (first, second) if ratio > 1.0 else (second, first)
        if winner.label == ahead:
            continue
        ahead = winner.label
        # The first size sets who leads; there is nothing before it to cross from.
        if place:
            found.append(
                Crossover(
                    cluster=first.cluster,
                    accelerators=one.accelerators,
                    previous=pairs[place - 1][0].accelerators,
                    winner=winner.label,
                    loser=loser.label,
                    gain=max(ratio, 1.0 / ratio) - 1.0,
                    last=pairs[-1][0].accelerators,
                    last_gain=(end if winner is first else 1.0 / end) - 1.0,
                )
            )
    return found
