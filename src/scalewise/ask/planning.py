"""The question of a plan: models, clusters and sizes, a token budget, a deadline and a budget.

    found = planning(Question(model="llama-3-70b", on="dgx-h100,gb200-nvl72", gpus="256,512",
                              tokens="2T", deadline="21d"))
    found.answer, found.rows

Every row is the estimate of the same words at one size. Where a limit is given, sizes between and
beyond the asked ones are tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec

from scalewise.ask.defaults import Default, default_tokens
from scalewise.ask.limits import days_of, dollars_of
from scalewise.ask.owning import Own, parse_own
from scalewise.ask.question import Question
from scalewise.ask.resolve import Asked, Objects, inputs, resolve
from scalewise.ask.state import command, to_toml
from scalewise.catalog.regions import DEFAULT_REGION, load_region
from scalewise.errors import InputError, did_you_mean
from scalewise.explore.between import between, beyond
from scalewise.explore.plan import (
    ORDERS,
    Ownership,
    Plan,
    Row,
    Wanted,
    answers,
    break_evens,
    priced,
    ranked,
    row_of,
    usual_order,
)
from scalewise.explore.sizes import MAX_GPUS, parse_sizes
from scalewise.price import Price, mixed_kinds

if TYPE_CHECKING:
    from scalewise.region import Region

SIZES = "64..1024"
"""Sizes where none are named."""

HELPFUL = (1, 2, 4, 8)
"""Model-parallel degrees for which a batch that helps is looked for."""


def planning(
    question: Question,
    *,
    by: str | None = None,
    far_end: bool = True,
    objects: Objects | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Plan:
    """Compare models, clusters and sizes.

    Args:
        question: With lists in `model` and `on`, and sizes in `gpus`.
        by: Order of the rows; None for time, or with a limit for cost.
        far_end: Whether limits are met by the far end of the 80% interval, or by the prediction.
        objects: What is at hand instead of a name.
        progress: Called with the pairs of model and cluster that are done, and all there are; may
            raise to stop.

    Raises:
        InputError: If a word is not understood.
    """
    if by is not None and by not in ORDERS:
        raise InputError(f"unknown order {by}", hint=did_you_mean(by, ORDERS), field="by")
    # At one size cost follows time, and carbon energy; a layout needs no price.
    wanted = by or question.by
    layout = {"cost": "time", "carbon": "energy"}.get(wanted, wanted)
    question = msgspec.structs.replace(question, by=layout)
    planner = _Planner(question, objects or Objects(), far_end=far_end)
    for place, name in enumerate(planner.pairs):
        if progress is not None:
            planner.look = partial(progress, place, len(planner.pairs))
        planner.fill(name)
    return planner.plan(by or (wanted if wanted != "time" else None))


@dataclass
class _Line:
    """One model on one cluster: its rows by size, and what the batch prevents."""

    rows: dict[int, Row] = field(default_factory=dict)
    asked: dict[int, Asked] = field(default_factory=dict)
    prevented: dict[int, str] = field(default_factory=dict)
    """Sizes that no strategy suits with this batch, with the reason."""


def _nothing() -> None:
    """Where nobody looks at the progress."""


class _Planner:
    """A plan on its way."""

    def __init__(self, question: Question, objects: Objects, *, far_end: bool) -> None:
        self.question, self.objects = question, objects
        self.sizes = parse_sizes(str(question.gpus or SIZES))
        self.region: Region = load_region(question.region or DEFAULT_REGION)
        self.own: Own | None = None if question.own is None else parse_own(question.own)
        self.wanted = Wanted(
            days=None if question.deadline is None else days_of(question.deadline),
            usd=None if question.budget is None else dollars_of(question.budget),
            far_end=far_end,
        )
        self.defaults: dict[str, Default] = {}
        self.changes: tuple[str, ...] = ()
        self.seq_len = 0
        self.pairs = [
            (model.strip(), on.strip())
            for model in question.model.split(",")
            for on in question.on.split(",")
        ]
        if len(set(self.pairs)) < len(self.pairs):
            raise InputError("a model or cluster is given twice", hint="give it once")
        self.lines: dict[tuple[str, str], _Line] = {name: _Line() for name in self.pairs}
        self.notes: list[str] = []
        self.error: InputError | None = None
        self.look: Callable[[], None] = _nothing
        if question.gpus is None:
            self.defaults["--gpus"] = Default(flag="--gpus", value=SIZES, why="usual sizes")
        if question.region is None:
            self.defaults["--region"] = Default(
                flag="--region", value=DEFAULT_REGION,
                why=f"{1e3 * self.region.kg_per_kwh:.0f} g/kWh in {self.region.carbon_year}",
            )  # fmt: skip

    def words(self, name: tuple[str, str], size: int, **more: Any) -> Question:
        """The question of one size."""
        model, on = name
        words = msgspec.structs.replace(self.question, model=model, on=on, gpus=size, **more)
        if words.tokens is None:
            found = inputs(msgspec.structs.replace(words, strategy=None), self.objects)
            tokens, default = default_tokens(found.model)
            self.defaults.setdefault("--tokens", default)
            words = msgspec.structs.replace(words, tokens=tokens)
        return words

    def row(self, name: tuple[str, str], size: int, *, asked: bool) -> Row | None:
        """The row of one size; None where the batch prevents it."""
        line = self.lines[name]
        if size in line.rows:
            return line.rows[size]
        if size in line.prevented:
            return None
        self.look()
        try:
            found = resolve(self.words(name, size), self.objects)
            e = found.estimate()
        except InputError as error:
            # What is wrong at every size is an error, and not a size without a strategy.
            inputs(self.words(name, size, strategy=None), self.objects)
            line.prevented[size] = str(error)
            self.error = self.error or error
            return None
        self.seq_len = found.workload.seq_len
        self.changes = found.changes
        for each in found.defaults:
            if each.flag == "--batch":
                each = Default(flag="--batch", value="4Mtok", why="about, at each size")
            if each.flag not in ("--strategy", "--stack", "--gpus"):
                self.defaults.setdefault(each.flag, each)
        line.asked[size] = found
        row = row_of(e, region=self.region, asked=asked)
        line.rows[size] = row
        return row

    def fill(self, name: tuple[str, str]) -> None:
        """Rows of the asked sizes; with limits, or where none fits, of those between and beyond."""
        for size in self.sizes:
            self.row(name, size, asked=True)
        rows = self.lines[name].rows
        if not rows or (not self.wanted.any and any(row.feasible for row in rows.values())):
            return
        if not any(map(self.met, rows.values())):
            self.grow(name)
        self.refine(name)
        self.refine(name)

    def met(self, row: Row) -> bool:
        """Whether a row is within the limits, as far as its cost is known."""
        wanted = replace(self.wanted, usd=None) if row.usd is None else self.wanted
        return wanted.met(row)

    def refine(self, name: tuple[str, str]) -> None:
        """Try sizes between two of which one is within the limits."""
        line = self.lines[name]
        known = sorted(line.rows)
        node = next(iter(line.asked.values())).cluster.scale_up_domain
        for small, large in pairwise(known):
            if self.met(line.rows[small]) != self.met(line.rows[large]):
                for size in between(small, large, node):
                    self.row(name, size, asked=False)

    def grow(self, name: tuple[str, str]) -> None:
        """Try larger sizes, as long as the deadline is missed and the budget is not."""
        soon, cheap = replace(self.wanted, usd=None), replace(self.wanted, days=None)
        for size in beyond(self.sizes[-1]):
            last = self.lines[name].rows.get(max(self.lines[name].rows))
            if size > MAX_GPUS or last is None or soon.met(last):
                break
            if last.usd is not None and not cheap.met(last):
                break
            if self.row(name, size, asked=False) is None:
                break

    def plan(self, by: str | None) -> Plan:
        """Sort what was found, and name the answer."""
        rows = [row for line in self.lines.values() for row in line.rows.values()]
        owned: list[Ownership] = []
        if self.own is not None:
            owned = self.owned()
            rows += [each.row for each in owned]
        order = by or usual_order(rows, self.wanted)
        rows = ranked(rows, self.wanted, order)
        found = answers(rows, self.wanted, self.sizes[-1])
        self.batches()
        self.kinds(rows, order)
        chosen = found[0].row or found[0].beyond if found else None
        asked = None if chosen is None else self.asked_of(chosen)
        return Plan(
            rows=tuple(rows),
            wanted=self.wanted,
            by=order,
            answers=tuple(found),
            break_evens=tuple(break_evens(rows, self.wanted)),
            owned=tuple(owned),
            region=self.region,
            notes=tuple(self.notes),
            defaults=tuple(str(each) for each in self.defaults.values()),
            changes=self.changes,
            seq_len=self.seq_len,
            next="" if asked is None else command(self.answered(asked)),
            file="" if asked is None or found[0].row is None else to_toml(self.answered(asked)),
        )

    def asked_of(self, row: Row) -> Asked | None:
        """The inputs of a row."""
        for line in self.lines.values():
            mine = line.rows.get(row.accelerators)
            if mine is not None and (mine.model, mine.cluster) == (row.model, row.cluster):
                return line.asked[row.accelerators]
        return None

    def answered(self, asked: Asked) -> Question:
        """The question of the answer: what was said, and what has to be kept of what was chosen."""
        said, found = self.question, asked.question
        return msgspec.structs.replace(
            said,
            model=found.model,
            on=found.on,
            gpus=found.gpus,
            strategy=found.strategy,
            seq=found.seq,
            batch=found.batch,
            tokens=found.tokens,
        )

    def owned(self) -> list[Ownership]:
        """Owning beside renting, for the asked sizes of every line."""
        assert self.own is not None
        found: list[Ownership] = []
        for line in self.lines.values():
            for size, row in sorted(line.rows.items()):
                if not row.feasible or row.days is None:
                    continue
                cluster = line.asked[size].cluster
                watts = None
                if row.mwh is not None:
                    watts = row.mwh.value * 1e6 / (row.days.value * 24.0 * size)
                mine = self.own.of(cluster, watts, self.region)
                price = Price(usd_per_hour=mine.usd_per_hour, kind="owned", source=mine.source)
                rent = row.price
                share = None if rent is None else mine.utilization(rent.usd_per_hour)
                at = priced(row, price)
                found.append(Ownership(at, rent, share, mine.purchase, mine.source, mine.words))
        return found

    def batches(self) -> None:
        """Say which sizes the batch prevents, and what batch would help."""
        found: dict[str, list[str]] = {}
        for name, line in self.lines.items():
            asked = [size for size in line.prevented if size in self.sizes]
            if not asked and not (self.question.batch is not None and line.prevented):
                continue
            sizes = asked or sorted(line.prevented)
            shown = ", ".join(f"{size:,}" for size in sizes[:6])
            helpful = self.helpful(name, sizes[0])
            more = "" if helpful is None else f"; --batch {helpful} suits {sizes[0]:,}"
            text = f"not tried: {shown} GPUs: {line.prevented[sizes[0]]}{more}"
            found.setdefault(text, []).append(f"{name[0]} on {name[1]}")
        for text, where in found.items():
            on = "" if len(where) == len(self.pairs) else f"{', '.join(where)}: "
            self.notes.append(on + text)
        if self.error is not None and not any(line.rows for line in self.lines.values()):
            raise self.error

    def helpful(self, name: tuple[str, str], size: int) -> int | None:
        """The batch nearest to the stated one that some strategy suits at a size."""
        if self.question.batch is None:
            return None
        batch = inputs(self.words(name, self.sizes[0], strategy=None), self.objects).workload
        wanted = batch.global_batch
        multiples = [size // degree for degree in HELPFUL if size % degree == 0]
        tries = {max(round(wanted / each), 1) * each for each in multiples}
        for each in sorted(tries - {wanted}, key=lambda value: abs(value - wanted)):
            try:
                if resolve(self.words(name, size, batch=each), self.objects).estimate().feasible:
                    return each
            except InputError:
                continue
        return None

    def kinds(self, rows: list[Row], order: str) -> None:
        """Say where costs of different kinds of price stand in one table."""
        # What is owned is named in its row, and compared in a sentence of its own.
        rented = [
            (row.cluster, row.price)
            for row in rows
            if row.usd is not None and row.price is not None and row.price.kind != "owned"
        ]
        if found := mixed_kinds(rented):
            ranks = "the order by cost" if order == "cost" else "the costs"
            self.notes.append(
                f"different kinds of price in {ranks}: {found}; they are not comparable, --price "
                "sets one for all"
            )


__all__ = ["SIZES", "planning"]
