import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest
from rich.console import Console

from scalewise.report.schedule import Bar, Row, joined, schedule_page, schedule_svg, summary, ticks
from scalewise.report.schedule_text import picture, print_timeline
from timeline_cases import line

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def pipeline():
    return line("zero1x2-pp4-mb1", batch=16)


@pytest.fixture(scope="module")
def sharded():
    return line("fsdp8-mb1", batch=16)


def texts(svg):
    return [element.text for element in ET.fromstring(svg).iter(SVG + "text")]


def test_a_pipeline_has_a_row_per_stage_and_an_axis_in_ms(pipeline):
    told = texts(schedule_svg(pipeline))
    assert [f"stage {rank}" for rank in range(4)] == [t for t in told if t.startswith("stage ")]
    assert "ms" in told
    assert "Pipeline schedule" in told
    assert "Where forward turns into backward, stage 3" in told
    assert {"forward", "backward", "data parallel"} <= set(told)


def test_one_stage_shows_its_streams(sharded):
    told = texts(schedule_svg(sharded))
    assert "The whole step" in told
    assert told.count("compute") == 2
    assert "data parallel" in told


def test_bars_stay_inside_and_do_not_overlap(pipeline):
    root = ET.fromstring(schedule_svg(pipeline))
    rows = {}
    for rect in root.iter(SVG + "rect"):
        if rect.find(SVG + "title") is None:
            continue
        x, width = float(rect.get("x")), float(rect.get("width"))
        assert 149.9 <= x <= x + width <= 1081.0
        rows.setdefault(rect.get("y"), []).append((x, width))
    assert len(rows) >= 4
    for bars in rows.values():
        bars.sort()
        for (x, width), (following, _) in pairwise(bars):
            assert x + width <= following + 0.3


def test_a_page_needs_nothing_from_elsewhere(pipeline):
    page = schedule_page(pipeline)
    assert page.startswith("<!doctype html>")
    assert "<script" not in page
    assert page.replace("http://www.w3.org/2000/svg", "").count("http") == 0
    assert "step by events" in page


def test_names_from_files_are_escaped(pipeline):
    model = msgspec.structs.replace(pipeline.estimate.model, name="<script>x")
    odd = replace(pipeline, estimate=replace(pipeline.estimate, model=model))
    assert "<script>" not in schedule_page(odd)


def test_summary_compares_both_ways(sharded):
    rows = {name.strip(): (value, detail) for name, value, detail in summary(sharded)}
    assert rows["step by events"][1].startswith(f"{sharded.estimate.step_seconds * 1e3:,.1f} ms by")
    assert "data parallel" in rows
    assert "tensor parallel" not in rows
    assert "idle in the pipeline" not in rows


def test_ticks_are_round():
    assert ticks(0.0, 10.0) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
    assert ticks(205.0, 302.0) == [210, 220, 230, 240, 250, 260, 270, 280, 290, 300]


def test_neighbours_of_one_pass_are_joined():
    bars = [Bar(0, 1, "forward", "a"), Bar(1, 2, "forward", "a"), Bar(2, 3, "forward", "b")]
    assert joined(bars, 0.0) == [Bar(0, 2, "forward", "a"), Bar(2, 3, "forward", "b")]


def test_a_text_picture_shows_shares_in_proportion():
    half = [Bar(i, i + 0.5, "forward", "") for i in range(40)]
    other = [Bar(i + 0.5, i + 1.0, "backward", "") for i in range(40)]
    told = picture(Row("x", half + other), 40.0, 20)
    assert told.count("F") == told.count("B") == 10
    assert picture(Row("x", [Bar(0, 5, "forward", "")]), 10.0, 10) == "FFFFF....."


def test_terminal_view(pipeline, capsys):
    print_timeline(pipeline, Console(width=100, no_color=True), chosen=("a batch",))
    told = capsys.readouterr().out
    assert "step by events" in told
    assert [ln for ln in told.splitlines() if ln.startswith("  stage 0  FFF")]
    assert "Chosen for you: a batch" in told
