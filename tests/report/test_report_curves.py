import io
import xml.etree.ElementTree as ET

import msgspec
import pytest
from rich.console import Console

from scalewise.catalog import load_cluster
from scalewise.explore.points import KNEE
from scalewise.explore.scale import scale
from scalewise.explore.sizes import Rule
from scalewise.model import load_model
from scalewise.report import curve_style as style
from scalewise.report import curve_words as words
from scalewise.report.curves import print_curves
from scalewise.report.curves_data import COLUMNS, curves_csv, curves_frame, curves_parquet, rows

WEAK = Rule(kind="weak", batch=2, sequence=4096)


@pytest.fixture(scope="module")
def one():
    """One model on one cluster, with a knee, crossovers, a gap and a strategy that never fits."""
    return scale(load_model("llama-2-7b"), load_cluster("dgx-h100"), WEAK,
                 ["fsdp", "hsdp64", "tp2", "tp8-pp16", "ddp"], [64, 1024, 8192])  # fmt: skip


@pytest.fixture(scope="module")
def many():
    """Two models, two clusters, two sequences, two strategies."""
    return scale(
        [load_model("llama-2-7b"), load_model("llama-2-13b")],
        [load_cluster("dgx-h100"), load_cluster("dgx-v100")],
        [WEAK, msgspec.structs.replace(WEAK, sequence=8192)],
        ["fsdp", "best-tp2-pp1-mb1"],
        [16, 64],
    )


def only(curves, **fields):
    kept = tuple(c for c in curves.curves if all(getattr(c, k) == v for k, v in fields.items()))
    return msgspec.structs.replace(curves, curves=kept)


# Words


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({}, "llama-2-7b, dgx-h100, sequence 4,096, fsdp"),
        ({"model": "llama-2-7b"}, "dgx-h100, sequence 4,096, fsdp"),
        ({"model": "llama-2-7b", "sequence": 4096}, "dgx-h100, fsdp"),
        ({"model": "llama-2-7b", "sequence": 4096, "label": "fsdp"}, "dgx-h100"),
        ({"cluster": "dgx-h100", "sequence": 4096, "label": "fsdp"}, "llama-2-7b"),
        ({"model": "llama-2-7b", "cluster": "dgx-h100", "sequence": 4096}, "fsdp"),
        ({"model": "llama-2-7b", "cluster": "dgx-h100", "sequence": 4096, "label": "fsdp"}, "fsdp"),
    ],
)
def test_names_say_what_differs_and_nothing_else(many, fields, name):
    kept = only(many, **fields)
    assert words.curve_name(kept.curves[0], kept) == name


def test_titles(one, many):
    assert words.title(one) == "llama-2-7b: weak scaling, 2 sequences of 4,096 per accelerator"
    assert words.title(many) == (
        "llama-2-7b, llama-2-13b: weak scaling, 2 sequences of 4,096 / 8,192 per accelerator"
    )
    strong = Rule(kind="strong", batch=1024, sequence=4096)
    assert words.title(msgspec.structs.replace(one, rules=(strong,))) == (
        "llama-2-7b: strong scaling, 1,024 sequences of 4,096 per step"
    )
    assert words.source_line(one).startswith("Predicted, not measured: scalewise ")
    assert "software stack megatron" in words.source_line(one)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({}, "from 768 accelerators tp2 beats fsdp, by 2.0 % there and 5.0 % at 2,048"),
        ({"gain": 0.0001}, "by less than 0.1 % there and 5.0 % at 2,048"),
        ({"last_gain": -0.1}, "by 2.0 % there, but not at 2,048 any more"),
        ({"last": 768}, "tp2 beats fsdp, by 2.0 % there"),
        ({"gain": 0.001, "last_gain": 0.01},
         "1.0 % at 2,048: a near-tie, which no model can decide"),
    ],
)  # fmt: skip
def test_crossovers_in_words(one, change, text):
    found = msgspec.structs.replace(
        one.crossovers[0], winner="tp2", loser="fsdp", accelerators=768, gain=0.02, last=2048,
        last_gain=0.05,
    )  # fmt: skip
    assert words.crossover_words(msgspec.structs.replace(found, **change)).endswith(text)


@pytest.mark.parametrize(
    ("strategy", "spelling"),
    [
        ("hsdp8x64-tp2-mb4", "hsdp64-tp2-mb4"),
        ("fsdp512-pp2-zbv-mb4-noreshard", "fsdp-pp2-zbv-mb4-noreshard"),
        ("zero1x128-tp2-mb4", "zero1-tp2-mb4"),
        ("ddp8-mb1", "ddp-mb1"),
    ],
)
def test_strategies_without_their_total(strategy, spelling):
    assert words.open_spelling(strategy) == spelling


def test_best_says_what_it_was(many):
    (told,) = words.best_sentences(only(many, model="llama-2-7b", cluster="dgx-h100",
                                        sequence=4096))  # fmt: skip
    assert told.startswith("best-tp2-pp1-mb1, of ")
    assert " tried: 16 " in told
    assert "tp2-mb1" in told


# Terminal


def test_terminal_has_all_values(many):
    page = io.StringIO()
    print_curves(many, Console(file=page, width=200), chosen=["something"])
    text = page.getvalue()
    for heading in ("tokens/s", "low - high", "MFU", "exposed", "W", "per J", "$ per M", "return",
                    "added tokens", "added $ per", "loss"):  # fmt: skip
        assert heading in text
    # Groups say what tells them apart; the first size has no step up.
    assert "\nllama-2-13b, dgx-v100, sequence 8,192, fp16\n" in text
    assert "16 to 64" in text
    assert "What is best, by time" in text
    assert "a llama-2-7b, dgx-h100, sequence 4,096, fsdp;" in text


# Data


def test_rows_have_every_size_of_every_curve(one):
    told = rows(one)
    assert [(row["label"], row["accelerators"]) for row in told] == [
        (label, size)
        for label in ("fsdp", "hsdp64", "tp2", "tp8-pp16", "ddp")
        for size in (64, 1024, 8192)
    ]
    assert all(tuple(row) == COLUMNS for row in told)
    gap = told[9]
    assert "does not divide 64" in gap["infeasible"]
    assert gap["tokens_per_second"] is None
    assert (gap["model"], gap["sequence"], gap["stack"]) == ("llama-2-7b", 4096, "megatron")
    assert told[12]["infeasible"].startswith("memory: needs")
    assert told[2]["cause"] == "ring latency of the exposed parameter gather"
    assert told[0]["cause"] is None
    assert curves_csv(one).splitlines()[0] == ",".join(COLUMNS)
    assert len(curves_csv(one).splitlines()) == 16


def test_parquet_keeps_numbers_and_types(one, many):
    polars = pytest.importorskip("polars")
    read = polars.read_parquet(io.BytesIO(curves_parquet(one)))
    assert tuple(read.columns) == COLUMNS
    assert read.to_dicts() == rows(one)
    assert read["accelerators"].dtype == polars.Int64
    # Nothing was searched and no budget was given: the columns still have their types.
    assert (read["examined"].dtype, read["days"].dtype) == (polars.Int64, polars.Float64)
    assert curves_frame(many)["examined"].drop_nulls().len() > 0


# Pictures


def test_colours_are_strategies_or_groups(one, many):
    mine = {drawn.name: drawn for drawn in style.order(one)}
    # Best at the largest size first; what never runs is left out.
    assert list(mine) == ["hsdp64", "tp2", "fsdp", "tp8-pp16"]
    assert len({drawn.colour for drawn in mine.values()}) == 4
    assert {drawn.dash for drawn in mine.values()} == {"solid"}
    groups = {(d.curve.group, d.colour) for d in style.order(many)}
    assert len(groups) == len({group for group, _ in groups})
    looks = {d.curve.label: (d.dash, d.marker) for d in style.order(many)}
    assert looks == {"fsdp": ("solid", "circle"), "best-tp2-pp1-mb1": ("dash", "square")}


def test_panels_without_numbers_are_left_out(one, many):
    assert [panel.field for panel in style.panels(one)] == [panel.field for panel in style.PANELS]
    no_price = [panel.field for panel in style.panels(only(many, cluster="dgx-v100"))]
    assert "usd_per_million_tokens" not in no_price
    share = next(panel for panel in style.PANELS if panel.field == "exposed_share")
    first = one.curves[0]
    assert share.values(first)[1][0] == pytest.approx(100 * first.points[0].exposed_share)


def test_marks_stand_on_their_curves(one):
    (knee,) = [mark for mark in style.knee_marks(one, KNEE) if mark.text.startswith("fsdp")]
    assert (knee.accelerators, knee.text) == (8192, "fsdp: knee at 8,192")
    assert knee.value == one.curves[0].points[2].tokens_per_second_per_accelerator
    texts = [mark.text for mark in style.crossover_marks(one)]
    assert len(texts) == len(set(texts))
    sizes = {each.accelerators for each in one.crossovers}
    assert {mark.accelerators for mark in style.crossover_marks(one)} == sizes


@pytest.mark.parametrize("kind", ["svg", "png"])
def test_images_are_images(one, kind):
    pytest.importorskip("matplotlib")
    from scalewise.report.figures import curves_image

    content = curves_image(one, kind)
    if kind == "svg":
        assert ET.fromstring(content).tag.endswith("svg")
        assert content == curves_image(one, kind)
    else:
        assert content[:8] == b"\x89PNG\r\n\x1a\n"


def test_figure_has_units_bands_marks_and_an_ordered_legend(one):
    pytest.importorskip("matplotlib")
    from scalewise.report.figures import curves_drawing

    figure = curves_drawing(one)
    titles = [axis.get_ylabel() for axis in figure.axes]
    assert titles == [panel.title for panel in style.PANELS]
    first = figure.axes[0]
    assert first.get_xlabel() == "accelerators"
    assert first.get_xscale() == "log"
    assert sorted(label.get_text() for label in first.get_xticklabels()) == ["1,024", "64", "8,192"]
    assert len(first.collections) == 4
    assert first.get_ylim()[0] == 0.0
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    # Read along the rows of five columns, of which the first is longer.
    names = ["hsdp64", "tp2", "fsdp", "tp8-pp16", "knee", "crossover, with its size"]
    assert legend == [names[0], names[5], *names[1:5]]
    caption = figure.get_supxlabel()
    assert "Predicted, not measured: scalewise" in caption
    assert "fsdp: knee at 8,192" in caption


def test_a_legend_of_several_rows_reads_along_them():
    pytest.importorskip("matplotlib")
    from scalewise.report.figures import _by_rows

    # Matplotlib fills columns: 0 3 6 | 1 4 | 2 5 shows 0 1 2 / 3 4 5 / 6.
    assert _by_rows(7, 3) == [0, 3, 6, 1, 4, 2, 5]
    assert _by_rows(3, 3) == [0, 1, 2]


def test_nothing_that_runs_is_drawn_empty():
    pytest.importorskip("matplotlib")
    from scalewise.report.figures import curves_image

    empty = scale(load_model("llama-2-7b"), load_cluster("dgx-h100"), WEAK, ["ddp"], [8])
    assert curves_image(empty, "png")


def test_page_tells_it_all_offline(one):
    pytest.importorskip("plotly")
    from scalewise.report.curves_page import curves_figure, curves_html

    named = msgspec.structs.replace(one, warnings=("<b>beware</b>",))
    page = curves_html(named, chosen=["something chosen"])
    assert "<script src=" not in page
    for text in ("Where growing stops paying", "tp2 beats fsdp", "Predicted, not measured",
                 "something chosen", "&lt;b&gt;beware&lt;/b&gt;", "No point"):  # fmt: skip
        assert text in page
    figure = curves_figure(one)
    names = [trace.name for trace in figure.data if trace.showlegend is not False and trace.name]
    assert list(dict.fromkeys(names)) == [*(d.name for d in style.order(one)), "knee", "crossover"]
    fsdp = next(t for t in figure.data if t.name == "fsdp" and t.showlegend)
    assert list(fsdp.x) == [64, 1024, 8192]
    assert figure.layout.yaxis.title.text == "tokens/s per accelerator"
    assert figure.layout.xaxis.title.text == "accelerators"
