"""Figures as data: what axes must show, legends, colors, cells."""

import pytest

from scalewise.report.figure import (
    Axis,
    Figure,
    Marks,
    Panel,
    Rule,
    Trace,
    cells,
    frame_place,
    ink_on,
    ordered_color,
    short,
    thinning,
)

KEYS = Axis(values=["a", "b"])


def bars(*traces, **fields):
    return Panel(kind="bars", x=KEYS, y=Axis(), traces=traces, **fields)


def test_stacked_bars_need_the_room_of_their_sum_in_each_view():
    one = Trace(name="one", xs=["a", "b"], ys=[1.0, 2.0], view="coarse")
    two = Trace(name="two", xs=["a", "b"], ys=[10.0, None], view="coarse")
    fine = Trace(name="fine", xs=["a"], ys=[11.0], view="fine")
    assert max(bars(one, two, fine, stacked=True).values) == 11.0
    assert max(bars(one, two).values) == 10.0


def test_values_have_bases_intervals_marks_and_rules():
    floating = Trace(name="x", xs=["a"], ys=[1.0], base=[5.0], low=[4.0], high=[9.0])
    marks = Marks(name="m", xs=["a"], ys=[20.0])
    panel = bars(floating, marks=[marks], rules=[Rule(value=30.0)])
    assert sorted(panel.values) == [4.0, 6.0, 9.0, 20.0, 30.0]


def test_the_legend_has_traces_then_marks_of_the_view_on_paper():
    traces = [Trace(name=n, xs=["a"], ys=[1.0], view=v) for n, v in (("k", "kind"), ("t", "term"))]
    marks = Marks(name="star", xs=["a"], ys=[1.0])
    figure = Figure(name="f", panels=[bars(*traces, marks=[marks]), bars(*traces)])
    assert figure.views == ["kind", "term"]
    assert figure.legend == ["t", "star"]
    # One name alone says nothing.
    assert Figure(name="f", panels=[bars(Trace(name="x", xs=["a"], ys=[1.0]))]).legend == []


def test_texts_of_axes():
    assert Axis(values=[8, 2048]).texts == ["8", "2,048"]
    assert Axis(values=[1], names=["one"]).texts == ["one"]
    assert KEYS.is_category
    assert not Axis(values=[1.5]).is_category


def test_many_rows_get_thinner():
    def height(count):
        axis = Axis(values=[f"stage {n}" for n in range(count)])
        trace = Trace(name="x", xs=["stage 0"], ys=[1.0], base=[0.0])
        panel = Panel(kind="bars", x=axis, y=Axis(), traces=[trace], sideways=True)
        return panel.height / count

    assert height(4) > height(32) > height(64) == pytest.approx(0.1)


def test_cells_of_a_map_are_empty_where_nothing_is_known():
    x, y = Axis(values=[1, 2]), Axis(values=[4, 8])
    traces = [Trace(name="8", xs=[2], ys=[3.14159], texts=["pi"], hover=["a pi"])]
    panel = Panel(kind="map", x=x, y=y, traces=traces, frame=(2, 8))
    assert cells(panel) == [
        [(None, "", ""), (None, "", "")],
        [(None, "", ""), (3.14159, "pi", "a pi")],
    ]
    assert frame_place(panel) == (1, 1)


def test_colors_and_widths():
    assert ordered_color(0.0) == "#00224e"
    assert ordered_color(1.0) == "#d4b740"
    assert ink_on("#06497A") == "#FFFFFF"
    assert ink_on("#D3E7F5") == "#333333"
    assert thinning(0, 3) > thinning(1, 3) > thinning(2, 3)
    assert [short(v) for v in (1234.5, 12.345, 0.5)] == ["1,234", "12.3", "0.5"]
