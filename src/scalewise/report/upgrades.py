"""How do upgrades read? One sentence, a table with bars, and where the strategy would move.

    print_sensitivities(found, Console())
    lead(found)                     # "The next thing to buy: ..."
    sensitivities_csv(found)        # one line per change

Computing is `explore.sensitivity`; pictures are `report.tornado`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from scalewise.errors import require
from scalewise.report.tables import INDENT, can_draw_blocks, sentences
from scalewise.report.words import bar, title
from scalewise.step.estimate import NEAR_TIE

if TYPE_CHECKING:
    from scalewise.explore.sensitivity import Sensitivities
    from scalewise.step.result import Estimate

BAR_LEFT, BAR_RIGHT = 3, 8
"""Characters of the bars below and above zero."""
WIDE, MIDDLE = 100, 90
"""Columns from which bars are drawn, and from which the elasticity of energy has its place."""
NUMBERS = (
    "elasticity", "energy_elasticity", "cost_elasticity", "gain", "energy_gain", "cost_gain",
)  # fmt: skip
"""Columns that hold shares, or nothing."""
MEANS = {"buy": "buy", "set": "switch", "build": "software"}
"""How a change is got, in one word."""


def signed(share: float | None) -> str:
    """Print a gain: "+25.1 %", "-" where there is none, and no sign on what rounds to zero."""
    if share is None:
        return "-"
    text = f"{100 * share:+.1f} %"
    return "0.0 %" if text in ("+0.0 %", "-0.0 %") else text


def lead(found: Sensitivities) -> str:
    """The answer in a sentence or two: what to buy next, and what is to be had without."""
    today = found.today
    if found.infeasible is not None:
        return f"Nothing to speed up yet: {today.strategy} does not fit. {found.infeasible}"
    told = []
    first = found.first("buy")
    if first is not None and (first.gain or 0.0) > NEAR_TIE:
        energy = "" if first.energy_gain is None else f", {signed(first.energy_gain)} tokens/J"
        told.append(
            f"The next thing to buy: {first.name}, {first.upgrade}: "
            f"{signed(first.gain)} tokens/s{energy}."
        )
    else:
        told.append(
            f"The next thing to buy: nothing. No upgrade here brings more than "
            f"{100 * NEAR_TIE:.1f} % tokens/s."
        )
    if found.given is not None and found.given.feasible:
        free = _free(today, found.given)
        if free is not None:
            told.append(f"These gains come on top of {free} of {today.strategy} today.")
    elif found.best is not None and _free(found.best, today) is not None:
        told.append(
            f"Before buying anything: {found.best.strategy} on the same cluster brings "
            f"{_free(found.best, today)}."
        )
    switch = found.first("set")
    if switch is not None and (switch.gain or 0.0) > NEAR_TIE:
        told.append(f"Without buying: {switch.name}, {switch.upgrade}: {signed(switch.gain)}.")
    return " ".join(told)


def _free(better: Estimate, worse: Estimate) -> str | None:
    """What another strategy brings, if it is more than a near-tie."""
    share = better.tokens_per_second / worse.tokens_per_second - 1.0
    return signed(share) if share > NEAR_TIE else None


def print_sensitivities(
    found: Sensitivities, console: Console, *, chosen: Sequence[str] = ()
) -> None:
    """Print everything a reader needs about upgrades.

    Args:
        found: What to tell.
        console: Where to.
        chosen: What was chosen for the user.
    """
    console.print(Text(title(found.today), style="bold"))
    console.print(Text(lead(found), style="bold red" if found.infeasible else "bold green"))
    if found.infeasible is not None:
        sentences(console, "What would make it fit", _fits(found))
    else:
        console.print()
        console.print(Padding(_table(found, console), (0, 0, 0, INDENT)))
        sentences(console, "What changes nothing here", _idle(found))
        sentences(console, "Where the strategy would move", _moves(found))
        console.print()
        console.print(Padding(Text(_legend(found), style="dim"), (0, 0, 0, INDENT)))
    sentences(console, "Chosen for you", [*chosen, *found.today.defaults])
    sentences(console, "Warnings", found.today.warnings, style="yellow")


def _fits(found: Sensitivities) -> list[str]:
    """What would make it fit: by hardware, then by strategy."""
    bought = [
        f"{row.name}, {row.upgrade}: {row.strategy} fits then"
        for row in found.rows
        if row.strategy is not None and not row.gain
    ]
    return [*bought, *found.fits]


def _idle(found: Sensitivities) -> list[str]:
    """Changes without a number, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if row.gain is None:
            reasons.setdefault(row.note, []).append(row.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


def _moves(found: Sensitivities) -> list[str]:
    """What the best strategy would be after each change."""
    if not found.reoptimised:
        return []
    moved = [f"{row.name}, {row.upgrade}: {row.strategy}" for row in found.rows if row.moves]
    return moved or [f"nowhere: {found.today.strategy} stays within a near-tie of the best"]


def _legend(found: Sensitivities) -> str:
    """How to read the table."""
    strategy = (
        "the best one, found again after every change"
        if found.reoptimised
        else "the same throughout (--reoptimise finds the best one after every change)"
    )
    return (
        "per 1 %: per cent of tokens/s and of tokens/J for one per cent of the quantity, here and "
        "now; - where it is a switch, or next to one. tokens/$ moves with tokens/s as long as the "
        "rent stays: a gain is what an upgrade may add to the rent before it stops paying. "
        "* needs software that no common library has. "
        f"Gains below {100 * NEAR_TIE:.1f} % are within what repeats of a run differ by. "
        f"Strategy: {strategy}."
    )


def _table(found: Sensitivities, console: Console) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    drawn = console.width >= WIDE
    for name in ("change", "to"):
        table.add_column(name, no_wrap=True)
    for name in ("tokens/s", "tokens/J"):
        table.add_column(name, justify="right", no_wrap=True)
    if drawn:
        table.add_column("tokens/s", no_wrap=True)
    slopes = ("elasticity", "energy_elasticity") if console.width >= MIDDLE else ("elasticity",)
    for _ in slopes:
        table.add_column("per 1 %", justify="right", no_wrap=True)
    rows = [row for row in found.rows if row.gain is not None]
    largest = max((abs(row.gain or 0.0) for row in rows), default=0.0) or 1.0
    blocks = can_draw_blocks(console)
    for row in rows:
        star = " *" if row.means == "build" else ""
        cells: list[str | Text] = [row.name + star, row.upgrade]
        cells += [signed(row.gain), signed(row.energy_gain)]
        if drawn:
            cells.append(_bar(row.gain or 0.0, largest, blocks=blocks))
        cells += [_slope(getattr(row, name)) for name in slopes]
        table.add_row(*cells)
    return table


def _slope(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) >= 0.005 else "0.00"


def _bar(gain: float, largest: float, *, blocks: bool) -> Text:
    """A bar to the right of an axis, or to the left of it where something is lost."""
    share = abs(gain) / largest
    full = "\u2588" if blocks else "#"
    left = full * max(round(share * BAR_LEFT), 1) if gain < -0.0005 else ""
    right = bar(share, BAR_RIGHT, blocks=blocks) if gain > 0.0005 else ""
    text = Text(left.rjust(BAR_LEFT), style="red")
    text.append("|", style="dim not red")
    text.append(right, style="blue not red")
    return text


def table_rows(found: Sensitivities) -> list[dict[str, Any]]:
    """One dictionary per change, with what identifies the question: the rows of CSV and Parquet."""
    today = found.today
    same = {
        "model": today.model.name,
        "cluster": today.cluster.name,
        "accelerators": today.cluster.accelerators,
        "today": str(today.strategy),
        "reoptimised": found.reoptimised,
    }
    return [same | msgspec.to_builtins(row) for row in found.rows]


def sensitivities_csv(found: Sensitivities) -> str:
    """One line per change; shares from 0 to 1, blank where there is no number."""
    page = io.StringIO()
    rows = table_rows(found)
    writer = csv.DictWriter(page, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return page.getvalue()


def write_parquet(found: Sensitivities, path: str) -> None:
    """Write the rows of the CSV as Parquet, with types.

    Raises:
        MissingExtraError: If polars is not installed (the extra `data`).
    """
    polars: Any = require("polars", "data")
    # Named, because a column of blanks alone would have no type.
    kinds = {name: polars.Float64 for name in NUMBERS}
    polars.DataFrame(table_rows(found), schema_overrides=kinds).write_parquet(path)
