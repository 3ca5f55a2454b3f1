"""Sensitivities in a terminal: question, best upgrade, a table sorted by gain, strategy changes.

    print_sensitivities(found, Console())
    lead(found)                     # "Best upgrade: HBM bandwidth, 2 x: +25.0% tok/s, ..."

Computing is `explore.sensitivity`; figures are `report.sensitivity_figure`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from scalewise.ranges import tie_width
from scalewise.report.terminal import (
    can_draw_blocks,
    print_defaults,
    print_title,
    put,
    say,
    table,
)
from scalewise.report.words import bar, gain_interval, title, verdict
from scalewise.units import format_percent

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.defaults import Default
    from scalewise.explore.sensitivity import Sensitivities, Sensitivity
    from scalewise.step.result import Estimate

BAR_LEFT, BAR_RIGHT = 3, 8
"""Characters of the bars below and above zero."""
SPARE = (" ", "e(tok/J)", "e(tok/s)")
"""Columns that a narrow terminal does without, first to last."""
MEANS = {"buy": "hardware", "set": "setting", "build": "software"}
"""What kind of change it is, in one word."""


def signed(fraction: float | None) -> str:
    """Print a gain: "+25.1%", "-" where there is none, and no sign on what rounds to zero."""
    return "-" if fraction is None else format_percent(fraction, sign=True)


def lead(found: Sensitivities) -> str:
    """Return the answer in one or two sentences: the best upgrade, and what needs none."""
    today = found.today
    if found.infeasible is not None:
        return f"{today.strategy} does not fit: {found.infeasible}"
    first = found.first("buy")
    if first is not None and (first.gain or 0.0) > tie_width():
        energy = "" if first.energy_gain is None else f", {signed(first.energy_gain)} tok/J"
        lines = [f"Best upgrade: {first.name}, {first.upgrade}: {_ranged(first)} tok/s{energy}."]
    else:
        lines = [f"No upgrade gains more than a tie ({format_percent(tie_width())} tok/s)."]
    if found.given is not None and found.given.feasible:
        gain = _gain(today, found.given)
        if gain is not None:
            lines.append(f"{today.strategy} gains {gain} on today's hardware; upgrades add to it.")
    elif found.best is not None:
        gain = _gain(found.best, today)
        if gain is not None:
            lines.append(f"{found.best.strategy} gains {gain} on today's hardware.")
    switch = found.first("set")
    if switch is not None and (switch.gain or 0.0) > tie_width():
        lines.append(f"Setting: {switch.name}, {switch.upgrade}: {_ranged(switch)} tok/s.")
    return " ".join(lines)


def _ranged(row: Sensitivity) -> str:
    """Print a gain with its interval: "+25.1% [+19% to +31%]"."""
    if row.gain_low is None or row.gain_high is None:
        return signed(row.gain)
    return f"{signed(row.gain)} {gain_interval(row.gain_low, row.gain_high)}"


def _gain(better: Estimate, worse: Estimate) -> str | None:
    """Return what another strategy gains, if it is more than a tie."""
    gain = better.tokens_per_second / worse.tokens_per_second - 1.0
    return signed(gain) if gain > tie_width() else None


def print_sensitivities(
    found: Sensitivities,
    console: Console,
    *,
    defaults: Sequence[Default] = (),
    changes: Sequence[str] = (),
    notes: Sequence[str] = (),
) -> None:
    """Print sensitivities.

    Args:
        found: What was found.
        console: Where to.
        defaults: What was chosen for the user.
        changes: What-if changes.
        notes: What looks odd about the question.
    """
    print_title(console, title(found.today), changes)
    if found.infeasible is not None:
        put(console, verdict(found.today) or lead(found), hang=2, style="bold red")
        say(console, "Fits with", *_fits(found))
    else:
        put(console, lead(found), hang=2, style="bold")
        console.print()
        _print_table(found, console)
        console.print()
        say(console, "No effect", *_idle(found))
        say(console, "Best strategy then", *_moves(found))
        put(console, _legend(found), style="dim")
    print_defaults(console, defaults)
    say(console, "Note", *notes, *found.today.warnings, style="yellow")


def _fits(found: Sensitivities) -> list[str]:
    """Return what makes it fit: hardware, then strategies."""
    bought = [
        f"{row.name}, {row.upgrade}: {row.strategy}"
        for row in found.rows
        if row.strategy is not None and not row.gain
    ]
    return [*bought, *found.fits]


def _idle(found: Sensitivities) -> list[str]:
    """Return changes without a number, by reason."""
    reasons: dict[str, list[str]] = {}
    for row in found.rows:
        if row.gain is None:
            reasons.setdefault(row.note, []).append(row.name)
    return [f"{', '.join(names)}: {reason}" for reason, names in reasons.items()]


def _moves(found: Sensitivities) -> list[str]:
    """Return the best strategy after each change, where it is another one."""
    if not found.reoptimized:
        return []
    moved = [f"{row.name}, {row.upgrade}: {row.strategy}" for row in found.rows if row.moves]
    return moved or [f"{found.today.strategy}, within a tie of the best after every change"]


def _legend(found: Sensitivities) -> str:
    """Return how to read the table."""
    strategy = (
        "found again after every change"
        if found.reoptimized
        else "unchanged (--reoptimize finds it again after every change)"
    )
    return (
        "e: elasticity, percent of tok/s or tok/J per percent of the quantity; - for a setting, or "
        "next to a switching point. tok/$ changes as tok/s at the same price. "
        f"*: needs software that does not exist yet. Gains below {format_percent(tie_width())} are "
        f"a tie. Strategy: {strategy}."
    )


def _print_table(found: Sensitivities, console: Console) -> None:
    """Print one row per change, the largest gain first."""
    rows = [row for row in found.rows if row.gain is not None]
    largest = max((abs(row.gain or 0.0) for row in rows), default=0.0) or 1.0
    blocks = can_draw_blocks(console)
    table(
        console,
        ("change", "to", " ", "tok/s", "tok/J", "e(tok/s)", "e(tok/J)"),
        [
            (
                row.name + (" *" if row.means == "build" else ""),
                row.upgrade,
                _bar(row.gain or 0.0, largest, blocks=blocks),
                signed(row.gain),
                signed(row.energy_gain),
                _slope(row.elasticity),
                _slope(row.energy_elasticity),
            )
            for row in rows
        ],
        left=3,
        spare=SPARE,
    )


def _slope(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if abs(value) >= 0.005 else "0.00"


def _bar(gain: float, largest: float, *, blocks: bool) -> str:
    """Draw a bar to the right of an axis, or to the left of it for a loss."""
    fraction = abs(gain) / largest
    full = "\u2588" if blocks else "#"
    left = full * max(round(fraction * BAR_LEFT), 1) if gain < -0.0005 else ""
    right = bar(fraction, BAR_RIGHT, blocks=blocks) if gain > 0.0005 else ""
    return f"{left.rjust(BAR_LEFT)}|{right}"
