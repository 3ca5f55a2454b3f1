"""Sentences about a plan: the answer, misses, break-even prices, ownership.

    answer_lines(found)     # ["Lowest cost within 21 days: 256x dgx-h100, 17.1 days [...], ..."]

`explore.plan` computes; terminal, pages and notebooks take their words from here.
"""

from __future__ import annotations

import math
import shlex

from scalewise.explore.plan import Amount, Answer, Plan, Row, Wanted
from scalewise.frameworks.facts import target_of
from scalewise.report.goodput_words import goodput_words
from scalewise.report.words import chance, counted, device_word, interval
from scalewise.units import format_count, format_dollars, format_percent, grouped, short_dollars

BEST = {
    "time": "Fastest",
    "tokens": "Fewest GPU-hours",
    "cost": "Lowest cost",
    "energy": "Lowest energy",
    "carbon": "Lowest emissions",
    "memory": "Least memory",
}
"""What the first row of an order is."""

LIMITS = {"days": "deadline", "usd": "budget"}


def title(found: Plan) -> str:
    """Return what was asked, in one line."""

    def joined(field: str) -> str:
        return ", ".join(dict.fromkeys(str(getattr(row, field)) for row in found.rows))

    asked = sorted({row.accelerators for row in found.rows if row.asked})
    word = word_of(found.rows[0])
    sizes = f"{asked[0]:,}-{asked[-1]:,} {word}s" if len(asked) > 1 else counted(asked[0], word)
    tokens = ", ".join(dict.fromkeys(format_count(row.tokens) for row in found.rows))
    parts = [
        joined("model"), joined("cluster"), sizes,
        f"{tokens} tokens",
    ]  # fmt: skip
    if found.wanted.any:
        limits = limits_words(found.wanted).split(" and ")
        names = [LIMITS[name] for name in found.wanted.excess(found.rows[0])]
        parts.append(", ".join(f"{n} {v}" for n, v in zip(names, limits, strict=True)))
    return " | ".join(parts)


def word_of(row: Row) -> str:
    """Return what one accelerator is called."""
    return device_word(row.kind)


def limits_words(wanted: Wanted) -> str:
    """Return the limits: "21 days and $1.50M"."""
    parts = []
    if wanted.days is not None:
        parts.append(f"{wanted.days:.3g} {'day' if wanted.days == 1.0 else 'days'}")
    if wanted.usd is not None:
        parts.append(short_dollars(wanted.usd))
    return " and ".join(parts)


def size_words(row: Row) -> str:
    """Return size and cluster, and whether it is owned: "256x dgx-h100, owned"."""
    owned = ", owned" if row.price is not None and row.price.kind == "owned" else ""
    return f"{row.accelerators:,}x {row.cluster}{owned}"


def amount_range(amount: Amount, *, usd: bool = False) -> str:
    """Return an interval: "[12.2-20.7]", "[$221k-$375k]"."""
    if usd:
        return f"[{short_dollars(amount.low)}-{short_dollars(amount.high)}]"
    return interval(amount.low, amount.high)


def run_words(row: Row) -> str:
    """Return days, cost, strategy and chance to fit of a row."""
    if row.days is None:
        return row.infeasible or "cannot run"
    parts = [f"{grouped(row.days.value)} days {amount_range(row.days)}"]
    if row.usd is not None and row.price is not None:
        price = f"at {format_dollars(row.price.usd_per_hour)}/{word_of(row)}-h ({row.price.words})"
        parts.append(f"{short_dollars(row.usd.value)} {amount_range(row.usd, usd=True)} {price}")
    parts.append(row.strategy)
    if row.fit is not None:
        parts.append(f"{chance(row.fit)} chance to fit")
    return ", ".join(parts)


def answer_lines(found: Plan) -> list[str]:
    """Return one sentence per model."""
    return [_answer(each, found) for each in found.answers]


def _answer(answer: Answer, found: Plan) -> str:
    name = f"{answer.model}: " if len(found.answers) > 1 else ""
    within = f" within {limits_words(found.wanted)}" if found.wanted.any else ""
    if answer.row is not None:
        return f"{name}{BEST[found.by]}{within}: {size_words(answer.row)}, {run_words(answer.row)}."
    asked = max(row.accelerators for row in found.rows if row.asked)
    runs = [row for row in found.rows if row.model == answer.model and row.feasible]
    if not any(row.accelerators <= asked for row in runs):
        text = f"{name}No size up to {asked:,} fits."
    else:
        judged = "far end of the 80% interval" if found.wanted.far_end else "prediction"
        text = f"{name}No size up to {asked:,} stays{within} ({judged})."
    if answer.nearest:
        row = answer.nearest[0]
        text += f" Nearest: {size_words(row)}, {run_words(row)}: {miss_words(row, found)}."
    if answer.beyond is not None:
        text += f" Enough: {size_words(answer.beyond)}, {run_words(answer.beyond)}."
    return text


def miss_words(row: Row, found: Plan) -> str:
    """Return by how much a row exceeds the limits: "2.49x the deadline"."""
    parts = []
    for name, factor in found.wanted.excess(row).items():
        if math.isinf(factor):
            parts.append(f"{LIMITS[name]} unknown: no price")
        elif factor > 1.0:
            parts.append(f"{factor:.2f}x the {LIMITS[name]}")
    return ", ".join(parts) or "meets"


def nearest_lines(found: Plan) -> list[str]:
    """Return the other nearest misses, one phrase each."""
    return [
        f"{row.model} on {size_words(row)}: {miss_words(row, found)}"
        for answer in found.answers
        for row in answer.nearest[1:]
    ]


def break_even_lines(found: Plan) -> list[str]:
    """Return what clusters without a price may cost, one sentence each."""
    lines = []
    for each in found.break_evens:
        row, other, usd = each.row, each.other, each.usd_per_hour
        name = f"{row.model}: " if len(found.answers) > 1 else ""
        what = f"{name}{size_words(row)} (price unknown)"
        ends = f" [{format_dollars(usd.low)}-{format_dollars(usd.high)}]"
        ends = ends if usd.low < usd.high else ""
        below = f"below {format_dollars(usd.value)}/{word_of(row)}-h{ends}"
        if other is None:
            lines.append(f"{what} stays within the budget {below}.")
            continue
        assert other.price is not None
        lines.append(f"{what} costs less than {size_words(other)} ({other.price.words}) {below}.")
    return lines


def own_lines(found: Plan) -> list[str]:
    """Return owning beside renting, one sentence for each cluster."""
    lines: dict[str, str] = {}
    for each in found.owned:
        row, price = each.row, each.row.price
        assert price is not None
        word = word_of(row)
        text = f"{row.cluster}: {format_dollars(price.usd_per_hour)}/{word}-h to own"
        if each.rent is None:
            text += ", rent unknown"
        else:
            rent = f"{format_dollars(each.rent.usd_per_hour)} to rent ({each.rent.words})"
            text += f", {rent}; "
            text += (
                "owning never costs less"
                if each.utilization is None
                else f"owning costs less above {format_percent(each.utilization, decimals=0)} "
                "utilization"
            )
        text += f". Purchase {format_dollars(each.purchase)}/{word} ({_short(each.source)}), "
        lines.setdefault(row.cluster, text + each.words + ".")
    return list(lines.values())


def _short(source: str) -> str:
    """Return the date of a source, or the word it is."""
    return " ".join(source.partition(":")[0].split())


def goodput_lines(found: Plan) -> list[str]:
    """Return the goodput of the answers, apart from their steps; empty where it is off."""
    lines = []
    for answer in found.answers:
        row = answer.row or answer.beyond or (answer.nearest[0] if answer.nearest else None)
        if row is None or row.goodput is None or row.days is None:
            continue
        name = f"{answer.model} on " if len(found.answers) > 1 else ""
        g, steps = row.goodput, row.days.value * row.goodput.value
        text = goodput_words(g.value, g.low, g.high, row.checkpoint_interval)
        lines.append(
            f"{name}{size_words(row)}: {text.removeprefix('goodput ')}; {grouped(steps)} days of "
            f"steps in {grouped(row.days.value)} days of wall time"
        )
    return lines


def next_line(found: Plan, file: str | None = None) -> str:
    """Return the command that goes on with the answer: its export, or its estimate.

    Args:
        found: The plan.
        file: Plan file that the answer was written to.
    """
    row = found.answer
    target = None
    if found.file and row is not None and len(found.answers) == 1:
        target = target_of(row.stack)
    if target is None:
        return found.next
    command = f"scalewise export {shlex.quote(file or 'plan.toml')} --to {target}"
    return command if file else f"-o plan.toml, then {command}"


def carbon_line(found: Plan) -> str:
    """Return where the emissions come from."""
    region = found.region
    source = (
        " ".join(region.carbon_source.split()).partition(", as published")[0].partition(": ")[0]
    )
    return (
        f"Emissions: {1e3 * region.kg_per_kwh:.0f} g/kWh, {region.name} {region.carbon_year} "
        f"({source})"
    )
