"""Sentences about curves and maps over any quantity: title, best value, knees, crossovers, causes.

    title(found)                      # "llama-2-7b (6.74B) | 256x dgx-h100 | over network of a ..."
    best_lines(found.sweep)           # ["Best at 800 Gbit/s: 7,750 tok/s/GPU [...]. 95% of it ..."]

Computing is `explore.axis` and `ask.over`; terminal, pages and figures take their words from here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import TYPE_CHECKING

from scalewise.explore.axis import NEAR, OBJECTIVES, THROUGHPUT, AxisKnee, Cell, Series, Sweep
from scalewise.explore.points import KNEE
from scalewise.metrics import METRICS
from scalewise.ranges import TIE_CHANCE, ratio_range, tie_width
from scalewise.report.scale_words import MAX_PHRASES, SURE, open_spelling
from scalewise.report.words import chance, device_word, gain_interval, interval
from scalewise.units import format_count, format_percent, grouped

if TYPE_CHECKING:
    from scalewise.ask.over import Over


def words_of(sweep: Sweep) -> str:
    """Return what one accelerator is called: GPU, or chip."""
    return device_word("gpu" if any(each.kind == "gpu" for each in sweep.series) else "tpu")


def axis_words(sweep: Sweep) -> str:
    """Return the quantities with their ends: "network of a node 25-800 Gbit/s"."""
    found = []
    for axis in sweep.axes:
        if axis.numbers is None:
            found.append(f"{axis.label} {', '.join(axis.texts)}")
        elif len(axis.texts) == 1:
            found.append(f"{axis.label} {axis.say(0)}")
        else:
            last = axis.say(len(axis.texts) - 1).removesuffix(f" {axis.label}")
            found.append(f"{axis.label} {axis.show(0)}-{last}")
    return " x ".join(found)


def title(found: Over) -> str:
    """Return what was asked, in one line: model, cluster, quantities, batch, software."""
    sweep, inputs = found.sweep, found.first
    cells = [cell for each in sweep.series for cell in each.cells if cell.seq_len]
    lengths = _ends(sorted({cell.seq_len for cell in cells}))
    stacks = dict.fromkeys(cell.point.stack for cell in cells if cell.point is not None)
    models = {each.model: each.parameters for each in sweep.series if each.model}
    clusters = dict.fromkeys(each.cluster for each in sweep.series if each.cluster)
    labels = dict.fromkeys(each.label for each in sweep.series)
    sizes = _ends(sorted({*found.sizes}))
    if any(axis.name == "gpus" for axis in sweep.axes):
        sizes = ""
    if len(models) == 1 and inputs.model.parameters != next(iter(models.values())):
        models = dict.fromkeys(models, 0.0)
    parts = (
        ", ".join(f"{name} ({format_count(n)})" if n else name for name, n in models.items()),
        _machines(clusters, sizes, words_of(sweep)),
        next(iter(labels)) if len(labels) == 1 else "",
        f"over {axis_words(sweep)}",
        f"batch {_ends(sorted({*found.batches}))} x {lengths}",
        ", ".join(dict.fromkeys(cell.precision for cell in cells)),
        f"stack {', '.join(stacks)}" if stacks else "",
    )
    return " | ".join(part for part in parts if part)


def _machines(clusters: Iterable[str], sizes: str, word: str) -> str:
    """Return clusters with their sizes; either may be a quantity of an axis, and empty here."""
    names = ", ".join(clusters)
    if not names:
        return sizes and f"{sizes} {word}s"
    return f"{sizes}x {names}" if sizes else names


def _ends(numbers: Sequence[int]) -> str:
    """Print numbers as their ends: "8", "8-64"."""
    return f"{numbers[0]:,}" + (f"-{numbers[-1]:,}" if len(numbers) > 1 else "")


def place_words(sweep: Sweep, place: Sequence[int]) -> str:
    """Return the values of a place: "800 Gbit/s", "TP degree 2, pipeline stages 4"."""
    if not sweep.is_map:
        axis, at = sweep.axes[0], place[0]
        bare = axis.numbers is not None and not axis.unit
        return f"{axis.label} {axis.show(at)}" if bare else axis.say(at)
    return ", ".join(
        f"{axis.label} {axis.say(at)}" for axis, at in zip(sweep.axes, place, strict=True)
    )


def metric_words(sweep: Sweep, cell: Cell) -> str:
    """Return the metric of a cell with its unit, throughput with its interval."""
    point, word = cell.point, words_of(sweep)
    assert point is not None
    if sweep.metric == THROUGHPUT:
        rate = grouped(point.tokens_per_second_per_accelerator)
        return f"{rate} tok/s/{word} {interval(point.low, point.high)}"
    metric = sweep.measured
    unit = "" if metric.is_share else f" {metric.unit or metric.label}"
    return f"{metric.show(getattr(point, sweep.metric))}{unit.replace('GPU', word)}"


def best_lines(sweep: Sweep) -> list[str]:
    """Return the best value of the best series, and from which value on it is nearly reached."""
    order = ranked(sweep)
    if not order:
        return ["No strategy can run at any of these values"]
    lines = []
    objective = OBJECTIVES.get(sweep.by, THROUGHPUT)
    if sweep.metric != objective:
        shown = METRICS[objective]
        cell = order[0].feasible[0]
        value = getattr(cell.point, objective)
        text = grouped(shown.factor * value) + ("" if shown.is_share else f" {shown.unit}")
        text = text.replace("GPU", words_of(sweep))
        lines.append(f"{shown.label.capitalize()} is the same at all values: {text}.")
    return [*lines, _best(sweep, order[0], order)]


def ranked(sweep: Sweep) -> list[Series]:
    """Return the series that have a cell that runs, the best one first."""
    known = [each for each in sweep.series if sweep.best(each) is not None]
    sign = 1.0 if sweep.measured.better == "low" else -1.0

    def key(series: Series) -> float:
        best = sweep.best(series)
        assert best is not None
        return sign * (sweep.value(best) or 0.0)

    return sorted(known, key=key)


def _best(sweep: Sweep, series: Series, order: Sequence[Series]) -> str:
    """Return the best cell of the best series with its lead, and the first value near it."""
    cell = sweep.best(series)
    assert cell is not None
    assert cell.point is not None
    strategy = "" if cell.point.strategy == series.label else cell.point.strategy
    name = f"{sweep.name(series)}" if len(sweep.series) > 1 else strategy
    if len(sweep.series) > 1 and strategy:
        name += f" ({strategy})"
    text = f"Best at {place_words(sweep, cell.place)}: {name}{', ' if name else ''}"
    text += metric_words(sweep, cell)
    rival = next((each for each in order[1:] if each is not series), None)
    if rival is not None:
        text += _lead(sweep, cell, rival)
    near = sweep.near(series)
    values = [sweep.value(each) or 0.0 for each in series.feasible]
    top = sweep.value(cell) or 0.0
    if len(values) > 1 and all(sweep.better(each, top) >= NEAR - 1.0 for each in values):
        text += f"; all values are within {format_percent(1.0 - NEAR, decimals=0)} of it"
    elif near is not None and near.place != cell.place:
        value = sweep.value(near)
        assert value is not None
        reached = f"{format_percent(NEAR, decimals=0)} of it"
        if sweep.measured.better == "low":
            reached = f"within {format_percent(1.0 - NEAR, decimals=0)} of it"
        first = near.place[0] < cell.place[0]
        text += f"; {reached} {'from' if first else 'at'} {place_words(sweep, near.place)}"
    return text + "."


def _lead(sweep: Sweep, cell: Cell, rival: Series) -> str:
    """Return the lead of a cell over the same values of another series."""
    other = next((each for each in rival.feasible if each.place == cell.place), None)
    if other is None or other.point is None or cell.point is None:
        return ""
    mine, its = sweep.value(cell), sweep.value(other)
    if mine is None or its is None:
        return ""
    text = format_percent(sweep.better(mine, its), sign=True, decimals=0)
    if sweep.metric == THROUGHPUT:
        low, high = ratio_range(cell.point.basis, other.point.basis)
        text += f" {gain_interval(low - 1.0, high - 1.0)}"
    return f", {text} over {sweep.name(rival)}"


def knee_line(sweep: Sweep, share: float = KNEE) -> str:
    """Return the knees of all curves in one line; empty if there is none."""
    return "; ".join(_knee(sweep, each) for each in sweep.knees(share))


def _knee(sweep: Sweep, found: AxisKnee) -> str:
    name = f"{sweep.name(sweep.series[found.series])} " if len(sweep.series) > 1 else ""
    gain = format_percent(found.per_doubling, sign=True)
    return (
        f"{name}at {place_words(sweep, [found.place])} ({gain} per doubling, "
        f"{format_percent(found.largest, sign=True)} before)"
    )


def crossover_line(sweep: Sweep) -> str:
    """Return the crossovers in one line, the first ones where there are many."""
    phrases = []
    for each in sweep.crossovers:
        names = [sweep.name(sweep.series[place]) for place in (each.winner, each.loser)]
        sure = ""
        if each.chance is not None and each.chance < 1.0 - TIE_CHANCE:
            sure = " (tie)"
        elif each.chance is not None and each.chance <= SURE:
            sure = f" ({chance(each.chance)} sure)"
        phrases.append(f"{' > '.join(names)} from {place_words(sweep, [each.place])}{sure}")
    more = len(phrases) - MAX_PHRASES
    return "; ".join(phrases[:MAX_PHRASES]) + (f"; {more} more" if more > 0 else "")


def cause_line(sweep: Sweep) -> str:
    """Return the causes of all curves in one line: what changes throughput per GPU along them."""
    if sweep.is_map:
        return ""
    lines = []
    for series in sweep.series:
        parts = [_cause(sweep, run) for run in _runs(series)]
        if parts:
            name = f"{sweep.name(series)} " if len(sweep.series) > 1 else ""
            lines.append(name + ", then ".join(parts))
    more = len(lines) - MAX_PHRASES
    return "; ".join(lines[:MAX_PHRASES]) + (f"; {more} more" if more > 0 else "")


def _runs(series: Series) -> list[list[Cell]]:
    """Split a curve into neighbors whose throughput changes for one cause, by more than a tie."""
    runs: list[list[Cell]] = []
    for cell in series.feasible:
        if cell.cause is None:
            continue
        last = runs[-1][-1].cause if runs else None
        touches = bool(runs) and runs[-1][-1].place[0] == cell.previous
        same = last is not None and last.name == cell.cause.name
        if touches and same and last is not None and last.loss * cell.cause.loss > 0.0:
            runs[-1].append(cell)
        else:
            runs.append([cell])
    return [run for run in runs if abs(_change(run)) > tie_width()]


def _change(run: Sequence[Cell]) -> float:
    return math.prod(1.0 - cell.cause.loss for cell in run if cell.cause is not None) - 1.0


def _cause(sweep: Sweep, run: Sequence[Cell]) -> str:
    """Return a change with its last value and its cause."""
    cause, place = run[0].cause, run[-1].place
    assert cause is not None
    change = _change(run)
    text = f"{grouped(1.0 + change)}x" if change > 1.0 else format_percent(change, sign=True)
    if place[0] != len(sweep.axes[0].texts) - 1:
        text += f" up to {place_words(sweep, place)}"
    why = cause.name.replace(" (", ", ").removesuffix(")")
    return f"{text} ({why})"


def strategy_lines(sweep: Sweep) -> list[str]:
    """Return which strategy is chosen at which values, for series of which it was searched."""
    lines = []
    for series in sweep.series:
        cells = [c for c in series.feasible if c.point is not None and c.point.evaluated]
        if sweep.is_map or not cells:
            continue
        runs = groupby(
            cells, key=lambda cell: open_spelling(cell.point.strategy if cell.point else "")
        )
        parts = [f"{shape} at {_span(sweep, list(run))}" for shape, run in runs]
        lines.append(f"{sweep.name(series)}: " + ", ".join(parts))
    return lines


def _shape(cell: Cell) -> str:
    return "" if cell.point is None else open_spelling(cell.point.strategy)


def missing_lines(sweep: Sweep) -> list[str]:
    """Return why values have no result; neighbors with the same kind of reason share a line."""
    lines = []
    for series in sweep.series:
        name = f"{sweep.name(series)} " if len(sweep.series) > 1 else ""
        if sweep.is_map:
            gaps = [cell for cell in series.cells if cell.infeasible is not None]
            for reason, found in groupby(
                sorted(gaps, key=lambda cell: _kind(cell.infeasible)),
                key=lambda cell: _kind(cell.infeasible),
            ):
                cells = list(found)
                first = place_words(sweep, cells[0].place)
                more = f" and {len(cells) - 1} more" if len(cells) > 1 else ""
                lines.append(f"{name}at {first}{more}: {_short(cells[0]) or reason}")
            continue
        for reason, run in groupby(series.cells, key=lambda cell: _kind(cell.infeasible)):
            if reason:
                cells = list(run)
                lines.append(f"{name}at {_span(sweep, cells)}: {_short(cells[-1])}")
    return lines


def _span(sweep: Sweep, cells: Sequence[Cell]) -> str:
    """Print the values of neighboring cells as a range, "25-100 Gbit/s", or as a list of words."""
    axis, places = sweep.axes[0], [cell.place[0] for cell in cells]
    if axis.numbers is None:
        return ", ".join(axis.texts[place] for place in places)
    name = "" if axis.unit else f"{axis.label} "
    if len(places) == 1:
        return name + axis.say(places[0])
    return f"{name}{axis.show(places[0])}-{axis.say(places[-1])}"


def _kind(reason: str | None) -> str:
    """Return what a reason is about: the word before its colon; empty for none."""
    return "" if reason is None else reason.partition(":")[0]


def _short(cell: Cell) -> str:
    """Return the reason of a cell, without the parts of memory."""
    reason = str(cell.infeasible)
    return reason.rpartition(": ")[0] if reason.startswith("memory: needs") else reason
