"""Scaling curves in a terminal: question, best strategy, two tables, crossovers, causes.

    print_curves(curves, Console(), share=0.5, defaults=defaults)
    print_curves(curves, Console(), table=True)         # every size of every strategy

At most 30 lines at 100 columns, unless every size is asked for. Computing is `explore.scale`,
sentences are `scale_words`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from scalewise.explore.points import KNEE, Curve, Curves, Point
from scalewise.ranges import ratio_range
from scalewise.report import scale_words as words
from scalewise.report import terminal
from scalewise.report.goodput_words import goodput_percents
from scalewise.report.needed_words import needed_lines
from scalewise.report.terminal import (
    INDENT,
    default_lines,
    print_defaults,
    print_title,
    put,
    say,
    title_lines,
    wrapped,
)
from scalewise.report.words import INTERVAL, interval
from scalewise.units import GIB, format_column, format_count, format_dollars

if TYPE_CHECKING:
    from rich.console import Console

    from scalewise.ask.defaults import Default

MAX_LINES = 30
"""Lines without the tables of every size, at 100 columns."""
FULL = 100
"""Columns from which tables are shortened to keep within these lines."""
FEW = 8
"""Rows of the tables of a narrower terminal."""
MIN_ROWS = 3
"""Rows that a table has in any case."""
MAX_ALIKE = 3
"""Sentences of one kind; one where several models or clusters are compared."""

SPARE = (
    "[low-high]",
    "tok/J",
    "exposed %",
    "$/M tok",
    "MFU %",
    "efficiency %",
    "marginal %",
    "run $",
    "goodput %",
)
"""Columns of the largest size that a narrow terminal does without, first to last."""
SPARE_SIZES = (
    "goodput %", "days", "loss %", "GiB", "$/M tok", "tok/J", "W", "efficiency %", "exposed %",
    "tok/s", "mb",
)  # fmt: skip
"""The same for the table of every size."""


def print_curves(
    curves: Curves,
    console: Console,
    *,
    share: float = KNEE,
    table: bool = False,
    defaults: Sequence[Default] = (),
    changes: Sequence[str] = (),
    notes: Sequence[str] = (),
    deadline: float | None = None,
    fit: float = 0.0,
) -> None:
    """Print scaling curves.

    Args:
        curves: The curves.
        console: Where to.
        share: Marginal efficiency below which a size is past its knee.
        table: Print every size of every strategy, too.
        defaults: What was chosen for the user.
        changes: What-if changes.
        notes: What looks odd about the question.
        deadline: Days that the token budget may take; None to ask for memory only.
        fit: Chance to fit into memory that the smallest size needs.
    """
    most = 1 if deadline is None else MAX_ALIKE
    enough = needed_lines(curves, days=deadline, fit=fit, most=most)
    head = [*enough, *words.best_lines(curves, share)]
    knees = words.knee_line(curves, share)
    paragraphs = _paragraphs(curves, [*notes, *curves.warnings])
    used = 7 + len(title_lines(words.title(curves), changes, console.width))
    used += len(default_lines(defaults, console.width, INDENT))
    for text in (*head, *([f"Knee: {knees}"] if knees else []), *map(": ".join, paragraphs)):
        used += len(wrapped(text, console.width))
    left = MAX_LINES - used if console.width >= FULL else 2 * FEW
    both = table or left >= 2 * MIN_ROWS + 3
    rows = None if table else max((left - 3) // 2 if both else left, MIN_ROWS)

    print_title(console, words.title(curves), changes)
    for text in head:
        put(console, text, hang=6, style="bold")
    if knees:
        say(console, "Knee", knees)
    order = words.ranked(curves)
    if order:
        console.print()
        _print_last(curves, order[:rows], console)
        if rows is not None and len(order) > rows:
            put(console, f"  ... ({len(order) - rows} more: --table)")
    if len(curves.sizes) > 1 and order and both:
        console.print()
        _print_rates(curves, order[:rows], console)
    if table:
        _print_sizes(curves, console)
    if paragraphs:
        console.print()
    for label, text in paragraphs:
        say(console, label, text, style="yellow" if label in ("Cannot run", "Note") else "")
    print_defaults(console, defaults)
    if any(len(curve.feasible) > 1 for curve in order):
        put(console, _footnote(curves, order), style="dim")
    put(console, INTERVAL, style="dim")


def _paragraphs(curves: Curves, notes: Sequence[str]) -> list[tuple[str, str]]:
    """Return what follows the tables as (label, text), a few of each label."""
    most = MAX_ALIKE if len(curves.groups()) == 1 else 1
    found = [
        ("Crossovers", words.crossover_line(curves)),
        ("Cause", words.cause_line(curves)),
        ("Goodput", words.goodput_line(curves)),
        ("Statistical efficiency", words.statistical_line(curves)),
    ]
    for label, texts in (
        ("Strategies", words.best_sentences(curves)),
        ("Cannot run", words.missing_sentences(curves)),
        ("Note", notes),
    ):
        found += [(label, text) for text in texts[:most]]
        if len(texts) > most:
            found[-1] = (label, f"{found[-1][1]} (and {len(texts) - most} more: --json)")
    return [(label, text) for label, text in found if text]


def _footnote(curves: Curves, order: Sequence[Curve]) -> str:
    """Return how to read efficiency and marginal efficiency."""
    word = words.words_of(curves)
    effective = any(curve.feasible[0].statistical_efficiency is not None for curve in order)
    firsts = {curve.feasible[0].accelerators for curve in order}
    first = f"{firsts.pop():,} {word}s" if len(firsts) == 1 else "the first size"
    steps = {(curve.feasible[-1].previous, curve.feasible[-1].accelerators) for curve in order}
    doubled = all(previous and size == 2 * previous for previous, size in steps)
    step = "doubling" if doubled else "step"
    return (
        f"efficiency: tok/s/{word} relative to {first}; marginal: the same for {word}s added in "
        f"the last {step}" + (", in effective tokens" if effective else "")
    )


def _print_last(curves: Curves, order: Sequence[Curve], console: Console) -> None:
    """Print one row per strategy at the largest size at which it runs, best first."""
    word, largest = words.words_of(curves), order[0].feasible[-1].accelerators
    points = [curve.feasible[-1] for curve in order]
    names = [
        words.curve_name(curve, curves)
        + ("" if point.accelerators == largest else f" (at {point.accelerators:,})")
        for curve, point in zip(order, points, strict=True)
    ]
    grown = [len(curve.feasible) > 1 for curve in order]
    columns = {
        f"at {largest:,}": names,
        f"tok/s/{word}": format_column([p.tokens_per_second_per_accelerator for p in points]),
        "MFU %": [f"{100 * point.mfu:.1f}" for point in points],
        "exposed %": [f"{100 * point.exposed_fraction:.1f}" for point in points],
        "efficiency %": [
            _percent(efficiency(curve, point)) if more else ""
            for curve, point, more in zip(order, points, grown, strict=True)
        ],
        "[low-high]": [
            _efficiency_interval(curve, point) if more else ""
            for curve, point, more in zip(order, points, grown, strict=True)
        ],
        "marginal %": [
            _percent(words.returned(curve, point)) if more else ""
            for curve, point, more in zip(order, points, grown, strict=True)
        ],
        "statistical %": _statistical(points),
        "tok/J": _column([point.tokens_per_joule for point in points]),
        "$/M tok": _column([point.usd_per_million_tokens for point in points]),
        "days": _column([point.days for point in points]),
        "run $": [_run_cost(point) for point in points],
        "goodput %": goodput_percents(points),
    }
    _table(console, columns, spare=SPARE)


def _efficiency_interval(curve: Curve, point: Point) -> str:
    """Print the 80% interval of the efficiency: a ratio, in which software and team cancel."""
    low, high = ratio_range(point.basis, curve.feasible[0].basis)
    return f"[{100 * low:.0f}-{100 * high:.0f}]"


def _statistical(points: Sequence[Point]) -> list[str]:
    """Print statistical efficiency; nothing where it is not asked for."""
    return [
        "" if p.statistical_efficiency is None else _percent(p.statistical_efficiency)
        for p in points
    ]


def _run_cost(point: Point) -> str:
    """Print the cost of the token budget; empty without a budget or a price."""
    return "" if point.run_usd is None else format_dollars(point.run_usd)


def _print_rates(curves: Curves, order: Sequence[Curve], console: Console) -> None:
    """Print tokens/s of one GPU by strategy and size; sizes without room are left out."""
    sizes = list(curves.sizes)
    rates = {
        id(curve): {p.accelerators: p.tokens_per_second_per_accelerator for p in curve.feasible}
        for curve in order
    }
    flat = format_column([rates[id(curve)].get(size) for curve in order for size in sizes])
    texts = [flat[row * len(sizes) : (row + 1) * len(sizes)] for row in range(len(order))]
    names = [words.curve_name(curve, curves) for curve in order]
    head = f"tok/s/{words.words_of(curves)}"
    cell = max(len(text) for row in [*texts, [f"{size:,}" for size in sizes]] for text in row) + 1
    room = (console.width - INDENT - max(map(len, [head, *names]))) // cell
    # From the last size backwards in equal strides, so that the largest is always there.
    stride = -(-len(sizes) // max(room, 2))
    kept = sorted(range(len(sizes) - 1, -1, -stride))
    columns = {head: names}
    for place in kept:
        columns[f"{sizes[place]:,}"] = [row[place] for row in texts]
    _table(console, columns, gaps=(2, 1))


def _print_sizes(curves: Curves, console: Console) -> None:
    """Print every size of every strategy that has a point, one table per group."""
    for group in curves.groups():
        points = [(curve, point) for curve in curves.of(group) for point in curve.points]
        if not points:
            continue
        name = words.group_name(group, curves)
        console.print()
        if name:
            console.print(Text(name, style="bold cyan"))

        def numbers(field: str, scale: float = 1.0, *, of: list = points) -> list[str]:  # type: ignore[type-arg]
            values = [getattr(p, field) if p.feasible else None for _, p in of]
            return _column([None if value is None else value * scale for value in values])

        word = words.words_of(curves)
        names = [curve.label for curve, _ in points]
        columns = {
            "strategy": [
                name if not place or name != names[place - 1] else ""
                for place, name in enumerate(names)
            ],
            f"{word}s": [f"{p.accelerators:,}" for _, p in points],
            "mb": [_micro_batch(p) for _, p in points],
            "tok/s": [format_count(p.tokens_per_second) if p.feasible else "-" for _, p in points],
            f"tok/s/{word}": numbers("tokens_per_second_per_accelerator"),
            "[low-high]": [interval(p.low, p.high) if p.feasible else "-" for _, p in points],
            "MFU %": [_percent(p.mfu if p.feasible else None) for _, p in points],
            "exposed %": [_percent(p.exposed_fraction if p.feasible else None) for _, p in points],
            "efficiency %": [_percent(efficiency(c, p) if p.feasible else None) for c, p in points],
            "marginal %": [
                _percent(words.returned(c, p) if p.feasible else None) for c, p in points
            ],
            "statistical %": _statistical([p for _, p in points]),
            "loss %": [_percent(p.cause.loss if p.cause else None) for _, p in points],
            "GiB": numbers("memory_bytes", 1.0 / GIB),
            "W": numbers("watts_per_accelerator"),
            "tok/J": numbers("tokens_per_joule"),
            "$/M tok": numbers("usd_per_million_tokens"),
            "days": numbers("days"),
            "goodput %": goodput_percents([p if p.feasible else None for _, p in points]),
        }
        _table(console, columns, spare=SPARE_SIZES)


def efficiency(curve: Curve, point: Point) -> float:
    """Return tokens/s per accelerator relative to the smallest size that runs."""
    first = curve.feasible[0].tokens_per_second_per_accelerator
    return point.tokens_per_second_per_accelerator / first


def _table(
    console: Console,
    columns: dict[str, list[str]],
    *,
    gaps: Sequence[int] = (3, 2, 1),
    spare: Sequence[str] = (),
) -> None:
    """Print columns by head, with the first gaps for which there is room."""
    rows = list(zip(*columns.values(), strict=True))
    widths = [max(map(len, [head, *cells])) for head, cells in columns.items() if any(cells)]
    for gap in gaps:
        if INDENT + sum(widths) + gap * (len(widths) - 1) <= console.width:
            break
    terminal.table(console, list(columns), rows, gap=gap, spare=spare)


def _column(values: Sequence[float | None]) -> list[str]:
    """Print a column; nothing at all where no value is known."""
    return format_column(values) if any(v is not None for v in values) else ["" for _ in values]


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.1f}"


def _micro_batch(point: Point) -> str:
    """Return the micro-batch, from the spelling of the strategy, which always states it."""
    return next(part[2:] for part in point.strategy.split("-") if part.startswith("mb"))
