"""Pages: one skeleton, offline, escaped."""

import pytest

from report_cases import is_offline
from scalewise.report.figure import Axis, Figure, Panel, Trace
from scalewise.report.page import bullets, details, facts, figure_page, note, page, table


def test_a_page_without_plots_has_no_script():
    text = page("A <b>", bullets("List", ["<i>"]), source="From & to")
    assert text.startswith("<!doctype html>")
    assert "<h1>A &lt;b&gt;</h1>" in text
    assert "<li>&lt;i&gt;</li>" in text
    assert "<p class='source'>From &amp; to</p>" in text
    assert "<script" not in text


def test_empty_blocks_are_left_out():
    assert bullets("List", []) == facts("Facts", {}) == note(" ") == ""


def test_tables_align_numbers_mark_rows_and_widen_short_ones():
    text = table(("name", "s"), [("a", "1.0"), ("does not fit",)], marked=(0,))
    assert "<th>name</th><th class='number'>s</th>" in text
    assert "<tr class='tie'><td>a</td><td class='number'>1.0</td></tr>" in text
    assert "<td colspan='2' class='dim'>does not fit</td>" in text
    assert "<thead>" not in table((), [("a", "1")])


def test_details_open_or_closed():
    assert details("x", "<p>y</p>") == "<details><summary>x</summary><p>y</p></details>"
    assert details("x", "", opened=True).startswith("<details open>")


def test_the_page_of_a_figure_has_the_library_once():
    pytest.importorskip("plotly")
    line = Trace(name="x", xs=[1], ys=[1.0])
    panel = Panel(kind="lines", x=Axis(), y=Axis(), traces=[line])
    figure = Figure(name="f", panels=[panel], title="T", lead="Lead.", notes=["Note."])
    text = figure_page(figure, "<p>more</p>")
    assert text.count("plotly.js v") == 1
    assert is_offline(text)
    places = [text.rindex(part) for part in ("Lead.", 'id="plot-f"', "<p>more</p>", "Note.")]
    assert places == sorted(places)
