"""The renderers: the same figure with matplotlib, with plotly and as text."""

import re

import pytest

from scalewise.report.draw_terminal import bar_lines, floating_bar
from scalewise.report.figure import Axis, Figure, Marks, Panel, Rule, Trace

SIZES = Axis(label="GPUs", log=True, values=[8, 64, 512])
LINES = Panel(
    kind="lines", title="speed", x=SIZES, y=Axis(label="tok/s"),
    traces=[
        Trace(name="fsdp", xs=[8, 64, 512], ys=[3.0, 2.0, 1.0], low=[2.0, 1.0, 0.5],
              high=[4.0, 3.0, 2.0], hover=["x", "y", "z"]),
        Trace(name="tp2", xs=[8, 64], ys=[2.5, 2.4], dash="dash", marker="square"),
    ],
    marks=[Marks(name="knee", xs=[512], ys=[1.0], labels=["512"], symbol="ring")],
    rules=[Rule(value=2.5, name="limit", dash="dot")],
)  # fmt: skip
STACKED = Panel(
    kind="bars", x=Axis(values=["1 = a", "2   b"]), y=Axis(label="step time (s)"),
    traces=[
        Trace(name=name, xs=["1 = a", "2   b"], ys=ys, texts=["50%", "50%"], view=view)
        for name, ys, view in (("all", [2.0, 3.0], "by kind"), ("gemm", [1.5, 2.0], "by term"),
                               ("bubble", [0.5, 1.0], "by term"))
    ],
    ends=["2 s", "3 s\nbest"], sideways=True, stacked=True,
)  # fmt: skip
FLOATING = Panel(
    kind="bars", x=Axis(values=["peak", "loss", "rest"]), y=Axis(), sideways=True,
    traces=[
        Trace(name="ends", xs=["peak", "rest"], ys=[10.0, 5.0], base=[0.0, 0.0]),
        Trace(name="loss", xs=["loss"], ys=[5.0], base=[5.0], color="#D55E00"),
    ],
)  # fmt: skip
MAP = Panel(
    kind="map", x=Axis(label="PP", values=[1, 2]), y=Axis(label="TP", values=[1, 2]),
    traces=[Trace(name="1", xs=[1, 2], ys=[0.0, 50.0]), Trace(name="2", xs=[1], ys=[100.0])],
    scale="% above", frame=(1, 1),
)  # fmt: skip
RANGES = Panel(
    kind="ranges", x=Axis(values=["job"]), y=Axis(label="s", log=True), sideways=True,
    traces=[Trace(name="measured", xs=["job"], ys=[2.0], low=[1.0], high=[4.0]),
            Trace(name="predicted", xs=["job"], ys=[2.5], low=[2.0], high=[3.0])],
)  # fmt: skip
UPRIGHT = Panel(
    kind="bars", x=Axis(values=["a", "b", "c"]), y=Axis(label="MFU (%)"),
    traces=[Trace(name="one", xs=["a", "b"], ys=[40.0, 2.0], texts=["40", "2"]),
            Trace(name="two", xs=["a"], ys=[-5.0], texts=["-5"], color="#D55E00")],
    marks=[Marks(name="published", xs=["a", "z"], ys=[41.0, 1.0], beside=["two", ""])],
)  # fmt: skip
PANELS = {"lines": LINES, "stacked": STACKED, "floating": FLOATING, "map": MAP,
          "ranges": RANGES, "upright": UPRIGHT}  # fmt: skip


def figure(*panels, **fields):
    return Figure(name="test", panels=panels, **fields)


# Paper.


@pytest.fixture
def canvas():
    pytest.importorskip("matplotlib")
    from scalewise.report.draw_matplotlib import canvas

    return canvas


@pytest.mark.parametrize("name", PANELS)
def test_every_kind_is_drawn_the_same_again(name):
    pytest.importorskip("matplotlib")
    from scalewise.report.draw_matplotlib import image, images

    drawn = figure(PANELS[name], title="A title", lead="A lead.", notes=["A note."])
    files = images(drawn)
    assert files["png"].startswith(b"\x89PNG")
    assert files["svg"].startswith(b"<?xml")
    assert files["svg"] == image(drawn, "svg")


def test_lines_have_units_bands_marks_and_start_at_zero(canvas):
    drawing = canvas(figure(LINES, LINES, columns=2, title="T", notes=["N"]))
    axis = drawing.axes[0]
    assert (axis.get_xlabel(), axis.get_ylabel()) == ("GPUs", "tok/s")
    assert axis.get_xscale() == "log"
    assert sorted(label.get_text() for label in axis.get_xticklabels()) == ["512", "64", "8"]
    assert len(axis.collections) == 1
    assert axis.get_ylim()[0] == 0.0
    names = [text.get_text() for text in drawing.legends[0].get_texts()]
    assert names == ["fsdp", "tp2", "knee"]
    assert {"T", "N"} <= {text.get_text() for text in drawing.texts}
    assert "512" in [text.get_text() for text in axis.texts]


def test_stacked_bars_show_the_finest_view_one_after_the_other(canvas):
    (axis,) = canvas(figure(STACKED)).axes
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["1 = a", "2   b"]
    gemm, bubble = axis.containers
    assert [bar.get_width() for bar in gemm] == [1.5, 2.0]
    assert [bar.get_x() for bar in bubble] == [1.5, 2.0]
    # In one row each.
    assert [bar.get_y() for bar in gemm] == [bar.get_y() for bar in bubble]
    assert "3 s\nbest" in [text.get_text() for text in axis.texts]


def test_marks_stand_beside_their_bar_and_gaps_are_named(canvas):
    (axis,) = canvas(figure(UPRIGHT)).axes
    (star,) = (line for line in axis.lines if line.get_marker() == "*")
    # The second of two bars of 0.4: half a bar to the right; a mark of no category is left out.
    assert list(star.get_xdata()) == pytest.approx([0.2])
    assert " unknown" in [text.get_text() for text in axis.texts]
    assert axis.get_ylim()[0] < 0.0


def test_a_legend_of_several_rows_reads_along_them():
    pytest.importorskip("matplotlib")
    from scalewise.report.draw_matplotlib import by_rows

    # Matplotlib fills columns: 0 3 6 | 1 4 | 2 5 shows 0 1 2 / 3 4 5 / 6.
    assert by_rows(7, 3) == [0, 3, 6, 1, 4, 2, 5]
    assert by_rows(3, 3) == [0, 1, 2]


# Screen.


@pytest.fixture
def plotly():
    pytest.importorskip("plotly")
    from scalewise.report.draw_plotly import plotly_figure

    return plotly_figure


def test_plotly_has_a_band_behind_a_line_and_one_name_in_the_legend(plotly):
    drawing = plotly(figure(LINES, LINES, columns=2))
    named = [trace.name for trace in drawing.data if trace.showlegend]
    assert named == ["fsdp", "tp2", "knee"]
    band, line = drawing.data[:2]
    assert (band.fill, tuple(band.y)) == ("toself", (4.0, 3.0, 2.0, 0.5, 1.0, 2.0))
    assert (tuple(line.x), tuple(line.hovertext)) == ((8, 64, 512), ("x", "y", "z"))
    assert drawing.layout.xaxis.type == "log"
    assert drawing.layout.xaxis.title.text == "GPUs"
    assert drawing.layout.yaxis.title.text == "tok/s"


def test_plotly_shows_the_first_view_and_buttons_for_the_others(plotly):
    drawing = plotly(figure(STACKED))
    assert [trace.visible for trace in drawing.data] == [True, False, False]
    by_kind, by_term = drawing.layout.updatemenus[0].buttons
    assert list(by_kind.args[0]["visible"]) == [True, False, False]
    assert list(by_term.args[0]["visible"]) == [False, True, True]
    assert drawing.layout.barmode == "stack"
    assert drawing.layout.annotations[1].text == "3 s<br>best"
    assert drawing.layout.xaxis.range[1] > 3.0


def test_plotly_keeps_categories_in_order_downwards(plotly):
    drawing = plotly(figure(FLOATING))
    assert list(drawing.layout.yaxis.categoryarray) == ["peak", "loss", "rest"]
    assert drawing.layout.yaxis.range[0] > drawing.layout.yaxis.range[1]
    assert list(drawing.data[1].base) == [5.0]


def test_plotly_maps_have_texts_gaps_and_a_frame(plotly):
    drawing = plotly(figure(MAP))
    (heat,) = drawing.data
    assert heat.z[1][1] is None
    assert list(heat.text[0]) == ["0", "50"]
    (frame,) = drawing.layout.shapes
    assert (frame.x0, frame.y1) == (-0.49, 0.48)


def test_plotly_ranges_are_error_bars(plotly):
    measured = plotly(figure(RANGES)).data[0]
    assert (measured.error_x.array[0], measured.error_x.arrayminus[0]) == (2.0, 1.0)


def test_names_of_users_are_escaped():
    pytest.importorskip("plotly")
    from scalewise.report.draw_plotly import plot

    evil = Trace(name="</script><b>x</b>", xs=[8], ys=[1.0])
    html = plot(figure(Panel(kind="lines", x=SIZES, y=Axis(), traces=[evil, evil])))
    assert "</script><b>" not in html
    assert re.search('id="plot-test"', html)


# Terminal.


def test_text_bars_are_solid_from_zero_and_shaded_elsewhere():
    assert bar_lines(FLOATING, 10) == ["\u2588" * 10, " " * 5 + "\u2592" * 5, "\u2588" * 5]
    assert bar_lines(FLOATING, 10, blocks=False) == ["#" * 10, " " * 5 + "=" * 5, "#" * 5]
    assert floating_bar(0.99, 1.0, 10) == " " * 9 + "\u2592"
