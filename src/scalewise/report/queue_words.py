"""Sentences about a queue of runs.

lead(found)     # "4 runs on 512x dgx-h100 end on 2027-03-05 [2027-02-16 - 2027-03-18]: ..."
"""

from __future__ import annotations

from scalewise.explore.queue import Calendar, Queue
from scalewise.report.plan_words import amount_range
from scalewise.report.words import counted
from scalewise.units import format_percent, grouped, short_dollars


def lead(found: Queue) -> str:
    """Return when the queue ends, and what it costs, in one sentence."""
    calendar = found.calendar
    days = calendar.days
    text = (
        f"{counted(len(calendar.runs), 'run')} on {calendar.accelerators:,}x {found.cluster} end "
        f"on {found.day(days.value)} [{found.day(days.low)} to {found.day(days.high)}]: "
        f"{grouped(days.value)} days {amount_range(days)}"
    )
    return f"{text}, {totals(calendar)}."


def totals(calendar: Calendar) -> str:
    """Return cost, energy, emissions and utilization of a calendar."""
    parts = []
    if calendar.usd is not None:
        parts.append(
            f"{short_dollars(calendar.usd.value)} {amount_range(calendar.usd, usd=True)} for the "
            "GPU-hours of the runs"
        )
    if calendar.held_usd is not None:
        parts.append(f"{short_dollars(calendar.held_usd)} for all of the cluster until the end")
    if calendar.mwh is not None and calendar.tonnes is not None:
        parts.append(f"{grouped(calendar.mwh.value)} MWh, {grouped(calendar.tonnes.value)} t CO2")
    parts.append(f"{format_percent(calendar.utilization, decimals=0)} of the GPUs in use")
    return ", ".join(parts)


def other_lines(found: Queue) -> list[str]:
    """Return what other sizes of the cluster would change, one sentence each."""
    base = found.calendar.days.value
    lines = []
    for each in found.others:
        change = format_percent(each.days.value / base - 1.0, sign=True, decimals=0)
        text = f"{each.accelerators:,} GPUs: {grouped(each.days.value)} days ({change})"
        lines.append(f"{text}, {totals(each)}")
    return lines
