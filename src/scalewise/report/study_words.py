"""Findings of an experiment: one or two sentences, computed from its points.

    findings(experiment, rows)        # ["From 8 to 2,048 GPUs, ...", ...]

No sentence is written by hand: each reads the metric of the experiment's first figure.
"""

from __future__ import annotations

from collections.abc import Sequence

from scalewise.explore.causes import find_cause
from scalewise.explore.points import KNEE
from scalewise.study.files import Experiment, Figure
from scalewise.study.measures import AXES, METRICS, Metric, Value
from scalewise.study.rows import Row, metric_of, select, values_of, varying
from scalewise.units import format_percent, grouped

TIMES = 3.0
"""Factor from which a change is printed as a factor instead of percent."""


def findings(experiment: Experiment, rows: Sequence[Row]) -> list[str]:
    """Return what the first figure of an experiment shows.

    Args:
        experiment: The experiment.
        rows: Its points.

    Returns:
        Sentences; empty without a figure.
    """
    if not experiment.figures:
        return []
    figure = experiment.figures[0]
    metric = METRICS[_metric(figure)]
    known = [row for row in select(rows, figure.where) if metric_of(row, metric.name) is not None]
    ends = select(known, figure.band) if figure.band else []
    drawn = [row for row in known if not any(row is end for end in ends)]
    if not drawn:
        return ["No point can run."]
    if experiment.kind == "sensitivity":
        return _changes(drawn, metric)
    if figure.kind == "map":
        return _map(drawn, figure, metric)
    if figure.y[0] == "marginal_return":
        return _knees(drawn, figure)
    lines: list[str] = []
    for facet in _facets(drawn, figure.facet):
        inside = select(drawn, {figure.facet: facet}) if figure.facet else drawn
        xs = values_of(inside, figure.x)
        where = f" at {AXES[figure.facet].show(facet)}" if figure.facet else ""
        if len(xs) > 1 and not isinstance(xs[0], str):
            lines += _lines(inside, figure, metric, where)
        else:
            lines += _ranked(inside, figure.x, metric, where)
    return [*lines, *_spread(ends, figure, metric)]


def _facets(rows: Sequence[Row], name: str | None) -> list[Value]:
    """Return the facets with a sentence: all names; of message sizes the middle, else the largest.

    A middle message size is the most typical.
    """
    if name is None:
        return [""]
    values = values_of(rows, name)
    if any(isinstance(value, str) for value in values):
        return values
    return [values[len(values) // 2] if name == "message_bytes" else values[-1]]


def _metric(figure: Figure) -> str:
    """Return the metric of the sentences: throughput per accelerator rather than the total."""
    each = "tokens_per_second_per_accelerator"
    return each if each in figure.y else figure.y[0]


def _curves(rows: Sequence[Row], figure: Figure) -> dict[str, list[Row]]:
    """Return rows by what differs between curves, each in the order of x."""
    x = figure.x
    lines = list(figure.series) or varying(
        rows, but=[x, "accelerators" if x == "nodes" else "nodes"]
    )
    curves: dict[str, list[Row]] = {}
    for row in sorted(rows, key=lambda row: row.axes[x]):
        name = ", ".join(_named(each, row.axes[each]) for each in lines if each in row.axes)
        curves.setdefault(name, []).append(row)
    return {name: line for name, line in curves.items() if len(line) > 1}


def _named(axis: str, value: Value) -> str:
    """Return a value of an axis in a sentence."""
    return AXES[axis].show(value) + (" GPUs" if axis == "accelerators" else "")


def _lines(rows: Sequence[Row], figure: Figure, metric: Metric, where: str) -> list[str]:
    curves = _curves(rows, figure)
    if not curves:
        return []
    axis = AXES[figure.x]
    change = {name: _change(line, metric) for name, line in curves.items()}
    ordered = sorted(change, key=change.__getitem__)
    low, high = ordered[0], ordered[-1]
    first, last = curves[low][0], curves[low][-1]
    left, right = (axis.show(row.axes[figure.x]) for row in (first, last))
    span = f"From {left} to {right} {axis.label}{where}"
    name = metric.words[0]
    if len(curves) == 1:
        lines = [f"{span}, {name} changes {_ends(curves[low], metric)}."]
    else:
        lines = [
            f"{span}, {name} changes {_ends(curves[low], metric)} with {low}, and "
            f"{_ends(curves[high], metric)} with {high}."
        ]
    if first.point is not None and last.point is not None and figure.x == "accelerators":
        cause = find_cause(first.point, last.point)
        if cause is not None and metric.name != "speedup":
            whose = f" of {low}" if len(curves) > 1 else ""
            loss, share = (format_percent(x, decimals=0) for x in (cause.loss, cause.share))
            lines.append(f"Loss{whose} in tok/s/GPU: {loss}, {share} of it to {cause.name}.")
    return lines


def _spread(ends: Sequence[Row], figure: Figure, metric: Metric) -> list[str]:
    """Return the ends of a band over the whole range of x."""
    curves = _curves(ends, figure)
    if len(curves) < 2:
        return []
    texts = [f"{_ends(line, metric)} with {name}" for name, line in curves.items()]
    return [f"Ends of the band: {'; '.join(texts)}."]


def _knees(rows: Sequence[Row], figure: Figure) -> list[str]:
    """Return the curves whose marginal efficiency falls below `KNEE`, and those that escape it."""
    fall: list[str] = []
    escape: list[str] = []
    watts: list[str] = []
    for name, line in _curves(rows, figure).items():
        first, last = _knee(line, "marginal_return"), line[-1]
        if first is None:
            end = METRICS["marginal_return"].show(metric_of(last, "marginal_return"))
            escape.append(f"{name} ({end} at {last.axes[figure.x]:,})")
            continue
        share = METRICS["marginal_return"].show(metric_of(first, "marginal_return"))
        fall.append(f"{name} from {first.axes[figure.x]:,} ({share})")
        watt = _knee(line, "marginal_joule_return")
        watts.append(f"{name} {f'from {watt.axes[figure.x]:,}' if watt else 'nowhere'}")
    half = "an added GPU brings less than half of one of the first"
    lines = [f"Diminishing returns ({half}): " + ", ".join(fall) + "."] if fall else []
    lines += ["The same per added facility watt: " + ", ".join(watts) + "."] if fall else []
    if escape:
        lines.append("Not up to the largest size: " + ", ".join(escape) + ".")
    return lines


def _knee(line: Sequence[Row], name: str) -> Row | None:
    """Return the first row whose metric is below `KNEE`."""
    return next((row for row in line if (metric_of(row, name) or 1.0) < KNEE), None)


def _change(line: Sequence[Row], metric: Metric) -> float:
    before = metric_of(line[0], metric.name) or 0.0
    after = metric_of(line[-1], metric.name) or 0.0
    return after / before if before else 0.0


def _ends(line: Sequence[Row], metric: Metric) -> str:
    before, after = metric_of(line[0], metric.name), metric_of(line[-1], metric.name)
    unit = "" if metric.is_share else metric.words[1]
    text = f"from {metric.show(before)} to {metric.show(after)}" + (f" {unit}" if unit else "")
    if before and after and not metric.is_share:
        factor = after / before
        change = format_percent(factor - 1.0, sign=True, decimals=0)
        text += f" ({grouped(factor)}x)" if factor > TIMES else f" ({change})"
    return text


def _ranked(rows: Sequence[Row], x: str, metric: Metric, where: str) -> list[str]:
    ranked = sorted(rows, key=lambda row: -(metric_of(row, metric.name) or 0.0))
    best, worst = ranked[0], ranked[-1]
    axis = AXES[x]
    return [
        f"{metric.words[0].capitalize()}{where} is largest for {axis.show(best.axes[x])} "
        f"({metric.show(metric_of(best, metric.name))}) and smallest for "
        f"{axis.show(worst.axes[x])} ({metric.show(metric_of(worst, metric.name))})."
    ]


def _map(rows: Sequence[Row], figure: Figure, metric: Metric) -> list[str]:
    parts = []
    facets: list[Value] = values_of(rows, figure.facet) if figure.facet else [""]
    for facet in facets:
        inside = select(rows, {figure.facet: facet}) if figure.facet else list(rows)
        best = max(inside, key=lambda row: metric_of(row, metric.name) or 0.0)
        at = f"at {AXES[figure.facet].show(facet)} " if figure.facet else ""
        parts.append(f"{at}{best.axes['strategy']} ({metric.show(metric_of(best, metric.name))})")
    return [f"Largest {metric.words[0]}: " + ", ".join(parts) + "."]


def _changes(rows: Sequence[Row], metric: Metric) -> list[str]:
    lines = []
    for size in values_of(rows, "accelerators"):
        inside = select(rows, {"accelerators": size})
        ranked = sorted(inside, key=lambda row: -(metric_of(row, metric.name) or 0.0))[:3]
        names = ", ".join(
            f"{row.axes['change']} "
            f"({format_percent(metric_of(row, metric.name) or 0.0, sign=True)})"
            for row in ranked
        )
        lines.append(f"Largest gains at {size:,} GPUs: {names}.")
    return lines
