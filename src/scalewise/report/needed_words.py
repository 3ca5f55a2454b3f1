"""Sentences about how many GPUs a run needs.

needed_lines(curves, days=30.0, fit=0.9)
# ["128 GPUs train 2.00T tokens within 30 days: fsdp128-mb1, 23.5 days [15.1-28.8], $208k, ..."]

`explore.needed` finds the size.
"""

from __future__ import annotations

from scalewise.explore.needed import Needed, smallest
from scalewise.explore.points import Curves, Point
from scalewise.report import scale_words as words
from scalewise.report.goodput_words import of_point
from scalewise.report.words import chance
from scalewise.units import GIB, format_count, format_dollars, grouped


def needed(curves: Curves, *, days: float | None = None, fit: float = 0.0) -> list[Needed]:
    """Return what each curve needs, the smallest first; curves without an answer last."""
    found = [smallest(curve, days=days, fit=fit) for curve in curves.curves]
    return sorted(found, key=_order)


def _order(each: Needed) -> tuple[float, float]:
    if each.point is None:
        return float("inf"), 0.0
    return each.point.accelerators, -each.point.tokens_per_second


def needed_lines(
    curves: Curves, *, days: float | None = None, fit: float = 0.0, most: int | None = None
) -> list[str]:
    """Return one sentence per curve: the smallest size that is enough, with time and cost.

    Args:
        curves: The curves.
        days: Deadline of the token budget; None to ask for memory only.
        fit: Chance to fit into memory that is demanded.
        most: Maximum number of sentences.
    """
    found = needed(curves, days=days, fit=fit)
    if days is None:
        found = [each for each in found if each.point is not None and _lacks_memory(each)]
    return [_line(each, curves, days, fit) for each in found][:most]


def _lacks_memory(found: Needed) -> bool:
    """Whether some size of a curve does not fit: only then a size that does is an answer."""
    curve = found.curve
    reasons = [each.reason for each in curve.missing]
    reasons += [each.infeasible for each in curve.points if each.infeasible is not None]
    return any(reason.startswith("memory") for reason in reasons)


def _line(found: Needed, curves: Curves, days: float | None, fit: float) -> str:
    name = words.curve_name(found.curve, curves) + ": " if len(curves.curves) > 1 else ""
    word, tokens = words.words_of(curves), curves.rules[0].tokens
    if found.point is None:
        return name + _none(found, curves, days, fit)
    point = found.point
    size = f"{point.accelerators:,} {word}{'s' if point.accelerators > 1 else ''}"
    if days is None:
        text = f"{name}Smallest size that fits with {chance(fit)} chance: {size}"
    else:
        text = f"{name}{size} train {format_count(tokens or 0.0)} tokens within {days:.3g} days"
        # A plan has to meet a deadline with the far end of its interval.
        if (point.days_high or 0.0) > days:
            text += " (prediction; not the far end)"
    parts = [point.strategy]
    if point.days is not None:
        parts.append(f"{grouped(point.days)} days {_days_interval(point)}")
        if point.run_usd is not None:
            parts.append(format_dollars(point.run_usd))
        if goodput := of_point(point):
            parts.append(goodput)
    parts.append(f"{point.memory_bytes / GIB:.1f} GiB")
    if point.fit is not None:
        parts.append(f"{chance(point.fit)} chance to fit")
    tail = f" {found.before:,} are not enough." if found.before is not None else ""
    between = ": " if days is not None else ", "
    return f"{text}{between}{', '.join(parts)}.{tail}"


def _none(found: Needed, curves: Curves, days: float | None, fit: float) -> str:
    """Return that no size is enough, and the fastest one."""
    sizes = f"up to {curves.sizes[-1]:,} {words.words_of(curves)}s"
    if found.last is None:
        return f"No size {sizes} fits with {chance(fit)} chance."
    last = found.last
    return (
        f"No size {sizes} takes {days:.3g} days or less: {last.accelerators:,} take "
        f"{grouped(last.days or 0.0)} days {_days_interval(last)}."
    )


def _days_interval(point: Point) -> str:
    """Print the 80% interval of the days."""
    return f"[{grouped(point.days_low or 0.0)}-{grouped(point.days_high or 0.0)}]"
