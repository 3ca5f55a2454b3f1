"""Scaling curves as a figure: order, colors, panels, marks."""

import pytest

import scalewise as sw
from report_cases import many_groups, one_group, only
from scalewise.explore.points import KNEE
from scalewise.metrics import METRICS
from scalewise.report.scale_figure import (
    PANELS,
    THROUGHPUT,
    crossover_marks,
    knee_marks,
    looks,
    scale_figure,
    values,
)


def test_colors_are_strategies_or_groups():
    mine = {look.name: look for look in looks(one_group())}
    # Best at the largest size first; a strategy that never fits is left out.
    assert list(mine) == ["hsdp64", "tp8-pp16", "tp2", "fsdp"]
    assert len({look.color for look in mine.values()}) == 4
    assert {look.dash for look in mine.values()} == {"solid"}
    groups = {(look.curve.group, look.color) for look in looks(many_groups())}
    assert len(groups) == len({group for group, _ in groups})
    styles = {look.curve.label: (look.dash, look.marker) for look in looks(many_groups())}
    assert styles == {"fsdp": ("solid", "circle"), "best-tp2-pp1-mb1": ("dash", "square")}


def test_panels_are_the_metrics_that_anything_is_known_of():
    assert [metric.name for metric in PANELS] == [
        "tokens_per_second_per_accelerator", "marginal_tokens_per_second", "exposed_fraction",
        "watts_per_accelerator", "tokens_per_joule", "usd_per_million_tokens",
        "effective_tokens_per_second_per_accelerator", "goodput",
    ]  # fmt: skip
    labels = [panel.y.label for panel in scale_figure(one_group()).panels]
    # Nothing is asked of the batch or of a whole run.
    assert labels == [metric.axis for metric in PANELS[:-2]]


def test_runs_and_batches_have_panels_where_they_are_asked_for():
    curves = sw.scale(
        "llama-2-7b", "dgx-h100", gpus="8,64", strategy="fsdp-mb1", tokens="300B",
        critical_batch="laws",
    )  # fmt: skip
    labels = [panel.y.label for panel in scale_figure(curves).panels]
    assert labels[-2:] == ["effective throughput (effective tok/s/GPU)", "goodput (% of wall time)"]
    no_budget = sw.scale("llama-2-7b", "dgx-h100", gpus="8,64", strategy="fsdp-mb1")
    assert len(scale_figure(no_budget).panels) == len(PANELS) - 2


def test_a_panel_needs_a_value():
    no_price = scale_figure(only(many_groups(), cluster="dgx-v100"))
    assert METRICS["usd_per_million_tokens"].axis not in [p.y.label for p in no_price.panels]


def test_values_are_in_the_unit_of_the_axis():
    first = one_group().curves[0]
    sizes, numbers = values(first, METRICS["exposed_fraction"])
    assert sizes == [64, 1024, 8192]
    assert numbers[0] == pytest.approx(100 * first.points[0].exposed_fraction)


def test_only_throughput_has_intervals_and_marks():
    first, *others = scale_figure(one_group()).panels
    assert (first.x.label, first.x.log, list(first.x.values)) == ("GPUs", True, [64, 1024, 8192])
    fsdp = next(trace for trace in first.traces if trace.name == "fsdp")
    points = one_group().curves[0].points
    assert fsdp.low == [point.low for point in points]
    assert fsdp.ys == [point.tokens_per_second_per_accelerator for point in points]
    assert [marks.name for marks in first.marks] == ["knee", "crossover"]
    assert first.marks[1].labels == [f"{size:,}" for size in first.marks[1].xs]
    assert not any(panel.marks or trace.low for panel in others for trace in panel.traces)


def test_marks_stand_on_their_curves():
    curves = one_group()
    (knee,) = [mark for mark in knee_marks(curves, KNEE) if mark.text.startswith("fsdp")]
    assert (knee.accelerators, knee.text) == (8192, "fsdp at 8,192 GPUs")
    assert knee.value == getattr(curves.curves[0].points[2], THROUGHPUT.name)
    texts = [mark.text for mark in crossover_marks(curves)]
    assert len(texts) == len(set(texts))
    assert {m.accelerators for m in crossover_marks(curves)} == {
        each.accelerators for each in curves.crossovers
    }


def test_notes_name_marks_and_source():
    notes = " ".join(scale_figure(one_group()).notes)
    assert "fsdp at 8,192 GPUs" in notes
    assert "tp2 > fsdp from" in notes
    assert "Predicted, not measured: scalewise" in notes
