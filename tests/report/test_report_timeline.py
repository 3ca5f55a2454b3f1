from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from rich.console import Console

from report_cases import is_offline, without_scripts
from scalewise.ask.defaults import Default
from scalewise.report.timeline_figure import (
    Bar,
    Row,
    joined,
    merged,
    summary,
    timeline_figure,
    timeline_file,
    timeline_page,
)
from scalewise.report.timeline_table import picture, print_timeline
from timeline_cases import line


@pytest.fixture(scope="module")
def pipeline():
    return line("zero1x2-pp4-mb1", batch=16)


@pytest.fixture(scope="module")
def sharded():
    return line("fsdp8-mb1", batch=16)


def bars(panel):
    """(row, start, end) of every bar, in order."""
    return sorted(
        (row, start, start + length)
        for trace in panel.traces
        for row, start, length in zip(trace.xs, trace.base, trace.ys, strict=True)
    )


def test_a_pipeline_has_a_row_per_stage_and_an_axis_in_ms(pipeline):
    figure = timeline_figure(pipeline)
    schedule, turn, memory = figure.panels
    assert schedule.x.values == [f"stage {rank}" for rank in range(4)]
    assert {panel.y.label for panel in (schedule, turn)} == {"time (ms)"}
    assert schedule.title == "Pipeline schedule"
    assert turn.title == "Forward to backward, stage 3"
    assert memory.title == "Memory of stage 3"
    assert {"forward", "backward", "head, optimizer"} <= set(figure.legend)


def test_one_stage_shows_its_streams(sharded):
    schedule, turn, _ = timeline_figure(sharded).panels
    assert schedule.title == "Whole step"
    assert schedule.x.values[:2] == turn.x.values[:2] == ["compute", "data parallel"]
    assert "data parallel" in [trace.name for trace in schedule.traces]


def test_bars_stay_inside_and_do_not_overlap(pipeline):
    for panel in timeline_figure(pipeline).panels[:2]:
        low, high = panel.y.span
        for (row, start, end), (following, begin, _) in pairwise(bars(panel)):
            assert low - 1e-9 <= start <= end <= high + 1e-9
            assert row != following or end <= begin + 1e-9


def test_memory_keeps_its_peak_below_the_capacity(sharded):
    memory = timeline_figure(sharded).panels[-1]
    peak = max(sample.value for sample in sharded.memory(sharded.critical_rank)) / 2**30
    assert memory.marks[0].ys == [pytest.approx(peak)]
    assert memory.rules[0].value == sharded.estimate.memory_capacity / 2**30
    assert memory.rules[0].name.startswith("capacity ")


def test_thin_bars_are_drawn_as_one():
    thin = [Bar(i * 1e-4, (i + 1) * 1e-4, "forward", "x") for i in range(10_000)]
    assert len(merged(thin, 1.0)) < 3000
    wide = [Bar(0, 1, "forward", "a"), Bar(1, 2, "backward", "b")]
    assert merged(wide, 2.0) == wide


def test_joined_bars_are_as_busy_as_before():
    sparse = [Bar(i * 2e-4, i * 2e-4 + 1e-5, "tensor", "x") for i in range(5_000)]
    shown = merged(sparse, 1.0)
    assert len(shown) < len(sparse)
    assert sum(bar.end - bar.start for bar in shown) == pytest.approx(5_000 * 1e-5)


def test_a_page_needs_nothing_from_elsewhere(pipeline):
    page = timeline_page(pipeline)
    assert page.startswith("<!doctype html>")
    assert is_offline(page)
    assert "analytical" in without_scripts(page)


@pytest.mark.parametrize(("ending", "start"), [(".svg", b"<?xml"), (".png", b"\x89PNG")])
def test_pictures_are_the_same_for_the_same_step(sharded, ending, start):
    pytest.importorskip("matplotlib")
    image = timeline_file(sharded, ending)
    assert image.startswith(start)
    assert image == timeline_file(sharded, ending)


def test_names_from_files_are_escaped(pipeline):
    model = msgspec.structs.replace(pipeline.estimate.model, name="<script>x")
    odd = replace(pipeline, estimate=replace(pipeline.estimate, model=model))
    assert "<script>x" not in timeline_page(odd)


def test_summary_compares_both_ways(sharded):
    rows = {name.strip(): (value, detail) for name, value, detail in summary(sharded)}
    theirs = f"analytical {sharded.estimate.step_seconds * 1e3:,.1f} ms ("
    assert rows["step time"][1].startswith(theirs)
    assert "data parallel" in rows
    assert "tensor parallel" not in rows
    assert "pipeline bubble" not in rows


def test_neighbours_of_one_pass_are_joined():
    bars = [Bar(0, 1, "forward", "a"), Bar(1, 2, "forward", "a"), Bar(2, 3, "forward", "b")]
    assert joined(bars, 0.0) == [Bar(0, 2, "forward", "a"), Bar(2, 3, "forward", "b")]


def test_a_text_picture_shows_times_in_proportion():
    half = [Bar(i, i + 0.5, "forward", "") for i in range(40)]
    other = [Bar(i + 0.5, i + 1.0, "backward", "") for i in range(40)]
    text = picture(Row("x", half + other), 40.0, 20)
    assert text.count("F") == text.count("B") == 10
    assert picture(Row("x", [Bar(0, 5, "forward", "")]), 10.0, 10) == "FFFFF....."


def test_terminal_view(pipeline, capsys):
    default = Default(flag="--batch", value="16", why="usual")
    print_timeline(pipeline, Console(width=100, no_color=True), defaults=(default,))
    lines = capsys.readouterr().out
    assert lines.startswith("llama-2-7b (6.74B) | 8x h100-sxm-80gb (dgx-h100) | zero1x2-pp4-mb1 |")
    assert "exposed communication " in lines
    assert [ln for ln in lines.splitlines() if ln.startswith("  stage 0  FFF")]
    assert "Defaults: --batch 16 (usual)" in lines
