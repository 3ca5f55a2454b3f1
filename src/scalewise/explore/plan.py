"""A plan: models, clusters and sizes against a deadline and a budget.

    row = row_of(estimate, region=load_region("us"))
    found = compare([row, ...], Wanted(days=21.0, usd=1.5e6), by="cost")
    found.answer, found.nearest

A row is one estimate as a whole run: days, dollars, MWh and tonnes of CO2, each with its 80%
interval. Everything follows from throughput, so that the four intervals are one. A limit is met by
the far end of the interval, unless the prediction itself is wanted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from scalewise.explore.objectives import OBJECTIVES
from scalewise.physics.carbon import JOULES_PER_KWH, emissions
from scalewise.physics.cost import break_even_price, dollars
from scalewise.price import Price
from scalewise.ranges import Basis, ratio_range
from scalewise.results import Result

if TYPE_CHECKING:
    from scalewise.region import Region
    from scalewise.step.result import Estimate

DAY = 86400.0

ORDERS = {**OBJECTIVES, "carbon": "kg CO2 of the whole run"}
"""Objectives that rows are sorted by: those of a search, and carbon."""

NEAREST = 3
"""Nearest misses to name."""


class Amount(NamedTuple):
    """A number with its 80% prediction interval."""

    value: float
    low: float
    high: float

    def times(self, factor: float) -> Amount:
        """Return it times an exact number.

        >>> Amount(20.0, 18.0, 25.0).times(2.0)
        Amount(value=40.0, low=36.0, high=50.0)
        """
        return Amount(self.value * factor, self.low * factor, self.high * factor)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One model on one size of one cluster, as a whole run."""

    model: str
    cluster: str
    accelerators: int
    """Number of GPUs."""
    kind: str = "gpu"
    """What an accelerator is: gpu, tpu or other."""
    strategy: str = ""
    """Chosen or named strategy; empty if none suits the size."""
    stack: str = ""
    """Software that runs it."""
    global_batch: int = 0
    """Sequences per step."""
    tokens: float = 0.0
    """Token budget."""
    fit: float | None = None
    """Chance to fit into memory, 0 to 1."""
    memory_bytes: float = 0.0
    """Peak memory (worst rank), bytes."""
    infeasible: str | None = None
    """Why it cannot run, or None."""
    price: Price | None = None
    """Price of one GPU for an hour; None if unknown."""
    rate: Amount | None = None
    """Tokens/s of all GPUs while steps run."""
    goodput: Amount | None = None
    """Fraction of the wall time in which steps count; None if failures are left out."""
    checkpoint_interval: float | None = None
    """Training between checkpoints, seconds; None without failures."""
    cost_factor: float = 1.0
    """GPUs paid for over GPUs of the job: above 1 with spares."""
    days: Amount | None = None
    """Wall time, days."""
    usd: Amount | None = None
    """Cost, dollars; None without a price."""
    mwh: Amount | None = None
    """Energy of the facility, MWh; None if power is unknown."""
    tonnes: Amount | None = None
    """Emissions of its electricity, tonnes of CO2."""
    asked: bool = True
    """Whether the size was asked for, and not tried between or beyond those."""
    basis: Basis | None = field(default=None, repr=False, compare=False)
    """What intervals of ratios to other rows depend on."""

    @property
    def feasible(self) -> bool:
        """Whether it can run."""
        return self.infeasible is None

    @property
    def gpu_hours(self) -> float:
        """GPU-hours to pay for; infinite where it cannot run."""
        if self.days is None:
            return math.inf
        return self.days.value * 24.0 * self.accelerators * self.cost_factor

    def objective(self, by: str) -> float:
        """Return the number that an order minimizes; infinite where it is unknown."""
        amounts = {"time": self.days, "cost": self.usd, "energy": self.mwh, "carbon": self.tonnes}
        if by == "tokens":
            return self.gpu_hours
        if by == "memory":
            return self.memory_bytes if self.feasible else math.inf
        amount = amounts[by]
        return math.inf if amount is None else amount.value

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types: amounts as value, `_low` and `_high`."""
        plain: dict[str, Any] = {}
        for name in ("model", "cluster", "accelerators", "strategy", "stack", "global_batch",
                     "tokens", "fit", "memory_bytes", "infeasible", "cost_factor",
                     "asked"):  # fmt: skip
            plain[name] = getattr(self, name)
        for name in ("rate", "goodput", "days", "usd", "mwh", "tonnes"):
            amount: Amount | None = getattr(self, name)
            for key, place in (("", 0), ("_low", 1), ("_high", 2)):
                plain[name + key] = None if amount is None else amount[place]
        price = self.price
        plain["usd_per_gpu_hour"] = None if price is None else price.usd_per_hour
        plain["price_kind"] = None if price is None else price.kind
        plain["price_date"] = None if price is None else price.date
        plain["price_source"] = None if price is None else price.source
        return plain


def row_of(e: Estimate, *, region: Region, asked: bool = True) -> Row:
    """Return an estimate with a token budget as a whole run.

    Args:
        e: The estimate.
        region: Where its electricity comes from.
        asked: Whether its size was asked for.
    """
    count, run = e.cluster.accelerators, e.goodput
    row = Row(
        model=e.model.name,
        cluster=e.cluster.name,
        accelerators=count,
        kind=e.cluster.accelerator.kind,
        strategy=str(e.strategy),
        stack=e.stack.name,
        global_batch=e.workload.global_batch,
        tokens=e.workload.tokens or 0.0,
        fit=e.fit,
        memory_bytes=e.memory_bytes,
        infeasible=e.infeasible,
        price=e.cluster.price,
        asked=asked,
        basis=e.basis,
    )
    if e.days is None or e.days_interval is None or not e.feasible:
        return row
    days = Amount(e.days, *e.days_interval)
    joules = None if e.run_joules is None else days.times(e.run_joules / e.days)
    kg = float(emissions(1.0, region.kg_per_kwh))
    row = replace(
        row,
        rate=Amount(e.tokens_per_second_per_accelerator, e.low, e.high).times(count),
        goodput=None if run is None else Amount(run.fraction, run.low, run.high),
        checkpoint_interval=None if run is None else run.interval,
        cost_factor=1.0 if run is None else run.cost_factor,
        days=days,
        mwh=None if joules is None else joules.times(1e-3 / JOULES_PER_KWH),
        tonnes=None if joules is None else joules.times(1e-3 * kg),
    )
    return priced(row, e.cluster.price)


def priced(row: Row, price: Price | None) -> Row:
    """Return a row at a price."""
    if price is None or row.days is None:
        return replace(row, price=price, usd=None)
    each = dollars(price.usd_per_hour, row.accelerators * row.cost_factor, DAY)
    return replace(row, price=price, usd=row.days.times(float(each)))


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Limits of a run."""

    days: float | None = None
    """Deadline, days."""
    usd: float | None = None
    """Budget, dollars."""
    far_end: bool = True
    """Whether the far end of the interval has to meet them, and not only the prediction."""

    @property
    def any(self) -> bool:
        """Whether there is a limit."""
        return self.days is not None or self.usd is not None

    def excess(self, row: Row) -> dict[str, float]:
        """Return by which factor a row exceeds each limit: 1 just meets it.

        A cost that is unknown exceeds any budget.
        """
        found: dict[str, float] = {}
        for name, limit, amount in (("days", self.days, row.days), ("usd", self.usd, row.usd)):
            if limit is not None:
                reached = math.inf if amount is None else amount.high if self.far_end else (
                    amount.value
                )  # fmt: skip
                found[name] = reached / limit
        return found

    def met(self, row: Row) -> bool:
        """Whether a row can run within all limits."""
        return row.feasible and row.days is not None and all(
            factor <= 1.0 for factor in self.excess(row).values()
        )  # fmt: skip


class BreakEven(NamedTuple):
    """What a cluster without a price may cost."""

    row: Row
    """Its best size."""
    other: Row | None
    """The cheapest alternative; None for the budget."""
    usd_per_hour: Amount
    """Price of one GPU below which the run costs less, dollars per hour. Against an alternative its
    interval is that of the ratio of both throughputs, in which shared errors cancel; against the
    budget the end that has to meet it is the number."""


class Answer(NamedTuple):
    """What the plan says of one model."""

    model: str
    row: Row | None
    """Best row within the limits up to the largest asked size; None if there is none."""
    beyond: Row | None
    """Where there is none: the smallest larger size within the limits."""
    nearest: tuple[Row, ...]
    """Where there is none: rows that exceed the limits least."""


class Ownership(NamedTuple):
    """Owning beside renting, for one row."""

    row: Row
    """The row at the cost of ownership."""
    rent: Price | None
    """What the same costs to rent; None if unknown."""
    utilization: float | None
    """Utilization above which owning costs less; None if it never does or the rent is unknown."""
    purchase: float
    """Purchase per GPU, dollars."""
    source: str
    """Where the purchase price is from."""
    words: str
    """The other inputs, as a phrase."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(Result):
    """Rows of a plan, sorted, with its answer."""

    rows: tuple[Row, ...]
    """Those within the limits first, each part by the order."""
    wanted: Wanted
    by: str
    """Order: an objective of `ORDERS`."""
    answers: tuple[Answer, ...]
    """One for each model."""
    break_evens: tuple[BreakEven, ...]
    """Of clusters without a price."""
    owned: tuple[Ownership, ...] = ()
    """Owning beside renting."""
    region: Region
    notes: tuple[str, ...] = ()
    """What a reader has to know, one sentence each."""
    defaults: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    seq_len: int = 0
    next: str = ""
    """Command that goes on with the answer."""
    file: str = ""
    """The answer as a plan file."""

    @property
    def answer(self) -> Row | None:
        """The answer for the first model; None if nothing is within the limits."""
        return self.answers[0].row if self.answers else None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain types."""

        def plain(row: Row | None) -> Any:
            return None if row is None else row.to_dict()

        return {
            "by": self.by,
            "deadline_days": self.wanted.days,
            "budget_usd": self.wanted.usd,
            "met_by": "far end" if self.wanted.far_end else "prediction",
            "answers": [
                {
                    "model": each.model,
                    "answer": plain(each.row),
                    "beyond": plain(each.beyond),
                    "nearest": [
                        row.to_dict() | {"excess": self.wanted.excess(row)} for row in each.nearest
                    ],
                }
                for each in self.answers
            ],
            "rows": [plain(row) for row in self.rows],
            "break_even": [
                {
                    "cluster": each.row.cluster,
                    "accelerators": each.row.accelerators,
                    "usd_per_gpu_hour": each.usd_per_hour.value,
                    "usd_per_gpu_hour_low": each.usd_per_hour.low,
                    "usd_per_gpu_hour_high": each.usd_per_hour.high,
                    "against": "budget" if each.other is None else each.other.cluster,
                    "against_accelerators": each.other and each.other.accelerators,
                }
                for each in self.break_evens
            ],
            "own": [
                {
                    "cluster": each.row.cluster,
                    "accelerators": each.row.accelerators,
                    "purchase_usd": each.purchase,
                    "purchase_source": each.source,
                    "usd_per_gpu_hour": each.row.price and each.row.price.usd_per_hour,
                    "rent_usd_per_gpu_hour": each.rent and each.rent.usd_per_hour,
                    "break_even_utilization": each.utilization,
                    "inputs": each.words,
                }
                for each in self.owned
            ],
            "region": self.region.name,
            "kg_per_kwh": self.region.kg_per_kwh,
            "carbon_source": self.region.carbon_source,
            "notes": list(self.notes),
            "defaults": list(self.defaults),
            "next": self.next,
        }


def ranked(rows: Sequence[Row], wanted: Wanted, by: str) -> list[Row]:
    """Return rows sorted: within the limits first, then those that can run, each by the order."""

    def key(row: Row) -> tuple[float, ...]:
        return (not wanted.met(row), not row.feasible, row.objective(by), row.gpu_hours,
                row.accelerators)  # fmt: skip

    return sorted(rows, key=key)


def usual_order(rows: Sequence[Row], wanted: Wanted) -> str:
    """Return the order where none is stated.

    Time without limits; with one, cost, or GPU-hours where some cost is unknown.
    """
    if not wanted.any:
        return "time"
    runs = [row for row in rows if row.feasible]
    return "cost" if all(row.usd is not None for row in runs) else "tokens"


def nearest_misses(rows: Sequence[Row], wanted: Wanted) -> list[Row]:
    """Return rows that can run, those that exceed the limits least first."""
    runs = [row for row in rows if row.feasible and row.days is not None and not wanted.met(row)]
    return sorted(runs, key=lambda row: max(wanted.excess(row).values(), default=0.0))[:NEAREST]


def answers(rows: Sequence[Row], wanted: Wanted, largest: int) -> list[Answer]:
    """Return the answer for each model, from sorted rows.

    Args:
        rows: Sorted by `ranked`.
        wanted: Limits.
        largest: Largest size that was asked for; larger ones are no answer, but a hint.
    """
    found = []
    for model in dict.fromkeys(row.model for row in rows):
        mine = [row for row in rows if row.model == model]
        inside = [row for row in mine if row.accelerators <= largest]
        good = [row for row in inside if wanted.met(row)]
        if good:
            found.append(Answer(model, good[0], None, ()))
            continue
        outside = [row for row in mine if row.accelerators > largest and wanted.met(row)]
        more = min(outside, key=lambda row: row.accelerators, default=None)
        runs = [row for row in inside if row.feasible] or ([] if more else mine)
        found.append(Answer(model, None, more, tuple(nearest_misses(runs, wanted))))
    return found


def break_evens(rows: Sequence[Row], wanted: Wanted) -> list[BreakEven]:
    """Return what clusters without a price may cost: against the cheapest alternative and budget.

    Tokens per GPU and second of wall time are compared, so that goodput counts on both sides.
    """
    found: list[BreakEven] = []
    runs = [row for row in rows if row.feasible and row.days is not None]
    soon = replace(wanted, usd=None)
    for name in dict.fromkeys((row.model, row.cluster) for row in runs if row.price is None):
        mine = [row for row in runs if (row.model, row.cluster) == name and row.price is None]
        others = [row for row in runs if row.model == name[0] and row.usd is not None
                  and row.price is not None and row.price.kind != "owned"]  # fmt: skip
        # Those within the limits count, where there are some.
        mine = [row for row in mine if soon.met(row)] or mine
        others = [row for row in others if wanted.met(row)] or others
        row = min(mine, key=lambda row: row.gpu_hours)
        if others:
            other = min(others, key=lambda row: row.objective("cost"))
            assert other.price is not None
            rates = {"rate": 1.0 / row.gpu_hours, "other": 1.0 / other.gpu_hours}
            usd = float(break_even_price(other.price.usd_per_hour, **rates))
            below, above = _ratio_ends(row, other)
            found.append(BreakEven(row, other, Amount(usd, usd * below, usd * above)))
        if wanted.usd is not None and row.days is not None and soon.met(row):
            far = row.days.high if wanted.far_end else row.days.value
            hours = row.gpu_hours * far / row.days.value
            usd = wanted.usd / hours
            found.append(BreakEven(row, None, Amount(usd, usd, usd)))
    return found


def _ratio_ends(row: Row, other: Row) -> tuple[float, float]:
    """Ends of the 80% interval of the ratio of two throughputs, over the ratio."""
    if row.basis is None or other.basis is None:
        return 1.0, 1.0
    low, high = ratio_range(row.basis, other.basis)
    ratio = float(row.basis.rate) / float(other.basis.rate)
    return low / ratio, high / ratio
